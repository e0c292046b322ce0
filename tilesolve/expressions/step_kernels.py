"""The steps of an expression: what each does with one, two or more arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from string import ascii_letters
from typing import Any, Protocol

import numpy as np

# The function behind np.einsum: for arrays of a few elements, np.einsum itself takes half the time.
from numpy._core.multiarray import c_einsum

from tilesolve.constants import policy
from tilesolve.contractions.roles import Roles
from tilesolve.expressions.blas import limit_blas_threads
from tilesolve.packing.memory_overlap import Array


def copy_array(source: Array, out: Array, threads: int | None = None) -> Array:
    """Copy an array to another one by what is fastest, and return that; threads as in `transpose`.

    Examples
    --------
    >>> copy_array(np.arange(6).reshape(2, 3).T, np.zeros((3, 2), int)).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    if out.dtype != source.dtype or out.dtype.hasobject or not _pays_to_transpose(source.nbytes):
        np.copyto(out, source)
        return out
    from tilesolve.transposes.transpose import transpose

    return transpose(source, range(source.ndim), out, threads=threads)


def _pays_to_transpose(nbytes: int) -> bool:
    """Return whether `transpose` copies so many bytes faster than numpy."""
    return nbytes >= policy.EINSUM_TRANSPOSE_BYTES


class Kernel(Protocol):
    """One step of an expression: arrays in, an array out."""

    @property
    def route(self) -> str:
        """What runs, in a word."""

    @property
    def text(self) -> str:
        """What is computed, as einsum writes it."""

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Compute it, into `out` if one is given."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The preparation of one operand: its dtype, a diagonal, a sum over letters of its own.

    Parameters
    ----------
    text
        As einsum writes it, for the report.
    index
        Takes the one element of each axis that is broadcast or has extent 1.
    diagonal
        The einsum that makes each letter stand once, as a view; empty if each does.
    axes
        Those that are summed over.
    dtype
        Of the result.

    Examples
    --------
    >>> trace = Preparation("ii->", None, "aa->a", (0,), np.dtype(float))
    >>> float(trace(np.eye(3)))
    3.0
    """

    text: str
    index: tuple[Any, ...] | None
    diagonal: str
    axes: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def route(self) -> str:
        """What runs, in a word."""
        return "sum" if self.axes else "view"

    def owns(self, given: np.dtype[Any]) -> bool:
        """Return whether the result is new memory, for an operand of a dtype."""
        return bool(self.axes) or given != self.dtype

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Return the operand as the other steps take it."""
        (array,) = arrays
        if self.index is not None:
            array = array[self.index]
        if self.diagonal:
            array = c_einsum(self.diagonal, array)
        if self.axes:
            return np.asarray(np.add.reduce(array, self.axes, self.dtype), self.dtype)
        return array if array.dtype == self.dtype else array.astype(self.dtype)


@dataclass(frozen=True, slots=True)
class Transpose:
    """The axes of an array in another order: a view of it.

    Examples
    --------
    >>> Transpose("ij->ji", (1, 0))(np.ones((2, 3))).shape
    (3, 2)
    """

    text: str
    axes: tuple[int, ...]
    route = "view"

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Return the view, or copy it into `out`."""
        view = np.asarray(arrays[0]).transpose(self.axes)
        return view if out is None else copy_array(view, out)


@dataclass(frozen=True, slots=True)
class Zeros:
    """A result that has no element, or whose sums have no term.

    Examples
    --------
    >>> Zeros("ij->i", (2,), np.dtype(float))(np.ones((2, 0))).tolist()
    [0.0, 0.0]
    """

    text: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    route = "zeros"

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Return zeros, or fill `out` with them."""
        if out is None:
            return np.zeros(self.shape, self.dtype)
        out.fill(0)
        return out


