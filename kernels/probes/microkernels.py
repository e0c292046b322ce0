"""Timing microkernels alone, with all they read and write in the first cache.

Rows in place are timed as they mostly lie: each step's in a page of its own, and vectors across
lines. Both cost time: measurements are in docs/decisions/044.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf, prod

import numpy as np

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.loaded_code import LoadedCode, LoadedParts
from tilesolve.kernels.codegen.object_code import Family
from tilesolve.kernels.codegen.shape import FIELDS, Mode, Shape
from tilesolve.kernels.codegen.store_output import interleaved_steps
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile, default_tile
from tilesolve.kernels.progress import Progress, silent
from tilesolve.kernels.runtime.compiled import INT, compiled, invoke
from tilesolve.packing.buffers import allocate_pages
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import LINE_BYTES, PAGE_BYTES, WORD_BYTES


@dataclass(frozen=True, slots=True)
class NonTemporalStores:
    """How tiles are timed that store C non-temporally.

    Parameters
    ----------
    pitch
        Bytes between columns of C.
    fresh
        Whether each tile has rows of its own: they come from the second cache then.
    prefetches
        Whether each tile prefetches the first lines of the next one's micro-panels.
    """

    pitch: int
    fresh: bool = False
    prefetches: bool = False


SPREAD = NonTemporalStores(tuning.PROBE_PITCH_BYTES)
"""Stores whose lines are spread over their pages."""

ALIASED = NonTemporalStores(PAGE_BYTES)
"""Stores with 4 KiB aliasing: all lines have the same offset in their pages."""


class InPlace(Enum):
    """Which operand a kernel reads in place; the other one lies in micro-panels."""

    ROWS = "rows"
    """Each step of k in another page."""
    COLUMNS = "columns"
    """Each column in another page, its steps side by side."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call of a microkernel that is timed.

    C is one tile in the first cache, unless tile after tile is stored non-temporally.

    Parameters
    ----------
    shape
        Which kernel.
    steps
        Length of its sums.
    stores
        How C is stored non-temporally, if it is.
    in_place
        Which operand is read in place, if one is.
    """

    shape: Shape
    steps: int
    stores: NonTemporalStores | None = None
    in_place: InPlace | None = None

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.shape.dtype).itemsize

    @property
    def tiles(self) -> int:
        """Tiles of the call."""
        return tuning.PROBE_TILES if self.stores is None else tuning.PROBE_NON_TEMPORAL_TILES

    @property
    def panel_bytes(self) -> tuple[int, int]:
        """Bytes of a micro-panel of rows, and of one of columns."""
        return (
            self.steps * self.shape.lanes * self.element,
            self.steps * self.shape.group * self.element,
        )


@compiled(INT, INT, INT)
def _repeat(address, frame, count):
    """Call a kernel that leaves its frame as it was again and again."""
    for _ in range(count):
        invoke(address, frame)


def measure(
    family: Family,
    loaded: LoadedCode | LoadedParts,
    frequency: float,
    progress: Progress = silent,
    speed: Callable[[], float] = lambda: 1.0,
    product: float = 0.0,
) -> Catalogue | None:
    """Return how fast each microkernel of a family that reads micro-panels is.

    What seems faster than the arithmetic peak is no measurement. It is measured again, and left out
    where it stays so; None is returned where nothing else is left.

    Parameters
    ----------
    family
        Which kernels.
    loaded
        Their code, and that of the usual tile which reads in place.
    frequency
        Hz of the cycles that are counted.
    progress
        Called after each round.
    speed
        Returns how fast arithmetic is now, relative to that frequency. It is called around each
        round, whose seconds are scaled by it, as clocks change from one minute to the next.
    product
        Cycles that a product of vectors takes at the peak; 0 where it is not known.

    Examples
    --------
    >>> from tilesolve.kernels.codegen.object_code import build
    >>> family = Family("float64", 128, 4, 4)
    >>> found = measure(family, LoadedCode(build(family)), 3e9)
    >>> len(found.tiles) == len(family.tiles)
    True
    """
    short, long = tuning.PROBE_SHORT_STEPS, tuning.PROBE_LONG_STEPS
    shapes = [shape for shape in family.shapes if shape.packed and not shape.halved]
    plain = [TimedCall(shape, steps) for shape in shapes for steps in (short, long)]
    packed, unpacked = usual_shapes(family)
    in_place = {
        operand: TimedCall(
            unpacked if operand else packed, tuning.PROBE_IN_PLACE_STEPS, in_place=operand
        )
        for operand in (None, *InPlace)
    }
    stores = {way: TimedCall(packed, short, stores=way) for way in _store_ways(packed)}
    calls = (*plain, *in_place.values(), *stores.values())
    clock = _Clock(frequency, product, speed)
    best = _best_seconds(family, loaded, calls, clock, progress)
    if best is None:
        return None
    tiles = _possible_tiles(family, loaded, plain, best, clock)
    if not tiles:
        return None
    rows, columns = (
        round(max(1.0, best[in_place[operand]] / best[in_place[None]]), 2) for operand in InPlace
    )
    without, prefetching = (
        best.get(stores.get(NonTemporalStores(SPREAD.pitch, fresh=True, prefetches=prefetches)))
        for prefetches in (False, True)
    )
    return Catalogue(
        family.dtype,
        family.bits,
        family.registers,
        tiles,
        rows,
        round(max(1.0, best[stores[ALIASED]] / best[stores[SPREAD]]), 2),
        round(prefetching / without, 2) if prefetching and without else None,
        columns,
    )


@dataclass(frozen=True, slots=True)
class _Clock:
    """What seconds are judged by: Hz, cycles of a product at the peak, and the present speed."""

    frequency: float
    product: float
    speed: Callable[[], float]

    def least(self, call: TimedCall) -> float:
        """Return the seconds of a tile below which none is a measurement."""
        work = call.steps * call.shape.vectors * call.shape.columns * self.product
        return (1 - tuning.PROBE_TOLERANCE) * work / self.frequency


def usual_shapes(family: Family) -> tuple[Shape, Shape]:
    """Return the kernels of the usual tile that read micro-panels, and operands in place.

    Examples
    --------
    >>> [shape.name for shape in usual_shapes(Family("float64", 256, 16, 4))]
    ['packed_float64_256_2x6_4', 'placed_float64_256_2x6_4']
    """
    high, wide = default_tile(family.dtype, family.bits, family.registers)
    within = [tile for tile in family.tiles if tile[0] <= high and tile[1] <= wide]
    tile = max(within, key=prod)  # the usual one, where there are registers for it
    packed, unpacked = (
        next(
            shape
            for shape in family.shapes
            if (shape.vectors, shape.columns, shape.packed) == (*tile, packed) and not shape.halved
        )
        for packed in (True, False)
    )
    return packed, unpacked


def _store_ways(shape: Shape) -> list[NonTemporalStores]:
    """Return how a kernel's non-temporal stores are timed."""
    # Narrow kernels never prefetch the next micro-panels.
    choices = (False, True) if interleaved_steps(shape) else ()
    fresh = [NonTemporalStores(SPREAD.pitch, fresh=True, prefetches=each) for each in choices]
    return [SPREAD, ALIASED, *fresh]


