"""What runs for arrays of given strides: decided here, obeyed by `tilesolve.running`.

A solution is found for contiguous arrays. Others may have to be packed, prefetched and written in
another way. `policy_of` decides that from the solution and the strides alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import COLUMNS, ROWS, Roles, shared_lane
from tilesolve.machine.model import Machine
from tilesolve.model.nest import Nest
from tilesolve.planning.prefetch import should_prefetch
from tilesolve.planning.register_tile import fits_second_cache, stores_alias
from tilesolve.planning.runner import Runner, rows_operand
from tilesolve.planning.solution import Solution

Strides = Mapping[str, int]
"""Bytes from one index of a letter to the next one in an array."""


@dataclass(frozen=True, slots=True, eq=False)
class LayoutPolicy:
    """How one thread's part of a solution is run for arrays of given strides.

    Pairs are of the rows' operand and the columns' operand.

    Parameters
    ----------
    rows_operand
        The operand that has the rows: 0 or 1.
    strides
        Of C, of the rows' operand and of the columns' operand, as letters are walked.
    last
        Letters that are walked from their last index to their first, and that index.
    runner
        The letters' roles, and what else decides how nests are run.
    nest
        Loops and tiles as they are run: the solution's, unless these strides need others.
    packed
        The number of the band whose tile has the operand's micro-panels; 0: read without them.
    windows
        Whether the operand has a window copy of each box, which is read, or packed, in its place.
        Vectors that multiply vectors have one of what is not contiguous along them.
    prepared
        Whether the operand's micro-panels were made before.
    top
        The number of the band whose tile is tabulated at once.
    non_temporal
        Whether C is written by non-temporal stores where its place allows that.
    stages_output
        Whether C that is not in whole lines is collected in a staging buffer for these stores.
    prefetches_next_rows
        Whether microkernels prefetch the next rows before they write C.
    prefetched
        Whether the operand's lines are prefetched before it is packed.
    near_copy_bytes
        Copies of more bytes than that are prefetched to the nearest cache before they are used.
    """

    rows_operand: int
    strides: tuple[Strides, Strides, Strides]
    last: Mapping[str, int]
    runner: Runner
    nest: Nest
    packed: tuple[int, int]
    windows: tuple[bool, bool]
    prepared: tuple[bool, bool]
    top: int
    non_temporal: bool
    stages_output: bool
    prefetches_next_rows: bool
    prefetched: tuple[bool, bool]
    near_copy_bytes: float

    @property
    def roles(self) -> Roles:
        """The letters of each role."""
        return self.runner.roles

    @property
    def mixes(self) -> bool:
        """Whether kernels may read rows from micro-panels and columns in place."""
        return self.packed[ROWS] > 0 and (self.windows[COLUMNS] or self.prepared[ROWS])

    @property
    def reads_panels(self) -> bool:
        """Whether kernels read micro-panels: of both operands, or of rows alone."""
        return all(self.packed) or self.mixes


def policy_of(
    solution: Solution,
    part: Problem,
    strides: Sequence[Strides],
    prepared: Collection[int] = (),
) -> LayoutPolicy:
    """Return how a thread's part of a solution with two operands is run.

    Parameters
    ----------
    solution
        What was found.
    part
        What the thread computes, see `Solution.parts`.
    strides
        Of the output, the first and the second operand.
    prepared
        The numbers of operands with prepared copies.
    """
    machine, dtype, half = solution.machine, part.dtype, is_half(part.dtype)
    streams = solution.output == "stream" and not half
    first, lane = rows_operand(solution.share), shared_lane(part)
    given = strides[0], strides[1 + first], strides[2 - first]
    last = {i: at for i, at in _reversed_letters(part, given).items() if i != lane}
    output, rows, columns = (
        {letter: -step if letter in last else step for letter, step in of.items()} for of in given
    )
    levels = solution.nest.packed or (None, None)
    copies = tuple(None if at in prepared else levels[at] for at in (first, 1 - first))
    windows = tuple(
        _has_windows(solution, at) or bool(lane and steps.get(lane, 0) != part.itemsize)
        for at, steps in ((first, rows), (1 - first, columns))
    )
    # Prepared copies are micro-panels, which vectors that multiply vectors do not read.
    ready = first in prepared and not lane, 1 - first in prepared and not lane
    runner = Runner.of(part, machine, Roles.of_problem(part, rows=first))
    in_order = windows[first], windows[1 - first]
    nest = runner.form(solution.nest, copies, in_order)
    top = runner.top(nest, copies, in_order)
    names = [band.level for band in nest.bands]
    wanted = [names.index(copy) if copy else 0 for copy in copies]
    kinds = solution.nest.kind(first), solution.nest.kind(1 - first)
    # Only whole vectors of rows can be read in place; others are packed into the nearest tile.
    whole = not windows[ROWS] and _has_whole_vectors(part, runner, nest, output, rows)
    packed = (
        top if ready[ROWS] else wanted[ROWS] * (kinds[ROWS] != "windows") or int(not whole),
        top if ready[COLUMNS] else wanted[COLUMNS] * (kinds[COLUMNS] != "windows"),
    )
    if lane:
        packed = 0, 0
    elif half:  # kernels read what is packed alone
        packed = packed[ROWS] or wanted[ROWS] or 1, packed[COLUMNS] or wanted[COLUMNS] or 1
    cell = dict(solution.nest.bands[0].box)
    return LayoutPolicy(
        rows_operand=first,
        strides=(output, rows, columns),
        last=last,
        runner=runner,
        nest=nest,
        packed=packed,
        windows=(windows[ROWS], windows[COLUMNS]),
        prepared=ready,
        top=top,
        non_temporal=streams and not stores_alias(part, machine, output, cell),
        stages_output=not half,
        prefetches_next_rows=machine.prefetches_next_rows(dtype),
        prefetched=(False, False)
        if any(windows) or any(ready)
        else _prefetched(part, nest, packed, (rows, columns), machine),
        near_copy_bytes=_near_copy_bytes(machine),
    )


def _has_windows(solution: Solution, at: int) -> bool:
    """Return whether an operand has window copies: also where zeros are packed with it."""
    padded = any(one.tensor == at + 1 for one in solution.problem.padding)
    return padded or solution.nest.kind(at) == "windows"


def contiguous_letter(problem: Problem, strides: Strides) -> str | None:
    """Return the letter along which an array is contiguous."""
    return next(
        (
            letter
            for letter, step in strides.items()
            if step == problem.itemsize and problem.sizes[letter] > 1
        ),
        None,
    )


def letter_of_row_vectors(problem: Problem, roles: Roles, output: Strides) -> str | None:
    """Return the letter that vectors of rows run along: C's contiguous one if it is one of rows."""
    rows = [letter for letter in roles.rows if problem.sizes[letter] > 1]
    preferred = (contiguous_letter(problem, output), problem.vector, *rows)
    return next((letter for letter in preferred if letter in rows), None)


