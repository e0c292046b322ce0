"""Constant vectors by LLVM's own words: lists of all their lanes were half of a kernel's text."""

from __future__ import annotations

from functools import cache

from llvmlite import ir


class _Word(ir.Constant):  # type: ignore[misc]
    """A constant that LLVM has a word for."""

    def __init__(self, kind: ir.VectorType, lane: object, word: str) -> None:
        super().__init__(kind, lane)
        self._word = word

    def _get_reference(self) -> str:
        return self._word


@cache
def undefined(kind: ir.VectorType) -> ir.Constant:
    """Return a vector of lanes that nobody reads.

    Examples
    --------
    >>> print(undefined(ir.VectorType(ir.FloatType(), 4)))
    <4 x float> undef
    """
    return _Word(kind, ir.Undefined, "undef")


@cache
def zeros(kind: ir.VectorType) -> ir.Constant:
    """Return a vector of zeros.

    Examples
    --------
    >>> print(zeros(ir.VectorType(ir.IntType(8), 2)))
    <2 x i8> zeroinitializer
    """
    return _Word(kind, None, "zeroinitializer")
