"""Terms in LLVM IR, as numbers or as vectors: what is the same is computed once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import zip_longest
from math import nan

import numpy as np
from llvmlite import ir

from tilesolve.constants.nests import EXTREME_CHECKS, LONG_EXTREMES
from tilesolve.contractions.statements.operations import is_complex, named_kind
from tilesolve.contractions.statements.promotion import argument_dtypes
from tilesolve.contractions.statements.terms import Apply, Cast, Choose, Dtypes, Number, Term
from tilesolve.kernels.ir import angles, arithmetic, logarithms, powers, smooth_functions, vectors
from tilesolve.kernels.ir.arithmetic import COMPARISONS, EMITTERS, Emit, number_type
from tilesolve.kernels.ir.complex_functions import COMPLEX_FUNCTIONS
from tilesolve.kernels.ir.complexes import select, vector_of
from tilesolve.kernels.ir.exponentials import exp, exp2
from tilesolve.kernels.ir.reals import Real
from tilesolve.kernels.ir.vectors import constant


def _smooth(function: Callable[..., Real]) -> Emit:
    """Return what emits a function that is written as a formula."""
    return lambda builder, _, args: function(*(Real(builder, one) for one in args)).value


def _power(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    if not arithmetic.real(dtype):
        return powers.integer_power(builder, *args)
    return _smooth(powers.power)(builder, dtype, args)


def _same(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    """Return what a function of complex numbers makes of a real one, which it leaves."""
    return args[0]


def _no_part(builder: ir.IRBuilder, dtype: str, args: Sequence[ir.Value]) -> ir.Value:
    """Return the imaginary part of a real number."""
    return constant(args[0].type, 0)


_EMITTERS: dict[str, Emit] = {
    **EMITTERS,
    "exp": _smooth(exp),
    "exp2": _smooth(exp2),
    "log": _smooth(logarithms.logarithm),
    "log2": _smooth(logarithms.log2),
    "log10": _smooth(logarithms.log10),
    "log1p": _smooth(logarithms.log1p),
    "power": _power,
    **dict.fromkeys(("real", "conjugate"), _same),
    "imag": _no_part,
    "sin": _smooth(angles.sine),
    "cos": _smooth(angles.cosine),
    "tan": _smooth(angles.tangent),
    "arctan2": _smooth(angles.arctan2),
    "hypot": _smooth(angles.hypotenuse),
    "tanh": _smooth(smooth_functions.tanh),
    "sigmoid": _smooth(smooth_functions.sigmoid),
    "silu": _smooth(smooth_functions.silu),
    "gelu": _smooth(smooth_functions.gelu),
    "gelu_tanh": _smooth(smooth_functions.gelu_tanh),
}
"""What emits each operation on arguments of one dtype, but for comparisons."""

_FORMULAS = _EMITTERS.keys() - EMITTERS.keys()
"""Functions of many steps, each of which waits for the one before."""


def chains_formulas(term: Term) -> bool:
    """Return whether a function of many steps is of the result of another one.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> chained, one = parse_stages("o[i] = exp(2 * tanh(A[i])); p[i] = exp(B[i]) + tanh(A[i])")
    >>> chains_formulas(chained.term), chains_formulas(one.term)
    (True, False)
    """
    found = [one for one in term.all if isinstance(one, Apply) and one.name in _FORMULAS]
    return any(inner in found for one in found for inner in one.all[1:])


class TermValues(ABC):
    """The values of terms while code is written.

    Parameters
    ----------
    builder
        Where to write.
    dtypes
        Of what the terms read.
    lanes
        How many points are computed at once, as vectors of so many lanes; None for one.
    """

    def __init__(self, builder: ir.IRBuilder, dtypes: Dtypes, lanes: int | None) -> None:
        self.builder, self.dtypes, self.lanes = builder, dtypes, lanes
        self._found: dict[Term, ir.Value] = {}

    @abstractmethod
    def leaf(self, term: Term) -> ir.Value:
        """Emit a term that is no number, choice, operation or cast, in the dtype that it has."""

    def value(self, term: Term, dtype: str) -> ir.Value:
        """Emit a term in a dtype."""
        if isinstance(term, Number):
            return constant(number_type(dtype), np.array(term.value).astype(dtype).item())
        found = self._found.get(term)
        if found is None:
            found = self._found[term] = self._emit(term)
        return arithmetic.cast(self.builder, found, self.kind(term), dtype)

    def know(self, term: Term, value: ir.Value) -> None:
        """Take the value of a term that is emitted already."""
        self._found[term] = value

    def kind(self, term: Term) -> str:
        """Return the dtype that a term is computed in."""
        return named_kind(term.kind(self.dtypes))

    def lanes_of(self, value: ir.Value) -> ir.Value:
        """Return a value in each lane, or as it is where one point is computed at a time."""
        if self.lanes is None or isinstance(value.type, ir.VectorType):
            return value
        kind = vector_of(value.type, self.lanes)
        if isinstance(value, ir.Constant):
            return ir.Constant(kind, [value] * self.lanes)
        return vectors.broadcast(self.builder, value, kind)

    def apply(self, term: Apply, dtypes: Sequence[str], values: Sequence[ir.Value]) -> ir.Value:
        """Emit an operation of values of some dtypes."""
        if term.name in COMPARISONS:
            return arithmetic.compare(self.builder, COMPARISONS[term.name], dtypes, values)
        if is_complex(dtypes[0]) and term.name in COMPLEX_FUNCTIONS:
            return COMPLEX_FUNCTIONS[term.name](self.builder, dtypes[0], values)
        return _EMITTERS[term.name](self.builder, dtypes[0], values)

    def _emit(self, term: Term) -> ir.Value:
        match term:
            case Cast(dtype=dtype, term=inner):
                return self.value(inner, dtype)
            case Choose(test=test, yes=yes, no=no):
                kind = self.kind(term)
                parts = (self.value(test, "bool"), self.value(yes, kind), self.value(no, kind))
                return select(self.builder, *self._alike(parts))
            case Apply(name="minimum" | "maximum") if len(self._list_alike(term)) >= LONG_EXTREMES:
                return self._emit_extreme(term)
            case Apply(arguments=arguments):
                wanted = argument_dtypes(term, [one.kind(self.dtypes) for one in arguments])
                given = zip(arguments, wanted, strict=True)
                return self.apply(term, wanted, self._alike([self.value(*one) for one in given]))
        return self.leaf(term)

    def _list_alike(self, term: Term, within: Apply | None = None) -> dict[Term, None]:
        """Return what a real extreme of extremes is of, constants left out; none for other terms.

        Those that are known already are not taken apart.
        """
        if within is None and not arithmetic.real(self.kind(term)):
            return {}
        if isinstance(term, Apply) and (within is None or self._continues(term, within)):
            return {
                x: None for one in term.arguments for x in self._list_alike(one, within or term)
            }
        return {} if isinstance(term, Number) else {term: None}

    def _continues(self, term: Term, outer: Apply) -> bool:
        """Return whether a term is an extreme as the one that it is an argument of."""
        same = isinstance(term, Apply) and term.name == outer.name and term not in self._found
        return same and self.kind(term) == self.kind(outer)

    def _emit_extreme(self, term: Apply) -> ir.Value:
        """Emit an extreme of many numbers, of which two at a time are looked at for NaN beside it.

        See docs/decisions/033.
        """
        builder, kind, terms = self.builder, self.kind(term), list(self._list_alike(term))
        values = self._alike([self.value(one, kind) for one in terms])
        known = dict(zip(terms, values, strict=True))

        def emit(one: Term) -> ir.Value:
            if one in known:
                return known[one]
            if not isinstance(one, Apply):
                return self._alike([self.value(one, kind), values[0]])[0]
            found = [emit(x) for x in one.arguments]
            return arithmetic.ordered_extreme(builder, term.name, *found)

        pairs = zip_longest(values[::2], values[1::2], fillvalue=values[0])
        checks = [builder.fcmp_ordered("ord", *pair) for pair in pairs]
        # A check waits for the one before it, so that several rows of them go on side by side.
        count = min(EXTREME_CHECKS, len(checks))
        rows = [reduce(builder.and_, checks[at::count]) for at in range(count)]
        return builder.select(reduce(builder.and_, rows), emit(term), constant(values[0].type, nan))

    def _alike(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """Return values as vectors if one of them is one."""
        if any(isinstance(value.type, ir.VectorType) for value in values):
            return [self.lanes_of(value) for value in values]
        return list(values)
