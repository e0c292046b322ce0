"""Measure how long planning takes: imports, cold plans, and plans from both caches.

`make bench` runs it. It prints the targets beside what was measured, and how far tiles are from
their bounds. Plans are kept in a temporary folder; it takes under two minutes.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version

from tilesolve import Machine, Plan, Problem, plan, suite
from tilesolve.kernels.runtime.compiled import address
from tilesolve.kernels.runtime.traffic_walk import count_tilings
from tilesolve.machine.cpu import detect_cpu
from tilesolve.plans import cache as plan_cache
from tilesolve.system.units import format_duration

ROUNDS = 5
"""Times that cheap things are measured; the median counts."""

CALLS = 1000
"""Plans from memory per round."""

SPEC = "abcd-aebf-dfce"
"""What fresh processes plan."""


FIRST_USE = """
import numpy, tilesolve
a = numpy.ones((512, 512))
tilesolve.plan("ik-ij-jk", 512)(a, a)
"""
"""What an installation is asked for first."""


def process(statement: str, **variables: str) -> float:
    """Return the seconds of a statement in a fresh process, its interpreter's start excluded."""
    code = (
        f"import time; start = time.perf_counter()\n{statement}\nprint(time.perf_counter() - start)"
    )
    order, environment = [sys.executable, "-c", code], {**os.environ, **variables}
    done = subprocess.run(order, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


def first_use() -> float:
    """Return the seconds of a first plan and its first run, with nothing compiled before."""
    with tempfile.TemporaryDirectory() as folder:
        return process(FIRST_USE, TILESOLVE_CACHE_DIR=folder)


def timed(call: Callable[[], Plan]) -> tuple[float, Plan]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def cold(problems: Iterable[Problem], machine: Machine) -> tuple[list[float], list[float]]:
    """Return for each problem the seconds of solving for it, and how far it is from its bound."""
    seconds, gaps = [], []
    for problem in problems:
        taken, found = timed(lambda p=problem: plan(p, machine=machine, cache=False))
        seconds.append(taken)
        gaps.append(found.gap)
    return seconds, gaps


def from_disk(problem: Problem, machine: Machine) -> float:
    """Return the seconds of a kept plan that the memory has forgotten."""
    plan_cache.forget()
    return timed(lambda: plan(problem, machine=machine))[0]


def from_memory(problem: Problem, machine: Machine) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        plan(problem, machine=machine)
    return (time.perf_counter() - start) / CALLS


def row(
    title: str, seconds: Sequence[float], target: str = "", limits: Sequence[float] = ()
) -> str:
    """Return a line of the table: the median and the worst time, and whether one is too long."""
    figures = (statistics.median(seconds), max(seconds))
    kept = all(figure < limit for figure, limit in zip(figures, limits, strict=False))
    median, worst = map(format_duration, figures)
    missed = "" if kept else "missed"
    return f"| {title} | {len(seconds)} | {median} | {worst} | {target} | {missed} |"


def provenance() -> Iterator[str]:
    """Yield what the figures depend on."""
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("tilesolve", "numpy", "pyomo", "cyipopt-wheels")
    )
    load = os.getloadavg()[0]
    yield f"{detect_cpu().name}, load {load:.1f}; Python {platform.python_version()}"
    yield versions


def first_plans() -> Iterator[str]:
    """Yield the times of fresh processes."""
    rounds = range(ROUNDS)
    yield row("import tilesolve", [process("import tilesolve") for _ in rounds], "< 0.3 s", [0.3])
    first = f"import tilesolve; tilesolve.plan({SPEC!r}, 72, 'i7-6700k', cache=False)"
    seconds = [process(first) for _ in rounds]
    yield row("import and first plan of a process", seconds, "< 0.4 s", [0.4])
    seconds = [first_use() for _ in rounds]
    yield row("first use of an installation: plan and run", seconds, "< 2 s", [2.0])


def cold_plans(machines: Sequence[Machine], gaps: dict[str, list[float]]) -> Iterator[str]:
    """Yield the times of plans that nobody has asked for before; add their excess over bounds."""
    tccg = list(suite("tccg").values())
    plan(tccg[0], machine=machines[0], cache=False)  # what a first plan loads is measured above
    address(count_tilings)  # later ones have it from disk
    for machine in machines:
        seconds, gaps[f"tccg on {machine.name}"] = cold(tccg, machine)
        target = "median < 25 ms, worst < 80 ms"
        yield row(f"plan of a TCCG contraction, {machine.name}", seconds, target, [0.025, 0.08])
    target = "median < 100 ms, worst < 400 ms"
    layers = [("yolo9000", machines[0]), *(("resnet18", machine) for machine in machines)]
    for name, machine in layers:
        seconds, gaps[f"{name} on {machine.name}"] = cold(suite(name).values(), machine)
        yield row(f"plan of a {name} convolution, {machine.name}", seconds, target, [0.1, 0.4])


def kept_plans(machine: Machine) -> Iterator[str]:
    """Yield the times of plans that are on disk, or in memory."""
    kept = list(suite("tccg").values())[::4]
    for problem in kept:
        plan(problem, machine=machine)
    disk = [from_disk(problem, machine) for problem in kept for _ in range(ROUNDS)]
    yield row("plan from disk", disk, "< 5 ms", [0.005])
    again = f"import tilesolve; tilesolve.plan({SPEC!r}, 72)"
    process(again)
    seconds = [process(again) for _ in range(ROUNDS)]
    yield row("import and first plan of a process, from disk", seconds, "< 0.25 s", [0.25])
    memory = [from_memory(problem, machine) for problem in kept]
    yield row("plan from memory", memory, "< 50 µs", [50e-6])


def report() -> Iterator[str]:
    """Yield the tables, line by line, as they are measured."""
    start = time.perf_counter()
    machines = [Machine.load(), Machine.load("i7-6700k"), Machine.load("e5-2680v4")]
    gaps: dict[str, list[float]] = {}
    yield "  \n".join(provenance())
    yield "\n| what | measured | median | worst | target | |\n| --- | --: | --: | --: | --- | --- |"
    yield from first_plans()
    yield from cold_plans(machines, gaps)
    yield from kept_plans(machines[0])
    yield "\n| time over the bound | median | worst | target |\n| --- | --: | --: | --- |"
    for name, found in gaps.items():
        target = "median ≤ 10 %" if name.startswith("tccg") else ""
        yield f"| {name} | {statistics.median(found):.2%} | {max(found):.2%} | {target} |"
    yield f"\ntook {time.perf_counter() - start:.0f} s"


def main() -> None:
    for line in report():
        print(line, flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILESOLVE_CACHE_DIR"] = folder
        os.environ.pop("TILESOLVE_CACHE", None)
        main()
