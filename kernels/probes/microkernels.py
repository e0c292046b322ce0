"""Timing microkernels alone, with all they read and write in the nearest cache.

Rows in place are timed as they mostly lie: each step's in a page of its own, and vectors across
lines. That costs where addresses are looked up, and with each load (Granite Rapids: 1.7 times).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from tilesolve.kernels.codegen.object_code import Family, LoadedCode
from tilesolve.kernels.codegen.shape import FIELDS, Mode, Shape
from tilesolve.kernels.codegen.store_output import interleaved_steps
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile, default_tile
from tilesolve.kernels.progress import Progress, silent
from tilesolve.kernels.runtime.compiled import INT, compiled, invoke, renew
from tilesolve.kernels.sources import LAYOUT
from tilesolve.kernels.tuning import PROBE_LONG_STEPS, PROBE_SHORT_STEPS
from tilesolve.packing.buffers import allocate_pages

ROUNDS = 15
"""Times that everything is timed; the best round counts, as others were disturbed."""

SHIFT = 64 * 37
"""Bytes that C moves on from round to round: where its lines and those of a strip agree in the last
twelve bits of their addresses, loads wait for stores."""

TILES = 8
"""Tiles of a call: the macrokernel mostly has some dozens computed by one."""

CALL = 1e-4
"""Seconds of one timing."""

STEPS = 128
"""Length of the sums for which operands are read in place: as many pages as nests mostly have."""

PITCH = 4096 + 3 * 64
"""Bytes between the rows in place of one step and those of the next: their lines are spread over
the sets of any cache."""

CROWDED = 4096
"""Bytes between columns of C where their lines are at one place in their pages."""

PASSING = 64
"""Tiles of a call that writes C past the caches: as many as a column of a page has lines."""

ASKEW = 16
"""Bytes by which rows in place miss the beginnings of lines, as arrays of numpy's do."""


@dataclass(frozen=True, slots=True)
class NonTemporalStores:
    """How tiles are timed that write C past the caches.

    Parameters
    ----------
    pitch
        Bytes between columns of C.
    fresh
        Whether each tile has rows of its own: they come from the second cache then.
    asks
        Whether each tile asks for the first lines of the next one's.

    Examples
    --------
    >>> NonTemporalStores(4096).fresh
    False
    """

    pitch: int
    fresh: bool = False
    asks: bool = False


class InPlace(Enum):
    """Which operand a kernel reads in place; the other one lies in strips.

    Examples
    --------
    >>> [place.name for place in InPlace]
    ['ROWS', 'COLUMNS']
    """

    ROWS = "rows"
    """Each step of k in another page."""
    COLUMNS = "columns"
    """Each column in another page, its steps side by side."""


@compiled(INT, INT, INT)
def _repeat(address, frame, count):
    """Call a kernel that leaves its frame as it was again and again."""
    for _ in range(count):
        invoke(address, frame)


