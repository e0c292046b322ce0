"""Measure how fast plans run beside peers: `python examples/running_speed.py [regex] [--rounds N]`.

`make bench` runs it over all problems of the TCCG suite, in float64 and on one thread. Each
contender lives in a process of its own with its best known setting; all get the same data on huge
pages and an output to write to, and take turns, so that drift hits all alike. A result counts only
if it agrees with tilesolve's. The best round is shown as a share of the roofline, worst first.
"""

from __future__ import annotations

import argparse
import importlib
import math
import multiprocessing
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tilesolve import Machine, Problem, plan, suite
from tilesolve.detect import cpu
from tilesolve.packing.buffers import allocate

CHECKED = 1000
"""Elements of a result that are compared."""

Array = Any
Contraction = Callable[[Array, Array, Array], object]


@dataclass(frozen=True)
class Contender:
    """Who computes: a name, its package, its environment, how it makes a function of a problem."""

    name: str
    package: str
    environment: tuple[tuple[str, str], ...]
    make: Callable[[Problem], Contraction]

    @property
    def label(self) -> str:
        """The name with version and settings."""
        settings = " ".join(f"{key}={value}" for key, value in self.environment)
        return f"{self.name} {version(self.package)} {settings}".strip()


def subscripts(problem: Problem) -> str:
    """Return a problem as einsum writes it.

    >>> subscripts(Problem.of("ik-ij-jk", 2))
    'ij,jk->ik'
    """
    output, *operands = ("".join(tensor.letters) for tensor in problem.spec.tensors)
    return ",".join(operands) + "->" + output


def ours(problem: Problem) -> Contraction:
    return plan(problem, machine=MACHINE)


def numpy_einsum(problem: Problem) -> Contraction:
    text = subscripts(problem)
    return lambda a, b, out: np.einsum(text, a, b, out=out, optimize=True)


def opt_einsum(problem: Problem) -> Contraction:
    contract = importlib.import_module("opt_einsum").contract_expression(
        subscripts(problem), *problem.shapes[1:]
    )
    return lambda a, b, out: contract(a, b, out=out)


def tblis(problem: Problem) -> Contraction:
    contract = importlib.import_module("pytblis").contract
    text = subscripts(problem)
    return lambda a, b, out: contract(text, a, b, out=out)


def torch(problem: Problem) -> Contraction:
    module = importlib.import_module("torch")
    module.set_num_threads(1)
    text = subscripts(problem)

    def run(a: Array, b: Array, out: Array) -> None:
        module.from_numpy(out).copy_(
            module.einsum(text, module.from_numpy(a), module.from_numpy(b))
        )

    return run


ONE = (("OPENBLAS_NUM_THREADS", "1"),)
CONTENDERS = (
    Contender("tilesolve", "tilesolve", (), ours),
    Contender("numpy", "numpy", ONE, numpy_einsum),
    Contender("numpy", "numpy", (*ONE, ("OPENBLAS_CORETYPE", "SkylakeX")), numpy_einsum),
    Contender("opt_einsum", "opt_einsum", (*ONE, ("OPENBLAS_CORETYPE", "SkylakeX")), opt_einsum),
    Contender(
        "pytblis",
        "pytblis",
        (("TBLIS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1"), ("BLIS_ARCH_TYPE", "haswell")),
        tblis,
    ),
    Contender("torch", "torch", (("OMP_NUM_THREADS", "1"),), torch),
)

MACHINE = Machine.load(None)


def drawn(problem: Problem) -> tuple[Array, Array, Array]:
    """Return the output and the operands of a problem: the same in every process."""
    rng = np.random.default_rng(7)
    arrays = []
    for shape in problem.shapes:
        size = math.prod(shape)
        array = allocate(size * problem.itemsize).view(problem.dtype)
        rng.standard_normal(out=array)
        arrays.append(array.reshape(shape))
    return arrays[0], arrays[1], arrays[2]


