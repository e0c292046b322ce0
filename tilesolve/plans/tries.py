"""Tries: the candidates that are predicted to be fastest are run, and the fastest one is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.constants.policy import TIME_TOLERANCE
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.planning.demand import Demand
from tilesolve.planning.solution import Solution
from tilesolve.planning.solve import list_tries
from tilesolve.plans.executors import make_executor
from tilesolve.system.first_use import tell_of_planning
from tilesolve.system.result_buffers import new_result

TURNS_SECONDS = 0.5
"""Seconds of all turns of tries, about, unless a single one takes longer."""

MOST_TURNS = 50
"""Further turns at most."""

FLUSHED_CACHES = 2
"""Bytes that are written between runs, over the capacity of the largest cache: as TCCG does."""


def pick_fastest_measured(
    problem: Problem, machine: Machine, threads: int, demand: Demand
) -> Solution:
    """Return the best solution by its price; with several tries, the fastest of the best ones.

    Another one than the best by its price has to be faster by more than times differ anyway.

    Examples
    --------
    >>> problem, machine = Problem.of("ij-ik-kj", 24), Machine.load("i7-6700k")
    >>> found = list_tries(problem, machine, 1, Demand())
    >>> pick_fastest_measured(problem, machine, 1, Demand()) == found[0]
    True
    """
    with tell_of_planning():
        candidates = list_tries(problem, machine, threads, demand)
    if len(candidates) == 1:
        return candidates[0]
    taken = measure(candidates)
    least = min(taken)
    gains = least < (1 - TIME_TOLERANCE) * taken[0]
    return candidates[taken.index(least) if gains else 0]


def measure(candidates: Sequence[Solution]) -> list[float]:
    """Return the least seconds of a call of each candidate, in turns, on synthetic data.

    A call before that compiles. There is one turn where that is long; short ones are repeated.
    Caches are emptied before each call, as the price has it: what the candidate before has left
    there would favour who writes through the caches.
    """
    problem = candidates[0].problem
    generator = np.random.default_rng(0)

    def draw(shape: Sequence[int]) -> npt.NDArray[Any]:
        return generator.random(tuple(shape)).astype(array_dtype(problem.dtype))

    operands, out = [draw(shape) for shape in problem.shapes[1:]], draw(problem.shapes[0])
    if problem.aligned_output:
        aligned = new_result(out.shape, out.dtype)
        np.copyto(aligned, out)
        out = aligned
    epilogue = candidates[0].epilogue
    others = [draw(shape) for shape in epilogue.shapes(problem)] if epilogue else []
    calls = [_call(one, operands, out, others) for one in candidates]
    for call in calls:
        call()
    trash = np.zeros(count_flush_bytes(candidates[0].machine), np.uint8)
    taken = [_seconds(call, trash) for call in calls]
    for _ in range(min(MOST_TURNS, int(TURNS_SECONDS / sum(taken)))):
        taken = [min(least, _seconds(c, trash)) for least, c in zip(taken, calls, strict=True)]
    return taken


def count_flush_bytes(machine: Machine) -> int:
    """Return the bytes that are written between runs, so that no cache helps the next one."""
    return FLUSHED_CACHES * max(level.capacity or 0 for level in machine.levels)


def _call(
    solution: Solution,
    operands: Sequence[npt.NDArray[Any]],
    out: npt.NDArray[Any],
    others: Sequence[npt.NDArray[Any]],
) -> Callable[[], object]:
    """Return a call of a solution; operands that are constant are prepared before."""
    executor, names = make_executor(solution), solution.problem.spec.names[1:]
    first, second = (
        executor.prepare(name, array) if at in solution.problem.constant else array
        for at, (name, array) in enumerate(zip(names, operands, strict=True), start=1)
    )
    beta = 1.0 if solution.output == "accumulate" else 0.0
    return lambda: executor.run(first, second, out, 1.0, beta, others)


def _seconds(call: Callable[[], object], trash: npt.NDArray[np.uint8]) -> float:
    np.add(trash, 1, out=trash)
    begin = perf_counter()
    call()
    return perf_counter() - begin
