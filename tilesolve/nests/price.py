"""What a nest of loops costs: the same walk and the same price as of plans.

Each level serves runs and lines: ``seconds = bytes / bandwidth + runs · start``, where runs are the
same walk with one element for each contiguous run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from tilesolve.constants.policy import NEST_CROWDED_SHARE, NEST_REGION_POINTS
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.model.price import LevelPrice, Price, stores
from tilesolve.model.runs import first_lines, start_seconds
from tilesolve.model.traffic import Store
from tilesolve.model.walk import walk
from tilesolve.nests.interference import CacheSets, crowded_share
from tilesolve.nests.loops import LoopItem
from tilesolve.nests.programs import LoopNest
from tilesolve.nests.references import Reference
from tilesolve.nests.steps import arithmetic_seconds


def price_nest(
    computation: Computation,
    stage: Stage,
    references: Sequence[Reference],
    nest: LoopNest,
    machine: Machine,
    threads: int = 1,
    *,
    streamed: bool = False,
    later: float | None = None,
) -> Price:
    """Return what a nest of loops costs each of some threads.

    Parameters
    ----------
    computation, stage, references
        The statement, and what it touches.
    nest
        Its loops.
    machine, threads
        Who computes.
    streamed
        Whether the output goes past the caches.
    later
        The share of a run's first line that each further one costs; the machine's starts say it
        if None.
    """
    points = computation.points(stage)
    places = stores(machine, threads)
    if not points:
        none = (0.0,) * len(references)
        levels = [LevelPrice(one.server, one.name, none, none, none, 0.0) for one in places]
        return Price(tuple(levels), 0.0, 0.0, ())
    region = region_share(stage, computation.sizes)
    lanes = machine.vector_bits // 8 // max(one.element for one in references)
    loops, boxes = _walked(_list_in_order(nest, lanes), computation.sizes, threads)
    levels = []
    for at, place in enumerate(places):
        cache = next((one for one in machine.caches[:-1] if one.name == place.name), None)
        width = machine.vector_bits // 8
        where = (place, at, cache)
        joins = stage.reduction is None
        runs, moved = _moved(references, nest, loops, boxes, where, width, joins=joins)
        if later is not None and at:
            sizes = zip(runs, moved, strict=True)
            moved = [first_lines(n * place.line, size, later) / (later or 1) for n, size in sizes]
        again = stage.reduction is not None or (at and not streamed)
        volumes = [region * bytes_ for bytes_ in moved]
        written = volumes[0] * (2 if again else 1)
        known = at and later is None
        starts = _starts(references, nest, machine, place) if known else [0.0] * len(runs)
        seconds = place.seconds([written, *volumes[1:]])
        seconds += region * sum(n * start for n, start in zip(runs, starts, strict=True))
        levels.append(
            LevelPrice(
                place.server,
                place.name,
                tuple(volumes),
                (written, *volumes[1:]),
                (0.0,) * len(volumes),
                float(seconds),
            )
        )
    compute = region * arithmetic_seconds(computation, nest, machine, threads)
    calls = region * prod(trips for _, trips in loops[1:])
    if streamed and not has_whole_lines(computation.output, machine.levels[0].line):
        compute += calls * machine.costs.shared_line_cycles / machine.frequency
    return Price(tuple(levels), compute, float(calls), ())


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


def _walked(
    items: Sequence[LoopItem], extents: Mapping[str, int], threads: int
) -> tuple[list[tuple[str, float]], list[dict[str, float]]]:
    """Return the loops of one thread with their trips, innermost first, and the box after each."""
    sides = {x: float(extent) for x, extent in extents.items()}
    loops = []
    for item in items:
        side = sides[item.letter]
        step = min(float(item.step), side)
        trips = side / step
        if item.kind == "threads":
            trips = max(trips / threads, 1.0)
        loops.append((item.letter, trips))
        sides[item.letter] = step
    loops.reverse()
    boxes = [dict(sides)]
    for letter, trips in loops:
        boxes.append({**boxes[-1], letter: boxes[-1][letter] * trips})
    return loops, boxes


def _moved(
    references: Sequence[Reference],
    nest: LoopNest,
    loops: Sequence[tuple[str, float]],
    boxes: Sequence[Mapping[str, float]],
    where: tuple[Store, int, Level | None],
    width: int,
    *,
    joins: bool,
) -> tuple[list[float], list[float]]:
    """Return the runs and the bytes of each reference that a place takes in.

    Where rows join, those that a box touches from end to end are one run. What most of evicts
    itself does not stay in a cache, but where blocks are transposed, which are in registers at
    once; in which sets of the last cache lines lie, no address tells.
    """
    tensors: Any = references
    place, at, cache = where
    parallel = len([item for item in nest.items if item.kind in ("vector", "unrolled")])
    if not at:
        vector = next((item.letter for item in nest.items if item.kind == "vector"), None)
        sizes = [
            [one.elements(box) * _loaded_bytes(one, nest, vector, width) for box in boxes]
            for one in references
        ]
        output = walk(tensors[:1], loops, sizes[:1], lambda _, outer: outer < max(nest.held, 1))
        operands = walk(tensors[1:], loops, sizes[1:], lambda _, outer: outer < max(parallel, 1))
        return [0.0] * len(references), output + operands
    found: tuple[list[float], list[float]] = [], []
    runs = [[_runs(one, box, place.line, joins=joins) for box in boxes] for one in references]
    rows, bytes_ = ([[pair[at] for pair in one] for one in runs] for at in (0, 1))
    held = [sum(sizes) for sizes in zip(*bytes_, strict=True)]

    for number, one in enumerate(references):

        def stays(inner: Any, outer: int, one: Reference = one) -> bool:  # noqa: ANN401
            if outer < parallel and not nest.held:
                return True
            crowds = cache is not None and _crowds(one, boxes[inner], cache)
            return bool(held[inner] <= place.capacity) and not crowds

        for tables, moved in zip((rows, bytes_), found, strict=True):
            moved += walk(tensors[number : number + 1], loops, [tables[number]], stays)
    return found


def _runs(
    one: Reference, box: Mapping[str, float], line: int, *, joins: bool
) -> tuple[float, float]:
    """Return the contiguous runs of an array that a box touches, and the bytes of their lines."""
    rows, lines = float(one.rows(box)), float(one.lines(box, line))
    if joins and one.axes and not one.gathered:
        sides, axis = one.sides(box), len(one.axes) - 1
        while axis and sides[axis] >= one.shape[axis]:
            axis -= 1
            rows /= sides[axis]
            lines += (sides[axis] - 1) * prod(sides[axis + 1 :]) * one.element / line
    return rows, rows * lines * line


def _crowds(one: Reference, box: Mapping[str, float], cache: Level) -> bool:
    """Return whether most of what a box touches of an array evicts itself from a cache."""
    if one.gathered or len(one.axes) < 2:
        return False
    sides = tuple(max(ceil(side), 1) for side in one.sides(box))
    return (
        crowded_share(CacheSets.whole(cache, one.element), sides, one.strides) > NEST_CROWDED_SHARE
    )


def _loaded_bytes(one: Reference, nest: LoopNest, vector: str | None, width: int) -> int:
    """Return the bytes of an element as registers take it in.

    Lanes that lie apart are loaded one by one, each like a vector, unless rows that lie side by
    side are written out around: then blocks are transposed.
    """
    turned = {item.letter for item in nest.items if item.kind == "unrolled"}
    apart = vector in one.letters and vector not in one.contiguous
    return width if apart and not turned.intersection(one.contiguous) else one.element


def _starts(
    references: Sequence[Reference], nest: LoopNest, machine: Machine, place: Store
) -> list[float]:
    """Return how long the first line of each reference's runs takes longer than the others.

    Where the innermost loop goes from run to run, it does so by strides.
    """
    line = place.line / (place.read or place.bandwidth)
    level, inner = machine.level(place.server), nest.items[-1].letter if nest.items else ""
    found = []
    for one in references:
        strided = not one.gathered and inner in one.letters and inner not in one.contiguous
        stride = one.stride(inner) / place.line if strided else None
        found.append(start_seconds(level, line, stride))
    return found
