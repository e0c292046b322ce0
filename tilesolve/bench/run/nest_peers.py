"""Who computes nests: for each peer a function that prepares one.

Such a maker is given the case, its computation, the machine, the number of threads, inputs and
parameters by name, and an array for the result. It returns a run, which returns the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.bench.nests import NestCase
from tilesolve.bench.run.halide_nests import make_halide
from tilesolve.bench.run.numba_nests import make_numba
from tilesolve.bench.run.oracle import Array
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.machine.model import Machine

if TYPE_CHECKING:
    from tilesolve.nests.plan import NestPlan

Given = Mapping[str, Array]
Params = Mapping[str, float]
Run = Callable[[], Array]


def _ours(
    computation: Computation,
    arrays: Given,
    params: Params,
    out: Array,
    **ways: Any,  # noqa: ANN401 - arguments of `NestPlan`
) -> tuple[Run, NestPlan]:
    from tilesolve.nests.plan import NestPlan

    made = NestPlan(computation, **ways)
    given = [arrays[name] for name in computation.inputs]
    return lambda: made(*given, out=out, **params), made


def tilesolve(
    case: NestCase,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Given,
    params: Params,
    out: Array,
) -> tuple[Run, NestPlan]:
    """Make ready a nest of ours, planned anew."""
    return _ours(computation, arrays, params, out, machine=machine, threads=threads)


def thesis(
    case: NestCase,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Given,
    params: Params,
    out: Array,
) -> tuple[Run, NestPlan]:
    """Make ready a nest by the printed formulas."""
    ways = {"machine": machine, "threads": threads, "route": "nest", "mode": "thesis"}
    return _ours(computation, arrays, params, out, **ways)


def baseline(
    case: NestCase,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Given,
    params: Params,
    out: Array,
) -> tuple[Run, NestPlan]:
    """Make ready a nest of ours without tiles."""
    ways = {"machine": machine, "threads": threads, "route": "nest", "mode": "plain"}
    return _ours(computation, arrays, params, out, **ways)


def numba(
    case: NestCase,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Given,
    params: Params,
    out: Array,
) -> Run:
    """Make ready the obvious loops."""
    return make_numba(computation, threads, arrays, params, out)


def halide(
    case: NestCase,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Given,
    params: Params,
    out: Array,
) -> Run:
    """Make ready what Halide's scheduler of 2016 plans."""
    return make_halide("Mullapudi2016", computation, machine, threads, arrays, params, out)


def halide_adams(
    case: NestCase,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Given,
    params: Params,
    out: Array,
) -> Run:
    """Make ready what Halide's scheduler of 2019 plans."""
    return make_halide("Adams2019", computation, machine, threads, arrays, params, out)


def numpy(
    case: NestCase,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Given,
    params: Params,
    out: Array,
) -> Run:
    """Make ready what a user of NumPy writes for a kernel of the suite."""
    if case.name not in _NUMPY:
        raise BenchmarkError(f"nobody wrote {case.name} for NumPy")
    compute = _NUMPY[case.name]

    def run() -> Array:
        compute(arrays, params, out)
        return out

    return run


def _multiply_triangle(a: Given, p: Params, out: Array) -> None:
    np.matmul(np.triu(a["A"]), a["B0"], out=out)


def _multiply_lower(a: Given, p: Params, out: Array) -> None:
    out[...] = np.tril(a["A"] @ a["A"].T)


def _multiply_both(a: Given, p: Params, out: Array) -> None:
    np.matmul(a["A"], a["B"].T, out=out)
    out += a["B"] @ a["A"].T


def _multiply_three(a: Given, p: Params, out: Array) -> None:
    np.matmul(a["A"] @ a["B"], a["C"] @ a["D"], out=out)


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
    "3mm": _multiply_three,
    "doitgen": lambda a, p, out: np.matmul(a["A"], a["C"], out=out),
    "convlayer": _convolve,
    "trmm": _multiply_triangle,
    "syrk": lambda a, p, out: np.matmul(a["A"], a["A"].T, out=out),
    "syrk-lower": _multiply_lower,
    "syr2k": _multiply_both,
    "tpm": lambda a, p, out: np.bitwise_and(a["A"].T, a["B"], out=out),
    "tp": lambda a, p, out: np.copyto(out, a["A"].T),
    "copy": lambda a, p, out: np.copyto(out, a["A"]),
    "mask": lambda a, p, out: np.bitwise_and(a["A"], a["B"], out=out),
}
