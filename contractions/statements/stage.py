"""Stages: an array, and the term that each of its elements is computed by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import NoneType
from typing import Self

from tilesolve.contractions.argument_kinds import check_iterable, check_kind, check_kinds
from tilesolve.contractions.errors import DtypeError, SpecError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.operations import DTYPES, REDUCTIONS
from tilesolve.contractions.statements.scans import Scan
from tilesolve.contractions.statements.terms import Read, Reduce, Term, as_term


@dataclass(frozen=True)
class Stage:
    """A statement: ``name[axes] = term`` at all values of its letters.

    Parameters
    ----------
    name
        Of the array that it computes.
    axes
        Where an element goes: a letter for each axis. With an `update`, positions or terms.
    term
        What is computed. Letters that the axes lack belong to reductions within it.
    dtype
        Of the array; that of the term unless given.
    where
        The region: elsewhere, elements of the output stay as they are and reductions skip.
    update
        The reduction that puts together values for the same element, for axes that are no
        letters: a histogram's ``add``.
    augmented
        Whether the reduction that the term is as a whole is written as ``+=`` and the like. Then
        the array has the dtype of the values, where ``sum`` has a wider one.

    Examples
    --------
    >>> i, j, k = (Affine.letter(x) for x in "ijk")
    >>> product = Read("A", (i, k)) * Read("B", (k, j))
    >>> stage = Stage("C", (i, j), Reduce("add", ("k",), product), where=(Condition(i - j),))
    >>> print(stage)
    C[i,j] = sum(A[i,k] * B[k,j], k), where i >= j
    >>> stage.letters, stage.summed
    (('i', 'j', 'k'), ('k',))
    """

    name: str
    axes: tuple[Affine | Term, ...]
    term: Term
    dtype: str | None = None
    where: tuple[Condition, ...] = ()
    update: str | None = None
    augmented: bool = False

    def __post_init__(self) -> None:
        check_kind(self.name, str, "name of a Stage", "text", SpecError)
        check_kinds(self.axes, (Affine, Term), "axes", "letters", SpecError)
        object.__setattr__(self, "term", as_term(self.term))
        check_kind(self.dtype, (str, NoneType), "dtype of a Stage", "text or None", DtypeError)
        check_kind(self.update, (str, NoneType), "update of a Stage", "text or None", SpecError)
        if self.dtype is not None and self.dtype not in DTYPES:
            raise DtypeError(f"nests compute in {', '.join(DTYPES)}, not in {self.dtype!r}")
        check_kinds(self.where, Condition, "where", "conditions", SpecError)
        check_kind(self.augmented, bool, "augmented", "True or False", SpecError)
        if not self.name.isidentifier():
            raise SpecError(f"the name of an array is an identifier, not {self.name!r}")
        if self.update is None:
            self._check_axes()
        elif self.update not in REDUCTIONS:
            raise SpecError(f"an update is one of {', '.join(REDUCTIONS)}, not {self.update!r}")
        elif any(isinstance(one, Reduce) for one in self.term.all):
            raise SpecError(f"{self}: an update adds up by itself, and takes no reduction")
        self._check_letters()
        self._check_own_reads()
        if self.augmented and not self._is_augmented():
            raise SpecError(
                f"augmented {self.target} = {self.term} is no sum over the letters that "
                f"{self.name} lacks"
            )

    @classmethod
    def of(
        cls,
        target: Read,
        term: object,
        *,
        where: Iterable[Condition] = (),
        update: str | None = None,
        dtype: str | None = None,
        augmented: bool = False,
    ) -> Self:
        """Make a stage of an element on the left and a term on the right.

        Examples
        --------
        >>> x = Affine.letter("x")
        >>> print(Stage.of(Read("out", (x,)), Read("A", (x + 1,)) - Read("A", (x,))))
        out[x] = A[x+1] - A[x]
        """
        check_kind(target, Read, "target", "an element such as C[i, j]", SpecError)
        term = as_term(term)
        check_iterable(where, "where", "conditions", SpecError)
        return cls(target.array, target.subscripts, term, dtype, tuple(where), update, augmented)

    @cached_property
    def target(self) -> Read:
        """The element that it computes."""
        return Read(self.name, self.axes)

    @cached_property
    def output(self) -> tuple[str, ...]:
        """The letters of the axes: one for each unless it is an update."""
        return tuple(dict.fromkeys(self.target.letters))

    @cached_property
    def letters(self) -> tuple[str, ...]:
        """All its letters: those of the output first, then others as written."""
        return tuple(dict.fromkeys((*self.output, *self.term.letters)))

    @cached_property
    def summed(self) -> tuple[str, ...]:
        """The letters that the output lacks."""
        return tuple(letter for letter in self.letters if letter not in self.output)

    @property
    def reduction(self) -> Reduce | None:
        """The term where it is one reduction as a whole; else None."""
        return self.term if isinstance(self.term, Reduce) else None

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The different elements that it reads, as written: subscripts of the left side first."""
        found = (*(read for part in self.target.parts for read in part.reads), *self.term.reads)
        return tuple(dict.fromkeys(found))

    @cached_property
    def params(self) -> tuple[str, ...]:
        """The names of its parameters, as written."""
        parts = (*self.target.parts, self.term)
        return tuple(dict.fromkeys(name for part in parts for name in part.params))

    @property
    def in_place(self) -> bool:
        """Whether it reads the elements that it computes."""
        return self.target in self.reads

    @property
    def sequence(self) -> str | None:
        """The letter along which it reads elements of its own array that it computed before.

        Examples
        --------
        >>> from tilesolve.contractions.statements.parse import parse_stages
        >>> parse_stages("s[i,k] = s[i,k-1] + A[i,k]", "k >= 1")[0].sequence
        'k'
        """
        found = {_lag(self, read) for read in self.reads if read.array == self.name}
        return next((letter for letter in found if letter), None)

    @cached_property
    def bounds(self) -> tuple[Condition, ...]:
        """The conditions that leave out elements, and not summands alone."""
        return tuple(one for one in self.where if set(one.letters) <= set(self.output))

    def conditions(self, term: Reduce) -> tuple[Condition, ...]:
        """Return the conditions on what a sum within the term takes: those with its letters."""
        check_kind(term, Reduce, "term", "a sum or another reduction", SpecError)
        own = {*self.output, *term.over}
        return tuple(x for x in self.where if x not in self.bounds and set(x.letters) <= own)

    def region(self, read: Read) -> tuple[Condition, ...]:
        """Return the conditions that hold wherever an element is read.

        Examples
        --------
        >>> from tilesolve.contractions.statements.parse import parse_stages
        >>> (stage,) = parse_stages("y[i] = x[i] - sum(A[i,k], k)", "i > 2 and k < i")
        >>> [len(stage.region(read)) for read in stage.reads]
        [1, 2]
        """
        check_kind(read, Read, "read", "an element of an array", SpecError)
        bounds = self.bounds
        if self.update is not None or all(one in bounds for one in self.where):
            return self.where
        sums = {within for one, within in _places(self.term, None) if one == read}
        kept = [self.conditions(one) if one else () for one in sums]
        return (*bounds, *(x for x in self.where if kept and all(x in few for few in kept)))

    def with_where(self, where: Iterable[Condition]) -> Self:
        """Return the stage in another region."""
        check_iterable(where, "where", "conditions", SpecError)
        return replace(self, where=tuple(where))

    def _check_axes(self) -> None:
        """Raise `SpecError` unless the axes are different letters."""
        for axis, one in enumerate(self.axes):
            if not isinstance(one, Affine) or one.plain is None:
                raise SpecError(
                    f"axis {axis} of {self.target} is {one}, not a letter; "
                    "a position that is computed needs an update such as +="
                )
        for letter, times in Counter(self.output_letters()).items():
            if times > 1:
                raise SpecError(f"{self.target} has {letter!r} {times} times: it is a diagonal")

    def output_letters(self) -> list[str]:
        """Return the letter of each axis."""
        return [letter for one in self.axes for letter in one.letters]

    def _check_letters(self) -> None:
        """Raise `SpecError` unless each letter has its place."""
        bound = [letter for one in self.term.all if isinstance(one, Reduce) for letter in one.over]
        for letter in bound:
            if letter in self.output:
                raise SpecError(f"{self}: {letter!r} is an axis of {self.name}, it is not summed")
        if self.update is None:
            for letter in self.summed:
                if letter not in bound:
                    raise SpecError(
                        f"{self}: {self.name} has no axis {letter!r}, and nothing runs over it; "
                        "write sum(…) or +="
                    )
        for condition in self.where:
            for letter in condition.letters:
                if letter not in self.letters:
                    raise SpecError(
                        f"the condition {condition} has {letter!r}, which {self.target} = "
                        f"{self.term} has not"
                    )
            sums = [one for one in self.term.all if isinstance(one, Reduce)]
            taken = condition in self.bounds or any(condition in self.conditions(x) for x in sums)
            if self.update is None and not taken:
                raise SpecError(f"the condition {condition} has letters of several sums of {self}")

    def _check_own_reads(self) -> None:
        """Raise `SpecError` if an iteration would read what another one writes."""
        own = [read for read in self.reads if read.array == self.name]
        for read in own:
            summed = [one for one in self.term.all if isinstance(one, Reduce | Scan)]
            within = any(read in one.term.reads for one in summed)
            before = read == self.target or _lag(self, read) == self.sequence is not None
            if not before or within or self.update is not None:
                raise SpecError(
                    f"{self} reads {read} and writes {self.target}: iterations depend on one "
                    "another; give the old values another name"
                )
        for scan in (one for one in self.term.all if isinstance(one, Scan)):
            if scan.letter not in self.output or own or self.where:
                raise SpecError(
                    f"{scan} runs along an axis of {self.name}, which the term does not read, and "
                    "in no region; make it a statement of its own"
                )

    def _is_augmented(self) -> bool:
        """Return whether ``+=`` and the like say what the term is."""
        found = self.reduction
        if found is None or found.name not in _SIGNS or self.update is not None:
            return False
        return found.over == tuple(x for x in found.term.letters if x not in self.output)

    def __str__(self) -> str:
        name, term = self.update, self.term
        if self.augmented and self.reduction is not None:
            name, term = self.reduction.name, self.reduction.term
        sign = "=" if name is None else _SIGNS.get(name, f"{name}=")
        text = f"{self.target} {sign} {term}"
        return text + (f", where {', '.join(map(str, self.where))}" if self.where else "")


_SIGNS = {
    "add": "+=",
    "multiply": "*=",
    "bitwise_and": "&=",
    "bitwise_or": "|=",
    "bitwise_xor": "^=",
}


def _lag(stage: Stage, read: Read) -> str | None:
    """Return the letter along which an element lies before the one that is computed; None if not.

    Along all other axes it lies where that does.
    """
    if len(read.subscripts) != len(stage.axes):
        return None
    apart = [(one, x) for one, x in zip(stage.axes, read.subscripts, strict=True) if one != x]
    if len(apart) != 1 or not all(isinstance(one, Affine) for one in apart[0]):
        return None
    own, other = apart[0]
    assert isinstance(own, Affine)
    assert isinstance(other, Affine)
    lag = own - other if other.divisor == 1 else own
    return own.plain if not lag.letters and lag.offset > 0 else None


def _places(term: Term, within: Reduce | None) -> Iterator[tuple[Read, Reduce | None]]:
    """Yield the elements that are read, each with the sum that it stands in."""
    if isinstance(term, Read):
        yield term, within
    for part in term.parts:
        yield from _places(part, term if isinstance(term, Reduce) else within)
