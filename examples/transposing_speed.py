"""Measure transposes beside copies: `python examples/transposing_speed.py [dtype …] [--mib N]`.

`make bench` runs it. Each case is an array of about so many MiB, on huge pages, and an output that
exists. A copy of the array as it lies, ours and numpy's take turns, so that drift hits all alike;
the median round counts, and bandwidths are of bytes read and written once. Losses come first.
numpy's takes part in one round only, as it may be fifty times slower.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from math import prod
from statistics import geometric_mean, median

import numpy as np

from tilesolve import transpose
from tilesolve.cpu import cpu
from tilesolve.packing.buffers import empty

DTYPES = ("float32", "float64", "complex64", "complex128")

CASES = (
    ((1, 1), (1, 0)),
    ((1.6, 0.6), (1, 0)),
    ((1, 1, 1), (2, 1, 0)),
    ((1, 1, 1), (1, 0, 2)),
    ((1, 1, 1), (0, 2, 1)),
    ((1, 1, 1), (1, 2, 0)),
    ((1, 1, 1), (2, 0, 1)),
    ((1, 1, 1, 0.7), (3, 2, 1, 0)),
    ((1, 1, 1, 0.7), (1, 0, 3, 2)),
    ((1, 1, 1, 0.7), (2, 3, 0, 1)),
    ((1, 1, 1, 0.7), (0, 3, 2, 1)),
    ((1, 1, 1, 0.7), (2, 1, 0, 3)),
    ((1, 1, 1, 1, 1, 1), (5, 4, 3, 2, 1, 0)),
    ((1, 1, 1, 1, 1, 1), (1, 0, 3, 2, 5, 4)),
    ((1.5, 1, 1, 1.5, 1, 1), (3, 5, 0, 4, 1, 2)),
    ((1.5, 1, 1, 1.5, 1, 1), (2, 1, 0, 3, 4, 5)),
)
"""Proportions of the extents, and the axes; each case is also run with extents that are odd."""


def extents(proportions: Sequence[float], elements: float, *, odd: bool) -> tuple[int, ...]:
    """Return extents for so many elements, multiples of 8 or odd.

    >>> extents((1, 1), 1e6, odd=False), extents((1, 1), 1e6, odd=True)
    ((1000, 1000), (1001, 1001))
    """
    scale = (elements / prod(proportions)) ** (1 / len(proportions))
    even = (max(8, 8 * round(scale * part / 8)) for part in proportions)
    return tuple(extent + odd for extent in even)


def medians(calls: Sequence[Callable[[], object]], rounds: Sequence[int]) -> list[float]:
    """Return the median seconds of each call; they take turns while they have rounds left."""
    seconds: list[list[float]] = [[] for _ in calls]
    for done in range(max(rounds)):
        for call, most, taken in zip(calls, rounds, seconds, strict=True):
            if done < most:
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
    return [median(taken) for taken in seconds]


def measured(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, rounds: int, threads: int
) -> tuple[float, ...]:
    """Return bandwidths in GB/s: a copy, ours and numpy's."""
    source, same = empty(shape, np.dtype(dtype)), empty(shape, np.dtype(dtype))
    source.ravel().view(np.uint8)[:] = 1
    turned = source.transpose(axes)
    out = empty(turned.shape, source.dtype)
    calls = (
        lambda: np.copyto(same, source),
        lambda: transpose(source, axes, out, threads=threads),
        lambda: np.copyto(out, turned),
    )
    medians(calls[:2], (1, 1))  # loads code and touches pages
    seconds = medians(calls, (rounds, rounds, 1))
    return tuple(2 * source.nbytes / taken / 1e9 for taken in seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each dtype."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dtypes", nargs="*", default=DTYPES, help="of the arrays")
    parser.add_argument("--mib", type=float, default=100, help="size of each array")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of ours; copies have one")
    options = parser.parse_args(arguments)
    print(f"CPU: {cpu().name}; Python {platform.python_version()}, numpy {np.__version__}")
    every: list[tuple[float, float]] = []
    for dtype in options.dtypes:
        print(f"\n{dtype}, {options.mib:g} MiB, {options.threads} thread(s)\n")
        print("| extents | axes | copy GB/s | tilesolve GB/s | share % | numpy share % |")
        print("| --- | --- | --: | --: | --: | --: |")
        rows = []
        for proportions, axes in CASES:
            for odd in (False, True):
                elements = options.mib * 2**20 / np.dtype(dtype).itemsize
                shape = extents(proportions, elements, odd=odd)
                found = measured(shape, axes, dtype, options.rounds, options.threads)
                rows.append((found[1] / found[0], shape, axes, found))
        for share, shape, axes, (copy, ours, theirs) in sorted(rows):
            name, order = "×".join(map(str, shape)), "".join(map(str, axes))
            print(
                f"| {name} | {order} | {copy:.1f} | {ours:.1f} | {100 * share:.0f} | "
                f"{100 * theirs / copy:.0f} |"
            )
        every += [(share, theirs / copy) for share, _, _, (copy, _, theirs) in rows]
    shares = [ours for ours, _ in every]
    missed, slower = sum(share < 0.7 for share in shares), sum(a < b for a, b in every)
    print(f"\nBelow 70 % of the copy: {missed} of {len(every)}; slower than numpy: {slower}.")
    print(f"Geometric mean of the shares: {100 * geometric_mean(shares):.0f} %.")


if __name__ == "__main__":
    main()
