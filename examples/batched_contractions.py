"""Many like contractions at once, beside the same loop in numpy.

`python examples/batched_contractions.py [SPEC SIZES…] [--count N] [--threads N]` runs a batch of
independent contractions with `Plan.batch`, each core with its part of the shared cache, checks the
results and times numpy's loop beside it, whose BLAS has all threads that it is set to.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

import tilesolve
from tilesolve.machine.cpu import detect_cpu
from tilesolve.plans.plan import core_plan


def best(call: Callable[[], object], rounds: int) -> float:
    """Return the seconds of the fastest of some calls."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main(arguments: Sequence[str] | None = None) -> float:
    """Print both times and return how many times faster the batch is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", nargs="?", default="abcd-aebf-dfce")
    parser.add_argument("sizes", nargs="*", default=["16"])
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--threads", type=int, default=detect_cpu().cores)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    sizes = " ".join(options.sizes)
    plan = tilesolve.plan(
        options.spec, int(sizes) if sizes.isdigit() else sizes, threads=options.threads
    )
    problem, count = plan.problem, options.count
    rng = np.random.default_rng(0)
    firsts, seconds = (rng.standard_normal((count, *shape)) for shape in problem.shapes[1:])
    outs, theirs = (np.empty((count, *problem.shapes[0])) for _ in range(2))
    text = problem.spec.einsum()

    def loop() -> None:
        for first, second, out in zip(firsts, seconds, theirs, strict=True):
            np.einsum(text, first, second, out=out, optimize=True)

    plan.batch(firsts, seconds, outs)
    loop()
    assert np.allclose(outs, theirs), "the batch and numpy disagree"
    ours = best(lambda: plan.batch(firsts, seconds, outs), options.rounds)
    numpy = best(loop, options.rounds)
    own = core_plan(plan, options.threads)
    print(f"{count} contractions {problem}, {options.threads} threads")
    print(f"each core plans for {', '.join(_capacities(own))}, {own.flops / 1e9:.1f} GFLOP/s")
    for name, taken in (("batch", ours), ("numpy", numpy)):
        print(f"{name}: {1e3 * taken:.1f} ms, {count * problem.flops / taken / 1e9:.1f} GFLOP/s")
    print(f"equal to numpy's, {numpy / ours:.2f} times as fast")
    return numpy / ours


def _capacities(plan: tilesolve.Plan) -> list[str]:
    return [f"{level.name} {level.capacity / 1024:.0f} KiB" for level in plan.machine.caches]


if __name__ == "__main__":
    main()
