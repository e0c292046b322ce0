"""Values of a file of results, refused where they cannot be what they stand for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tilesolve.contractions.errors import BenchmarkError

Data = Mapping[str, Any]
"""What JSON has for one thing: the names of its values and these."""


def read_value(data: Data, what: str) -> Any:  # noqa: ANN401 - JSON may hold anything
    """Return a value that has to be there."""
    if what not in data:
        raise BenchmarkError(f"{what!r} is missing")
    return data[what]


def read_text(data: Data, what: str) -> str:
    """Return a text."""
    found = read_value(data, what)
    if not isinstance(found, str):
        raise BenchmarkError(f"{what!r} must be a text, got {found!r}")
    return found


def read_positive(data: Data, what: str) -> float:
    """Return a number above zero.

    Examples
    --------
    >>> read_positive({"predicted": 0}, "predicted")
    Traceback (most recent call last):
    tilesolve.contractions.errors.BenchmarkError: 'predicted' must be a positive number, got 0
    """
    return _check_positive(read_value(data, what), what)


def read_times(data: Data, what: str) -> tuple[float, ...]:
    """Return a list of numbers above zero."""
    found = read_value(data, what)
    if not isinstance(found, list):
        raise BenchmarkError(f"{what!r} must be a list of numbers, got {found!r}")
    return tuple(_check_positive(one, what) for one in found)


def read_texts(data: Data, what: str) -> dict[str, str]:
    """Return texts by name."""
    found = read_value(data, what)
    if not isinstance(found, dict):
        raise BenchmarkError(f"{what!r} must be texts by name, got {found!r}")
    return {name: read_text(found, name) for name in found}


def _check_positive(found: object, what: str) -> float:
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if not (number and 0 < found <= sys.float_info.max):  # type: ignore[operator]
        raise BenchmarkError(f"{what!r} must be a positive number, got {found!r}")
    return float(found)  # type: ignore[arg-type]
