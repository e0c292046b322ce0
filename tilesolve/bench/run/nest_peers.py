"""Who computes nests: for each peer a function that prepares one.

Such a maker is given `NestWork`. It returns a run, which returns the result; ours also the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilesolve.bench.nests import NestCase
from tilesolve.bench.run.halide_nests import make_halide
from tilesolve.bench.run.numba_nests import make_numba
from tilesolve.bench.run.oracle import Array
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.machine.model import Machine

if TYPE_CHECKING:
    from tilesolve.nests.choices import NestMode, Route
    from tilesolve.nests.plan import NestPlan

Given = Mapping[str, Array]
Params = Mapping[str, float]
Run = Callable[[], Array]


@dataclass(frozen=True, slots=True)
class NestWork:
    """What a maker is given.

    Parameters
    ----------
    case, computation
        What is computed: the case of the suite, at its own extents or at small ones.
    machine, threads
        Where, and how many work at once.
    arrays, params
        Inputs and parameters by name.
    out
        For the result.
    """

    case: NestCase
    computation: Computation
    machine: Machine
    threads: int
    arrays: Given
    params: Params
    out: Array


def _plan(
    work: NestWork, mode: NestMode = "default", route: Route | None = None
) -> tuple[Run, NestPlan]:
    """Return a run of a plan of ours, made anew, and the plan."""
    from tilesolve.nests.plan import NestPlan

    made = NestPlan(work.computation, work.machine, work.threads, mode, route)
    given = [work.arrays[name] for name in work.computation.inputs]
    return lambda: made(*given, out=work.out, **work.params), made


def tilesolve(work: NestWork) -> tuple[Run, NestPlan]:
    """Make ready a nest of ours, by the fastest route."""
    return _plan(work)


def thesis(work: NestWork) -> tuple[Run, NestPlan]:
    """Make ready a nest by the printed formulas."""
    return _plan(work, "thesis", "nest")


def baseline(work: NestWork) -> tuple[Run, NestPlan]:
    """Make ready a nest of ours with threads outside, vectors inside, and nothing else."""
    return _plan(work, "plain", "nest")


def numba(work: NestWork) -> Run:
    """Make ready the obvious loops."""
    return make_numba(work.computation, work.threads, work.arrays, work.params, work.out)


def halide(work: NestWork) -> Run:
    """Make ready what Halide's scheduler of 2016 plans."""
    return _schedule("Mullapudi2016", work)


def halide_adams(work: NestWork) -> Run:
    """Make ready what Halide's scheduler of 2019 plans."""
    return _schedule("Adams2019", work)


def _schedule(scheduler: str, work: NestWork) -> Run:
    given = (work.arrays, work.params, work.out)
    return make_halide(scheduler, work.computation, work.machine, work.threads, *given)


def numpy(work: NestWork) -> Run:
    """Make ready what a user of NumPy writes for a kernel of the suite."""
    if work.case.name not in _NUMPY:
        raise BenchmarkError(f"nobody wrote {work.case.name} for NumPy")
    compute = _NUMPY[work.case.name]

    def run() -> Array:
        compute(work.arrays, work.params, work.out)
        return work.out

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
