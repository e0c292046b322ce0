"""What to solve for: the stores that get tiles, the room there, and the tiles that runs ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.microkernel_costs import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.nest import Output
from tilesolve.model.price import pace, stores
from tilesolve.model.traffic import Store
from tilesolve.planning.geometric.integers import trivial_tilings
from tilesolve.planning.geometric.loop_choices import orders
from tilesolve.planning.geometric.program import Setting, formulate
from tilesolve.planning.geometric.tilings import feasible
from tilesolve.planning.letter_boxes import even_sizes, line_sides, run_sides, tiles_of
from tilesolve.planning.policy import (
    RUN_BYTES,
    SCATTERED_WRITE_SHARE,
)
from tilesolve.planning.register_tile import FEEDS

OWN = 0.6
"""Share of a core's own cache beyond the nearest that tiles may take; C and what is being copied
pass by there."""

SHARED = 0.3
"""Share of a cache that others use too, even when only one thread runs (measured: tiles that take
most of it are partly read from memory)."""

PASSED = 0.5
"""Share of what a machine's cores may count on in the last cache, where C passes by all caches
(measured on 2 cores that named 480 MiB, with tiles twice as large: six of the nine `abcdef-` of the
TCCG suite are slower by 3 to 20 %, one is faster by 9 %)."""

SCATTERED = 2.5
"""Times that writing past the caches takes longer line by line than in order (measured)."""


def setting_of(
    share: Problem, machine: Machine, threads: int, output: Output, microkernel: Microkernel
) -> Setting:
    """Return what to solve for; sizes of 0 count as 1, since a program needs logarithms.

    An output is written past the caches only where no tile cuts its sums: the nearest tile has all
    of them. Where no cache has room for that, the setting's output is `store`.

    Examples
    --------
    >>> from tilesolve.planning.register_tile import register_tile
    >>> machine, share = Machine.load("i7-6700k"), Problem.of("ik-ij-jk", 10)
    >>> setting_of(share, machine, 1, "store", register_tile(share, machine)).packed
    ('L3', 'L3')
    """
    sizes = {letter: max(1, extent) for letter, extent in share.sizes.items()}
    rate, frequency = pace(machine, share.dtype, microkernel, threads)
    places = _tiled(stores(machine, threads), share, machine, threads, microkernel, output)
    outermost = places[-1].name if len(places) > 1 else None
    whole = Problem.of(share.spec, sizes, share.dtype)
    fused = fuse(whole)
    written = SCATTERED * whole.bytes[0] / (machine.memory.stream or machine.memory.bandwidth)
    scattered = output == "stream" and written > SCATTERED_WRITE_SHARE * whole.flops / machine.peak(
        whole.dtype
    )
    # Classes have no layout, so that their volumes are counted in elements, not in lines.
    elements = tuple(replace(place, line=1) for place in places)
    lines = line_sides(whole, places[-1].line)
    usual = Setting(
        fused,
        elements,
        microkernel,
        rate,
        frequency,
        (outermost,) * len(share.spec.operands),
        output,
        tiles_of(whole, fused, [lines], places[-1]),
        even=tuple(
            (index, even_sizes(whole, letters, places[-1].line))
            for index, letters in fused.groups
            if len(letters) > 1
        ),
    )
    for run in RUN_BYTES if scattered and len(places) > 1 else ():
        sides = run_sides(whole, run)
        nearest = tiles_of(whole, fused, [sides], places[1])
        last = tiles_of(whole, fused, [lines, sides], places[-1])
        found = replace(usual, lines=last or usual.lines, runs=nearest)
        if nearest and satisfiable(found):
            return found
    # A register tile that covers much of a letter may leave no room for whole lines.
    bare = replace(usual, lines=())
    if output == "stream":
        # What has gone past the caches would come back from memory to be added to.
        sums = tuple((index, fused.problem.sizes[index]) for index in fused.reduced)
        for found in (replace(usual, runs=sums), replace(bare, runs=sums)):
            if any(_kept(found, first) for first in orders(fused)):
                return found
        return setting_of(share, machine, threads, "store", microkernel)
    return usual if not usual.lines or satisfiable(usual) else bare


def satisfiable(setting: Setting) -> bool:
    """Return whether the smallest tiles keep all limits, with each class innermost everywhere.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> satisfiable(plan("ik-ij-jk", 512, "i7-6700k", cache=False).setting)
    True
    """
    return all(_kept(setting, first) for first in orders(setting.fused))


def _kept(setting: Setting, first: str) -> bool:
    """Return whether the smallest tiles keep all limits with a class innermost everywhere.

    As real numbers, which is where a program begins, and as integers, in whole ways of caches.
    """
    choice = (first,) * setting.levels
    try:
        program = formulate(setting, choice)
    except SolverError:
        return False
    least = {tile: least for tile, (least, _) in program.variables.items()}
    smallest, _ = trivial_tilings(setting)
    return all(limit.at(least) <= 1 for limit in program.limits.values()) and feasible(
        setting, choice, smallest
    )


def _tiled(
    places: Sequence[Store],
    share: Problem,
    machine: Machine,
    threads: int,
    microkernel: Microkernel,
    output: Output,
) -> tuple[Store, ...]:
    """Return the stores that get a tile of their own, with the room that tiles may take there.

    Where the second cache feeds a register tile as fast as it computes, a tile for the nearest
    one gains nothing, and to fit there it would cut the sum short: calls cost more than that
    (measured: a matrix product has 0.7 of the peak with sums of 106, 0.9 with 384).
    """
    rows, columns = microkernel.rows, microkernel.columns
    seconds = 2 * rows * columns / pace(machine, share.dtype, microkernel, threads)[0]
    needed = (rows + columns) * share.itemsize / seconds
    if len(places) > 2 and places[1].bandwidth >= FEEDS * needed:
        fed = places[1]
        nearest = replace(places[0], server=fed.server, bandwidth=fed.bandwidth, read=fed.read)
        places = (nearest, *places[2:])
    sharing = {level.name: level.shared_by for level in machine.caches}

    def room(place: Store) -> float:
        cores = sharing[place.name]
        counted = (
            (PASSED if output == "stream" else 1) * machine.last_cache_bytes / min(threads, cores)
        )
        return min((SHARED if cores > 1 else OWN) * place.capacity, counted)

    return (
        places[0],
        *(
            replace(place, capacity=_lines(room(place), place.line))
            if place.name != machine.levels[0].name
            else place
            for place in places[1:]
        ),
    )


def _lines(room: float, line: int) -> float:
    """Return how many bytes of some are whole lines."""
    return max(1.0, room // line) * line
