"""Terms: what a stage computes at a point, as values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilesolve.contractions.errors import DtypeError, SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import (
    BINARY,
    DTYPES,
    OPERATIONS,
    UNARY,
    Kind,
    Operation,
    check_parts,
    check_reduction,
    reduced_dtype,
    result_dtype,
)

Dtypes = Mapping[str, str]
"""The dtype of each array and parameter by its name."""


class Term:
    """What is computed at a point; Python's operators make larger ones.

    Examples
    --------
    >>> x, y = Affine.letter("x"), Affine.letter("y")
    >>> term = Read("A", (y, x)) + 2 * Read("A", (y, x + 1))
    >>> print(term, [str(read) for read in term.reads], term.letters)
    A[y,x] + 2 * A[y,x+1] ['A[y,x]', 'A[y,x+1]'] ('y', 'x')
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it is made of."""
        return ()

    @property
    def all(self) -> tuple[Term, ...]:
        """It and all terms within it, from the outermost one on."""
        found, waiting = list[Term](), list[Term]([self])
        while waiting:
            one = waiting.pop()
            found.append(one)
            waiting += reversed(one.parts)
        return tuple(found)

    @property
    def reads(self) -> tuple[Read, ...]:
        """The different reads within it, in the order written."""
        return tuple(dict.fromkeys(one for one in self.all if isinstance(one, Read)))

    @property
    def params(self) -> tuple[str, ...]:
        """The names of the parameters within it."""
        return tuple(dict.fromkeys(one.name for one in self.all if isinstance(one, Param)))

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters that it depends on, in the order written, those of reductions too."""
        return tuple(dict.fromkeys(_letters(self)))

    @property
    def work(self) -> int:
        """Operations a point, each different one once, all trips of reductions as one."""
        return len({one for one in self.all if isinstance(one, Apply | Choose | Reduce)})

    @abstractmethod  # of no ABC, as isinstance takes several times as long with one
    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values, given those of arrays and parameters."""

    def rebuilt(self, parts: Sequence[Term]) -> Term:
        """Return the term with other parts."""
        if parts:
            raise SpecError(f"{self} has no parts")
        return self

    def __add__(self, other: object) -> Term:
        return apply("add", self, other)

    def __radd__(self, other: object) -> Term:
        return apply("add", other, self)

    def __sub__(self, other: object) -> Term:
        return apply("subtract", self, other)

    def __rsub__(self, other: object) -> Term:
        return apply("subtract", other, self)

    def __mul__(self, other: object) -> Term:
        return apply("multiply", self, other)

    def __rmul__(self, other: object) -> Term:
        return apply("multiply", other, self)

    def __truediv__(self, other: object) -> Term:
        return apply("true_divide", self, other)

    def __rtruediv__(self, other: object) -> Term:
        return apply("true_divide", other, self)

    def __floordiv__(self, other: object) -> Term:
        return apply("floor_divide", self, other)

    def __pow__(self, other: object) -> Term:
        return apply("power", self, other)

    def __rpow__(self, other: object) -> Term:
        return apply("power", other, self)

    def __mod__(self, other: object) -> Term:
        return apply("remainder", self, other)

    def __and__(self, other: object) -> Term:
        return apply("bitwise_and", self, other)

    def __or__(self, other: object) -> Term:
        return apply("bitwise_or", self, other)

    def __xor__(self, other: object) -> Term:
        return apply("bitwise_xor", self, other)

    def __lshift__(self, other: object) -> Term:
        return apply("left_shift", self, other)

    def __rshift__(self, other: object) -> Term:
        return apply("right_shift", self, other)

    def __lt__(self, other: object) -> Term:
        return apply("less", self, other)

    def __le__(self, other: object) -> Term:
        return apply("less_equal", self, other)

    def __gt__(self, other: object) -> Term:
        return apply("greater", self, other)

    def __ge__(self, other: object) -> Term:
        return apply("greater_equal", self, other)

    def __neg__(self) -> Term:
        return apply("negative", self)

    def __invert__(self) -> Term:
        return apply("invert", self)

    def __abs__(self) -> Term:
        return apply("absolute", self)


@dataclass(frozen=True, slots=True)
class Number(Term):
    """A number as it is written: it takes the dtype of what it meets."""

    value: int | float | bool | complex

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values."""
        return type(self.value)

    def __str__(self) -> str:
        return repr(self.value).replace("inf", "1e999")  # as Python reads it


