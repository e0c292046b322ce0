"""Epilogues: stages that are computed with the contractions that they follow."""

from __future__ import annotations

from dataclasses import replace

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.contraction import find_contraction
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Reduce
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.nests.classify import is_contraction
from tilesolve.nests.cuts import cut_stage, largest_part
from tilesolve.nests.regions import slides
from tilesolve.pipelines.graph import Place, substitute
from tilesolve.pipelines.simplify import bind_part, is_once


def take_epilogues(computation: Computation, pinned: frozenset[str]) -> Computation:
    """Return a computation whose contractions have what follows them as epilogues.

    That is a stage that alone reads a contraction, each element once, if microkernels compute it:
    bias, scale, residual, activation. Borders around it stay parts of the stage.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> text = "C[i,j] += A[i,k] * B[k,j]" + chr(10) + "D[u,v] = max(C[u,v] + b[v], 0)"
    >>> found = take_epilogues(bind_stages(parse_stages(text), 256, "float32"), frozenset())
    >>> print(*found.stages)
    D[u,v] = max(sum(A[u,k] * B[k,v], k) + b[v], 0)
    """
    stages = {one.name: one for one in computation.stages}
    kept = pinned.union(computation.outputs)
    for name in list(stages):
        readers = [one for one in stages.values() if any(x.array == name for x in one.reads)]
        if name in kept or len(readers) != 1 or not is_contraction(computation, stages[name]):
            continue
        joined = _follow(computation, stages[name], readers[0])
        if joined is not None:
            stages[joined.name] = joined
            del stages[name]
    if len(stages) == len(computation.stages):
        return computation
    return bind_part(computation, tuple(stages.values()))


def _follow(computation: Computation, producer: Stage, reader: Stage) -> Stage | None:
    """Return a stage with a contraction in place of its elements; None if no plan computes it."""
    reads = [one for one in reader.reads if one.array == producer.name]
    if len(reads) != 1 or not slides(reader) or not slides(producer):
        return None
    if any(isinstance(one, Reduce) for one in reader.term.all):
        return None
    if computation.dtypes[producer.name] != computation.dtypes[reader.name]:
        return None
    inside = [x for x in largest_part(computation, reader).reads if x.array == producer.name]
    if len(inside) != 1 or not is_once(inside[0], reader.output, computation.sizes):
        return None
    places: dict[str, Place] = dict(
        zip(producer.output_letters(), reads[0].subscripts, strict=True)
    )
    try:
        term = replace_terms(reader.term, {reads[0]: substitute(producer.term, places)})
        joined = replace(reader, term=term, augmented=False)
        parts = cut_stage(computation, joined)
    except SpecError:
        return None
    others = (one.term for one in parts[1:])
    if any(isinstance(x, Reduce) for term in others for x in term.all):
        return None  # a border of elements that are computed elsewhere
    if any(one.conditions or one.cuts(joined.summed, computation.sizes) for one in parts):
        return None
    found, _ = find_contraction(largest_part(computation, joined), computation.dtypes)
    return joined if found is not None else None
