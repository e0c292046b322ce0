"""How a setting is made: the stores that get tiles, the room there, the least tiles for runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil

from tilesolve.constants.policy import (
    FEEDING_RATIO,
    RUN_BYTES,
    SCATTERED_WRITE_SHARE,
    TRANSPOSED_RUN_BYTES,
)
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import lane_is_last, shared_lane
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.copies import repeats_elements
from tilesolve.model.fused import Fused, fuse
from tilesolve.model.level_view import LevelView
from tilesolve.model.lines import bytes_at_ends
from tilesolve.model.nest import CopyKind, Output
from tilesolve.model.price import core_rates, list_levels
from tilesolve.planning.geometric.integers import trivial_tilings
from tilesolve.planning.geometric.loop_choices import innermost_classes
from tilesolve.planning.geometric.program import keeps_limits
from tilesolve.planning.geometric.tilings import feasible
from tilesolve.planning.least_tiles import even_sizes, line_sides, run_sides, tiles_of
from tilesolve.planning.setting import Setting


def make_setting(
    share: Problem,
    machine: Machine,
    threads: int,
    output: Output,
    microkernel: Microkernel,
    *,
    scattered: bool = False,
) -> Setting:
    """Return what a tiling is searched for; sizes of 0 count as 1, which have logarithms.

    Non-temporal stores write C only where no tile cuts its sums: the nearest tile has all of them.
    Where no cache has room for that, the setting's output is `store`.

    Examples
    --------
    >>> from tilesolve.planning.register_tile import choose_register_tile
    >>> machine, share = Machine.load("i7-6700k"), Problem.of("ik-ij-jk", 10)
    >>> make_setting(share, machine, 1, "store", choose_register_tile(share, machine)).packed
    ('L3', 'L3')
    """
    sizes = {letter: max(1, extent) for letter, extent in share.sizes.items()}
    whole = share.part(sizes)
    rate, frequency = core_rates(machine, share.dtype, microkernel, threads)
    places = _tiled_stores(machine, share, threads, microkernel, output)
    outermost = places[-1].name if len(places) > 1 else None
    fused = fuse(whole)
    operands = range(1, len(share.spec.tensors))
    kinds = _copy_kinds(share, fused) if outermost else ()
    # Classes have no layout, so that their volumes are counted in elements, not in lines.
    elements = tuple(replace(place, line=1) for place in places)
    lines = line_sides(whole, places[-1].line)
    usual = Setting(
        fused,
        elements,
        microkernel,
        rate,
        frequency,
        tuple(outermost if _is_copied(share, at) else None for at in operands),
        output,
        tiles_of(whole, fused, [lines], places[-1]),
        even=tuple(
            (index, even_sizes(whole, letters, places[-1].line))
            for index, letters in fused.groups
            if len(letters) > 1
        ),
        kinds=kinds,
        scattered=scattered,
        overlap=machine.costs.level_overlap,
    )
    unit = share.spec.output.letters[-1:]
    for run in TRANSPOSED_RUN_BYTES if scattered and len(places) > 1 else ():
        sides = {i: ceil(run / share.itemsize) if i in unit else 1 for i in sizes}
        found = replace(usual, runs=tiles_of(whole, fused, [sides], places[1]))
        if satisfiable(found):
            return found
    long = output == "stream" and _writes_long(whole, machine)
    for run in RUN_BYTES if long and len(places) > 1 else ():
        sides = run_sides(whole, run)
        nearest = tiles_of(whole, fused, [sides], places[1])
        last = tiles_of(whole, fused, [lines, sides], places[-1])
        found = replace(usual, lines=last or usual.lines, runs=nearest)
        if nearest and satisfiable(found):
            return found
    # A register tile that covers much of a letter may leave no room for whole lines.
    bare = replace(usual, lines=())
    if output == "stream":
        # Non-temporal stores write to memory: what is added to later would have to come back.
        sums = tuple((index, fused.problem.sizes[index]) for index in fused.reduced)
        for found in (replace(usual, runs=sums), replace(bare, runs=sums)):
            if any(_keeps_limits(found, first) for first in innermost_classes(fused)):
                return found
        return make_setting(share, machine, threads, "store", microkernel, scattered=scattered)
    return usual if not usual.lines or satisfiable(usual) else bare


def _is_copied(share: Problem, at: int) -> bool:
    """Return whether an operand, counted from 1, is copied by calls as tiles are first found.

    Vectors that multiply vectors are read in place, or from copies with the zeros of padding, in
    which the vectors' letter is the last one.
    """
    if shared_lane(share):
        apart = not lane_is_last(share, at) and at not in share.constant
        return apart or any(one.tensor == at for one in share.padding)
    return at not in share.constant


def _copy_kinds(share: Problem, fused: Fused) -> tuple[CopyKind, ...]:
    """Return the kinds of copies that tiles are first found for; empty if all are micro-panels.

    Constant operands are prepared. Columns that share elements are copied as windows, which
    kernels read as fast as micro-panels; rows are read as vectors, which windows do not hold, and
    halves from micro-panels alone.
    """
    found: list[CopyKind] = []
    if shared_lane(share):
        return tuple("windows" if _is_copied(share, at) else "in place" for at in (1, 2))
    for at, operand in enumerate(share.spec.operands, start=1):
        columns = not set(fused.letters(fused.rows) if fused.rows else ()) & set(operand.letters)
        if at in share.constant:
            found.append("prepared")
        elif columns and repeats_elements(share.spec, at) and not is_half(share.dtype):
            found.append("windows")
        else:
            found.append("micro-panels")
    return tuple(found) if set(found) != {"micro-panels"} else ()


@lru_cache(maxsize=64)
def satisfiable(setting: Setting) -> bool:
    """Return whether the smallest tiles keep all limits, with each class innermost everywhere."""
    return all(_keeps_limits(setting, first) for first in innermost_classes(setting.fused))


def _writes_long(problem: Problem, machine: Machine) -> bool:
    """Return whether writing C line by line would take a fair share of the arithmetic's time."""
    memory = machine.memory
    slow = problem.bytes[0] * (1 + bytes_at_ends(machine) / memory.line)
    computed = problem.flops / machine.peak(problem.dtype)
    return slow / (memory.stream or memory.bandwidth) > SCATTERED_WRITE_SHARE * computed