@dataclass(frozen=True, slots=True)
class Param(Term):
    """A number that each call gives, by name."""

    name: str

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values."""
        return dtypes[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Position(Term):
    """A position as a number, int64."""

    position: Affine

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values."""
        return "int64"

    def __str__(self) -> str:
        return str(self.position)


@dataclass(frozen=True, slots=True)
class Read(Term):
    """An element of an array.

    A subscript is a position along an axis, or a term, whose value at run time is the position.
    """

    array: str
    subscripts: tuple[Affine | Term, ...]

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it is made of."""
        return tuple(one for one in self.subscripts if isinstance(one, Term))

    @property
    def plain(self) -> tuple[Affine, ...] | None:
        """Its positions where all of them are known beforehand; else None."""
        found = tuple(one for one in self.subscripts if isinstance(one, Affine))
        return found if len(found) == len(self.subscripts) else None

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values."""
        for subscript in self.parts:
            if np.dtype(subscript.kind(dtypes)).kind not in "iu":
                raise DtypeError(f"the subscript {subscript} of {self} is no integer")
        return dtypes[self.array]

    def rebuilt(self, parts: Sequence[Term]) -> Term:
        """Return the term with other parts."""
        given = iter(parts)
        return replace(
            self,
            subscripts=tuple(next(given) if isinstance(x, Term) else x for x in self.subscripts),
        )

    def __str__(self) -> str:
        return f"{self.array}[{','.join(map(str, self.subscripts))}]"


@dataclass(frozen=True, slots=True)
class Apply(Term):
    """An operation of terms."""

    name: str
    arguments: tuple[Term, ...]

    def __post_init__(self) -> None:
        if self.name not in OPERATIONS:
            raise SpecError(f"no operation {self.name!r}; there are {', '.join(OPERATIONS)}")
        wanted = OPERATIONS[self.name].function.nin
        if len(self.arguments) != wanted:
            raise SpecError(f"{self.name} takes {wanted} arguments, not {len(self.arguments)}")

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it is made of."""
        return self.arguments

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values."""
        return result_dtype(self.name, [one.kind(dtypes) for one in self.arguments])

    def rebuilt(self, parts: Sequence[Term]) -> Term:
        """Return the term with other parts."""
        return replace(self, arguments=tuple(parts))

    def __str__(self) -> str:
        operation = OPERATIONS[self.name]
        if not operation.symbol:
            return f"{operation.call}({', '.join(self._written_arguments())})"
        inner = [_within(self, one) for one in self.arguments]
        if len(inner) == 1:
            return operation.symbol + inner[0]
        return f"{inner[0]} {operation.symbol} {inner[1]}"

    def _written_arguments(self) -> Iterator[str]:
        """Yield the arguments of a call; a letter behind the first one is no letter to run over."""
        for at, one in enumerate(self.arguments):
            letter = at > 0 and isinstance(one, Position) and one.position.plain is not None
            yield f"{one}+0" if letter else str(one)


@dataclass(frozen=True, slots=True)
class Choose(Term):
    """One of two terms, by a third one; both are computed.

    `inline` says whether it is written ``yes if test else no``, and not ``where(test, yes,
    no)``.
    """

    test: Term
    yes: Term
    no: Term
    inline: bool = False

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it is made of, in the order written."""
        if self.inline:
            return (self.yes, self.test, self.no)
        return (self.test, self.yes, self.no)

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values."""
        if (test := self.test.kind(dtypes)) not in ("bool", bool):
            raise DtypeError(f"the test of {self} is {test}, not a comparison")
        # What `add` gives is the common dtype, numbers as written included.
        return result_dtype("add", [self.yes.kind(dtypes), self.no.kind(dtypes)])

    def rebuilt(self, parts: Sequence[Term]) -> Term:
        """Return the term with other parts."""
        first, second, no = parts
        test, yes = (second, first) if self.inline else (first, second)
        return Choose(test, yes, no, self.inline)

    def __str__(self) -> str:
        if self.inline:
            return f"({self.yes} if {self.test} else {self.no})"
        return f"where({self.test}, {self.yes}, {self.no})"


