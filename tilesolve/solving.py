"""Solving for a plan: relaxation, integer repair, boxes, and what is worth packing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilesolve.boxes import (
    RUNS,
    even_sizes,
    line_sides,
    lines_of,
    run_of,
    run_sides,
    run_waste,
    tiles_of,
    unfuse,
)
from tilesolve.choices import orders
from tilesolve.contractions.errors import MachineError, SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.fuse import fuse
from tilesolve.kernels.catalogue import Microkernel
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine import Machine
from tilesolve.movement import Price, price, stores
from tilesolve.nest import Nest, Output
from tilesolve.program import Setting, formulate
from tilesolve.register_tile import SUMS, register_tile
from tilesolve.relaxation import Optimum, Relaxation, relax
from tilesolve.repair import relieved, repair, resized
from tilesolve.tilings import Integral, altogether, score_of
from tilesolve.traffic import Store, footprint

if TYPE_CHECKING:
    from tilesolve.planning import Plan

STARTS = 3
"""Points that IPOPT starts from where the program is not convex."""

ROUNDED = 4
"""Continuous optima that are made integer at most."""

FEEDS = 1.5
"""How many times the bandwidth that a register tile needs a cache should have to feed it."""

OWN = 0.6
"""Share of a core's own cache beyond the nearest that tiles may take; C and what is being copied
pass by there."""

SHARED = 0.3
"""Share of a cache that others use too, even when only one thread runs (measured: tiles that take
most of it are partly read from memory)."""

NAMED = 0.5
"""The same of what a machine's cores may count on, where it names more (measured on 2 cores that
named 480 MiB, of which memory was as far as from 28 MB on: copies of 16 MB instead of 43 made a
matrix product of 4000 a seventh faster, 20 and 32 MB did no more)."""

SCATTERED = 2.5
"""Times that writing past the caches takes longer line by line than in order (measured)."""

WRITING = 0.4
"""Share of the time of arithmetic below which writing C in any order is of no account."""

CLOSE = 1.02
"""Integer tiles within this factor of the continuous optimum are good enough to stop at, and those
within it of the fastest are as fast."""

SHORT = 0.1
"""Share of a plan's time that short runs in memory may cost before other loops are looked at."""

SHORTEST = 0.2
"""The same for a plan that is taken, if there is another: what runs as short as that cost is no
longer told by their lines."""

LITTLE = 0.02
"""Share of the time of all levels together below which a difference is of no account: the plan is
taken whose tiles take least room then. Pages that the CPU knows where to find are few."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tiling that may become the plan.

    Parameters
    ----------
    optimum
        The continuous optimum that it came from.
    integral
        Its tiles over classes.
    nest, price
        Over letters, with what is read in place.
    waits
        Seconds lost at the ends of runs in memory.
    room
        Bytes of the tensors that the outermost tile touches.

    Examples
    --------
    >>> from tilesolve.planning import plan
    >>> cost = plan("ik-ij-jk", 512, "i7-6700k", cache=False).price
    >>> Candidate(None, None, None, cost, waits=0.0, room=0.0).seconds > cost.seconds
    True
    """

    optimum: Optimum
    integral: Integral
    nest: Nest
    price: Price
    waits: float
    room: float

    @property
    def seconds(self) -> float:
        """The time that candidates are compared by: of all levels together, and of waiting."""
        return self.waits + float(altogether(np.array(self.price.ranking)))


def solve(problem: Problem, machine: Machine, threads: int, overwrite: bool) -> Plan:
    """Return the best plan, without any cache: of all letters that threads may divide.

    Examples
    --------
    >>> problem = Problem.of("ik-ij-jk", {"i": 2000, "j": 40, "k": 40})
    >>> solve(problem, Machine.load("i7-6700k"), threads=2, overwrite=True).split
    'i'
    """
    if type(threads) is not int or not threads >= 1:
        raise MachineError(f"threads must be a positive integer, got {threads!r}")
    places = stores(machine, threads)
    output: Output = "accumulate"
    if overwrite:
        kept = min(places[-1].capacity, machine.lasting)
        output = "stream" if _passes_by(problem, kept) else "store"
    plans = [
        _solve(problem, machine, threads, split, output) for split in _splits(problem, threads)
    ]
    return min(plans, key=lambda found: found.seconds)


