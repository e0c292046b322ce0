"""A case: what is computed, the arrays that are drawn for it, and how its result is checked.

Contractions, layers and nests are kinds of cases; `cases`, `layers` and `nests` have them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod, sqrt
from types import EllipsisType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import BenchmarkError
from tilesolve.packing.buffers import allocate

NUMPY_OFFSET_BYTES = 16
"""Bytes from the beginning of a page to where numpy's large arrays begin (glibc): amid a line."""

CHECKED_ELEMENTS = 200
"""Elements of a result that are compared with sums written out."""

ROUNDING_ERRORS = 32.0
"""Largest error of a correct result, in usual rounding errors of its sums."""

DIGEST_PARTS = 256
"""Parts of a result whose sums are compared among contenders."""

Array = npt.NDArray[Any]
Work = TypeVar("Work")


@dataclass(frozen=True, slots=True)
class Expected:
    """What a result has to be, computed in higher precision.

    `places` are the indices of the elements that are known, an ellipsis for all of them;
    `slack` is the largest error that each may have.
    """

    shape: tuple[int, ...]
    dtype: str
    places: tuple[Array, ...] | EllipsisType
    values: Array
    slack: Array | float = 0.0

    def describe_fault(self, found: Array) -> str:
        """Return how a result is wrong; an empty text if it is right.

        Examples
        --------
        >>> at, values = (np.array([0, 1]),), np.array([1.0, 2.0])
        >>> Expected((2,), "float64", at, values, 1e-9).describe_fault(np.array([1.0, 2.5]))
        'wrong result: 2.5 where 2 is right, at 1 of 2 places'
        >>> Expected((2,), "float64", at, values, 1e-9).describe_fault(values + 1e-12)
        ''
        """
        if found.shape != self.shape or found.dtype != np.dtype(self.dtype):
            return (
                f"wrong result: {found.dtype} of shape {found.shape}, "
                f"not {self.dtype} of {self.shape}"
            )
        seen, values = (np.ravel(one) for one in (found[self.places], self.values))
        exact = seen.dtype.kind in "iub"
        right = seen == values if exact else np.abs(seen - values) <= self.slack  # never for NaN
        off = ~right
        if not off.any():
            return ""
        first = int(np.argmax(off))
        return (
            f"wrong result: {seen[first]:.6g} where {values[first]:.6g} is right, "
            f"at {int(off.sum())} of {len(values)} places"
        )


@dataclass(frozen=True, slots=True)
class Case(ABC, Generic[Work]):
    """What is measured."""

    START_SECONDS: ClassVar[float]
    KEEPS_PROCESSES: ClassVar[bool] = False
    PACED: ClassVar[bool] = True
    WARM: ClassVar[bool] = False
    name: str
    work: Work

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Of what is computed."""

    @property
    def flops(self) -> float:
        """Operations, from which the time of a run is estimated; 0 if that says nothing of it."""
        return 0.0

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Bytes of all arrays."""

    @property
    def sums_slack(self) -> float:
        """By how much sums of parts of right results may differ."""
        return 0.0

    @property
    def relative_slack(self) -> float:
        """By which share of themselves they may differ beside."""
        return 0.0

    @abstractmethod
    def shrink(self) -> Case[Work]:
        """Return a small case of the same kind: computing it loads code and libraries."""

    @abstractmethod
    def draw(self, offset: int = NUMPY_OFFSET_BYTES) -> list[Array]:
        """Return arrays that are read, and last one for the result; always the same.

        Each begins so many bytes after the beginning of a line.
        """

    @abstractmethod
    def expect(self, operands: Sequence[Array]) -> Expected:
        """Return what the result is, by sums written out."""

    def laid_out(self, layout: str) -> Case[Work]:
        """Return the case with arrays in a contender's layout."""
        return self

    @abstractmethod
    def to_data(self) -> dict[str, Any]:
        """Return the JSON fields of what is computed, beside the name."""

    @abstractmethod
    def list_cells(self) -> tuple[str, str, str]:
        """Return what is computed as cells of a CSV file: spec, sizes and dtype."""

    @classmethod
    @abstractmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Return the case that such JSON fields describe."""


def place_array(shape: Sequence[int], dtype: str, offset: int = NUMPY_OFFSET_BYTES) -> Array:
    """Return a new array in C order on huge pages, which begins so many bytes after a line does.

    Examples
    --------
    >>> [place_array((2, 3), "float32", offset).ctypes.data % 64 for offset in (0, 16)]
    [0, 16]
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    return allocate(offset + size)[offset:].view(dtype).reshape(shape)


def pick_places(result: Sequence[int], count: int = CHECKED_ELEMENTS) -> Array:
    """Return places of a result of some shape to check, a row of indices for each.

    Examples
    --------
    >>> pick_places((2, 3), 5)[:2].tolist()
    [[0, 0], [1, 2]]
    """
    shape = np.array(result, dtype=np.int64)
    if 0 in shape:
        return np.zeros((0, len(shape)), np.int64)
    inside = np.random.default_rng(11).integers(0, shape, (max(0, count - 2), len(shape)))
    return np.vstack([0 * shape, shape - 1, inside]).astype(np.int64)


def sum_parts(result: Array) -> Array:
    """Return sums of parts of a result, which cover all of it."""
    wide = "complex128" if result.dtype.kind == "c" else "float64"
    parts = np.array_split(np.ascontiguousarray(result).reshape(-1), DIGEST_PARTS)
    return np.array([part.sum(dtype=wide) for part in parts])


def find_sums_slack(dtype: str, terms: int, elements: int) -> float:
    """Return by how much sums of parts may differ: of so many elements of so many terms each.

    Operands are taken to be of size one, as they are drawn.
    """
    size = max(1, elements / DIGEST_PARTS)
    return ROUNDING_ERRORS * float(np.finfo(dtype).eps) * terms * sqrt(size)


def find_outliers(case: Case[Any], digests: Sequence[Array]) -> list[bool]:
    """Return for each of several results of a case whether it differs from what most found.

    Where two differ and there is no third, both do.

    Examples
    --------
    >>> from tilesolve.bench.cases import ContractionCase
    >>> from tilesolve.contractions.problem import Problem
    >>> case = ContractionCase("x", Problem.of("ik-ij-jk", 2))
    >>> find_outliers(case, [np.ones(4), np.ones(4) + 1e-15, np.ones(4) + 1e-3])
    [False, False, True]
    """
    if not digests:
        return []
    stack = np.array(digests)
    middle = np.median(stack.real, axis=0) + 1j * np.median(stack.imag, axis=0)
    slack = case.sums_slack + case.relative_slack * np.abs(middle)
    return [bool((~(np.abs(one - middle) <= slack)).any()) for one in stack]


def match_any(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Return whether a pattern, or a name itself, means one of some names.

    Examples
    --------
    >>> match_any(["abc"], ["x", "a*"])
    True
    """
    patterns = list(patterns)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


Named = TypeVar("Named")


def choose_named(
    every: Mapping[str, Named], patterns: Sequence[str], *, suite: str, what: str
) -> dict[str, Named]:
    """Return those that patterns mean, all if there are none.

    Raises
    ------
    BenchmarkError
        If a pattern means nothing.

    Examples
    --------
    >>> choose_named({"ab": 1, "b": 2}, ["a*"], suite="mine", what="problem")
    {'ab': 1}
    """
    for pattern in patterns:
        if not match_any(every, [pattern]):
            raise BenchmarkError(f"{suite!r} has no {what} {pattern!r}; it has {', '.join(every)}")
    return {name: one for name, one in every.items() if not patterns or match_any([name], patterns)}
