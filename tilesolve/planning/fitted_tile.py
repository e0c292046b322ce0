"""Register tiles that were not measured: for a problem's extents, and of vectors by vectors."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from tilesolve.constants.policy import (
    ACCUMULATORS_GAIN,
    LEAST_ACCUMULATORS_SHARE,
    MOST_DEFAULT_COLUMNS,
)
from tilesolve.constants.tuning import MIN_STAGED_RUN_BYTES
from tilesolve.contractions.pairing import Pairing
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import lane_is_last
from tilesolve.kernels.dtypes import lanes, register_tiles
from tilesolve.kernels.microkernel_costs import Catalogue
from tilesolve.machine.costs import Costs
from tilesolve.machine.microkernel import Microkernel, default_microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.lines import run_of
from tilesolve.planning.register_cuts import Shape


def fit_tile(usual: Microkernel, problem: Problem, machine: Machine) -> Microkernel:
    """Return the default tile, or another one, if its near-equal parts have more accumulators.

    Four vectors of rows are two tiles of two, or one of four: the default's two have too few
    accumulators to keep FMAs busy. That holds for layers, whose operands are windows or prepared,
    and whose rows are whole vectors of one letter. Other contractions wait for other things.

    Examples
    --------
    >>> from tilesolve.machine.microkernel import default_microkernel
    >>> machine = Machine.load("e5-2680v4")
    >>> usual = default_microkernel(machine, "float64")
    >>> for rows in (4, 8, 12, 16):
    ...     sizes = {"m": 99, "n": rows, "k": 9}
    ...     layer = Problem.of("mn-mk-kn", sizes, constant=(2,))
    ...     found = fit_tile(usual, layer, machine)
    ...     print(found.rows, found.columns)
    4 12
    8 6
    12 4
    8 6
    """
    fused, group = fuse(problem), lanes(problem.dtype, machine.vector_bits)
    rows = fused.letters(fused.rows) if fused.rows else ()
    windows = any(not s.plain for operand in problem.spec.operands for s in operand.subscripts)
    whole_vectors = len(rows) == 1 and problem.sizes[rows[0]] % group == 0
    if not whole_vectors or not (windows or problem.constant):
        return usual

    def extent(index: str | None) -> int:
        return prod(max(1, problem.sizes[i]) for i in fused.letters(index)) if index else 1

    vectors, columns = ceil(extent(fused.rows) / group), extent(fused.columns)

    def accumulators(tile: tuple[int, int]) -> float:
        """Return how many a near-equal part of the problem has in the mean."""
        high, wide = tile
        return vectors / ceil(vectors / high) * columns / ceil(columns / wide)

    default = usual.rows // group, usual.columns
    whole = default[0] * default[1]
    widest = dict(register_tiles(problem.dtype, machine.vector_registers))
    fitting = (
        (high, min(wide, whole // high, MOST_DEFAULT_COLUMNS))
        for high, wide in widest.items()
        if whole >= high
    )
    best = max(fitting, key=accumulators, default=default)
    if accumulators(best) <= (1 + ACCUMULATORS_GAIN) * accumulators(default):
        return usual
    return replace(usual, rows=best[0] * group, columns=best[1])


def lengthen_runs(usual: Microkernel, problem: Problem, machine: Machine) -> Microkernel:
    """Return the default tile, or one of fewer vectors whose calls write C in long runs.

    Three vectors of rows along a letter of two are pieces of a line each, which begins amid a line:
    other calls complete them, much later. Two vectors cover that letter, and go on into the next.
    """
    group = lanes(problem.dtype, machine.vector_bits)
    most = usual.rows // group
    least = ceil(LEAST_ACCUMULATORS_SHARE * most)
    tiles = [(vectors, usual.columns) for vectors in range(most, least - 1, -1)]
    shape = Shape.of(problem, tiles, machine)
    for vectors, columns in tiles:
        sides = {**shape.high[vectors].sides, **shape.wide[columns].sides}
        if run_of(problem, problem.spec.output, sides) >= MIN_STAGED_RUN_BYTES:
            return replace(usual, rows=vectors * group)
    return usual


def lanewise_tile(usual: Microkernel, problem: Problem, costs: Costs) -> Microkernel:
    """Return the default tile with what it costs where vectors multiply vectors.

    What does not end with the vectors' letter is copied an element at a time.
    """
    in_order = all(lane_is_last(problem, tensor) for tensor in (1, 2))
    return replace(
        usual,
        efficiency=usual.efficiency / costs.lanewise_slowdown,
        window_cycles=costs.window_cycles if in_order else costs.scattered_store_cycles,
        in_place_rows_cycles=0.0,
        in_place_columns_cycles=0.0,
        in_place_rows_slowdown=1.0,
        in_place_columns_slowdown=1.0,
    )


def usual_microkernel(problem: Problem, machine: Machine) -> Microkernel:
    """Return the default microkernel at the rate of a problem's pairs."""
    usual = default_microkernel(machine, problem.dtype)
    if problem.pairing is None:
        return usual
    return replace(usual, efficiency=usual.efficiency / _fmas(problem.pairing, machine))


def measured_tiles(problem: Problem, machine: Machine) -> Catalogue | None:
    """Return the measured microkernels, with steps as long as a problem's pairs take."""
    catalogue = machine.catalogue(problem.dtype)
    if catalogue is None or problem.pairing is None:
        return catalogue
    return catalogue.faster(1 / _fmas(problem.pairing, machine))


def _fmas(pairing: Pairing, machine: Machine) -> float:
    """Return as many FMAs as a pair takes as long as: no less than one."""
    return max(pairing.instructions * machine.costs.operation_share, 1.0)
