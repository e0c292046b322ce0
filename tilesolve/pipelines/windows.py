"""Windows: products of an image's shifted parts that are added up, as one sum over windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.contraction import find_contraction
from tilesolve.contractions.statements.followed_sums import list_addends
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Read, Reduce, Term
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.pipelines.graph import rename_stage

Offsets = tuple[int, ...]
"""What is added to the letters of a position, for each position of a stage."""


def join_windows(
    stages: Sequence[Stage],
    sizes: Mapping[str, int],
    dtypes: Mapping[str, str],
    results: frozenset[str],
) -> tuple[list[Stage], dict[str, int]]:
    """Return stages with one sum in place of those that differ in where they begin to read.

    Parameters
    ----------
    stages
        In order.
    sizes, dtypes
        Of their letters, and of all arrays.
    results
        Stages that stay.

    Returns
    -------
    tuple
        The stages, and the sizes of new letters.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> text = "a[i,x] = sum(W[i,k,0] * I[k,x], k)", "b[j,y] = sum(W[j,l,1] * I[l,y+1], l)"
    >>> stages = parse_stages(chr(10).join((*text, "o[u,v] = a[u,v] + b[u,v]")))
    >>> sizes = {"i": 9, "j": 9, "k": 4, "l": 4, "x": 8, "y": 8}
    >>> floats = dict.fromkeys("WIabo", "float32")
    >>> for stage in join_windows(stages, sizes, floats, frozenset())[0]:
    ...     print(stage)
    a[i,x] = sum(W[i,k,k_1] * I[k,k_1+x], k, k_1)
    o[u,v] = a[u,v]
    """
    known = {one.name: one for one in stages}
    readers: dict[str, list[str]] = {}
    for stage in stages:
        for name in dict.fromkeys(read.array for read in stage.reads):
            readers.setdefault(name, []).append(stage.name)
    once = {x for x, found in readers.items() if len(found) == 1 and x in known} - results
    products = {x: known[x] for x in once if _is_product(known[x], dtypes)}
    extents: dict[str, int] = {}
    for stage in stages:
        for chain in _list_sums(stage.term):
            joined = _join(chain, products, sizes)
            if joined is None:
                continue
            term, made, gone, letters = joined
            reader = known[stage.name]
            known[stage.name] = replace(
                reader, term=replace_terms(reader.term, {chain: term}), augmented=False
            )
            known[made.name] = made
            extents |= letters
            for name in gone:
                del known[name]
    return list(known.values()), extents


def find_shifted(stages: Sequence[Stage], dtypes: Mapping[str, str]) -> frozenset[str]:
    """Return the products that read the same arrays as another one does."""
    found: dict[frozenset[str], list[str]] = {}
    for stage in stages:
        if isinstance(stage.term, Reduce) and _is_product(stage, dtypes):
            found.setdefault(frozenset(x.array for x in stage.reads), []).append(stage.name)
    return frozenset(name for one in found.values() if len(one) > 1 for name in one)


def _list_sums(term: Term) -> Iterator[Term]:
    """Yield what is added up within a term: each sum as a whole, the innermost first."""
    added = isinstance(term, Apply) and term.name == "add"
    for one in list_addends(term) if added else term.parts:
        yield from _list_sums(one)
    if added:
        yield term


@dataclass(frozen=True, slots=True)
class Grid:
    """Where things lie that differ in where they begin to read, if that is at all points of a grid.

    Parameters
    ----------
    counts
        How many there are along each of its axes.
    columns
        For each position the least offset, the step, and the axis along which it moves, or -1.
    members
        Where each lies.
    """

    counts: tuple[int, ...]
    columns: tuple[tuple[int, int, int], ...]
    members: tuple[Offsets, ...]

    @classmethod
    def of(cls, offsets: Sequence[Offsets]) -> Grid | None:
        """Return the grid of some offsets; None if they are none.

        Examples
        --------
        >>> found = Grid.of([(0, 4, 1), (2, 4, 1), (0, 4, 2), (2, 4, 2)])
        >>> print(found.counts, *found.places("yx"))
        (2, 2) 2*y 4 x+1
        """
        columns, axes = list[tuple[int, int, int]](), list[Offsets]()
        for column in zip(*offsets, strict=True):
            low = min(column)
            step = gcd(*(one - low for one in column))
            scaled = tuple((one - low) // (step or 1) for one in column)
            if step and scaled not in axes:
                axes.append(scaled)
            columns.append((low, step, axes.index(scaled) if step else -1))
        counts = tuple(max(one) + 1 for one in axes)
        members = tuple(zip(*axes, strict=True))
        if prod(counts) != len(offsets) or len(set(members)) != len(offsets):
            return None
        return cls(counts, tuple(columns), members)

    def places(self, letters: Sequence[str]) -> Iterator[Affine]:
        """Yield what is added to each position, in letters of the axes."""
        for low, step, axis in self.columns:
            yield Affine.of([(step, letters[axis])] if step else [], low)


@dataclass(frozen=True, slots=True)
class _Form:
    """A stage in the letters of another one, and how far behind letters its positions are."""

    stage: Stage
    offsets: Offsets


def _join(
    chain: Term, known: Mapping[str, Stage], sizes: Mapping[str, int]
) -> tuple[Term, Stage, list[str], dict[str, int]] | None:
    """Return a sum with one stage in place of several, that stage, and what is gone."""
    added = list(dict.fromkeys(list_addends(chain)))
    reads = [x for x in added if isinstance(x, Read) and x.array in known]
    if len(reads) < 2 or len(added) != len(list(list_addends(chain))):
        return None
    first = known[reads[0].array]
    forms = [_form(known[x.array], first, sizes) for x in reads]
    same = len({one.stage for one in forms if one}) == 1 and None not in forms
    if not same or any(x.subscripts != reads[0].subscripts for x in reads):
        return None
    made = _over_windows(first, [one.offsets for one in forms if one])
    if made is None:
        return None
    stage, letters = made
    rest = [x for x in added if x not in reads and x != Number(0)]
    term: Term = reads[0]
    for one in rest:
        term = term + one
    return term, stage, [x.array for x in reads[1:]], letters


def _is_product(stage: Stage, dtypes: Mapping[str, str]) -> bool:
    """Return whether a stage is a sum of products, of which windows may be made."""
    found, _ = find_contraction(stage, dtypes)
    if found is None or not found.reuses or stage.where:
        return False
    return isinstance(stage.term, Reduce) and stage.term.name == "add"


def _form(stage: Stage, like: Stage, sizes: Mapping[str, int]) -> _Form | None:
    """Return a stage in the letters of another one; None if it has others."""
    own, others = stage.letters, like.letters
    if [sizes[x] for x in own] != [sizes[x] for x in others]:
        return None
    renamed = rename_stage(stage, dict(zip(own, others, strict=True)))
    offsets: list[int] = []
    bare: dict[Term, Term] = {}
    for read in _reads(renamed):
        places = [one for one in read.subscripts if isinstance(one, Affine)]
        offsets += [one.offset for one in places]
        bare[read] = Read(read.array, tuple(replace(one, offset=0) for one in places))
    term = replace_terms(renamed.term, bare)
    return _Form(replace(renamed, name=like.name, term=term, augmented=False), tuple(offsets))


def _reads(stage: Stage) -> list[Read]:
    """Return all elements that a stage reads, as often as it does."""
    return [one for one in stage.term.all if isinstance(one, Read)]


def _over_windows(stage: Stage, offsets: Sequence[Offsets]) -> tuple[Stage, dict[str, int]] | None:
    """Return a stage that sums up all that lie so far behind it; None if they are no grid."""
    grid = Grid.of(offsets)
    if grid is None:
        return None
    assert isinstance(stage.term, Reduce)
    letters = [f"{stage.term.over[0]}_{number}" for number, _ in enumerate(grid.counts, 1)]
    given = grid.places(letters)
    moved: dict[Term, Term] = {}
    for read in _reads(stage):
        places = [one + next(given) for one in read.subscripts if isinstance(one, Affine)]
        moved[read] = Read(read.array, tuple(places))
    term = Reduce("add", (*stage.term.over, *letters), replace_terms(stage.term.term, moved))
    joined = replace(stage, term=term, augmented=False)
    return joined, dict(zip(letters, grid.counts, strict=True))
