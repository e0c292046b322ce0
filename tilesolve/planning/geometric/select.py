"""The choice among integer tilings: what each costs over letters, and which becomes the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.model import Machine
from tilesolve.model.footprints import footprint
from tilesolve.model.lines import lines_of, run_of, run_waste
from tilesolve.model.nest import Nest
from tilesolve.model.pages import PAGE, runs_of
from tilesolve.model.price import Price, price, stores
from tilesolve.planning.geometric.integers import relieved, repair, resized, trivial_tilings, whole
from tilesolve.planning.geometric.loop_choices import choices
from tilesolve.planning.geometric.program import Setting, formulate
from tilesolve.planning.geometric.relaxation import Optimum, Relaxation, optimum
from tilesolve.planning.geometric.tilings import (
    Integral,
    altogether,
    integral_of,
    score_of,
    times_of,
)
from tilesolve.planning.letter_boxes import unfuse
from tilesolve.planning.policy import (
    ROUNDED_OPTIMA,
    SHORT_RUN_LIMIT,
    SHORT_RUN_SHARE,
    TIE_WEIGHT,
    TIME_CONCESSION,
    TIME_TOLERANCE,
)
from tilesolve.planning.prefetch import UNASKED, staying_side, unasked
from tilesolve.planning.register_tile import nearby

VISIT = 15e-9
"""Seconds from one run in pages of its own to the next one, at least: bandwidth is for longer runs
(measured on a Zen 4: `abcde-efcad-bf` takes 10 ns more for each run of 256 bytes than with runs of
512, and with longer ones as much as with these)."""


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
    >>> from tilesolve.plans.plan import plan
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


def best_candidate(
    setting: Setting, relaxed: Relaxation, share: Problem, machine: Machine, threads: int
) -> Candidate:
    """Return the best tiling of the best continuous optimum.

    That optimum is left unless rounding costs it much, or all its tilings have short runs in
    memory: then a runner-up may round better, or be as fast with longer ones. Of tilings as fast
    by the slowest level, which is what programs minimise, all levels decide together, and of those
    as fast then room, up to a hundredth of a plan's time. Beside one tile for the whole problem, or
    the smallest ones, that must be worth it: what is slower by more than what settles ties takes
    less by all levels.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> from tilesolve.planning.geometric.relaxation import relax
    >>> found = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> relaxed = relax(found.setting)
    >>> best = best_candidate(found.setting, relaxed, found.share, found.machine, threads=1)
    >>> best.nest == found.nest
    True
    """
    found: list[_Rounded] = []
    for one in relaxed.optima[:ROUNDED_OPTIMA]:
        found.append(_rounded(setting, relaxed, one, share, machine, threads))
        if found[-1].close:
            break
    else:
        fastest = min((tiling.integral.score for tiling in _candidates(found)), default=np.inf)
        if fastest > (1 + TIME_TOLERANCE) * relaxed.best.seconds:
            others = _ruled_out(setting, relaxed, fastest)
            found += [_rounded(setting, relaxed, one, share, machine, threads) for one in others]
    candidates = _candidates(found)
    if not candidates:
        raise next(rounded.error for rounded in found if rounded.error)
    trivial = [tiling for rounded in found for tiling in rounded.trivial]
    fastest = min(one.integral.score for one in candidates)
    equal = [
        one
        for one in candidates
        if one.integral.score <= (1 + TIME_TOLERANCE) * fastest
        and all(_worth(one.integral, other) for other in trivial)
    ]
    equal = [one for one in equal if one.waits <= SHORT_RUN_LIMIT * one.price.seconds] or equal
    shortest = min(one.seconds for one in equal)
    alike = [one for one in equal if one.seconds <= (1 + TIME_TOLERANCE) * shortest]
    quickest = min(one.price.seconds for one in alike)
    alike = [one for one in alike if one.price.seconds <= (1 + TIME_CONCESSION) * quickest]
    least = min(one.waits for one in alike) + TIME_TOLERANCE * shortest
    return min(
        (one for one in alike if one.waits <= least), key=lambda one: (one.room, one.seconds)
    )


@dataclass(frozen=True, slots=True)
class _Rounded:
    """The tilings of one continuous optimum, or why there are none.

    It is close where rounding costs it little, and some tiling has long runs in memory.
    """

    candidates: Sequence[Candidate] = ()
    trivial: Sequence[Integral] = ()
    close: bool = False
    error: SolverError | None = None


def _rounded(
    setting: Setting,
    relaxed: Relaxation,
    optimum: Optimum,
    share: Problem,
    machine: Machine,
    threads: int,
) -> _Rounded:
    """Return the tilings of an optimum that are about as fast as its best one."""
    if (one := whole(setting, optimum.choice)) is not None:
        return _Rounded([_candidate(setting, optimum, one, share, machine, threads)], close=True)
    try:
        integral = repair(setting, optimum.choice, optimum.tiles)
    except SolverError as error:
        return _Rounded(error=error)
    lighter = relieved(setting, optimum.choice, optimum.tiles, integral)
    tilings = (integral, lighter, *resized(setting, optimum.choice, lighter))
    candidates = [
        _candidate(setting, optimum, tiling, share, machine, threads)
        for tiling in {other.chains: other for other in tilings}.values()
        if tiling.score <= (1 + TIME_TOLERANCE) * integral.score
    ]
    close = integral.seconds <= (1 + TIME_TOLERANCE) * relaxed.best.seconds and any(
        one.waits <= SHORT_RUN_SHARE * one.price.seconds for one in candidates
    )
    return _Rounded(candidates, _trivial(setting, optimum), close)


def _candidates(found: Sequence[_Rounded]) -> list[Candidate]:
    """Return the tilings of all optima."""
    return [one for rounded in found for one in rounded.candidates]


def _ruled_out(setting: Setting, relaxed: Relaxation, fastest: float) -> list[Optimum]:
    """Return the optimum of the choice that a trivial tiling is fastest of, if that is faster yet.

    Programs are solved as if a cache held its tile and nothing else. What else stays in it counts
    in prices, so that a choice that no program is better of may have the better integer tiles. It
    is left out where its program cannot be solved.
    """
    solved = {one.choice for one in relaxed.optima}
    trivial = trivial_tilings(setting)
    scores = {
        choice: float(score_of(times_of(setting, choice, trivial)).min())
        for choice in choices(setting)
        if choice not in solved
    }
    best = min(scores, key=scores.__getitem__, default=())
    if scores.get(best, np.inf) >= fastest:
        return []
    try:
        return [optimum(formulate(setting, best), best)]
    except SolverError:
        return []


def _trivial(setting: Setting, optimum: Optimum) -> list[Integral]:
    """Return the trivial tilings; the times of those that break a limit are infinite."""
    tilings = trivial_tilings(setting)
    times = times_of(setting, optimum.choice, tilings)
    return [
        integral_of(setting, optimum.choice, tiling, taken, len(tilings))
        for tiling, taken in zip(tilings, times.T, strict=True)
    ]


def _worth(one: Integral, other: Integral) -> bool:
    """Return whether a tiling is as fast as another one, or takes less by all levels."""
    if one.seconds <= (1 + TIE_WEIGHT) * other.seconds:
        return True
    return bool(altogether(np.array(one.times)) < altogether(np.array(other.times)))


def _candidate(
    setting: Setting,
    optimum: Optimum,
    integral: Integral,
    share: Problem,
    machine: Machine,
    threads: int,
) -> Candidate:
    """Return a tiling over letters, and what it costs.

    Where packing would take longer, as lines cannot be asked for before, smaller boxes whose lines
    can be are taken if they cost less than that.
    """

    def within(most: Mapping[str, int]) -> Candidate:
        nest, cost = _packing(share, setting, integral.nest, machine, threads, most)
        tile = _outermost(nest)
        room = float(sum(footprint(share, tensor, tile, 1) for tensor in share.spec.tensors))
        return Candidate(optimum, integral, nest, cost, waits(share, nest, cost, machine), room)

    usual = within({})
    box, cell = _outermost(usual.nest), dict(usual.nest.bands[0].box)
    most: dict[str, int] = {}
    for number, seconds in _unasked(share, usual.nest, usual.price, machine).items():
        if seconds > TIME_TOLERANCE * usual.seconds:
            most |= staying_side(share, number, box, cell, machine)
    smaller = within(most) if most else usual
    return min(usual, smaller, key=lambda one: one.seconds)


def waits(share: Problem, nest: Nest, cost: Price, machine: Machine) -> float:
    """Return the seconds lost at the ends of the runs in which memory is read and written.

    What is packed is read in the outermost tile's runs, what is not in those of the nearest: other
    loops may come between. Runs of an operand that are pages apart take some time each.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> found = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> waits(found.share, found.nest, found.price, found.machine) < found.seconds
    True
    """
    last, nearest = _outermost(nest), dict(nest.bands[min(1, len(nest.bands) - 1)].box)
    tiles = [last, *(last if copy else nearest for copy in nest.packed)]
    memory, volumes = stores(machine)[-1], cost.levels[-1].volumes
    wasted, visits = [], 0.0
    for t, (tensor, tile) in enumerate(zip(share.spec.tensors, tiles, strict=True)):
        run = run_of(share, tensor, tile)
        wasted.append(volumes[t] * float(run_waste(run, machine.memory.line, share.itemsize)))
        if t:
            size = footprint(share, tensor, tile, 1)
            runs = runs_of(share.strides(t), tile, PAGE)
            each = VISIT - float(memory.seconds([0.0, size / runs]))
            visits += volumes[t] / size * runs * max(0.0, each)
    unasked = sum(_unasked(share, nest, cost, machine).values())
    return float(memory.seconds(wasted)) + visits + unasked


def _unasked(share: Problem, nest: Nest, cost: Price, machine: Machine) -> dict[int, float]:
    """Return for each operand whose lines are not asked for before how much longer packing takes.

    In seconds, by the operand's number.
    """
    volumes, each = cost.levels[-1].volumes, UNASKED / machine.frequency / machine.memory.line
    return {
        number: volumes[number] * each
        for number, copy in enumerate(nest.packed, start=1)
        if copy and unasked(share, number, _outermost(nest), machine)
    }


def _outermost(nest: Nest) -> dict[str, int]:
    """Return the box of the last cache's tile."""
    return dict(nest.bands[max(0, len(nest.bands) - 2)].box)


