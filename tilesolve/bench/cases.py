"""What a sweep measures: the problems of a suite, of a file, or drawn at random."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import exp, log, prod

from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite, suites

MULTIPLICATIONS = (2**26, 2**30)
"""Bounds of the multiplications of a random contraction: milliseconds to tenths of a second."""

EXTENTS = (6, 400)
"""Bounds of the extents of a random contraction."""

TENSOR_ELEMENTS = 2**25
"""Most elements of a tensor of a random contraction."""


def find_cases(
    name: str, *, chosen: Sequence[str] = (), dtype: str | None = None
) -> dict[str, Problem]:
    """Return the problems of a sweep by name.

    Parameters
    ----------
    name
        A suite, the path of a suite file, or ``random:N:SEED``.
    chosen
        Names, or patterns such as ``abcdef-*``; all problems if there are none.
    dtype
        Instead of the suite's.

    Raises
    ------
    SuiteError, BenchmarkError
        If there is no such suite, or no problem of a chosen name.

    Examples
    --------
    >>> [str(problem) for problem in find_cases("tccg", chosen=["ab-acd-*"]).values()]
    ['ab-acd-dbc a=312 b=312 c=312 d=312 float64']
    >>> len(find_cases("random:5:1", dtype="float32"))
    5
    """
    drawn = re.fullmatch(r"random:([1-9][0-9]{0,4}):([0-9]{1,18})", name)
    if drawn:
        problems = draw_problems(int(drawn[1]), int(drawn[2]))
    elif name.startswith("random"):
        raise BenchmarkError(f"random problems are named random:N:SEED, got {name!r}")
    else:
        problems = suite(name)
    for pattern in chosen:
        if not any(fnmatchcase(key, pattern) for key in problems):
            raise BenchmarkError(
                f"{name!r} has no problem {pattern!r}; it has {', '.join(problems)}"
            )
    return {
        key: problem if dtype is None else Problem.of(problem.spec, problem.sizes, dtype)
        for key, problem in problems.items()
        if not chosen or any(fnmatchcase(key, pattern) for pattern in chosen)
    }


def find_case_or_suite(
    name: str, *, chosen: Sequence[str] = (), dtype: str | None = None
) -> dict[str, Problem]:
    """Return a single problem by its name in any of the shipped suites, or else a whole suite.

    Examples
    --------
    >>> list(find_case_or_suite("abc-bda-dc")), len(find_case_or_suite("tccg"))
    (['abc-bda-dc'], 36)
    """
    for known in suites():
        if name in suite(known) and not chosen:
            found = suite(known)[name]
            return {name: found if dtype is None else Problem.of(found.spec, found.sizes, dtype)}
    return find_cases(name, chosen=chosen, dtype=dtype)


def draw_problems(count: int, seed: int) -> dict[str, Problem]:
    """Return contractions of two operands with random letters, orders and sizes.

    Each of the classes M, N and K has one to three letters; the letters of each tensor stand in
    any order.

    Examples
    --------
    >>> draw_problems(3, 7) == draw_problems(3, 7)
    True
    >>> draw_problems(1, 7) == draw_problems(1, 8)
    False
    """
    draw = random.Random(seed)
    found: dict[str, Problem] = {}
    while len(found) < count:
        m, n, k = (draw.randint(1, most) for most in (3, 3, 2))
        letters = "abcdefgh"[: m + n + k]
        tensors = letters[: m + n], letters[:m] + letters[m + n :], letters[m:]
        sizes = {i: round(exp(draw.uniform(*map(log, EXTENTS)))) for i in letters}
        shuffled = ["".join(draw.sample(tensor, len(tensor))) for tensor in tensors]
        problem = Problem.of("-".join(shuffled), sizes)
        largest = max(prod(shape) for shape in problem.shapes)
        if (
            MULTIPLICATIONS[0] <= prod(sizes.values()) <= MULTIPLICATIONS[1]
            and largest <= TENSOR_ELEMENTS
        ):
            found[f"{seed}-{len(found) + 1} {problem.spec}"] = problem
    return found
