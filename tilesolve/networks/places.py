"""Where the arrays of a network lie: in one arena, whose parts are used again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from tilesolve.constants.nests import NETWORK_ARENA_GROWTH
from tilesolve.contractions.half_precision import is_half
from tilesolve.packing.buffers import Bytes, allocate
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.sizes import ALIGNMENT_BYTES

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array lies: a view of a block.

    Parameters
    ----------
    block
        The number of the block.
    offset
        Bytes from its begin.
    shape, strides, dtype
        Of the array.
    """

    block: int
    offset: int
    shape: Shape
    strides: Shape
    dtype: np.dtype[Any]

    def array(self, memory: Bytes, begin: int = 0) -> Array:
        """Return the array in memory, in which the block begins somewhere."""
        return np.ndarray(self.shape, self.dtype, memory, begin + self.offset, self.strides)

    @property
    def straight(self) -> Place:
        """An array like it in C order."""
        strides = strides_of(self.shape, range(len(self.shape)), self.dtype)
        return Place(self.block, 0, self.shape, strides, self.dtype)

    @property
    def wide(self) -> Place:
        """An array like it in single precision, if it is one of halves; else the same."""
        dtype = wide_dtype(self.dtype)
        if dtype == self.dtype:
            return self
        strides = strides_of(self.shape, self.order, dtype)
        return Place(self.block, 0, self.shape, strides, dtype)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes as they lie in memory, the outermost first; those of one element stay apart."""
        count = len(self.shape)
        found = sorted(
            (axis for axis in range(count) if self.shape[axis] > 1),
            key=lambda axis: -abs(self.strides[axis]),
        )
        for axis in range(count):
            if self.shape[axis] == 1:
                found.insert(axis, axis)
        return tuple(found)


def without_batch(
    inputs: Sequence[Place], outs: Sequence[Place]
) -> tuple[list[Place], list[Place]]:
    """Return operands and results of products without first axes of one element.

    A contraction has no such letter: its result would be copied to where it is one.
    """
    inputs, outs = list(inputs), list(outs)
    while all(len(one.shape) > 2 and one.shape[0] == 1 for one in (*inputs, *outs)):
        inputs, outs = (
            [replace(one, shape=one.shape[1:], strides=one.strides[1:]) for one in places]
            for places in (inputs, outs)
        )
    return inputs, outs


def image_order(count: int) -> tuple[int, ...]:
    """Return the order of axes that images have here: channels last.

    Examples
    --------
    >>> image_order(4), image_order(2)
    ((0, 2, 3, 1), (0, 1))
    """
    return (0, *range(2, count), 1) if count > 2 else tuple(range(count))


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which pipelines compute: single precision for halves.

    Examples
    --------
    >>> wide_dtype(np.dtype("float16")), wide_dtype(np.dtype("int8"))
    (dtype('float32'), dtype('int8'))
    """
    return np.dtype(np.float32) if is_half(dtype.name) else dtype


def strides_of(shape: Shape, order: Sequence[int], dtype: np.dtype[Any]) -> Shape:
    """Return the strides of an array that has its axes in some order in memory.

    Examples
    --------
    >>> strides_of((2, 3, 4), (0, 2, 1), np.dtype("int8"))
    (12, 1, 3)
    """
    strides, step = [0] * len(shape), dtype.itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the order that undoes another one."""
    return tuple(list(order).index(axis) for axis in range(len(order)))


@dataclass(slots=True)
class Block:
    """Memory of some arrays.

    Parameters
    ----------
    size
        Bytes.
    first, last
        The first and the last work that uses it.
    """

    size: int
    first: int
    last: int


@dataclass(slots=True)
class Blocks:
    """All blocks of a program, and how they lie in its arena.

    Parameters
    ----------
    blocks
        What needs memory.
    is_divided
        Whether threads divide works. Each should write lines that no other one has read, which
        would be taken from its caches first: arrays that follow one another in the same memory
        have the same middle then.
    """

    blocks: list[Block] = field(default_factory=list)
    is_divided: bool = False
    _shadow: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))

    def make(self, shape: Shape, dtype: np.dtype[Any], order: Sequence[int], work: int) -> Place:
        """Return an array in a block of its own, with its axes in some order in memory."""
        strides = strides_of(shape, order, dtype)
        self.blocks.append(Block(max(1, prod(shape)) * dtype.itemsize, work, work))
        return Place(len(self.blocks) - 1, 0, shape, strides, dtype)

    def view(self, place: Place, found: Array) -> Place | None:
        """Return a view of a place's shadow as a place; None if it is a copy."""
        if not found.size:
            return Place(place.block, 0, found.shape, found.strides, found.dtype)
        shadow = self._shadow
        at = found.ctypes.data - shadow.ctypes.data
        if (
            found.base is None
            or not 0 <= at <= len(shadow)
            or not np.may_share_memory(found, shadow)
        ):
            return None
        return Place(place.block, at, found.shape, found.strides, found.dtype)

    def shadow(self, place: Place) -> Array:
        """Return an array that lies like a place, whose elements mean nothing."""
        size = max(self.blocks[place.block].size, 1)
        if len(self._shadow) < size:
            self._shadow = np.empty(size, np.uint8)
        return place.array(self._shadow)

    def drop_shadow(self) -> None:
        """Give its memory back."""
        self._shadow = np.empty(0, np.uint8)

    def use(self, place: Place, work: int) -> None:
        """Note that a work uses a place."""
        block = self.blocks[place.block]
        block.first, block.last = min(block.first, work), max(block.last, work)

    def arrange(self) -> tuple[list[int], int]:
        """Return where each block begins in the arena, and how large that is.

        The largest block is placed first, each at the lowest place that is free while it lives:
        where threads divide works, of those around the middles of others and of new ones.
        """
        begins, size, placed = [0] * len(self.blocks), 0, list[int]()
        most = NETWORK_ARENA_GROWTH * self.least_bytes
        for at in sorted(range(len(self.blocks)), key=lambda one: -self.blocks[one].size):
            block = self.blocks[at]
            taken = sorted(
                (begins[x], begins[x] + self.blocks[x].size)
                for x in placed
                if self.blocks[x].last >= block.first and self.blocks[x].first <= block.last
            )
            lowest = 0
            for low, high in taken:
                if lowest + block.size <= low:
                    break
                lowest = max(lowest, _aligned(high))
            middles = {begins[x] + (self.blocks[x].size - block.size) // 2 for x in placed}
            wanted = sorted({*map(_aligned, middles), _aligned(size)}) if self.is_divided else []
            begins[at] = next(
                (
                    one
                    for one in wanted
                    if one + block.size <= most
                    and all(one + block.size <= low or high <= one for low, high in taken)
                ),
                lowest,
            )
            placed.append(at)
            size = max(size, begins[at] + block.size)
        return begins, size

    @property
    def least_bytes(self) -> int:
        """The most bytes that live at once: no arena is smaller."""
        works = {one.first for one in self.blocks}
        return max(
            (sum(b.size for b in self.blocks if b.first <= at <= b.last) for at in works), default=0
        )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def new_arena(size: int) -> Bytes:
    """Return memory for all blocks, on huge pages where the system has them."""
    return allocate(max(size, 1))
