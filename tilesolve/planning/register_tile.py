"""The register tile of a problem: the one whose microkernel wastes least on its shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

from tilesolve.constants.policy import (
    DEFAULT_TILE_SHARE,
    FEEDING_RATIO,
    IN_PLACE_LIMIT,
    MOST_CALL_PRODUCTS,
    PASSING_TILES,
    TIME_TOLERANCE,
)
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import shared_lane
from tilesolve.kernels.dtypes import lanes, panel_columns
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile, product_cycles
from tilesolve.machine.microkernel import (
    Microkernel,
    measured_microkernel,
)
from tilesolve.machine.model import Machine
from tilesolve.model.lines import run_of, run_waste
from tilesolve.model.pages import has_aliased_lines, runs_of
from tilesolve.planning.fitted_tile import (
    fit_tile,
    lanewise_tile,
    lengthen_runs,
    measured_tiles,
    usual_microkernel,
)
from tilesolve.planning.prefetch import is_packed_late
from tilesolve.planning.register_cuts import Cut, Shape, Sides


def choose_register_tile(
    problem: Problem, machine: Machine, *, non_temporal: bool = False
) -> Microkernel:
    """Return the microkernel for a problem: the best measured one, or else the default.

    The shape decides: sixteen rows are one tile of sixteen, or most of one of twenty-four, and a
    call costs the more the fewer products it sums. The tile is taken that would need the fewest
    cycles if its operands came from the nearest caches. Where the second cache holds all tensors,
    packing costs less, and operands that are read in place come from there again for each register
    tile of the other side. What multiplies vectors by vectors has the default tile. See
    ``docs/decisions/021-register-tiles.md``.

    Parameters
    ----------
    problem
        What is computed.
    machine
        With or without a catalogue.
    non_temporal
        Whether C is written with non-temporal stores: then calls should write long runs of it.

    Examples
    --------
    >>> from tilesolve.kernels.microkernel_costs import Catalogue
    >>> machine = Machine.load("i7-6700k")
    >>> tiles = RegisterTile(2, 6, 6.0, 60.0), RegisterTile(1, 12, 6.0, 20.0)
    >>> measured = machine.replace(catalogues=(Catalogue("float64", 256, 16, tiles),))
    >>> problem = Problem.of("mn-mk-kn", "m=12 n=8 k=16")
    >>> [choose_register_tile(problem, m).columns for m in (machine, measured)]
    [6, 12]
    """
    return list_register_tiles(problem, machine, non_temporal=non_temporal)[-1]


def list_register_tiles(
    problem: Problem, machine: Machine, *, non_temporal: bool = False
) -> tuple[Microkernel, ...]:
    """Return the microkernels that a problem is solved for: what `choose_register_tile` takes last.

    The default one is before it where it would need few cycles more: what its tiles of caches and
    stores take decides then.

    Examples
    --------
    >>> from tilesolve.kernels.microkernel_costs import Catalogue
    >>> machine = Machine.load("i7-6700k")
    >>> tiles = RegisterTile(2, 6, 6.0, 60.0), RegisterTile(1, 12, 5.9, 20.0)
    >>> measured = machine.replace(catalogues=(Catalogue("float64", 256, 16, tiles),))
    >>> problem = Problem.of("mn-mk-kn", "m=12 n=12 k=16")
    >>> [one.columns for one in list_register_tiles(problem, measured)]
    [12]
    """
    usual, costs = usual_microkernel(problem, machine), machine.costs
    if shared_lane(problem):
        return (lanewise_tile(usual, problem, costs),)
    small = fits_second_cache(problem, machine)
    catalogue = measured_tiles(problem, machine)
    if catalogue is None:
        usual = fit_tile(usual, problem, machine)
        if non_temporal and not problem.aligned_output:
            usual = lengthen_runs(usual, problem, machine)
        return (usual.scale_reading(costs.near_share) if small else usual,)
    slowdown = max(
        machine.cost("in_place_rows_slowdown", problem.dtype),
        machine.cost("in_place_columns_slowdown", problem.dtype),
    )
    in_place = small and slowdown <= IN_PLACE_LIMIT
    cycles = _cycles_of_tiles(
        problem, catalogue.tiles, machine, non_temporal=non_temporal, in_place=in_place
    )
    best = min(cycles, key=cycles.__getitem__)
    group = lanes(problem.dtype, machine.vector_bits)
    taken = [best]
    for tile, count in cycles.items():
        if tile != best and (tile.vectors * group, tile.columns) == (usual.rows, usual.columns):
            if cycles[best] >= (1 - TIME_TOLERANCE) * count:
                taken = [tile]
            elif cycles[best] >= DEFAULT_TILE_SHARE * count:
                taken = [tile, best]
    adds = not non_temporal
    return tuple(_measured(problem, machine, catalogue, tile, adds=adds) for tile in taken)


def microkernel_of(
    problem: Problem, machine: Machine, cells: Mapping[Sides, int], *, adds: bool = True
) -> Microkernel:
    """Return the microkernel that counts for register tiles of given vectors and columns.

    Parameters
    ----------
    problem
        What is computed.
    machine
        With or without a catalogue. What a tile takes that it does not list follows from the
        listed tile that is next to it; without a catalogue all tiles are as fast as the machine.
    cells
        How often each pair of vectors and columns is called.
    adds
        Whether calls may have to add to C.

    Examples
    --------
    >>> machine, problem = Machine.load("i7-6700k"), Problem.of("mn-mk-kn", 512)
    >>> microkernel_of(problem, machine, {(2, 5): 1, (2, 6): 3}).columns
    6
    """
    largest = max(cells)
    group = lanes(problem.dtype, machine.vector_bits)
    catalogue = measured_tiles(problem, machine)
    if catalogue is None:
        usual = usual_microkernel(problem, machine)
        usual = replace(usual, rows=largest[0] * group, columns=largest[1])
        near = fits_second_cache(problem, machine)
        return usual.scale_reading(machine.costs.near_share) if near else usual
    tiles = {sides: tile_like(catalogue, sides) for sides in cells}
    kernel = _measured(problem, machine, catalogue, tiles[largest], adds=adds)
    steps = sum(tiles[sides].step * count for sides, count in cells.items())
    done = sum(sides[0] * sides[1] * count for sides, count in cells.items())
    share = done * tiles[largest].step / (steps * largest[0] * largest[1])
    return replace(kernel, efficiency=kernel.efficiency * share)


def tile_like(catalogue: Catalogue, sides: Sides) -> RegisterTile:
    """Return the register tile of some vectors and columns: as it was measured, or as the next one.

    Examples
    --------
    >>> catalogue = Catalogue("float64", 256, 16, (RegisterTile(2, 4, 4.0, 20.0),))
    >>> tile_like(catalogue, (2, 6))
    RegisterTile(vectors=2, columns=6, step=6.0, call=20.0)
    """

    def distance(tile: RegisterTile) -> tuple[int, int]:
        return abs(tile.vectors - sides[0]), abs(tile.columns - sides[1])

    near = min(catalogue.tiles, key=distance)
    share = sides[0] * sides[1] / (near.vectors * near.columns)
    return replace(near, vectors=sides[0], columns=sides[1], step=near.step * share)


def _measured(
    problem: Problem, machine: Machine, catalogue: Catalogue, tile: RegisterTile, *, adds: bool
) -> Microkernel:
    """Return a tile of a catalogue as plans for a problem count with it."""
    kernel = measured_microkernel(machine, catalogue, tile, adds=adds)
    kernel = replace(kernel, efficiency=kernel.efficiency * _reached(catalogue, machine))
    near = fits_second_cache(problem, machine)
    return kernel.scale_reading(machine.costs.near_share) if near else kernel


def stores_alias(
    problem: Problem, machine: Machine, strides: Mapping[str, int], sides: Mapping[str, int]
) -> bool:
    """Return whether a box of C goes through the caches as its lines alias modulo 4 KiB.

    On some CPUs a non-temporal store waits for another one under way to the same place in its page.

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
    >>> problem, sides = Problem.of("mn-mk-kn", 512), {"m": 6, "n": 8}
    >>> stores_alias(problem, Machine.load("i7-6700k"), problem.strides(0), sides)
    False
    """
    return machine.avoids_aliased_stores(problem.dtype) and has_aliased_lines(
        strides, sides, machine.memory.line
    )


def fits_second_cache(problem: Problem, machine: Machine) -> bool:
    """Return whether the second cache holds all tensors: they mostly are there before a call.

    Where there is one cache only, that one counts.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> [fits_second_cache(Problem.of("mn-mk-kn", size), machine) for size in (64, 512)]
    [True, False]
    """
    near = machine.second_cache or machine.first_cache
    return near is not None and sum(problem.bytes) <= (near.usable or 0)


def _reached(catalogue: Catalogue, machine: Machine) -> float:
    """Return the share of the machine's peak that the fastest tile reaches.

    The peak is that of FMAs alone. Microkernels also load what they multiply, and not every CPU
    starts as many FMAs beside these loads.
    """
    peak = machine.peak(catalogue.dtype)
    least = product_cycles(catalogue.dtype, catalogue.bits, machine.frequency, peak)
    return min(1.0, least / catalogue.rate)


def _cycles_of_tiles(
    problem: Problem,
    tiles: Sequence[RegisterTile],
    machine: Machine,
    *,
    non_temporal: bool,
    in_place: bool,
) -> dict[RegisterTile, float]:
    """Return for each register tile the cycles of all calls and of packing the columns.

    Where rows pass by, no step takes less than the second cache takes to bring them. Of a register
    box's last columns whole groups are packed. Operands that are read in place come from the second
    cache for each register box of the other operand. Non-temporal stores have costs of their own,
    see `_writing_cycles`.
    """
    shape = Shape.of(problem, [(tile.vectors, tile.columns) for tile in tiles], machine)
    costs = machine.costs
    repeats = max(1.0, shape.sums / MOST_CALL_PRODUCTS)
    together = panel_columns(problem.dtype, machine.vector_registers)
    nearest = (machine.first_cache.usable or 0) if machine.first_cache else 0
    second = machine.second_cache or machine.memory
    fed = problem.sum_itemsize * FEEDING_RATIO * machine.frequency
    fed = fed / (second.read or second.bandwidth)
    all_rows = prod(max(1, problem.sizes[i]) for i in shape.rows)
    steps_of = {(tile.vectors, tile.columns): tile.step for tile in tiles}
    writing = _writing_cycles(problem, shape, steps_of, machine) if non_temporal else {}
    again = in_place and sum(problem.bytes[1:]) > nearest
    found = {}
    for tile in tiles:
        high, wide = shape.high[tile.vectors], shape.wide[tile.columns]
        calls = high.boxes * wide.boxes
        packed = wide.boxes * ceil(wide.total / wide.boxes / together) * together
        sides = tile.vectors * lanes(problem.dtype, machine.vector_bits), tile.columns
        passing = min(PASSING_TILES * sides[0], all_rows) + sides[1]
        steps = _steps(tile, high, wide, steps_of)
        if passing * shape.sums * problem.sum_itemsize > nearest:
            filled = high.total * wide.total / (tile.vectors * tile.columns)
            steps = max(steps, filled * fed * sum(sides))
        cycles = shape.sums * steps + calls * repeats * (tile.call + costs.tile_cycles)
        cycles += shape.sums * packed * costs.pack_cycles
        if again:
            read = wide.boxes * all_rows * fed + high.boxes * wide.total * costs.broadcast_cycles
            cycles += shape.sums * read
        for part in writing.get((tile.vectors, tile.columns), ()):
            cycles += part
        found[tile] = cycles
    return found


def _writing_cycles(
    problem: Problem, shape: Shape, tiles: Iterable[tuple[int, int]], machine: Machine
) -> dict[tuple[int, int], tuple[float, float, float]]:
    """Return for vectors and columns of a tile three costs that come with non-temporal stores.

    All sums are in the nearest tile then. The costs are: what is lost at the ends of the runs that
    a call writes; packing lines that cannot be prefetched, as not even those of a register box stay
    in the second cache; and transposing rows while they are packed.
    """
    costs, memory = machine.costs, machine.memory
    written = problem.bytes[0] / (memory.stream or memory.bandwidth)
    late = {
        (side, count): _late_lines(problem, cut.sides, machine)
        for side, cuts in enumerate((shape.high, shape.wide))
        for count, cut in cuts.items()
    }
    transposed = _transposed_elements(problem, shape)
    return {
        (vectors, columns): (
            _waste(problem, {**high.sides, **wide.sides}, machine) * written * machine.frequency,
            costs.late_line_cycles * (late[0, vectors] + late[1, columns]),
            costs.transposed_pack_cycles * transposed * (vectors - (wide.boxes == 1)),
        )
        for vectors, columns in tiles
        for high, wide in [(shape.high[vectors], shape.wide[columns])]
    }


def _transposed_elements(problem: Problem, shape: Shape) -> float:
    """Return how many elements of rows are packed by transposing blocks of rows.

    That is so where their operand is contiguous along rows other than those of a vector.
    """
    others = set(shape.rows) - set(shape.lane)
    for number, operand in enumerate(problem.spec.operands, start=1):
        unit = operand.subscripts[-1] if operand.subscripts else None
        of_lane = set(shape.lane) & set(operand.letters)
        if of_lane and unit and unit.plain and unit.letters[0] in others:
            return problem.bytes[number] / problem.itemsize
    return 0.0


def _late_lines(problem: Problem, sides: Mapping[str, int], machine: Machine) -> float:
    """Return how many lines are packed that cannot be prefetched, whatever the tiles are.

    Only operands count that have some of the letters that a register box has these sides along.
    """
    output = problem.spec.output.letters
    packed = {i: sides.get(i, 1) if i in output else n for i, n in problem.sizes.items()}
    return sum(
        problem.bytes[number] / machine.memory.line
        for number, operand in enumerate(problem.spec.operands, start=1)
        if set(operand.letters) & set(sides) and is_packed_late(problem, number, packed, machine)
    )


def _steps(
    tile: RegisterTile, rows: Cut, columns: Cut, steps_of: Mapping[tuple[int, int], float]
) -> float:
    """Return the cycles of one step of all calls: boxes are near-equal, smaller ones less fast.

    A tile that was not measured takes its share of the given one's time.
    """

    def boxes(cut: Cut) -> list[tuple[int, float]]:
        low = int(cut.total / cut.boxes)
        more = cut.total - low * cut.boxes
        return [(low, cut.boxes - more), (low + 1, more)]

    whole = tile.vectors * tile.columns
    return sum(
        above * beside * steps_of.get((high, wide), tile.step * high * wide / whole)
        for high, above in boxes(rows)
        for wide, beside in boxes(columns)
        if high and wide
    )


def _waste(problem: Problem, sides: Mapping[str, int], machine: Machine) -> float:
    """Return the bytes that non-temporal stores of boxes of C move in vain, per byte of C.

    Where aliased stores slow each other down, such boxes go through the caches, and are read
    before; other boxes cost nothing there but for parts of lines. What a longer run has of its last
    line, the next call completes.
    """
    strides, line = problem.strides(0), machine.memory.line
    if machine.avoids_aliased_stores(problem.dtype):
        size = prod(sides.values()) * problem.itemsize
        run = size / runs_of(strides, sides, problem.itemsize)
        return max(0.0, line / run - 1) + stores_alias(problem, machine, strides, sides)
    run = run_of(problem, problem.spec.output, sides)
    return float(run_waste(run, line, problem.itemsize))
