"""The operations of terms: numpy's element by element, and what they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilesolve.contractions.errors import DtypeError, SpecError
from tilesolve.contractions.statements.activations import ACTIVATIONS
from tilesolve.contractions.statements.bit_counts import BitCount
from tilesolve.contractions.statements.complex_parts import PARTS

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
"""Dtypes that nests compute in."""

Kind = str | type[int] | type[float] | type[bool] | type[complex]
"""A dtype by name; or the type of a number as written, which takes the dtype of the others."""


_OWN: dict[str, Any] = {**ACTIVATIONS, **PARTS, "bitwise_count": BitCount()}
"""Functions that numpy has not, or not as those that tell their dtypes."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation by numpy's name of it.

    `name` is that of numpy's function or one like it, `symbol` is written between or
    before the arguments (empty for a call), and text calls the operation by `call` (empty if it
    has a symbol alone).
    """

    name: str
    symbol: str = ""
    call: str = ""

    @property
    def function(self) -> Any:  # noqa: ANN401 - numpy's, or what is called as that is
        """The function of numpy, or what is called as one."""
        return _OWN.get(self.name) or getattr(np, self.name)

    @property
    def compares(self) -> bool:
        """Whether it compares two arguments."""
        return self.symbol in ("<", "<=", ">", ">=", "==", "!=")


_ALL = (
    Operation("add", "+"),
    Operation("subtract", "-"),
    Operation("multiply", "*"),
    Operation("true_divide", "/"),
    Operation("floor_divide", "//"),
    Operation("remainder", "%"),
    Operation("power", "**"),
    Operation("bitwise_and", "&"),
    Operation("bitwise_or", "|"),
    Operation("bitwise_xor", "^"),
    Operation("left_shift", "<<"),
    Operation("right_shift", ">>"),
    Operation("less", "<"),
    Operation("less_equal", "<="),
    Operation("greater", ">"),
    Operation("greater_equal", ">="),
    Operation("equal", "=="),
    Operation("not_equal", "!="),
    Operation("negative", "-"),
    Operation("invert", "~"),
    Operation("minimum", call="min"),
    Operation("maximum", call="max"),
    Operation("absolute", call="abs"),
    *(Operation(name, call=name) for name in PARTS),
    Operation("conjugate", call="conj"),
    Operation("sqrt", call="sqrt"),
    *(Operation(name, call=name) for name in ("exp", "exp2", "log", "log2", "log10", "log1p")),
    *(Operation(name, call=name) for name in ("sin", "cos", "tan", "tanh", "arctan2", "hypot")),
    Operation("isnan", call="isnan"),
    Operation("bitwise_count", call="popcount"),
    *(Operation(name, call=name) for name in ACTIVATIONS),
    Operation("floor", call="floor"),
    Operation("ceil", call="ceil"),
    Operation("rint", call="round"),
)
OPERATIONS = {one.name: one for one in _ALL}
"""All operations by name."""

CALLS = {one.call: one for one in _ALL if one.call}
"""Operations by what text calls them."""

BINARY = {one.symbol: one for one in _ALL if one.symbol and one.function.nin == 2}
"""Operations of two arguments by their symbols."""

UNARY = {one.symbol: one for one in _ALL if one.symbol and one.function.nin == 1}
"""Operations of one argument by their symbols."""

REDUCTIONS = {
    "add": 0,
    "multiply": 1,
    "minimum": None,
    "maximum": None,
    "bitwise_and": -1,
    "bitwise_or": 0,
    "bitwise_xor": 0,
}
"""Operations that may run over letters, and what they begin with; None is the dtype's end."""


COMPLEX_OPERATIONS = (
    *("add", "subtract", "multiply", "true_divide", "power", "equal", "not_equal", "negative"),
    *("absolute", "real", "imag", "conjugate", "exp", "isnan"),
)
"""Operations that complex numbers have."""

SEARCHES = {"argmin": "minimum", "argmax": "maximum"}
"""Reductions to where the first extreme value stands, and the operation that finds that value."""


_WRITTEN = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
"""The dtype of a number by itself, as it is written."""


def named_kind(kind: Kind) -> str:
    """Return the dtype of a kind: a number as written is of numpy's default.

    Examples
    --------
    >>> named_kind("uint8"), named_kind(int)
    ('uint8', 'int64')
    """
    return kind if isinstance(kind, str) else _WRITTEN[kind]