def _packing(
    share: Problem,
    setting: Setting,
    tiles: Nest,
    machine: Machine,
    threads: int,
    most: Mapping[str, int],
) -> tuple[Nest, Price]:
    """Return a nest over letters that packs only what repays it, and its price.

    The rows of the register tile are loaded and stored as vectors: an operand that they index
    can be read in place only if its unit-stride letter is the output's. And a call that used a
    few elements of each line would wait for lines more than it computes.
    """
    fused, microkernel = setting.fused, setting.microkernel
    rows = fused.letters(fused.rows) if fused.rows else ()
    vector = share.spec.output.letters[-1:]
    line, vectors = machine.memory.line, lanes(share.dtype, machine.vector_bits)
    hinders = machine.avoids_aliased_stores(share.dtype)
    options = []
    for operand, copy in zip(share.spec.operands, tiles.packed, strict=True):
        loaded = any(letter in rows for letter in operand.letters)
        unit = operand.subscripts[-1] if operand.subscripts else None
        along = unit is not None and unit.plain and unit.letters == vector
        options.append([copy, None] if copy and (along or not loaded) else [copy])
    priced = []
    for packed in product(*options):
        kept = replace(tiles, packed=packed)
        candidate = unfuse(share, fused, kept, line, vectors, hinders=hinders, most=most)
        if packed != tiles.packed and not _readable(share, candidate, machine):
            continue
        cost = price(share, candidate, machine, microkernel=microkernel, threads=threads)
        priced.append((score_of(np.array(cost.ranking)), candidate, cost))
    _, chosen, cost = min(priced, key=lambda found: found[0])
    return chosen, cost


def _readable(share: Problem, nest: Nest, machine: Machine) -> bool:
    """Return whether a call does well with what it reads in place.

    It should use whole lines, and these should not share a few sets of the nearest cache: steps
    that are a multiple of a way apart all fall into one (measured: twice the time). Where all is in
    the second cache anyway, that costs less than a copy (measured on a Zen 4: a product of 8 rows
    with 128 by 128 takes 7.2 us without and 9.4 with it).
    """
    cell, line = dict(nest.bands[0].box), machine.memory.line
    near = nearby(share, machine)
    for number, copy in enumerate(nest.packed, start=1):
        if copy is None:
            run = run_of(share, share.spec.tensors[number], cell)
            if run < min(line, share.bytes[number]):
                return False
            if not near and not _spread(lines_of(share, number, cell, line), machine):
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
