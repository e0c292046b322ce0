"""ONNX's pools, reductions, normalisations and products, as functions that pipelines trace."""

from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from tilesolve.contractions.errors import TraceError
from tilesolve.networks.elementwise import FUNCTIONS as FUNCTIONS
from tilesolve.networks.elementwise import computes, kind_of
from tilesolve.networks.files import same_ends
from tilesolve.networks.graph import Node
from tilesolve.networks.shapes import whole_numbers


def read_window(
    node: Node, extents: tuple[int, ...]
) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
    """Return taps, strides, dilations and ends of a pool, so that the last window fits."""
    order = len(extents)
    taps = list(node.given["kernel_shape"])
    strides = list(node.given.get("strides") or [1] * order)
    gaps = list(node.given.get("dilations") or [1] * order)
    pads = node.given.get("pads") or [0] * 2 * order
    kind = node.given.get("auto_pad", "NOTSET")
    ends = []
    for at, extent in enumerate(extents):
        reach = gaps[at] * (taps[at] - 1) + 1
        low, high = pads[at], pads[at + order]
        if kind in ("SAME_UPPER", "SAME_LOWER"):
            low, high = same_ends(kind, extent, taps[at], strides[at], gaps[at])
        elif kind == "VALID":
            low = high = 0
        elif node.given.get("ceil_mode"):
            count = -(-(extent + low + high - reach) // strides[at]) + 1
            if (count - 1) * strides[at] >= extent + low:  # a window that begins in the padding
                count -= 1
            high = max(high, (count - 1) * strides[at] + reach - extent - low)
        ends.append((low, high))
    return taps, strides, gaps, ends


def _taps(node: Node, x: Any, filled: Any) -> Any:
    """Yield, for each tap of a window, what all windows have there."""
    taps, strides, gaps, ends = read_window(node, x.shape[2:])
    if any(low or high for low, high in ends):
        x = np.pad(x, [(0, 0), (0, 0), *ends], constant_values=filled)
    counts = [
        (extent - gap * (n - 1) - 1) // step + 1
        for extent, gap, n, step in zip(x.shape[2:], gaps, taps, strides, strict=True)
    ]
    for tap in product(*map(range, taps)):
        cuts = [
            slice(gap * at, gap * at + step * (count - 1) + 1, step)
            for at, gap, step, count in zip(tap, gaps, strides, counts, strict=True)
        ]
        yield x[(slice(None), slice(None), *cuts)]


@computes("MaxPool")
def _max_pool(node: Node, opset: int, x: Any) -> Any:
    if len(node.outputs) > 1:
        raise TraceError("it gives positions, too")
    kind = np.dtype(x.dtype)
    least = np.iinfo(kind).min if kind.kind in "iu" else -np.inf
    found = None
    for one in _taps(node, x, least):
        found = one if found is None else np.maximum(found, one)
    return found


@computes("AveragePool")
def _average_pool(node: Node, opset: int, x: Any) -> Any:
    found = None
    for one in _taps(node, x, 0):
        found = one if found is None else found + one
    assert found is not None
    return found / _counts(node, x.shape[2:]).astype(x.dtype)


def _counts(node: Node, extents: tuple[int, ...]) -> Any:
    """Return how many elements each window has that count."""
    taps, strides, gaps, ends = read_window(node, extents)
    pads = node.given.get("pads") or [0] * 2 * len(extents)
    found = np.ones((1, 1, *(1 for _ in extents)))
    for at, extent in enumerate(extents):
        low, high = ends[at]
        ones = np.zeros(extent + low + high)
        begin, behind = low, low + extent
        if node.given.get("count_include_pad"):
            told = pads[at + len(extents)] if node.given.get("ceil_mode") else high
            begin, behind = 0, low + extent + told
        ones[begin:behind] = 1
        count = (len(ones) - gaps[at] * (taps[at] - 1) - 1) // strides[at] + 1
        along = np.array(
            [
                ones[strides[at] * one : strides[at] * one + gaps[at] * taps[at] : gaps[at]].sum()
                for one in range(count)
            ]
        )
        shape = [1] * (2 + len(extents))
        shape[2 + at] = count
        found = found * along.reshape(shape)
    if (found == found.flat[0]).all():
        return found.reshape(-1)[0]
    return found


@computes("GlobalAveragePool")
def _global_average(node: Node, opset: int, x: Any) -> Any:
    return np.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@computes("GlobalMaxPool")
def _global_max(node: Node, opset: int, x: Any) -> Any:
    return np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _reduction(node: Node, x: Any, axes: Any) -> dict[str, Any]:
    """Return the axes and keepdims of a reduction as NumPy has them."""
    found = whole_numbers(node, axes, "axes")
    if not found and node.given.get("noop_with_empty_axes"):
        raise TraceError("it reduces nothing")
    along = tuple(found) if found else tuple(range(x.ndim))
    return {"axis": along, "keepdims": bool(node.given.get("keepdims", 1))}


for _kind, _function in {
    **{"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max},
    **{"ReduceMin": np.min, "ReduceProd": np.prod},
}.items():

    @computes(_kind)
    def _reduce(
        node: Node, opset: int, x: Any, axes: Any = None, _function: Any = _function
    ) -> Any:
        return _function(x, **_reduction(node, x, axes))


@computes("ReduceSumSquare", "ReduceL2")
def _squares(node: Node, opset: int, x: Any, axes: Any = None) -> Any:
    found = np.sum(x * x, **_reduction(node, x, axes))
    return found if node.kind == "ReduceSumSquare" else np.sqrt(found)


@computes("ReduceL1")
def _absolutes(node: Node, opset: int, x: Any, axes: Any = None) -> Any:
    return np.sum(np.abs(x), **_reduction(node, x, axes))


@computes("Softmax", "LogSoftmax")
def _softmax(node: Node, opset: int, x: Any) -> Any:
    axis = node.given.get("axis", -1 if opset >= 13 else 1) % x.ndim
    along = axis if opset >= 13 else tuple(range(axis, x.ndim))
    apart = x - np.max(x, axis=along, keepdims=True)
    powers = np.exp(apart)
    total = np.sum(powers, axis=along, keepdims=True)
    return powers / total if node.kind == "Softmax" else apart - np.log(total)


@computes("LayerNormalization")
def _layer_norm(node: Node, opset: int, x: Any, scale: Any, bias: Any = None) -> Any:
    if len([one for one in node.outputs if one]) > 1:
        raise TraceError("it gives mean and deviation, too")
    axis = node.given.get("axis", -1) % x.ndim
    along = tuple(range(axis, x.ndim))
    found = _normalise(x, along, node.given.get("epsilon", 1e-5)) * scale
    return found if bias is None else found + bias


@computes("RMSNormalization")
def _rms_norm(node: Node, opset: int, x: Any, scale: Any) -> Any:
    axis = node.given.get("axis", -1) % x.ndim
    square = np.mean(x * x, axis=tuple(range(axis, x.ndim)), keepdims=True)
    return x / np.sqrt(square + kind_of(x)(node.given.get("epsilon", 1e-5))) * scale


def _normalise(x: Any, along: tuple[int, ...], epsilon: float) -> Any:
    """Return what has the mean 0 and the variance 1 along some axes."""
    apart = x - np.mean(x, axis=along, keepdims=True)
    variance = np.mean(apart * apart, axis=along, keepdims=True)
    return apart / np.sqrt(variance + kind_of(x)(epsilon))


def _by_channel(values: Any, x: Any) -> Any:
    return np.reshape(values, (-1, *(1,) * (x.ndim - 2)))


@computes("InstanceNormalization")
def _instance_norm(node: Node, opset: int, x: Any, scale: Any, bias: Any) -> Any:
    along = tuple(range(2, x.ndim))
    found = _normalise(x, along, node.given.get("epsilon", 1e-5))
    return found * _by_channel(scale, x) + _by_channel(bias, x)


@computes("GroupNormalization")
def _group_norm(node: Node, opset: int, x: Any, scale: Any, bias: Any) -> Any:
    groups, channels = node.given["num_groups"], x.shape[1]
    split = np.reshape(x, (x.shape[0], groups, channels // groups, *x.shape[2:]))
    along = tuple(range(2, split.ndim))
    found = _normalise(split, along, node.given.get("epsilon", 1e-5))
    if opset < 21:
        scale, bias = (np.repeat(one, channels // groups) for one in (scale, bias))
    shape = (groups, channels // groups, *(1,) * (x.ndim - 2))
    found = found * np.reshape(scale, shape) + np.reshape(bias, shape)
    return np.reshape(found, x.shape)


@computes("LRN")
def _local_response(node: Node, opset: int, x: Any) -> Any:
    size, rest = node.given["size"], [(0, 0)] * (x.ndim - 2)
    squares = np.pad(x * x, [(0, 0), ((size - 1) // 2, size // 2), *rest], constant_values=0)
    total = reduce(np.add, (squares[:, at : at + x.shape[1]] for at in range(size)))
    factor, power = node.given.get("alpha", 1e-4) / size, node.given.get("beta", 0.75)
    base = kind_of(x)(node.given.get("bias", 1.0)) + kind_of(x)(factor) * total
    return x * np.exp(kind_of(x)(-power) * np.log(base))


@computes("BatchNormalization")
def _batch_norm(
    node: Node, opset: int, x: Any, scale: Any, bias: Any, mean: Any, variance: Any
) -> Any:
    if node.given.get("training_mode"):
        raise TraceError("it is trained")
    deviation = np.sqrt(variance + kind_of(x)(node.given.get("epsilon", 1e-5)))
    factor = scale / deviation
    return x * _by_channel(factor, x) + _by_channel(bias - mean * factor, x)


@computes("MatMul")
def _matmul(node: Node, opset: int, a: Any, b: Any) -> Any:
    return np.matmul(a, b)


@computes("Gemm")
def _gemm(node: Node, opset: int, a: Any, b: Any, c: Any = None) -> Any:
    first = a.T if node.given.get("transA") else a
    second = b.T if node.given.get("transB") else b
    found = np.matmul(first, second)
    alpha, beta = node.given.get("alpha", 1.0), node.given.get("beta", 1.0)
    found = found if alpha == 1 else found * kind_of(a)(alpha)
    if c is None:
        return found
    return found + (c if beta == 1 else c * kind_of(a)(beta))


@computes("Einsum")
def _einsum(node: Node, opset: int, *given: Any) -> Any:
    return np.einsum(node.given["equation"].replace(" ", ""), *given)
