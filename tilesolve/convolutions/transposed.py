"""Transposed convolutions: each pixel of the images adds a window of weights to the result.

Pixels of the result that are a stride apart see the same taps. So a result is as many convolutions
of stride 1 as strides have pixels, each of the images with some of the taps, in reverse order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.convolution_arguments import (
    Ends,
    PaddingArgument,
    count_dimensions,
    read_number,
    read_numbers,
    read_padding,
)
from tilesolve.contractions.errors import SizeError, SpecError
from tilesolve.convolutions.conv import conv
from tilesolve.convolutions.layer_plans import as_operand
from tilesolve.packing.memory_overlap import Array
from tilesolve.system.checks import check_dtype, check_output
from tilesolve.system.result_buffers import new_result


def conv_transpose(
    x: npt.ArrayLike,
    w: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: PaddingArgument = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    layout: str = "NCHW",
    out: npt.NDArray[Any] | None = None,
    threads: int | None = None,
) -> npt.NDArray[Any]:
    """Return what `conv` with these arguments would take to give `x`: its gradient, with a bias.

    Parameters
    ----------
    x
        The images, in the order of the layout; any strides, never modified.
    w
        The weights, in torch's order: channels of `x`, filters of a group, window. Any strides.
    bias
        A number for each filter.
    stride, dilation, groups
        As in torch.
    padding
        Pixels that the result lacks on each side, given as in `conv`.
    output_padding
        Pixels that the result has more at each end: a number, or one for each dimension.
    layout
        ``"NCHW"`` or ``"NHWC"``, whatever the number of dimensions is.
    out
        Where the result goes; a new array if None. It may share no memory with an operand.
    threads
        Cores that share the work, as in `plan`.

    Raises
    ------
    SizeError, SpecError, DtypeError, PlanError
        If arrays and arguments do not fit; nothing has been written then.

    Examples
    --------
    >>> conv_transpose([[[1.0, 2.0]]], [[[1.0, 1.0, 1.0]]], stride=2).tolist()
    [[[1.0, 1.0, 3.0, 2.0, 2.0]]]
    """
    images, weights = read_array(x, "x"), read_array(w, "w")
    check_dtype(weights, "w", images.dtype, "x")
    if not isinstance(layout, str) or layout not in ("NCHW", "NHWC"):
        raise SpecError(f"layout {layout!r} of a transposed convolution; NCHW, NHWC are known")
    order = count_dimensions(images.shape, weights.shape, layout)
    filters = group_filters(weights, read_number("groups", groups, 1))
    last = layout == "NHWC"
    size = images.shape[1:-1] if last else images.shape[2:]
    channels = images.shape[-1 if last else 1]
    if channels != len(weights):
        raise SizeError(f"w has {len(weights)} channels (shape {weights.shape}), x has {channels}")
    axes = read_axes(size, weights.shape[2:], stride, padding, output_padding, dilation)
    shift = None
    if bias is not None:
        shift = as_operand(bias, "bias", (len(filters),), str(images.dtype), "x")
    pixels = tuple(axis.out for axis in axes)
    shape = (len(images), *pixels, len(filters)) if last else (len(images), len(filters), *pixels)
    apart = {"x": images, "w": weights} | ({} if shift is None else {"bias": shift})
    if out is None:
        target = new_result(shape, images.dtype)
    else:
        target = check_output(out, "out", shape, dtype=images.dtype, whose="x", operands=apart)
    first = 1 if last else 2
    for part in split_transposed(filters, axes):
        results = target[(slice(None),) * first + part.results]
        seen = images[(slice(None),) * first + part.pixels]
        if not (seen.size and part.weights.size):
            results[:] = 0 if shift is None else shift.reshape(-1, *[1] * (0 if last else order))
            continue
        conv(
            *(seen, part.weights, shift),
            padding=part.padding,
            dilation=part.dilation,
            groups=groups,
            layout=layout,
            out=results,
            threads=threads,
        )
    return target if out is None else out


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A convolution of stride 1 that gives some pixels of a result.

    Parameters
    ----------
    results, pixels
        Those of the result, and those of the images that they see.
    weights, padding, dilation
        As `conv` takes them.
    """

    results: tuple[slice, ...]
    pixels: tuple[slice, ...]
    weights: Array
    padding: tuple[Ends, ...]
    dilation: tuple[int, ...]


