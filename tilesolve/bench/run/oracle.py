"""Whether a result is right: some elements against sums written out, all of it by checksums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import real_of
from tilesolve.packing.buffers import allocate

CHECKED_ELEMENTS = 200
"""Elements of a result that are compared with sums written out."""

ROUNDING_ERRORS = 32.0
"""Largest error of a correct result, in usual rounding errors of its sums."""

DIGEST_PARTS = 256
"""Parts of a result whose sums are compared among contenders."""

TINY_EXTENT = 3
"""Largest extent of the problem that is computed first."""

Array = npt.NDArray[Any]


def draw_arrays(problem: Problem, seed: int = 7) -> list[Array]:
    """Return operands of a problem and an array for its output, on huge pages; always the same.

    The output, which comes last, holds NaN.
    """
    rng = np.random.default_rng(seed)
    real = real_of(problem.dtype)
    arrays: list[Array] = []
    for shape in (*problem.shapes[1:], problem.shapes[0]):
        array = allocate(prod(shape) * problem.itemsize).view(problem.dtype)
        if len(arrays) == len(problem.spec.operands):
            array.fill(np.nan)
        else:
            rng.standard_normal(out=array.view(real), dtype=np.dtype(real).type)
        arrays.append(array.reshape(shape))
    return arrays


def pick_elements(problem: Problem, count: int = CHECKED_ELEMENTS) -> Array:
    """Return elements of the output to check, a row of indices for each; two corners among them.

    Examples
    --------
    >>> pick_elements(Problem.of("ik-ij-jk", "i=5 j=2 k=3"), 4)[:2].tolist()
    [[0, 0], [4, 2]]
    """
    return pick_places(problem.shape(0), count)


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


def shrink(problem: Problem) -> Problem:
    """Return a small problem of the same spec: computing it loads code and libraries.

    Examples
    --------
    >>> dict(shrink(Problem.of("ik-ij-jk", "i=100 k=2 j=50")).sizes)
    {'i': 3, 'k': 2, 'j': 3}
    """
    small = {letter: min(extent, TINY_EXTENT) for letter, extent in problem.sizes.items()}
    return Problem.of(problem.spec, small, problem.dtype)


def describe_fault(found: Array, values: Array, slack: Array) -> str:
    """Return how a result is wrong; an empty text if it is right.

    Examples
    --------
    >>> describe_fault(np.array([1.0, 2.5]), np.array([1.0, 2.0]), np.array([1e-9, 1e-9]))
    'wrong result: 2.5 where 2 is right, at 1 of 2 places'
    >>> describe_fault(np.array([1.0]), np.array([1.0]), np.array([0.0]))
    ''
    """
    off = ~(np.abs(found - values) <= slack)  # which NaN is never
    if not off.any():
        return ""
    first = int(np.argmax(off))
    return (
        f"wrong result: {found[first]:.6g} where {values[first]:.6g} is right, "
        f"at {int(off.sum())} of {len(values)} places"
    )


def sum_parts(result: Array) -> Array:
    """Return sums of parts of a result, which cover all of it."""
    wide = "complex128" if result.dtype.kind == "c" else "float64"
    parts = np.array_split(np.ascontiguousarray(result).reshape(-1), DIGEST_PARTS)
    return np.array([part.sum(dtype=wide) for part in parts])


def find_outliers(problem: Problem, digests: Sequence[Array]) -> list[bool]:
    """Return for each of several results of a problem whether it differs from what most found.

    Where two differ and there is no third, both do. The operands are taken to be of size one, as
    `drawn` makes them.

    Examples
    --------
    >>> problem = Problem.of("ik-ij-jk", 2)
    >>> find_outliers(problem, [np.ones(4), np.ones(4) + 1e-15, np.ones(4) + 1e-3])
    [False, False, True]
    """
    if not digests:
        return []
    stack = np.array(digests)
    middle = np.median(stack.real, axis=0) + 1j * np.median(stack.imag, axis=0)
    kept = set(problem.spec.output.letters)
    terms = prod(extent for letter, extent in problem.sizes.items() if letter not in kept)
    size = max(1, prod(problem.shape(0)) / DIGEST_PARTS)
    slack = ROUNDING_ERRORS * float(np.finfo(problem.dtype).eps) * terms * sqrt(size)
    return [bool((~(np.abs(one - middle) <= slack)).any()) for one in stack]
