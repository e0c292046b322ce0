"""Tracing: what a Python function of one number computes, as a term.

The function runs once with a value that notes what is done to it. Where it branches on a
comparison, it runs again for each outcome, and the results become a choice. Whatever else it refers
to is replaced by a stand-in, which offers only what terms have: a random number, say, would
otherwise be drawn once for all elements. Python's numbers count as int64 and float64.
"""

from __future__ import annotations

import builtins
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tilesolve.contractions.stand_ins import StandInModule, rebuild
from tilesolve.contractions.statements.terms import Cast, Choose, Number, Read, Term, apply
from tilesolve.contractions.statements.ufuncs import apply_ufunc, raise_to

_MOST_BRANCHES = 4
"""How many times one way through a function may branch."""

_MOST_PARTS = 256
"""How many operations a term may have: one that is used twice counts twice."""

_BUILTINS = ("abs", "bool", "enumerate", "len", "max", "min", "range", "sum", "tuple", "zip")
"""What functions may use of Python's own: it returns the same for the same arguments."""

_ARITHMETIC = ("add", "subtract", "multiply", "remainder", "floor_divide", "negative")
"""Operations for which Python takes comparisons as the integers 0 and 1, and numpy does not."""

_WIDE = (np.bool_, np.int64, np.float64)
"""What numpy's numbers may be that choices are made of."""

_DOUBLES: Mapping[str, str] = defaultdict(lambda: "float64")


class _UntraceableError(Exception):
    """A function does something that terms do not have."""


class _Question(BaseException):
    """A function branches on a comparison whose outcome is not chosen yet."""

    def __init__(self, test: Term) -> None:
        self.test = test


def trace(function: Callable[[Any], Any], number: Read) -> Term | None:
    """Return what a function of one number computes; None if it does what terms do not have.

    Examples
    --------
    >>> print(trace(lambda x: x * x if x > 0 else 0.5 * x, Read("x", ())))
    where(x[] > int64(0), x[] * x[], float64(0.5) * x[])
    >>> trace(lambda x: math.erf(x), Read("x", ())) is None
    True
    """
    try:
        found = _explore(_stand_in(function), number, ())
        for dtype in ("float32", "float64"):
            found.kind({number.array: dtype})
    except Exception:  # the function may raise any where it gets no number
        return None
    return found


def _explore(function: Callable[[Any], Any], number: Read, outcomes: tuple[bool, ...]) -> Term:
    """Return what a function computes where its first comparisons have these outcomes."""
    try:
        return _term_of(function(_Traced(number, iter(outcomes))))
    except _Question as asked:
        test = asked.test
    if len(outcomes) == _MOST_BRANCHES:
        raise _UntraceableError("it branches too often")
    yes, no = (_explore(function, number, (*outcomes, one)) for one in (True, False))
    return Choose(test, yes, no)


class _Traced(NDArrayOperatorsMixin):
    """A value that notes what is done to it, and knows the outcomes of the next comparisons."""

    def __init__(self, term: Term, outcomes: Iterator[bool], parts: int = 0) -> None:
        self.term, self.outcomes, self.parts = term, outcomes, parts
        if parts > _MOST_PARTS:
            raise _UntraceableError("it has too many operations")

    def __bool__(self) -> bool:
        test = self.term
        if not _is_test(test):
            test = apply("not_equal", test, 0)
        for outcome in self.outcomes:
            return outcome
        raise _Question(test)

    def __array_ufunc__(self, function: np.ufunc, method: str, *given: Any, **more: Any) -> Any:  # noqa: ANN401
        if method != "__call__" or more:
            return NotImplemented
        if function is np.power:
            return raise_to(*given)
        return _apply(function.__name__, *given)


