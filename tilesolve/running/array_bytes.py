"""How much memory the arrays take that a value is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np


def sum_array_bytes(value: object) -> int:
    """Return the bytes of all arrays in a value made of data classes, mappings and sequences.

    Arrays that are there several times count once.

    Examples
    --------
    >>> table = np.zeros(3)
    >>> sum_array_bytes({"first": (table, 1), "second": [table, "text", np.zeros((2, 2))]})
    56
    """
    found: dict[int, int] = {}
    left, seen = [value], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            found[id(one)] = one.nbytes
        elif isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif is_dataclass(one):
            left += (getattr(one, known.name) for known in fields(one))
    return sum(found.values())
