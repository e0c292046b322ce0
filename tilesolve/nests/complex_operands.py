"""Complex sums of elements that are conjugated or converted: statements before do so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.complex_parts import PARTS
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.operations import is_complex
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Cast, Number, Param, Read, Reduce, Term
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.nests.split import new_name

_OF_PRODUCTS = ("add", "subtract", "multiply", "negative")
"""Operations of sums of products."""


def convert_operands(computation: Computation) -> Computation | None:
    """Return a complex sum of elements that are conjugated, or of another dtype, as one of others.

    Statements before it convert the arrays. None where the statement is another one.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stages = parse_stages("C[i,j] += conj(A[i,k]) * B[k,j]")
    >>> for stage in convert_operands(bind_stages(stages, 8, "complex64")).stages:
    ...     print(stage)
    A_conjugate[A_0,A_1] = conj(A[A_0,A_1])
    C[i,j] += A_conjugate[i,k] * B[k,j]
    """
    (stage,), dtypes, sizes = computation.stages, dict(computation.dtypes), dict(computation.sizes)
    names, wanted = {*dtypes, *sizes}, dtypes[stage.name]
    if not is_complex(wanted) or stage.update is not None:
        return None
    stages: list[Stage] = []
    replaced: dict[Term, Term] = {}
    sums = [one for one in stage.term.all if isinstance(one, Reduce)]
    found = dict.fromkeys(pair for one in sums for pair in _list_reads(one.term))
    if None in found or any(one.name != "add" for one in sums):
        return None
    for one, read in filter(None, found):
        if read is one and dtypes[read.array] == wanted:
            continue
        operation = one.name if isinstance(one, Apply) else "complex"
        name = new_name(f"{read.array}_{operation}", names)
        letters = [new_name(f"{read.array}_{at}", names) for at in range(len(read.subscripts))]
        axes = tuple(map(Affine.letter, letters))
        term = replace_terms(one, {read: Read(read.array, axes)})
        stages.append(Stage(name, axes, Cast(wanted, term) if read is one else term, wanted))
        replaced[one] = Read(name, read.subscripts)
        dtypes[name] = wanted
        sizes |= zip(letters, computation.array(read.array).shape, strict=True)
    if not stages:
        return None
    shapes = {array.name: array.shape for array in computation.arrays}
    last = replace(stage, term=replace_terms(stage.term, replaced))
    return bind_stages((*stages, last), sizes, dtypes, shapes)


def _list_reads(term: Term) -> Iterator[tuple[Term, Read] | None]:
    """Yield the elements of a sum of products, each with what conjugates or converts it.

    None stands for what is no such sum.
    """
    inner = term
    while isinstance(inner, Cast) or (
        isinstance(inner, Apply) and inner.name in (*PARTS, "conjugate")
    ):
        (inner,) = inner.parts
    if isinstance(inner, Read) and inner.plain is not None:
        yield term, inner
    elif isinstance(term, Apply) and term.name in _OF_PRODUCTS:
        for part in term.parts:
            yield from _list_reads(part)
    elif not isinstance(term, Number | Param):
        yield None
