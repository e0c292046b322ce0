"""Costs measured by running plans: what the price charges, solved for in what plans take.

Plans are those of the computer as it is detected, with defaults of all costs, so that what was
measured before decides nothing. Each has a price, which says how often a cost is charged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import cycle, product
from operator import mul
from time import perf_counter
from typing import Any

from tilesolve.calibration.staircase import capacity_of
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.microkernel import default_microkernel
from tilesolve.machine.model import Machine

ROUNDS = 20
"""Times that plans are timed in turns; the fastest of each counts, as others were disturbed."""

PACKINGS = 2
"""Runs in which packing is timed; the fastest counts."""

RUN_SECONDS = 1e-4
"""Seconds of calls, about, that are timed together."""

PLACES, PLACE_BYTES = 8, 37 * 64
"""Places of C, and bytes between them: 4 KiB aliasing of C with a micro-panel makes loads wait."""

FAR_RATIO, NEAR_RATIO = 2.0, 0.5
"""Bytes of all tensors: to the last cache, so that they come from memory, and to the second one, so
that they stay there."""

LEAST_EXTENT = 4
"""Extent at least of these."""

SHORT_SUM, LONG_SUM = 8, 24
"""Lengths of two sums: what a call costs beside its steps is where the line through them begins."""

FEW_TILES, MANY_TILES = 48, 120
"""Sides of C for these: what a call of Python costs is in both."""

WITHIN, AROUND = 2, 3
"""Register tiles along both sides of a nearest tile, and nearest tiles along both sides of C."""

LANES, LANE_SIDES = 16, 16
"""Batches, and rows and columns, of a product of vectors by vectors in the first cache."""

MORE_STEPS = 4
"""Steps that one epilogue has beyond the other one's."""

EPILOGUES = tuple(" ".join(["relu"] * steps) for steps in (2, 2 + MORE_STEPS))
"""Epilogues of one step and of more."""

SINGLE = "mnr-mk-krn"
SINGLE_SIZES = {"m": 60, "n": 14, "r": 11, "k": 60}
"""A contraction in whose register tiles rows are several n and no whole vectors of r."""

WINDOWED = "nkhw-nc[h+r][w+s]-kcrs"
WINDOWED_SIZES = {"n": 1, "k": 32, "h": 28, "w": 28, "c": 32, "r": 3, "s": 3}
"""A layer whose windows are copied."""


class PlanRuns:
    """Plans of this computer, each with arrays of its own.

    Parameters
    ----------
    frequency, peak
        Cycles, and flops of float64, in a second.
    limit
        Bytes that the tensors of a plan may take.
    """

    def __init__(self, frequency: float, peak: float, limit: int) -> None:
        self.frequency, self.peak, self._limit = frequency, peak, limit
        self._machine = Machine.detect()
        self.ready = cache(self._ready)

    def _ready(self, problem: Problem, **options: Any) -> PlanRun | None:  # noqa: ANN401 - of `plan`
        """Return a plan that has run once; None where memory does not suffice."""
        if sum(problem.bytes) > self._limit:
            return None
        return PlanRun(problem, self._machine, options)

    def far(self) -> PlanRun | None:
        """Return a contraction that packs what comes from memory."""
        return self.ready(_filling("abcd-dbea-ec", FAR_RATIO * self._machine.last_cache_bytes))

    def near(self) -> PlanRun | None:
        """Return one that packs what lies in the second cache; None where there is none."""
        second = self._machine.second_cache
        room = NEAR_RATIO * capacity_of(second) if second else 0
        return self.ready(_filling("mn-mk-nk", room)) if second else None

    def tiled(self) -> tuple[PlanRun | None, PlanRun | None]:
        """Return a product whose calls are one run, and the same with tiles of few calls."""
        tile, sides = default_microkernel(self._machine, "float64"), WITHIN * AROUND
        vectors = tile.rows // lanes("float64", self._machine.vector_bits)
        sizes = {"i": sides * tile.columns, "j": sides * tile.rows, "k": SHORT_SUM}
        product, call = (
            Problem.of("ij-ik-kj", sizes),
            f"T{SHORT_SUM},k,U{tile.columns},i,U{vectors},j,Vj",
        )
        whole, tiles = (
            self.ready(product, scheme=f"[{loops}{call}]")
            for loops in (
                f"T{sides},i,T{sides},j,",
                f"T{AROUND},i,T{AROUND},j,T{WITHIN},i,T{WITHIN},j,",
            )
        )
        return whole, tiles


