"""Simplifying: terms of small stages take the place of what reads them, and no array is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from tilesolve.constants.nests import (
    PIPELINE_INLINED_OPERATIONS,
    PIPELINE_PARTS,
    PIPELINE_TERM_PARTS,
)
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Cast,
    Choose,
    Dtypes,
    Position,
    Read,
    Reduce,
    Term,
)
from tilesolve.nests.cuts import Part, cut_stage, settle_choices
from tilesolve.nests.operations import count_operations
from tilesolve.nests.regions import slides
from tilesolve.pipelines.graph import Place, substitute


def simplify(
    computation: Computation,
    kept: frozenset[str] = frozenset(),
    pinned: frozenset[str] = frozenset(),
    *,
    everything: bool = False,
    gone: frozenset[str] = frozenset(),
) -> Computation:
    """Return a computation whose small stages are computed within the terms that read them.

    See `list_needed`.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> text = "a[y] = I[y] * I[y]; b[u] = a[u] + a[u+1] + a[u+2]".replace("; ", chr(10))
    >>> found = simplify(bind_stages(parse_stages(text), {"y": 10, "u": 8}))
    >>> print(found.stages[0])
    b[u] = I[u] * I[u] + I[u+1] * I[u+1] + I[u+2] * I[u+2]
    """
    stages = list_needed(computation, kept, pinned, everything=everything, gone=gone)
    return computation if stages == computation.stages else bind_part(computation, stages)


def list_needed(
    computation: Computation,
    kept: frozenset[str] = frozenset(),
    pinned: frozenset[str] = frozenset(),
    *,
    everything: bool = False,
    gone: frozenset[str] = frozenset(),
) -> tuple[Stage, ...]:
    """Return the stages of a computation without those that others compute in their terms.

    A stage goes if it is trivial (no more operations than arrays, each read at one place, and none
    that takes long), or if
    the only one that reads it needs each of its elements once (Alg. 5 of the thesis, and its rule
    for stages without overlap). Borders do not count. Those that are needed once go first; stages
    are looked at from the last one on, so that those before see who reads them then. Values stay
    the same: each is cast to the dtype of the array that it would be in.

    Parameters
    ----------
    computation
        All stages, each with an array of its own.
    kept
        Stages that stay, and that no term is put into.
    pinned
        Stages that stay.
    everything
        Whether all stages go that can.
    gone
        Further stages that go if they can.
    """
    simplifier = _Simplifier(computation, kept, pinned, everything, gone)
    for stage in computation.stages:
        simplifier.note(stage, cut_stage(computation, stage))
    for once in (True, False):
        for name in reversed(list(simplifier.stages)[:-1]):
            simplifier.move(simplifier.stages[name], once=once)
    return tuple(simplifier.stages.values())


def bind_part(computation: Computation, stages: tuple[Stage, ...]) -> Computation:
    """Return fewer stages of a computation, with the arrays that it has."""
    letters = {letter for stage in stages for letter in stage.letters}
    names = {one.name for one in stages} | {read.array for one in stages for read in one.reads}
    names |= {name for stage in stages for name in stage.params}
    made = {one.name for one in stages}
    return bind_stages(
        stages,
        {x: extent for x, extent in computation.extents if x in letters},
        {name: kind for name, kind in computation.dtypes.items() if name in names},
        {one.name: one.shape for one in computation.arrays if one.name in names},
        tuple(name for name in computation.outputs if name in made),
    )


@dataclass(slots=True)
class _Simplifier:
    """Stages that are put into one another.

    The `readers` of each array, and the parts that each stage is `cut` into, are kept up to date.
    """

    computation: Computation
    kept: frozenset[str]
    pinned: frozenset[str]
    everything: bool
    gone: frozenset[str]
    stages: dict[str, Stage] = field(default_factory=dict)
    readers: dict[str, dict[str, None]] = field(default_factory=dict)
    cut: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    dtypes: Dtypes = field(init=False)
    sizes: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.dtypes, self.sizes = self.computation.dtypes, self.computation.sizes

    def note(self, stage: Stage, parts: tuple[Part, ...]) -> None:
        """Take a stage, or another form of it, with its parts, the largest one first."""
        before = self.stages.get(stage.name)
        for read in before.reads if before else ():
            self.readers[read.array].pop(stage.name, None)
        self.stages[stage.name], self.cut[stage.name] = stage, parts
        for read in stage.reads:
            self.readers.setdefault(read.array, {})[stage.name] = None

    def move(self, producer: Stage, *, once: bool) -> None:
        """Compute a stage where it is read, and nowhere else, if it goes; or if it does `once`."""
        readers = [self.stages[name] for name in self.readers.get(producer.name, ())]
        if not readers and not {*self.pinned, *self.computation.outputs} & {producer.name}:
            self._leave_out(producer)
        if not readers or not self._may_go(producer, readers):
            return
        trivial = _is_trivial(self.cut[producer.name][0].term, self.dtypes)
        goes = not once and (self.everything or trivial or producer.name in self.gone)
        if not goes and not self._needed_once(producer, readers):
            return
        term: Term = producer.term
        if term.kind(self.dtypes) != self.dtypes[producer.name]:
            term = Cast(self.dtypes[producer.name], term)
        letters = tuple(producer.output_letters())
        looked = (
            frozenset(x for x in letters if self._looks_at(term, x)) if trivial else frozenset()
        )
        put = _Put(producer.name, letters, term, looked)
        try:
            made = [self._with(one, put) for one in readers]
        except SpecError:  # a position that no quotient of sums is, or a sum of what stays the same
            return
        if not all(self._fits(*one, old, producer) for one, old in zip(made, readers, strict=True)):
            return
        for one in made:
            self.note(*one)
        self._leave_out(producer)

    def _looks_at(self, term: Term, letter: str) -> bool:
        """Return whether a position in the place of a letter is outside of an array that it reads.

        That is where it is outside of the array of the term, too.
        """
        return any(
            one == Affine.letter(letter) and extent == self.sizes[letter]
            for read in term.reads
            for one, extent in zip(
                read.subscripts, self.computation.array(read.array).shape, strict=True
            )
        )

    def _with(self, reader: Stage, put: _Put) -> tuple[Stage, tuple[Part, ...]]:
        """Return a stage in which a term takes the place of an array, and its parts.

        They are where those before were, unless the term has borders of its own.
        """
        made = replace(reader, term=put.into(reader.term), augmented=False)
        if any(isinstance(one, Position | Choose) for one in put.term.all):
            made = settle_choices(self.computation, made)
            parts = cut_stage(self.computation, made)
            for term in (made.term, *(part.term for part in parts)):
                _check_sums(term)
            return made, parts
        before = self.cut[reader.name]
        return made, tuple(replace(part, term=put.into(part.term)) for part in before)

    def _leave_out(self, producer: Stage) -> None:
        """Leave a stage out."""
        for read in producer.reads:
            self.readers[read.array].pop(producer.name, None)
        del self.stages[producer.name]

    def _may_go(self, producer: Stage, readers: list[Stage]) -> bool:
        """Return whether a stage may be computed within those that read it."""
        names = {producer.name, *(one.name for one in readers)}
        if producer.name in self.pinned or self.kept & names:
            return False
        if not slides(producer) or any(isinstance(one, Reduce) for one in producer.term.all):
            return False
        return all(one.update is None and not one.where for one in readers)

    def _needed_once(self, producer: Stage, readers: list[Stage]) -> bool:
        """Return whether a single stage reads each element once, but for those at borders."""
        if len(readers) > 1:
            return False
        (reader,) = readers
        around = frozenset(reader.output)
        found = [
            (read, letters)
            for read, letters in _places(self.cut[reader.name][0].term, around)
            if read.array == producer.name
        ]
        reads = {read for read, _ in found}
        apart = all(_lie_apart(*pair) for pair in combinations(reads, 2))
        return bool(reads) and apart and all(is_once(*x, self.sizes) for x in found)

    def _fits(self, made: Stage, parts: tuple[Part, ...], reader: Stage, producer: Stage) -> bool:
        """Return whether a stage that computes another one, too, has a term as good as before."""
        if len(made.term.all) > PIPELINE_PARTS * PIPELINE_TERM_PARTS:
            return False
        before = self.cut[reader.name], self.cut[producer.name]
        if len(parts) > max(PIPELINE_PARTS, *map(len, before)):
            return False
        if any(len(one.term.all) > PIPELINE_TERM_PARTS for one in parts):
            return False
        return _is_plain(parts) or not all(map(_is_plain, before))


def is_once(read: Read, letters: Iterable[str], sizes: Mapping[str, int]) -> bool:
    """Return whether no element is read twice while loops over some letters run."""
    places = read.plain
    if places is None or any(one.divisor > 1 or len(one.terms) > 1 for one in places):
        return False
    moved = {letter for one in places for letter in one.letters}
    return all(letter in moved or sizes[letter] == 1 for letter in letters)


def _lie_apart(first: Read, second: Read) -> bool:
    """Return whether two reads of an array have no element in common, as of two channels."""
    pairs = zip(first.subscripts, second.subscripts, strict=True)
    numbers = ((x, y) for x, y in pairs if isinstance(x, Affine) and isinstance(y, Affine))
    return any(not x.terms and not y.terms and x != y for x, y in numbers)


def find_costly(computation: Computation, pinned: frozenset[str]) -> frozenset[str]:
    """Return the stages that several others read, and whose elements take long to compute."""
    readers = Counter(x for one in computation.stages for x in {read.array for read in one.reads})
    return frozenset(
        one.name
        for one in computation.stages
        if readers[one.name] > 1
        and one.name not in pinned
        and count_operations(one.term, computation.dtypes) > PIPELINE_INLINED_OPERATIONS
    )


def _is_trivial(term: Term, dtypes: Dtypes) -> bool:
    """Return whether computing an element costs about what loading it does."""
    arrays = {read.array for read in term.reads}
    if not term.work <= len(arrays) == len(term.reads):
        return False
    return count_operations(term, dtypes) <= PIPELINE_INLINED_OPERATIONS


def _is_plain(parts: tuple[Part, ...]) -> bool:
    """Return whether all positions are known beforehand, or are values of arrays."""
    subscripts = (x for part in parts for read in part.term.reads for x in read.parts)
    return all(one.reads for one in subscripts)


def _places(term: Term, letters: frozenset[str]) -> Iterator[tuple[Read, frozenset[str]]]:
    """Yield the elements that are read, each with the letters of the loops around."""
    if isinstance(term, Read):
        yield term, letters
    if isinstance(term, Reduce):
        letters = letters | set(term.over)
    for part in term.parts:
        yield from _places(part, letters)


def _check_sums(term: Term) -> None:
    """Raise `SpecError` if reductions run over letters that are gone, as with what was chosen."""
    for one in term.all:
        if isinstance(one, Reduce) and not set(one.over) <= set(one.term.letters):
            raise SpecError(f"{one} runs over letters that its term has no more")


@dataclass(frozen=True, slots=True)
class _Put:
    """A term that takes the place of an array.

    Parameters
    ----------
    name, letters
        Of the array.
    term
        What its elements are.
    looked
        The letters that may be values of other arrays: those outside are found.
    """

    name: str
    letters: tuple[str, ...]
    term: Term
    looked: frozenset[str]

    def into(self, term: Term) -> Term:
        """Return a term with it in place of the array."""
        parts = [self.into(one) for one in term.parts]
        changed = any(one is not old for one, old in zip(parts, term.parts, strict=True))
        found = term.rebuilt(parts) if changed else term
        if isinstance(found, Reduce):
            _check_sums(found)
        if not isinstance(found, Read) or found.array != self.name:
            return found
        places: dict[str, Place] = dict(zip(self.letters, found.subscripts, strict=True))
        for letter, place in places.items():
            if isinstance(place, Term) and place.reads and letter not in self.looked:
                raise SpecError(f"positions of {found} are computed")
        return substitute(self.term, places)
