"""Measure transposes beside copies: `python examples/transposing_speed.py [dtype …] [--mib N]`.

`make bench` runs it. Each case is an array of about so many MiB, on huge pages, and an output that
exists. In each round a copy of the array as it lies and ours take turns, case after case: what
slows a machine of several users for a second then hits one round of a few cases, not all rounds of
one. The median round counts, and bandwidths are of bytes read and written once. Losses come first.
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
from tilesolve.machine.cpu import detect_cpu
from tilesolve.packing.buffers import Bytes, empty

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


def calls(
    buffers: Sequence[Bytes],
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    dtype: str,
    threads: int,
) -> tuple[Callable[[], object], ...]:
    """Return a copy, ours and numpy's, of an array in the first buffer."""
    size = prod(shape) * np.dtype(dtype).itemsize
    source, same, out = (buffer[:size].view(dtype) for buffer in buffers)
    source = source.reshape(shape)
    transposed = source.transpose(axes)
    same, out = same.reshape(shape), out.reshape(transposed.shape)
    return (
        lambda: np.copyto(same, source),
        lambda: transpose(source, axes, out, threads=threads),
        lambda: np.copyto(out, transposed),
    )


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measured(
    cases: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], dtype: str, rounds: int, threads: int
) -> list[tuple[float, ...]]:
    """Return bandwidths in GB/s of each case: a copy, ours and numpy's."""
    sizes = [prod(shape) * np.dtype(dtype).itemsize for shape, _ in cases]
    buffers = [empty((max(sizes),), np.dtype(np.uint8)) for _ in range(3)]
    for buffer in buffers:
        buffer[:] = 1
    every = [calls(buffers, shape, axes, dtype, threads) for shape, axes in cases]
    for _, ours, _ in every:
        ours()  # loads code
    taken = [[(seconds(copy), seconds(ours)) for copy, ours, _ in every] for _ in range(rounds)]
    medians = [
        [median(times) for times in zip(*case, strict=True)] for case in zip(*taken, strict=True)
    ]
    return [
        tuple(2 * size / each / 1e9 for each in (*two, seconds(numpy)))
        for size, two, (_, _, numpy) in zip(sizes, medians, every, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each dtype."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dtypes", nargs="*", default=DTYPES, help="of the arrays")
    parser.add_argument("--mib", type=float, default=100, help="size of each array")
    parser.add_argument("--rounds", type=int, default=15, help="of a copy and ours each")
    parser.add_argument("--threads", type=int, default=1, help="of ours; copies have one")
    options = parser.parse_args(arguments)
    print(f"CPU: {detect_cpu().name}; Python {platform.python_version()}, numpy {np.__version__}")
    every: list[tuple[float, float]] = []
    for dtype in options.dtypes:
        print(f"\n{dtype}, {options.mib:g} MiB, {options.threads} thread(s)\n")
        print("| extents | axes | copy GB/s | tilesolve GB/s | share % | numpy share % |")
        print("| --- | --- | --: | --: | --: | --: |")
        elements = options.mib * 2**20 / np.dtype(dtype).itemsize
        cases = [
            (extents(proportions, elements, odd=odd), axes)
            for proportions, axes in CASES
            for odd in (False, True)
        ]
        found = measured(cases, dtype, options.rounds, options.threads)
        rows = [(each[1] / each[0], *case, each) for case, each in zip(cases, found, strict=True)]
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
