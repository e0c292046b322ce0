"""The choice among integer tilings: what each costs over letters, and which becomes the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Self

import numpy as np

from tilesolve.constants.policy import (
    LATE_OPTIMA,
    LATE_SHARE,
    PREFETCHED_WAIT_SHARE,
    ROUND_GAIN,
    ROUNDED_OPTIMA,
    SHORT_RUN_SHARE,
    TIME_TOLERANCE,
)
from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.model import Machine
from tilesolve.model.access import touched_bytes
from tilesolve.model.lines import bytes_at_ends
from tilesolve.model.nest import CopyKind, Nest
from tilesolve.model.price import Price, compute_price, list_levels
from tilesolve.model.score import score_price, score_times
from tilesolve.planning.call_runs import even_tiles
from tilesolve.planning.geometric.integers import (
    repair,
    resize_outermost,
    single_tile,
    trivial_tilings,
)
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.optima import Optimum, optimum
from tilesolve.planning.geometric.program import formulate, is_convex
from tilesolve.planning.geometric.relaxation import Relaxation, relax
from tilesolve.planning.geometric.tilings import (
    Integral,
    integral_of,
    nest_of,
    survey,
    times_of,
)
from tilesolve.planning.in_place import is_cheap_in_place, score_without
from tilesolve.planning.letter_boxes import box_letters
from tilesolve.planning.prefetch import cut_to_stay, is_packed_late
from tilesolve.planning.runner import Runner
from tilesolve.planning.setting import Setting
from tilesolve.planning.waiting import (
    copy_seconds,
    late_line_seconds,
    late_seconds,
    lengthen_runs,
    nearest_tile,
    outermost_tile,
    run_seconds,
    store_seconds,
    waiting_seconds,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tiling that may become the plan.

    Parameters
    ----------
    optimum
        The continuous optimum that it came from.
    integral
        Its tiles over classes.
    nest, nearest, price
        Over letters, with what is read in place, and the box of the nearest tile.
    waiting
        Seconds lost at the ends of runs in memory.
    storing
        Seconds by which stores past the caches delay calls.
    taken
        Bytes of the tensors that the outermost tile touches.
    overlap
        Share of the time of other levels that shows beside the slowest one's.
    by_ipopt
        Programs that IPOPT was asked for after those of the choices.
    """

    optimum: Optimum
    integral: Integral
    nest: Nest
    nearest: Mapping[str, int]
    price: Price
    waiting: float
    storing: float
    taken: float
    overlap: float
    by_ipopt: int = 0

    @property
    def score(self) -> float:
        """What candidates are compared by."""
        return score_price(self.price, self.overlap, self.waiting + self.storing)


@dataclass(frozen=True, slots=True)
class Target:
    """What tilings are made and priced for: a thread's share of a problem, on a machine.

    Parameters
    ----------
    setting
        What the program is written for.
    share
        What one thread computes.
    machine, threads
        Where, and how many work at once.
    runner
        What runs it.
    known
        The prices of nests so far: tilings over classes may have the same boxes of letters.
    candidates
        What tilings over classes have become so far: several programs may have the same ones.
    """

    setting: Setting
    share: Problem
    machine: Machine
    threads: int
    runner: Runner
    known: dict[Nest, Price] = field(default_factory=dict, compare=False)
    candidates: dict[Nest, Candidate] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, setting: Setting, share: Problem, machine: Machine, threads: int) -> Self:
        """Return the target of a setting that was made for such a share."""
        return cls(setting, share, machine, threads, Runner.of(share, machine))

    def price(self, nest: Nest) -> Price:
        """Return what a nest costs; none is priced twice."""
        if nest not in self.known:
            self.known[nest] = compute_price(
                self.share,
                nest,
                self.machine,
                microkernel=self.setting.microkernel,
                threads=self.threads,
            )
        return self.known[nest]


