"""What pairs of elements take that are not multiplied and added."""

from __future__ import annotations

from tilesolve.constants.policy import EXTREME_SLOTS
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.statements.terms import Apply, Number, Param

_EXTREMES = ("minimum", "maximum")


def pair_slots(problem: Problem) -> int:
    """Return how many FMAs take as long as what is done with a pair of elements.

    Each operation takes as long as one, but a product that is added is one with the sum. Extremes
    keep NaN, which takes more.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from tilesolve.contractions.pairing import Pairing
    >>> texts = "add(abs(a - b))", "add((a - b) * (a - b))", "maximum(a + b)"
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> [pair_slots(replace(problem, pairing=Pairing.parse(text))) for text in texts]
    [3, 2, 4]
    """
    if problem.pairing is None:
        return 1
    term, reduction = problem.pairing.term, problem.pairing.reduction
    within = [one for one in set(term.all) if not isinstance(one, Number | Param)]
    names = [reduction, *(one.name if isinstance(one, Apply) else "" for one in within)]
    fused = reduction == "add" and isinstance(term, Apply) and term.name == "multiply"
    return sum(EXTREME_SLOTS if name in _EXTREMES else 1 for name in names) - fused
