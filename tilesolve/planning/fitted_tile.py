"""The register tile of a problem with few rows, where none was measured."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes, register_tiles
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.planning.policy import MOST_DEFAULT_COLUMNS


def fit_rows(usual: Microkernel, problem: Problem, machine: Machine) -> Microkernel:
    """Return the default tile, or one with all rows of the problem, if that has more accumulators.

    Near-equal tiles of four vectors are two of two, which have too few columns to keep FMAs busy.

    Examples
    --------
    >>> from tilesolve.machine.microkernel import default_microkernel
    >>> machine = Machine.load("e5-2680v4")
    >>> usual = default_microkernel(machine, "float64")
    >>> for rows in (4, 8, 12, 16):
    ...     found = fit_rows(usual, Problem.of("mn-mk-kn", {"m": 99, "n": rows, "k": 9}), machine)
    ...     print(found.rows, found.columns)
    4 12
    8 6
    12 4
    8 6
    """
    fused, group = fuse(problem), lanes(problem.dtype, machine.vector_bits)
    rows = prod(problem.sizes[i] for i in fused.letters(fused.rows)) if fused.rows else 1
    vectors, most = ceil(max(1, rows) / group), usual.rows // group
    tiles = register_tiles(problem.dtype, min(machine.vector_registers, 32))
    columns = max((wide for high, wide in tiles if high == vectors), default=0)
    columns = min(columns, MOST_DEFAULT_COLUMNS)
    if vectors * columns <= usual.columns * vectors / ceil(vectors / most):
        return usual
    return replace(usual, rows=vectors * group, columns=columns)