@dataclass(frozen=True, slots=True)
class Cast(Term):
    """A term in another dtype."""

    dtype: str
    term: Term

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise DtypeError(f"nests compute in {', '.join(DTYPES)}, not in {self.dtype!r}")

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it is made of."""
        return (self.term,)

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values."""
        check_parts(self.term.kind(dtypes), self.dtype, str(self))
        return self.dtype

    def rebuilt(self, parts: Sequence[Term]) -> Term:
        """Return the term with other parts."""
        return Cast(self.dtype, *parts)

    def __str__(self) -> str:
        return f"{self.dtype}({self.term})"


@dataclass(frozen=True, slots=True)
class Reduce(Term):
    """A term at all values of some letters, put together by an operation."""

    name: str
    over: tuple[str, ...]
    term: Term

    def __post_init__(self) -> None:
        check_reduction(self.name)
        if not self.over:
            raise SpecError(f"{self.name} of {self.term} runs over no letter")
        if any(isinstance(one, Reduce) for one in self.term.all):
            raise SpecError(f"a reduction within a reduction, in {self.term}: make it a statement")

    @property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it is made of."""
        return (self.term,)

    def kind(self, dtypes: Dtypes) -> Kind:
        """Return the dtype of its values: that of numpy's `sum`, `prod`, `min` or `max`."""
        return reduced_dtype(self.name, self.term.kind(dtypes))

    def rebuilt(self, parts: Sequence[Term]) -> Term:
        """Return the term with other parts."""
        return Reduce(self.name, self.over, *parts)

    def __str__(self) -> str:
        names = {"add": "sum", "multiply": "prod", "minimum": "min", "maximum": "max"}
        return f"{names.get(self.name, self.name)}({self.term}, {', '.join(self.over)})"


def as_term(value: object) -> Term:
    """Return a number or a position as a term.

    Raises
    ------
    SpecError
        If it is neither, nor a term.
    """
    if isinstance(value, Term):
        return value
    if isinstance(value, Affine):
        return Position(value)
    if isinstance(value, bool | int | float | complex):
        return Number(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return Number(value.item())
    raise SpecError(f"a term is made of reads, numbers and letters, not of {value!r:.60}")


def apply(name: str, *arguments: object) -> Term:
    """Return an operation of terms, numbers and positions."""
    return Apply(name, tuple(map(as_term, arguments)))


def _letters(term: Term) -> Iterator[str]:
    waiting: list[Term | Affine] = [term]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Affine):
            yield from one.letters
        elif isinstance(one, Position):
            yield from one.position.letters
        else:
            waiting += reversed(one.subscripts if isinstance(one, Read) else one.parts)


_LEVELS = {
    symbol: level
    for level, symbols in enumerate(("|", "^", "&", "<< >>", "+ -", "* / // %", "", "**"), 1)
    for symbol in symbols.split()
}


def _within(outer: Apply, inner: Term) -> str:
    """Return a part of an operation as text, in parentheses where Python would need them."""
    text = str(inner)
    if isinstance(inner, Number) and text.startswith("-") and _level(outer) == _LEVELS["**"]:
        return f"({text})"
    if not isinstance(inner, Apply) or not OPERATIONS[inner.name].symbol:
        return f"({text})" if isinstance(inner, Position) and not text.isidentifier() else text
    mine, other = _level(outer), _level(inner)
    closer = other > mine or (other == mine and inner is outer.arguments[0] and 0 < other < 7)
    return text if closer else f"({text})"


def _level(term: Apply) -> int:
    """Return how closely an operation binds its arguments: comparisons least, powers most."""
    operation: Operation = OPERATIONS[term.name]
    if UNARY.get(operation.symbol) is operation:
        return 7
    return _LEVELS.get(operation.symbol, 0) if BINARY.get(operation.symbol) is operation else 8
