"""Calls of each public function that takes arrays, and what they have to give.

`CASES` makes them by name. Operands are small whole numbers, of which results are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from convolution_cases import from_layout, slow_convolution, to_layout
from running_cases import make_machine

from tilesolve import (
    Machine,
    conv,
    conv_layer,
    conv_transpose,
    einsum,
    expression,
    plan,
    tensordot,
    transpose,
)

Shape = tuple[int, ...]
F8, F4, I8 = "float64", "float32", "int64"


@dataclass(frozen=True)
class Case:
    """A function of arrays.

    Parameters
    ----------
    call
        Takes the operands and an `out`, or None.
    right
        Returns what is right, given operands in float64 or complex128, and what `out` has.
    shapes, dtypes
        Of the operands.
    shape, dtype
        Of the result.
    takes_out
        Whether there is a call with `out`, and one without it.
    reads_out
        Whether what `out` has is part of the result.
    converts
        Whether operands, and `out`, may have any byte order.
    """

    call: Callable[..., np.ndarray]
    right: Callable[..., np.ndarray]
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    shape: Shape
    dtype: str
    takes_out: tuple[bool, ...] = (False, True)
    converts: bool = False


def tiny_machine() -> Machine:
    """Return a machine of small caches: small arrays, too, are copied and streamed there."""
    found = make_machine()
    first, second, *_, memory = found.levels
    levels = replace(first, capacity=4096), replace(second, capacity=16384), memory
    return replace(found, levels=levels)


# Plans

M, N, K = 19, 37, 13
SIZES = {"m": M, "n": N, "k": K}
PAIR = (M, K), (K, N)


def _product(call: Callable[..., np.ndarray], dtype: str = "float64", **rest: object) -> Case:
    """Return a case of a matrix product."""
    right = rest.pop("right", lambda a, b, out: a @ b)
    return Case(call, right, PAIR, (dtype, dtype), (M, N), dtype, **rest)


def plan_case(dtype: str, threads: int = 1, **options: object) -> Case:
    found = plan("mn-mk-kn", SIZES, dtype=dtype, threads=threads, **options)
    return _product(found, dtype)


def factors_case() -> Case:
    found = plan("mn-mk-kn", SIZES)
    return _product(
        lambda a, b, out: found(a, b, out, alpha=2, beta=-1),
        right=lambda a, b, out: 2 * (a @ b) - out,
        takes_out=(True,),
    )


def divided_sum_case() -> Case:
    """Return a plan whose threads divide the sum."""
    found = plan("mn-km-kn", "m=3 n=7 k=6000", tiny_machine(), threads=2, epilogue="*n")
    assert found.split == "k"
    return Case(
        lambda a, b, c, out: found(a, b, out, operands=(c,)),
        lambda a, b, c, out: (a.T @ b) * c,
        ((6000, 3), (6000, 7), (7,)),
        ("float64",) * 3,
        (3, 7),
        "float64",
    )


def epilogue_case(dtype: str, **options: object) -> Case:
    found = plan("mn-mk-kn", SIZES, dtype=dtype, epilogue="+n *m relu +mn", **options)
    return Case(
        lambda a, b, *others, out: found(a, b, out, operands=others),
        lambda a, b, c, d, e, out: np.maximum((a @ b + c) * d[:, None], 0) + e,
        (*PAIR, (N,), (M,), (M, N)),
        (dtype,) * 5,
        (M, N),
        dtype,
    )


def prepared_case(operand: str) -> Case:
    """Return a plan that gets one of its operands prepared."""
    found = plan("mn-mk-kn", SIZES, constant=operand)

    def call(a: np.ndarray, b: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        if operand == "A":
            return found(found.prepare(a, "A"), b, out)
        return found(a, found.prepare(b), out)

    return _product(call)


def batch_case(*, whole: bool) -> Case:
    """Return a batch of two, of arrays with an axis for them in front or of lists."""
    found = plan("mn-mk-kn", SIZES)

    def call(a: np.ndarray, b: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        if whole or out is None:
            return found.batch(a, b, out)
        found.batch(list(a), list(b), list(out))
        return out

    return Case(
        call,
        lambda a, b, out: a @ b,
        ((2, M, K), (2, K, N)),
        ("float64", "float64"),
        (2, M, N),
        "float64",
    )


def window_case() -> Case:
    """Return a plan of an affine subscript."""
    found = plan("khw-c[2h+r][w+s]-kcrs", "k=5 h=4 w=9 c=3 r=2 s=3")
    return Case(
        found,
        lambda x, w, out: slow_convolution(
            x[None], w, stride=(2, 1), padding=[(0, 0)] * 2, dilation=(1, 1), groups=1
        )[0],
        ((3, 8, 11), (5, 3, 2, 3)),
        ("float64", "float64"),
        (5, 4, 9),
        "float64",
    )


# Einsums and transposes


def einsum_case(text: str, *shapes: Shape, dtypes: tuple[str, ...] = ()) -> Case:
    dtypes = dtypes or ("float64",) * len(shapes)
    right = partial(np.einsum, text)
    result = np.einsum(text, *(np.zeros(*one) for one in zip(shapes, dtypes, strict=True)))
    return Case(
        lambda *operands, out: einsum(text, *operands, out=out),
        lambda *operands, out: right(*operands),
        shapes,
        dtypes,
        result.shape,
        result.dtype.name,
        converts=True,
    )


def expression_case(text: str, *shapes: Shape) -> Case:
    return replace(einsum_case(text, *shapes), call=expression(text, *shapes), converts=False)


def constants_case() -> Case:
    """Return an expression one of whose operands is constant."""
    return replace(
        einsum_case("mk,kn->mn", *PAIR),
        call=lambda a, b, out: expression("mk,kn->mn", PAIR[0], b, constants=[1])(a, out=out),
        converts=False,
    )


def tensordot_case() -> Case:
    return Case(
        lambda a, b, out: tensordot(a, b, ([1, 2], [1, 0])),
        lambda a, b, out: np.tensordot(a, b, ([1, 2], [1, 0])),
        ((M, 3, 5), (5, 3, N)),
        ("float64", "float64"),
        (M, N),
        "float64",
        takes_out=(False,),
        converts=True,
    )


def transpose_case(dtype: str, shape: Shape, axes: Shape, threads: int = 1) -> Case:
    return Case(
        lambda a, out: transpose(a, axes, out, threads=threads),
        lambda a, out: a.transpose(axes),
        (shape,),
        (dtype,),
        tuple(shape[axis] for axis in axes),
        dtype,
    )


# Convolutions

IMAGES, FILTERS = (2, 4, 7, 19), (6, 4, 3, 3)
WINDOW = {"stride": (2, 1), "padding": [(1, 1)] * 2, "dilation": (1, 1), "groups": 1}


def _convolve(images: np.ndarray, filters: np.ndarray, layout: str) -> np.ndarray:
    return slow_convolution(from_layout(images, layout), filters, **WINDOW)


def _per_filter(numbers: np.ndarray) -> np.ndarray:
    return numbers.reshape(-1, 1, 1)


def _shape_in(layout: str, shape: Shape) -> Shape:
    return to_layout(np.empty(shape), layout).shape


def conv_case(layout: str, window: Shape = (3, 3)) -> Case:
    return Case(
        lambda x, w, b, out: conv(x, w, b, **WINDOW, layout=layout, epilogue="relu", out=out),
        lambda x, w, b, out: to_layout(
            np.maximum(_convolve(x, w, layout) + _per_filter(b), 0), layout
        ),
        (_shape_in(layout, IMAGES), FILTERS, (6,)),
        ("float32",) * 3,
        _shape_in(layout, (2, 6, 4, 19)),
        "float32",
    )


def pointwise_case(layout: str) -> Case:
    """Return a convolution whose pixels may be one axis."""
    return Case(
        lambda x, w, out: conv(x, w, layout=layout, out=out),
        lambda x, w, out: to_layout(
            np.einsum("nchw,kc->nkhw", from_layout(x, layout), w[..., 0, 0]), layout
        ),
        (_shape_in(layout, IMAGES), (6, 4, 1, 1)),
        ("float32",) * 2,
        _shape_in(layout, (2, 6, 7, 19)),
        "float32",
    )


def depthwise_case() -> Case:
    window = WINDOW | {"groups": 4}
    return Case(
        lambda x, w, out: conv(x, w, **window, out=out),
        lambda x, w, out: slow_convolution(x, w, **window),
        (IMAGES, (4, 1, 3, 3)),
        ("float32",) * 2,
        (2, 4, 4, 19),
        "float32",
    )


def layer_case(layout: str) -> Case:
    """Return a layer with a bias and a residual; its constants are drawn, too."""

    def call(
        x: np.ndarray, w: np.ndarray, b: np.ndarray, residual: np.ndarray, out: np.ndarray | None
    ) -> np.ndarray:
        made = conv_layer(x.shape, w, b, **WINDOW, layout=layout, epilogue="relu", residual=True)
        first = made(x, residual=residual)
        np.testing.assert_array_equal(made(x, out, residual), first)
        return first if out is None else out

    return Case(
        call,
        lambda x, w, b, residual, out: np.maximum(
            to_layout(_convolve(x, w, layout) + _per_filter(b), layout) + residual, 0
        ),
        (_shape_in(layout, IMAGES), FILTERS, (6,), _shape_in(layout, (2, 6, 4, 19))),
        ("float32",) * 4,
        _shape_in(layout, (2, 6, 4, 19)),
        "float32",
    )


def kept_layer_case() -> Case:
    """Return a layer that was made before, whose residual may be `out`."""
    weights = np.arange(6 * 4.0, dtype="float32").reshape(6, 4, 1, 1) % 5 - 2
    made = conv_layer(IMAGES, weights, residual=True)
    return Case(
        lambda x, residual, out: made(x, out, residual),
        lambda x, residual, out: np.einsum("nchw,kc->nkhw", x, weights[..., 0, 0]) + residual,
        (IMAGES, (2, 6, 7, 19)),
        ("float32",) * 2,
        (2, 6, 7, 19),
        "float32",
    )


def batch_norm_case() -> Case:
    """Return a layer with a batch normalisation of whole numbers."""

    def call(x: np.ndarray, w: np.ndarray, *norm: np.ndarray, out: np.ndarray) -> np.ndarray:
        gamma, beta, mean = norm
        folded = gamma, beta, mean, np.ones(6), 0.0
        return conv_layer(IMAGES, w, **WINDOW, batch_norm=folded)(x, out)

    return Case(
        call,
        lambda x, w, gamma, beta, mean, out: (
            (slow_convolution(x, w, **WINDOW) - _per_filter(mean)) * _per_filter(gamma)
            + _per_filter(beta)
        ),
        (IMAGES, FILTERS, (6,), (6,), (6,)),
        ("float32",) * 2 + ("float64",) * 3,
        (2, 6, 4, 19),
        "float32",
    )


def transposed_case(layout: str) -> Case:
    """Return a transposed convolution of stride 2."""

    def right(x: np.ndarray, w: np.ndarray, b: np.ndarray, out: object) -> np.ndarray:
        x = from_layout(x, layout)
        spread = np.zeros((2, 4, 9, 15))
        spread[:, :, ::2, ::2] = x
        filters = np.flip(w, (2, 3)).swapaxes(0, 1)
        options = {"stride": (1, 1), "padding": [(2, 2)] * 2, "dilation": (1, 1), "groups": 1}
        return to_layout(slow_convolution(spread, filters, **options) + _per_filter(b), layout)

    return Case(
        lambda x, w, b, out: conv_transpose(x, w, b, stride=2, layout=layout, out=out),
        right,
        (_shape_in(layout, (2, 4, 5, 8)), (4, 6, 3, 3), (6,)),
        ("float32",) * 3,
        _shape_in(layout, (2, 6, 11, 17)),
        "float32",
    )


CASES: dict[str, Callable[[], Case]] = {
    **{f"plan {dtype}": partial(plan_case, dtype) for dtype in (F8, F4, "complex64", "float16")},
    "plan of two threads": partial(plan_case, F4, 2),
    "plan of small caches": partial(plan_case, F4, machine=tiny_machine()),
    "factors": factors_case,
    "divided sum": divided_sum_case,
    **{f"epilogue {dtype}": partial(epilogue_case, dtype) for dtype in (F8, F4, "float16")},
    "epilogue of two threads": partial(epilogue_case, F4, threads=2),
    "prepared A": partial(prepared_case, "A"),
    "prepared B": partial(prepared_case, "B"),
    "batch": partial(batch_case, whole=True),
    "batch of lists": partial(batch_case, whole=False),
    "window": window_case,
    "einsum of one": partial(einsum_case, "iij->j", (5, 5, 7)),
    "einsum of two": partial(einsum_case, "mk,kn->mn", *PAIR),
    "einsum of three": partial(einsum_case, "mk,kn,nj->jm", *PAIR, (N, 3)),
    "einsum of dtypes": partial(einsum_case, "mk,kn->mn", *PAIR, dtypes=(F4, I8)),
    "einsum of integers": partial(einsum_case, "mk,kn->nm", *PAIR, dtypes=(I8, I8)),
    "expression of one": partial(expression_case, "mk->k", PAIR[0]),
    "expression of two": partial(expression_case, "mk,kn->mn", *PAIR),
    "expression of three": partial(expression_case, "mk,kn,nj->jm", *PAIR, (N, 3)),
    "constants": constants_case,
    "tensordot": tensordot_case,
    "transpose": partial(transpose_case, F8, (17, 1, 33), (2, 1, 0)),
    "transpose of bytes": partial(transpose_case, "int8", (5, 40, 65), (1, 2, 0)),
    "transpose of two threads": partial(transpose_case, "complex128", (33, 70), (1, 0), 2),
    "conv NCHW": partial(conv_case, "NCHW"),
    "conv NHWC": partial(conv_case, "NHWC"),
    "pointwise NCHW": partial(pointwise_case, "NCHW"),
    "pointwise NHWC": partial(pointwise_case, "NHWC"),
    "depthwise": depthwise_case,
    "layer NCHW": partial(layer_case, "NCHW"),
    "layer NHWC": partial(layer_case, "NHWC"),
    "layer that was made": kept_layer_case,
    "batch_norm": batch_norm_case,
    "conv_transpose NCHW": partial(transposed_case, "NCHW"),
    "conv_transpose NHWC": partial(transposed_case, "NHWC"),
}
"""What makes a case, by name."""