def measure(
    family: Family,
    loaded: LoadedCode,
    frequency: float,
    progress: Progress = silent,
    speed: Callable[[], float] = lambda: 1.0,
) -> Catalogue:
    """Return how fast each microkernel of a family that reads strips is.

    Parameters
    ----------
    family
        Which kernels.
    loaded
        Their code.
    frequency
        Hz of the cycles that are counted.
    progress
        Called after each round.
    speed
        Tells how fast arithmetic is, beside what it is at that frequency. It is asked around each
        round, whose seconds count as of that speed: clocks of virtual machines change by a seventh
        from one minute to the next.

    Examples
    --------
    >>> from tilesolve.kernels.codegen.object_code import build
    >>> family = Family("float64", 128, 4, 4)
    >>> found = measure(family, LoadedCode(build(family)), 3e9)
    >>> len(found.tiles) == len(family.tiles)
    True
    """
    shapes = [shape for shape in family.shapes if shape.packed and not shape.halved]
    best = {
        (shape, sums): float("inf")
        for shape in shapes
        for sums in (PROBE_SHORT_STEPS, PROBE_LONG_STEPS)
    }
    high, wide = default_tile(family.dtype, family.bits, family.registers)
    within = [tile for tile in family.tiles if tile[0] <= high and tile[1] <= wide]
    tile = max(within, key=prod)  # the usual one, where there are registers for it
    usual_shape, placed_shape = (
        next(
            shape
            for shape in family.shapes
            if (shape.vectors, shape.columns, shape.packed) == (*tile, packed) and not shape.halved
        )
        for packed in (True, False)
    )
    beside = dict.fromkeys((None, *InPlace), float("inf"))
    past = dict.fromkeys((NonTemporalStores(PITCH), NonTemporalStores(CROWDED)), float("inf"))
    # Narrow kernels never ask for lines.
    turns = (False, True) if interleaved_steps(usual_shape) else ()
    past |= {NonTemporalStores(PITCH, fresh=True, asks=asks): float("inf") for asks in turns}
    block = allocate_pages(_bytes(family)).view(np.int64)
    block[:] = 0
    pace = speed()
    for number in range(ROUNDS):
        progress(number / ROUNDS, f"{family.dtype}, round {number + 1} of {ROUNDS}")
        room = block.ctypes.data, SHIFT * number % (1 << 12)
        taken: list[tuple[dict[Any, float], Any, float]] = []
        for shape, sums in best:
            seconds = _seconds(loaded, shape, sums, room, frequency)
            taken.append((best, (shape, sums), seconds))
        for place in beside:
            shape = placed_shape if place else usual_shape
            seconds = _seconds(loaded, shape, STEPS, room, frequency, place=place)
            taken.append((beside, place, seconds))
        for way in past:
            seconds = _seconds(loaded, usual_shape, PROBE_SHORT_STEPS, room, frequency, way)
            taken.append((past, way, seconds))
        before, pace = pace, speed()
        for times, key, seconds in taken:
            # A turn that was disturbed tells too low a speed: one of the two mostly was not.
            times[key] = min(times[key], max(before, pace) * seconds)
    placed, streams = (
        round(max(1.0, beside[place] / beside[None]), 2)
        for place in (InPlace.ROWS, InPlace.COLUMNS)
    )
    without, asking = (
        past.get(NonTemporalStores(PITCH, fresh=True, asks=asks)) for asks in (False, True)
    )
    return Catalogue(
        family.dtype,
        family.bits,
        family.registers,
        tiles_of(best, frequency),
        placed,
        round(max(1.0, past[NonTemporalStores(CROWDED)] / past[NonTemporalStores(PITCH)]), 2),
        round(asking / without, 2) if asking and without else None,
        streams,
    )