def _best_seconds(
    family: Family,
    loaded: LoadedCode | LoadedParts,
    calls: Sequence[TimedCall],
    clock: _Clock,
    progress: Progress,
) -> dict[TimedCall | None, float] | None:
    """Return the seconds of one tile of each call in its best round, at the speed of each round.

    A round in which some call seems faster than the peak is measured again: the speed was misread.
    None is returned where that was so in all rounds.
    """
    block = allocate_pages(_bytes(family)).view(np.int64)
    block[:] = 0
    best: dict[TimedCall | None, float] = dict.fromkeys(calls, inf)
    pace, rounds, done = clock.speed(), tuning.PROBE_ROUNDS, 0
    for number in range(2 * rounds):
        progress(done / rounds, f"{family.dtype}, round {done + 1} of {rounds}")
        shift = tuning.PROBE_SHIFT_BYTES * number % PAGE_BYTES
        memory = block.ctypes.data, shift
        taken = [_seconds(loaded, call, memory, clock.frequency) for call in calls]
        before, pace = pace, clock.speed()
        # A disturbed reading of the speed is too low, and mostly only one of two is disturbed.
        scaled = [max(before, pace) * seconds for seconds in taken]
        if any(found < clock.least(call) for call, found in zip(calls, scaled, strict=True)):
            continue
        best = {call: min(best[call], found) for call, found in zip(calls, scaled, strict=True)}
        done += 1
        if done == rounds:
            break
    return best if done else None


