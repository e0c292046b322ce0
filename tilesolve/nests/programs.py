"""Loop programs of single statements: tiled as was chosen, and without tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.kernels.programs.program import (
    Compute,
    Guard,
    Hold,
    Kind,
    Node,
    Program,
    Start,
)
from tilesolve.nests.loops import Around, LoopItem


@dataclass(frozen=True, slots=True)
class LoopNest:
    """The loops of one statement.

    Parameters
    ----------
    items
        Outermost first.
    held
        How many of the innermost loops run while elements of a sum stay in registers: those over
        letters of the sum, and those over elements of the output within them.
    """

    items: tuple[LoopItem, ...]
    held: int = 0


def write_program(
    computation: Computation, nest: LoopNest, non_temporal: frozenset[str] = frozenset()
) -> Program:
    """Return the loop program of a computation of one statement.

    A sum begins where the first loop over one of its letters stands: there all elements of the
    output that the loops within reach are set, unless registers hold them until they are done.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("C[i] += A[i,k]"), 8)
    >>> program = write_program(found, LoopNest((LoopItem("i"), LoopItem("k"))))
    >>> [type(node).__name__ for node in program.nodes]
    ['Loop', 'Start', 'Loop', 'Compute']
    """
    (stage,) = computation.stages
    always = [one for one in stage.where if not one.letters]
    body = _Writer(computation, stage, nest).write(Around(computation.sizes), nest.items, False)
    if always:
        body = (Guard(tuple(always), body),)
    if stage.update is not None:
        body = (Start(0), *body)
    return Program(computation, body, non_temporal)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the loops of a statement."""

    computation: Computation
    stage: Stage
    nest: LoopNest

    @property
    def summed(self) -> tuple[str, ...]:
        """The letters of the sum that are loops of the program."""
        return self.stage.summed if self.stage.reduction is not None else ()

    def write(self, around: Around, items: Sequence[LoopItem], begun: bool) -> tuple[Node, ...]:
        """Return what runs at a place: the loops that are left, and what begins a sum."""
        if not items:
            return (Compute(0),)
        if len(items) == self.nest.held:
            anew = bool(self.summed) and not begun
            return (Hold(0, self._loops(around, items, True), anew),)
        if items[0].letter in self.summed and not begun:
            return (*self._start(around, items), *self._loops(around, items, True))
        return self._loops(around, items, begun)

    def _loops(self, around: Around, items: Sequence[LoopItem], begun: bool) -> tuple[Node, ...]:
        """Return the outermost of the loops, with all others in it."""
        first, *rest = items
        holding = len(items) <= self.nest.held
        inner = around.within(first)
        if holding:
            body = self._loops(inner, rest, True) if rest else (Compute(0),)
        else:
            body = self.write(inner, rest, begun)
        updates = self.stage.update is not None
        conditions = self.stage.where if begun or updates else self.stage.bounds
        return (around.loop(first, conditions, body),)

    def _start(self, around: Around, items: Sequence[LoopItem]) -> tuple[Node, ...]:
        """Return loops that begin the sum of all elements that the loops within reach."""
        left = [item for item in items if item.letter in self.stage.output and item.step == 1]
        return self._starts(around, left)

    def _starts(self, around: Around, items: Sequence[LoopItem]) -> tuple[Node, ...]:
        if not items:
            return (Start(0),)
        first, *rest = items
        kind: Kind = "vector" if first.kind == "vector" and not rest else "serial"
        plain = LoopItem(first.letter, 1, kind)
        return (around.loop(plain, self.stage.bounds, self._starts(around.within(plain), rest)),)


def plain_nest(stage: Stage, extents: dict[str, int], threads: int, line: int) -> LoopNest:
    """Return the loops of a statement without tiles: threads outermost, a vector innermost.

    Parameters
    ----------
    stage, extents
        The statement.
    threads
        Those that divide its first letter, or lines of its last one.
    line
        Elements of a line.
    """
    letters = list(stage.output)
    summed = list(stage.summed) if stage.reduction is not None else []
    if stage.update is not None or not letters:
        return LoopNest(tuple(LoopItem(x) for x in (*letters, *summed, *_others(stage, letters))))
    column = letters.pop()
    items = [LoopItem(x) for x in (*letters, *summed)]
    if threads > 1:
        if letters and (extents[letters[0]] >= threads or extents[column] < threads * line):
            items[0] = LoopItem(letters[0], 1, "threads")
        elif (share := -(-extents[column] // threads)) > 1:
            items.insert(0, LoopItem(column, -(-share // line) * line, "threads"))
    return LoopNest((*items, LoopItem(column, 1, "vector")))


def _others(stage: Stage, letters: Sequence[str]) -> list[str]:
    """Return the letters of an update that its left side lacks."""
    return [x for x in stage.term.letters if x not in letters] if stage.update else []
