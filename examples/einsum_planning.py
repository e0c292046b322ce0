"""Measure from which size on einsum should plan: what planning takes, and what a plan saves.

For contractions of several shapes and sizes it times numpy's einsum, which transposes and calls
BLAS as ours does below that size; planning anew; and calls of the plan. One call pays where
planning and calling take no longer than numpy. It takes half a minute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from math import ceil, inf

import numpy as np

from tilesolve import plan
from tilesolve.system.units import format_duration

SHAPES = {
    "ij,jk->ik": {"i": 1.0, "j": 1.0, "k": 1.0},
    "ij,jk->ki": {"i": 1.0, "j": 16.0, "k": 1.0},
    "abij,ijcd->abcd": dict.fromkeys("abcdij", 1.0),
    "aibj,jcid->abcd": dict.fromkeys("abcdij", 1.0),
    "kabi,cik->abc": dict.fromkeys("abcik", 1.0),
    "abc,bd->adc": {"a": 4.0, "b": 1.0, "c": 4.0, "d": 1.0},
}
"""Contractions, and how long their letters are beside each other."""

EXPONENTS = range(16, 31, 2)
"""Binary logarithms of the flops."""

ROUNDS = 3
"""Times that plans are made; the median counts."""

CALL_SECONDS = 0.05
"""Least seconds in which calls are repeated."""


def find_extents(weights: dict[str, float], flops: float) -> dict[str, int]:
    """Return extents in such proportions that a contraction has about so many flops."""
    scale = flops / 2
    for weight in weights.values():
        scale /= weight
    side = scale ** (1 / len(weights))
    return {letter: max(2, round(side * weight)) for letter, weight in weights.items()}


def time_call(call: Callable[[], object]) -> float:
    """Return the median seconds of a call that is repeated."""
    taken, begin = [], time.perf_counter()
    while len(taken) < ROUNDS or time.perf_counter() - begin < CALL_SECONDS:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measure(text: str, extents: dict[str, int]) -> tuple[float, float, float]:
    """Return the seconds of numpy, of making a plan, and of a call of it."""
    inputs, _ = text.split("->")
    shapes = [tuple(extents[letter] for letter in one) for one in inputs.split(",")]
    first, second = (np.random.default_rng(7).standard_normal(shape) for shape in shapes)
    made = plan(text, (first, second), threads=1, cache=False)
    assert np.allclose(made(first, second), np.einsum(text, first, second, optimize=True))
    by_numpy = time_call(lambda: np.einsum(text, first, second, optimize=True))
    call = time_call(lambda: made(first, second))
    planning = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        plan(text, (first, second), threads=1, cache=False)
        planning.append(time.perf_counter() - start)
    return by_numpy, statistics.median(planning), call


def main(exponents: Sequence[int] = EXPONENTS) -> None:
    """Print a row for each contraction, and for each size how many calls pay planning."""
    print("| contraction | flops | numpy | planning | plan | calls until planning pays |")
    print("| --- | --: | --: | --: | --: | --: |")
    needed: dict[int, list[float]] = {}
    for exponent in exponents:
        for text, weights in SHAPES.items():
            by_numpy, planning, call = measure(text, find_extents(weights, 2.0**exponent))
            saved = by_numpy - call
            calls = ceil(planning / saved) if saved > 0 else inf
            needed.setdefault(exponent, []).append(calls)
            times = " | ".join(map(format_duration, (by_numpy, planning, call)))
            print(f"| {text} | 2^{exponent} | {times} | {calls:g} |", flush=True)
    print("\n| flops | calls until planning pays, median | one call pays |")
    print("| --: | --: | --: |")
    for exponent, calls in needed.items():
        once = sum(one <= 1 for one in calls)
        print(f"| 2^{exponent} | {statistics.median(calls):g} | {once} of {len(calls)} |")


if __name__ == "__main__":
    main()
