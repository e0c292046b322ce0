"""Footprints: the bytes of a tensor that a box of iterations touches, in elements or in lines.

Sizes are numbers or arrays of them, one entry for each of many boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod
from typing import Any

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor
from tilesolve.model.walk import choose

Sizes = Any
"""A float, or an array with one entry per nest."""


def footprint(
    problem: Problem,
    tensor: Tensor,
    box: Mapping[str, Sizes],
    line: int,
    grid: Mapping[str, Sizes] | None = None,
) -> Sizes:
    """Return the bytes of a tensor that a box of iterations touches, in whole lines.

    A line of one byte counts elements: what a packed copy or a register takes. A run along
    the unit-stride subscript takes, besides its bytes and what a stride leaves out, the parts of
    its first and last line that it misses: most of a line if it may begin anywhere (section 5.4),
    nothing if rows and boxes begin on lines. No element takes more than a line.

    Parameters
    ----------
    problem, tensor
        The tensor of the problem.
    box
        Iterations of each letter.
    line
        Bytes of a line.
    grid
        What the boxes' corners are multiples of, per letter; any corner if None.

    Examples
    --------
    >>> problem = Problem.of("hk-[h+r]-rk", "h=8,r=3,k=10")
    >>> footprint(problem, problem.spec.operands[0], {"h": 4, "r": 3, "k": 10}, 1)
    48.0
    """
    reaches, sides = _sides(tensor, box)
    elements: Sizes = float(problem.itemsize)
    for side in sides:
        elements = elements * side
    if sum(len(s.terms) for s in tensor.subscripts) > len(tensor.letters):  # as in a diagonal
        elements = _least(elements, problem.itemsize * prod(box[i] for i in tensor.letters))
    if line <= problem.itemsize:
        return elements
    run, held = float(problem.itemsize), 1.0
    contiguous: Any = True
    corner: Any = line
    pitch = problem.itemsize
    shape = tensor.shape(problem.sizes)
    axes = list(zip(tensor.subscripts, reaches, sides, shape, strict=True))[::-1]
    for axis, (subscript, reach, side, extent) in enumerate(axes):
        # Within a row lines have no gaps; rows that are left out are gaps.
        grows = contiguous if axis == 0 else contiguous & (side >= reach)
        for step, letter in subscript.terms:
            begins = pitch * step * (grid[letter] if grid is not None else 1)
            # Beyond the run every row begins a pitch further.
            corner = divisor(corner, choose(grows, begins, pitch * step))
        run = run * choose(grows, reach, 1)
        held = held * choose(grows, side, 1)
        contiguous = grows & (reach >= extent)
        pitch *= extent
    touched = _least(run + (line - corner) * (1 - contiguous), held * line)
    return _least(elements / (problem.itemsize * held) * touched, float(max(pitch, 1)))


def runs_in(
    problem: Problem,
    tensor: Tensor,
    box: Mapping[str, Sizes],
    line: int,
    *,
    whole_rows_join: bool = True,
) -> Sizes:
    """Return how many runs of a tensor a box touches: pieces of lines side by side.

    What lies less than a line apart along the last axis is one run. One that covers whole rows
    goes on into the next one, unless that is not wished.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> [runs_in(problem, t, {"m": 8, "n": 16, "k": 64}, 64) for t in problem.spec.tensors]
    [8.0, 1.0, 64.0]
    """
    reaches, sides = _sides(tensor, box)
    found: Sizes = 1.0
    contiguous: Any = True
    shape = tensor.shape(problem.sizes)
    axes = list(zip(tensor.subscripts, reaches, sides, shape, strict=True))[::-1]
    for axis, (subscript, reach, side, extent) in enumerate(axes):
        if axis == 0:
            grows: Any = min((c for c, _ in subscript.terms), default=1) * problem.itemsize <= line
        else:
            grows = contiguous & (side >= reach) & whole_rows_join
        found = found * choose(grows, 1.0, side)
        contiguous = grows & (reach >= extent)
    return found


def reached_bytes(problem: Problem, tensor: Tensor, box: Mapping[str, Sizes]) -> Sizes:
    """Return the bytes of the box of a tensor around all that iterations touch: a window copy's.

    Examples
    --------
    >>> problem = Problem.of("h-[2h+r]-r", "h=8,r=3")
    >>> image, part = problem.spec.operands[0], {"h": 4, "r": 1}
    >>> footprint(problem, image, part, 1), reached_bytes(problem, image, part)
    (32.0, 56.0)
    """
    sides = (
        1 + sum(step * (box[letter] - 1) for step, letter in subscript.terms)
        for subscript in tensor.subscripts
    )
    return float(problem.itemsize) * prod(sides)


def touched_bytes(problem: Problem) -> tuple[float, ...]:
    """Return the bytes of each tensor that a problem touches: strides may leave some out.

    Examples
    --------
    >>> touched_bytes(Problem.of("h-[2h]", 4)), Problem.of("h-[2h]", 4).bytes
    ((32.0, 32.0), (32, 56))
    """
    whole = dict(problem.sizes)
    return tuple(footprint(problem, tensor, whole, 1) for tensor in problem.spec.tensors)


def _sides(tensor: Tensor, box: Mapping[str, Sizes]) -> tuple[list[Sizes], list[Sizes]]:
    """Return how far a box reaches along each axis, and how many places of it it touches.

    Both for one place of the axes before. A letter that is alone in a subscript widens no other:
    there it only shifts, as in a diagonal.
    """
    alone = {s.letters[0] for s in tensor.subscripts if len(s.terms) == 1}
    counted: set[str] = set()
    reaches: list[Sizes] = []
    sides: list[Sizes] = []
    for subscript in tensor.subscripts:
        terms = [(c, letter) for c, letter in subscript.terms if letter not in alone]
        if len(subscript.terms) == 1 and subscript.letters[0] not in counted:
            counted.add(subscript.letters[0])
            terms = list(subscript.terms)
        reaches.append(1 + sum(c * (box[letter] - 1) for c, letter in terms))
        sides.append(_least(reaches[-1], prod(box[letter] for _, letter in terms)))
    return reaches, sides


def _least(a: Sizes, b: Sizes) -> Sizes:
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def divisor(a: Sizes, b: Sizes) -> Sizes:
    """Return the greatest common divisor, element by element where there are arrays.

    Examples
    --------
    >>> divisor(8, 12), divisor(np.array([4, 6]), 12).tolist()
    (4, [4, 6])
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.gcd(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
    return gcd(int(a), int(b))
