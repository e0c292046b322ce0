"""Pairs: what a microkernel makes of two elements, and how its values are put together."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from tilesolve.contractions.pairing import FIRST, Pairing
from tilesolve.contractions.statements.operations import identity
from tilesolve.contractions.statements.terms import Apply, Cast, Term
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import EMITTERS
from tilesolve.kernels.ir.term_values import TermValues
from tilesolve.kernels.ir.vectors import constant


@dataclass(frozen=True, slots=True)
class Pairs:
    """A pairing whose first element is a row's, in a dtype.

    Examples
    --------
    >>> print(Pairs.of("maximum(a + b)", "float32").identity(ir.FloatType()))
    float 0xfff0000000000000
    """

    pairing: Pairing
    dtype: str

    @classmethod
    def of(cls, text: str, dtype: str) -> Pairs | None:
        """Return the pairing that a shape names; None for products that are added up."""
        return cls(Pairing.parse(text), dtype) if text else None

    def identity(self, kind: ir.Type) -> ir.Constant:
        """Return what the reduction begins with."""
        return constant(kind, identity(self.pairing.reduction, self.dtype))

    def join(self, builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return the reduction of two values."""
        return EMITTERS[self.pairing.reduction](builder, self.dtype, (x, y))

    def take_in(
        self, builder: ir.IRBuilder, row: ir.Value, column: ir.Value, found: ir.Value
    ) -> ir.Value:
        """Return the reduction of what was found and of the term of a pair."""
        reduction, term = self.pairing.reduction, self.pairing.term
        values = _PairValues(builder, self.dtype, row, column)
        if reduction == "add" and isinstance(term, Cast) and values.kind(term.term) == "bool":
            more = self.join(builder, found, constant(found.type, 1))
            return builder.select(values.value(term.term, "bool"), more, found)
        value = values.value(term, self.dtype)
        if reduction == "maximum" and isinstance(term, Apply) and term.name == "absolute":
            return _larger_magnitude(builder, found, value)
        return self.join(builder, found, value)


def _larger_magnitude(builder: ir.IRBuilder, found: ir.Value, value: ir.Value) -> ir.Value:
    """Return the larger one of two numbers, of which the second has no sign.

    The bits of such numbers are ordered as integers are, with NaN beyond infinity.
    """
    width = 32 if found.type.element == ir.FloatType() else 64
    kind = ir.VectorType(ir.IntType(width), found.type.count)
    bits = [builder.bitcast(one, kind) for one in (found, value)]
    return builder.bitcast(vectors.call_alike(builder, "smax", *bits), found.type)


class _PairValues(TermValues):
    """The values of a term of two elements."""

    def __init__(self, builder: ir.IRBuilder, dtype: str, row: ir.Value, column: ir.Value) -> None:
        lanes = row.type.count if isinstance(row.type, ir.VectorType) else None
        super().__init__(builder, dict.fromkeys(("a", "b"), dtype), lanes)
        self.row, self.column = row, column

    def leaf(self, term: Term) -> ir.Value:
        """Return one of the elements."""
        return self.row if term == FIRST else self.column