def _apply(name: str, *given: Any) -> _Traced:  # noqa: ANN401
    if name == "invert":
        raise _UntraceableError("Python and numpy invert comparisons differently")

    def operate(*terms: Term) -> Term:
        if name in _ARITHMETIC and all(map(_is_test, terms)):
            terms = tuple(Cast("int64", one) for one in terms)
        return apply_ufunc(name, *terms)

    return _make(operate, *given)


def _choose(test: Any, yes: Any, no: Any) -> _Traced:  # noqa: ANN401
    """Return one of two values; numbers of numpy's alone may make what is no double."""
    narrow = any(isinstance(one, np.generic) and not isinstance(one, _WIDE) for one in (yes, no))
    if narrow and not any(isinstance(one, _Traced) for one in (yes, no)):
        raise _UntraceableError("numbers as they are written would take the dtype of this choice")
    return _make(Choose, test, yes, no)


def _is_test(term: Term) -> bool:
    """Return whether a term is true or false."""
    return term.kind(_DOUBLES) in ("bool", bool)


def _make(term: Callable[..., Term], *given: Any) -> _Traced:  # noqa: ANN401
    """Return a term of values as a traced one."""
    traced = [one for one in given if isinstance(one, _Traced)]
    parts = 1 + sum(one.parts for one in traced)
    return _Traced(term(*map(_term_of, given)), traced[0].outcomes, parts)


def _term_of(value: Any) -> Term:  # noqa: ANN401
    """Return a value as a term; numbers of Python's have the widest dtype of their kind."""
    if isinstance(value, _Traced):
        return value.term
    if isinstance(value, np.ndarray) and not value.ndim:  # what comparisons make of numpy's numbers
        value = value[()]
    if isinstance(value, bool | np.bool_):
        return Number(bool(value))
    if isinstance(value, int | float):
        value = np.float64(value) if isinstance(value, float) else np.int64(value)
    if isinstance(value, np.integer | np.floating):
        return Cast(value.dtype.name, Number(value.item()))
    raise _UntraceableError(f"{value!r} is no real number")


def _stand_in(value: Any) -> Any:  # noqa: ANN401
    """Return what a function gets for what it refers to."""
    value = getattr(value, "py_func", value)
    if isinstance(value, ModuleType):
        return StandInModule(value, _stand_in)
    if isinstance(value, tuple):
        return tuple(map(_stand_in, value))
    if isinstance(value, FunctionType):
        return _rebuild(value)
    if isinstance(value, int | float | str | np.generic | np.ufunc | None):
        return value
    if value not in _KNOWN:
        raise _UntraceableError(f"terms have no {value!r}")

    def call(*given: Any) -> Any:  # noqa: ANN401
        traced = any(isinstance(one, _Traced) for one in given)
        return _KNOWN[value](*given) if traced else value(*given)

    return call


def _rebuild(function: FunctionType) -> FunctionType:
    """Return a function that refers to stand-ins."""
    if function.__kwdefaults__ or _catches(function.__code__):
        raise _UntraceableError("it has defaults of keywords, or might catch what ends a run")
    found = rebuild(function, _stand_in, {})
    found.__globals__["__builtins__"] = {name: getattr(builtins, name) for name in _BUILTINS}
    return found


def _catches(code: CodeType) -> bool:
    """Return whether code, or functions within it, may catch exceptions."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return bool(code.co_exceptiontable) or any(map(_catches, inner))


def _cast_to(dtype: str) -> Callable[[Any], _Traced]:
    return lambda value: _make(lambda term: Cast(dtype, term), value)


def _named(name: str) -> Callable[..., _Traced]:
    return lambda *given: _apply(name, *given)


_KNOWN: dict[Any, Callable[..., Any]] = {
    np.float32: _cast_to("float32"),
    np.float64: _cast_to("float64"),
    np.where: _choose,
    np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
    math.exp: _named("exp"),
    math.fabs: _named("absolute"),
    math.log: _named("log"),
    math.sqrt: _named("sqrt"),
    math.tanh: _named("tanh"),
}
"""Functions of numpy and Python, and what makes terms of traced values in their place."""
