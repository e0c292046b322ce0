"""Statements with sums inside larger terms as several statements, each sum one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tilesolve.constants.nests import NEST_CONTRACTION_FLOPS, NEST_OPERATIONS
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.operations import SEARCHES, identity, named_kind
from tilesolve.contractions.statements.pieces import write_pieces
from tilesolve.contractions.statements.scans import Scan
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Apply,
    Choose,
    Number,
    Position,
    Read,
    Reduce,
    Term,
)
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.nests.classify import is_contraction
from tilesolve.nests.cuts import cut_stage


def split_scans(computation: Computation) -> Computation:
    """Return a statement with cumulative sums and the like as those that compute them before.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("o[i,k] = cumsum(A[i,k], k)"), 9, "int8")
    >>> for stage in split_scans(found).stages:
    ...     print(stage)
    o[i,k] = A[i,k], where 0 >= k
    o[i,k] = o[i,k-1] + A[i,k], where k > 0
    """
    (stage,), names = computation.stages, set(computation.dtypes)
    stages: list[Stage] = []
    replaced: dict[Term, Term] = {}
    for one in dict.fromkeys(stage.term.all):
        if not isinstance(one, Scan) or any(isinstance(x, Scan) for x in one.term.all):
            continue
        kind, name, axes = named_kind(one.kind(computation.dtypes)), stage.name, stage.axes
        if one != stage.term or kind != computation.dtypes[stage.name]:
            name = new_name(f"{stage.name}_{one.name}", names)
            axes = tuple(Affine.letter(x) for x in stage.output if x in one.letters)
        letter = Affine.letter(one.letter)
        before = Read(
            name, tuple(x - 1 if x == letter else x for x in axes if isinstance(x, Affine))
        )
        term = Apply(one.operation, (before, one.term))
        stages.append(Stage(name, axes, one.term, kind, (Condition(-letter),)))
        stages.append(Stage(name, axes, term, kind, (Condition(letter - 1),)))
        replaced[one] = Read(name, axes)
    if not stages:
        return computation
    if stages[-1].name != stage.name:
        stages.append(replace(stage, term=replace_terms(stage.term, replaced)))
    shapes = {array.name: array.shape for array in computation.arrays}
    return bind_stages(stages, computation.sizes, computation.dtypes, shapes)


def split_searches(computation: Computation) -> Computation:
    """Return a statement with `argmin` and the like as those that find the value, then its place.

    A term that is more than an element becomes an array before, so that it rounds once.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("o[i] = argmax(A[i,k], k)"), 9, "int32")
    >>> for stage in split_searches(found).stages:
    ...     print(stage)
    o_max[i] = max(A[i,k], k)
    o[i] = min(where(A[i,k] == o_max[i], k, 9223372036854775807), k)
    """
    (stage,), names = computation.stages, set(computation.dtypes)
    stages: list[Stage] = []
    replaced: dict[Term, Term] = {}
    for one in dict.fromkeys(stage.term.all):
        if isinstance(one, Reduce) and one.name in SEARCHES:
            before, found = _search(computation, stage, one, names)
            stages += before
            replaced[one] = found
    if not stages:
        return computation
    last = replace(stage, term=replace_terms(stage.term, replaced))
    if stage.reduction is not None and computation.dtypes[stage.name] != "int64":
        place = Read(new_name(f"{stage.name}_place", names), stage.axes)
        stages.append(replace(last, name=place.array, dtype="int64"))
        last = replace(stage, term=place, where=stage.bounds)
    shapes = {array.name: array.shape for array in computation.arrays}
    return bind_stages((*stages, last), computation.sizes, computation.dtypes, shapes)


def _search(
    computation: Computation, stage: Stage, search: Reduce, names: set[str]
) -> tuple[list[Stage], Reduce]:
    """Return the statements before a search, and what it is then."""
    where, term = (*stage.bounds, *stage.conditions(search)), search.term
    stages: list[Stage] = []
    if not isinstance(term, Read):
        axes = tuple(map(Affine.letter, (*stage.output, *search.over)))
        value = Read(new_name(f"{stage.name}_value", names), axes)
        stages.append(
            Stage(value.array, axes, term, named_kind(term.kind(computation.dtypes)), where)
        )
        term = value
    name = new_name(f"{stage.name}_{search.name[3:]}", names)
    axes = tuple(map(Affine.letter, stage.output))
    extreme = Reduce(SEARCHES[search.name], search.over, term)
    kind = search.term.kind(computation.dtypes)
    stages.append(Stage(name, axes, extreme, named_kind(kind), where))
    test: Term = Apply("equal", (term, Read(name, axes)))
    if np.dtype(named_kind(kind)).kind == "f":  # the first one that is no number comes before all
        test = test | Apply("not_equal", (term, term))
    place = Affine.number(0)
    for letter in search.over:
        place = computation.sizes[letter] * place + Affine.letter(letter)
    none = Number(int(identity("minimum", "int64").real))
    return stages, Reduce("minimum", search.over, Choose(test, Position(place), none))


def new_name(wanted: str, names: set[str]) -> str:
    """Return a name that no array has, and take it."""
    while wanted in names:
        wanted += "_"
    names.add(wanted)
    return wanted


def split_functions(computation: Computation) -> Computation | None:
    """Return a statement as those that compute parts of it with functions before, and it.

    They are functions in updates, whose elements follow one another, and what is the same for
    several points. None where there are none, or in a region.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stages = parse_stages("h[v[i]] += exp(x[i]) * w[i]")
    >>> for stage in split_functions(bind_stages(stages, 9, "int32", {"h": (5,)})).stages:
    ...     print(stage)
    h_exp[i] = exp(x[i])
    h[v[i]] += h_exp[i] * w[i]
    """
    (stage,), names, dtypes = computation.stages, set(computation.dtypes), computation.dtypes
    if stage.where:
        return None
    stages: list[Stage] = []
    replaced: dict[Term, Term] = {}
    parts = (part for one in (*stage.target.parts, stage.term) for part in _costly(one, stage))
    for part in dict.fromkeys(parts):
        axes = tuple(Affine.letter(x) for x in stage.letters if x in part.letters)
        if not axes or any(read.array == stage.name for read in part.reads):
            continue
        name = new_name(f"{stage.name}_{part.name}", names)
        stages.append(Stage(name, axes, part, named_kind(part.kind(dtypes))))
        replaced[part] = Read(name, axes)
    if not stages:
        return None
    target, term = (replace_terms(one, replaced) for one in (stage.target, stage.term))
    assert isinstance(target, Read)
    stages.append(replace(stage, axes=target.subscripts, term=term))
    shapes = {array.name: array.shape for array in computation.arrays}
    return bind_stages(stages, computation.sizes, dtypes, shapes)


def _costly(term: Term, stage: Stage) -> Iterator[Apply]:
    """Yield operations within a term that have functions of many and may come before the stage."""
    if isinstance(term, Apply) and not any(isinstance(one, Reduce) for one in term.all):
        fewer = set(term.letters) < set(stage.letters)
        costly = _is_function(term) if stage.update else any(map(_is_function, term.all))
        if costly and (fewer or stage.update):
            yield term
            return
    for one in term.parts:
        yield from _costly(one, stage)


def _is_function(term: Term) -> bool:
    """Return whether a term is a function of many operations."""
    least = NEST_OPERATIONS["sqrt"]
    return isinstance(term, Apply) and NEST_OPERATIONS.get(term.name, 1) >= least


def split_parts(computation: Computation, least_flops: int = NEST_CONTRACTION_FLOPS) -> Computation:
    """Return a statement whose positions have borders as one for each part between them.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> for stage in split_parts(bind_stages(parse_stages("o[i] = x[(i-1) % 9]"), 9)).stages:
    ...     print(stage)
    o[i] = x[i+8], where 0 >= i
    o[i] = x[i-1], where i > 0
    """
    (stage,), names = computation.stages, set(computation.dtypes)
    if not any(isinstance(one, Position) for one in stage.term.all):
        return computation
    together = stage.reduction is not None or is_contraction(computation, stage, least_flops)
    whole = computation if together else split_sums(computation)
    stages: list[Stage] = []
    for one in whole.stages:
        parts = sorted(cut_stage(whole, one), key=lambda part: part.ranges)
        if not parts or (len(parts) == 1 and parts[0].term == one.term):
            stages.append(one)
            continue
        kind = whole.dtypes[one.name]
        pieces = [(part.region(one, whole.sizes), part.term) for part in parts]
        stages += write_pieces(replace(one, dtype=kind), pieces, names)
    if stages == list(whole.stages):
        return computation
    shapes = {array.name: array.shape for array in whole.arrays}
    return bind_stages(stages, whole.sizes, whole.dtypes, shapes)


def split_sums(computation: Computation) -> Computation:
    """Return a computation in which sums inside larger terms are statements before them.

    Each has the dtype that it is summed in.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stages = parse_stages("C[i,j] = alpha * sum(A[i,k] * B[k,j], k) + beta * C[i,j]")
    >>> for stage in split_sums(bind_stages(stages, 8)).stages:
    ...     print(stage)
    C_sum[i,j] = sum(A[i,k] * B[k,j], k)
    C[i,j] = alpha * C_sum[i,j] + beta * C[i,j]
    """
    names = set(computation.dtypes)
    stages: list[Stage] = []
    for stage in computation.stages:
        stages += _split(computation, stage, names)
    if len(stages) == len(computation.stages):
        return computation
    shapes = {array.name: array.shape for array in computation.arrays}
    return bind_stages(stages, computation.sizes, computation.dtypes, shapes)


def _split(computation: Computation, stage: Stage, names: set[str]) -> list[Stage]:
    sums = [one for one in dict.fromkeys(stage.term.all) if isinstance(one, Reduce)]
    if stage.reduction is not None or not sums:
        return [stage]
    made: list[Stage] = []
    replaced: dict[Term, Term] = {}
    for one in sums:
        where = (*stage.bounds, *stage.conditions(one))
        used = {*one.term.letters, *(letter for x in where for letter in x.letters)}
        axes = tuple(Affine.letter(x) for x in stage.output if x in used)
        name = new_name(f"{stage.name}_sum", names)
        made.append(Stage(name, axes, one, named_kind(one.kind(computation.dtypes)), where))
        replaced[one] = Read(name, axes)
    return [*made, replace(stage, term=replace_terms(stage.term, replaced), where=stage.bounds)]