def _keeps_limits(setting: Setting, first: str) -> bool:
    """Return whether the smallest tiles keep all limits with a class innermost everywhere.

    As real numbers, which is where a program begins, and as integers, in whole ways of caches.
    """
    choice = (first,) * setting.levels
    smallest, _ = trivial_tilings(setting)
    return keeps_limits(setting, choice) and feasible(setting, choice, smallest)


def _tiled_stores(
    machine: Machine, share: Problem, threads: int, microkernel: Microkernel, output: Output
) -> tuple[LevelView, ...]:
    """Return the stores that get a tile of their own, with the room that tiles may take there.

    Where the second cache feeds a register tile as fast as it computes, a tile for the first one
    gains nothing. To fit there it would cut the sum short, and calls cost more than that. See
    ``docs/decisions/021-register-tiles.md``.
    """
    places: Sequence[LevelView] = list_levels(machine, threads)
    rows, columns, costs = microkernel.rows, microkernel.columns, machine.costs
    seconds = 2 * rows * columns / core_rates(machine, share.dtype, microkernel, threads)[0]
    needed = (rows + columns) * share.sum_itemsize / seconds
    if len(places) > 2 and places[1].bandwidth >= FEEDING_RATIO * needed:
        fed = places[1]
        registers = replace(places[0], server=fed.server, bandwidth=fed.bandwidth, read=fed.read)
        places = (registers, *places[2:])
    first, sharing = machine.first_cache, {level.name: level.shared_by for level in machine.caches}

    def room(place: LevelView) -> float:
        cores = sharing[place.name]
        used = costs.streaming_share if output == "stream" else 1
        counted = used * machine.last_cache_bytes / min(threads, cores)
        tiles = costs.shared_share if cores > 1 else costs.private_share
        return min(tiles * place.capacity, counted)

    return (
        places[0],
        *(
            place
            if first is not None and place.name == first.name
            else replace(place, capacity=_whole_lines(room(place), place.line))
            for place in places[1:]
        ),
    )


def _whole_lines(room: float, line: int) -> float:
    """Return how many bytes of some are whole lines."""
    return max(1.0, room // line) * line
