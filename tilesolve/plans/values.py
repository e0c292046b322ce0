"""Frozen values as what JSON holds, and back: by the types of their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

_T = TypeVar("_T")
Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""What writes a value, and what reads it again."""


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How values are written: those of some types by codecs, all other ones field by field.

    Parameters
    ----------
    codecs
        What writes and reads values of a type.

    Examples
    --------
    >>> from tilesolve.model.nest import Band
    >>> band, plain = Band("L1", ("k",), (("k", 8),)), ValueFormat({})
    >>> plain.write(band)
    {'level': 'L1', 'order': ['k'], 'box': [['k', 8]]}
    >>> plain.read(Band, plain.write(band)) == band
    True
    """

    codecs: Mapping[type, Codec]

    def write(self, value: object) -> Any:  # noqa: ANN401 - what JSON holds
        """Return a value as lists, dictionaries, numbers and text."""
        if type(value) in self.codecs:
            return self.codecs[type(value)][0](value)
        if is_dataclass(value):
            return {one.name: self.write(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, Mapping):
            return {key: self.write(one) for key, one in value.items()}
        if isinstance(value, frozenset):
            return sorted(map(self.write, value))
        if isinstance(value, tuple):
            return [self.write(one) for one in value]
        return value.item() if isinstance(value, np.generic) else value

    def read(self, kind: type[_T], data: object, **known: object) -> _T:
        """Return the value of a type that was written.

        Parameters
        ----------
        kind
            The type.
        data
            What `write` gave.
        **known
            Fields of a dataclass that the data has not.

        Raises
        ------
        ValueError
            If the data is no such value; what codecs and types refuse is their own error.
        """
        return cast(_T, self._fields(kind, data, known) if known else self._read(kind, data))

    def _read(self, kind: Any, data: Any) -> Any:  # noqa: ANN401 - types are values here
        if kind in self.codecs:
            return self.codecs[kind][1](data)
        if is_dataclass(kind):
            return self._fields(kind, data, {})
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self._read(self._member(arguments, data), data)
        if origin is Literal and data in arguments:
            return data
        if origin is tuple and type(data) is list:
            return self._tuple(arguments, data)
        if origin is frozenset and type(data) is list:
            return frozenset(self._read(arguments[0], one) for one in data)
        if origin is Mapping and type(data) is dict:
            return {self._read(arguments[0], x): self._read(arguments[1], data[x]) for x in data}
        if kind is float and type(data) is int:
            return data
        if origin is None and type(data) is kind:
            return data
        raise ValueError(f"{data!r:.60} is no {_name(kind)}")

    def _fields(self, kind: Any, data: Any, known: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Return a dataclass."""
        types = _types_of(kind)
        if type(data) is not dict or {*data, *known} != {*types}:
            raise ValueError(f"{data!r:.60} has not the entries of a {_name(kind)}")
        read = {name: self._read(types[name], one) for name, one in data.items()}
        return kind(**{**read, **known})

    def _tuple(self, kinds: tuple[Any, ...], data: list[Any]) -> tuple[Any, ...]:
        if kinds[1:] == (...,):
            kinds = kinds[:1] * len(data)
        if len(kinds) != len(data):
            raise ValueError(f"{data!r:.60} has not {len(kinds)} entries")
        return tuple(map(self._read, kinds, data))

    def _member(self, kinds: tuple[Any, ...], data: Any) -> Any:  # noqa: ANN401
        """Return which type of a union data is of: dataclasses are told by their fields."""
        for kind in kinds:
            if kind is type(data) or (kind is float and type(data) is int):
                return kind
            if isinstance(kind, type) and is_dataclass(kind) and kind not in self.codecs:
                if type(data) is dict and {*data} == {*_types_of(cast(type, kind))}:
                    return kind
            elif (data is None) == (kind is type(None)) and kind not in (int, float, str, bool):
                return kind
        raise ValueError(f"{data!r:.60} is none of {', '.join(map(_name, kinds))}")


@cache
def _types_of(kind: type) -> Mapping[str, Any]:
    """Return the type of each field of a dataclass."""
    types = get_type_hints(kind)
    return {one.name: types[one.name] for one in fields(kind)}


def _name(kind: Any) -> str:  # noqa: ANN401
    return str(kind) if get_args(kind) else getattr(kind, "__name__", str(kind))