def best_candidate(target: Target, relaxed: Relaxation) -> Candidate:
    """Return the tiling of the least score; of those that score alike the one of the least room.

    Alike are those of one optimum. Runners-up of the best continuous optimum are looked at where
    rounding costs that much, or all its tilings have short runs in memory, and at others where the
    best one waits for lines. See ``docs/decisions/020-search-cut-offs.md``.

    Raises
    ------
    SolverError
        If no tiling keeps all limits.
    """
    found: list[_Rounding] = []
    for one in relaxed.optima[:ROUNDED_OPTIMA]:
        found.append(_round(target, relaxed, one))
        if found[-1].close:
            break
    else:
        fastest = min((one.integral.seconds for one in _candidates(found)), default=np.inf)
        if fastest > (1 + TIME_TOLERANCE) * relaxed.best.seconds:
            least = min((one.integral.score for one in _candidates(found)), default=np.inf)
            others = _ruled_out(target.setting, relaxed, least)
            found += [_round(target, relaxed, one) for one in others]
    if not _candidates(found):
        raise next(rounded.error for rounded in found if rounded.error)
    best = min((one for one in found if one.candidates), key=lambda one: one.least)
    limit = (1 - LATE_SHARE) * best.least
    later, asked = _as_if_late(target, min(best.candidates, key=lambda one: one.score), limit)
    waited = [one for one in later if one.candidates and one.least < limit]
    best = min((best, *waited), key=lambda one: one.least)
    least = best.least
    alike = [one for one in best.candidates if one.score <= (1 + TIME_TOLERANCE) * least]
    waiting = min(one.waiting for one in alike) + TIME_TOLERANCE * least
    alike = [one for one in alike if one.waiting <= waiting]
    chosen = min(alike, key=lambda one: (one.taken, one.score))
    if any(best is one for one in waited):
        chosen = _restate(target.setting, chosen)
    if chosen.optimum not in relaxed.optima:
        asked += chosen.optimum.by_ipopt
    return replace(chosen, by_ipopt=asked)


def list_candidates(target: Target, relaxed: Relaxation) -> list[Candidate]:
    """Return the tilings of all continuous optima: those about as fast as the best of each."""
    return _candidates([_round(target, relaxed, one) for one in relaxed.optima])


@dataclass(frozen=True, slots=True)
class _Rounding:
    """The tilings of one continuous optimum, or why there are none.

    It is close where rounding costs it little, and some tiling has long runs in memory.
    """

    candidates: Sequence[Candidate] = ()
    close: bool = False
    error: SolverError | None = None

    @property
    def least(self) -> float:
        """The least score of its tilings."""
        return min(one.score for one in self.candidates)


def _round(
    target: Target, relaxed: Relaxation, optimum: Optimum, limit: float = np.inf
) -> _Rounding:
    """Return the tilings of an optimum that are about as fast as its best one.

    Those with other outermost tiles are looked at if one of the others scores less than a limit.
    """
    setting, choice = target.setting, optimum.choice
    if (one := single_tile(setting, choice)) is not None:
        return _Rounding([_candidate(target, optimum, one)], close=True)
    try:
        nearest, best = repair(setting, choice, optimum.tiles)
    except SolverError as error:
        return _Rounding(error=error)
    longest = (1 + TIME_TOLERANCE) * min(nearest.seconds, best.seconds)
    tilings = {other.chains: other for other in (nearest, best)}
    candidates = [
        _candidate(target, optimum, tiling)
        for tiling in tilings.values()
        if tiling.seconds <= longest or tiling is best
    ]
    if min(one.score for one in candidates) < limit:
        resized = {other.chains: other for other in resize_outermost(setting, choice, best)}
        candidates += [
            _candidate(target, optimum, tiling)
            for chains, tiling in resized.items()
            if tiling.seconds <= longest and chains not in tilings
        ]
    near = nearest.seconds <= (1 + TIME_TOLERANCE) * relaxed.best.seconds
    runs = any(one.waiting <= SHORT_RUN_SHARE * one.price.seconds for one in candidates)
    return _Rounding(candidates, close=near and runs)


