"""What a nest of loops costs: the price of its tree, and the arithmetic of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

import numpy as np

from tilesolve.constants.policy import NEST_REGION_POINTS
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.machine.model import Machine
from tilesolve.model.access import Access, Box
from tilesolve.model.loop_tree import Buffer, Call, Do, Loop, LoopTree, Node, Work
from tilesolve.model.nest import Output
from tilesolve.model.price import LevelPrice, Price, list_levels, price_levels
from tilesolve.model.traffic import LevelView, count_traffic
from tilesolve.nests.arithmetic import arithmetic_seconds
from tilesolve.nests.interference import CacheSets, conflict_share
from tilesolve.nests.loops import LoopItem
from tilesolve.nests.programs import LoopNest
from tilesolve.nests.references import find_references


def price_nest(
    computation: Computation,
    nest: LoopNest,
    machine: Machine,
    threads: int = 1,
    *,
    streamed: bool = False,
) -> Price:
    """Return what a nest of loops costs each of some threads.

    Parameters
    ----------
    computation, nest
        A statement and its loops.
    machine, threads
        Who computes.
    streamed
        Whether the output goes past the caches.
    """
    (stage,) = computation.stages
    places = list_levels(machine, threads)
    if not computation.points(stage):
        none = (0.0,) * len(find_references(computation, stage))
        nothing = (LevelPrice(one.server, one.name, none, none, none, 0.0) for one in places)
        return Price(tuple(nothing), 0.0, 0.0, ())
    tree = tree_of_loops(computation, nest, machine.vector_bits // 8, threads, streamed=streamed)
    found = count_traffic(tree, places, evicts=_evicts_itself(machine))
    region = region_share(stage, computation.sizes)
    levels = price_levels(places, found, region)
    compute = region * arithmetic_seconds(computation, nest, machine, threads)
    calls = region * float(found.calls)
    if streamed and not has_whole_lines(computation.output, machine.levels[0].line):
        compute += calls * machine.costs.shared_line_cycles / machine.frequency
    return Price(levels, compute, calls, ())


def tree_of_loops(
    computation: Computation,
    nest: LoopNest,
    vector_bytes: int,
    threads: int = 1,
    *,
    streamed: bool = False,
) -> LoopTree:
    """Return the loops of a statement as a tree.

    Loops that are written out around a vector loop run within its steps. What registers hold, or
    else the vector loop and those written out around it, is one call.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("C[i] += A[i,k]"), 8)
    >>> nest = LoopNest((LoopItem("k"), LoopItem("i", 1, "vector")), held=2)
    >>> print(tree_of_loops(found, nest, 32))
    call:
      C~[i] = registers of C:
        for k step 1
          for i step 1 [vector]
            C[i] <- A[i,k]
    """
    (stage,) = computation.stages
    accesses = find_references(computation, stage)
    extents = tuple((x, computation.sizes[x]) for x in stage.letters)
    items = _list_in_order(nest, vector_bytes // max(one.element for one in accesses))
    loaded = tuple(_as_loaded(one, items, vector_bytes) for one in accesses)
    work = Work(loaded, extents, accesses[0].element)
    inside = nest.held or max(sum(one.kind in ("vector", "unrolled") for one in items), 1)
    body: tuple[Node, ...] = (Do(),)
    for number, item in enumerate(reversed(items), start=1):
        body = (Loop(item.letter, item.step, body, item.kind),)
        if number == inside:
            body = (Call((Buffer(0, accesses[0], "registers", "register", body),)),)
    output: Output = "stream" if streamed else "store"
    if stage.reduction is not None:
        output = "accumulate"
    return LoopTree((work,), body, output, threads, aligned=False)


def has_whole_lines(array: ArrayInfo, line: int) -> bool:
    """Return whether rows of an array share no line, if it begins with one.

    Examples
    --------
    >>> [has_whole_lines(ArrayInfo("o", (8, n), "float32"), 64) for n in (118, 128)]
    [False, True]
    >>> has_whole_lines(ArrayInfo("o", (118,), "float32"), 64)
    True
    """
    row = array.shape[-1] * np.dtype(array.dtype).itemsize if array.shape else 0
    return row % line == 0 or prod(array.shape[:-1]) == 1


def region_share(stage: Stage, extents: Mapping[str, int]) -> float:
    """Return the share of the points of a box where a statement computes, by a coarse grid.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stage = parse_stages("C[i,j] = A[i,j]", "j <= i")[0]
    >>> round(region_share(stage, {"i": 1000, "j": 1000}), 1)
    0.5
    """
    letters = tuple(dict.fromkeys(x for one in stage.where for x in one.letters))
    if not letters:
        return 1.0
    side = max(NEST_REGION_POINTS // len(letters), 2)
    steps = [(np.arange(side) + 0.5) * (extents[x] / side) for x in letters]
    grid = dict(zip(letters, np.ix_(*steps), strict=True))
    found = np.ones([side] * len(letters), dtype=bool)
    for one in stage.where:
        found = found & one.holds(grid)
    return float(found.mean())


def _list_in_order(nest: LoopNest, lanes: int) -> list[LoopItem]:
    """Return loops as they run: those written out around a vector loop run within its steps."""
    *outer, inner = nest.items or (None,)
    if nest.held or inner is None or inner.kind != "vector" or lanes < 2:
        return list(nest.items)
    around: list[LoopItem] = []
    while outer and outer[-1].kind == "unrolled":
        around.insert(0, outer.pop())
    return [*outer, *([LoopItem(inner.letter, lanes)] if around else []), *around, inner]


def _as_loaded(access: Access, items: Sequence[LoopItem], vector_bytes: int) -> Access:
    """Return an access with what registers take in for each element.

    Lanes that lie apart are loaded one by one, each like a vector, unless rows that lie side by
    side are written out around: then blocks are transposed.
    """
    vector = next((item.letter for item in items if item.kind == "vector"), None)
    written_out = {item.letter for item in items if item.kind == "unrolled"}
    apart = vector in access.letters and vector not in access.contiguous
    if not apart or written_out.intersection(access.contiguous):
        return access
    return replace(access, loaded=vector_bytes)


def _evicts_itself(machine: Machine) -> Callable[[Access, Box, LevelView], float]:
    """Return what says how much of what a box touches of an array evicts itself from a cache.

    In which sets of the last cache lines lie, no address tells.
    """
    caches = {one.name: one for one in machine.caches[:-1]}

    def evicts(access: Access, box: Box, place: LevelView) -> float:
        if place.name not in caches or access.gathered or len(access.axes) < 2:
            return 0.0
        sides = tuple(max(ceil(side), 1) for side in access.reaches(box))
        sets = CacheSets.whole(caches[place.name], access.element)
        return conflict_share(sets, sides, access.pitches)

    return evicts
