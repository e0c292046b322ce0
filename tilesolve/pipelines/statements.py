"""Statements one after another, each with letters of its own: their extents follow from arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.affine import Affine, greatest_value
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.nests.arguments import NestDtype, Region, Statement, read_computation, read_stages
from tilesolve.pipelines.graph import rename_stage


def read_statements(
    statement: Statement,
    sizes: Mapping[str, Any],
    dtype: NestDtype | None = None,
    where: Region = (),
) -> Computation:
    """Return what statements compute, given shapes of what they read, or of what they end with.

    From the shapes of arrays that are read each statement has as many elements as there is room
    for. From the extents of the last statement's letters, or its shape, each array has as many as
    are read of it.

    Raises
    ------
    SizeError
        If sizes are missing, or elements lie outside of an array.

    Examples
    --------
    >>> text = "b[y,x] = A[y,x] + A[y,x+1]; c[y,x] = b[y,x] - b[y+1,x]"
    >>> print(read_statements(text, {"A": (5, 5)}))
    b[y1,x1] = A[y1,x1] + A[y1,x1+1]; c[y2,x2] = b[y2,x2] - b[y2+1,x2]  y1=5 x1=4 y2=4 x2=4 float64
    """
    stages = read_stages(statement, where)
    names = {read.array for stage in stages for read in (stage.target, *stage.reads)}
    shapes = {name: value for name, value in sizes.items() if name in names}
    letters = {name: value for name, value in sizes.items() if name not in names}
    if len(stages) > 1:
        letters = {f"{letter}{len(stages)}": extent for letter, extent in letters.items()}
        stages = tuple(
            rename_stage(stage, {x: f"{x}{number}" for x in stage.letters})
            for number, stage in enumerate(stages, 1)
        )
    given = {read.array for stage in stages for read in stage.reads}
    if not given - {stage.name for stage in stages} <= shapes.keys():
        letters |= _backward(stages, letters, shapes)
    return read_computation(stages, {**letters, **shapes}, dtype)


def _backward(
    stages: Sequence[Stage], letters: Mapping[str, int], shapes: Mapping[str, Any]
) -> dict[str, int]:
    """Return the extent of each letter: what later statements read of an array."""
    found = dict(letters)
    needed = {name: list(getattr(value, "shape", value)) for name, value in shapes.items()}
    for stage in reversed(stages):
        for axis, letter in enumerate(stage.output_letters()):
            if letter not in found and stage.name in needed:
                found[letter] = needed[stage.name][axis]
        lacking = [letter for letter in stage.letters if letter not in found]
        if lacking:
            raise SizeError(
                f"no size for {lacking[0]!r} of {stage}: give the shapes of all arrays that are "
                "read, or the extents of the last statement"
            )
        box = {letter: (0, found[letter] - 1) for letter in stage.letters}
        for read in stage.reads:
            ends = [
                greatest_value(one, box, stage.region(read)) + 1 if isinstance(one, Affine) else 0
                for one in read.subscripts
            ]
            before = needed.get(read.array, ends)
            needed[read.array] = list(map(max, before, ends))
    return found
