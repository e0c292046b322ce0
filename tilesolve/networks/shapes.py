"""ONNX's operators that put elements elsewhere, as NumPy functions that pipelines trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from tilesolve.contractions.errors import TraceError
from tilesolve.networks.elementwise import computes
from tilesolve.networks.graph import Node

ALL = slice(None)


def whole_numbers(node: Node, given: Any, name: str) -> list[int] | None:
    """Return numbers that are an attribute in old versions, and an input in new ones."""
    found = given if given is not None else node.given.get(name)
    if found is None:
        return None
    if not isinstance(found, np.ndarray | list | tuple):
        raise TraceError(f"{name} of {node} is computed")
    return [int(one) for one in np.ravel(np.asarray(found))]


@computes("Identity", "Dropout")
def _identity(node: Node, opset: int, x: Any, *_: Any) -> Any:
    return x


@computes("Transpose")
def _transpose(node: Node, opset: int, x: Any) -> Any:
    return np.transpose(x, node.given.get("perm") or tuple(range(x.ndim))[::-1])


@computes("Reshape")
def _reshape(node: Node, opset: int, x: Any, shape: Any = None) -> Any:
    wanted = whole_numbers(node, shape, "shape") or []
    if not node.given.get("allowzero"):
        wanted = [x.shape[at] if n == 0 else n for at, n in enumerate(wanted)]
    return np.reshape(x, tuple(wanted))


@computes("Flatten")
def _flatten(node: Node, opset: int, x: Any) -> Any:
    axis = node.given.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return np.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@computes("Squeeze")
def _squeeze(node: Node, opset: int, x: Any, axes: Any = None) -> Any:
    found = whole_numbers(node, axes, "axes")
    return np.squeeze(x, None if found is None else tuple(found))


@computes("Unsqueeze")
def _unsqueeze(node: Node, opset: int, x: Any, axes: Any = None) -> Any:
    found = whole_numbers(node, axes, "axes") or []
    count = x.ndim + len(found)
    new = {axis % count for axis in found}
    return x[tuple(None if axis in new else ALL for axis in range(count))]


@computes("Slice")
def _slice(
    node: Node,
    opset: int,
    x: Any,
    starts: Any = None,
    ends: Any = None,
    axes: Any = None,
    steps: Any = None,
) -> Any:
    begins, behind = (
        whole_numbers(node, one, name) or [] for one, name in ((starts, "starts"), (ends, "ends"))
    )
    along = whole_numbers(node, axes, "axes") or range(len(begins))
    strides = whole_numbers(node, steps, "steps") or [1] * len(begins)
    cut = [ALL] * x.ndim
    for axis, begin, end, step in zip(along, begins, behind, strides, strict=True):
        extent = x.shape[axis]
        last = None if step < 0 and end < -extent else end
        cut[axis] = slice(begin, last, step)
    return x[tuple(cut)]


@computes("Split")
def _split(node: Node, opset: int, x: Any, split: Any = None) -> Any:
    axis, count = node.given.get("axis", 0), len(node.outputs)
    sizes = whole_numbers(node, split, "split")
    if sizes is None:
        each = -(-x.shape[axis] // count)
        sizes = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
    found, begin = [], 0
    for size in sizes:
        cut = [ALL] * x.ndim
        cut[axis] = slice(begin, begin + size)
        found.append(x[tuple(cut)])
        begin += size
    return tuple(found)


@computes("Concat")
def _concat(node: Node, opset: int, *given: Any) -> Any:
    return np.concatenate(given, axis=node.given.get("axis", 1))


@computes("Expand")
def _expand(node: Node, opset: int, x: Any, shape: Any) -> Any:
    wanted = tuple(whole_numbers(node, shape, "shape") or ())
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, wanted))


@computes("Tile")
def _tile(node: Node, opset: int, x: Any, repeats: Any) -> Any:
    for axis, times in enumerate(whole_numbers(node, repeats, "repeats") or []):
        if times != 1:
            x = np.concatenate([x] * times, axis=axis)
    return x


@computes("Pad")
def _pad(
    node: Node, opset: int, x: Any, pads: Any = None, value: Any = None, axes: Any = None
) -> Any:
    ends = whole_numbers(node, pads, "pads") or []
    along = whole_numbers(node, axes, "axes") or list(range(x.ndim))
    kept = [[0, 0] for _ in range(x.ndim)]
    for at, axis in enumerate(along):
        kept[axis] = [ends[at], ends[at + len(along)]]
    cut = tuple(slice(max(0, -low), min(0, high) or None) for low, high in kept)
    if any(one != slice(0, None) for one in cut):
        x = x[cut]
    wide = [(max(0, low), max(0, high)) for low, high in kept]
    mode = node.given.get("mode", "constant")
    if mode != "constant":
        return np.pad(x, wide, mode=mode)
    filled = node.given.get("value", 0.0) if value is None else np.asarray(value).reshape(())[()]
    return np.pad(x, wide, constant_values=filled)


@computes("DepthToSpace", "SpaceToDepth")
def _blocks(node: Node, opset: int, x: Any) -> Any:
    split, order, together = split_blocks(node, x.shape)
    return np.reshape(np.transpose(np.reshape(x, split), order), together)


def split_blocks(
    node: Node, shape: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return a shape with blocks as axes, the order of these, and the shape of the result."""
    n, c, h, w = shape
    b = node.given["blocksize"]
    if node.kind == "SpaceToDepth":
        split, order = (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4)
        return split, order, (n, c * b * b, h // b, w // b)
    few = c // b**2
    if node.given.get("mode", "DCR") == "DCR":
        split, order = (n, b, b, few, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (n, few, b, b, h, w), (0, 1, 4, 2, 5, 3)
    return split, order, (n, few, h * b, w * b)


@computes("Gather")
def _gather(node: Node, opset: int, x: Any, at: Any) -> Any:
    axis = node.given.get("axis", 0) % x.ndim
    if isinstance(at, np.ndarray) and not at.ndim:
        cut: list[Any] = [ALL] * x.ndim
        cut[axis] = int(at)
        return x[tuple(cut)]
    return np.take(x, at, axis=axis)


@computes("Resize", "Upsample")
def _resize(node: Node, opset: int, x: Any, *given: Any) -> Any:
    mode = node.given.get("mode", "nearest")
    for axis, at in _resized_axes(node, opset, x.shape, *given):
        if mode == "nearest":
            places = _nearest(node, at, x.shape[axis], old=_is_old(node, opset))
            times = _repeats(places, x.shape[axis])
            x = np.repeat(x, times, axis=axis) if times else np.take(x, places, axis=axis)
        elif mode == "linear" and not node.given.get("antialias"):
            x = _interpolate(x, at, axis)
        else:
            raise TraceError(f"it resizes by {mode}")
    return x


def read_repeats(node: Node, opset: int, shape: Sequence[int], *given: Any) -> dict[int, int]:
    """Return how often a Resize repeats each element along axes; none if it does anything else.

    Examples
    --------
    >>> node = Node("Upsample", ["x", "s"], ["y"], {"mode": "nearest"})
    >>> read_repeats(node, 9, (1, 2, 3, 4), np.array([1.0, 1.0, 2.0, 3.0]))
    {2: 2, 3: 3}
    """
    found = {}
    if node.given.get("mode", "nearest") != "nearest":
        return {}
    for axis, at in _resized_axes(node, opset, shape, *given):
        places = _nearest(node, at, shape[axis], old=_is_old(node, opset))
        found[axis] = _repeats(places, shape[axis])
    return found if all(found.values()) else {}


def _repeats(places: Any, extent: int) -> int:
    """Return how often each element stands in a row; 0 if they do not all so."""
    times: int = len(places) // extent
    repeated = np.arange(times * extent) // times if times else places
    return times if np.array_equal(places, repeated) else 0


def _is_old(node: Node, opset: int) -> bool:
    return node.kind == "Upsample" or opset < 11


def _resized_axes(
    node: Node, opset: int, shape: Sequence[int], *given: Any
) -> Iterator[tuple[int, Any]]:
    """Yield each axis that is resized, and the position in the source of each new element."""
    scales = given[-1] if _is_old(node, opset) else given[1]
    sizes = given[2] if len(given) > 2 else None
    if node.kind == "Upsample" and scales is None:
        scales = node.given.get("scales")
    if sizes is not None and np.size(sizes):
        if node.given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise TraceError("its policy keeps a ratio")
        wanted = whole_numbers(node, sizes, "sizes") or []
        factors = [out / n for out, n in zip(wanted, shape, strict=True)]
    else:
        factors = [float(one) for one in np.ravel(scales)]
        wanted = [int(n * one) for n, one in zip(shape, factors, strict=True)]
    if node.given.get("axes"):
        raise TraceError("it resizes axes that are told")
    where = node.given.get("coordinate_transformation_mode", "half_pixel")
    where = "asymmetric" if _is_old(node, opset) else where
    for axis, (extent, factor) in enumerate(zip(wanted, factors, strict=True)):
        if extent != shape[axis] or factor != 1:
            yield axis, _positions(where, extent, shape[axis], factor)


def _positions(where: str, extent: int, source: int, factor: float) -> Any:
    """Return the position in the source of each element of a resized axis."""
    at = np.arange(extent, dtype=np.float64)
    if where == "asymmetric":
        return at / factor
    if where == "align_corners":
        return at * (source - 1) / (extent - 1) if extent > 1 else at * 0
    if where == "pytorch_half_pixel" and extent == 1:
        return at * 0
    if where in ("half_pixel", "pytorch_half_pixel"):
        return (at + 0.5) / factor - 0.5
    raise TraceError(f"its positions are {where}")


def _nearest(node: Node, at: Any, source: int, *, old: bool) -> Any:
    """Return whole positions."""
    mode = "floor" if old else node.given.get("nearest_mode", "round_prefer_floor")
    rounds: dict[str, Callable[[Any], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    }
    found = rounds[mode](at)
    return np.clip(found, 0, source - 1).astype(np.int64)


def _interpolate(x: Any, at: Any, axis: int) -> Any:
    """Return elements between two others along an axis."""
    last = x.shape[axis] - 1
    low = np.clip(np.floor(at), 0, last).astype(np.int64)
    high = np.minimum(low + 1, last)
    shape = [1] * x.ndim
    shape[axis] = len(at)
    share = np.clip(at - low, 0, 1).astype(x.dtype).reshape(shape)
    below, above = np.take(x, low, axis=axis), np.take(x, high, axis=axis)
    return below + (above - below) * share
