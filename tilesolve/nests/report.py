"""A plan of a nest as text: what runs each statement and why, what it moves, and its loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from tilesolve.contractions.statements.computation import Computation
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.kernels.programs.printer import print_program
from tilesolve.model.loop_tree import Call, Loop
from tilesolve.model.starts import Start
from tilesolve.nests.solutions import (
    BandSolution,
    BlockSolution,
    FusedSolution,
    LoopSolution,
    MoveSolution,
    NestSolution,
)
from tilesolve.nests.solved import SolvedNest
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_count, format_duration, format_volume

ARRAYS_LIE: Mapping[Start, str] = {
    "warm": "arrays in the nearest cache that holds all of them",
    "cold": "arrays in memory",
}
"""Where arrays are when a call begins."""


def write_nest_report(solution: SolvedNest) -> str:
    """Return the report of a plan."""
    return "\n".join(_lines(solution))


def _lines(solution: SolvedNest) -> Iterator[str]:
    request = solution.request
    computation, threads = request.computation, format_count(request.threads, "thread")
    sizes = " ".join(f"{letter}={extent}" for letter, extent in computation.extents)
    seconds = format_duration(solution.seconds)
    yield "; ".join(map(str, computation.stages))
    yield _takes(computation)
    machine, lie = request.machine, ARRAYS_LIE[request.start]
    yield f"{sizes} on {machine.name}, {threads}; predicted {seconds}, {lie}"
    names = [x.name for x in machine.levels if machine.source(f"{x.name}.bandwidth") == "assumed"]
    if names:
        yield f"by assumed rates of {', '.join(names)}: 'tilesolve calibrate --quick' measures them"
    for one in solution.solutions:
        yield ""
        yield from describe(one)
        if isinstance(one, LoopSolution | FusedSolution | MoveSolution):
            yield from _levels(one)
        if isinstance(one, LoopSolution | FusedSolution):
            yield "loops as they run, outermost first:"
            yield from (f"  {line}" for line in print_program(one.program).splitlines())


def describe(solution: NestSolution) -> list[str]:
    """Return what runs a statement, and why; the tiles of loops, and the kinds of blocks.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> from tilesolve.nests.planning import solve_nest
    >>> from tilesolve.nests.request import NestRequest
    >>> found = bind_stages(parse_stages("m[y,x] = A[x,y] & B[y,x]"), 512, "int32")
    >>> print(describe(solve_nest(NestRequest(found, Machine.load("i7-6700k"), 2)).solutions[0])[1])
      tile x:256 y:256, loops y_256 x_256 y_8 x_8 | y x, threads over y, vectors along x
    """
    head = f"{solution.statement}: {solution.kind.value}, by a {solution.route}: {solution.why}"
    if isinstance(solution, LoopSolution):
        return [head, f"  {', '.join(_describe_loops(solution))}"]
    if isinstance(solution, FusedSolution):
        count = format_count(len(solution.computation.stages), "stage")
        head = f"{solution.statement.name} of {count}: fused, by a nest: {solution.why}"
        return [head, *_describe_group(solution)]
    if isinstance(solution, BandSolution):
        count = format_count(len(solution.computation.stages), "stage")
        head = f"{solution.statement.name} of {count}: fused, in bands: {solution.why}"
        return [head, *_describe_bands(solution)]
    if isinstance(solution, MoveSolution):
        return [head, f"  {solution.transpose}"]
    return [head, *(_describe_blocks(solution) if isinstance(solution, BlockSolution) else ())]


def _describe_loops(solution: LoopSolution) -> Iterator[str]:
    sizes = " ".join(f"{x}:{tile}" for x, tile in solution.tiles.items())
    yield f"tile {sizes}" if sizes else "no tiles"
    nodes = [one for one in list_nodes(solution.loops.body) if isinstance(one, Loop | Call)]
    yield " ".join(["loops", *(one.name if isinstance(one, Loop) else "|" for one in nodes)])
    yield from _describe_kinds(solution)
    if solution.capped_by:
        yield f"held back by {solution.capped_by}"


def _describe_kinds(solution: LoopSolution | FusedSolution) -> Iterator[str]:
    """Yield which letters threads and vectors go along, and what goes past the caches."""
    if solution.threads_letter:
        yield f"threads over {solution.threads_letter}"
    if solution.vector_letter:
        yield f"vectors along {solution.vector_letter}"
    yield from (f"{name} goes past the caches" for name in sorted(solution.non_temporal))


def _describe_group(solution: FusedSolution) -> Iterator[str]:
    """Yield the loops that stages share, and where each of them is computed and kept."""
    placed, computation = solution.placed, solution.computation
    tiles = placed[solution.statement.name].tiles if placed else ()
    shared = " ".join(["loops", *(tile.name for tile in tiles)])
    yield f"  {', '.join([shared, *_describe_kinds(solution)])}"
    rows = [["stage", "computed in", "kept in", "positions", "bytes", "again"]]
    for stage in computation.stages:
        one = placed.get(stage.name)
        if one is None:
            size = format_volume(computation.array(stage.name).bytes)
            rows.append([stage.name, "its own loops", "memory", "all", size, "-"])
            continue
        needed = one.regions.points(stage.name, {})
        again = f"{one.points() / needed - 1:.1%}" if needed else "-"
        computed = one.tiles[-1].name if one.tiles else "-"
        if one.kept is None:
            rows.append([stage.name, computed, "-", "-", "-", again])
            continue
        if stage.name in computation.outputs:
            size = format_volume(computation.array(stage.name).bytes)
            rows.append([stage.name, computed, "memory", "all", size, again])
            continue
        shape = one.room()[1]
        element = np.dtype(computation.dtypes[stage.name]).itemsize
        sides = [
            f"{'ring of ' if one.ring and one.ring[0] == letter else ''}{side}"
            for letter, side in zip(one.regions.spans[stage.name], shape, strict=True)
        ]
        kept = one.tiles[one.kept - 1].name
        size = format_volume(prod(shape) * element)
        rows.append([stage.name, computed, kept, " x ".join(sides), size, again])
    yield from align_columns(rows)


def _describe_bands(solution: BandSolution) -> Iterator[str]:
    """Yield where each stage is kept, and what computes the parts of bands how often."""
    yield f"  bands of {solution.rows} rows along {solution.letter}"
    computation = solution.computation
    kept = {one.array: one for one in solution.buffers}
    rows = [["stage", "kept in", "positions", "bytes"]]
    for stage in computation.stages:
        info, buffer = computation.array(stage.name), kept.get(stage.name)
        if buffer is None:
            rows.append([stage.name, "memory", "all", format_volume(info.bytes)])
            continue
        sides = [buffer.rows if at == buffer.axis else n for at, n in enumerate(info.shape)]
        size = format_volume(solution.room_bytes(buffer))
        rows.append([stage.name, "a band", " x ".join(map(str, sides)), size])
    yield from align_columns(rows)
    counts = Counter(step.kind for strip in solution.strips for step in strip)
    for number, kind in enumerate(solution.kinds):
        parts = "; ".join(f"{one.statement} by a {one.route}" for one in kind)
        yield f"  {format_count(counts[number], 'part')}: {parts}"


def _describe_blocks(solution: BlockSolution) -> Iterator[str]:
    """Yield how many blocks of each kind there are, and what computes them."""
    for number, kind in enumerate(solution.kinds):
        count = sum(at == number for at, _ in solution.places)
        sizes = " ".join(f"{x}={n}" for x, n in kind[-1].computation.extents)
        parts = [f"{one.statement} by a {one.route}" for one in kind]
        yield f"  {format_count(count, 'block')} {sizes}: {'; '.join(parts)}"


def _takes(computation: Computation) -> str:
    """Return what a call takes, in order, and what it returns if that is more than one array."""
    params = [f"{name}=…" for name, _ in computation.params]
    found = f"takes {', '.join((*computation.inputs, *params)) or 'no arrays'}"
    outputs = computation.outputs
    return found + (f"; returns {', '.join(outputs)}" if len(outputs) > 1 else "")


def _levels(solution: LoopSolution | FusedSolution | MoveSolution) -> Iterator[str]:
    """Yield a line for what each level moves, and for the arithmetic."""
    cost = solution.request.charge(solution.cost)
    for level in cost.levels:
        moved, seconds = format_volume(level.volume), format_duration(level.seconds)
        yield f"  {level.level:<8} {moved:>10} {seconds:>10}"
    if cost.past_caches:
        moved = format_volume(cost.past_caches * solution.request.places[-1].stream_rate)
        yield f"  {'stores':<8} {moved:>10} {format_duration(cost.past_caches):>10}"
    yield f"  {'compute':<8} {'':>10} {format_duration(cost.compute):>10}"
    yield f"  bound by {cost.bottleneck}"
