"""Whether a change of the price makes plans faster: those that differ are timed in turns.

    python tests/support/judge_plans.py OLD.json --write SUITE ...
    python tests/support/judge_plans.py OLD.json NEW.json --seconds 0.5

The first command, run once without and once with the change, plans a suite's problems for one
thread of the machine in force. The second times plans that differ, warm and with flushed caches,
on arrays as NumPy lays them out. Figures are medians of paired quotients, old by new.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import tilesolve
from tilesolve.bench.cases import find_cases
from tilesolve.plans.plan import Plan

FLUSHED_BYTES = 96 << 20

LEAST_PAIRS = 5

SLOWER = 0.97
"""Quotient below which a plan counts as slower."""


def write(suites, path):
    """Write the plans of suites into a file."""
    cases = {name: one for suite in suites for name, one in find_cases(suite).items()}
    plans = {name: tilesolve.plan(one, threads=1, cache=False) for name, one in cases.items()}
    path.write_text(json.dumps({name: plan.to_json() for name, plan in plans.items()}))


def compare(old, new, seconds, trash=None):
    """Return the median quotient of the times of two plans, and that of the first."""
    problem, rng = old.problem, np.random.default_rng(0)
    arrays = [rng.random(shape).astype(problem.dtype) for shape in problem.shapes[1:]]
    times = {one: [] for one in (old, new)}
    for plan in times:
        plan(*arrays)
    end, out = time.perf_counter() + seconds, np.empty(problem.shapes[0], problem.dtype)
    while time.perf_counter() < end or len(times[old]) < LEAST_PAIRS:
        for plan in (old, new) if len(times[old]) % 2 else (new, old):
            if trash is not None:
                trash += 1
            start = time.perf_counter()
            plan(*arrays, out=out)
            times[plan].append(time.perf_counter() - start)
    return np.median(np.divide(times[old], times[new])), np.median(times[old])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="a file of plans to write, or two")
    parser.add_argument("--write", nargs="+", metavar="SUITE", help="suites to write plans of")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each pair")
    given = parser.parse_args()
    if given.write:
        write(given.write, given.files[0])
        return
    old, new = (json.loads(path.read_text()) for path in given.files)
    trash, found = np.zeros(FLUSHED_BYTES, np.uint8), []
    for name in old:
        one, other = (Plan.from_json(plans[name]) for plans in (old, new))
        sides = [(x.solution.nest, x.microkernel, x.split) for x in (one, other)]
        if sides[0] == sides[1]:
            continue
        (warm, taken), (cold, _) = (compare(one, other, given.seconds, x) for x in (None, trash))
        found.append((warm, cold))
        print(f"{name:34s} {taken * 1e3:9.2f} ms  warm {warm:.3f}  flushed {cold:.3f}", flush=True)
    if found:
        means, slower = np.exp(np.log(found).mean(axis=0)), (np.array(found) < SLOWER).sum(axis=0)
        print(f"{len(found)} of {len(old)} differ: warm {means[0]:.3f}, flushed {means[1]:.3f};")
        print(f"over 3 % slower: {slower[0]} and {slower[1]}, least {np.min(found, axis=0)}")


if __name__ == "__main__":
    main()
