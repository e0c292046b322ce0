"""A contraction as a product of matrices: rows, columns, sums, batches, and their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.gpu import CHUNK_BYTES, MOST_ELEMENTS
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.epilogue_terms import FIRST, OPERAND, SECOND, SUM, list_steps
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.statements.terms import Number, Read, Term
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.kernels.gpu.forms import Arithmetic, Ending, Operand

Places = NDArray[np.int64]
"""Elements from a tensor's begin, for each row, column, sum or batch."""


@dataclass(frozen=True)
class Product:
    """A contraction of two operands over matrices of its letters.

    The epilogue is done to each element in the end; C's own is added before to accumulate. Operands
    are numbers of the tensors that have rows and columns: 1 and 2, or turned, so that what lies
    side by side in C are columns. The letters of each side have the outermost first.

    Examples
    --------
    >>> found = Product.of(Problem.of("abcd-aebf-dfce", 8))
    >>> found.operands, found.rows, found.columns, found.sums, found.extents
    ((1, 2), ('a', 'b'), ('c', 'd'), ('e', 'f'), (64, 64, 64, 1))
    """

    problem: Problem
    epilogue: Epilogue
    accumulate: bool
    operands: tuple[int, int]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    sums: tuple[str, ...]
    batches: tuple[str, ...]

    @classmethod
    def of(
        cls, problem: Problem, epilogue: Epilogue | None = None, *, accumulate: bool = False
    ) -> Product:
        """Return the product that a contraction is.

        Raises
        ------
        PlanError
            If it is none: a convolution, or a letter that stands in one tensor alone; or if a
            function of the epilogue is not one of elements that is traced.
        SizeError
            If a tensor is empty, or larger than kernels count.
        """
        spec = problem.spec
        if problem.padding or problem.pairing or len(spec.operands) != 2:
            raise PlanError(f"GPUs compute contractions of two operands, not {problem}")
        terms = [[s.terms for s in tensor.subscripts] for tensor in spec.tensors]
        for tensor, found in zip(spec.tensors, terms, strict=True):
            plain = all(len(one) == 1 and one[0][0] == 1 for one in found)
            if not plain or len(set(tensor.letters)) < len(found):
                raise PlanError(f"GPUs compute no windows and no diagonals: {spec}")
        for shape in problem.shapes:
            if not 0 < prod(shape) <= MOST_ELEMENTS:
                raise SizeError(f"GPUs take tensors of 1 to {MOST_ELEMENTS} elements: {problem}")
        output, one, other = (tensor.letters for tensor in spec.tensors)
        for letter in problem.sizes:
            homes = sum(letter in letters for letters in (output, one, other))
            if homes < 2:
                raise PlanError(f"letter {letter!r} of {spec} stands in one tensor alone")
        beside = output[-1:]
        turned = any(i in one and i not in other for i in beside)
        first, second = (other, one) if turned else (one, other)
        numbers = (2, 1) if turned else (1, 2)
        kept = set(output)
        chain = epilogue or Epilogue(())
        chain.check(problem)
        if any(step.function for step in list_steps(chain)):
            raise PlanError(f"GPUs compute no function of {str(chain)!r} that is not traced")
        return cls(
            problem,
            chain,
            accumulate,
            numbers,
            _order(problem, kept & set(first) - set(second), (numbers[0], 0)),
            _order(problem, kept & set(second) - set(first), (numbers[1], 0)),
            _order(problem, set(first) & set(second) - kept, numbers),
            _order(problem, set(first) & set(second) & kept, (0,)),
        )

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Rows, columns, steps of the sum, and batches."""
        groups = self.rows, self.columns, self.sums, self.batches
        rows, columns, sums, batches = (
            prod(self.problem.sizes[i] for i in letters) for letters in groups
        )
        return rows, columns, sums, batches

    @cached_property
    def _tensors(self) -> tuple[tuple[str, ...], ...]:
        """The letters of the operands, of C and of the epilogue's operands."""
        tensors = self.problem.spec.tensors
        own = (tensors[at].letters for at in (*self.operands, 0))
        return (*own, *self.epilogue.operands)

    @cached_property
    def _arrays(self) -> tuple[str, ...]:
        """The names of C and of the epilogue's operands, see `Ending`."""
        return ("output", *(f"operand{at}" for at in range(len(self.epilogue.operands))))

    def fuse(self, letters: Sequence[str], tensor: int) -> list[tuple[int, int]]:
        """Return extents of letters and how far apart a tensor's elements are along each.

        Letters that follow each other in memory are one, those of one value are none.
        """
        found: list[tuple[int, int]] = []
        for letter in letters:
            extent, step = self.problem.sizes[letter], self._step(letter, tensor)
            if found and found[-1][1] == extent * step:
                found[-1] = found[-1][0] * extent, step
            elif extent > 1:
                found.append((extent, step))
        return found

    def _step(self, letter: str, tensor: int) -> int:
        """Return how far apart a tensor's elements are along a letter, 0 if it has none."""
        own = self._tensors[tensor]
        beyond = own[own.index(letter) + 1 :] if letter in own else ()
        return prod(self.problem.sizes[i] for i in beyond) if letter in own else 0

    def _places(self, letters: Sequence[str], tensor: int) -> Places:
        """Return where elements of a tensor are along some letters, all others at their begin."""
        found = np.zeros(1, np.int64)
        for letter in letters:
            step = self._step(letter, tensor)
            found = (found[:, None] + np.arange(self.problem.sizes[letter]) * step).ravel()
        return found

    @cached_property
    def places(self) -> Mapping[str, Places]:
        """Where elements are, by the arguments of kernels."""
        found = {
            "first_free": self._places(self.rows, 0),
            "first_sum": self._places(self.sums, 0),
            "second_sum": self._places(self.sums, 1),
            "second_free": self._places(self.columns, 1),
        }
        for at, name in enumerate(self._arrays, 2):
            found[f"{name}_row"] = self._places(self.rows, at)
            found[f"{name}_column"] = self._places(self.columns, at)
        return found

    @cached_property
    def batch_places(self) -> Places:
        """Where batches of both operands, of C and of the epilogue's begin, side by side."""
        own = [self._places(self.batches, at) for at in range(len(self._tensors))]
        return np.stack(own, axis=1).ravel()

    @property
    def output_dtype(self) -> str:
        """The dtype of C."""
        return "int32" if self.problem.dtype == "int8" else self.problem.dtype

    @property
    def output_bytes(self) -> int:
        """Bytes of C, and of what is read to end it: its own elements, and operands."""
        problem, own = self.problem, self._tensors[3:]
        size = problem.bytes[0] // prod(problem.shapes[0])
        more = sum(prod(problem.sizes[i] for i in letters) for letters in own)
        return problem.bytes[0] * (1 + self.accumulate) + more * size

    def name_arrays(
        self, first: Any, second: Any, output: Any, operands: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Return arrays by the names that kernels have for them.

        Raises
        ------
        SizeError, DtypeError
            If one is missing, or not of its shape and dtype.
        """
        if len(operands) != len(self.epilogue.operands):
            told = f"{str(self.epilogue)!r} takes {len(self.epilogue.operands)} operands"
            raise SizeError(f"the epilogue {told}, got {len(operands)}")
        given = [(first, second)[at - 1] for at in self.operands]
        names = "first", "second", *self._arrays
        found = dict(zip(names, (*given, output, *operands), strict=True))
        for (name, one), letters in zip(found.items(), self._tensors, strict=True):
            dtype = self.problem.dtype if name in ("first", "second") else self.output_dtype
            check_array(one, "an array", tuple(self.problem.sizes[i] for i in letters), dtype)
        return found

    def ending(self, arithmetic: Arithmetic) -> Ending:
        """Return what becomes of sums.

        Examples
        --------
        >>> problem, chain = Problem.of("ij-ik-kj", 8), Epilogue.parse("*j relu")
        >>> print(Product.of(problem, chain, accumulate=True).ending("fma64").term)
        where((sum[] + output[]) * operand0[] <= 0, 0, (sum[] + output[]) * operand0[])
        """
        term: Term = SUM + Read("output", ()) if self.accumulate else SUM
        names = iter(self._arrays[1:])
        for step in list_steps(self.epilogue):
            given: dict[Term, Term] = {SUM: term}
            given |= zip((FIRST, SECOND), map(Number, step.numbers), strict=False)
            if step.takes_operand:
                given[OPERAND] = Read(next(names), ())
            term = replace_terms(step.term, given)
        linear = tuple(
            (is_linear(self.places[f"{name}_row"]), is_linear(self.places[f"{name}_column"]))
            for name in self._arrays
        )
        return Ending(arithmetic, linear, term)

    def operand(self, at: int) -> Operand:
        """Return how an operand is copied to shared memory: 0 has rows, 1 has columns."""
        name = ("first", "second")[at]
        free, summed = self.places[f"{name}_free"], self.places[f"{name}_sum"]
        batches = self.batch_places[at :: len(self._tensors)]
        most = CHUNK_BYTES // self.problem.itemsize
        widths = [
            _find_width(along, (across, batches), most)
            for along, across in ((summed, free), (free, summed))
        ]
        beside = [len(along) > 1 and along[1] - along[0] == 1 for along in (summed, free)]
        along_sum = bool((widths[0], beside[0]) >= (widths[1], beside[1]))
        return Operand(along_sum, widths[not along_sum], is_linear(free), is_linear(summed))


def _order(problem: Problem, letters: Iterable[str], tensors: tuple[int, ...]) -> tuple[str, ...]:
    """Return letters as the first tensor has them, with one last that lies side by side in any."""
    found = sorted(letters, key=problem.spec.tensors[tensors[0]].letters.index)
    for tensor in tensors:
        last = problem.spec.tensors[tensor].letters[-1:]
        if last and last[0] in found:
            found.remove(last[0])
            return (*found, *last)
    return tuple(found)


def check_array(array: Any, name: str, shape: tuple[int, ...], dtype: str) -> None:
    """Raise an error unless an array, of any library, has a shape and a dtype.

    Examples
    --------
    >>> check_array(np.ones(3), "x", (3,), "float32")
    Traceback (most recent call last):
    tilesolve.contractions.errors.DtypeError: x must be of dtype float32, got float64
    """
    if tuple(array.shape) != shape:
        raise SizeError(f"{name} must have the shape {shape}, got {tuple(array.shape)}")
    if (known := str(array.dtype).rpartition(".")[2]) != dtype:
        raise DtypeError(f"{name} must be of dtype {dtype}, got {known}")


def is_linear(places: Places) -> bool:
    """Return whether places are equally far apart.

    Examples
    --------
    >>> is_linear(np.array([0, 3, 6])), is_linear(np.array([0, 3, 4]))
    (True, False)
    """
    return len(places) < 3 or bool((np.diff(places) == places[1]).all())


def _find_width(along: Places, across: tuple[Places, ...], most: int) -> int:
    """Return how many elements side by side always begin at a multiple of their number."""
    width = most
    while width > 1:
        if len(along) % width == 0:
            chunks = along.reshape(-1, width)
            even = all((one % width == 0).all() for one in (chunks[:, 0], *across))
            if even and (np.diff(chunks, axis=1) == 1).all():
                return width
        width //= 2
    return 1
