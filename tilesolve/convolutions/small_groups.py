"""Layers of small groups, depthwise ones too: statements that blocks of pixels compute in step.

Vectors lie along channels where these are last, along pixels or channels where they are first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tilesolve.constants.nests import GROUP_FILTERS, GROUP_TAPS
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.epilogue_terms import follow_term
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read, Term
from tilesolve.packing.memory_overlap import Array

_PIXELS = "dhw"

_NO_CHAIN = Epilogue(())


def has_small_groups(layer: Convolution) -> bool:
    """Return whether few channels of a layer's images are convolved together.

    Examples
    --------
    >>> layers = [Convolution.of((1, n, 8, 8), (64, n // 8, 3, 3), groups=8) for n in (64, 256)]
    >>> list(map(has_small_groups, layers))
    [True, False]
    """
    if layer.groups == 1 or layer.layout == "NCHWc" or layer.dtype not in ("float32", "float64"):
        return False
    if prod(layer.w_shape[1:]) > GROUP_TAPS or prod(layer.window) == 1:
        return False
    made = layer.filters // layer.groups
    return _is_depthwise(layer) or layer.layout == "NCHW" or made >= GROUP_FILTERS


def _is_depthwise(layer: Convolution) -> bool:
    """Return whether each filter is a group."""
    return layer.filters == layer.channels == layer.groups


@dataclass(frozen=True, slots=True)
class GroupStatements:
    """The statements of a layer of small groups.

    ``X`` are images, ``F`` filters, ``B`` and ``R`` bias and residual, ``O`` results; ``P`` are
    images with their padding. Results, filters and bias have groups as an axis of their own, unless
    each filter is one.

    Parameters
    ----------
    layer
        Shapes and arguments.
    chain
        The activation.
    last
        Whether vectors lie along channels: images that have them first are copied before.
    has_bias
        Whether sums begin with a number for each channel.
    residual
        The array that is added, ``"O"`` for what results hold before; empty for none.
    """

    layer: Convolution
    chain: Epilogue
    last: bool
    has_bias: bool = False
    residual: str = ""

    @property
    def turns(self) -> bool:
        """Whether images and results are copied to the other order of axes."""
        return self.last and self.layer.layout == "NCHW"

    @property
    def is_padded(self) -> bool:
        """Whether images have zeros around them."""
        return any(map(any, self.layer.padding))

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """The shape of images with their padding."""
        layer = self.layer
        wide = [n + sum(ends) for n, ends in zip(layer.size, layer.padding, strict=True)]
        found = (*wide, layer.channels) if self.last else (layer.channels, *wide)
        return (layer.batch, *found)

    @property
    def sizes(self) -> dict[str, Any]:
        """The extents of letters and the shapes of arrays, as `nest` takes them."""
        layer = self.layer
        found: dict[str, Any] = {"X": layer.x_shape}
        found["F"] = self.filters(np.empty(layer.w_shape)).shape
        found |= {"O": self.view_results(np.empty(layer.out_shape)).shape}
        if not (self.is_padded or self.turns):
            return found
        wide = self.frame_shape[1:-1] if self.last else self.frame_shape[2:]
        found |= {f"{x}p": n for x, n in zip(self._pixels, wide, strict=True)}
        return found | {"P": self.frame_shape}

    @property
    def stages(self) -> tuple[Stage, ...] | None:
        """The statements, in order; None if the activation is none of theirs."""
        found = [self._frame()] if self.is_padded or self.turns else []
        if not self.turns:
            whole = self._end(self._sum(), self.chain, self.last)
            return None if whole is None else (*found, self._stage("O", self.last, whole))
        # What follows the sums without a residual is computed while they are in registers.
        early, late = (_NO_CHAIN, self.chain) if self.residual else (self.chain, _NO_CHAIN)
        sums = follow_term(self._sum(), early)
        ends = self._end(self._read("Q", last=True), late, last=False)
        if sums is None or ends is None:
            return None
        return (*found, self._stage("Q", True, sums), self._stage("O", False, ends))

    def split(self, array: Array, last: bool) -> Array:
        """Return results or a bias with groups as an axis of their own, which is a view."""
        if _is_depthwise(self.layer):
            return array
        axis = array.ndim - 1 if last else 1
        groups = self.layer.groups
        return array.reshape(*array.shape[:axis], groups, -1, *array.shape[axis + 1 :])

    def view_results(self, array: Array) -> Array:
        """Return an array like the result as statements have it, which is a view."""
        return self.split(array, self._is_last)

    def filters(self, weights: Array) -> Array:
        """Return filters as statements read them."""
        if _is_depthwise(self.layer):
            found = weights[:, 0]
            return np.moveaxis(found, 0, -1) if self.last else found
        found = weights.reshape(self.layer.groups, -1, *weights.shape[1:])
        if self.last:
            found = np.moveaxis(found, (0, 2, 1), (-3, -2, -1))
        return found

    @property
    def _is_last(self) -> bool:
        """Whether results have their channels last."""
        return self.layer.layout == "NHWC"

    @property
    def _pixels(self) -> str:
        return _PIXELS[-len(self.layer.size) :]

    def _axes(self, channels: tuple[Affine, ...], last: bool) -> tuple[Affine, ...]:
        """Return the axes of images or results."""
        pixels = tuple(map(Affine.letter, self._pixels))
        found = (*pixels, *channels) if last else (*channels, *pixels)
        return (Affine.letter("n"), *found)

    @property
    def _made(self) -> tuple[Affine, ...]:
        """The channels of results."""
        return tuple(map(Affine.letter, "c" if _is_depthwise(self.layer) else "gk"))

    def _read(self, name: str, last: bool) -> Read:
        """Return an element like that of the result."""
        return Read(name, self._axes(self._made, last))

    def _stage(self, name: str, last: bool, term: Term) -> Stage:
        return Stage.of(self._read(name, last), term)

    def _end(self, term: Term, chain: Epilogue, last: bool) -> Term | None:
        """Return a sum with its residual and what follows."""
        return follow_term(term + self._read(self.residual, last) if self.residual else term, chain)

    def _frame(self) -> Stage:
        """Return the copy of images into their padding, with axes in the order of the sums."""
        wide = [Affine.letter(f"{x}p") for x in self._pixels]
        inner, where = list[Affine](), list[Condition]()
        sides = zip(wide, self.layer.size, self.layer.padding, strict=True)
        for letter, extent, (low, high) in sides:
            inner.append(letter - low)
            where += [Condition(letter - low)] if low else []
            where += [Condition(low + extent - 1 - letter)] if high else []
        n, c = map(Affine.letter, "nc")
        source = (n, *inner, c) if self._is_last else (n, c, *inner)
        target = (n, *wide, c) if self.last else (n, c, *wide)
        return Stage.of(Read("P", target), Read("X", source), where=where)

    def _sum(self) -> Term:
        """Return the sum of a window's taps."""
        layer, made = self.layer, self._made
        term: Term | None = Read("B", made) if self.has_bias else None
        source = "P" if self.is_padded or self.turns else "X"
        own = layer.channels // layer.groups
        depthwise = _is_depthwise(layer)
        for channel, tap in self._list_taps():
            places = [
                step * Affine.letter(x) + gap * at
                for x, step, gap, at in zip(
                    self._pixels, layer.stride, layer.dilation, tap, strict=True
                )
            ]
            seen = made[0] if depthwise else own * made[0] + channel
            at = tuple(map(Affine.number, tap))
            number = Affine.number(channel)
            if self.last:
                pixel = Read(source, (Affine.letter("n"), *places, seen))
                factor = (*at, *made) if depthwise else (*at, made[0], number, made[1])
            else:
                pixel = Read(source, (Affine.letter("n"), seen, *places))
                factor = (*made, *at) if depthwise else (*made, number, *at)
            part = pixel * Read("F", factor)
            term = part if term is None else term + part
        assert term is not None
        return term

    def _list_taps(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the channel and the place of each tap, as blocks of pixels meet them.

        Taps of one channel stand side by side; where vectors lie along pixels, those that read the
        same column do, too.
        """
        window = [range(n) for n in self.layer.window]
        channels = range(self.layer.channels // self.layer.groups)
        if self.last:
            yield from product(channels, product(*window))
            return
        for channel, column, rows in product(channels, window[-1], product(*window[:-1])):
            yield channel, (*rows, column)
