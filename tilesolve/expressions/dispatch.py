"""How two arrays are contracted: by a plan, or by a function of numpy, and why.

Letters, extents and the dtype decide, so that the same expression always computes the same. The
limits are in `constants.policy`, the measurements behind them in
``docs/decisions/060-einsum-routes.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from tilesolve.constants import policy
from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.problem import OPERAND_DTYPES
from tilesolve.contractions.roles import Roles
from tilesolve.system.checks import check_threads

Route = Literal["plan", "matmul", "multiply", "loops"]
"""How two arrays are contracted."""

WHY_OBJECTS = "objects are multiplied and added as they define it, in numpy's loops"


@dataclass(frozen=True, slots=True)
class Options:
    """What a user asks for.

    Parameters
    ----------
    threads
        Of plans, see `plan`; and, if a number is given, of numpy's BLAS.
    optimize
        Anything that opt_einsum takes for the order of pairs; False is from left to right.
    memory_limit
        Bytes of intermediate results and copies.
    called_once
        Whether planning must pay in a single call.
    aligned_output
        Whether large results begin with lines, as new ones do; else amid them.
    """

    threads: int | None = None
    optimize: Any = True
    memory_limit: int | None = None
    called_once: bool = False
    aligned_output: bool = True

    def __post_init__(self) -> None:
        if self.threads is not None:
            check_threads(self.threads)
        limit = self.memory_limit
        if limit is not None and (not isinstance(limit, int | np.integer) or limit < 0):
            raise SizeError(f"memory_limit is a number of bytes, 0 or more, not {limit!r}")


@dataclass(frozen=True, slots=True)
class Request:
    """What all steps of an expression share.

    `sizes` has the extent of each letter; `transposes_batches` says whether tensors may be
    copied to have the letters of a batch in front.
    """

    sizes: Mapping[str, int]
    dtype: np.dtype[Any]
    options: Options = Options()
    transposes_batches: bool = True

    @property
    def plan_flops(self) -> float:
        """Flops of a matrix product from which on it is planned."""
        once = self.options.called_once
        return policy.EINSUM_PLAN_FLOPS if once else policy.EINSUM_KERNEL_FLOPS

    def size(self, letters: Iterable[str]) -> int:
        """Return the elements of a tensor with these letters."""
        return prod(self.sizes[x] for x in letters)

    def nbytes(self, letters: Iterable[str]) -> int:
        """Return the bytes of a tensor with these letters."""
        return self.size(letters) * self.dtype.itemsize


def choose_route(request: Request, first: str, second: str, output: str) -> tuple[Route, str]:
    """Return how to contract two arrays, and why so.

    No array has a letter twice, or one of extent 0.

    Examples
    --------
    >>> sizes = dict.fromkeys("ijk", 100)
    >>> choose_route(Request(sizes, np.dtype(float)), "ik", "kj", "ij")
    ('matmul', '2e+06 flops a product, plans take from 4.19e+06')
    >>> choose_route(Request(sizes, np.dtype(int)), "ik", "kj", "ij")
    ('loops', 'int64 is computed exactly, by numpy')
    """
    roles, dtype = Roles.of(output, [first, second]), request.dtype
    if dtype.hasobject:
        return "loops", WHY_OBJECTS
    if not roles.sums:
        return "multiply", "nothing is summed"
    if dtype.name not in OPERAND_DTYPES:
        exact = dtype.kind in "bui"
        return "loops", f"{dtype} is computed {'exactly, ' if exact else ''}by numpy"
    rows, columns, sums, batches = map(request.size, roles)
    products = batches * rows * columns * sums
    if products <= policy.EINSUM_LOOP_PRODUCTS:
        return "loops", why_loops(products)
    if rows == 1 and columns == 1 and batches > 1:
        return "loops", "no letter of one operand only: plans have vectors along one"
    if rows == columns == 1:
        transposed = list(roles.sums) != [x for x in second if x in roles.sums]
        if transposed and dtype.itemsize * sums < policy.EINSUM_TRANSPOSE_BYTES:
            return "loops", "no letter is left: memory bounds it, and a copy would take longer"
        return "matmul", "no letter is left: memory bounds it, and plans have vectors along one"
    if rows == 1 or columns == 1:
        return "matmul", "a matrix by a vector: memory bounds it, whoever computes"
    work = (8 if dtype.kind == "c" else 2) * rows * columns * sums
    if work < request.plan_flops:
        return "matmul", f"{work:.3g} flops a product, plans take from {request.plan_flops:.3g}"
    return "plan", f"{work * batches:.3g} flops"


def why_loops(products: int) -> str:
    """Return why numpy's loops are taken for so many multiplications.

    Examples
    --------
    >>> why_loops(8)
    "8 multiplications: numpy's loops are fastest for so few"
    """
    return f"{products} multiplications: numpy's loops are fastest for so few"


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