def split_transposed(filters: Array, axes: Sequence[Axis]) -> Iterator[Part]:
    """Yield what makes up a transposed convolution, given weights as `conv` takes them.

    Where pixels of the result see no pixel of the images, or no tap, these are empty.
    """
    for phases in product(*(axis.phases() for axis in axes)):
        taken = filters
        for at, one in enumerate(phases, start=2):
            taken = taken.take(np.array(one.taps, np.int64), at)
        yield Part(
            tuple(one.results for one in phases),
            tuple(one.pixels for one in phases),
            taken,
            tuple(one.padding for one in phases),
            tuple(one.dilation for one in phases),
        )


@dataclass(frozen=True, slots=True)
class _Phase:
    """Pixels of a result along one dimension that see the same taps, and what they see.

    `results`, `pixels` and `taps` are those of the result, the images and the weights, last tap
    first; `padding` and `dilation` are those of the convolution of these.
    """

    results: slice
    pixels: slice
    taps: list[int]
    padding: Ends
    dilation: int


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension: pixels of images and of results, taps, and the arguments."""

    size: int
    out: int
    taps: int
    stride: int
    before: int
    dilation: int

    def phases(self) -> list[_Phase]:
        """Return what makes up the result; pixel ``o`` takes ``stride * i + dilation * t``."""
        return [self._phase(first) for first in range(min(self.stride, self.out))]

    def _phase(self, first: int) -> _Phase:
        begin, rest = divmod(first + self.before, self.stride)
        count = (self.out - 1 - first) // self.stride + 1
        taps = [t for t in range(self.taps) if self.dilation * t % self.stride == rest]
        # Tap t of pixel number n of the phase takes pixel begin + n - moves of the images.
        moves = [(self.dilation * t - rest) // self.stride for t in taps] or [0]
        low, high = begin - moves[-1], begin + count - moves[0]
        start, end = max(low, 0), min(high, self.size)
        return _Phase(
            slice(first, None, self.stride),
            slice(start, max(start, end)),
            taps[::-1],
            (start - low, high - end),
            self.dilation // gcd(self.dilation, self.stride),
        )


def read_axes(
    size: tuple[int, ...],
    window: tuple[int, ...],
    stride: int | Sequence[int],
    padding: PaddingArgument,
    output_padding: int | Sequence[int],
    dilation: int | Sequence[int],
) -> list[Axis]:
    """Return the dimensions of a transposed convolution of images of some size.

    Raises
    ------
    SizeError
        If one of them has no result.
    """
    order = len(size)
    steps, gaps = (
        read_numbers(name, value, order)
        for name, value in (("stride", stride), ("dilation", dilation))
    )
    reaches = [gap * (taps - 1) + 1 for gap, taps in zip(gaps, window, strict=True)]
    ends = read_padding(padding, reaches, steps)
    more = output_padding if isinstance(output_padding, Sequence) else [output_padding] * order
    if len(more) != order:
        raise SizeError(f"output_padding has {len(more)} numbers, x has {order} dimensions")
    found = []
    for at, (pixels, taps, step, gap, (before, after), extra) in enumerate(
        zip(size, window, steps, gaps, ends, more, strict=True)
    ):
        whole = step * (pixels - 1) + reaches[at] + read_number("output_padding", extra, 0)
        if min(taps, pixels) < 1 or whole - before - after < 1:
            raise SizeError(
                f"dimension {at} of a transposed convolution has no result: {pixels} pixels of x "
                f"and {taps} taps of w reach over {whole}, padding takes {before} and {after}"
            )
        found.append(Axis(pixels, whole - before - after, taps, step, before, gap))
    return found


def group_filters(weights: Array, groups: int) -> Array:
    """Return weights as `conv` takes them: filters, channels of a group, window."""
    channels, filters, *window = weights.shape
    if channels % groups:
        raise SizeError(f"groups={groups} do not divide {channels} channels (shape of w)")
    parted = weights.reshape(groups, channels // groups, filters, *window).swapaxes(1, 2)
    return parted.reshape(groups * filters, channels // groups, *window)
