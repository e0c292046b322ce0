"""The lines of a tensor that a box touches: how long runs are, and what moves in vain."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor
from tilesolve.machine.model import Machine
from tilesolve.model.access import Access, Box
from tilesolve.model.walk import choose


def line_waste(
    problem: Problem,
    sides: Mapping[str, NDArray[np.float64]],
    known: Mapping[str, int],
    line: int,
    tensors: Sequence[Tensor],
    ends: float = 0.0,
) -> NDArray[np.float64]:
    """Return for each box the bytes that all tensors move in lines over those that they use.

    Only tensors of whose runs the box decides can lose here. A run that covers the whole letter
    goes on into the next one.

    Parameters
    ----------
    problem
        What is computed.
    sides
        Of the letters that are looked at, a side for each box.
    known
        Of the others, as far as they are known.
    line
        Bytes of a line.
    tensors
        Those that count.
    ends
        Bytes that each run of C costs whose ends lie amid lines, see `bytes_at_ends`.

    Examples
    --------
    >>> problem, line = Problem.of("mn-mk-kn", 64), np.array([8.0, 16.0])
    >>> output = problem.spec.output
    >>> line_waste(problem, {"n": line}, {"m": 8, "k": 8}, 64, [output]).round(2).tolist()
    [1.5, 1.25]
    """
    shares, waste = _shares_of_bytes(problem), np.ones(1)
    box: Mapping[str, Any] = {**known, **sides}
    for tensor in tensors:
        if any(letter in sides for letter in _trailing_letters(tensor, box)):
            run = run_of(problem, tensor, box)
            amid = share_amid_lines(problem, box, line) if ends else 0.0
            of_runs = ends * amid if tensor == problem.spec.output else 0.0
            waste = waste + shares[tensor] * run_waste(run, line, problem.itemsize, of_runs)
    return waste


@lru_cache(maxsize=64)
def _shares_of_bytes(problem: Problem) -> Mapping[Tensor, float]:
    """Return the share of all bytes that each tensor has."""
    sizes = dict(zip(problem.spec.tensors, problem.bytes, strict=True))
    total = max(1, sum(sizes.values()))
    return {tensor: size / total for tensor, size in sizes.items()}


def _trailing_letters(tensor: Tensor, sides: Mapping[str, Any]) -> list[str]:
    """Return the last letters of a tensor, as far as they stand alone and have a known side."""
    letters = [s.letters[0] if s.plain else None for s in reversed(tensor.subscripts)]
    return [letter for letter in takewhile(sides.__contains__, letters) if letter is not None]


def run_of(problem: Problem, tensor: Tensor, sides: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the bytes of a tensor that lie side by side in a box, or in each of many.

    A run that covers a whole letter goes on into the next one.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> [int(run_of(problem, t, {"m": 8, "n": 16, "k": 64})) for t in problem.spec.tensors]
    [128, 4096, 128]
    """
    return _run(problem, tensor, sides, sides)


def _run(
    problem: Problem, tensor: Tensor, sides: Mapping[str, Any], grown: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - number or array
    """Return the bytes of a run up to its first letter that is cut, whose letters have grown."""
    run: Any = float(problem.itemsize)
    whole: Any = True
    for letter in _trailing_letters(tensor, sides):
        size = grown[letter]
        run = run * choose(whole, size if isinstance(size, np.ndarray) else max(1, size), 1)
        whole = whole & (sides[letter] >= problem.sizes[letter])
        if whole is False:
            break
    return run


def share_amid_lines(problem: Problem, sides: Mapping[str, Any], line: int) -> Any:  # noqa: ANN401
    """Return the share of C's runs in a box, or in each of many, that begin and end amid lines.

    Runs lie side by side, so that one ends where the next one begins. All begin at multiples of
    what divides their length, the bytes from row to row, and a line: they are taken to be spread
    evenly over these. An output that begins amid a line has all of them there.

    Examples
    --------
    >>> from dataclasses import replace
    >>> problem = replace(Problem.of("mn-mk-kn", 72), aligned_output=True)
    >>> [float(share_amid_lines(problem, {"n": side}, 64)) for side in (7, 8, 9, 12)]
    [0.875, 0.0, 0.875, 0.5]
    """
    if not problem.aligned_output:
        return 1.0
    # Bytes of a run, and those from its first letter that is cut to the next row.
    run, step = (
        _run(problem, problem.spec.output, sides, grown) for grown in (sides, problem.sizes)
    )
    parts = (np.asarray(size % line, np.int64) for size in (np.minimum(run, step), step))
    return 1 - np.gcd(line, np.gcd(*parts)) / line


def run_touched(access: Access, box: Box) -> float:
    """Return the bytes of an array that lie side by side in what a box touches of it.

    Windows that overlap are one run, and so is what lies between those that do not.

    Examples
    --------
    >>> from tilesolve.model.access import accesses_of
    >>> image = accesses_of(Problem.of("hk-[2h+r]-rk", "h=8,r=3,k=10"))[1]
    >>> run_touched(image, {"h": 4, "r": 3, "k": 10})
    72.0
    """
    run = float(access.element)
    for axis, extent in zip(reversed(access.axes), reversed(access.shape), strict=True):
        reach = min(axis.reach(box), extent)
        run *= max(1, reach)
        if reach < extent:
            break
    return run


def lines_of(
    problem: Problem, tensor: int, sides: Mapping[str, int], line: int
) -> NDArray[np.int64]:
    """Return the numbers of the lines of a tensor that a box at the beginning touches.

    Examples
    --------
    >>> lines_of(Problem.of("mn-mk-kn", 512), 2, {"k": 3, "n": 8}, 64).tolist()
    [0, 64, 128]
    """
    strides = problem.strides(tensor)
    reach = sum(stride * sides[letter] for letter, stride in strides.items())
    kind = np.int64 if reach <= sys.maxsize else np.object_  # more than memory can have
    places = np.zeros(1, kind)
    for letter, stride in strides.items():
        steps: Any = stride * np.arange(sides[letter]).astype(kind)
        places = (places[:, None] + steps).ravel()
    found = np.sort(places // line)
    return found[np.flatnonzero(np.diff(found, prepend=-1))]


def bytes_at_ends(machine: Machine) -> float:
    """Return the bytes that memory takes by non-temporal stores while a run of C waits at its ends.

    It waits where these lie amid lines, see `share_amid_lines`.

    Examples
    --------
    >>> round(bytes_at_ends(Machine.load("i7-6700k")))
    215
    """
    memory = machine.memory
    return part_seconds(machine) * (memory.stream or memory.bandwidth)


def part_seconds(machine: Machine) -> float:
    """Return the seconds that a run of C takes beyond its bytes where its ends lie amid lines."""
    part = machine.memory.part
    return machine.costs.part_line_seconds if part is None else part


def run_waste(run: Any, line: int, element: int, ends: Any = 0.0) -> Any:  # noqa: ANN401 - numbers or arrays
    """Return the bytes moved in vain with each run of so many bytes, per byte of it.

    Runs of whole lines mostly begin on one, others touch most of a line more; and wherever a run
    ends, the CPU has fetched in vain. No run costs less than so many bytes for its ends.

    Examples
    --------
    >>> float(run_waste(64, 64, 8)), float(run_waste(640, 64, 8))
    (1.5, 0.15)
    """
    waste = line + choose(run % line == 0, line / 2, line - element)
    some = isinstance(ends, np.ndarray) or ends
    return (np.maximum(waste, ends) if some else waste) / run
