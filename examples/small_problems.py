"""Time einsum against the size of its operands: `python examples/small_problems.py [--plot FILE]`.

For sides from 2 to 256, square operands of a few contractions go through `tilesolve.einsum`, a
`tilesolve.expression`, `numpy.einsum`, `opt_einsum.contract` and `pytblis.einsum`, those that are
installed, with everything kept that the libraries keep between calls. Microseconds of a call are
printed, ours with the route that the expression takes: where `loops` or `matmul` stands, numpy
computes, and its report says why. `OPENBLAS_NUM_THREADS=1` makes numpy's figures those of a core.
"""

from __future__ import annotations

import argparse
import importlib.util
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from operator import truediv
from statistics import median

import numpy as np

import tilesolve

CASES = ("ij,jk->ik", "ij,kj->ki", "ijk,k->ij", "ij,ij->", "ij,ji->", "ij->ji", "ij,jk,kl->il")
SIDES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST = 64 * 64 * 256
"""Elements of an operand: larger ones are left out."""

TURNS = 15
"""Rounds, in each of which every contender is timed."""

Call = Callable[[], object]


def contenders(text: str, operands: Sequence[np.ndarray]) -> dict[str, Call]:
    """Return what computes an einsum, ready to be timed."""
    found: dict[str, Call] = {
        "einsum": partial(tilesolve.einsum, text, *operands),
        "expression": partial(tilesolve.expression(text, *operands), *operands),
        "numpy": partial(np.einsum, text, *operands),
    }
    if importlib.util.find_spec("opt_einsum"):
        import opt_einsum

        found["opt_einsum"] = partial(opt_einsum.contract, text, *operands)
    if importlib.util.find_spec("pytblis") and len(operands) == 2:
        import pytblis

        found["pytblis"] = partial(pytblis.einsum, text, *operands)
    return found


def microseconds(calls: dict[str, Call], seconds: float) -> dict[str, list[float]]:
    """Return the times of each call, which take turns, each of them for so long in all."""
    numbers = {}
    for name, call in calls.items():
        call()
        once = min(timeit.repeat(call, number=1, repeat=3))
        numbers[name] = max(1, int(seconds / TURNS / max(once, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            taken = timeit.timeit(call, number=numbers[name])
            times[name].append(1e6 * taken / numbers[name])
    return times


def measured(
    text: str, sides: Sequence[int], seconds: float
) -> list[tuple[int, str, dict[str, list[float]]]]:
    """Return for each side our route and the microseconds of each contender."""
    rng = np.random.default_rng(0)
    rows = []
    for side in sides:
        shapes = [(side,) * len(term) for term in text.split("->")[0].split(",")]
        if max(np.prod(shape) for shape in shapes) > MOST:
            continue
        operands = [rng.standard_normal(shape) for shape in shapes]
        steps = tilesolve.expression(text, *shapes).steps
        routes = ", ".join(dict.fromkeys(step.kernel.route for step in steps))
        rows.append((side, routes, microseconds(contenders(text, operands), seconds)))
    return rows


def draw(results: dict[str, list[tuple[int, str, dict[str, list[float]]]]], path: str) -> None:
    """Draw time against size, a panel for each contraction."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(results), 4), layout="constrained")
    for axes, (text, rows) in zip(
        figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True
    ):
        for name in rows[0][2]:
            times = [median(row[2][name]) for row in rows]
            axes.loglog([row[0] for row in rows], times, ".-", label=name)
        axes.set(title=text, xlabel="side", ylabel="µs a call")
        axes.legend()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> dict[str, list]:
    """Print a table for each contraction."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, nargs="*", default=SIDES)
    parser.add_argument("--seconds", type=float, default=0.02, help="of measuring each figure")
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args(arguments)
    results = {}
    for text in CASES:
        rows = results[text] = measured(text, options.sides, options.seconds)
        names = list(rows[0][2])
        print(f"\n{text}, float64, µs a call\n\n| side | our route |", " | ".join(names), "|")
        print("| --: | --- |" + " --: |" * len(names))
        for side, routes, times in rows:
            cells = " | ".join(f"{median(times[name]):.1f}" for name in names)
            print(f"| {side} | {routes} | {cells} |")
    ratios = [
        (median(map(truediv, times["einsum"], times["numpy"])), side, text)
        for text, rows in results.items()
        for side, _, times in rows
        if side <= 64
    ]
    worst, side, text = max(ratios)
    print(
        f"\nUp to sides of 64, einsum takes at most {worst:.2f} times numpy's time in the same "
        f"round, in the median of {TURNS}: {text} at {side}."
    )
    if options.plot:
        draw(results, options.plot)
    return results


if __name__ == "__main__":
    main()