def _filling(text: str, room: float) -> Problem:
    """Return a contraction of equal extents whose tensors take some room, or a little less."""
    extents = range(LEAST_EXTENT, 1 << 16)
    most = next(n for n in extents if sum(Problem.of(text, n + 1).bytes) > room)
    return Problem.of(text, most)


class TimedRun:
    """What runs again and again, so often at once that a clock tells how long it takes."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.run = run
        for _ in range(PLACES):
            run()
        begin = perf_counter()
        run()
        self._count = max(1, round(RUN_SECONDS / (perf_counter() - begin)))

    def seconds(self) -> float:
        """Return the seconds of a run, as the mean of a few."""
        begin = perf_counter()
        for _ in range(self._count):
            self.run()
        return (perf_counter() - begin) / self._count


class PlanRun(TimedRun):
    """A plan of one thread, its arrays, and how to run it."""

    def __init__(self, problem: Problem, machine: Machine, options: dict[str, Any]) -> None:
        from tilesolve.packing.buffers import allocate_pages
        from tilesolve.plans.plan import plan

        self.plan = plan(problem, machine=machine, threads=1, cache=False, **options)
        places = range(0, PLACES * PLACE_BYTES, PLACE_BYTES)
        block = allocate_pages(problem.bytes[0] + places[-1])
        outs = cycle(
            block[at : at + problem.bytes[0]].view(problem.dtype).reshape(problem.shape(0))
            for at in places
        )
        operands: list[Any] = [
            allocate_pages(problem.bytes[at]).view(problem.dtype).reshape(problem.shape(at))
            for at in (1, 2)
        ]
        for array in (block.view(problem.dtype), *operands):
            array[...] = 1
        if constant := options.get("constant"):
            at = "AB".index(constant)
            operands[at] = self.plan.prepare(operands[at], constant)
        first, second = operands
        super().__init__(lambda: self.plan(first, second, out=next(outs)))

    def packing(self) -> float:
        """Return the seconds of packing in a call, in the fastest of some runs."""
        from tilesolve.running.packing_time import time_packing

        return min(time_packing(self.plan.executor, self.run) for _ in range(PACKINGS))


def fastest(*runs: TimedRun) -> list[float]:
    """Return the seconds of some runs, each in the fastest of rounds in turns."""
    taken = [[one.seconds() for one in runs] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*taken, strict=True)]


Measure = Callable[[], float]


def make_pack_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the cycles of packing an element that lies in the second cache."""
    return _packing(runs, runs.near())


def make_single_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the cycles of packing an element by itself, beyond one in a vector."""
    from tilesolve.planning.waiting import single_share

    near, found = make_pack_probe(runs), runs.ready(Problem.of(SINGLE, SINGLE_SIZES))
    if near is None or found is None:
        return None
    solution, packed = found.plan.solution, found.plan.price.packed
    given = solution.nest, solution.machine
    shares = (single_share(solution.share, at, *given) for at in (1, 2))
    single = sum(map(mul, shares, packed))
    if not single:
        return None
    return lambda: (found.packing() * runs.frequency - near() * sum(packed)) / single


def make_near_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the share of packing from memory that is left there."""
    near, far = make_pack_probe(runs), _packing(runs, runs.far())
    return None if near is None or far is None else lambda: near() / far()


