"""Dtypes: the real numbers that elements are made of, and how many of them vectors hold."""

from __future__ import annotations

from tilesolve.constants.tuning import BROADCAST_REGISTERS, MAX_TILE_COLUMNS, MAX_TILE_VECTORS
from tilesolve.contractions.half_precision import summed_dtype

_REALS = {"complex64": "float32", "complex128": "float64"}
_BYTES = {"float32": 4, "float64": 8, "int64": 8}


HALVED_VECTOR_BITS = 512
"""Bits of vectors that CPUs execute in halves: half a vector takes half the time."""


def real_of(dtype: str) -> str:
    """Return the dtype of the numbers that an element is made of.

    Examples
    --------
    >>> real_of("complex64"), real_of("float64")
    ('float32', 'float64')
    """
    return _REALS.get(dtype, dtype)


def lanes(dtype: str, bits: int) -> int:
    """Return how many numbers one vector holds, 1 at least; complex elements count by their parts.

    Halves count as the float32 that they are summed in.

    Examples
    --------
    >>> lanes("float32", 512), lanes("complex128", 512), lanes("float64", 32)
    (16, 8, 1)
    """
    return max(1, bits // (8 * _BYTES[real_of(summed_dtype(dtype))]))


def halves(dtype: str, bits: int) -> bool:
    """Return whether kernels leave out the empty half of a last vector.

    CPUs execute 512 bits in two halves, or on two of their units at once. Narrower vectors take
    the same time whatever their width.

    Examples
    --------
    >>> halves("float32", 512), halves("float32", 256), halves("complex64", 512)
    (True, False, False)
    """
    return bits == HALVED_VECTOR_BITS and real_of(dtype) == dtype


def panel_columns(dtype: str, registers: int) -> int:
    """Return how many columns lie together in a micro-panel.

    Examples
    --------
    >>> panel_columns("float64", 32), panel_columns("float64", 16)
    (8, 4)
    """
    group = 8 if registers >= 32 else 4
    return group // (2 if real_of(dtype) != dtype else 1)


def max_columns(dtype: str, registers: int, groups: int) -> int:
    """Return the columns of the widest tile with so many groups of rows that registers hold.

    A complex tile has two accumulators for each, and two vectors of rows for each group.

    Examples
    --------
    >>> max_columns("float64", 16, groups=2), max_columns("complex128", 16, groups=1)
    (6, 6)
    """
    parts = 1 if real_of(dtype) == dtype else 2
    free = registers - BROADCAST_REGISTERS * parts - parts * groups
    return max(0, free // (parts * groups))


def register_tiles(dtype: str, registers: int) -> tuple[tuple[int, int], ...]:
    """Return the groups of rows and the columns of every register tile that registers hold.

    Examples
    --------
    >>> len(register_tiles("float64", 32)), register_tiles("float64", 2)
    (53, ())
    """
    return tuple(
        (groups, columns)
        for groups in range(1, MAX_TILE_VECTORS + 1)
        for columns in range(1, min(MAX_TILE_COLUMNS, max_columns(dtype, registers, groups)) + 1)
    )
