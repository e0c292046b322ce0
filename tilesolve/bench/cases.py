"""Contractions as cases: the problems of a suite, of a file, or drawn at random."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, prod, sqrt
from typing import Any, Self

import numpy as np

from tilesolve.bench.case import (
    NUMPY_OFFSET_BYTES,
    ROUNDING_ERRORS,
    Array,
    Case,
    Expected,
    Work,
    choose_named,
    find_sums_slack,
    pick_places,
    place_array,
)
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import list_suites, read_drawn_name, suite
from tilesolve.kernels.dtypes import real_of

MULTIPLICATIONS = (2**26, 2**30)
"""Bounds of the multiplications of a random contraction: milliseconds to tenths of a second."""

EXTENTS = (6, 400)
"""Bounds of the extents of a random contraction."""

TENSOR_ELEMENTS = 2**25
"""Most elements of a tensor of a random contraction."""

TINY_EXTENT = 3
"""Largest extent of the problem that is computed first."""

START_SECONDS = 3.0
"""Estimated seconds to start and check a contender, beside its runs."""


@dataclass(frozen=True, slots=True)
class ProblemCase(Case[Work]):
    """What is a contraction, whatever its arrays are called."""

    @property
    @abstractmethod
    def problem(self) -> Problem:
        """The contraction."""

    @property
    def dtype(self) -> str:
        """That of all tensors."""
        return self.problem.dtype

    @property
    def flops(self) -> float:
        """Operations of the contraction."""
        return self.problem.flops

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(self.problem.bytes)

    @property
    def sums_slack(self) -> float:
        """By how much sums of parts of right results may differ."""
        problem = self.problem
        kept = set(problem.spec.output.letters)
        terms = prod(extent for letter, extent in problem.sizes.items() if letter not in kept)
        return find_sums_slack(problem.dtype, terms, prod(problem.shape(0)))

    def to_data(self) -> dict[str, Any]:
        """Return the JSON fields of the contraction."""
        spec, sizes = str(self.problem.spec), dict(self.problem.sizes)
        return {"spec": spec, "sizes": sizes, "dtype": self.dtype}

    def list_cells(self) -> tuple[str, str, str]:
        """Return spec, sizes and dtype."""
        sizes = " ".join(f"{letter}={extent}" for letter, extent in self.problem.sizes.items())
        return str(self.problem.spec), sizes, self.dtype


@dataclass(frozen=True, slots=True)
class ContractionCase(ProblemCase[Problem]):
    """A contraction that is measured.

    Examples
    --------
    >>> case = ContractionCase("mine", Problem.of("ik-ij-jk", "i=100 k=2 j=50"))
    >>> dict(case.shrink().work.sizes)
    {'i': 3, 'k': 2, 'j': 3}
    """

    START_SECONDS = START_SECONDS

    @property
    def problem(self) -> Problem:
        """The contraction."""
        return self.work

    def shrink(self) -> ContractionCase:
        """Return the same spec at small extents."""
        small = {letter: min(extent, TINY_EXTENT) for letter, extent in self.work.sizes.items()}
        return ContractionCase(self.name, Problem.of(self.work.spec, small, self.dtype))

    def draw(self, offset: int = NUMPY_OFFSET_BYTES) -> list[Array]:
        """Return operands, and an array for the output."""
        return draw_arrays(self.work, offset=offset)

    def expect(self, operands: Sequence[Array]) -> Expected:
        """Return some elements of the output."""
        shape = self.work.shape(0)
        at = pick_places(shape)
        found = compute_elements(self.work, operands, at)
        return Expected(shape, self.dtype, tuple(at.T), *found)

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Return the contraction that such JSON fields describe."""
        return cls(entry["name"], Problem.of(entry["spec"], entry["sizes"], entry["dtype"]))


def name_cases(problems: Mapping[str, Problem]) -> dict[str, ContractionCase]:
    """Return problems as cases."""
    return {name: ContractionCase(name, problem) for name, problem in problems.items()}


def find_cases(
    name: str, *, chosen: Sequence[str] = (), dtype: str | None = None
) -> dict[str, Problem]:
    """Return the problems of a sweep by name.

    `name` is a suite, the path of a suite file, or ``random:N:SEED``. `chosen` has names, or
    patterns such as ``abcdef-*``; without any, all problems are meant. `dtype` replaces that of
    the suite.

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
    if drawn := read_drawn_name(name, "random"):
        problems = draw_problems(*drawn)
    elif name.startswith("random"):
        raise BenchmarkError(f"random problems are named random:N:SEED, got {name!r}")
    else:
        problems = suite(name)
    return {
        key: problem if dtype is None else Problem.of(problem.spec, problem.sizes, dtype)
        for key, problem in choose_named(problems, chosen, suite=name, what="problem").items()
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
    for known in list_suites():
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


def draw_arrays(problem: Problem, seed: int = 7, offset: int = NUMPY_OFFSET_BYTES) -> list[Array]:
    """Return operands of a problem and an array for its output, on huge pages; always the same.

    Each begins so many bytes after the beginning of a line.

    The output, which comes last, holds NaN.
    """
    rng = np.random.default_rng(seed)
    real = real_of(problem.dtype)
    arrays: list[Array] = []
    for shape in (*problem.shapes[1:], problem.shapes[0]):
        array = place_array(shape, problem.dtype, offset)
        if len(arrays) == len(problem.spec.operands):
            array.fill(np.nan)
        else:
            rng.standard_normal(out=array.reshape(-1).view(real), dtype=np.dtype(real).type)
        arrays.append(array)
    return arrays


def compute_elements(problem: Problem, operands: Sequence[Array], at: Array) -> tuple[Array, Array]:
    """Return some elements of the output, and the largest error that each may have.

    The elements are summed in double precision. Rounding errors of a sum of N products grow as
    the root of N times the root of the sum of their squares.

    Examples
    --------
    >>> problem = Problem.of("ik-ij-jk", 2)
    >>> given = np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(2)
    >>> values, slack = compute_elements(problem, given, np.array([[0, 0], [1, 0]]))
    >>> values.tolist(), bool((slack < 1e-12).all())
    ([1.0, 3.0], True)
    """
    spec, sizes = problem.spec, problem.sizes
    summed = [i for i in spec.letters if i not in spec.output.letters]
    grid = dict(zip(summed, np.ix_(*(np.arange(sizes[i]) for i in summed)), strict=True))
    wide = "complex128" if problem.dtype.startswith("complex") else "float64"
    values, slack = np.zeros(len(at), wide), np.zeros(len(at))
    epsilon = float(np.finfo(problem.dtype).eps)
    kept = [subscript.letters[0] for subscript in spec.output.subscripts]
    for row, place in enumerate(at):
        here: dict[str, Any] = grid | dict(zip(kept, place, strict=True))
        product: Any = np.ones(tuple(sizes[i] for i in summed), wide)
        for tensor, operand in zip(spec.operands, operands, strict=True):
            where = [sum(c * here[i] for c, i in sub.terms) for sub in tensor.subscripts]
            product = product * operand[tuple(where)]
        values[row] = product.sum()
        slack[row] = ROUNDING_ERRORS * epsilon * sqrt(product.size) * float(np.linalg.norm(product))
    return values, slack
