"""Half precision: operands of two bytes an element, whose products are summed in float32.

NumPy has float16 itself; bfloat16 is a dtype of the package ml_dtypes, which is imported only where
an array of it is made, or one is asked for by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tilesolve.contractions.errors import DtypeError

HALF_DTYPES = ("float16", "bfloat16")
"""Dtypes whose sums are float32."""


def is_half(dtype: str) -> bool:
    """Return whether a dtype is one of half precision.

    Examples
    --------
    >>> is_half("float16"), is_half("float32")
    (True, False)
    """
    return dtype in HALF_DTYPES


def summed_dtype(dtype: str) -> str:
    """Return the dtype that products of elements are summed in: their own, but for narrow ones.

    Examples
    --------
    >>> summed_dtype("bfloat16"), summed_dtype("int8"), summed_dtype("complex64")
    ('float32', 'int32', 'complex64')
    """
    return "float32" if is_half(dtype) else "int32" if dtype == "int8" else dtype


def array_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name.

    Raises
    ------
    DtypeError
        If it is bfloat16, and there is no ml_dtypes.

    Examples
    --------
    >>> array_dtype("float16")
    dtype('float16')
    """
    if name != "bfloat16":
        return np.dtype(name)
    try:
        found: np.dtype[Any] = np.dtype(import_module("ml_dtypes").bfloat16)
    except ImportError as error:
        raise DtypeError(
            "bfloat16 is a dtype of the package ml_dtypes, which is not installed: "
            "pip install 'tilesolve[bfloat16]'"
        ) from error
    return found
