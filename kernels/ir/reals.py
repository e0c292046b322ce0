"""Real numbers in LLVM IR, and vectors of them, with which formulas are written as in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from llvmlite import ir

from tilesolve.kernels.ir.vectors import call_alike, constant, retype


@dataclass(frozen=True, slots=True, eq=False)
class Real:
    """A floating-point number, or a vector of them, beside which Python's numbers are constants.

    Comparisons return bits, which are false for what is no number. Products and sums of them are
    rounded together where the CPU can.

    Parameters
    ----------
    builder
        Where to emit.
    value
        The number.

    Examples
    --------
    >>> kind = ir.DoubleType()
    >>> function = ir.Function(ir.Module(), ir.FunctionType(kind, (kind,)), "example")
    >>> x = Real(ir.IRBuilder(function.append_basic_block()), function.args[0])
    >>> (2 * x + 1).value.opname, (x < 0).type.width
    ('fadd', 1)
    """

    builder: ir.IRBuilder
    value: ir.Value
    flags: ClassVar[tuple[str, ...]] = ("contract",)

    @property
    def element(self) -> ir.Type:
        """The type of one number."""
        kind = self.value.type
        return kind.element if isinstance(kind, ir.VectorType) else kind

    def of(self, value: ir.Value) -> Self:
        """Return another value as a number."""
        return type(self)(self.builder, value)

    def number(self, value: Self | float) -> Self:
        """Return a number of Python's in the precision and the lanes of this one."""
        if isinstance(value, Real):
            return value
        return self.of(constant(self.value.type, value))

    def cast(self, element: ir.Type) -> Self:
        """Return the number in single or double precision."""
        if element == self.element:
            return self
        convert = self.builder.fptrunc if element == ir.FloatType() else self.builder.fpext
        return self.of(convert(self.value, retype(self.value.type, element)))

    def choose(self, test: ir.Value, yes: Self | float, no: Self | float) -> Self:
        """Return one of two numbers, in each lane."""
        return self.of(self.builder.select(test, self.number(yes).value, self.number(no).value))

    def call(self, name: str, *others: Self) -> Self:
        """Return what a function of LLVM gives, by its short name."""
        return self.of(call_alike(self.builder, name, self.value, *(x.value for x in others)))

    def __abs__(self) -> Self:
        return self.call("fabs")

    def __neg__(self) -> Self:
        return self.of(self.builder.fneg(self.value))

    def __add__(self, other: Self | float) -> Self:
        return self.of(self.builder.fadd(self.value, self.number(other).value, flags=self.flags))

    def __sub__(self, other: Self | float) -> Self:
        return self.of(self.builder.fsub(self.value, self.number(other).value, flags=self.flags))

    def __mul__(self, other: Self | float) -> Self:
        return self.of(self.builder.fmul(self.value, self.number(other).value, flags=self.flags))

    def __truediv__(self, other: Self | float) -> Self:
        return self.of(self.builder.fdiv(self.value, self.number(other).value))

    def __rsub__(self, other: float) -> Self:
        return self.number(other) - self

    def __rtruediv__(self, other: float) -> Self:
        return self.number(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Self | float) -> ir.Value:
        return self._compare("<", other)

    def __le__(self, other: Self | float) -> ir.Value:
        return self._compare("<=", other)

    def __gt__(self, other: Self | float) -> ir.Value:
        return self._compare(">", other)

    def __ge__(self, other: Self | float) -> ir.Value:
        return self._compare(">=", other)

    def equals(self, other: Self | float) -> ir.Value:
        """Return whether two numbers are equal."""
        return self._compare("==", other)

    def _compare(self, symbol: str, other: Self | float) -> ir.Value:
        return self.builder.fcmp_ordered(symbol, self.value, self.number(other).value)


@dataclass(frozen=True, slots=True, eq=False)
class Rounded(Real):
    """A floating-point number each of whose sums and products is rounded by itself.

    What a sum or a product loses then is a number, too, which formulas can add up.

    Examples
    --------
    >>> kind = ir.DoubleType()
    >>> function = ir.Function(ir.Module(), ir.FunctionType(kind, (kind,)), "example")
    >>> x = Rounded(ir.IRBuilder(function.append_basic_block()), function.args[0])
    >>> list((x + 1).value.flags)
    []
    """

    flags: ClassVar[tuple[str, ...]] = ()
