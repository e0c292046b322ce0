"""Statements with sums inside larger terms as several statements, each sum one of its own."""

from __future__ import annotations

from dataclasses import replace

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.operations import named_kind
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read, Reduce, Term
from tilesolve.contractions.statements.values import replace_terms


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
        name = f"{stage.name}_sum"
        while name in names:
            name += "_"
        names.add(name)
        made.append(Stage(name, axes, one, named_kind(one.kind(computation.dtypes)), where))
        replaced[one] = Read(name, axes)
    return [*made, replace(stage, term=replace_terms(stage.term, replaced), where=stage.bounds)]
