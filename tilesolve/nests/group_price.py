"""What a group of stages costs: the price of its tree, with what is computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

from tilesolve.contractions.statements.computation import Computation
from tilesolve.machine.model import Machine
from tilesolve.model.loop_tree import Buffer, Do, LoopTree, Node, list_loops, list_works, renumber
from tilesolve.model.price import Price, Turn, list_levels, price_levels, send_past_caches
from tilesolve.model.traffic import count_traffic
from tilesolve.nests.arithmetic import (
    arithmetic_seconds,
    points_of_vector,
    step_seconds,
)
from tilesolve.nests.cuts import largest_part
from tilesolve.nests.groups import Group, Placed, holds_rings
from tilesolve.nests.loops import step_of
from tilesolve.nests.price import evicts_itself, has_whole_lines
from tilesolve.nests.request import NestRequest


def price_group(request: NestRequest, tree: LoopTree) -> Price:
    """Return what the loops of a computation of several stages cost each of the threads.

    Boxes of the price have no halo: what stages compute again, they move again.
    """
    computation, machine = request.computation, request.machine
    places = list_levels(machine, tree.threads)
    found = count_traffic(without_arrays(tree), places, evicts=evicts_itself(machine))
    apart = tree.output == "stream" and not has_whole_lines(
        computation.output, machine.levels[0].line
    )
    shared_line = machine.costs.shared_line_cycles / machine.frequency if apart else 0.0
    calls, done, once = 0.0, 0.0, 0.0
    works = dict[int, float]()
    for node in tree.body:
        if not holds_rings(node):
            (work,) = set(list_works((node,)))
            works[work] = works.get(work, 0.0) + _alone_seconds(request, tree, node)
            continue
        for one in Group.of(computation, node).placed.values():
            seconds, rows = _stage_seconds(computation, one, machine, (tree, node))
            seconds += rows * shared_line if one.stage == one.regions.root else 0.0
            works[one.work], calls = works.get(one.work, 0.0) + seconds, calls + rows
            done += one.points()
            once += one.regions.points(one.stage, {})
    levels = price_levels(places, found, done / once if once else 1.0)
    past_caches = 0.0
    if tree.output == "stream":
        root = found.arrays.index(computation.output.name)
        levels, past_caches = send_past_caches(levels, places, root)
    turns = list_turns(computation, works, found.arrays)
    return Price(levels, sum(works.values()), calls, (), past_caches, turns)


def list_turns(
    computation: Computation, works: Mapping[int, float], arrays: Sequence[str]
) -> tuple[Turn, ...]:
    """Return the turn of each stage, given what its arithmetic takes.

    Stages that touch an array have even shares of it.
    """
    found = []
    stages = {number: computation.stages[number] for number in sorted(works)}
    touched = {at: {x.name, *(read.array for read in x.reads)} for at, x in stages.items()}
    shares = [1 / sum(array in one for one in touched.values()) for array in arrays]
    whole = sum(works.values()) or 1.0
    for number, own in touched.items():
        pairs = zip(arrays, shares, strict=True)
        found.append(Turn(works[number] / whole, tuple(share * (x in own) for x, share in pairs)))
    return tuple(found)


def without_arrays(tree: LoopTree) -> LoopTree:
    """Return a tree without buffers that are arrays themselves: these are touched as any others."""
    return replace(tree, body=_without_arrays(tree.body))


def _without_arrays(nodes: Sequence[Node]) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in nodes:
        body = () if isinstance(node, Do) else _without_arrays(node.body)
        if isinstance(node, Buffer) and node.layout == "array":
            found += body
        else:
            found.append(node if isinstance(node, Do) else replace(node, body=body))
    return tuple(found)


def _alone_seconds(request: NestRequest, tree: LoopTree, node: Node) -> float:
    """Return what the arithmetic of a stage takes that has loops of its own."""
    (work,) = set(list_works((node,)))
    alone = request.of(request.computation, request.computation.stages[work]).computation
    own = LoopTree((tree.works[work],), (renumber(node, 0),), threads=tree.threads)
    return arithmetic_seconds(alone, own, request.machine)


def _stage_seconds(
    computation: Computation, one: Placed, machine: Machine, around: tuple[LoopTree, Node]
) -> tuple[float, float]:
    """Return what a stage of a group takes a thread, and how often a vector loop begins.

    Each vector has its operations; the last one of a row counts as a whole one. Rows that are
    written out begin together.
    """
    tree, node = around
    stage = largest_part(computation, computation.stages[one.work])
    column = stage.output[-1] if stage.output else ""
    summed = prod(computation.sizes[x] for x in stage.summed)
    each = points_of_vector(stage, computation.dtypes, machine) if column else 1
    written = _list_rows(one)
    work = step_seconds(stage, computation.dtypes, machine, tree.threads, column or None, written)
    share = _share(tree, node, one)
    whole = {column: computation.sizes[column]} if column else {}
    rows = one.points(whole) / prod(written.values())
    seconds = one.points({column: each} if column else {}) * summed * work
    starts = rows * machine.costs.tile_cycles / machine.frequency
    return (seconds + starts) * share, rows * share


def _list_rows(one: Placed) -> dict[str, int]:
    """Return how many rows of a stage are written out around each vector, by its letters."""
    found = dict[str, int]()
    for loop in one.own:
        if loop.kind != "unrolled":
            continue
        own = one.regions.letter_of(one.stage, loop.letter)
        steps = [tile.step for tile in one.tiles if tile.letter == loop.letter]
        steps += [step_of(x) for x in one.own if x.letter == loop.letter and x is not loop]
        span = one.regions.spans[one.stage][own or loop.letter]
        count = span.extent if own is None or not steps else int(steps[-1] * span.scale)
        found[own or loop.letter] = max(count, 1)
    return found


def _share(tree: LoopTree, node: Node, one: Placed) -> float:
    """Return the share of all trips that the busiest thread has."""
    for loop in list_loops((node,)) if tree.threads > 1 else ():
        if loop.kind == "threads":
            trips = -(-one.regions.extents[loop.letter] // step_of(loop))
            return ceil(trips / tree.threads) / trips
    return 1.0