def _as_if_late(target: Target, best: Candidate, limit: float) -> tuple[list[_Rounding], int]:
    """Return tilings as if all that comes from beyond the second cache waited, if the best's does.

    Tilings that score less than a limit are wanted. Programs that IPOPT was asked for are counted.

    What lines wait is in the score, and in no program: whether they come late is a matter of boxes.
    So nothing in a program speaks for tiles whose lines come in time. Those move little beyond the
    second cache, as the best ones do where each byte from there takes longer. The score decides.
    Where the best tiling is as good there as any can be, there is nothing to find.
    """
    share, machine, setting = target.share, target.machine, target.setting
    late = sum(late_seconds(share, best.nest, best.price, machine).values())
    if late <= LATE_SHARE * best.score or not is_convex(share.spec):
        return [], 0
    wait = PREFETCHED_WAIT_SHARE * late_line_seconds(machine) / machine.memory.line
    near = {level.name for level in (machine.first_cache, machine.second_cache) if level}
    places = tuple(place if place.server in near else place.delay(wait) for place in setting.places)
    slower = replace(target, setting=replace(setting, places=places))
    try:
        relaxed, found = relax(slower.setting), list[_Rounding]()
    except SolverError:  # IPOPT's: it was asked
        return [], 1
    times = times_of(slower.setting, best.optimum.choice, [dict(best.integral.chains)])
    if times.max() <= (1 + ROUND_GAIN) * relaxed.best.seconds:
        return [], relaxed.by_ipopt
    for one in relaxed.optima[:LATE_OPTIMA]:
        found.append(_round(slower, relaxed, one, limit))
        if found[-1].close:
            break
    return found, relaxed.by_ipopt


def _restate(setting: Setting, found: Candidate) -> Candidate:
    """Return a tiling of another setting's program with what a setting's own says of it."""
    choice, chains = found.optimum.choice, dict(found.integral.chains)
    times = times_of(setting, choice, [chains])[:, 0]
    return replace(
        found,
        optimum=optimum(formulate(setting, choice), choice),
        integral=integral_of(setting, chains, times, found.integral.priced),
    )


def _candidates(found: Sequence[_Rounding]) -> list[Candidate]:
    """Return the tilings of all optima."""
    return [one for rounded in found for one in rounded.candidates]


def _ruled_out(setting: Setting, relaxed: Relaxation, least: float) -> list[Optimum]:
    """Return the optimum of the unsolved choice with the best trivial tiling, if that scores less.

    Programs are solved as if a cache held its tile and nothing else. Prices also count what else
    stays in it, so that a choice which no program favours may have the better integer tiles. A
    choice whose program cannot be solved is left out.
    """
    solved = {one.choice for one in relaxed.optima}
    solved |= {one.loops for one in relaxed.ruled_out if one.level == 0}
    trivial, choices = trivial_tilings(setting), list_choices(setting)
    # Calls alone, which are as many for all choices, mostly take longer.
    bare = replace(setting, packed=(None,) * len(setting.packed), kinds=())
    if min(survey(bare, choices[0], [one])[0][-1, 0] for one in trivial) >= least:
        return []
    scores = {
        choice: min(
            float(score_times(times_of(setting, choice, [one])[:, 0], setting.overlap))
            for one in trivial
        )
        for choice in choices
        if choice not in solved
    }
    best = min(scores, key=scores.__getitem__, default=())
    if scores.get(best, np.inf) >= least:
        return []
    try:
        return [optimum(formulate(setting, best), best)]
    except SolverError:
        return []


def _candidate(target: Target, optimum: Optimum, integral: Integral) -> Candidate:
    """Return a tiling over letters, and what it costs.

    Where packing would wait for lines that cannot be prefetched, smaller boxes whose lines can be
    are taken if they cost less than that.
    """
    tiles = nest_of(target.setting, optimum.choice, dict(integral.chains))
    if (known := target.candidates.get(tiles)) is not None:
        return replace(known, optimum=optimum, integral=integral)
    share, machine = target.share, target.machine

    def within(most: Mapping[str, int]) -> Candidate:
        return made(*choose_copies(target, tiles, most))

    def made(nest: Nest, cost: Price, nearest: Mapping[str, int]) -> Candidate:
        tile = outermost_tile(nest)
        taken = float(sum(touched_bytes(share, tile)))
        waiting = waiting_seconds(share, nest, cost, machine, nearest)
        storing, overlap = store_seconds(share, nest, cost, machine), target.setting.overlap
        return Candidate(optimum, integral, nest, nearest, cost, waiting, storing, taken, overlap)

    usual = within({})
    box, register_box = outermost_tile(usual.nest), dict(usual.nest.bands[0].box)
    most: dict[str, int] = {}
    for number, seconds in late_seconds(share, usual.nest, usual.price, machine).items():
        cut = is_packed_late(share, number, box, machine)
        if cut and seconds > TIME_TOLERANCE * usual.score:
            most |= cut_to_stay(share, number, box, register_box, machine)
    found = [usual, within(most)] if most else [usual]
    others = [lengthen_runs(share, usual.nest)]
    if run_seconds(share, usual.nest, machine) > TIME_TOLERANCE * usual.score:
        others.append(even_tiles(usual.nest))
    for nest in map(target.runner.form, filter(None, others)):
        found.append(made(nest, target.price(nest), nearest_tile(nest)))
    target.candidates[tiles] = min(found, key=lambda one: one.score)
    return target.candidates[tiles]


