"""Several threads beside one: `python examples/thread_scaling.py [case …] [--threads N]`.

`make bench` runs it. For each problem of a suite a plan for one thread and one for several take
turns in one process, with the caches emptied before each run and the peak of arithmetic measured
around it, by as many threads. For what two cores of a virtual machine give changes: while they are
one core of its host, no program gains by a second thread. Rounds in which the cores did not give
`CALM` of what so many should are counted apart, and tried again. Of the others the median ratio is
printed, losses first, and that of the fastest run of each: neighbours who share caches and memory
slow some runs of either, and the peak does not show them. Both means are printed, too, over the
half of the problems that is nearest to the peak by one thread: there arithmetic takes the time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from statistics import geometric_mean, median

from tilesolve import Machine
from tilesolve.bench.cases import ContractionCase, find_cases
from tilesolve.bench.run.peers import tilesolve
from tilesolve.bench.run.turn import Turn
from tilesolve.bench.run.worker import Order, get_ready
from tilesolve.contractions.problem import Problem
from tilesolve.machine.cpu import detect_cpu
from tilesolve.plans.tries import count_flush_bytes

MAKER = f"{tilesolve.__module__}:{tilesolve.__name__}"

GOAL = 0.9
"""Share of so many times one thread's speed that several are to have."""

CALM = 0.95
"""Share of so many times one core's peak that the cores have to give around a run."""

PATIENCE = 5
"""Rounds that are tried at most for each one that is to count."""


@dataclass(frozen=True)
class Scaling:
    """What was measured of a problem: runs of one and of several threads, round by round."""

    flops: float
    threads: int
    rounds: tuple[tuple[Turn, Turn], ...]

    @property
    def given(self) -> list[float]:
        """How many times one core's peak the cores gave in each round."""
        return [
            several.peak / one.peak for one, several in self.rounds if one.peak and several.peak
        ]

    @property
    def calm(self) -> list[tuple[Turn, Turn]]:
        """The rounds that count."""
        least = CALM * self.threads
        return [both for both, given in zip(self.rounds, self.given, strict=True) if given >= least]

    @property
    def share(self) -> float:
        """Of the peak by one thread."""
        return median(self.flops / one.seconds / one.peak for one, _ in self.rounds if one.peak)

    @property
    def ratio(self) -> float:
        """How many times as fast several threads are; nan if no round counts."""
        return median([one.seconds / several.seconds for one, several in self.calm] or [nan])

    @property
    def best(self) -> float:
        """The same of the fastest run of each; nan if no round counts."""
        ones, others = ([each[at].seconds for each in self.calm] for at in range(2))
        return min(ones, default=nan) / min(others, default=nan)


def measured(
    problem: Problem, machine: Machine, threads: int, rounds: int, seconds: float
) -> Scaling:
    """Return what is measured of a problem, whose results have been checked."""
    runs: list[Callable[[], Turn]] = []
    for count in (1, threads):
        case, flush = ContractionCase("", problem), count_flush_bytes(machine)
        order = Order(case, machine, count, MAKER, flush, paced=True)
        first, run = get_ready(order)
        if first.problem:
            raise SystemExit(f"{problem.spec}, {count} thread(s): {first.problem}")
        runs.append(run)
    one, several = runs
    found = Scaling(problem.flops, threads, ())
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or (
        len(found.calm) < rounds and len(found.rounds) < PATIENCE * rounds
    ):
        found = Scaling(problem.flops, threads, (*found.rounds, (one(), several())))
    return found


def main(arguments: Sequence[str] | None = None) -> dict[str, Scaling]:
    """Print a table; return what was measured of each problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of problems, or patterns; else all")
    parser.add_argument("--suite", default="tccg", help="where they are from")
    parser.add_argument("--dtype", default="float64", help="of the tensors")
    parser.add_argument("--threads", type=int, default=2, help="beside one")
    parser.add_argument("--rounds", type=int, default=3, help="that are to count, of each problem")
    parser.add_argument("--seconds", type=float, default=6, help="of each problem at least")
    options = parser.parse_args(arguments)
    threads, machine = options.threads, Machine.load()
    problems = find_cases(options.suite, chosen=options.cases, dtype=options.dtype)
    print(f"CPU: {detect_cpu().name}; {threads} threads beside one, {options.dtype}\n")
    found = {
        name: measured(problem, machine, threads, options.rounds, options.seconds)
        for name, problem in problems.items()
    }
    print("| case | of the peak by one thread | ratio | fastest | cores gave | rounds that count |")
    print("| --- | --: | --: | --: | --: | --: |")
    for name, each in sorted(found.items(), key=lambda item: item[1].ratio):
        print(
            f"| {name} | {100 * each.share:.0f} % | {each.ratio:.2f} | {each.best:.2f} "
            f"| {median(each.given):.2f} | {len(each.calm)} of {len(each.rounds)} |"
        )
    counted = sorted((each for each in found.values() if each.calm), key=lambda each: -each.share)
    for name, some in (("all", counted), ("nearest to the peak", counted[: -(-len(found) // 2)])):
        print(f"\n{len(some)} {name}:")
        for what, ratios in (
            ("ratio", [each.ratio for each in some]),
            ("fastest", [each.best for each in some]),
        ):
            enough = sum(ratio >= GOAL * threads for ratio in ratios)
            mean = geometric_mean(ratios) if ratios else nan
            print(f"- {what}: {GOAL * threads:.1f} or more in {enough}, {mean:.2f} in the mean")
    return found


if __name__ == "__main__":
    main()
