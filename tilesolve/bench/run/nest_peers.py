"""Who computes nests: for each peer a function that prepares one.

Such a maker is given the nest, the machine, the number of threads, inputs in the order of the
statements, and an array for the result, which its run returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.bench.results.sweeps import Figures
from tilesolve.bench.run.halide_nests import make_halide
from tilesolve.bench.run.made import Made, Run
from tilesolve.bench.run.numba_nests import make_numba
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.nest_suites import NestCase
from tilesolve.machine.model import Machine

if TYPE_CHECKING:
    from tilesolve.nests.request import NestMode, Route

Given = Mapping[str, Array]
Params = Mapping[str, float]
Operands = Sequence[Array]


def _plan(
    nest: NestCase,
    machine: Machine,
    threads: int,
    operands: Operands,
    out: Array,
    mode: NestMode = "default",
    route: Route | None = None,
) -> Made:
    """Return a run of a plan of ours, made anew, and what the plan says."""
    from tilesolve.nests.plan import NestPlan
    from tilesolve.nests.planning import solve_nest
    from tilesolve.nests.request import NestRequest

    request = NestRequest(nest.computation, machine, threads, mode, route)
    made, params = NestPlan(solve_nest(request)), dict(nest.params)
    seconds, how = made.seconds, made.how
    return Made(
        lambda: made(*operands, out=out, **params), lambda _: Figures(predicted=seconds, how=how)
    )


def tilesolve(
    nest: NestCase, machine: Machine, threads: int, operands: Operands, out: Array
) -> Made:
    """Make ready a nest of ours, by the fastest route."""
    return _plan(nest, machine, threads, operands, out)


def thesis(nest: NestCase, machine: Machine, threads: int, operands: Operands, out: Array) -> Made:
    """Make ready a nest by the printed formulas."""
    return _plan(nest, machine, threads, operands, out, "thesis", "nest")


def baseline(
    nest: NestCase, machine: Machine, threads: int, operands: Operands, out: Array
) -> Made:
    """Make ready a nest of ours with threads outside, vectors inside, and nothing else."""
    return _plan(nest, machine, threads, operands, out, "plain", "nest")


def numba(nest: NestCase, _: Machine, threads: int, operands: Operands, out: Array) -> Run:
    """Make ready the obvious loops."""
    return make_numba(nest.computation, threads, _name(nest, operands), dict(nest.params), out)


def halide(nest: NestCase, machine: Machine, threads: int, operands: Operands, out: Array) -> Run:
    """Make ready what Halide's scheduler of 2016 plans."""
    given = (_name(nest, operands), dict(nest.params), out)
    return make_halide("Mullapudi2016", nest.computation, machine, threads, *given)


def halide_adams(
    nest: NestCase, machine: Machine, threads: int, operands: Operands, out: Array
) -> Run:
    """Make ready what Halide's scheduler of 2019 plans."""
    given = (_name(nest, operands), dict(nest.params), out)
    return make_halide("Adams2019", nest.computation, machine, threads, *given)


def numpy(nest: NestCase, _: Machine, __: int, operands: Operands, out: Array) -> Run:
    """Make ready what a user of NumPy writes for a kernel of the suite."""
    if nest.name not in _NUMPY:
        raise BenchmarkError(f"nobody wrote {nest.name} for NumPy")
    compute, given, params = _NUMPY[nest.name], _name(nest, operands), dict(nest.params)

    def run() -> Array:
        compute(given, params, out)
        return out

    return run


def _name(nest: NestCase, operands: Operands) -> dict[str, Array]:
    """Return inputs by name."""
    return dict(zip(nest.computation.inputs, operands, strict=True))


def _multiply_both(a: Given, p: Params, out: Array) -> None:
    np.matmul(a["A"], a["B"].T, out=out)
    out += a["B"] @ a["A"].T


def _multiply_add(a: Given, p: Params, out: Array) -> None:
    np.matmul(a["A"], a["B"], out=out)
    out *= p["alpha"]
    out += p["beta"] * a["C"]


def _convolve(a: Given, p: Params, out: Array) -> None:
    windows = np.lib.stride_tricks.sliding_window_view(a["I"], a["W"].shape[2:], axis=(2, 3))
    np.einsum("ncyxrs,kcrs->nkyx", windows, a["W"], out=out, optimize=True)


_NUMPY: dict[str, Callable[[Given, Params, Array], object]] = {
    "matmul": lambda a, p, out: np.matmul(a["A"], a["B"], out=out),
    "gemm": _multiply_add,
    "3mm": lambda a, p, out: np.matmul(a["A"] @ a["B"], a["C"] @ a["D"], out=out),
    "doitgen": lambda a, p, out: np.matmul(a["A"], a["C"], out=out),
    "convlayer": _convolve,
    "trmm": lambda a, p, out: np.matmul(np.triu(a["A"]), a["B0"], out=out),
    "syrk": lambda a, p, out: np.matmul(a["A"], a["A"].T, out=out),
    "syrk-lower": lambda a, p, out: np.copyto(out, np.tril(a["A"] @ a["A"].T)),
    "syr2k": _multiply_both,
    "tpm": lambda a, p, out: np.bitwise_and(a["A"].T, a["B"], out=out),
    "tp": lambda a, p, out: np.copyto(out, a["A"].T),
    "copy": lambda a, p, out: np.copyto(out, a["A"]),
    "mask": lambda a, p, out: np.bitwise_and(a["A"], a["B"], out=out),
}
