"""Epilogues as terms: what each operation computes, and what each pass over a tile does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from tilesolve.contractions.elementwise import Elementwise
from tilesolve.contractions.epilogue import FUNCTIONS, Epilogue, Operation
from tilesolve.contractions.statements.terms import Choose, Number, Param, Read, Term, apply
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.contractions.tracing import trace

SUM, OPERAND = Read("sum", ()), Read("operand", ())
"""What terms read: an element of the output as it is so far, and one of the operand."""

WRITE = Read("half", ())
"""In place of a term: sums are rounded to halves, which are the operand."""

FIRST, SECOND = Param("first"), Param("second")
"""The numbers of an operation in its term."""

_RECTIFIERS = ("relu", "relu6", "clip", "leaky")
"""Functions that cost next to nothing: a product or a sum and one of them are one step."""

_RELU = Choose(SUM <= 0, Number(0), SUM)
_RAISED = Choose(SUM < FIRST, FIRST, SUM)
_TERMS: Mapping[str, Term] = {
    "*": SUM * OPERAND,
    "+": SUM + OPERAND,
    "relu": _RELU,
    "relu6": Choose(_RELU > 6, Number(6), _RELU),
    "clip": Choose(_RAISED > SECOND, SECOND, _RAISED),
    "leaky": Choose(SUM < 0, SUM * FIRST, SUM),
    **{name: apply(name.replace("-", "_"), SUM) for name in FUNCTIONS if name not in _RECTIFIERS},
}
"""What each operation makes of an element; what is no number stays so."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one pass over a tile does: an operation, or two that are one.

    Parameters
    ----------
    term
        What it makes of an element, and of one of an operand.
    numbers
        The values of `FIRST` and `SECOND`, as many as it has.
    function
        In place of the term, a function of one's own that could not be traced.
    """

    term: Term
    numbers: tuple[float, ...] = ()
    function: Elementwise | None = None

    @property
    def takes_operand(self) -> bool:
        """Whether it has an operand."""
        return reads_operand(self.term)


def reads_operand(term: Term) -> bool:
    """Return whether a step has an operand, which is C itself for some."""
    return term == WRITE or OPERAND in term.reads


def list_steps(epilogue: Epilogue) -> Iterator[Step]:
    """Yield what passes over a tile do, in order.

    Examples
    --------
    >>> for step in list_steps(Epilogue.parse("*k +k leaky(0.5) gelu")):
    ...     print(step.term)
    sum[] * operand[]
    where(sum[] + operand[] < 0, (sum[] + operand[]) * first, sum[] + operand[])
    gelu(sum[])
    """
    at = 0
    while at < len(epilogue.operations):
        one, *rest = epilogue.operations[at:]
        joins = one.takes_operand and bool(rest) and rest[0].name in _RECTIFIERS
        yield _step(one, rest[0] if joins else None)
        at += 1 + joins


def follow_term(term: Term, epilogue: Epilogue) -> Term | None:
    """Return what a chain of functions makes of a term; None if one could not be traced.

    Examples
    --------
    >>> print(follow_term(Read("s", ()), Epilogue.parse("relu6 silu")))
    silu(min(max(s[], 0.0), 6.0))
    """
    for one in epilogue.operations:
        if one.bounds:
            low, *high = one.bounds
            term = apply("maximum", term, Number(low))
            term = apply("minimum", term, Number(high[0])) if high else term
            continue
        found = _step(one)
        if found.function is not None:
            return None
        numbers = map(Number, found.numbers)
        term = replace_terms(
            found.term, {SUM: term, **dict(zip((FIRST, SECOND), numbers, strict=False))}
        )
    return term


def _step(one: Operation, then: Operation | None = None) -> Step:
    """Return an operation as a step, or it and the one that follows."""
    if one.function is not None:
        term = _trace(one.function)
        return Step(SUM, function=one.function) if term is None else Step(term)
    if then is None:
        return Step(_TERMS[one.name], one.numbers)
    return Step(replace_terms(_TERMS[then.name], {SUM: _TERMS[one.name]}), then.numbers)


@cache
def _trace(function: Elementwise) -> Term | None:
    """Return what a function of one's own computes; None if it could not be traced."""
    return trace(function.python, SUM)