def _passes_by(problem: Problem, kept: float) -> bool:
    """Return whether the last cache, of which so many bytes count, cannot keep the output.

    Operands push it out, too: that counts where sums are so short that each element is written
    once, as it would not be read again.
    """
    summed = set(problem.sizes) - set(problem.spec.output.letters)
    once = prod(problem.sizes[letter] for letter in summed) <= SUMS
    return (sum(problem.bytes) if once else problem.bytes[0]) > kept


def _splits(problem: Problem, threads: int) -> list[str | None]:
    """Return the letters that threads may divide: the longest one of each class of the output."""
    if threads == 1:
        return [None]
    groups = [c.letters for c in problem.classes if 0 in c.tensors]
    longest = [max(letters, key=problem.sizes.__getitem__) for letters in groups]
    return [i for i in longest if problem.sizes[i] > 1] or [None]


def share_of(problem: Problem, split: str | None, threads: int) -> Problem:
    """Return the part of a problem that one of several threads computes.

    Examples
    --------
    >>> share_of(Problem.of("ik-ij-jk", 10), "i", 3).sizes["i"]
    4
    """
    if split is None:
        return problem
    sizes = dict(problem.sizes)
    sizes[split] = -(-sizes[split] // threads)
    return Problem.of(problem.spec, sizes, problem.dtype)


def setting_of(
    share: Problem, machine: Machine, threads: int, output: Output, microkernel: Microkernel
) -> Setting:
    """Return what to solve for; sizes of 0 count as 1, since a program needs logarithms.

    Examples
    --------
    >>> machine, share = Machine.load("i7-6700k"), Problem.of("ik-ij-jk", 10)
    >>> setting_of(share, machine, 1, "store", register_tile(share, machine)).packed
    ('L3', 'L3')
    """
    sizes = {letter: max(1, extent) for letter, extent in share.sizes.items()}
    places = _tiled(stores(machine, threads), share, machine, threads, microkernel)
    outermost = places[-1].name if len(places) > 1 else None
    whole = Problem.of(share.spec, sizes, share.dtype)
    fused = fuse(whole)
    written = SCATTERED * whole.bytes[0] / (machine.memory.stream or machine.memory.bandwidth)
    scattered = output == "stream" and written > WRITING * whole.flops / machine.peak(whole.dtype)
    # Classes have no layout, so that their volumes are counted in elements, not in lines.
    elements = tuple(replace(place, line=1) for place in places)
    lines = line_sides(whole, places[-1].line)
    usual = Setting(
        fused,
        elements,
        microkernel,
        machine.peak(share.dtype) * microkernel.efficiency,
        machine.frequency,
        (outermost,) * len(share.spec.operands),
        output,
        tiles_of(whole, fused, [lines], places[-1]),
        even=tuple(
            (index, even_sizes(whole, letters, places[-1].line))
            for index, letters in fused.groups
            if len(letters) > 1
        ),
    )
    for run in RUNS if scattered and len(places) > 1 else ():
        sides = run_sides(whole, run)
        nearest = tiles_of(whole, fused, [sides], places[1])
        last = tiles_of(whole, fused, [lines, sides], places[-1])
        found = replace(usual, lines=last or usual.lines, runs=nearest)
        if nearest and _satisfiable(found):
            return found
    # A register tile that covers much of a letter may leave no room for whole lines.
    return usual if not usual.lines or _satisfiable(usual) else replace(usual, lines=())


def _satisfiable(setting: Setting) -> bool:
    """Return whether the smallest tiles keep all limits, with each class innermost everywhere."""
    try:
        programs = [
            formulate(setting, (first,) * setting.levels) for first in orders(setting.fused)
        ]
    except SolverError:
        return False
    return all(
        limit.at({tile: least for tile, (least, _) in program.variables.items()}) <= 1
        for program in programs
        for limit in program.limits.values()
    )


def _tiled(
    places: Sequence[Store],
    share: Problem,
    machine: Machine,
    threads: int,
    microkernel: Microkernel,
) -> tuple[Store, ...]:
    """Return the stores that get a tile of their own, with the room that tiles may take there.

    Where the second cache feeds a register tile as fast as it computes, a tile for the nearest
    one gains nothing, and to fit there it would cut the sum short: calls cost more than that
    (measured: a matrix product has 0.7 of the peak with sums of 106, 0.9 with 384).
    """
    rows, columns = microkernel.rows, microkernel.columns
    seconds = 2 * rows * columns / (machine.peak(share.dtype) * microkernel.efficiency)
    needed = (rows + columns) * share.itemsize / seconds
    if len(places) > 2 and places[1].bandwidth >= FEEDS * needed:
        fed = places[1]
        nearest = replace(places[0], server=fed.server, bandwidth=fed.bandwidth, read=fed.read)
        places = (nearest, *places[2:])
    sharing = {level.name: level.shared_by for level in machine.caches}

    def room(place: Store) -> float:
        cores = sharing[place.name]
        counted = NAMED * machine.lasting / min(threads, cores)
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


def _solve(
    problem: Problem,
    machine: Machine,
    threads: int,
    split: str | None,
    output: Output,
) -> Plan:
    from tilesolve.planning import Plan, Search

    share = share_of(problem, split, threads)
    setting, relaxed = _relaxed(share, machine, threads, output)
    found = _best(setting, relaxed, share, machine, threads)
    best, integral = found.optimum, found.integral
    runner_up = next((other for other in relaxed.optima if other.choice != best.choice), None)
    return Plan(
        problem,
        machine,
        threads,
        split,
        output,
        setting.microkernel,
        best.choice,
        integral.chains,
        found.nest,
        found.price,
        Search(
            relaxed.considered,
            relaxed.pruned,
            relaxed.solved,
            relaxed.permutations,
            tuple(best.times.items()),
            tuple(best.tiles.items()),
            tuple(best.elasticities.items()),
            best.spread,
            integral.seconds,
            integral.priced,
            (runner_up.choice, runner_up.seconds) if runner_up else None,
        ),
    )


def _relaxed(
    share: Problem, machine: Machine, threads: int, output: Output
) -> tuple[Setting, Relaxation]:
    """Return what to solve for, and its continuous optima.

    A letter of several subscripts may have no room for the best register tile: then a narrower one
    is taken that has.
    """
    starts = 1 if _convex(share.spec) else STARTS
    microkernel = register_tile(share, machine, streams=output == "stream")
    setting = setting_of(share, machine, threads, output, microkernel)
    try:
        return setting, relax(setting, starts=starts)
    except SolverError:
        for narrower in _narrower(microkernel, max(1, lanes(share.dtype, machine.vector_bits))):
            setting = setting_of(share, machine, threads, output, narrower)
            if _satisfiable(setting):
                return setting, relax(setting, starts=starts)
        raise


def _narrower(microkernel: Microkernel, group: int) -> Iterator[Microkernel]:
    """Yield register tiles of fewer vectors, then of fewer columns."""
    rows, columns = microkernel.rows, microkernel.columns
    while rows > group:
        rows = max(group, rows // 2 // group * group)
        yield replace(microkernel, rows=rows)
    while columns > 1:
        columns //= 2
        yield replace(microkernel, rows=rows, columns=columns)


def _best(
    setting: Setting, relaxed: Relaxation, share: Problem, machine: Machine, threads: int
) -> Candidate:
    """Return the best tiling of the best continuous optimum.

    That optimum is left unless rounding costs it much, or all its tilings have short runs in
    memory: then a runner-up may round better, or be as fast with longer ones. Of tilings as fast
    by the slowest level, which is what programs minimise, all levels decide together.
    """
    found: list[Candidate] = []
    failed: list[SolverError] = []
    for optimum in relaxed.optima[:ROUNDED]:
        try:
            integral = repair(setting, optimum.choice, optimum.tiles)
        except SolverError as error:
            failed.append(error)
            continue
        lighter = relieved(setting, optimum.choice, optimum.tiles, integral)
        tilings = (integral, lighter, *resized(setting, optimum.choice, lighter))
        candidates = [
            _candidate(setting, optimum, tiling, share, machine, threads)
            for tiling in {other.chains: other for other in tilings}.values()
            if tiling.score <= CLOSE * integral.score
        ]
        found += candidates
        close = integral.seconds <= CLOSE * relaxed.best.seconds
        if close and any(one.waits <= SHORT * one.price.seconds for one in candidates):
            break
    if not found:
        raise failed[0]
    fastest = min(one.integral.score for one in found)
    equal = [one for one in found if one.integral.score <= CLOSE * fastest]
    equal = [one for one in equal if one.waits <= SHORTEST * one.price.seconds] or equal
    shortest = min(one.seconds for one in equal)
    return min(
        (one for one in equal if one.seconds <= (1 + LITTLE) * shortest),
        key=lambda one: (one.room, one.seconds),
    )


def _candidate(
    setting: Setting,
    optimum: Optimum,
    integral: Integral,
    share: Problem,
    machine: Machine,
    threads: int,
) -> Candidate:
    """Return a tiling over letters, and what it costs."""
    nest, cost = _packing(share, setting, integral.nest, machine, threads)
    tile = _outermost(nest)
    room = float(sum(footprint(share, tensor, tile, 1) for tensor in share.spec.tensors))
    return Candidate(optimum, integral, nest, cost, _waits(share, nest, cost, machine), room)


def _waits(share: Problem, nest: Nest, cost: Price, machine: Machine) -> float:
    """Return the seconds lost at the ends of the runs in which memory is read and written.

    What is packed is read in the outermost tile's runs, what is not in those of the nearest: other
    loops may come between.
    """
    last, nearest = _outermost(nest), dict(nest.bands[min(1, len(nest.bands) - 1)].box)
    tiles = [last, *(last if copy else nearest for copy in nest.packed)]
    runs = [
        run_of(share, tensor, tile) for tensor, tile in zip(share.spec.tensors, tiles, strict=True)
    ]
    wasted = [
        volume * float(run_waste(run, machine.memory.line, share.itemsize))
        for volume, run in zip(cost.levels[-1].volumes, runs, strict=True)
    ]
    return float(stores(machine)[-1].seconds(wasted))


def _outermost(nest: Nest) -> dict[str, int]:
    """Return the box of the last cache's tile."""
    return dict(nest.bands[max(0, len(nest.bands) - 2)].box)


def _convex(spec: Spec) -> bool:
    return all(len(s.terms) == 1 for tensor in spec.tensors for s in tensor.subscripts)


def _packing(
    share: Problem, setting: Setting, tiles: Nest, machine: Machine, threads: int
) -> tuple[Nest, Price]:
    """Return a nest over letters that packs only what repays it, and its price.

    The rows of the register tile are loaded and stored as vectors: an operand that they index
    can be read in place only if its unit-stride letter is the output's. And a call that used a
    few elements of each line would wait for lines more than it computes.
    """
    fused, microkernel = setting.fused, setting.microkernel
    rows = fused.letters(fused.rows) if fused.rows else ()
    vector = share.spec.output.letters[-1:]
    line, vectors = machine.memory.line, max(1, lanes(share.dtype, machine.vector_bits))
    options = []
    for operand, copy in zip(share.spec.operands, tiles.packed, strict=True):
        loaded = any(letter in rows for letter in operand.letters)
        unit = operand.subscripts[-1] if operand.subscripts else None
        along = unit is not None and unit.plain and unit.letters == vector
        options.append([copy, None] if copy and (along or not loaded) else [copy])
    priced = []
    for packed in product(*options):
        candidate = unfuse(share, fused, replace(tiles, packed=packed), line, vectors)
        if packed != tiles.packed and not _readable(share, candidate, machine):
            continue
        cost = price(share, candidate, machine, microkernel=microkernel, threads=threads)
        priced.append((score_of(np.array(cost.ranking)), candidate, cost))
    _, chosen, cost = min(priced, key=lambda found: found[0])
    return chosen, cost


def _readable(share: Problem, nest: Nest, machine: Machine) -> bool:
    """Return whether a call does well with what it reads in place.

    It should use whole lines, and these should not share a few sets of the nearest cache: steps
    that are a multiple of a way apart all fall into one (measured: twice the time).
    """
    cell, line = dict(nest.bands[0].box), machine.memory.line
    for number, copy in enumerate(nest.packed, start=1):
        if copy is None:
            run = run_of(share, share.spec.tensors[number], cell)
            if run < min(line, share.bytes[number]):
                return False
            if not _spread(lines_of(share, number, cell, line), machine):
                return False
    return True


def _spread(lines: NDArray[np.int64], machine: Machine) -> bool:
    """Return whether some lines have room in the nearest cache, or are in most of its sets."""
    nearest = machine.levels[0]
    if nearest.capacity is None or nearest.ways is None:
        return True
    sets = max(1, nearest.capacity // (nearest.line * nearest.ways))
    _, counts = np.unique(lines % sets, return_counts=True)
    return bool(counts.max() <= nearest.ways or len(counts) >= min(sets, len(lines)) / 2)
