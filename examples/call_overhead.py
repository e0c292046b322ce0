"""Measure what a call costs: `python examples/call_overhead.py [--calls N] [--rounds N]`.

`make bench` runs it. Tiny matrices are multiplied by a plan, by `numpy.einsum` and `numpy.matmul`,
into an output that exists or into a new one; the best round counts. Nests of extent 8 that read one
to eight arrays, gather, sum, update and take a parameter follow. Then a fresh process is timed
from its first import to the result of its first contraction, twice: the first one has to compile
everything and to plan, as its cache folders are empty; the second one finds both on disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Sequence

import numpy as np

from tilesolve import nest, plan, transpose

EXTENTS = (1, 2, 4, 8, 16, 32)

NESTS = (
    ("out[y,x] = A[x,y] & B[y,x]", "int32", None),
    (
        "o[i] = A[i] + B[i] - C[i] + D[i] - E[i] + F[i] - G[i] + H[i]",
        "float64",
        None,
    ),
    ("o[i] = a * sum(A[i,k] * B[k], k)", "float64", None),
    ("C[i,j] = b * C[i,j] + A[j,i]", "float64", None),
    ("t[i] = A[i] * B[i]; o[i] = t[i] + A[i]", "float64", None),
    ("o[i] = T[v[i]]", {"v": "int64", "T": "float64"}, None),
    ("o[x,y] = A[y,x]", "float64", None),
    ("o[i,j] += A[i,k] * A[j,k]", "float64", "contraction"),
)
"""Statements, their dtypes, and what is to run them."""

FIRST = """
import time
start = time.perf_counter()
import numpy, tilesolve
contraction = tilesolve.plan("abcd-aebf-dfce", 8)
first = numpy.ones((8, 8, 8, 8))
assert (contraction(first, first) == 64).all()
print(time.perf_counter() - start)
"""


def microseconds(call: Callable[[], object], calls: int, rounds: int) -> float:
    return 1e6 * min(timeit.repeat(call, number=calls, repeat=rounds)) / calls


def print_nests(calls: int, rounds: int) -> None:
    """Print what a call of each nest costs: with an output, and without one."""
    print("\nµs a call of a nest | out | new")
    print("--- | --: | --:")
    for text, dtype, route in NESTS:
        sizes = {letter: 8 for letter in "xyijk" if letter in text}
        shapes = {"T": (8,)} if "T[" in text else {}
        found = nest(text, sizes | shapes, dtype, route=route)
        infos = [found.computation.array(name) for name in found.inputs]
        given = [np.ones(info.shape, info.dtype) for info in infos]
        params = dict.fromkeys(found.params, 0.5)
        out = np.ones(found.computation.output.shape, found.computation.output.dtype)
        ways = (lambda f=found, a=given, p=params, o=out: f(*a, out=o, **p),)
        ways += (lambda f=found, a=given, p=params: f(*a, **p),)
        cells = (f"{microseconds(way, calls, rounds):.2f}" for way in ways)
        print(f"{text} | " + " | ".join(cells))


def first_contraction(folder: str) -> float:
    """Return the seconds of a process's first contraction, given a folder for what it keeps."""
    kept = os.environ | {"TILESOLVE_CACHE_DIR": folder}
    done = subprocess.run(
        [sys.executable, "-c", FIRST], capture_output=True, text=True, check=True, env=kept
    )
    return float(done.stdout)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and both times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000, help="calls in a round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    heads = ("plan, out", "plan, new", "plan, α and β", "einsum, out", "matmul, out", "transpose")
    print("µs a call | " + " | ".join(heads))
    print("--- |" + " --: |" * len(heads))
    for dtype in ("float64", "complex64"):
        for n in EXTENTS:
            contraction = plan("ik-ij-jk", n, dtype=dtype)
            first, second, out = (np.ones((n, n), dtype) for _ in range(3))
            calls: tuple[Callable[[], object], ...] = (
                lambda p=contraction, a=first, b=second, c=out: p(a, b, out=c),
                lambda p=contraction, a=first, b=second: p(a, b),
                lambda p=contraction, a=first, b=second, c=out: p(a, b, c, alpha=0.5, beta=0.5),
                lambda a=first, b=second, c=out: np.einsum("ij,jk->ik", a, b, out=c),
                lambda a=first, b=second, c=out: np.matmul(a, b, out=c),
                lambda a=first, c=out: transpose(a, out=c),
            )
            cells = (f"{microseconds(call, options.calls, options.rounds):.2f}" for call in calls)
            print(f"{n}×{n} {dtype} | " + " | ".join(cells))
    print_nests(options.calls, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        print(f"\nFirst contraction of all, nothing compiled: {first_contraction(folder):.2f} s")
        print(f"First contraction of the next process: {first_contraction(folder):.2f} s")


if __name__ == "__main__":
    main()
