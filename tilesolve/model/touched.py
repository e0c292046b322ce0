"""What boxes of iterations touch of a tensor, counted exactly: elements, or lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tilesolve.contractions.spec import Subscript, Tensor
from tilesolve.model.iterations import Ranges
from tilesolve.model.polyhedra import Box, count_images


class Windows(NamedTuple):
    """The letters of a tensor that windows couple, and all subscripts that have one of them."""

    letters: tuple[str, ...]
    subscripts: tuple[Subscript, ...]


def windows_of(tensor: Tensor, running: frozenset[str]) -> Windows:
    """Return what several letters that run share of a tensor.

    Examples
    --------
    >>> from tilesolve.contractions.spec import Spec
    >>> image = Spec.parse("khw-c[h+r][w+s]-kcrs").operands[0]
    >>> windows_of(image, frozenset("khwcr")).letters
    ('h', 'r')
    """
    letters: set[str] = set()
    for subscript in tensor.subscripts:
        coupled = running.intersection(subscript.letters)
        if len(coupled) > 1:
            letters |= coupled
    found = tuple(s for s in tensor.subscripts if letters.intersection(s.letters))
    return Windows(tuple(i for i in tensor.letters if i in letters), found)


def count_elements(tensor: Tensor, boxes: Sequence[Ranges]) -> int:
    """Return how many elements of a tensor some boxes touch, each counted once.

    Raises
    ------
    ModelError
        If several letters of a subscript run, and islpy is missing.

    Examples
    --------
    >>> from tilesolve.contractions.spec import Spec
    >>> matrix = Spec.parse("mn-mk-kn").operands[0]
    >>> count_elements(matrix, [{"m": (0, 1), "k": (0, 9)}, {"m": (0, 4), "k": (8, 9)}])
    12
    """
    ranges = {letter: {box[letter] for box in boxes} for letter in tensor.letters}
    running = frozenset(
        letter
        for letter, found in ranges.items()
        if len(found) > 1 or any(high - low > 1 for low, high in found)
    )
    windows = windows_of(tensor, running).subscripts
    coupled = tuple(dict.fromkeys(i for subscript in windows for i in subscript.letters))
    alone = [i for i in tensor.letters if i not in coupled]
    cut = {tuple(box[i] for i in (*alone, *coupled)) for box in boxes}

    def count(boxes: frozenset[Box], axes: int) -> int:
        if not axes:
            return count_images(windows, coupled, boxes) if windows else 1
        edges = sorted({edge for box in boxes for edge in box[0]})
        total = 0
        for low, high in pairwise(edges):
            inside = {box[1:] for box in boxes if box[0][0] <= low and high <= box[0][1]}
            if inside:
                total += (high - low) * count(frozenset(inside), axes - 1)
        return total

    return count(frozenset(cut), len(alone))


def count_lines(
    strides: Mapping[str, int], itemsize: int, line: int, boxes: Sequence[Ranges]
) -> int:
    """Return how many lines of a tensor some boxes touch, which begins with a line.

    Parameters
    ----------
    strides
        Bytes between neighbours along each letter of the tensor.
    itemsize, line
        Bytes of an element and of a line.
    boxes
        Iterations.

    Examples
    --------
    >>> count_lines({"m": 800, "n": 8}, 8, 64, [{"m": (0, 3), "n": (0, 8)}])
    4
    """
    firsts, lasts = [], []
    for box in boxes:
        begin = sum(stride * box[letter][0] for letter, stride in strides.items())
        begins, run = np.array([begin], np.int64), itemsize
        for letter, stride in sorted(strides.items(), key=lambda item: item[1]):
            side = box[letter][1] - box[letter][0]
            if begins.size == 1 and stride < run + line:
                # No line lies between neighbours.
                run += stride * (side - 1)
            elif side > 1:
                begins = np.add.outer(stride * np.arange(side), begins).ravel()
        firsts.append(begins // line)
        lasts.append((begins + run - 1) // line)
    first, last = np.concatenate(firsts), np.concatenate(lasts)
    order = np.argsort(first, kind="stable")
    first, last = first[order], last[order]
    reached = np.concatenate(([-1], np.maximum.accumulate(last)[:-1]))
    return int(np.maximum(0, last - np.maximum(first - 1, reached)).sum())
