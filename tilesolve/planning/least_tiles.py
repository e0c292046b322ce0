"""Tiles that lie well in memory: the least ones of whole lines and long runs, and even ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod

from tilesolve.constants.policy import EVEN_ITERATIONS, WHOLE_LINES_SHARE
from tilesolve.contractions.problem import Problem
from tilesolve.model.access import touched_bytes
from tilesolve.model.fused import Fused
from tilesolve.model.level_view import LevelView
from tilesolve.planning.letter_boxes import line_steps, unit_letters


def line_sides(problem: Problem, line: int) -> dict[str, int]:
    """Return for each letter the iterations that cover a line of every tensor.

    Examples
    --------
    >>> line_sides(Problem.of("abc-bda-dc", 24), 64)
    {'a': 8, 'b': 1, 'c': 8, 'd': 1}
    """
    units, elements = unit_letters(problem), max(1, line // problem.itemsize)
    return {i: min(elements, n) if i in units else 1 for i, n in problem.sizes.items()}


def run_sides(problem: Problem, run: int) -> dict[str, int]:
    """Return for each letter the iterations that complete a run of so many bytes of the output.

    Examples
    --------
    >>> run_sides(Problem.of("abc-bda-dc", 24), 1024)
    {'a': 1, 'b': 6, 'c': 24, 'd': 24}
    """
    output, covered = problem.spec.output.letters, problem.itemsize
    found = {i: 1 if i in output else max(1, n) for i, n in problem.sizes.items()}
    for letter in problem.spec.output.letters[::-1]:
        found[letter] = max(1, min(problem.sizes[letter], ceil(run / covered)))
        covered *= found[letter]
    return found


def tiles_of(
    problem: Problem, fused: Fused, sides: Sequence[Mapping[str, int]], place: LevelView
) -> tuple[tuple[str, int], ...]:
    """Return for each class the iterations of a box that has at least some sides.

    Nothing is returned where such tiles would take more than half of the store.

    Examples
    --------
    >>> from tilesolve.model.fused import fuse
    >>> from tilesolve.machine.model import Machine
    >>> from tilesolve.model.price import list_levels
    >>> problem = Problem.of("abc-dac-bd", "a=48,b=32,c=40,d=24")
    >>> last = list_levels(Machine.load("e5-2680v4"))[-1]
    >>> tiles_of(problem, fuse(problem), [line_sides(problem, 64)], last)
    (('M', 8), ('N', 1), ('K', 8))
    """
    tiles = {
        index: prod(max(side[i] for side in sides) for i in letters)
        for index, letters in fused.groups
    }
    taken = sum(touched_bytes(fused.problem, tiles))
    return tuple(tiles.items()) if taken <= WHOLE_LINES_SHARE * place.capacity else ()


def even_sizes(problem: Problem, letters: Sequence[str], line: int) -> tuple[int, ...]:
    """Return the sizes of boxes that cut letters into equal parts, and lie in whole lines.

    None are larger than `EVEN_ITERATIONS`, however long the letters are.

    Examples
    --------
    >>> [size for size in even_sizes(Problem.of("abcd-aebf-dfce", 72), "ef", 64) if size < 2000]
    [64, 192, 576, 1728]
    """
    steps_of = line_steps(problem, line, problem.spec.tensors)
    found = {1}
    for letter in letters:
        extent, step = max(1, problem.sizes[letter]), steps_of.get(letter, 1)
        most = min(extent, EVEN_ITERATIONS)
        sides = [side for side in range(step, most + 1, step) if extent % side == 0]
        found = {size * side for size in found for side in sides if size * side <= EVEN_ITERATIONS}
    return tuple(sorted(found))