def choose_copies(
    target: Target, tiles: Nest, most: Mapping[str, int]
) -> tuple[Nest, Price, dict[str, int]]:
    """Return a nest over letters that packs only what repays it, its price, and its nearest tile.

    The nest has the form in which it runs.

    The rows of the register tile are loaded and stored as vectors: an operand that they index
    can be read in place only if its unit-stride letter is the output's. And a call that used a
    few elements of each line would wait for lines more than it computes. Halves are read from
    micro-panels alone, in which they are float32. Calls that read columns in place may wait for
    stores of C that others do not wait for. What would score more even if copies saved all that
    they take is not priced, see `score_without`.

    Parameters
    ----------
    target
        What the nest is for.
    tiles
        A nest over classes.
    most
        Sides of some letters that no box but the whole problem exceeds.
    """
    share, machine = target.share, target.machine
    fused, places = target.setting.fused, list_levels(machine, target.threads)
    rows = fused.letters(fused.rows) if fused.rows else ()
    padded = {one.tensor for one in share.padding}
    options: list[list[tuple[str | None, CopyKind]]] = []
    for at, (operand, copy) in enumerate(zip(share.spec.operands, tiles.packed, strict=True)):
        loaded = any(letter in rows for letter in operand.letters)
        unit = operand.subscripts[-1] if operand.subscripts else None
        along = unit is not None and unit.plain and unit.letters == (share.lane,)
        readable = copy and (along or not loaded) and at + 1 not in padded
        readable = readable and not is_half(share.dtype)
        own = (copy, tiles.kind(at))
        options.append([own, (None, "in place")] if readable else [own])
    priced: list[tuple[float, Nest, Price, dict[str, int]]] = []
    waits: list[tuple[dict[int, float], float]] = []
    for copies in product(*options):
        packed = tuple(level for level, _ in copies)
        if priced:
            (least, usual, cost, _), (copying, storing) = priced[0], waits[0]
            without = score_without(target.setting, places, share, usual, cost, packed, copying)
            if without + storing > (1 + TIME_TOLERANCE) * least:
                continue
        kinds = tuple(kind for _, kind in copies) if tiles.kinds else ()
        candidate = box_letters(
            share,
            fused,
            replace(tiles, packed=packed, kinds=kinds),
            machine.memory.line,
            lanes(share.dtype, machine.vector_bits),
            avoids_aliased_stores=machine.avoids_aliased_stores(share.dtype),
            tlb_pages=machine.costs.tlb_pages,
            most=most,
            ends=bytes_at_ends(machine) if tiles.output == "stream" else 0.0,
        )
        if packed != tiles.packed and not is_cheap_in_place(share, candidate, machine):
            continue
        nearest, candidate = nearest_tile(candidate), target.runner.form(candidate)
        cost = target.price(candidate)
        priced_nest = share, candidate, cost, machine
        copying, storing = copy_seconds(*priced_nest), store_seconds(*priced_nest)
        waits.append((copying, storing))
        score = score_price(cost, target.setting.overlap, sum(copying.values()) + storing)
        priced.append((score, candidate, cost, nearest))
    _, chosen, cost, nearest = min(priced, key=lambda found: found[0])
    return chosen, cost, nearest
