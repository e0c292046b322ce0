"""Loops over tiles and within them, with bounds that fold in the region of a statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.kernels.programs.program import Kind, Loop, Node


@dataclass(frozen=True, slots=True)
class LoopItem:
    """A loop of a nest: over the values of a letter, or over tiles of it if its step is longer.

    Examples
    --------
    >>> LoopItem("j", 64).name, LoopItem("j").name
    ('j_64', 'j')
    """

    letter: str
    step: int = 1
    kind: Kind = "serial"

    @property
    def name(self) -> str:
        """Of the loop."""
        return self.letter if self.step == 1 else f"{self.letter}_{self.step}"


@dataclass(frozen=True, slots=True)
class Around:
    """The loops around a place of a program.

    Parameters
    ----------
    extents
        Of all letters.
    items
        Those loops, outermost first.
    """

    extents: Mapping[str, int]
    items: tuple[LoopItem, ...] = field(default=())

    def within(self, item: LoopItem) -> Around:
        """Return the place within one more loop."""
        return replace(self, items=(*self.items, item))

    def of(self, letter: str) -> list[LoopItem]:
        """Return the loops of a letter, outermost first."""
        return [item for item in self.items if item.letter == letter]

    def loop(self, item: LoopItem, conditions: Sequence[Condition], body: tuple[Node, ...]) -> Loop:
        """Return a loop around a body, at this place, where conditions hold.

        A condition bounds the loop exactly if all its other letters have values here; else by
        what their loops may still reach, and a loop within does the rest.
        """
        outer = self.of(item.letter)
        moved = any(condition.position.factor(item.letter) for condition in conditions)
        low = [Affine.letter(outer[-1].name) if outer else Affine.number(0)]
        high = [Affine.letter(one.name) + one.step for one in _ending(outer, moved)]
        high.append(Affine.number(self.extents[item.letter]))
        for condition in conditions:
            factor = condition.position.factor(item.letter)
            if not factor:
                continue
            rest = self._greatest(condition.position - factor * Affine.letter(item.letter))
            if factor > 0:
                bound = (-rest + (factor - 1)) // factor
                if bound.terms or bound.offset > 0:
                    low.append(bound)
            else:
                bound = (rest - factor) // -factor
                if bound.terms or bound.offset < self.extents[item.letter]:
                    high.append(bound)
        return Loop(item.name, _once(low), _once(high), body, item.step, item.kind)

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
                found = found + factor * (outer[-1].step - 1)
        return found


def _ending(outer: Sequence[LoopItem], moved: bool) -> list[LoopItem]:
    """Return those of a letter's loops whose tiles may end a loop within them.

    Whole tiles end where the tiles within them do, unless a condition moves where loops begin.
    """
    found: list[LoopItem] = []
    for item in reversed(outer):
        if moved or not found or item.step % found[-1].step:
            found.append(item)
    return found


def _once(bounds: Sequence[Affine]) -> tuple[Affine, ...]:
    """Return the different ones of bounds."""
    return tuple(dict.fromkeys(bounds))
