"""Pictures of plans: the graph of stages, in the groups that run together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from tilesolve.contractions.statements.computation import Computation
from tilesolve.nests.band_steps import BandBuffer
from tilesolve.nests.groups import Placed
from tilesolve.nests.solutions import BandSolution, FusedSolution, NestSolution
from tilesolve.nests.solved import SolvedNest
from tilesolve.show.stage_graphs import Box, Frame, draw_stages
from tilesolve.system.units import format_count, format_duration, format_volume


def draw_solved(solved: SolvedNest, path: str | os.PathLike[str]) -> None:
    """Draw the stages of a plan, in its groups: where each is computed and kept, and its room."""
    request = solved.request
    title = (
        f"{', '.join(request.computation.outputs)} on {request.machine.name}, "
        f"{format_count(request.threads, 'thread')}: {format_duration(solved.seconds)} predicted"
    )
    draw_stages(title, list(frame_groups(solved)), path)


def frame_groups(solved: SolvedNest) -> Iterator[Frame]:
    """Yield the groups of a plan, and before them the arrays that it is given.

    A stage that was put into those that read it stands with the first one of these.
    """
    whole = solved.request.computation
    given = (Box(x, "given", (_measure(whole, x),)) for x in whole.inputs)
    yield Frame("given", tuple(given))
    by_name: dict[str, list[NestSolution]] = {}  # parts of an array are one
    for one in solved.solutions:
        by_name.setdefault(one.statement.name, []).append(one)
    parts = list(by_name.values())
    groups = [{box.name: box for one in part for box in _boxes(one)} for part in parts]
    homes = {name: group for group in groups for name in group}
    for stage in reversed(whole.stages):
        if stage.name not in homes:
            reader = next(x.name for x in whole.stages if stage.name in _reads(whole, x.name))
            homes[stage.name] = homes[reader]
            homes[reader][stage.name] = Box(stage.name, "nowhere")
    for part, group in zip(parts, groups, strict=True):
        boxes = [group[x] for x in dict.fromkeys(x.name for x in whole.stages) if x in group]
        filled = (replace(box, reads=_reads(whole, box.name)) for box in boxes)
        seconds = format_duration(sum(one.seconds for one in part))
        yield Frame(f"{_describe(part[0])}, {seconds}", tuple(filled))


def _reads(computation: Computation, name: str) -> tuple[str, ...]:
    """Return the other arrays that any part of an array is computed from."""
    stages = [one for one in computation.stages if one.name == name]
    found = dict.fromkeys(read.array for stage in stages for read in stage.reads)
    return tuple(one for one in found if one != name)


def _describe(solution: NestSolution) -> str:
    if isinstance(solution, BandSolution):
        count = format_count(len(solution.computation.stages), "stage")
        return f"{count} in bands of {format_count(solution.rows, 'row')}"
    if isinstance(solution, FusedSolution):
        return format_count(len(solution.computation.stages), "stage")
    return solution.route


def _boxes(solution: NestSolution) -> Iterator[Box]:
    """Yield a box for each stage of a solution."""
    found = solution.computation
    if isinstance(solution, BandSolution):
        kept = {one.array: one for one in solution.buffers}
        for stage in found.stages:
            if stage.name in kept:
                yield Box(stage.name, "ring", (_measure_band(solution, kept[stage.name]),))
            else:
                yield Box(stage.name, "array", (_measure(found, stage.name),))
        return
    placed = solution.placed if isinstance(solution, FusedSolution) else {}
    for stage in found.stages:
        one = placed.get(stage.name)
        if one is None or one.kept is None:
            loops = f"in {one.tiles[-1].name}" if one is not None and one.tiles else ""
            lines = tuple(filter(None, (loops, _measure(found, stage.name))))
            yield Box(stage.name, "array", lines)
        else:
            yield Box(stage.name, "ring" if one.ring else "tile", tuple(_levels(found, one)))


def _levels(computation: Computation, one: Placed) -> Iterator[str]:
    """Yield the loops that a stage is computed and kept in, and its room."""
    assert one.kept is not None
    yield f"in {one.tiles[-1].name}, kept in {one.tiles[one.kept - 1].name}"
    shape = one.room()[1]
    size = prod(shape) * np.dtype(computation.array(one.stage).dtype).itemsize
    yield f"{' × '.join(map(str, shape))}, {format_volume(size)}"


def _measure_band(solution: BandSolution, buffer: BandBuffer) -> str:
    shape = list(solution.computation.array(buffer.array).shape)
    shape[buffer.axis] = buffer.rows
    size = format_volume(solution.room_bytes(buffer))
    return f"{' × '.join(map(str, shape))}, {size}"


def _measure(computation: Computation, name: str) -> str:
    info = computation.array(name)
    return f"{' × '.join(map(str, info.shape))}, {format_volume(info.bytes)}"
