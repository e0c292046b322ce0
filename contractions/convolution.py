"""Convolution layers: from the arguments that people know to a problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from math import prod
from typing import Literal, Self, cast, get_args

import numpy.typing as npt

from tilesolve.contractions.convolution_arguments import (
    Ends,
    PaddingArgument,
    count_dimensions,
    read_number,
    read_numbers,
    read_padding,
    read_shape,
    read_sizes,
    write_numbers,
    write_unusual,
)
from tilesolve.contractions.errors import SizeError, SpecError
from tilesolve.contractions.padding import Padding
from tilesolve.contractions.problem import Problem, dtype_name
from tilesolve.contractions.spec import Spec, Subscript, Tensor
from tilesolve.contractions.views import View

Layout = Literal["NCHW", "NHWC", "NCHWc"]
"""Where channels stand in images and results: before all pixels, after them, or in blocks, of
which each stands after the pixels."""

_PIXELS, _TAPS = "dhw", "trs"


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution layer of one to three spatial dimensions.

    Tuples have one entry for each spatial dimension. `Convolution.of` is the usual way to make one.

    Parameters
    ----------
    batch, channels, filters
        Images, channels of an image, and channels of a result.
    size, window
        Pixels of an image, and taps of a filter.
    stride, dilation
        Pixels from one window to the next, and from one tap to the next.
    padding
        Zeros before and after an image.
    groups
        Parts that channels and filters are divided into: filters of one see its channels alone.
    layout
        Where channels stand.
    dtype
        Of all arrays.
    blocks
        How many channels of an image and of a result make a block, in the layout ``"NCHWc"``.

    Examples
    --------
    >>> layer = Convolution.of((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
    >>> print(layer)
    7x7 3→64, 224x224, stride 2, padding 3, NCHW float32
    >>> layer.out_shape, layer.flops
    ((1, 64, 112, 112), 236027904)
    >>> print(layer.problem.spec)
    khw-c[2h+r][2w+s]-kcrs
    """

    batch: int
    channels: int
    filters: int
    size: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[Ends, ...]
    groups: int
    layout: Layout
    dtype: str
    blocks: tuple[int, int] = (1, 1)

    @classmethod
    def of(
        cls,
        x_shape: Sequence[int],
        w_shape: Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: PaddingArgument = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        layout: str = "NCHW",
        dtype: npt.DTypeLike = "float32",
    ) -> Self:
        """Return the layer that these arguments describe.

        Parameters
        ----------
        x_shape
            Of the images, in the layout's order.
        w_shape
            Of the filters: filters, channels of a group, then the window. With blocks: those of
            filters, those of channels, the window, the channels and the filters of a block.
        stride, dilation
            A number, or one for each dimension.
        padding
            A number; one for each dimension; pairs of zeros before and after; ``"valid"`` for none;
            or ``"same"`` for results as large as the images, where the stride is 1.
        groups
            Parts that channels and filters are divided into.
        layout
            ``"NCHW"``, ``"NHWC"`` or ``"NCHWc"``, whatever the number of dimensions is.
        dtype
            Of all arrays.

        Raises
        ------
        SizeError
            If shapes do not fit each other, or an argument is out of range.
        SpecError
            If there is no such layout or padding.
        DtypeError
            If tilesolve does not compute in the dtype.

        Examples
        --------
        >>> Convolution.of((1, 3, 8, 8), (4, 2, 3, 3))
        Traceback (most recent call last):
            ...
        tilesolve.contractions.errors.SizeError: w has 2 channels (shape (4, 2, 3, 3)), but x has \
3 in 1 groups (shape (1, 3, 8, 8), NCHW)
        """
        if not isinstance(layout, str) or layout not in get_args(Layout):
            known = ", ".join(get_args(Layout))
            raise SpecError(f"layout {layout!r} is not known; {known} are")
        x, w = read_shape("x", x_shape), read_shape("w", w_shape)
        groups = read_number("groups", groups, 1)
        dimensions = count_dimensions(x, w, layout)
        window = w[2 : 2 + dimensions]
        if min(window) < 1:
            raise SizeError(f"the window of w is empty: shape {w}")
        batch, channels, filters, size, blocks = read_sizes(x, w, groups, layout)
        steps = read_numbers("stride", stride, dimensions)
        gaps = read_numbers("dilation", dilation, dimensions)
        reaches = [gap * (n - 1) + 1 for gap, n in zip(gaps, window, strict=True)]
        ends = read_padding(padding, reaches, steps)
        for at, (pixels, reach) in enumerate(zip(size, reaches, strict=True)):
            padded = pixels + sum(ends[at])
            if reach > padded:
                raise SizeError(
                    f"the window of w reaches over {reach} pixels of dimension {at}, of which x "
                    f"has {pixels}, {padded} with padding"
                )
        kind = cast(Layout, layout)
        return cls(
            *(batch, channels, filters, size, window, steps, gaps, ends),
            *(groups, kind, dtype_name(dtype), blocks),
        )

    @property
    def out_size(self) -> tuple[int, ...]:
        """Pixels of a result."""
        return tuple(
            (pixels + before + after - gap * (taps - 1) - 1) // step + 1
            for pixels, (before, after), gap, taps, step in zip(
                *(self.size, self.padding, self.dilation, self.window, self.stride), strict=True
            )
        )

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The shape of the images."""
        return self._shape(self.channels, self.size, self.blocks[0])

    @property
    def w_shape(self) -> tuple[int, ...]:
        """The shape of the filters."""
        own, (last, first) = self.channels // self.groups, self.blocks
        if self.layout != "NCHWc":
            return (self.filters, own, *self.window)
        last = min(last, own)
        return (self.filters // first, own // last, *self.window, last, first)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the results."""
        return self._shape(self.filters, self.out_size, self.blocks[1])

    def _shape(self, channels: int, pixels: tuple[int, ...], block: int) -> tuple[int, ...]:
        if self.layout == "NHWC":
            return (self.batch, *pixels, channels)
        if self.layout == "NCHW":
            return (self.batch, channels, *pixels)
        return (self.batch, channels // block, *pixels, block)

    @property
    def flops(self) -> int:
        """Floating-point operations, zeros of the padding included."""
        return self.problem.flops

    @property
    def pointwise(self) -> bool:
        """Whether each result depends on one pixel, at the same place."""
        return all(
            n == step == 1 and not any(ends)
            for n, step, ends in zip(self.window, self.stride, self.padding, strict=True)
        )

    @property
    def depthwise(self) -> bool:
        """Whether each filter sees one channel, of several."""
        return self.groups == self.channels > 1

    @property
    def problem(self) -> Problem:
        """The layer as a problem, over arrays as `form` views them."""
        return self.form().problem

    @property
    def flat_problem(self) -> Problem:
        """The same with all pixels as one letter, where it is pointwise: a product of matrices."""
        return self.form(flat=self.pointwise).problem

    def form(self, *, flat: bool = False) -> Form:
        """Return the layer as a problem, and how it views the arrays; flat: of a pointwise one.

        Examples
        --------
        >>> layer = Convolution.of((8, 14, 14, 32), (64, 32, 1, 1), layout="NHWC")
        >>> print(layer.form().problem.spec, layer.form(flat=True).problem.spec)
        nhwk-nhwc-ck xk-xc-ck
        """
        return _Letters(self, flat).form()

    def __str__(self) -> str:
        sides = [one if one == other else f"{one}+{other}" for one, other in self.padding]
        parts = (
            f"{write_numbers(self.window)} {self.channels}→{self.filters}",
            write_numbers(self.size),
            f"batch {self.batch}" if self.batch != 1 else "",
            write_unusual("stride", self.stride, 1),
            write_unusual("padding", sides, 0),
            write_unusual("dilation", self.dilation, 1),
            f"{self.groups} groups" if self.groups != 1 else "",
            f"{self.layout} {self.dtype}",
        )
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Form:
    """A convolution as a problem, and how it views the arrays of the layer.

    The views are those of images, filters, results, and an array with a number for each channel
    of the results, whose letters are `channel_letters`. Filters are constant in `problem`.
    """

    problem: Problem
    images: View
    filters: View
    results: View
    channels: View
    channel_letters: str


@dataclass(frozen=True, slots=True)
class _Letters:
    """The letters of a layer; flat: with one for all pixels."""

    layer: Convolution
    flat: bool

    @property
    def has_batch(self) -> bool:
        """Whether images have a letter of their own."""
        return self.layer.batch != 1 and not self.joins_batch

    @property
    def joins_batch(self) -> bool:
        """Whether pixels of all images are one letter."""
        return self.flat and self.layer.layout == "NHWC"

    @property
    def groups(self) -> str:
        """The letter of groups, where there are any that are no channels."""
        return "g" if self.layer.groups > 1 and not self.layer.depthwise else ""

    @property
    def own(self) -> tuple[str, str]:
        """The letters of channels in images: those that stand first, and those of a block."""
        if self.layer.layout == "NCHWc":
            return ("C", "c")
        return (self.groups + "c", "")

    @property
    def made(self) -> tuple[str, str]:
        """The same of results."""
        layer = self.layer
        if layer.layout == "NCHWc":
            return ("C", "c") if layer.depthwise else ("K", "k")
        if layer.depthwise:
            return ("c" if layer.filters == layer.channels else "cm", "")
        return (self.groups + "k", "")

    @property
    def taps(self) -> str:
        """The letters of a window, but for dimensions along which it has one tap."""
        names = _TAPS[-len(self.layer.size) :]
        return "".join(compress(names, (n > 1 for n in self.layer.window)))

    @property
    def pixels(self) -> str:
        """The letters of pixels of a result."""
        return "x" if self.flat else _PIXELS[-len(self.layer.size) :]

    @property
    def stored(self) -> str:
        """The letters of filters as they are given: in torch's order, or with blocks last."""
        (outer, block), (first, last) = self.own, self.made
        new = "".join(i for i in outer if i not in first)
        return first + new + self.taps + block.replace(last, "") + last

    @property
    def weights(self) -> str:
        """The letters of filters in the problem: channels are last where those of images are."""
        if self.layer.layout != "NHWC":
            return self.stored
        first = self.groups + self.taps
        channels = [i for i in self.stored if i not in first]
        return first + "".join(sorted(channels, key=self.made[0].find))

    def sizes(self) -> dict[str, int]:
        """Return the extents of all letters that a layer may have."""
        layer = self.layer
        found = dict(zip(_PIXELS[-len(layer.size) :], layer.out_size, strict=True))
        found |= dict(zip(_TAPS[-len(layer.size) :], layer.window, strict=True))
        found["n"], found["g"] = layer.batch, layer.groups
        found["x"] = prod(layer.out_size) * (layer.batch if self.joins_batch else 1)
        own, (last, first) = layer.channels // layer.groups, layer.blocks
        if layer.layout == "NCHWc":
            return found | {
                **{"C": layer.channels // last, "c": last},
                **{"K": layer.filters // first, "k": first},
            }
        found["c"] = layer.channels if layer.depthwise else own
        found["k"] = found["m"] = layer.filters // layer.groups
        return found

    def form(self) -> Form:
        """Return the problem and the views."""
        layer, sizes = self.layer, self.sizes()
        inside = [self._walk(at) for at in range(len(layer.size))]
        outside = [_plain(pixel) for pixel in self.pixels]
        image = self._tensor(outside if self.flat else inside, *self.own)
        spec = Spec(
            self._tensor(outside, *self.made), (image, Tensor(tuple(map(_plain, self.weights))))
        )
        first = int(self.has_batch) + (len(self.own[0]) if layer.layout != "NHWC" else 0)
        problem = Problem.of(
            spec,
            {i: sizes[i] for i in spec.letters},
            layer.dtype,
            [] if self.flat else _paddings(layer, first),
            (2,),
        )
        used = list(map(slice, (0,) * len(layer.size), _used(layer), _picked(layer)))
        letters, stored = "".join(self.made), self.stored
        return Form(
            problem,
            self._view(problem.shapes[1], used),
            View((), tuple(sizes[i] for i in stored), tuple(map(stored.index, self.weights))),
            self._view(problem.shapes[0], [slice(None)] * len(layer.size)),
            View(shape=tuple(sizes[i] for i in letters)),
            letters,
        )

    def _walk(self, at: int) -> Subscript:
        """Return where a window is along one dimension."""
        layer, names = self.layer, _TAPS[-len(self.layer.size) :]
        terms = [(layer.stride[at] // _picked(layer)[at], self.pixels[0 if self.flat else at])]
        if layer.window[at] > 1:
            terms.append((layer.dilation[at], names[at]))
        return Subscript(tuple(terms))

    def _tensor(self, pixels: Iterable[Subscript], outer: str, block: str) -> Tensor:
        """Return a tensor of images in the layer's layout."""
        batch = [_plain("n")] if self.has_batch else []
        axes = [list(map(_plain, outer)), list(pixels), list(map(_plain, block))]
        if self.layer.layout == "NHWC":
            axes = [axes[1], axes[0]]
        return Tensor((*batch, *(one for group in axes for one in group)))

    def _view(self, shape: tuple[int, ...], pixels: Sequence[slice]) -> View:
        """Return how images or results are viewed, given their shape in the problem."""
        layer = self.layer
        batch: int | slice = 0 if not self.has_batch and not self.joins_batch else slice(None)
        first = [batch] if layer.layout == "NHWC" else [batch, slice(None)]
        kept = len([one for one in first if isinstance(one, slice)])
        merged = None
        if self.flat:
            merged = (0 if self.joins_batch else kept, kept + len(pixels) - 1)
        return View((*first, *pixels), shape, merged=merged)


def _plain(letter: str) -> Subscript:
    return Subscript(((1, letter),))


def _paddings(layer: Convolution, first: int) -> list[Padding]:
    """Return the zeros of each axis of the images, given the number of the first one."""
    found = []
    for at, (reach, used) in enumerate(zip(_touched(layer), _used(layer), strict=True)):
        before = min(layer.padding[at][0], reach)
        found.append(Padding(1, first + at, before, reach - before - used))
    return found


def _touched(layer: Convolution) -> list[int]:
    """Return how many places of each dimension all windows together reach over."""
    reaches = zip(layer.stride, layer.out_size, layer.dilation, layer.window, strict=True)
    return [step * (count - 1) + gap * (taps - 1) + 1 for step, count, gap, taps in reaches]


def _used(layer: Convolution) -> list[int]:
    """Return how many pixels of each dimension windows touch: strides may leave out the last."""
    ends = zip(layer.size, _touched(layer), layer.padding, strict=True)
    return [min(pixels, max(0, reach - before)) for pixels, reach, (before, _) in ends]


def _picked(layer: Convolution) -> list[int]:
    """Return for each dimension how far pixels are apart that are picked before all else.

    A window of one tap steps over the others, which the problem need not know of.
    """
    parts = zip(layer.stride, layer.window, layer.padding, strict=True)
    return [step if taps == 1 and not any(ends) else 1 for step, taps, ends in parts]