def identity(name: str, dtype: str) -> complex:
    """Return what a reduction begins with, so that it changes no result.

    Examples
    --------
    >>> identity("add", "float32"), identity("minimum", "uint8"), identity("maximum", "float64")
    (0.0, 255, -inf)
    """
    kind = np.dtype(dtype).kind
    value = REDUCTIONS[name]
    if value is not None:
        found: complex = np.array(value).astype(dtype).item()
        return found
    if kind == "b":
        return name == "minimum"
    if kind == "f":
        return float("inf") if name == "minimum" else float("-inf")
    ends = np.iinfo(dtype)
    return int(ends.max if name == "minimum" else ends.min)


def result_dtype(name: str, kinds: Sequence[Kind]) -> str:
    """Return the dtype that an operation gives, by numpy's promotion.

    Raises
    ------
    DtypeError
        If it is not made for such arguments, or gives a dtype that nests do not compute in.

    Examples
    --------
    >>> result_dtype("add", ["uint8", int]), result_dtype("true_divide", ["int32", "int32"])
    ('uint8', 'float64')
    """
    return _result_dtype(name, tuple(kinds))


@lru_cache(maxsize=4096)
def _result_dtype(name: str, kinds: tuple[Kind, ...]) -> str:
    """Return what `result_dtype` does, and keep it: long terms ask for each part of theirs."""
    operation = OPERATIONS[name]
    given = [np.dtype(kind) if isinstance(kind, str) else kind for kind in kinds]
    named = ", ".join(kind if isinstance(kind, str) else kind.__name__ for kind in kinds)
    try:
        found = operation.function.resolve_dtypes((*_typed(given), None))[-1]
    except TypeError as error:
        raise DtypeError(f"{operation.name} is not made for {named}") from error
    dtype: str = found.name
    if name not in COMPLEX_OPERATIONS and is_complex(*given):
        raise DtypeError(
            f"{operation.call or name} is not made for {named}: complex numbers do not have it"
        )
    if dtype not in DTYPES:
        raise DtypeError(
            f"{operation.name} of {named} is {dtype}; nests compute in {', '.join(DTYPES)}"
        )
    return dtype


def check_parts(kind: Kind, wanted: str, what: str) -> None:
    """Raise `DtypeError` where complex numbers would lose their imaginary parts.

    Examples
    --------
    >>> check_parts("complex64", "bool", "it")
    """
    if is_complex(kind) and not is_complex(wanted) and wanted != "bool":
        raise DtypeError(f"{what} makes {wanted} of complex numbers; write real(…) or abs(…)")


def reduced_dtype(name: str, kind: Kind) -> str:
    """Return the dtype that numpy reduces to: sums and products of short integers are wide.

    Raises
    ------
    DtypeError
        If the operation is not made for such arguments.

    Examples
    --------
    >>> reduced_dtype("add", "bool"), reduced_dtype("multiply", "uint8"), reduced_dtype("add", "f4")
    ('int64', 'uint64', 'float32')
    >>> reduced_dtype("maximum", "uint8"), reduced_dtype("argmax", "uint8")
    ('uint8', 'int64')
    """
    if name in SEARCHES:
        result_dtype(SEARCHES[name], [kind, kind])
        return "int64"
    found = np.zeros(1, result_dtype(name, [kind, kind]))
    reduced: np.dtype[Any] = OPERATIONS[name].function.reduce(found).dtype
    return reduced.name


def _typed(kinds: Sequence[Any]) -> list[Any]:
    """Return kinds as numpy resolves them: a bool has a dtype, numbers alone have the default."""
    found: list[Any] = [np.dtype(bool) if kind is bool else kind for kind in kinds]
    if not any(isinstance(kind, np.dtype) for kind in found):
        found = [np.dtype(_WRITTEN[kind]) for kind in found]
    return found


def is_complex(*kinds: Any) -> bool:  # noqa: ANN401 - dtypes, or types of numbers
    """Return whether some of the kinds are complex.

    Examples
    --------
    >>> is_complex("float32", "complex64"), is_complex(complex), is_complex("float64", int)
    (True, True, False)
    """
    return any(np.dtype(kind).kind == "c" for kind in kinds)


def check_reduction(name: str) -> None:
    """Raise `SpecError` unless an operation may run over letters."""
    if name not in REDUCTIONS and name not in SEARCHES:
        raise SpecError(f"{name!r} does not run over letters; {', '.join(REDUCTIONS)} do")