@dataclass(frozen=True, slots=True)
class Loops:
    """A contraction of any arrays by numpy's loops.

    `text` is the contraction as einsum writes it, `run` the same in letters that numpy takes.
    Arrays of other dtypes are computed in `dtype`, too.

    Examples
    --------
    >>> float(Loops.of(("α", "α"), "", np.dtype(float))(np.ones(3), np.ones(3)))
    3.0
    """

    text: str
    run: str
    dtype: np.dtype[Any]
    route: str = "loops"

    @classmethod
    def of(cls, operands: Sequence[str], output: str, dtype: np.dtype[Any]) -> Loops:
        """Return the contraction of tensors as an output wants it."""
        text = ",".join(operands) + f"->{output}"
        return cls(text, in_ascii(text), dtype)

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Compute it."""
        if out is None:
            result = c_einsum(self.run, *arrays, dtype=self.dtype, casting="unsafe")
            return np.asarray(result, self.dtype)  # of what stands alone, an object too
        return c_einsum(self.run, *arrays, out=out, dtype=self.dtype, casting="unsafe")


def in_ascii(text: str) -> str:
    """Return an einsum with its letters renamed to those that numpy takes, 52 at most.

    Examples
    --------
    >>> in_ascii("αj,αi->ij")
    'ab,ac->cb'
    """
    letters = "".join(dict.fromkeys(x for x in text if x not in ",->"))
    return text.translate(str.maketrans(letters, ascii_letters[: len(letters)]))


@dataclass(frozen=True, slots=True)
class Multiply:
    """A product of two arrays without a sum, by numpy.

    Examples
    --------
    >>> outer = Multiply.of("i", "j", "ji")
    >>> outer(np.array([1, 2]), np.array([1, 10])).tolist()
    [[1, 2], [10, 20]]
    """

    text: str
    first: tuple[tuple[int, ...], tuple[Any, ...]]
    second: tuple[tuple[int, ...], tuple[Any, ...]]
    route = "multiply"

    @classmethod
    def of(cls, first: str, second: str, output: str) -> Multiply:
        """Return the product of two tensors as an output wants it."""
        views = [
            (
                tuple(letters.index(x) for x in output if x in letters),
                tuple(slice(None) if x in letters else None for x in output),
            )
            for letters in (first, second)
        ]
        return cls(f"{first},{second}->{output}", views[0], views[1])

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Compute it."""
        first, second = (
            array.transpose(axes)[index]
            for array, (axes, index) in zip(arrays, (self.first, self.second), strict=True)
        )
        return np.asarray(np.multiply(first, second, out=out))


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """How an operand becomes a stack of matrices: the order of its axes, then their shape.

    Examples
    --------
    >>> MatrixForm.of("kij", ("", "ij", "k"), {"k": 2, "i": 3, "j": 4})
    MatrixForm(axes=(1, 2, 0), shape=(12, 2), fused=(2, 1))
    """

    axes: tuple[int, ...] | None
    shape: tuple[int, ...] | None
    fused: tuple[int, int]

    @classmethod
    def of(cls, letters: str, groups: Sequence[str], sizes: Mapping[str, int]) -> MatrixForm:
        """Return what brings letters into groups: the first one's axes stay, others are fused."""
        batch, *fused = groups
        axes = tuple(letters.index(x) for x in "".join(groups))
        shape = (*(sizes[x] for x in batch), *(prod(sizes[x] for x in group) for group in fused))
        counts = (len(fused[0]), len(fused[1]))
        return cls(
            None if axes == tuple(range(len(axes))) else axes,
            None if counts == (1, 1) else shape,
            counts,
        )

    def copies(self, shape: Sequence[int]) -> bool:
        """Return whether the matrices of a contiguous array are a copy of it."""
        axes = range(len(shape)) if self.axes is None else self.axes
        walk = [(shape[axis], prod(shape[axis + 1 :])) for axis in axes]
        middle = len(walk) - self.fused[1]
        steps = []
        for group in (walk[middle - self.fused[0] : middle], walk[middle:]):
            if any(step != extent * inner for (_, step), (extent, inner) in pairwise(group)):
                return True
            steps.append(group[-1][1] if group else 1)
        return 1 not in steps

    def matrices(self, array: Array) -> Array:
        """Return an operand as matrices that BLAS takes: where it must, as a copy."""
        if self.axes is not None:
            array = array.transpose(self.axes)
        if self.shape is not None:
            if not self._fuses(array) and _pays_to_transpose(array.nbytes):
                array = copy_array(array, np.empty(array.shape, array.dtype))
            array = array.reshape(self.shape)
        if array.strides[-1] != array.itemsize and array.strides[-2] != array.itemsize:
            return copy_array(array, np.empty(array.shape, array.dtype))
        return array

    def _fuses(self, array: Array) -> bool:
        """Return whether the axes to be fused are one axis in memory."""
        middle = array.ndim - self.fused[1]
        return all(
            array.strides[axis] == array.strides[following] * array.shape[following]
            for group in (range(middle - self.fused[0], middle), range(middle, array.ndim))
            for axis, following in pairwise(axis for axis in group if array.shape[axis] > 1)
        )


