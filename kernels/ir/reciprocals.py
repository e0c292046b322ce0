"""Reciprocals of numbers that are multiplied by in place of dividing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

LARGEST_DIVISOR = 2.0**64
"""A real divisor whose reciprocal is multiplied by is at most so large, and 1 at least."""


def find_reciprocal(divisor: float, real: type[Any]) -> float | None:
    """Return the reciprocal of a number in a dtype, if quotients by it are exact in two steps.

    Examples
    --------
    >>> [find_reciprocal(one, np.float32) is None for one in (3.0, 7.0, 0.1)]
    [False, True, True]
    """
    if not 1 <= abs(divisor) <= LARGEST_DIVISOR:
        return None
    found = float(real(1) / real(divisor))
    apart = abs(1 - Fraction(float(real(divisor))) * Fraction(found))
    return found if 0 < apart <= Fraction(float(np.finfo(real).eps)) / 4 else None