def serve(connection: Connection, number: int) -> None:
    """Answer for one contender: a problem is prepared and tried, a number is a round to time."""
    contender = CONTENDERS[number]
    while (problem := connection.recv()) is not None:
        try:
            out, *operands = drawn(problem)
            out.fill(np.nan)
            contraction = contender.make(problem)
            contraction(*operands, out)
            places = np.random.default_rng(1).integers(0, out.size, CHECKED)
            connection.send(out.ravel()[places])
        except Exception as error:  # a failed peer is a row that says so
            connection.send(f"{type(error).__name__}: {error}")
            continue
        for _ in range(connection.recv()):
            connection.recv()
            start = time.perf_counter()
            contraction(*operands, out)
            connection.send(time.perf_counter() - start)


def started() -> Iterator[tuple[Contender, Connection]]:
    """Start the contenders whose packages are there; each sees its own environment only."""
    context = multiprocessing.get_context("spawn")
    for number, contender in enumerate(CONTENDERS):
        if importlib.util.find_spec(contender.package) is None:
            print(f"- {contender.name}: not installed")
            continue
        print(f"- {contender.label}")
        near, far = context.Pipe()
        kept = dict(os.environ)
        os.environ.update(contender.environment)
        context.Process(target=serve, args=(far, number), daemon=True).start()
        os.environ.clear()
        os.environ.update(kept)
        yield contender, near


def measured(
    problem: Problem, contenders: Sequence[tuple[Contender, Connection]], rounds: int
) -> list[float | str]:
    """Return for each contender its best seconds, or why there are none."""
    results: list[Any] = []
    for _, connection in contenders:  # one after the other: nobody computes beside another
        connection.send(problem)
        results.append(connection.recv())
    expected = results[0]
    running = []
    for at, ((_, connection), found) in enumerate(zip(contenders, results, strict=True)):
        if isinstance(found, str):
            continue
        connection.send(rounds)
        if np.allclose(found, expected, rtol=1e-9, atol=1e-9):
            results[at] = math.inf
        else:
            results[at] = "a wrong result"
        running.append(at)
    for _ in range(rounds):
        for at in running:
            connection = contenders[at][1]
            connection.send(None)
            seconds = connection.recv()
            if not isinstance(results[at], str):
                results[at] = min(results[at], seconds)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="?", default=".", help="a regex that specs must match")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    print(f"CPU: {cpu().name}; Python {platform.python_version()}; float64, one thread\n")
    contenders = list(started())
    names = [
        c.name + ("*" if ("OPENBLAS_CORETYPE", "SkylakeX") in c.environment else "")
        for c, _ in contenders
    ]
    print("\n| case | roofline ms |", " | ".join(f"{name} %" for name in names), "| to best peer |")
    print("| --- |" + " --- |" * (len(names) + 2))
    rows = []
    for problem in suite("tccg").values():
        if not re.search(options.cases, str(problem.spec)):
            continue
        found = measured(problem, contenders, options.rounds)
        roofline = plan(problem, machine=MACHINE).roofline
        peers = [x for x in found[1:] if isinstance(x, float)]
        mine = found[0] if isinstance(found[0], float) else math.inf
        ratio = min(peers, default=math.nan) / mine
        shares = [f"{100 * roofline / x:.0f}" if isinstance(x, float) else x for x in found]
        rows.append((ratio, roofline / mine, problem, roofline, shares))
    for _, connection in contenders:
        connection.send(None)
    for ratio, _, problem, roofline, shares in sorted(rows, key=lambda row: row[0]):
        cells = " | ".join(shares)
        print(f"| {problem.spec} | {1e3 * roofline:.1f} | {cells} | {ratio:.2f} |")
    ratios, reached = [row[0] for row in rows], [row[1] for row in rows]
    print(
        f"\nGeometric means: {100 * mean(reached):.0f} % of the roofline, {mean(ratios):.2f} times "
        f"the best peer; slower than it in {sum(r < 1 for r in ratios)} of {len(rows)} cases."
    )


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    main()
