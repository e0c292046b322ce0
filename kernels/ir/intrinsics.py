"""Intrinsics: what translated functions call that is written as LLVM IR, see `translation`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from tilesolve.kernels.ir.vectors import call_function


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function whose calls are replaced by what it emits.

    Parameters
    ----------
    emit
        Gets the builder and the arguments: values, or tuples of them; of constants that the
        translation knows, those of LLVM. It returns the result, a value or a tuple, if there is
        one.
    """

    emit: Callable[..., Any]


def intrinsic(emit: Callable[..., Any]) -> Any:
    """Make a function that emits LLVM IR one that translated functions call.

    Examples
    --------
    >>> @intrinsic
    ... def negative(builder, value):
    ...     return builder.neg(value)
    >>> type(negative).__name__
    'Intrinsic'
    """
    return Intrinsic(emit)


def external(name: str, returns: ir.Type) -> Any:
    """Return an intrinsic that calls a function of C that the process has.

    Examples
    --------
    >>> external("Py_IncRef", ir.VoidType()) is not None
    True
    """
    return Intrinsic(lambda builder, *arguments: call_function(builder, name, returns, arguments))
