"""Checks of what kind of value an argument is, with an error that names it."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from tilesolve.contractions.errors import TilesolveError

Kinds = type[Any] | tuple[type[Any], ...]


def check_kind(
    value: object, kinds: Kinds, name: str, wanted: str, error: type[TilesolveError]
) -> None:
    """Raise an error of a type unless a value is of one of some kinds.

    Examples
    --------
    >>> from tilesolve.contractions.errors import SpecError
    >>> check_kind(5, str, "spec", "text", SpecError)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SpecError: spec must be text, got 5
    """
    if not isinstance(value, kinds):
        raise error(f"{name} must be {wanted}, got {value!r:.80}")


def check_iterable(value: object, name: str, wanted: str, error: type[TilesolveError]) -> None:
    """Raise an error unless something gives values one by one; an array without axes does not.

    Examples
    --------
    >>> from tilesolve.contractions.errors import SizeError
    >>> check_iterable(3, "padding", "a sequence", SizeError)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: padding must be a sequence, got 3
    """
    if not np.iterable(value):
        raise error(f"{name} must be {wanted}, got {value!r:.80}")


def check_kinds(
    values: object, kinds: Kinds, name: str, wanted: str, error: type[TilesolveError]
) -> None:
    """Raise an error unless something is a tuple or a list of values of some kinds.

    Examples
    --------
    >>> from tilesolve.contractions.errors import SpecError
    >>> check_kinds([1, "a"], int, "counts", "integers", SpecError)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SpecError: counts must be a tuple of integers, got [1, 'a']
    """
    if not isinstance(values, list | tuple) or not all(isinstance(one, kinds) for one in values):
        raise error(f"{name} must be a tuple of {wanted}, got {values!r:.80}")


def check_factor(value: object, name: str, error: type[TilesolveError]) -> None:
    """Raise an error unless something is a finite number above zero.

    Examples
    --------
    >>> from tilesolve.contractions.errors import MachineError
    >>> check_factor(-1, "factor", MachineError)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.MachineError: factor must be a positive number, got -1
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and value > 0 and math.isfinite(value)):  # type: ignore[operator, arg-type]
        raise error(f"{name} must be a positive number, got {value!r:.80}")


def check_position(value: object, count: int, name: str, error: type[TilesolveError]) -> None:
    """Raise an error unless something is an integer from 0 on, below a count.

    Examples
    --------
    >>> from tilesolve.contractions.errors import SizeError
    >>> check_position(3, 3, "tensor", SizeError)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: tensor must be an integer from 0 to 2, got 3
    """
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (number and 0 <= value < count):  # type: ignore[operator]
        raise error(f"{name} must be an integer from 0 to {count - 1}, got {value!r:.80}")


def read_flag(value: object, name: str, error: type[TilesolveError]) -> bool:
    """Return a truth value, if it is one: other things are not taken for true or false.

    Examples
    --------
    >>> from tilesolve.contractions.errors import PlanError
    >>> read_flag(np.True_, "cache", PlanError)
    True
    >>> read_flag("no", "cache", PlanError)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.PlanError: cache must be True or False, got 'no'
    """
    check_kind(value, (bool, np.bool_), name, "True or False", error)
    return bool(value)
