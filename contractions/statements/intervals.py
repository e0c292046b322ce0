"""Intervals: the least and the greatest value that an integer term may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from operator import add, floordiv, mul, rshift, sub

import numpy as np

from tilesolve.contractions.statements.affine import Box
from tilesolve.contractions.statements.operations import named_kind
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Number,
    Position,
    Term,
)

Interval = tuple[int, int]

_AT_ENDS: dict[str, Callable[[int, int], int]] = {
    **{"add": add, "subtract": sub, "multiply": mul, "minimum": min, "maximum": max},
    **{"floor_divide": floordiv, "right_shift": rshift},
}
"""Operations whose extreme values are those of extreme arguments; the last two by positive ones."""


def find_interval(term: Term, dtypes: Mapping[str, str], box: Box) -> Interval | None:
    """Return the least and the greatest value of a term; None if it is no integer.

    What is not known of it follows from its dtype.

    Parameters
    ----------
    term
        Which.
    dtypes
        Of what it reads.
    box
        The first and the last value of each letter.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import Read
    >>> pixel = Read("I", ())
    >>> [find_interval(one, {"I": "uint8"}, {}) for one in (pixel, pixel >> 4, pixel + 1)]
    [(0, 255), (0, 15), (0, 255)]
    """
    kind = np.dtype(named_kind(term.kind(dtypes)))
    if kind.kind not in "iub":
        return None
    ends = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    found = _compute(term, dtypes, box)
    return found if found is not None and ends[0] <= found[0] <= found[1] <= ends[1] else ends


def _compute(term: Term, dtypes: Mapping[str, str], box: Box) -> Interval | None:
    """Return what a term's parts say of it; None if nothing."""
    parts = [find_interval(one, dtypes, box) for one in term.parts]
    match term, parts:
        case Number(value=int(value)), _:
            return value, value
        case Position(position=position), _:
            return position.interval(box)
        case Cast(), [inner]:
            return inner
        case Choose(), [_, (low, high), (other_low, other_high)]:
            return min(low, other_low), max(high, other_high)
        case Apply(name="remainder"), [(_, _), (low, high)] if low > 0:
            return 0, high - 1
        case Apply(name="bitwise_and"), [(low, high), (other_low, other_high)]:
            least = [most for at, most in ((low, high), (other_low, other_high)) if at >= 0]
            return (0, min(least)) if least else None
        case Apply(name=name), [tuple() as one, tuple() as other] if name in _AT_ENDS:
            if name in ("floor_divide", "right_shift") and other[0] < int(name == "floor_divide"):
                return None
            if name == "right_shift":
                other = (min(other[0], 64), min(other[1], 64))
            values = [_AT_ENDS[name](x, y) for x, y in product(one, other)]
            return min(values), max(values)
    return None
