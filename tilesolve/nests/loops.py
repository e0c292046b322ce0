"""Bounds of loops, from steps, extents and the region of a statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.kernels.programs import program
from tilesolve.model.loop_tree import Loop

Bounds = tuple[tuple[Affine, ...], tuple[Affine, ...]]
"""The greatest of the first ones is the first value, the least of the others is behind the last."""


@dataclass(frozen=True, slots=True)
class Around:
    """The loops around a place of a tree.

    Parameters
    ----------
    extents
        Of all letters.
    loops
        Those loops, outermost first.
    bounds_of
        What is computed here of letters of which it is not all: lower and upper bounds.
    """

    extents: Mapping[str, int]
    loops: tuple[Loop, ...] = field(default=())
    bounds_of: Mapping[str, Bounds] = field(default_factory=dict)

    def within(self, loop: Loop) -> Around:
        """Return the place within one more loop."""
        return replace(self, loops=(*self.loops, loop))

    def of(self, letter: str) -> list[Loop]:
        """Return the loops of a letter, outermost first."""
        return [loop for loop in self.loops if loop.letter == letter]

    def bound(
        self, loop: Loop, conditions: Sequence[Condition], body: tuple[program.Node, ...]
    ) -> program.Loop:
        """Return a loop with its bounds around a body, at this place, where conditions hold.

        A condition bounds the loop exactly if all its other letters have values here; else by
        what their loops may still reach, and a loop within does the rest.
        """
        outer = self.of(loop.letter)
        moved = any(condition.position.factor(loop.letter) for condition in conditions)
        whole = (Affine.number(0),), (Affine.number(self.extents[loop.letter]),)
        first, last = self.bounds_of.get(loop.letter, whole)
        low = [Affine.letter(outer[-1].name)] if outer else list(first)
        high = [Affine.letter(one.name) + step_of(one) for one in _ending(outer, moved)]
        high += last
        for condition in conditions:
            factor = condition.position.factor(loop.letter)
            if not factor:
                continue
            rest = self._greatest(condition.position - factor * Affine.letter(loop.letter))
            if factor > 0:
                bound = (-rest + (factor - 1)) // factor
                if bound.terms or bound.offset > 0:
                    low.append(bound)
            else:
                bound = (rest - factor) // -factor
                if bound.terms or bound.offset < self.extents[loop.letter]:
                    high.append(bound)
        ends = tuple(dict.fromkeys(low)), tuple(dict.fromkeys(high))
        return program.Loop(loop.name, *ends, body, step_of(loop), loop.kind)

    def _greatest(self, position: Affine) -> Affine:
        """Return a bound from above of a position, by the loops around."""
        found = Affine.number(position.offset)
        for factor, letter in position.terms:
            outer = self.of(letter)
            if not outer:
                found = found + (factor * (self.extents[letter] - 1) if factor > 0 else 0)
                continue
            found = found + factor * Affine.letter(outer[-1].name)
            if factor > 0:
                found = found + factor * (step_of(outer[-1]) - 1)
        return found


def step_of(loop: Loop) -> int:
    """Return how far the trips of a loop of a single tree are apart."""
    if not isinstance(loop.step, int):
        raise SpecError(f"the loop over {loop.letter} has the step {loop.step}, no number")
    return loop.step


def _ending(outer: Sequence[Loop], moved: bool) -> list[Loop]:
    """Return those of a letter's loops whose tiles may end a loop within them.

    Whole tiles end where the tiles within them do, unless a condition moves where loops begin.
    """
    found: list[Loop] = []
    for loop in reversed(outer):
        if moved or not found or step_of(loop) % step_of(found[-1]):
            found.append(loop)
    return found
