"""How two arrays are contracted: by a plan of ours, or by what of numpy, and why.

That is decided from letters, extents and the dtype alone, so that the same expression always
computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from tilesolve.contractions.problem import DTYPES

Way = Literal["plan", "matmul", "multiply", "loops"]
"""How two arrays are contracted."""

LOOPED = 2**13
"""Multiplications (20×20×20) up to which numpy's loops are taken, for all operands at once.

They need 1 µs to start and then 0.5 ns for each; matrix products need 4 µs to start, with their
views and shapes. `examples/small_problems.py` measures it.
"""

KERNEL = 2**22
"""Flops of a matrix product (128×128×128) from which on our kernels keep up with a tuned BLAS.

Below, a call costs more than the kernels gain, and numpy's matrix product is taken. With batch
letters, each of the products has to be that large. `examples/small_problems.py` measures it.
"""

MOVED = 2**22
"""Bytes from which on `transpose` copies an array in another order, and not numpy.

It is up to four times as fast from a sixteenth of that on, but a process loads it in half a second.
"""


BESIDE = 8
"""Batches from which on an operand in which they lie beside each other is better turned first than
packed element by element (measured: with 4 it takes as long, with 16 a tenth longer)."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The letters of a contraction of two tensors, by where they stand.

    Parameters
    ----------
    batch
        In both and in the output.
    rows, columns
        In the output, and in the first or the second tensor only.
    summed
        In both and not in the output.

    Examples
    --------
    >>> Classes.of("bik", "bkj", "bij")
    Classes(batch='b', rows='i', columns='j', summed='k')
    """

    batch: str
    rows: str
    columns: str
    summed: str

    @classmethod
    def of(cls, first: str, second: str, output: str) -> Classes:
        """Return the classes; a letter of only one tensor must be in the output."""
        return cls(
            "".join(x for x in output if x in first and x in second),
            "".join(x for x in first if x not in second),
            "".join(x for x in second if x not in first),
            "".join(x for x in first if x in second and x not in output),
        )


def way(
    first: str,
    second: str,
    output: str,
    sizes: Mapping[str, int],
    dtype: np.dtype[Any],
    least: float,
) -> tuple[Way, str]:
    """Return how to contract two arrays, and why so.

    Parameters
    ----------
    first, second, output
        Their letters, none of them of extent 0, none twice in a tensor.
    sizes
        The extents.
    dtype
        Of the result.
    least
        Flops of a matrix product from which on it is planned.

    Examples
    --------
    >>> sizes = dict.fromkeys("ijk", 100)
    >>> way("ik", "kj", "ij", sizes, np.dtype(float), KERNEL)
    ('matmul', '2e+06 flops a product, plans take from 4.19e+06')
    >>> way("ik", "kj", "ij", sizes, np.dtype(int), KERNEL)
    ('loops', 'int64 is computed exactly, by numpy')
    """
    found = Classes.of(first, second, output)
    if not found.summed:
        return "multiply", "nothing is summed"
    if dtype.name not in DTYPES:
        exact = dtype.kind in "bui"
        return "loops", f"{dtype} is computed {'exactly, ' if exact else ''}by numpy"
    rows, columns, summed = (
        prod(sizes[x] for x in letters) for letters in (found.rows, found.columns, found.summed)
    )
    batch = prod(sizes[x] for x in found.batch)
    if batch * rows * columns * summed <= LOOPED:
        return "loops", few(batch * rows * columns * summed)
    if rows == 1 and columns == 1 and batch > 1:
        return "loops", "no letter of one operand only: plans have vectors along one"
    if rows == columns == 1:
        turned = found.summed != "".join(x for x in second if x in found.summed)
        if turned and dtype.itemsize * summed < MOVED:
            return "loops", "no letter is left: memory bounds it, and a copy would take longer"
        return "matmul", "no letter is left: memory bounds it, and plans have vectors along one"
    if rows == 1 or columns == 1:
        return "matmul", "a matrix by a vector: memory bounds it, whoever computes"
    flops = (8 if dtype.kind == "c" else 2) * rows * columns * summed
    if flops < least:
        return "matmul", f"{flops:.3g} flops a product, plans take from {least:.3g}"
    return "plan", f"{flops * batch:.3g} flops"


def few(count: int) -> str:
    """Return why numpy's loops are taken for so many multiplications.

    Examples
    --------
    >>> few(8)
    "8 multiplications: numpy's loops are fastest up to 8192"
    """
    return f"{count} multiplications: numpy's loops are fastest up to {LOOPED}"


def flops(
    operands: Sequence[str], output: str, sizes: Mapping[str, int], dtype: np.dtype[Any]
) -> int:
    """Return the operations that a contraction of all its operands at once takes.

    As in `Problem.flops`, but that nothing is added where nothing is summed.

    Examples
    --------
    >>> flops(("ij", "jk"), "ik", {"i": 2, "j": 3, "k": 4}, np.dtype(float))
    48
    """
    multiply, add = (6, 2) if dtype.kind == "c" else (1, 1)
    letters = set("".join(operands))
    summed = letters != set(output)
    points = prod(sizes[x] for x in letters)
    return points * ((len(operands) - 1) * multiply + add * summed)
