"""Which register tile a problem gets: the one whose microkernel wastes least on its shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes, panel_columns, real_of
from tilesolve.kernels.microkernel_costs import (
    PACK,
    PLACED,
    STREAMS,
    WALK,
    Catalogue,
    Microkernel,
    RegisterTile,
    default,
)
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.lines import lines_of, run_of, run_waste
from tilesolve.model.pages import crowded, runs_of
from tilesolve.planning.letter_boxes import box
from tilesolve.planning.policy import (
    IN_PLACE_LIMIT,
    MOST_CALL_PRODUCTS,
    PASSING_TILES,
    TIME_TOLERANCE,
)
from tilesolve.planning.prefetch import UNASKED, unasked

FEEDS = 1.4
"""How many times the bandwidth that a register tile needs a cache should have to feed it (measured
on a Granite Rapids, without and with a tile for the nearest cache: for 24 rows by 8 columns, which
have 1.49 times, `abc-ad-bdc` takes 196 and 215 ms; for 32 by 6, which have 1.26 times,
`abcdef-efga-gdbc` takes 24.9 and 20.7 ms)."""

BROADCAST = 0.35
"""Cycles that it takes to read an element of columns in place once more."""

TURNED = 0.15
"""Cycles that each element takes longer of rows that are transposed while they are packed, for each
further vector of rows, and if they pass more than once: of few rows, far apart, longer runs are
packed together (measured on a Zen 4, tiles of 24 by 8 and of 8 by 24: `abcde-ecbfa-fd` 137 and
124 ms, `abcd-dbea-ec` 82 and 77; in float32 `abcde-ecbfa-fd` 66 and 63, by 48 and by 16 rows)."""

LINED = 0.7
"""Share of the speed of streaming stores that they have line by line, pages apart, from which on
C's lines may be anywhere (measured on a Zen 4 in several minutes: 0.84 to 0.99)."""

PLACES = 8
"""Lines in a row whose places count then: those at one of them are slow (measured on a Zen 4: lines
512 bytes apart, or any multiple of that, are written at 15 GB/s, others and pairs at 27)."""


def register_tile(problem: Problem, machine: Machine, *, streams: bool = False) -> Microkernel:
    """Return the microkernel for a problem: by shape where they were measured, else the default.

    Calls cost the more the fewer products they sum, and edges make more of them: sixteen rows are
    one tile of sixteen, or of twenty-four. So of all measured tiles the one is taken that would
    need the fewest cycles, if what it multiplies came from the nearest caches. Packing costs less
    where all tensors fit the second one; where operands are then read in place, they come from
    there again for each tile of the other one (measured on a Zen 4: a product of 128 by 128
    matrices has 0.83 of the peak with 24 rows by 8 columns, 0.92 with 16 by 12).

    Parameters
    ----------
    problem
        What is computed.
    machine
        With or without a catalogue.
    streams
        Whether C is written past the caches: then calls should write long runs of it.

    Examples
    --------
    >>> from tilesolve.kernels.microkernel_costs import Catalogue
    >>> machine = Machine.load("i7-6700k")
    >>> tiles = RegisterTile(2, 6, 6.0, 60.0), RegisterTile(3, 4, 6.0, 20.0)
    >>> measured = machine.replace(catalogues=(Catalogue("float64", 256, 16, tiles),))
    >>> problem = Problem.of("mn-mk-kn", "m=12 n=12 k=16")
    >>> [register_tile(problem, m).columns for m in (machine, measured)]
    [6, 4]
    """
    usual = default(problem.dtype, machine.vector_bits, machine.vector_registers)
    small = nearby(problem, machine)
    catalogue = machine.catalogue(problem.dtype)
    if catalogue is None:
        return usual.nearby() if small else usual
    near = small and max(catalogue.placed or PLACED, catalogue.streams or STREAMS) <= IN_PLACE_LIMIT
    times = _times(problem, catalogue.tiles, machine, streams=streams, near=near)
    best = min(times, key=times.__getitem__)
    group = lanes(problem.dtype, machine.vector_bits)
    for tile, cycles in times.items():
        if (tile.vectors * group, tile.columns) == (usual.rows, usual.columns):
            best = best if times[best] < (1 - TIME_TOLERANCE) * cycles else tile
    kernel = catalogue.microkernel(best, adds=not streams)
    kernel = replace(kernel, efficiency=kernel.efficiency * _reached(catalogue, machine))
    return kernel.nearby() if small else kernel


