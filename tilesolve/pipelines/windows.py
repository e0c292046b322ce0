"""Windows: products of an image's shifted parts that are added up, as one sum over windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

from tilesolve.contractions.statements.contraction import find_contraction
from tilesolve.contractions.statements.followed_sums import list_addends
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Read, Reduce, Term
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.pipelines.grids import Grid, begin_at, find_form, lay_bare


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


def _join(
    chain: Term, known: Mapping[str, Stage], sizes: Mapping[str, int]
) -> tuple[Term, Stage, list[str], dict[str, int]] | None:
    """Return a sum with one stage in place of several, that stage, and what is gone."""
    added = list(list_addends(chain))
    reads = [x for x in added if isinstance(x, Read) and x.array in known]
    if len(reads) < 2 or len(set(added)) != len(added):
        return None
    if any(x.subscripts != reads[0].subscripts for x in reads):
        return None
    found = [find_form(known[x.array], sizes) for x in reads]
    grid = Grid.of([offsets for _, offsets in found])
    if grid is None or len({form for form, _ in found}) > 1:
        return None
    first = known[reads[0].array]
    assert isinstance(first.term, Reduce)
    letters = [f"{first.term.over[0]}_{number}" for number, _ in enumerate(grid.counts, 1)]
    term = begin_at(lay_bare(first.term.term)[0], grid.places(letters))
    made = replace(first, term=Reduce("add", (*first.term.over, *letters), term), augmented=False)
    rest = [x for x in added if x not in reads and x != Number(0)]
    left = reduce(add, rest, reads[0])
    gone = [x.array for x in reads[1:]]
    return left, made, gone, dict(zip(letters, grid.counts, strict=True))


def _is_product(stage: Stage, dtypes: Mapping[str, str]) -> bool:
    """Return whether a stage is a sum of products, of which windows may be made."""
    found, _ = find_contraction(stage, dtypes)
    if found is None or not found.reuses or stage.where:
        return False
    return isinstance(stage.term, Reduce) and stage.term.name == "add"