def make_late_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the cycles of packing a line that comes late from memory."""
    from tilesolve.planning.waiting import late_seconds

    near, far = make_pack_probe(runs), runs.far()
    if near is None or far is None:
        return None
    found = far.plan.solution
    waited = sum(late_seconds(found.share, found.nest, found.cost, found.machine).values())
    lines = waited * found.machine.frequency / found.machine.costs.late_line_cycles
    packed = sum(found.cost.packed)
    if not lines:
        return None
    return lambda: (far.packing() * runs.frequency - near() * packed) / lines


def _packing(runs: PlanRuns, found: PlanRun | None) -> Measure | None:
    """Return what measures cycles of packing an element; None where nothing is packed."""
    packed = sum(found.plan.price.packed) if found else 0.0
    if not found or not packed:
        return None
    return lambda: found.packing() * runs.frequency / packed


def make_window_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the cycles of copying an element of windows."""
    found = runs.ready(Problem.of(WINDOWED, WINDOWED_SIZES), constant="B")
    if not found or found.plan.nest.kind(0) != "windows":
        return None
    copied = found.plan.price.packed[0]
    return lambda: found.packing() * runs.frequency / copied


def make_lanewise_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures how much longer steps take where vectors multiply vectors."""
    sizes = {"m": LANE_SIDES, "n": LANE_SIDES, "z": LANES}
    less, more = (Problem.of("mnz-mkz-knz", sizes | {"k": k}) for k in (SHORT_SUM, LONG_SUM))
    share = runs.peak / (more.flops - less.flops)
    return _difference(runs.ready(less), runs.ready(more), share)


def make_epilogue_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the cycles of a step of an epilogue on an element of C."""
    problem = Problem.of("mn-mk-kn", {"m": MANY_TILES, "n": MANY_TILES, "k": SHORT_SUM})
    one, more = (runs.ready(problem, epilogue=text) for text in EPILOGUES)
    return _difference(one, more, runs.frequency / (MORE_STEPS * MANY_TILES**2))


def _difference(less: PlanRun | None, more: PlanRun | None, factor: float) -> Measure | None:
    """Return what `measure_difference` does; None where a plan is missing."""
    return None if less is None or more is None else measure_difference(less, more, factor)


def measure_difference(less: TimedRun, more: TimedRun, factor: float) -> Measure:
    """Return what measures a factor times the seconds that one run takes beyond another one's."""

    def measure() -> float:
        short, long = fastest(less, more)
        return (long - short) * factor

    return measure


def make_call_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the cycles of a call besides its arithmetic."""
    return _beginning(runs)


def make_run_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the cycles of preparing one more run of the same calls."""
    from tilesolve.planning.call_runs import count_runs

    whole, tiles = runs.tiled()
    if whole is None or tiles is None:
        return None
    found = tiles.plan.solution, whole.plan.solution
    more, less = (count_runs(one.share, one.nest, one.microkernel.rows) for one in found)
    factor = runs.frequency / (more - less) if more > less else None
    return measure_difference(whole, tiles, factor) if factor else None


def make_accumulate_probe(runs: PlanRuns) -> Measure | None:
    """Return what measures the cycles of a call that adds to C, besides its arithmetic."""
    return _beginning(runs, accumulate=True)


def _beginning(runs: PlanRuns, **options: bool) -> Measure | None:
    """Return what measures where the line through the times of two sums begins, in cycles a call.

    The difference between many calls and few is what counts.
    """
    found: dict[tuple[int, int], PlanRun] = {}
    for side, k in product((FEW_TILES, MANY_TILES), (SHORT_SUM, LONG_SUM)):
        one = runs.ready(Problem.of("mn-mk-kn", {"m": side, "n": side, "k": k}), **options)
        if one is None:
            return None
        found[side, k] = one
    few, many = (found[side, SHORT_SUM].plan.price.calls for side in (FEW_TILES, MANY_TILES))

    def measure() -> float:
        taken = zip(found.items(), fastest(*found.values()), strict=True)
        spent = {at: seconds - one.packing() for (at, one), seconds in taken}
        short, long = (spent[MANY_TILES, k] - spent[FEW_TILES, k] for k in (SHORT_SUM, LONG_SUM))
        begins = short - (long - short) * SHORT_SUM / (LONG_SUM - SHORT_SUM)
        return begins * runs.frequency / (many - few)

    return measure