def _reversed_letters(problem: Problem, strides: Sequence[Strides]) -> dict[str, int]:
    """Return the letters that are walked from their last index, and that index.

    They are contiguous backwards in the first tensor that has them side by side: what is contiguous
    is packed in vectors, all else element by element.
    """
    found = {}
    for letter, extent in problem.sizes.items():
        steps = (of.get(letter, 0) for of in strides)
        side_by_side = next((step for step in steps if abs(step) == problem.itemsize), 0)
        if extent > 1 and side_by_side < 0:
            found[letter] = extent - 1
    return found


def _has_whole_vectors(
    problem: Problem, runner: Runner, nest: Nest, output: Strides, rows: Strides
) -> bool:
    """Return whether all tiles of the rows' operand are whole vectors of contiguous elements."""
    letter = letter_of_row_vectors(problem, runner.roles, output)
    if letter is None or rows.get(letter) != problem.itemsize:
        return False
    sides = {problem.sizes[letter], *(band[letter] for band in nest.bands)}
    return all(side % runner.lanes == 0 for side in sides)


def _prefetched(
    problem: Problem,
    nest: Nest,
    packed: tuple[int, int],
    strides: tuple[Strides, Strides],
    machine: Machine,
) -> tuple[bool, bool]:
    """Return for each operand whether its lines are prefetched before it is packed.

    Kernels that read in place prefetch nothing, and what fits the second cache needs no prefetch.
    """
    if not all(packed) or fits_second_cache(problem, machine):
        return False, False
    boxes = (dict(nest.bands[level].box) for level in packed)
    rows, columns = (
        should_prefetch(of, Problem.of(problem.spec, box, problem.dtype), machine)
        for of, box in zip(strides, boxes, strict=True)
    )
    return rows, columns


def _near_copy_bytes(machine: Machine) -> float:
    """Return the bytes of a copy up to which its micro-panels stay in the second cache."""
    near = machine.second_cache or machine.first_cache
    return machine.costs.kept_share * (near.usable or 0) if near else inf
