"""Convolution layers: from the arguments that people know to a problem."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from math import prod
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import SizeError, SpecError
from tilesolve.contractions.padding import Padding
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec, Subscript, Tensor

Layout = Literal["NCHW", "NHWC"]
"""Where channels stand in images and results: before all pixels, or after them."""

Ends = tuple[int, int]
"""Zeros before and after what an axis has."""

PaddingArgument = int | str | Sequence[int | Sequence[int]]
"""Padding as `Convolution.of` takes it."""

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

    Examples
    --------
    >>> layer = Convolution.of((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
    >>> layer.out_shape, layer.flops
    ((1, 64, 112, 112), 236027904)
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
            Of the filters: filters, channels of a group, then the window.
        stride, dilation
            A number, or one for each dimension.
        padding
            A number; one for each dimension; pairs of zeros before and after; ``"valid"`` for none;
            or ``"same"`` for results as large as the images, where the stride is 1.
        groups
            Parts that channels and filters are divided into.
        layout
            ``"NCHW"`` or ``"NHWC"``, whatever the number of dimensions is.
        dtype
            Of all arrays.

        Raises
        ------
        SizeError
            If shapes do not fit each other, or an argument is out of range.
        SpecError
            If there is no such layout or padding.
        """
        if layout not in get_args(Layout):
            known = " and ".join(get_args(Layout))
            raise SpecError(f"layout {layout!r} is not known; {known} are")
        x, w = tuple(map(operator.index, x_shape)), tuple(map(operator.index, w_shape))
        dimensions = len(x) - 2
        if not 1 <= dimensions <= len(_PIXELS):
            raise SizeError(f"x has {len(x)} axes, shape {x}: 3 to 5 are supported")
        if len(w) != len(x):
            raise SizeError(f"w has {len(w)} axes, shape {w}, but x has {len(x)}, shape {x}")
        batch, channels, size = x[0], x[1], x[2:]
        if layout == "NHWC":
            channels, size = x[-1], x[1:-1]
        groups = _positive("groups", groups)
        filters, window = w[0], w[2:]
        for name, count in (("channels", channels), ("filters", filters)):
            if count % groups:
                raise SizeError(f"groups={groups} do not divide {count} {name}")
        if w[1] * groups != channels:
            raise SizeError(
                f"w has {w[1]} channels (shape {w}), but x has {channels} in {groups} groups "
                f"(shape {x}, {layout})"
            )
        steps = _per_dimension("stride", stride, dimensions)
        gaps = _per_dimension("dilation", dilation, dimensions)
        if min(window) < 1:
            raise SizeError(f"the window of w is empty: shape {w}")
        ends = _ends(padding, window, steps, gaps)
        found = cls(
            batch, channels, filters, size, window, steps, gaps, ends, groups, layout,
            np.dtype(dtype).name,
        )  # fmt: skip
        for at, (pixels, reach) in enumerate(zip(size, found._reaches, strict=True)):
            padded = pixels + sum(ends[at])
            if reach > padded:
                raise SizeError(
                    f"the window reaches over {reach} pixels of dimension {at}, which has "
                    f"{pixels}, {padded} with padding"
                )
        return found

    @property
    def _reaches(self) -> tuple[int, ...]:
        """Pixels from the first to the last of a window."""
        return tuple(d * (n - 1) + 1 for d, n in zip(self.dilation, self.window, strict=True))

    @property
    def out_size(self) -> tuple[int, ...]:
        """Pixels of a result."""
        return tuple(
            (pixels + before + after - reach) // step + 1
            for pixels, (before, after), reach, step in zip(
                self.size, self.padding, self._reaches, self.stride, strict=True
            )
        )

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The shape of the images."""
        return self._shape(self.channels, self.size)

    @property
    def w_shape(self) -> tuple[int, ...]:
        """The shape of the filters."""
        return (self.filters, self.channels // self.groups, *self.window)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the results."""
        return self._shape(self.filters, self.out_size)

    def _shape(self, channels: int, pixels: tuple[int, ...]) -> tuple[int, ...]:
        if self.layout == "NHWC":
            return (self.batch, *pixels, channels)
        return (self.batch, channels, *pixels)

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
        """Whether each channel has one filter of its own."""
        return self.groups == self.channels == self.filters

    @property
    def problem(self) -> Problem:
        """The layer as a problem over the arrays as they are viewed: see `views`."""
        return _problem(self, flat=False)

    @property
    def flat_problem(self) -> Problem:
        """The same with all pixels as one letter, where it is pointwise: a product of matrices."""
        return _problem(self, flat=self.pointwise)

    def view_images(self, x: npt.NDArray[np.generic], *, flat: bool) -> npt.NDArray[np.generic]:
        """Return images with the axes of the problem; pixels that no window touches are left out.

        Raises
        ------
        SizeError
            If their pixels are no one axis in memory, and that is wanted.
        """
        first = 2 if self.layout == "NCHW" else 1
        cut = (slice(None),) * first + tuple(slice(0, count) for count in _used(self))
        return self.view_results(x[cut], flat=flat)

    def view_results(self, x: npt.NDArray[np.generic], *, flat: bool) -> npt.NDArray[np.generic]:
        """Return results with the axes of the problem.

        Raises
        ------
        SizeError
            If their pixels are no one axis in memory, and that is wanted.
        """
        channels_first = self.layout == "NCHW"
        shape = list(x.shape)
        if self.groups > 1 and not self.depthwise:
            at = 1 if channels_first else len(shape) - 1
            shape[at : at + 1] = [self.groups, shape[at] // self.groups]
        if flat and self.pointwise:
            first = len(shape) - len(self.size) if channels_first else 0
            end = len(shape) if channels_first else 1 + len(self.size)
            shape[first:end] = [prod(shape[first:end])]
        if self.batch == 1 and not (flat and self.pointwise and not channels_first):
            shape = shape[1:]
        view = x.view()
        try:
            view.shape = tuple(shape)
        except AttributeError:
            raise SizeError(
                f"an array of strides {x.strides} has no view of shape {shape}"
            ) from None
        return view

    def view_filters(self, w: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Return filters with the axes of the problem: those of windows of one tap are left out."""
        taps = [n for n in self.window if n > 1]
        if self.depthwise:
            return w.reshape(self.filters, *taps)
        groups = [self.groups] if self.groups > 1 else []
        return w.reshape(*groups, self.filters // self.groups, self.channels // self.groups, *taps)


def _problem(layer: Convolution, *, flat: bool) -> Problem:
    """Return a layer as a problem; flat: with one letter for all pixels."""
    count = len(layer.size)
    pixels, taps = _PIXELS[-count:], _TAPS[-count:]
    wide = [n > 1 for n in layer.window]
    sizes = dict(zip(pixels, layer.out_size, strict=True))
    sizes |= dict(zip(compress(taps, wide), compress(layer.window, wide), strict=True))
    sizes |= {"n": layer.batch, "g": layer.groups}
    sizes |= {"k": layer.filters // layer.groups, "c": layer.channels // layer.groups}
    inside = [
        Subscript(((step, pixel), (gap, tap)) if several else ((step, pixel),))
        for pixel, tap, step, gap, several in zip(
            pixels, taps, layer.stride, layer.dilation, wide, strict=True
        )
    ]
    outside = [Subscript(((1, pixel),)) for pixel in pixels]
    if flat:
        sizes["x"] = prod(layer.out_size) * (layer.batch if layer.layout == "NHWC" else 1)
        inside = outside = [Subscript(((1, "x"),))]
    batch = layer.batch > 1 and not (flat and layer.layout == "NHWC")
    if layer.depthwise:
        sizes["c"], groups, own, filters = layer.channels, "", "c", "c"
    else:
        groups, own, filters = "g" if layer.groups > 1 else "", "c", "k"
    spec = Spec(
        _tensor(layer, batch, groups + filters, outside),
        (
            _tensor(layer, batch, groups + own, inside),
            Tensor(
                tuple(
                    Subscript(((1, i),))
                    for i in (
                        *groups,
                        *dict.fromkeys(filters + own),
                        *compress(taps, wide),
                    )
                )
            ),
        ),
    )
    first = int(batch) + (len(groups + own) if layer.layout == "NCHW" else 0)
    padding = [] if flat else _paddings(layer, first)
    return Problem.of(spec, {i: sizes[i] for i in spec.letters}, layer.dtype, padding, (2,))


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


def _tensor(layer: Convolution, batch: bool, channels: str, pixels: Sequence[Subscript]) -> Tensor:
    """Return a tensor of images in the layer's layout."""
    images = [Subscript(((1, "n"),))] if batch else []
    inner = [Subscript(((1, letter),)) for letter in channels]
    axes = [*pixels, *inner] if layer.layout == "NHWC" else [*inner, *pixels]
    return Tensor((*images, *axes))


def _positive(name: str, value: int) -> int:
    """Return a number that has to be 1 or more."""
    try:
        found = operator.index(value)
    except TypeError:
        raise SizeError(f"{name} must be an integer, got {value!r}") from None
    if found < 1:
        raise SizeError(f"{name} must be at least 1, got {found}")
    return found


def _per_dimension(name: str, value: int | Sequence[int], dimensions: int) -> tuple[int, ...]:
    """Return a number for each dimension."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dimensions
    if len(values) != dimensions:
        raise SizeError(f"{name} has {len(values)} numbers, x has {dimensions} spatial dimensions")
    return tuple(_positive(name, one) for one in values)


def _ends(
    padding: PaddingArgument, window: tuple[int, ...], steps: tuple[int, ...], gaps: tuple[int, ...]
) -> tuple[Ends, ...]:
    """Return the zeros before and after each dimension."""
    if isinstance(padding, str):
        return _named_padding(padding, window, steps, gaps)
    given = padding if isinstance(padding, Sequence) else (padding,) * len(window)
    if len(given) != len(window):
        raise SizeError(f"padding has {len(given)} entries, x has {len(window)} spatial dimensions")
    found = []
    for one in given:
        ends = tuple(one) if isinstance(one, Sequence) else (one, one)
        if len(ends) != 2:
            raise SizeError(f"padding of a dimension is a number or a pair, got {one!r}")
        try:
            before, after = map(operator.index, ends)
        except TypeError:
            raise SizeError(f"padding must be integers, got {one!r}") from None
        if before < 0 or after < 0:
            raise SizeError(f"padding must not be negative, got {one!r}")
        found.append((before, after))
    return tuple(found)


def _named_padding(
    name: str, window: tuple[int, ...], steps: tuple[int, ...], gaps: tuple[int, ...]
) -> tuple[Ends, ...]:
    if name == "valid":
        return ((0, 0),) * len(window)
    if name != "same":
        raise SpecError(f"padding {name!r} is not known; 'same' and 'valid' are")
    if any(step != 1 for step in steps):
        raise SizeError(f"padding 'same' needs a stride of 1, got {steps}")
    rest = [gap * (n - 1) for gap, n in zip(gaps, window, strict=True)]
    return tuple((n // 2, n - n // 2) for n in rest)
