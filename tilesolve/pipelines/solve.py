"""Solving for pipelines: which stages run together, in which tiles, and how each other one runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from tilesolve.constants.nests import (
    PIPELINE_INLINED_ROWS,
    PIPELINE_INLINED_STAGES,
    PIPELINE_LAST_CACHES,
)
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.nests.classify import is_written_once
from tilesolve.nests.cuts import cut_stage
from tilesolve.nests.loop_choice import choose_rows
from tilesolve.nests.planning import solve_nest, solve_statement
from tilesolve.nests.regions import find_regions
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import FusedSolution, LoopSolution, NestSolution
from tilesolve.nests.solved import SolvedNest
from tilesolve.pipelines.bands import choose_bands, list_chains
from tilesolve.pipelines.epilogues import take_epilogues
from tilesolve.pipelines.grouping import Graph, Names, best_cuts, pays, split
from tilesolve.pipelines.simplify import find_costly, simplify
from tilesolve.pipelines.tiling import fits, list_groupings
from tilesolve.system.first_use import tell_of_planning


def solve_pipeline(request: NestRequest) -> SolvedNest:
    """Decide how the stages of a computation run: in groups that share tiles, or by themselves.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> text = "b[y,x] = exp(I[y,x] + I[y,x+1])" + chr(10) + "o[u,v] = b[u,v] + b[u+1,v] + b[u+2,v]"
    >>> sizes = {"y": 1026, "x": 1024, "u": 1024, "v": 1024}
    >>> found = bind_stages(parse_stages(text), sizes, "float32")
    >>> (solution,) = solve_pipeline(NestRequest(found, Machine.load("i7-6700k"))).solutions
    >>> solution.placed["b"].ring[1].name
    'u_4'
    """
    if request.fusion == "root" or len(request.computation.stages) == 1:
        return solve_nest(request)
    whole = request.computation
    found: list[NestSolution] = []
    with tell_of_planning():
        for run in _list_runs(whole.stages):
            part = request.of(whole, *run)
            found += (
                _solve_run(part, _pinned(whole, run)) if len(run) > 1 else solve_statement(part)
            )
    return SolvedNest(request, tuple(found))


def _solve_run(request: NestRequest, pinned: frozenset[str]) -> Sequence[NestSolution]:
    """Return what computes stages with arrays of their own, some of which others need.

    What takes long to compute and is read by several is computed by each; of few stages, also once.
    """
    computation, everything = request.computation, request.fusion == "inline"
    alone, costly = Graph.of(request, pinned).alone, find_costly(computation, pinned)
    simple = simplify(computation, alone, pinned, everything=everything, gone=costly)
    found = _solve_simple(request, simple, pinned)
    few = len(computation.stages) <= PIPELINE_INLINED_STAGES
    if everything or not costly or not few or request.mode != "default":
        return found
    kept = _solve_simple(request, simplify(computation, alone, pinned), pinned)
    cost, other = (sum(one.score for one in several) for several in (found, kept))
    return found if pays(cost, other) else kept


def _solve_simple(
    request: NestRequest, computation: Computation, pinned: frozenset[str]
) -> tuple[NestSolution, ...]:
    """Return what computes the stages that are left of a run."""
    if request.mode == "default" and request.route is None:
        computation = take_epilogues(computation, pinned)
    return tuple(_Solver(Graph.of(replace(request, computation=computation), pinned)).solve())


def _list_runs(stages: Sequence[Stage]) -> Iterator[tuple[Stage, ...]]:
    """Yield stages that follow one another; those that compute parts of an array by themselves.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> parts = "a[i] = x[i], b[i] = a[i], o[i] = b[i], o[i] = o[i] + a[i]".replace(", ", chr(10))
    >>> [len(run) for run in _list_runs(parse_stages(parts))]
    [2, 1, 1]
    """
    times = Counter(stage.name for stage in stages)
    for several, group in groupby(stages, lambda one: times[one.name] > 1):
        run = tuple(group)
        yield from ((one,) for one in run) if several else (run,)


def _pinned(computation: Computation, run: Sequence[Stage]) -> frozenset[str]:
    """Return the stages of a run that others read, or that are results."""
    others = [one for one in computation.stages if one not in run]
    needed = {read.array for one in others for read in one.reads}.union(computation.outputs)
    return frozenset(one.name for one in run if one.name in needed)


@dataclass(frozen=True, slots=True)
class _Solver:
    """Finds groups, and keeps what was found for each."""

    graph: Graph
    known: dict[Names, tuple[NestSolution, ...]] = field(default_factory=dict)

    def solve(self) -> Iterator[NestSolution]:
        """Yield what computes all stages."""
        names = tuple(self.graph.stages)
        if self.graph.request.division == "best":
            groups = best_cuts(self.graph, names, self.fits, self.price)
        else:
            groups = [one for names in self.graph.fuse(names) for one in self.divide(names)]
        for chain in list_chains(self.graph, self.graph.in_order(groups)):
            yield from self._solve_chain(chain)

    def _solve_chain(self, groups: Sequence[Names]) -> Sequence[NestSolution]:
        """Return what computes groups: in bands, or one after another if that is better."""
        apart = [one for group in groups for one in self.of(group)]
        request = self.graph.request
        if len(groups) == 1 or request.mode != "default" or request.fusion != "slide":
            return apart
        part = self.graph.part(name for group in groups for name in group)
        banded = choose_bands(part, groups, solve_part)
        if banded is None or banded.score >= sum(one.score for one in apart):
            return apart
        return [banded]

    def divide(self, names: Names) -> list[Names]:
        """Return a group, or several if the last cache would not hold what it keeps."""
        if self.fits(names, PIPELINE_LAST_CACHES):
            return [names]
        return split(self.graph, names, self.fits, self.price)

    def fits(self, names: Names, caches: float = 1.0) -> bool:
        """Return whether so many last caches hold what a group keeps."""
        request = self.graph.part(names)
        return len(names) == 1 or fits(request, find_regions(request.computation), caches)

    def price(self, names: Names) -> float:
        """Return what a group costs."""
        return sum(one.score for one in self.of(names))

    def of(self, names: Names) -> tuple[NestSolution, ...]:
        """Return what computes a group: together, or one after another if that is better."""
        if names not in self.known:
            self.known[names] = tuple(self._find(names))
        return self.known[names]

    def _find(self, names: Names) -> Iterable[NestSolution]:
        if len(names) == 1:
            return solve_statement(self.graph.part(names))
        request = self.graph.part(names)
        together = fuse_group(request)
        if together is not None and (request.mode == "thesis" or request.fusion == "overlap"):
            return (together,)
        apart = [one for name in names for one in self.of((name,))]
        found, cost = list[NestSolution](apart), sum(one.score for one in apart)
        if together is not None and pays(together.score, cost):
            found, cost = [together], together.score
        inlined = _inline(request)
        return [inlined] if inlined is not None and inlined.score < cost else found


def _inline(request: NestRequest) -> LoopSolution | None:
    """Return what computes few stages within the last one's term, if it does; many rows at once."""
    computation = request.computation
    if request.mode != "default" or len(computation.stages) > PIPELINE_INLINED_STAGES:
        return None
    simple = simplify(computation, pinned=frozenset(computation.outputs), everything=True)
    if len(simple.stages) > 1 or len(cut_stage(simple, simple.stages[0])) > 1:
        return None
    return choose_rows(replace(request, computation=simple), PIPELINE_INLINED_ROWS)


