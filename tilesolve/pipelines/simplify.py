"""Simplifying: terms of small stages take the place of what reads them, and no array is kept."""

from __future__ import annotations

from dataclasses import replace

from tilesolve.constants.policy import PIPELINE_TERM_PARTS
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Cast, Read, Reduce, Term
from tilesolve.nests.regions import find_uses, slides
from tilesolve.pipelines.graph import substitute


def simplify(
    computation: Computation,
    kept: frozenset[str] = frozenset(),
    pinned: frozenset[str] = frozenset(),
    *,
    everything: bool = False,
) -> Computation:
    """Return a computation whose small stages are computed within the terms that read them.

    A stage goes if it is trivial (no more operations than arrays, each read at one place), or if
    the only one that reads it needs each of its elements at one place (Alg. 5 of the thesis, and
    its rule for stages without overlap). Stages are looked at from the last one on, so that those
    before see who reads them then. Values stay the same: each is cast to the dtype of the array
    that it would be in.

    Parameters
    ----------
    computation
        All stages.
    kept
        Stages that stay, and that no term is put into.
    pinned
        Stages that stay.
    everything
        Whether all stages go that can.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> text = "a[y] = I[y] * I[y]; b[u] = a[u] + a[u+1] + a[u+2]".replace("; ", chr(10))
    >>> found = simplify(bind_stages(parse_stages(text), {"y": 10, "u": 8}))
    >>> print(found.stages[0])
    b[u] = I[u] * I[u] + I[u+1] * I[u+1] + I[u+2] * I[u+2]
    """
    dtypes, stages = computation.dtypes, {one.name: one for one in computation.stages}
    for producer in reversed(computation.stages[:-1]):
        readers = [one for one in stages.values() if _reads(one, producer.name)]
        if producer.name in pinned or not _may_go(producer, readers, kept):
            continue
        trivial = _is_trivial(producer)
        if not (everything or trivial or _needed_once(computation, producer, readers)):
            continue
        term: Term = producer.term
        if term.kind(dtypes) != dtypes[producer.name]:
            term = Cast(dtypes[producer.name], term)
        letters = producer.output_letters()
        try:
            put = {one.name: _inlined(one, producer.name, letters, term) for one in readers}
        except SpecError:  # a position that no quotient of sums is, or a sum of what stays the same
            continue
        if all(len(one.term.all) <= PIPELINE_TERM_PARTS for one in put.values()):
            stages.update(put)
            del stages[producer.name]
    if len(stages) == len(computation.stages):
        return computation
    return _bound(computation, tuple(stages.values()))


def _is_trivial(stage: Stage) -> bool:
    """Return whether computing an element costs about what loading it does."""
    arrays = {read.array for read in stage.reads}
    return stage.term.work <= len(arrays) == len(stage.reads)


def _may_go(producer: Stage, readers: list[Stage], kept: frozenset[str]) -> bool:
    """Return whether a stage may be computed within those that read it."""
    if producer.name in kept or kept.intersection(one.name for one in readers):
        return False
    if not slides(producer) or any(isinstance(one, Reduce) for one in producer.term.all):
        return False
    return all(one.update is None and not one.where for one in readers)


def _needed_once(computation: Computation, producer: Stage, readers: list[Stage]) -> bool:
    """Return whether a single stage reads each element at one place."""
    if len(readers) > 1:
        return False
    spans = find_uses(computation, producer, readers[0]).spans
    moved = [span.low.letters for span in spans]
    whole = all(span.overlap == 0 and (span.letter or span.extent == 1) for span in spans)
    return whole and {x for one in moved for x in one} == set(readers[0].letters)


def _reads(stage: Stage, name: str) -> bool:
    return any(read.array == name for read in stage.reads)


def _inlined(stage: Stage, name: str, letters: list[str], term: Term) -> Stage:
    """Return a stage with a term in place of an array."""

    def put(part: Term) -> Term:
        if isinstance(part, Read) and part.array == name:
            if part.plain is None:
                raise SpecError(f"positions of {part} are computed")
            return substitute(term, dict(zip(letters, part.plain, strict=True)))
        return part.rebuilt([put(one) for one in part.parts]) if part.parts else part

    found = put(stage.term)
    for one in found.all:
        if isinstance(one, Reduce) and not set(one.over) <= set(one.term.letters):
            raise SpecError(f"{one} runs over letters that its term has no more")
    return replace(stage, term=found)


def _bound(computation: Computation, stages: tuple[Stage, ...]) -> Computation:
    """Return fewer stages of a computation, with the arrays that it has."""
    letters = {letter for stage in stages for letter in stage.letters}
    names = {one.name for one in stages} | {read.array for one in stages for read in one.reads}
    names |= {name for stage in stages for name in stage.params}
    return bind_stages(
        stages,
        {x: extent for x, extent in computation.extents if x in letters},
        {name: kind for name, kind in computation.dtypes.items() if name in names},
        {one.name: one.shape for one in computation.arrays if one.name in names},
    )
