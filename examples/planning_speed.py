"""Measure how long planning takes: imports, cold plans, and plans from both caches.

`make bench` runs it. It prints a table for the README, the targets beside what was measured, and
what rounding to integers cost. Plans are kept in a temporary folder; it takes under two minutes.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version

from tilesolve import Machine, Plan, Problem, plan, suite
from tilesolve.machine.cpu import detect_cpu
from tilesolve.plans import cache as plan_cache
from tilesolve.system.units import format_duration

ROUNDS = 5
"""Times that cheap things are measured; the median counts."""

CALLS = 1000
"""Plans from memory per round."""


def process(statement: str) -> float:
    """Return the seconds of a statement in a fresh process, its interpreter's start excluded."""
    code = (
        f"import time; start = time.perf_counter()\n{statement}\nprint(time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def timed(call: Callable[[], Plan]) -> tuple[float, Plan]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def cold(problems: Iterable[Problem], machine: Machine) -> tuple[list[float], list[float]]:
    """Return for each problem the seconds of solving for it, and what rounding cost it."""
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


def row(title: str, seconds: Sequence[float], target: str, limits: Sequence[float]) -> None:
    """Print the median and the worst of some times, and whether one misses its limit."""
    figures = (statistics.median(seconds), max(seconds))
    kept = all(figure < limit for figure, limit in zip(figures, limits, strict=False))
    median, worst = map(format_duration, figures)
    print(
        f"| {title} | {len(seconds)} | {median} | {worst} | {target} | {'' if kept else 'missed'} |"
    )


def main() -> None:
    start = time.perf_counter()
    tccg = list(suite("tccg").values())
    machines = [Machine.load(), Machine.load("i7-6700k"), Machine.load("e5-2680v4")]
    rounds = range(ROUNDS)
    versions = ", ".join(f"{p} {version(p)}" for p in ("numpy", "pyomo", "cyipopt-wheels"))
    print(f"{detect_cpu().name}, load {os.getloadavg()[0]:.1f}; Python {platform.python_version()}")
    print(f"{versions}\n")
    print("| what | measured | median | worst | target | |")
    print("| --- | --: | --: | --: | --- | --- |")
    row("import tilesolve", [process("import tilesolve") for _ in rounds], "< 0.3 s", [0.3])
    first = "import tilesolve; tilesolve.plan({!r}, 72, 'i7-6700k', cache=False)"
    spec = "abcd-aebf-dfce"
    row("import and first plan of a process", [process(first.format(spec)) for _ in rounds], "", ())
    plan(tccg[0], machine=machines[0], cache=False)  # what a first plan loads is measured above
    gaps = {}
    for machine in machines:
        seconds, gaps[f"tccg on {machine.name}"] = cold(tccg, machine)
        target = "median < 150 ms, worst < 400 ms"
        row(f"plan of a TCCG contraction, {machine.name}", seconds, target, [0.15, 0.4])
    layers = [("yolo9000", machines[0]), *(("resnet18", machine) for machine in machines)]
    for name, machine in layers:
        seconds, gaps[f"{name} on {machine.name}"] = cold(suite(name).values(), machine)
        row(f"plan of a {name} convolution, {machine.name}", seconds, "< 3 s", [3.0, 3.0])
    kept = tccg[::4]
    for problem in kept:
        plan(problem, machine=machines[0])
    disk = [from_disk(problem, machines[0]) for problem in kept for _ in rounds]
    row("plan from disk", disk, "< 5 ms", [0.005])
    again = "import tilesolve; tilesolve.plan({!r}, 72)"
    process(again.format(spec))
    row(
        "import and first plan of a process, from disk",
        [process(again.format(spec)) for _ in rounds],
        "",
        (),
    )
    memory = [from_memory(problem, machines[0]) for problem in kept]
    row("plan from memory", memory, "< 50 µs", [50e-6])
    print("\n| rounding gap | median | worst | target |\n| --- | --: | --: | --- |")
    for name, found in gaps.items():
        target = "median ≤ 10 %" if name.startswith("tccg") else ""
        print(f"| {name} | {statistics.median(found):.2%} | {max(found):.2%} | {target} |")
    print(f"\ntook {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILESOLVE_CACHE_DIR"] = folder
        os.environ.pop("TILESOLVE_CACHE", None)
        main()
