"""Waiting: seconds that a solution loses at the ends of runs in memory, and for late lines."""

from __future__ import annotations

from collections.abc import Sequence

from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.model.access import touched_bytes
from tilesolve.model.lines import run_of, run_waste
from tilesolve.model.nest import Nest
from tilesolve.model.pages import runs_of
from tilesolve.model.price import Price, list_levels
from tilesolve.packing.sizes import PAGE_BYTES
from tilesolve.planning.prefetch import is_packed_late


def waiting_seconds(
    share: Problem, nest: Nest, cost: Price, machine: Machine, levels: Sequence[str]
) -> float:
    """Return the seconds lost at the ends of the runs in which memory is read and written.

    What is packed is read in the outermost tile's runs, what is not in those of the nearest tile,
    or of a call if that one is idle: other loops may come between. Runs of an operand that are
    pages apart take some time each.

    Parameters
    ----------
    share, nest, cost
        What runs, and its price.
    machine
        Where.
    levels
        Those that tiles were solved for, nearest first.
    """
    memory, volumes, (call, *tiles) = list_levels(machine)[-1], cost.levels[-1].volumes, nest.bands
    near = next((band for band in tiles if band.level in levels[:1]), call)
    last, nearest = outermost_tile(nest), dict(near.box)
    boxes = [
        last,
        *(
            last if copy or nest.kind(at) == "prepared" else nearest
            for at, copy in enumerate(nest.packed)
        ),
    ]
    wasted, visits = [], 0.0
    for t, (tensor, tile) in enumerate(zip(share.spec.tensors, boxes, strict=True)):
        run = run_of(share, tensor, tile)
        wasted.append(volumes[t] * float(run_waste(run, machine.memory.line, share.itemsize)))
        if t and nest.kind(t - 1) != "prepared":
            size = touched_bytes(share, tile)[t]
            runs = runs_of(share.strides(t), tile, PAGE_BYTES)
            each = machine.costs.page_visit_seconds - float(memory.seconds([0.0, size / runs]))
            visits += volumes[t] / size * runs * max(0.0, each)
    late = sum(late_seconds(share, nest, cost, machine).values())
    return float(memory.seconds(wasted)) + visits + late


def late_seconds(share: Problem, nest: Nest, cost: Price, machine: Machine) -> dict[int, float]:
    """Return for each operand that is packed late how many seconds longer that takes.

    By the operand's number; see `is_packed_late`.
    """
    line = machine.costs.late_line_cycles / machine.frequency / machine.memory.line
    return {
        number: cost.levels[-1].volumes[number] * line
        for number, copy in enumerate(nest.packed, start=1)
        if copy and is_packed_late(share, number, outermost_tile(nest), machine)
    }


def outermost_tile(nest: Nest) -> dict[str, int]:
    """Return the box of the last cache's tile."""
    *tiles, whole = (band for band in nest.bands if band.level)
    return dict((tiles or [whole])[-1].box)
