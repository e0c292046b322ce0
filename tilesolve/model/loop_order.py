"""The order of loops over letters: within each class, the next box lies near in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from tilesolve.constants.policy import PAGE_VISIT_TOLERANCE, RUN_PAGE_VISITS
from tilesolve.contractions.problem import Problem
from tilesolve.machine.costs import DEFAULT_COSTS
from tilesolve.model.pages import pages_of, runs_of


def innermost_first(problem: Problem, letters: Sequence[str]) -> tuple[str, ...]:
    """Order the letters of a class as they stand in the first tensor that has them, reversed.

    Examples
    --------
    >>> innermost_first(Problem.of("abcd-aebf-dfce", 72), "ab")
    ('b', 'a')
    """
    tensor = next((t for t in problem.spec.tensors if letters[0] in t.letters), None)
    if tensor is None:
        return tuple(letters)
    place = {letter: at for at, letter in enumerate(tensor.letters)}
    return tuple(sorted(letters, key=lambda letter: -place[letter]))


def order_loops(
    classes: Sequence[Sequence[str]],
    inner: Mapping[str, int],
    outer: Mapping[str, int],
    tensors: Sequence[Mapping[str, int]],
    line: int,
    tlb_pages: float = DEFAULT_COSTS.tlb_pages,
) -> list[str]:
    """Order the loops over boxes in a larger one, innermost first, so that they share pages.

    Within each class that letter goes innermost along which boxes lie in the fewest pages: each
    box that comes back to a page looks it up again. Where one box has more pages than the TLB
    holds, the next one finds few of them there, and runs of the operands count more: where a run
    ends, lines are prefetched in vain unless the next box goes on there. See
    ``docs/decisions/023-loop-order.md``.

    Parameters
    ----------
    classes
        The letters of each class, classes and letters innermost first.
    inner, outer
        Sides of the boxes and of that which they fill.
    tensors
        Strides in bytes of the output and the operands; none for those that the loops never meet.
    line
        Bytes of a line of memory.
    tlb_pages
        Pages whose addresses a core keeps translated.

    Examples
    --------
    Boxes are eight elements along the last letter of A: the next one goes on there.

    >>> problem = Problem.of("abcd-dbea-ec", "a=72,b=72,c=24,d=72,e=72")
    >>> strides = [{}, problem.strides(1), {}]
    >>> inner = dict(a=8, b=1, c=24, d=72, e=72)
    >>> order_loops(["dba", "c", "e"], inner, problem.sizes, strides, 64)
    ['d', 'a', 'b', 'c', 'e']
    """
    found: list[str] = []
    box = dict(inner)
    for letters in classes:
        free = [letter for letter in letters if inner[letter] < outer[letter]]
        found += [letter for letter in letters if letter not in free]
        # Tensors without these letters stay where they are, whichever of them goes on.
        several, own = len(free) > 1, {*letters}
        moved = [steps if several and not own.isdisjoint(steps) else {} for steps in tensors]
        while len(free) > 1:
            held = sum(pages_of(steps, box) for steps in tensors) <= tlb_pages
            visits = {}
            for i in free:
                wider, trips = {**box, i: outer[i]}, ceil(outer[i] / inner[i])
                pages: float = sum(pages_of(steps, wider) for steps in moved if steps)
                if not held:
                    runs = sum(runs_of(steps, wider, line) for steps in moved[1:] if steps)
                    pages += RUN_PAGE_VISITS * runs
                visits[i] = pages / trips
            fewest = min(visits.values())
            letter = next(i for i in free if visits[i] <= fewest * (1 + PAGE_VISIT_TOLERANCE))
            free.remove(letter)
            found.append(letter)
            box[letter] = outer[letter]
        found += free
        box |= {letter: outer[letter] for letter in free}
    return found
