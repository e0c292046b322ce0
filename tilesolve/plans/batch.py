"""Batches: the same contraction of many operands, spread over the cores.

As in the paper's "batched" runs (section 6 of Li et al., SC 2019), each core contracts operands of
its own, and the cores share no data. So a core has its part of every shared level, and its part of
the bandwidth that all cores draw together; the plan that every core runs is made for that machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from operator import itemgetter
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.constants import policy
from tilesolve.contractions.arrays import is_tensor, view_tensor
from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.contractions.problem import Problem
from tilesolve.packing.memory_overlap import Array, address_range, overlap
from tilesolve.running.execution import read_factor
from tilesolve.system.cancellation import is_stopped
from tilesolve.system.checks import check_dtype, check_output
from tilesolve.system.result_buffers import new_result
from tilesolve.system.workers import run_together

Arrays = Sequence[npt.ArrayLike] | Array
"""One operand of each contraction; an array is taken along its first axis."""


Runner = Callable[..., Array]
"""What computes one contraction: a plan."""


def run_batch(
    problem: Problem,
    runner: Callable[[int], Runner],
    firsts: Arrays,
    seconds: Arrays,
    outs: Sequence[Array] | Array | None,
    cores: int,
    predicted: float,
    alpha: complex,
    beta: complex,
) -> Sequence[Array] | Array:
    """Run a contraction for many operands; see `Plan.batch`.

    Parameters
    ----------
    problem
        What each contraction computes.
    runner
        Returns what one of so many busy cores runs.
    firsts, seconds, outs, alpha, beta
        As in `Plan.batch`.
    cores
        Cores that share the contractions.
    predicted
        Seconds of one contraction.
    """
    alpha, beta = read_factor(problem, "alpha", alpha), read_factor(problem, "beta", beta)
    firsts, seconds = _view_rows(firsts, "firsts"), _view_rows(seconds, "seconds")
    given, made = _checked(problem, firsts, seconds, _view_rows(outs, "outs"), beta)
    busy = min(cores, max(1, len(given)))
    run = runner(busy)
    numbers = count()  # a thread takes the next contraction when it is done with one
    ended = Event()

    def work() -> None:
        try:
            while not (ended.is_set() or is_stopped()) and (number := next(numbers)) < len(given):
                run(*given[number], out=made[number], alpha=alpha, beta=beta)
        except BaseException:  # an interrupt, too, ends the other threads' work
            ended.set()
            raise

    run_together([work] * busy, long=len(given) * predicted >= policy.LONG_SECONDS * busy)
    return made if outs is None else outs


def _view_rows(of: Any, name: str) -> Any:  # noqa: ANN401 - what the caller may give
    """Return operands or outputs that are one tensor as an array."""
    return view_tensor(of, name) if is_tensor(of) else of


def _checked(
    problem: Problem,
    firsts: Arrays,
    seconds: Arrays,
    outs: Sequence[Array] | Array | None,
    beta: complex,
) -> tuple[list[tuple[Array, Array]], Sequence[Array] | Array]:
    """Return the operands and outputs as arrays after checking all of them."""
    text, letters = str(problem.spec), "".join(problem.spec.output.letters)
    shape, dtype = problem.shapes[0], array_dtype(problem.dtype)
    for name, of in (("firsts", firsts), ("seconds", seconds), ("outs", outs)):
        given_one_by_one = isinstance(of, Sequence) or (isinstance(of, np.ndarray) and of.ndim)
        if not given_one_by_one and (of is not None or name != "outs"):
            raise SizeError(f"{name} of a batch is a sequence or an array, not {of!r:.50}")
    if len(firsts) != len(seconds):
        raise SizeError(f"a batch of {len(firsts)} first and {len(seconds)} second operands")
    given = []
    for number, pair in enumerate(zip(firsts, seconds, strict=True)):
        first, second = problem.check_operands(*pair)
        for name, array in (("first", first), ("second", second)):
            check_dtype(array, f"the {name} operand of contraction {number}", dtype)
        given.append((first, second))
    if outs is None:
        if beta != 0:
            raise PlanError(f"beta is {beta}: there are no outs to multiply by it")
        return given, new_result((len(given), *shape), dtype)
    if len(outs) != len(given):
        raise SizeError(f"a batch of {len(given)} contractions, but {len(outs)} outs")
    made = [
        check_output(
            out,
            f"out of {text!r}, contraction {number},",
            shape,
            letters=letters,
            dtype=dtype,
            operands={"operand 0": first, "operand 1": second},
        )
        for number, (out, (first, second)) in enumerate(zip(outs, given, strict=True))
    ]
    _check_contractions_apart(given, made)
    return given, made


def _check_contractions_apart(given: Sequence[tuple[Array, Array]], outs: Sequence[Array]) -> None:
    """Raise `PlanError` if an output shares memory with anything of another contraction."""
    spans: list[tuple[int, int, int, Array, bool]] = []
    for number, (out, pair) in enumerate(zip(outs, given, strict=True)):
        for array, written in ((out, True), *((operand, False) for operand in pair)):
            if array.size:
                spans.append((*address_range(array), number, array, written))
    spans.sort(key=itemgetter(0))
    open_: list[tuple[int, int, int, Array, bool]] = []
    for one in spans:
        low, _, number, array, written = one
        open_ = [other for other in open_ if other[1] > low]
        for _, _, before, other, also in open_:
            if number != before and (written or also) and overlap(array, other):
                lower, higher = sorted((number, before))
                raise PlanError(
                    f"contractions {lower} and {higher} of a batch share memory that is written to"
                )
        open_.append(one)
