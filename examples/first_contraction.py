"""Plan a contraction, run it, check it, and time numpy beside it.

`make demo` runs it. Both get the same arrays and an output to write to; the best of several runs
counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tilesolve import plan

SPEC, EXTENT, ROUNDS = "abcd-aebf-dfce", 24, 5


def best(call: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some runs, the first one left out."""
    call()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    contraction = plan(SPEC, EXTENT)
    problem = contraction.problem
    generator = np.random.default_rng(0)
    first, second = (generator.standard_normal(shape) for shape in problem.shapes[1:])
    out, expected = np.empty(problem.shapes[0]), np.empty(problem.shapes[0])

    ours = best(lambda: contraction(first, second, out))
    theirs = best(lambda: np.einsum("aebf,dfce->abcd", first, second, out=expected, optimize=True))
    assert np.allclose(out, expected, rtol=0, atol=1e-10)
    print(f"{problem}: equal to numpy's")
    for name, seconds in (("tilesolve", ours), ("numpy.einsum, optimize=True", theirs)):
        print(f"{name}: {1e3 * seconds:.2f} ms, {problem.flops / seconds / 1e9:.1f} GFLOP/s")
    print(f"one core's limit: {1e3 * contraction.roofline:.2f} ms")


if __name__ == "__main__":
    main()