def hindered(
    problem: Problem, machine: Machine, strides: Mapping[str, int], sides: Mapping[str, int]
) -> bool:
    """Return whether lines of a box of C would hinder each other on their way past the caches.

    Some CPUs let a line wait while another one is under way to the same place in its page.

    Parameters
    ----------
    problem
        What is computed.
    machine
        Whose catalogue says what that costs; nothing, where it was not measured.
    strides
        Of C, in bytes.
    sides
        Of the box.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 512)
    >>> hindered(problem, Machine.load("i7-6700k"), problem.strides(0), {"m": 6, "n": 8})
    False
    """
    return machine.avoids_aliased_stores(problem.dtype) and crowded(
        strides, sides, machine.memory.line
    )


def nearby(problem: Problem, machine: Machine) -> bool:
    """Return whether the second cache holds all tensors: they mostly are there before a call.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> [nearby(Problem.of("mn-mk-kn", size), machine) for size in (64, 512)]
    [True, False]
    """
    near = machine.caches[:2]
    return bool(near) and sum(problem.bytes) <= (near[-1].usable or 0)


def _reached(catalogue: Catalogue, machine: Machine) -> float:
    """Return the share of the machine's peak that the fastest tile reaches.

    The peak is that of FMAs alone; tiles also load what they multiply, which some CPUs do not do
    beside as many FMAs (Granite Rapids: 0.8).
    """
    group = lanes(catalogue.dtype, catalogue.bits)
    products = group if real_of(catalogue.dtype) == catalogue.dtype else 4 * group
    return min(
        1.0, 2 * products * machine.frequency / catalogue.rate / machine.peak(catalogue.dtype)
    )


def _times(
    problem: Problem,
    tiles: Sequence[RegisterTile],
    machine: Machine,
    *,
    streams: bool,
    near: bool,
) -> dict[RegisterTile, float]:
    """Return for each tile the cycles of all calls, edges included, and of packing the columns.

    Where rows pass by, no step takes less than the second cache takes to bring them. Of a cell's
    last columns whole groups are packed. Where C is written past the caches, all sums are in the
    nearest tile; what is lost at the ends of the runs that a call writes is counted then, too, and
    that lines of an operand cannot be asked for of which even a cell's do not stay. What is read in
    place, as it is near, comes from the second cache for each cell of the other operand.
    """
    fused = fuse(problem)
    rows = fused.letters(fused.rows) if fused.rows else ()
    columns = fused.letters(fused.columns) if fused.columns else ()
    lane = problem.spec.output.letters[-1:]
    if not set(lane) & set(rows):
        lane = rows[:1]
    group, line = lanes(problem.dtype, machine.vector_bits), machine.memory.line
    parts = 2 if machine.uses_half_vectors(problem.dtype) else 1
    high = {
        vectors: _cut(problem, rows, lane, vectors * group, group, parts, line)
        for vectors in {tile.vectors for tile in tiles}
    }
    wide = {
        count: _cut(problem, columns, (), count, 1, 1, line)
        for count in {tile.columns for tile in tiles}
    }
    sums = prod(max(1, problem.sizes[i]) for index in fused.reduced for i in fused.letters(index))
    times = max(1.0, sums / MOST_CALL_PRODUCTS)
    together = panel_columns(problem.dtype, machine.vector_registers)
    written = problem.bytes[0] / (machine.memory.stream or machine.memory.bandwidth)
    second = machine.levels[min(1, len(machine.levels) - 1)]
    nearest = machine.levels[0].usable or 0
    known = {(tile.vectors, tile.columns): tile.step for tile in tiles}
    high_lost, wide_lost = (
        {count: _unasked(problem, sides, machine) for count, (_, _, sides) in cells.items()}
        if streams
        else {}
        for cells in (high, wide)
    )
    all_rows = prod(max(1, problem.sizes[i]) for i in rows)
    fed = problem.itemsize * FEEDS * machine.frequency / (second.read or second.bandwidth)
    again = sum(problem.bytes[1:])
    turned = _turned(problem, rows, lane)
    found = {}
    for tile in tiles:
        (above, vectors, down), (beside, each, across) = high[tile.vectors], wide[tile.columns]
        calls = above * beside
        packed = beside * ceil(each / beside / together) * together
        sides = tile.vectors * group, tile.columns
        passing = min(PASSING_TILES * sides[0], all_rows) + sides[1]
        held = passing * sums * problem.itemsize <= nearest
        steps = _steps(tile, (above, vectors), (beside, each), known)
        if not held:
            filled = vectors * each / (tile.vectors * tile.columns)
            steps = max(steps, filled * fed * sum(sides))
        found[tile] = sums * steps + calls * times * (tile.call + WALK)
        found[tile] += sums * packed * PACK
        if near and again > nearest:
            found[tile] += sums * (beside * all_rows * fed + above * each * BROADCAST)
        if streams:
            waste = _waste(problem, down | across, machine)
            found[tile] += waste * written * machine.frequency
            found[tile] += UNASKED * (high_lost[tile.vectors] + wide_lost[tile.columns])
            found[tile] += TURNED * turned * (tile.vectors - (beside == 1))
    return found


