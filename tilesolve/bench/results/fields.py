"""Values of a file of results, refused where they cannot be what they stand for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from tilesolve.contractions.errors import BenchmarkError

Share = Annotated[float, "not negative"]
"""A number that may be zero; other ones have to be more."""

Some = TypeVar("Some")

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


def write_value(found: Any) -> Any:  # noqa: ANN401 - whatever JSON may hold
    """Return a value as JSON has it: dataclasses and mappings by name, tuples as lists.

    Examples
    --------
    >>> write_value({"times": (1.0, 2.0)})
    {'times': [1.0, 2.0]}
    """
    if is_dataclass(found):
        return {field.name: write_value(getattr(found, field.name)) for field in fields(found)}
    if isinstance(found, Mapping):
        return {name: write_value(one) for name, one in found.items()}
    return [write_value(one) for one in found] if isinstance(found, tuple) else found


def read_fields(kind: Callable[..., Some], data: Data, *names: str, **given: object) -> Some:
    """Return a dataclass with values that JSON has, each checked by its type.

    Fields that may be None, and flags, may be missing: files did not always have it. A dataclass
    whose values have to go together has a method ``check``.

    `names` are the fields to read, all but those given if there are none. Numbers have to be
    positive, but for whole ones and for a `Share`.

    Examples
    --------
    >>> from tilesolve.bench.results.sweeps import Entry
    >>> read_fields(Entry, {"seconds": [1, 2], "reason": ""}).seconds
    (1.0, 2.0)
    >>> read_fields(Entry, {"seconds": [0], "reason": ""})
    Traceback (most recent call last):
    tilesolve.contractions.errors.BenchmarkError: 'seconds' must be a positive number, got 0
    """
    hints = _list_hints(kind)
    wanted = [name for name in names or hints if name not in given]
    found = kind(**given, **{name: read_as(hints[name], data, name) for name in wanted})
    if check := getattr(found, "check", None):
        check()
    return found


@cache
def _list_hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def read_as(hint: Any, data: Data, what: str) -> Any:  # noqa: ANN401 - a type, and a value of it
    """Return a value that is as a type says."""
    if isinstance(hint, UnionType):
        (own,) = [one for one in get_args(hint) if one is not NoneType]
        return None if data.get(what) is None else read_as(own, data, what)
    if hint is bool:
        return bool(data.get(what))
    return _check(hint, read_value(data, what), what)


def _check(hint: Any, found: Any, what: str) -> Any:  # noqa: ANN401 - as above
    if hint is str:
        return read_text({what: found}, what)
    if hint is int:
        if type(found) is not int or found < 0:
            raise BenchmarkError(f"{what!r} must be a number that is not negative, got {found!r}")
        return found
    if hint is float or hint == Share:
        return _check_number(found, what, positive=hint is float)
    if get_origin(hint) is tuple:
        if not isinstance(found, list):
            raise BenchmarkError(f"{what!r} must be a list, got {found!r}")
        return tuple(_check(get_args(hint)[0], one, what) for one in found)
    if not isinstance(found, dict):
        raise BenchmarkError(f"{what!r} must be values by name, got {found!r}")
    if get_origin(hint) is not None:
        return {name: _check(get_args(hint)[1], one, name) for name, one in found.items()}
    return read_fields(hint, found)


def _check_number(found: object, what: str, *, positive: bool) -> float:
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if not (number and 0 <= found <= sys.float_info.max) or (positive and found == 0):  # type: ignore[operator]
        kind = "a positive number" if positive else "a number that is not negative"
        raise BenchmarkError(f"{what!r} must be {kind}, got {found!r}")
    return float(found)  # type: ignore[arg-type]