@dataclass(frozen=True, slots=True)
class Matmul:
    """A contraction of two arrays by numpy's matrix product.

    Parameters
    ----------
    text
        As einsum writes it.
    first, second
        How the operands become matrices.
    shape
        Of the product with its letters apart; None if it has one row and one column letter.
    axes
        The order that makes them the output's; None if they are.
    threads
        That BLAS may take; as many as it likes if None.

    Examples
    --------
    >>> product = Matmul.of("ik", "kj", "ji", {"i": 2, "j": 3, "k": 4})
    >>> product(np.ones((2, 4)), np.ones((4, 3))).shape
    (3, 2)
    """

    text: str
    first: MatrixForm
    second: MatrixForm
    shape: tuple[int, ...] | None
    axes: tuple[int, ...] | None
    threads: int | None = None
    route = "matmul"

    @classmethod
    def of(
        cls,
        first: str,
        second: str,
        output: str,
        sizes: Mapping[str, int],
        threads: int | None = None,
    ) -> Matmul:
        """Return the product of two tensors as an output wants it."""
        roles = Roles.of(output, [first, second])
        # The summed letters stand as the larger operand has them, the others as the output does.
        larger = max(first, second, key=lambda letters: prod(sizes[x] for x in letters))
        sums = "".join(x for x in larger if x in roles.sums)
        rows = "".join(x for x in output if x in roles.rows)
        columns = "".join(x for x in output if x in roles.columns)
        batches = "".join(roles.batches)
        made = batches + rows + columns
        apart = tuple(sizes[x] for x in made)
        axes = tuple(made.index(x) for x in output)
        return cls(
            f"{first},{second}->{output}",
            MatrixForm.of(first, (batches, rows, sums), sizes),
            MatrixForm.of(second, (batches, sums, columns), sizes),
            None if len(rows) == len(columns) == 1 else apart,
            None if axes == tuple(range(len(axes))) else axes,
            threads,
        )

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Compute it."""
        if self.threads is None:
            return self._product(arrays, out)
        with limit_blas_threads(self.threads):
            return self._product(arrays, out)

    def _product(self, arrays: Sequence[Array], out: Array | None) -> Array:
        first, second = self.first.matrices(arrays[0]), self.second.matrices(arrays[1])
        if out is not None and self.shape is None and self.axes is None:
            return np.matmul(first, second, out=out)
        product: Array = np.matmul(first, second)
        if self.shape is not None:
            product = product.reshape(self.shape)
        if self.axes is not None:
            product = product.transpose(self.axes)
        if out is None:
            return product
        return copy_array(product, out)


@dataclass(frozen=True, slots=True)
class RoundOff:
    """An array in another dtype, of fewer bits.

    Examples
    --------
    >>> RoundOff("ij", np.dtype("float16"))(np.ones(2, np.float32)).dtype
    dtype('float16')
    """

    text: str
    dtype: np.dtype[Any]
    route = "round"

    def __call__(self, *arrays: Array, out: Array | None = None) -> Array:
        """Round it."""
        (array,) = arrays
        if out is None:
            return np.asarray(array).astype(self.dtype)
        np.copyto(out, array, casting="same_kind")
        return out
