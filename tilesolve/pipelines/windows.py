"""Windows: products of an image's shifted parts that are added up, as one sum over windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.contraction import find_contraction
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
    for one in _addends(term) if added else term.parts:
        yield from _list_sums(one)
    if added:
        yield term


def _addends(term: Term) -> Iterator[Term]:
    if isinstance(term, Apply) and term.name == "add":
        for one in term.arguments:
            yield from _addends(one)
    else:
        yield term


@dataclass(frozen=True, slots=True)
class _Form:
    """A stage in the letters of another one, and how far behind letters its positions are."""

    stage: Stage
    offsets: Offsets


def _join(
    chain: Term, known: Mapping[str, Stage], sizes: Mapping[str, int]
) -> tuple[Term, Stage, list[str], dict[str, int]] | None:
    """Return a sum with one stage in place of several, that stage, and what is gone."""
    added = list(dict.fromkeys(_addends(chain)))
    reads = [x for x in added if isinstance(x, Read) and x.array in known]
    if len(reads) < 2 or len(added) != len(list(_addends(chain))):
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
    columns = list(zip(*offsets, strict=True))
    least = [min(column) for column in columns]
    steps = [gcd(*(x - low for x in column)) for column, low in zip(columns, least, strict=True)]
    scaled = [
        tuple((x - low) // (step or 1) for x in column)
        for column, low, step in zip(columns, least, steps, strict=True)
    ]
    axes = [one for one in dict.fromkeys(scaled) if any(one)]
    counts = [max(one) + 1 for one in axes]
    if prod(counts) != len(offsets) or len(set(offsets)) != len(offsets):
        return None
    assert isinstance(stage.term, Reduce)
    base = stage.term.over[0]
    letters = [f"{base}_{number}" for number, _ in enumerate(axes, 1)]
    given = iter(zip(least, steps, scaled, strict=True))
    moved: dict[Term, Term] = {}
    for read in _reads(stage):
        places = []
        for one in read.subscripts:
            low, step, column = next(given)
            assert isinstance(one, Affine)
            place = replace(one, offset=low)
            if any(column):
                place = place + step * Affine.letter(letters[axes.index(column)])
            places.append(place)
        moved[read] = Read(read.array, tuple(places))
    inner = replace_terms(stage.term.term, moved)
    term = Reduce("add", (*stage.term.over, *letters), inner)
    joined = replace(stage, term=term, augmented=False)
    return joined, dict(zip(letters, counts, strict=True))
