"""How each statement of a nest is run, and why: strategies yield solutions, one for a route."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol

import numpy as np

from tilesolve.constants.nests import (
    NEST_BLOCK_KINDS,
    NEST_COMPARED_FLOPS,
    NEST_CROSSED_BYTES,
    NEST_LOOPS_GAIN,
)
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.contraction import Contraction, find_contraction
from tilesolve.contractions.statements.terms import Reduce
from tilesolve.nests.blocks import make_blocks, make_box
from tilesolve.nests.classify import NestClass, find_channels, find_move, tile_class
from tilesolve.nests.complex_operands import convert_operands
from tilesolve.nests.factors import yield_factored
from tilesolve.nests.loop_choice import choose_loops
from tilesolve.nests.narrow_sums import count_in_reals, sum_narrowly
from tilesolve.nests.price import region_share
from tilesolve.nests.request import NestRequest, Route
from tilesolve.nests.solutions import (
    BlockSolution,
    ContractionSolution,
    LoopSolution,
    MoveSolution,
    NestSolution,
)
from tilesolve.nests.solved import SolvedNest, add_seconds
from tilesolve.nests.split import (
    split_functions,
    split_parts,
    split_scans,
    split_searches,
    split_sums,
)
from tilesolve.system.first_use import tell_of_planning


def solve_nest(request: NestRequest) -> SolvedNest:
    """Decide how each statement of a computation is run.

    Statements with sums inside larger terms become several, unless they are contractions as a
    whole.

    Raises
    ------
    PlanError
        If a statement cannot take the route.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> found = bind_stages(parse_stages("m[y,x] = A[x,y] & B[y,x]"), 512, "int32")
    >>> (solution,) = solve_nest(NestRequest(found, Machine.load("i7-6700k"))).solutions
    >>> solution.kind.name, solution.route, solution.tiles
    ('SPATIAL', 'nest', {'x': 256, 'y': 512})
    """
    whole = request.computation
    found: list[NestSolution] = []
    with tell_of_planning():
        for stage in whole.stages:
            found += solve_statement(request.of(whole, stage))
    return SolvedNest(request, tuple(found))


def solve_statement(request: NestRequest) -> tuple[NestSolution, ...]:
    """Return what computes a statement, which may become several."""
    return tuple(found for part in _list_parts(request) for found in _solve(part))


def _list_parts(request: NestRequest) -> Iterator[NestRequest]:
    """Yield the statements that one becomes before it is decided how they are run."""
    alone = [request]
    parts_of = partial(split_parts, least_flops=request.least_flops)
    for split in (split_scans, split_searches, parts_of):
        parts: list[NestRequest] = []
        for one in alone:
            found = split(one.computation)
            whole = found is one.computation
            parts += [one] if whole else [one.of(found, part) for part in found.stages]
        alone = parts
    yield from alone


class NestStrategy(Protocol):
    """What finds solutions of a statement by one route."""

    def __call__(self, request: NestRequest) -> Iterable[NestSolution]:
        """Yield solutions that compute a statement one after another; none if another is better.

        Raises
        ------
        PlanError
            If the route is asked for, and the statement cannot take it.
        """
        ...


def _solve(request: NestRequest) -> tuple[NestSolution, ...]:
    """Return what computes a statement, which may become several with fewer products."""
    wanted = "nest" if request.mode != "default" else request.route
    if letter := request.statement.sequence:
        if wanted not in (None, "nest"):
            raise PlanError(f"{request.statement} runs in the order of {letter}, by a nest alone")
        wanted = "nest"
    found = _solve_by_route(request, wanted)
    if wanted is None:  # fewer products may take less, and functions side by side
        split = split_functions(request.computation)
        parts = (
            tuple(x for one in several.stages for x in _solve(request.of(several, one)))
            for several in (*yield_factored(request.computation), *filter(None, (split,)))
        )
        found = min([found, *parts], key=add_seconds)
    return found


def _solve_by_route(request: NestRequest, wanted: Route | None) -> tuple[NestSolution, ...]:
    """Return what computes a statement as it is: by the first route that has something for it."""
    for route, solutions in STRATEGIES.items():
        if wanted in (None, route) and (found := tuple(solutions(request))):
            return found
    return ()


def solve_contraction(request: NestRequest) -> Iterator[NestSolution]:
    """Yield a statement as a contraction that is large enough, or asked for; a region in blocks.

    What counts comparisons is one that is cast in the end; where complex operands are conjugated or
    converted, that comes before.
    """
    stage, computation = request.statement, request.computation
    contraction, reason = find_contraction(stage, computation.dtypes)
    if stage.where and not computation.points(stage):
        contraction, reason = None, "there is nothing to compute"
    asked = request.route == "contraction"
    parts = None if contraction else count_in_reals(computation) or convert_operands(computation)
    if parts is not None:
        pieces = [_prefer_contraction(request.of(parts, one)) for one in parts.stages]
        yield from pieces if any(one.route == "contraction" for one in pieces) else ()
        return
    if contraction is None:
        if asked:
            raise PlanError(f"{stage} is no contraction: {reason}")
        return
    flops = contraction.flops(computation, computation.output.dtype) * region_share(
        stage, computation.sizes
    )
    compared = flops < request.least_flops or not contraction.multiplies
    least = request.least_flops if stage.where else min(NEST_COMPARED_FLOPS, request.least_flops)
    if not asked and (flops < least or not contraction.reuses):
        return
    why = f"it is the contraction {contraction} of {int(flops):,} operations"
    if stage.where and not contraction.is_plain:
        yield make_box(request, why)
    elif stage.where:
        yield from _solve_region(request, contraction, why)
    else:
        found = ContractionSolution.of(request, why)
        if asked or not compared or found.score < sum(one.score for one in plan_loops(request)):
            yield found


def _prefer_contraction(request: NestRequest) -> NestSolution:
    """Return a statement as a contraction where it is one, else as loops."""
    sums = any(isinstance(one, Reduce) for one in request.statement.term.all)
    found = next(iter(solve_contraction(request)), None) if sums else None
    return found or choose_loops(request)


def _solve_region(
    request: NestRequest, contraction: Contraction, why: str
) -> Iterator[BlockSolution]:
    """Yield a contraction in a region as blocks, unless loops are better and not refused."""
    found = make_blocks(request, contraction, why, plan_loops)
    if request.route != "contraction":
        if len(found.kinds) > NEST_BLOCK_KINDS:
            return
        if found.score > NEST_LOOPS_GAIN * sum(one.score for one in plan_loops(request)):
            return
    yield found


def solve_move(request: NestRequest) -> Iterator[MoveSolution]:
    """Yield a statement as a transpose, if it moves an array as it is.

    Channels of pixels are left to loops, unless a transpose is asked for, and so are words that are
    read across lines where loops take less time.
    """
    what, asked = (request.statement, request.computation), request.route == "transpose"
    if asked or (find_move(*what) and not find_channels(*what)):
        found, output = MoveSolution.of(request), request.computation.output
        words = np.dtype(output.dtype).itemsize >= NEST_CROSSED_BYTES
        compared = words and tile_class(request.statement) is NestClass.SPATIAL
        if asked or not compared or found.score < choose_loops(request).score:
            yield found


def solve_loops(request: NestRequest) -> Iterator[NestSolution]:
    """Yield a statement as generated loops; sums inside of terms are statements of their own."""
    parts = split_sums(request.computation)
    narrow = sum_narrowly(request.computation) if request.mode == "default" else None
    if narrow is not None:
        yield from (choose_loops(request.of(narrow, stage)) for stage in narrow.stages)
        return
    if len(parts.stages) == 1:
        yield choose_loops(request)
        return
    for stage in parts.stages:
        yield from _solve(request.of(parts, stage))


STRATEGIES: Mapping[Route, NestStrategy] = {
    "contraction": solve_contraction,
    "transpose": solve_move,
    "nest": solve_loops,
}
"""What finds solutions by a route, in the order in which they are asked."""


def plan_loops(request: NestRequest) -> tuple[LoopSolution, ...]:
    """Return a computation as loops alone, which no plan computes a part of."""
    parts = split_sums(request.computation)
    return tuple(choose_loops(request.of(parts, stage)) for stage in parts.stages)