def tiles_of(best: Mapping[tuple[Shape, int], float], frequency: float) -> tuple[RegisterTile, ...]:
    """Return what one step of k and one call take, from the seconds of short and of long calls.

    Where no short call was undisturbed, a step seems to take less than its FMAs can. As planning
    measures all tiles by the fastest, one such mistake would make it the choice for everything; so
    no tile is taken to be faster than most of the larger ones, which keep all units busy.

    Parameters
    ----------
    best
        Seconds of calls that sum `PROBE_SHORT_STEPS` and `PROBE_LONG_STEPS` products, per shape.
    frequency
        Hz of the cycles that are counted.

    Examples
    --------
    >>> shape = Shape("float64", 512, 3, 8, 8, packed=True)
    >>> tiles_of({(shape, PROBE_SHORT_STEPS): 448e-9, (shape, PROBE_LONG_STEPS): 2000e-9}, 1e9)
    (RegisterTile(vectors=3, columns=8, step=24.25, call=60.0),)
    """
    steps = {
        shape: (best[shape, PROBE_LONG_STEPS] - best[shape, PROBE_SHORT_STEPS])
        / (PROBE_LONG_STEPS - PROBE_SHORT_STEPS)
        * frequency
        for shape, sums in best
        if sums == PROBE_SHORT_STEPS
    }
    larger = sorted(steps, key=lambda shape: shape.accumulators)[len(steps) // 2 :]
    rates = sorted(steps[shape] / shape.accumulators for shape in larger)
    least = rates[len(rates) // 4]
    tiles = []
    for shape, found in steps.items():
        step = max(found, least * shape.accumulators)
        call = max(0.0, best[shape, PROBE_SHORT_STEPS] * frequency - PROBE_SHORT_STEPS * step)
        tiles.append(RegisterTile(shape.vectors, shape.columns, round(step, 2), round(call, 1)))
    return tuple(tiles)


def _bytes(family: Family) -> int:
    """Return room for the longest strips, rows in place, a tile of C and its offsets."""
    widest = max(shape.rows for shape in family.shapes)
    longest = max(shape.columns for shape in family.shapes) + family.group
    element = np.dtype(family.dtype).itemsize
    sums = max(STEPS, PROBE_LONG_STEPS)
    rows = widest * max(sums, PROBE_SHORT_STEPS * PASSING) * element
    strips = longest * sums * element + max(rows, PITCH * (sums + 1))
    return strips + longest * PITCH + widest * PASSING * element + (1 << 14)


def _seconds(
    loaded: LoadedCode,
    shape: Shape,
    sums: int,
    room: tuple[int, int],
    frequency: float,
    past: NonTemporalStores | None = None,
    place: InPlace | None = None,
) -> float:
    """Return the seconds of one tile of a call, over and over on the same zeros.

    C is one tile in the nearest cache; or tile after tile is written past the caches. Kernels that
    read in place have one operand there.
    """
    element = np.dtype(shape.dtype).itemsize
    block, shift = room
    a_step, b_step = sums * shape.lanes * element, sums * shape.group * element
    rows = np.arange(shape.rows, dtype=np.int64) * element
    columns = np.arange(shape.columns, dtype=np.int64)
    # Where the elements of a column lie in a strip.
    strips = columns // shape.group * b_step + columns % shape.group * element
    steps = np.arange(sums, dtype=np.int64)
    group = shape.lanes * element
    rows_a, sums_a, columns_b, sums_b = (
        (rows // group * a_step + rows % group, steps * group, columns * PITCH, steps * element)
        if place is InPlace.COLUMNS
        else (rows, steps * PITCH, strips, steps * shape.group * element)
    )
    nothing = np.array([block])
    tiles = TILES if past is None else PASSING
    tall = shape.vectors * a_step
    fresh = past is not None and past.fresh
    far = PITCH * (sums + 1) if place is InPlace.ROWS else tall * (tiles if fresh else 1)
    b = block + far
    c = b + -(-shape.columns // shape.group) * b_step
    if place is InPlace.COLUMNS:  # these lie in as many pages
        c = b + shape.columns * PITCH + sums * element
    across = columns * (shape.rows * element if past is None else past.pitch)
    down = np.arange(shape.rows * tiles, dtype=np.int64) * element
    values = {
        "a": block + ASKEW if place is InPlace.ROWS else block,
        "a_step": a_step,
        "b": b,
        "b_step": b_step,
        "next_a": block,
        "fetch": nothing.ctypes.data,
        "rows_a": rows_a.ctypes.data,
        "sums_a": sums_a.ctypes.data,
        "columns_b": columns_b.ctypes.data,
        "sums_b": sums_b.ctypes.data,
        "a_ahead": shape.rows * element,
        "b_ahead": shape.columns * PITCH if place is InPlace.COLUMNS else 0,
        "a_move": tall * fresh,
        "entering": past is not None and past.asks,
        "k": sums,
        "c": c + -c % 64 + shift,
        "rows_c": down.ctypes.data,
        "rows_c_move": 0 if past is None else 8 * shape.rows,
        "columns_c": across.ctypes.data,
        "rows": shape.rows,
        "more": tiles - 1,
        "mode": int(Mode.STORE if past is None else Mode.STREAM),
        "alpha": int.from_bytes(np.ones(1, shape.real).tobytes(), sys.byteorder),
    }
    frame = np.array([values.get(name, 0) for name in FIELDS], np.int64)
    ideal = tiles * sums * shape.accumulators / frequency
    count = max(1, int(CALL / ideal))
    address, where = loaded.address(shape.name), frame.ctypes.data
    _repeat(address, where, 1)  # what it reads is in its caches from here on
    begin = time.perf_counter()
    _repeat(address, where, count)
    return (time.perf_counter() - begin) / (count * tiles)


@compiled(returns=INT)
def _layout():
    """Return the layout that the code was compiled for."""
    return LAYOUT


renew(__name__, _layout())
