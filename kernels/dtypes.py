"""What the dtypes of tensors are made of: real numbers, and how many of them a vector holds."""

from __future__ import annotations

_REALS = {"complex64": "float32", "complex128": "float64"}
_BYTES = {"float32": 4, "float64": 8, "int64": 8}


def real_of(dtype: str) -> str:
    """Return the dtype of the numbers that an element is made of.

    Examples
    --------
    >>> real_of("complex64"), real_of("float64")
    ('float32', 'float64')
    """
    return _REALS.get(dtype, dtype)


def lanes(dtype: str, bits: int) -> int:
    """Return how many numbers one vector holds; complex elements count by their parts.

    Examples
    --------
    >>> lanes("float32", 512), lanes("complex128", 512)
    (16, 8)
    """
    return bits // (8 * _BYTES[real_of(dtype)])
