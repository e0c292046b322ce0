"""Functions of one's own for epilogues: values that are equal where they compute the same."""

from __future__ import annotations

import dis
import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tilesolve.contractions.errors import PlanError

_PLAIN = (int, float, complex, str, bytes, type(None), np.generic)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A function of one number, and what tells it from others.

    `function` is a Python function, or one that numba has wrapped.

    Raises
    ------
    PlanError
        If it is no Python function of one number, raises errors, or uses values that may change.

    Examples
    --------
    >>> Elementwise(lambda x: x + 1) == Elementwise(lambda x: x + 1)
    True
    >>> Elementwise(lambda x: x + 1) == Elementwise(lambda x: x + 2)
    False
    """

    function: Callable[[Any], Any] = field(compare=False, repr=False)
    name: str = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        python = self.python
        object.__setattr__(self, "name", getattr(python, "__name__", repr(python)))
        if not isinstance(python, FunctionType):
            raise PlanError(f"{self} is no Python function; a lambda that calls it is one")
        taken = list(inspect.signature(python).parameters.values())
        if len(taken) != 1 or taken[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise PlanError(f"{self} must take one number, it takes {inspect.signature(python)}")
        parts = _describe_function(python, self, ())
        object.__setattr__(self, "digest", hashlib.sha256(repr(parts).encode()).hexdigest()[:16])

    @property
    def python(self) -> Callable[[Any], Any]:
        """The function itself, where numba has wrapped it."""
        found: Callable[[Any], Any] = _unwrap(self.function)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function,)

    def __str__(self) -> str:
        return f"elementwise function {self.name!r}"


def _unwrap(function: Any) -> Any:  # noqa: ANN401
    return getattr(function, "py_func", function)


def _describe_function(
    function: FunctionType, whose: Elementwise, seen: tuple[FunctionType, ...]
) -> tuple[Any, ...]:
    """Return what a function does as a value: its code and all that the code refers to."""
    if function in seen:
        return ("again", seen.index(function))
    code = function.__code__
    named = {name: function.__globals__.get(name) for name in sorted(global_names(code))}
    cells = function.__closure__ or ()
    named |= {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}
    values = [
        (name, _describe(value, name, whose, (*seen, function))) for name, value in named.items()
    ]
    return _describe_code(code, whose), repr(function.__defaults__), values


def _describe_code(code: CodeType, whose: Elementwise) -> tuple[Any, ...]:
    if any(one.opname == "RAISE_VARARGS" for one in dis.get_instructions(code)):
        raise PlanError(f"{whose} raises errors, which no call could pass on")
    constants = [
        _describe_code(one, whose) if isinstance(one, CodeType) else _plain_text(one)
        for one in code.co_consts
    ]
    return code.co_code, code.co_names, code.co_argcount, constants


def _plain_text(value: Any) -> str:  # noqa: ANN401
    """Return a constant as text, whose order is that of no hash."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def global_names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals that code reads."""
    for one in dis.get_instructions(code):
        if one.opname == "LOAD_GLOBAL":
            yield one.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from global_names(inner)


def _describe(
    value: Any,  # noqa: ANN401
    name: str,
    whose: Elementwise,
    seen: tuple[FunctionType, ...],
) -> Any:  # noqa: ANN401
    """Return what a function refers to by a name as a value, if it cannot change."""
    found = _unwrap(value)
    if isinstance(found, _PLAIN):
        return type(found).__name__, repr(found)
    if isinstance(found, tuple):
        return [_describe(one, name, whose, seen) for one in found]
    if isinstance(found, ModuleType):
        return found.__name__
    if isinstance(found, FunctionType):
        return _describe_function(found, whose, seen)
    if isinstance(found, BuiltinFunctionType | np.ufunc | type):
        return getattr(found, "__module__", ""), found.__name__
    raise PlanError(
        f"{whose} uses {name!r}, which is a {type(value).__name__}: it may use numbers, text, "
        "tuples of these, functions and modules, which do not change"
    )