def _possible_tiles(
    family: Family,
    loaded: LoadedCode | LoadedParts,
    plain: Sequence[TimedCall],
    best: dict[TimedCall | None, float],
    clock: _Clock,
) -> tuple[RegisterTile, ...]:
    """Return the tiles that are no faster than the peak; others are measured anew before.

    Where all short calls were disturbed and long ones were not, steps seem too short; where the
    speed was misread by little, all do. What was measured then no longer counts.
    """

    def tiles() -> dict[tuple[int, int], RegisterTile]:
        seconds = {(call.shape, call.steps): best[call] for call in plain}
        found = tiles_of(seconds, clock.frequency)
        return {(one.vectors, one.columns): one for one in found if one.is_possible(clock.product)}

    kept = tiles()
    for _ in range(tuning.PROBE_RETRIES):
        again = [one for one in plain if (one.shape.vectors, one.shape.columns) not in kept]
        if not again:
            break
        best |= _best_seconds(family, loaded, again, clock, silent) or {}
        kept = tiles()
    return tuple(kept.values())


def tiles_of(best: Mapping[tuple[Shape, int], float], frequency: float) -> tuple[RegisterTile, ...]:
    """Return what one step of k and one call take, from the seconds of short and of long calls.

    If all short calls of a tile were disturbed, a step seems to take less than its FMAs can.
    Planning compares all tiles with the fastest and would choose such a tile for everything; so no
    tile counts as faster than most of the larger ones, which keep all units busy.

    Parameters
    ----------
    best
        Seconds of calls that sum `tuning.PROBE_SHORT_STEPS` and `tuning.PROBE_LONG_STEPS` products,
        for each shape.
    frequency
        Hz of the cycles that are counted.

    Examples
    --------
    >>> shape = Shape("float64", 512, 3, 8, 8, packed=True)
    >>> short, long = tuning.PROBE_SHORT_STEPS, tuning.PROBE_LONG_STEPS
    >>> tiles_of({(shape, short): 448e-9, (shape, long): 2000e-9}, 1e9)
    (RegisterTile(vectors=3, columns=8, step=24.25, call=60.0),)
    """
    short, long = tuning.PROBE_SHORT_STEPS, tuning.PROBE_LONG_STEPS
    steps = {
        shape: (best[shape, long] - best[shape, short]) / (long - short) * frequency
        for shape, count in best
        if count == short
    }
    larger = sorted(steps, key=lambda shape: shape.accumulators)[len(steps) // 2 :]
    rates = sorted(steps[shape] / shape.accumulators for shape in larger)
    least = rates[len(rates) // 4]
    tiles = []
    for shape, found in steps.items():
        step = max(found, least * shape.accumulators)
        call = max(0.0, best[shape, short] * frequency - short * step)
        tiles.append(RegisterTile(shape.vectors, shape.columns, round(step, 2), round(call, 1)))
    return tuple(tiles)


def _bytes(family: Family) -> int:
    """Return the bytes of the longest micro-panels, rows in place, a tile of C and its offsets."""
    widest = max(shape.rows for shape in family.shapes)
    longest = max(shape.columns for shape in family.shapes) + family.group
    element, pitch = np.dtype(family.dtype).itemsize, tuning.PROBE_PITCH_BYTES
    tiles = tuning.PROBE_NON_TEMPORAL_TILES
    steps = max(tuning.PROBE_IN_PLACE_STEPS, tuning.PROBE_LONG_STEPS)
    rows = widest * max(steps, tuning.PROBE_SHORT_STEPS * tiles) * element
    panels = longest * steps * element + max(rows, pitch * (steps + 1))
    return panels + longest * pitch + widest * tiles * element + 4 * PAGE_BYTES


def _seconds(
    loaded: LoadedCode | LoadedParts,
    call: TimedCall,
    memory: tuple[int, int],
    frequency: float,
) -> float:
    """Return the seconds of one tile of a call, over and over on the same zeros.

    The memory is given by its address, and by the bytes that C moves on in it.
    """
    shape = call.shape
    tables = _tables(call)
    values = _addresses(call, *memory) | {
        "a_step": call.panel_bytes[0],
        "b_step": call.panel_bytes[1],
        "a_ahead": shape.rows * call.element,
        "k": call.steps,
        "rows_c_move": 0 if call.stores is None else WORD_BYTES * shape.rows,
        "rows": shape.rows,
        "more": call.tiles - 1,
        "mode": int(Mode.STORE if call.stores is None else Mode.STREAM),
        "prefetch_next": call.stores is not None and call.stores.prefetches,
        "alpha": int.from_bytes(np.ones(1, shape.real).tobytes(), sys.byteorder),
    }
    values |= {name: table.ctypes.data for name, table in tables.items()}
    nothing = np.array([memory[0]])
    values["fetch"] = nothing.ctypes.data
    frame = np.array([values.get(name, 0) for name in FIELDS], np.int64)
    ideal = call.tiles * call.steps * shape.accumulators / frequency
    count = max(1, int(tuning.PROBE_SECONDS / ideal))
    address, where = loaded.address(shape.name), frame.ctypes.data
    _repeat(address, where, 1)  # what it reads is in its caches from here on
    begin = time.perf_counter()
    _repeat(address, where, count)
    return (time.perf_counter() - begin) / (count * call.tiles)


def _tables(call: TimedCall) -> dict[str, Integers]:
    """Return the offsets of rows, columns and steps, by the names of the frame's fields."""
    shape, element = call.shape, call.element
    a_step, b_step = call.panel_bytes
    rows = np.arange(shape.rows, dtype=np.int64) * element
    columns = np.arange(shape.columns, dtype=np.int64)
    steps = np.arange(call.steps, dtype=np.int64)
    group = shape.lanes * element
    pitch = shape.rows * element if call.stores is None else call.stores.pitch
    tables = {
        "rows_c": np.arange(shape.rows * call.tiles, dtype=np.int64) * element,
        "columns_c": columns * pitch,
    }
    if call.in_place is InPlace.COLUMNS:
        return tables | {
            "rows_a": rows // group * a_step + rows % group,
            "sums_a": steps * group,
            "columns_b": columns * tuning.PROBE_PITCH_BYTES,
            "sums_b": steps * element,
        }
    return tables | {
        "rows_a": rows,
        "sums_a": steps * tuning.PROBE_PITCH_BYTES,
        "columns_b": columns // shape.group * b_step + columns % shape.group * element,
        "sums_b": steps * shape.group * element,
    }


def _addresses(call: TimedCall, block: int, shift: int) -> dict[str, int]:
    """Return where operands and C begin in a block, and how far rows and prefetches move on."""
    shape, pitch = call.shape, tuning.PROBE_PITCH_BYTES
    a_step, b_step = call.panel_bytes
    rows_bytes = shape.vectors * a_step
    fresh = call.stores is not None and call.stores.fresh
    a, b = block, block + rows_bytes * (call.tiles if fresh else 1)
    if call.in_place is InPlace.ROWS:
        a, b = block + tuning.PROBE_OFFSET_BYTES, block + pitch * (call.steps + 1)
    c = b + -(-shape.columns // shape.group) * b_step
    b_ahead = 0
    if call.in_place is InPlace.COLUMNS:  # these lie in as many pages
        c = b + shape.columns * pitch + call.steps * call.element
        b_ahead = shape.columns * pitch
    return {
        "a": a,
        "b": b,
        "next_a": block,
        "a_move": rows_bytes * fresh,
        "b_ahead": b_ahead,
        "c": c + -c % LINE_BYTES + shift,
    }