def _turned(problem: Problem, rows: Sequence[str], lane: Sequence[str]) -> float:
    """Return how many elements of rows are packed by transposing blocks of rows.

    That is so where their operand is contiguous along rows other than those of a vector.
    """
    others = set(rows) - set(lane)
    for number, operand in enumerate(problem.spec.operands, start=1):
        unit = operand.subscripts[-1] if operand.subscripts else None
        if set(lane) & set(operand.letters) and unit and unit.plain and unit.letters[0] in others:
            return problem.bytes[number] / problem.itemsize
    return 0.0


def _unasked(problem: Problem, sides: Mapping[str, int], machine: Machine) -> float:
    """Return how many lines are packed that are not asked for before, whatever the tiles are.

    That is so of an operand, some letters of which have these sides in a cell.
    """
    output = problem.spec.output.letters
    cell = {i: sides.get(i, 1) if i in output else n for i, n in problem.sizes.items()}
    return sum(
        problem.bytes[number] / machine.memory.line
        for number, operand in enumerate(problem.spec.operands, start=1)
        if set(operand.letters) & set(sides) and unasked(problem, number, cell, machine)
    )


def _steps(
    tile: RegisterTile,
    rows: tuple[int, float],
    columns: tuple[int, float],
    known: Mapping[tuple[int, int], float],
) -> float:
    """Return the cycles of one step of all calls: cells are near-equal, smaller ones less fast.

    Rows and columns are how many cells they are cut into, and how many groups and columns these
    have together. A tile that is not known takes its share of the given one's time.
    """

    def cells(count: int, total: float) -> list[tuple[int, float]]:
        low = int(total / count)
        more = total - low * count
        return [(low, count - more), (low + 1, more)]

    whole = tile.vectors * tile.columns
    return sum(
        times * often * known.get((high, wide), tile.step * high * wide / whole)
        for high, times in cells(*rows)
        for wide, often in cells(*columns)
        if high and wide
    )


def _waste(problem: Problem, sides: Mapping[str, int], machine: Machine) -> float:
    """Return the bytes moved in vain where calls write boxes of C past the caches, per byte of it.

    Where lines at one place in their pages hinder each other, these go through the caches, to which
    they are read before; others cost nothing there, wherever they are, but for less than a line.
    What a longer run has of its last one, the next call completes. Where single lines were measured
    to be as fast as runs, those at several of `PLACES` count as a run of as many.
    """
    strides, line = problem.strides(0), machine.memory.line
    if machine.avoids_aliased_stores(problem.dtype):
        size = prod(sides.values()) * problem.itemsize
        run = size / runs_of(strides, sides, problem.itemsize)
        return max(0.0, line / run - 1) + hindered(problem, machine, strides, sides)
    run = run_of(problem, problem.spec.output, sides)
    memory = machine.memory
    steps = [stride for stride in strides.values() if stride != problem.itemsize]
    whole = run % line == 0 and not any(stride % line for stride in steps)
    if whole and (memory.lines or 0.0) >= LINED * (memory.stream or memory.bandwidth):
        lines = lines_of(problem, 0, {**dict.fromkeys(strides, 1), **sides}, line)
        run = max(run, line * len(np.unique(lines % PLACES)))
    return float(run_waste(run, line, problem.itemsize))


def _cut(
    problem: Problem,
    letters: Sequence[str],
    lane: Sequence[str],
    most: int,
    group: int,
    parts: int,
    line: int,
) -> tuple[int, float, dict[str, int]]:
    """Return into how many cells letters are cut, their groups together, and a cell's sides.

    Of a letter's last group only so many parts count as there is something in.
    """
    if not letters:
        return 1, 1, {}
    inner = {i: max(1, min(group if i in lane else 1, problem.sizes[i])) for i in letters}
    sides = box(problem, letters, inner, most, line, [problem.spec.output])
    extents = {i: max(1, problem.sizes[i]) for i in letters}
    groups = prod(ceil(parts * n / group) / parts if i in lane else n for i, n in extents.items())
    return prod(ceil(n / sides[i]) for i, n in extents.items()), groups, sides