def solve_part(request: NestRequest) -> tuple[NestSolution, ...]:
    """Return what computes a part of a band: contractions by plans, however few rows it has."""
    if len(request.computation.stages) == 1:
        return solve_statement(replace(request, least_flops=0))
    return tuple(_Solver(Graph.of(request)).solve())


def fuse_group(request: NestRequest) -> FusedSolution | None:
    """Return how stages run together at the least price; None if tiles of the root lack some."""
    regions = find_regions(request.computation)
    outputs = [x for x in request.computation.outputs if x != regions.root]
    if not all(x in regions.spans and regions.covers(x) for x in outputs):
        return None
    groupings = list_groupings(request, regions)
    if not groupings:
        return None
    why = f"{len(regions.stages)} stages share tiles of {regions.root}"
    found = [FusedSolution.of(request, one, why, streamed=False) for one in groupings]
    best = min(found, key=lambda one: one.score)
    if _streams(request):
        grouping = groupings[found.index(best)]
        past = FusedSolution.of(request, grouping, why, streamed=True)
        best = min(best, past, key=lambda one: one.score)
    return best


def _streams(request: NestRequest) -> bool:
    """Return whether the root may go past the caches: the last one does not hold what it reads."""
    computation = request.computation
    names = (*computation.inputs, computation.output.name)
    size = sum(computation.array(name).bytes for name in names)
    last = request.machine.last_cache_bytes
    return is_written_once(computation.stages[-1]) and size > last
