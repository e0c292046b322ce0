"""Transposes: arrays whose elements are written in another order of their axes.

A transpose is a copy between two strided arrays, so one walk serves all: axes that stay together
are merged, tiles are ranges of the axes that are near in the target and in the source, and loops
go from the longest steps to the shortest.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from tilesolve.arrays import Array, overlap, pointer
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError
from tilesolve.detect import threads as cores
from tilesolve.files import setting
from tilesolve.kernels import moving
from tilesolve.kernels.blocks import BLOCKS, KINDS, LINE
from tilesolve.kernels.moving import A, W
from tilesolve.machine import Machine
from tilesolve.packing.axes import Integers
from tilesolve.packing.buffers import empty, room
from tilesolve.workers import together

SIDE = 2048
"""Bytes that a tile covers without a gap in the target and in the source, if there are as many."""

ROOM = 1 << 18
"""Bytes of a tile at most, more or less: it stays in the second cache, beside the next one."""

EVEN = 8
"""What parts of an axis are a multiple of, so that lines and blocks are whole."""

PADDING = LINE
"""Bytes between runs of the buffer, so that they do not fall on the same ways of a cache."""

WHOLE = 256
"""Bytes of an element from which on it is moved without the buffer."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of both arrays.

    Parameters
    ----------
    extent
        Elements along it.
    far, near
        Bytes between neighbours in the target and in the source.

    Examples
    --------
    >>> Axis(extent=4, far=8, near=80).near
    80
    """

    extent: int
    far: int
    near: int


def transpose(
    a: npt.ArrayLike,
    axes: Sequence[int] | None = None,
    out: Array | None = None,
    *,
    threads: int | None = None,
) -> Array:
    """Return a copy of an array with its axes in another order.

    Parameters
    ----------
    a
        Any array of any strides; it is not modified.
    axes
        For each axis of the result the one of `a` that becomes it; if None, they are reversed.
    out
        Where the result goes, of any strides; a new C-contiguous array if None.
    threads
        Cores that share the work; if None, ``TILESOLVE_NUM_THREADS``, or one where it is not set.

    Returns
    -------
    numpy.ndarray
        `out`, or the new array.

    Raises
    ------
    SizeError
        If `axes` is not a permutation, or the shape of `out` not the result's.
    DtypeError
        If the dtypes differ, or elements are references to objects.
    PlanError
        If `out` is read-only, or overlaps itself or `a`.

    Examples
    --------
    >>> transpose(np.arange(6).reshape(1, 2, 3), (2, 0, 1)).tolist()
    [[[0, 3]], [[1, 4]], [[2, 5]]]
    """
    source = np.asarray(a)
    turned = source.transpose(_checked_axes(source, axes))
    if source.dtype.hasobject:
        raise DtypeError(f"elements of dtype {source.dtype} are references, which are not moved")
    shared = _threads() if threads is None else threads
    if shared < 1:
        raise PlanError(f"threads must be positive, got {threads}")
    if out is None:
        out = empty(turned.shape, source.dtype)
    else:
        _check_output(out, turned)
    if turned.nbytes:
        _move(turned.shape, out.strides, turned.strides, source.itemsize, shared).run(out, turned)
    return out


def _checked_axes(array: Array, axes: Sequence[int] | None) -> Sequence[int] | None:
    if axes is None:
        return None
    try:
        chosen = [operator.index(axis) for axis in axes]
    except TypeError:
        raise SizeError(f"axes must be integers, got {axes!r}") from None
    n = array.ndim
    if sorted(axis + n if axis < 0 else axis for axis in chosen) != list(range(n)):
        raise SizeError(f"axes {tuple(chosen)} are no permutation of the array's {n}")
    return chosen


def _check_output(out: Array, turned: Array) -> None:
    if not isinstance(out, np.ndarray):
        raise DtypeError(f"out must be a numpy array, got {type(out).__name__}")
    if out.shape != turned.shape:
        raise SizeError(f"out has the shape {out.shape}, the result {turned.shape}")
    if out.dtype != turned.dtype:
        raise DtypeError(f"out is {out.dtype}, the array {turned.dtype}")
    if not out.flags.writeable:
        raise PlanError("out is read-only")
    if out.size and any(n > 1 and not s for n, s in zip(out.shape, out.strides, strict=True)):
        raise PlanError("out has elements that share memory: a stride of it is 0")
    if overlap(out, turned):
        raise PlanError("out shares memory with the array")


def _threads() -> int:
    return 1 if setting("TILESOLVE_NUM_THREADS") is None else cores()


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """How arrays of given strides are copied.

    Parameters
    ----------
    walk
        What compiled code knows of it, see `kernels.moving.W`.
    address
        Of the walk.
    room
        Bytes of a tile's buffer.
    parts
        Trips of the outermost loop that each thread does.

    Examples
    --------
    >>> source, target = np.arange(6).reshape(2, 3), np.zeros((3, 2), int)
    >>> Move.of((3, 2), target.strides, source.T.strides, 8, 1).run(target, source.T)
    >>> target.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """

    walk: Integers
    address: int
    room: int
    parts: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        far: tuple[int, ...],
        near: tuple[int, ...],
        itemsize: int,
        threads: int,
    ) -> Move:
        """Return the move between strided arrays that are not empty."""
        begin, element, axes = _merged(shape, far, near, itemsize)
        tile = _box(element, axes)
        count = len(axes)
        columns = count - 1
        rows = min(range(count), key=lambda at: abs(axes[at].near) or np.inf)
        if rows == columns:  # then rows are an axis more
            axes, tile, rows = [_ALONE, *axes], [1, *tile], 0
            count, columns = count + 1, columns + 1
        blocked = axes[columns].far == axes[rows].near == element
        sides = [side for side in BLOCKS.get(element, ()) if blocked or side == 1] or [0]
        trips = [-(-axis.extent // size) for axis, size in zip(axes, tile, strict=True)]
        buffered = max(trips) > 1 and axes[columns].far == element < WHOLE

        walk = np.zeros(W.SIZE, np.int64)
        walk[W.ELEMENT], walk[W.COLUMNS], walk[W.ROWS] = element, columns, rows
        walk[W.BLOCKS : W.BLOCKS + 2 * len(sides) : 2] = sides
        walk[W.BLOCKS + 1 : W.BLOCKS + 2 * len(sides) : 2] = [
            KINDS.index((element, side)) if side else 0 for side in sides
        ]
        walk[W.STREAMED] = prod(shape) * itemsize > _last_cache()
        walk[W.BEGIN : W.BEGIN + 2] = begin

        # In the buffer a run's axes lie as in the target, the others as in the source.
        here, step = [axis.far for axis in axes], element
        runs: list[int] = []
        if buffered:
            others = list(range(count))
            while others and axes[others[-1]].far == step:
                at = others.pop()
                walk[W.RUN : W.RUN + 2] = step, at
                here[at], step = step, step * tile[at]
                if trips[at] > 1:
                    break
            step += PADDING
            for at in sorted(others, key=lambda at: abs(axes[at].near)):
                here[at], step = step, step * tile[at]
                runs.insert(0, at)
        joined: list[int] = []
        last = rows
        for at in sorted(runs, key=lambda at: abs(axes[at].near)) if rows in runs else ():
            before = axes[last]
            if (
                at != rows
                and tile[last] == before.extent
                and axes[at].near == before.near * before.extent
                and here[at] == here[last] * tile[last]
            ):
                joined.append(at)
                last = at
        for at, axis in enumerate(axes):
            begin_at = W.AXES + A.SIZE * at
            walk[begin_at : begin_at + A.SIZE] = (
                axis.extent,
                tile[at],
                trips[at],
                axis.far,
                axis.near,
                here[at],
            )
        loops = sorted(range(count), key=lambda at: axes[at].far + abs(axes[at].near), reverse=True)
        if threads > 1:  # the outermost loop is shared: one with enough trips, if there is any
            loops.sort(key=lambda at: min(trips[at], 4 * threads), reverse=True)
        fills = sorted(
            (at for at in range(count) if at not in (columns, rows, *joined)),
            key=lambda at: abs(axes[at].near),
            reverse=True,
        )
        for number, (field, chosen) in enumerate(
            ((W.LOOPS, loops), (W.FILLS, fills), (W.RUNS, runs), (W.JOINED, joined))
        ):
            walk[W.COUNTS + number] = len(chosen)
            walk[field : field + len(chosen)] = chosen
        walk[W.FILLS + len(fills)] = columns
        bounds = [trips[loops[0]] * part // threads for part in range(threads + 1)]
        parts = tuple((low, high) for low, high in pairwise(bounds) if low < high)
        return cls(walk, walk.ctypes.data, step if buffered else 0, parts)

    def run(self, target: Array, source: Array) -> None:
        """Copy one array to the other."""
        jobs = [partial(self._part, target, source, *part) for part in self.parts]
        if len(jobs) == 1:
            jobs[0]()
        else:
            together(jobs)

    def _part(self, target: Array, source: Array, first: int, last: int) -> None:
        memory = room(self.room)
        moving.run(self.address, pointer(target), pointer(source), memory.address, first, last)


_ALONE = Axis(1, 0, 0)
"""The axis of an array that has none."""

_move = lru_cache(maxsize=256)(Move.of)


def _merged(
    shape: tuple[int, ...], far: tuple[int, ...], near: tuple[int, ...], itemsize: int
) -> tuple[tuple[int, int], int, list[Axis]]:
    """Return where a walk begins, the bytes that stay together, and the axes that do not.

    Steps in the target are made positive, and axes that are one on both sides are merged.
    """
    begin_far = begin_near = 0
    axes: list[Axis] = []
    for axis in map(Axis, shape, far, near):
        if axis.extent == 1:
            continue
        if axis.far < 0:
            begin_far += (axis.extent - 1) * axis.far
            begin_near += (axis.extent - 1) * axis.near
            axis = Axis(axis.extent, -axis.far, -axis.near)
        axes.append(axis)
    axes.sort(key=lambda axis: axis.far, reverse=True)
    merged: list[Axis] = []
    for axis in axes:
        if merged and merged[-1].far == axis.extent * axis.far:
            outer = merged[-1]
            if outer.near == axis.extent * axis.near:
                merged[-1] = Axis(outer.extent * axis.extent, axis.far, axis.near)
                continue
        merged.append(axis)
    element = itemsize
    if merged and merged[-1].far == merged[-1].near == itemsize:
        element *= merged.pop().extent
    return (begin_far, begin_near), element, merged or [_ALONE]


def _box(element: int, axes: Sequence[Axis]) -> list[int]:
    """Return the extents of a tile: whole axes and at most a part of one, on either side."""
    far = sorted(range(len(axes)), key=lambda at: axes[at].far)
    near = sorted(range(len(axes)), key=lambda at: abs(axes[at].near))
    tile = [1] * len(axes)
    side = SIDE
    for order in (far, near):
        length = element
        for at in order:
            if length >= side:
                break
            extent = axes[at].extent
            share = -(-extent // -(-extent * length // side))
            if EVEN < share < extent:
                share = min(extent, -(-share // EVEN) * EVEN)
            tile[at] = max(tile[at], share)
            length *= share
            if share < extent:
                break
        side = min(SIDE, ROOM * element // length)
    return tile


@cache
def _last_cache() -> int:
    """Return the bytes of this machine's last cache."""
    return Machine.load().caches[-1].capacity or 0
