"""Checks of computed subscripts: which there are, and the numbers that code tells of them by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """A computed subscript that is looked at before it is used.

    Parameters
    ----------
    stage
        Its position among the stages.
    read
        The element.
    axis
        Whose position it is.
    """

    stage: int
    read: Read
    axis: int


def updates_rows(stage: Stage, letter: str) -> bool:
    """Return whether a stage updates elements side by side along a letter, in an order of its own.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> (stage,) = parse_stages("h[v[i],k] += A[i,k]")
    >>> updates_rows(stage, "k"), updates_rows(stage, "i")
    (True, False)
    """
    subscripts = stage.target.subscripts
    last = subscripts[-1] if subscripts else None
    if any(read.array == stage.name for read in stage.term.reads):
        return False
    if stage.update is None or not isinstance(last, Affine) or last.plain != letter:
        return False
    return not any(letter in one.letters for one in subscripts[:-1])


def range_checks(stages: Sequence[Stage]) -> tuple[RangeCheck, ...]:
    """Return all checks of computed subscripts, by whose numbers code tells of them."""
    return tuple(
        RangeCheck(number, read, axis)
        for number, stage in enumerate(stages)
        for read in dict.fromkeys((stage.target, *stage.reads))
        for axis, one in enumerate(read.subscripts)
        if not isinstance(one, Affine)
    )
