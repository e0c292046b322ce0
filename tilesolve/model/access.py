"""Accesses: the elements of an array that a work touches, and what boxes of iterations touch.

One value for tensors of contractions, copies of them, and arrays of statements. Sizes are numbers
or arrays of them, one entry for each of many boxes; where it is said so, signomials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from math import gcd, prod
from typing import Any, Literal, NamedTuple

import numpy as np

from tilesolve.constants.tuning import NEAR_VECTORS
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor
from tilesolve.model.walk import choose
from tilesolve.solver.signomials import Signomial

Size = Any
"""A number, an array with one entry per box or nest, or a signomial."""

Box = Mapping[str, Size]
"""Iterations of each letter."""

Mode = Literal["read", "write", "add"]
"""What a work does with elements: reads them, sets them, or does both."""


class Axis(NamedTuple):
    """Positions along one axis.

    Parameters
    ----------
    terms
        Pairs of a factor, without its sign, and a letter.
    spread
        How far the offsets of reads are apart.
    divisor
        What the sum of the terms is divided by, rounded down.
    computed
        Whether positions are known at run time alone: they may lie anywhere.
    """

    terms: tuple[tuple[int, str], ...]
    spread: int = 0
    divisor: int = 1
    computed: bool = False

    def reach(self, box: Box) -> Size:
        """Return how far a box reaches; for signomials a posynomial that is no less.

        Examples
        --------
        >>> Axis(((2, "y"), (1, "r"))).reach({"y": 8, "r": 3})
        17
        """
        begin = self.spread + self.divisor
        sizes = [(factor, box[letter]) for factor, letter in self.terms]
        if sizes and isinstance(sizes[0][1], Signomial):
            begin = max(begin - sum([factor for factor, _ in sizes]), 0)
            found: Size = sum((factor * size for factor, size in sizes), start=begin)
        else:
            found = begin + sum([factor * (size - 1) for factor, size in sizes])
        return found * (1 / self.divisor) if self.divisor > 1 else found


@dataclass(frozen=True, slots=True)
class Access:
    """Elements of an array that a work touches by the same letters.

    Reads that differ in their offsets alone are one access: they touch the same lines.

    Parameters
    ----------
    array
        Its name.
    axes
        Outermost first.
    shape
        Of the array.
    element
        Bytes of an element.
    mode
        Whether it is read, written or both.
    loaded
        Bytes that registers take in for each point of its letters; those of its elements if None.

    Examples
    --------
    >>> image = accesses_of(Problem.of("hk-[2h+r]-rk", "h=8,r=3,k=10"))[1]
    >>> image.array, image.letters, image.touched({"h": 4, "r": 3, "k": 10}, 1)
    ('A', ('h', 'r'), 72.0)
    """

    array: str
    axes: tuple[Axis, ...]
    shape: tuple[int, ...]
    element: int
    mode: Mode = "read"
    loaded: float | None = None
    letters: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The letters that move it, in order of appearance."""
    widened: tuple[Axis, ...] = field(init=False, repr=False, compare=False)
    """The axes, each with the letters that widen it.

    A letter that is alone in an axis widens no other one: there it only shifts, as in a diagonal.
    """
    plain: bool = field(init=False, repr=False, compare=False)
    """Whether each axis is one letter, and each letter one axis."""
    rows: tuple[tuple[str, int, int], ...] = field(init=False, repr=False, compare=False)
    """If so, for each axis its letter, its extent, and bytes between positions, innermost first."""
    whole: float = field(init=False, repr=False, compare=False)
    """Bytes of the array, but no less than one."""

    def __post_init__(self) -> None:
        letters = dict.fromkeys(letter for axis in self.axes for _, letter in axis.terms)
        object.__setattr__(self, "letters", tuple(letters))
        alone = {axis.terms[0][1] for axis in self.axes if len(axis.terms) == 1}
        counted: set[str] = set()
        found = []
        for axis in self.axes:
            terms = tuple((c, letter) for c, letter in axis.terms if letter not in alone)
            if len(axis.terms) == 1 and axis.terms[0][1] not in counted:
                counted.add(axis.terms[0][1])
                terms = axis.terms
            found.append(axis._replace(terms=terms))
        object.__setattr__(self, "widened", tuple(found))
        ones = all(axis == Axis(((1, axis.terms[0][1]),)) for axis in self.axes if axis.terms)
        plain = ones and len(letters) == len(self.axes)
        object.__setattr__(self, "plain", plain)
        known = plain and len(self.shape) == len(self.axes)  # what is only in symbols has no shape
        last = zip(letters, self.shape, self.pitches, strict=True) if known else ()
        rows = [(letter, extent, self.element * pitch) for letter, extent, pitch in last]
        object.__setattr__(self, "rows", tuple(rows[::-1]))
        object.__setattr__(self, "whole", float(max(self.element * prod(self.shape), 1)))

    @property
    def contiguous(self) -> tuple[str, ...]:
        """The letters of the last axis."""
        return tuple(letter for _, letter in self.axes[-1].terms) if self.axes else ()

    @property
    def gathered(self) -> bool:
        """Whether positions along an axis are known at run time alone."""
        return any(axis.computed for axis in self.axes)

    @property
    def pitches(self) -> tuple[int, ...]:
        """Elements from one position of each axis to the next.

        Examples
        --------
        >>> Access("A", (Axis(()), Axis(((1, "k"),))), (64, 32), 4).pitches
        (32, 1)
        """
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def pixels(self, letter: str | None) -> int:
        """Return how many elements pixels have that lie side by side along a letter; 0 for none.

        Examples
        --------
        >>> Access("I", (Axis(((1, "x"),)), Axis((), 2)), (64, 3), 1).pixels("x")
        3
        """
        if len(self.axes) < 2 or not 1 < self.shape[-1] <= NEAR_VECTORS:
            return 0
        along = self.axes[-2]
        return self.shape[-1] if along.terms == ((1, letter),) and along.divisor == 1 else 0

    def stride(self, letter: str) -> float:
        """Return the bytes from one iteration of a letter to the next; 0 where it does not move it.

        Examples
        --------
        >>> rows = Access("A", (Axis(((1, "i"),)), Axis(((1, "k"),))), (64, 32), 4)
        >>> rows.stride("i"), rows.stride("k"), rows.stride("j")
        (128.0, 4.0, 0.0)
        """
        steps = (
            self.element * pitch * factor / axis.divisor
            for axis, pitch in zip(self.axes, self.pitches, strict=True)
            for factor, name in axis.terms
            if name == letter
        )
        return sum(steps, start=0.0)

    def reaches(self, box: Box) -> list[Size]:
        """Return how far a box reaches along each axis, whatever lies between; or no less."""
        return [axis.reach(box) for axis in self.axes]

    def sides(self, box: Box) -> tuple[list[Size], list[Size]]:
        """Return how far a box reaches along each axis, and how many positions of it it touches.

        Both for one position of the axes before.
        """
        reaches: list[Size] = []
        sides: list[Size] = []
        for axis in self.widened:
            positions: Size = prod([box[letter] for _, letter in axis.terms])
            if axis.spread:
                positions = positions * (1 + axis.spread)
            reach = positions if axis.computed else axis.reach(box)
            reaches.append(reach)
            sides.append(_least(reach, positions))
        return reaches, sides

    def touched(self, box: Box, line: int, grid: Box | None = None) -> Size:
        """Return the bytes that a box touches, in whole lines.

        A line of one byte counts elements: what a packed copy or a register takes. A run along
        the unit-stride axis takes, besides its bytes and what a stride leaves out, the parts of
        its first and last line that it misses: most of a line if it may begin anywhere (section
        5.4), nothing if rows and boxes begin on lines. No element takes more than a line.

        Parameters
        ----------
        box
            Iterations of each letter.
        line
            Bytes of a line.
        grid
            What the boxes' corners are multiples of, per letter; any corner if None.
        """
        if self.loaded is not None and line <= self.element:
            return prod([box[letter] for letter in self.letters]) * float(self.loaded)
        if self.plain:
            return self._touched_rows(box, line, grid)
        if self._is_symbolic(box):
            return _bytes_in_symbols(self, tuple([box[letter] for letter in self.letters]))
        return _least(self.scattered(box, line, grid), self.whole)

    def scattered(self, box: Box, line: int, grid: Box | None = None) -> Size:
        """Return what a box would touch if nothing that it touches anew were there.

        That differs from `touched` where positions are computed, and may come again. Runs lie along
        the axes behind the last such one.
        """
        reaches, sides = self.sides(box)
        elements: Size = float(self.element)
        for side in sides:
            elements = elements * side
        if sum(len(axis.terms) for axis in self.axes) > len(self.letters):  # as in a diagonal
            elements = _least(elements, self.element * prod(box[i] for i in self.letters))
        if line <= self.element:
            return elements
        run, held = float(self.element), 1.0
        contiguous: Any = True
        corner: Any = line
        pitch = self.element
        axes = list(zip(self.axes, reaches, sides, self.shape, strict=True))[::-1]
        for number, (axis, reach, side, extent) in enumerate(axes):
            # Within a row lines have no gaps; rows that are left out are gaps, if lines lie there.
            if not axis.terms and (extent - reach) * pitch < line:
                reach = extent
            grows = contiguous if number == 0 else contiguous & (side >= reach)
            grows = False if axis.computed else grows
            for step, letter in axis.terms:
                begins = pitch * step * (grid[letter] if grid is not None else 1)
                # Beyond the run every row begins a pitch further.
                corner = divisor(corner, choose(grows, begins, pitch * step))
            run = run * choose(grows, reach, 1)
            held = held * choose(grows, side, 1)
            contiguous = grows & (reach >= extent)
            pitch *= extent
        if any(len(axis.terms) > 1 for axis in self.axes):
            # A window reaches beyond what its corner is a multiple of.
            run = -(-run // corner) * corner
        touched = _least(run + (line - corner) * (1 - contiguous), held * line)
        found: Size = elements / (self.element * held) * touched
        return found

    def _touched_rows(self, box: Box, line: int, grid: Box | None) -> Size:
        """Return what `touched` does where each axis is one letter: the same in fewer steps."""
        elements: Size = float(self.element)
        for letter in self.letters:
            elements = elements * box[letter]
        if line <= self.element:
            return elements
        run: Size = float(self.element)
        contiguous: Any = True
        corner: Any = line
        for letter, extent, pitch in self.rows:
            if contiguous is False:  # and all that is further out is a multiple of this pitch
                corner = divisor(corner, pitch)
                break
            side, begins = box[letter], pitch if grid is None else pitch * grid[letter]
            corner = divisor(corner, choose(contiguous, begins, pitch))
            run = run * choose(contiguous, side, 1)
            whole = side >= extent
            contiguous = whole if contiguous is True else contiguous & whole
        parts = (line - corner) * (1 - contiguous)
        touched = _least(run + parts, run * (line / self.element))
        return _least(elements / run * touched, self.whole)

    def reached(self, box: Box) -> Size:
        """Return the bytes of the box of the array around all that iterations touch.

        In symbols what a stride leaves out is left out.

        Examples
        --------
        >>> image, part = accesses_of(Problem.of("h-[2h+r]-r", "h=8,r=3"))[1], {"h": 4, "r": 1}
        >>> image.touched(part, 1), image.reached(part)
        (32.0, 56.0)
        """
        if self._is_symbolic(box):
            return _bytes_in_symbols(self, tuple([box[letter] for letter in self.letters]))
        return float(self.element) * prod(axis.reach(box) for axis in self.axes)

    def _is_symbolic(self, box: Box) -> bool:
        return any(isinstance(box[letter], Signomial) for letter in self.letters)

    def symbols(self, box: Box) -> Signomial:
        """Return the elements that a box touches, in symbols; letters left out have one iteration.

        Examples
        --------
        >>> image = accesses_of(Problem.of("hk-[2h+r]-rk", "h=8,r=3,k=10"))[1]
        >>> print(image.symbols({"h": Signomial.symbol("T"), "r": Signomial.symbol("R")}))
        2·T + R - 2
        """
        alone = dict.fromkeys(axis.terms[0][1] for axis in self.axes if len(axis.terms) == 1)
        size = Signomial.constant(1)
        for letter in alone:
            size = size * box[letter] if letter in box else size
        for axis in self.axes:
            wide = [(c, i) for c, i in axis.terms if box.get(i, 1) != 1 and i not in alone]
            if len(wide) == 1:
                size = size * box[wide[0][1]]
            elif wide:
                size = size * sum((c * (box[i] - 1) for c, i in wide), Signomial.constant(1))
        return size


@dataclass(frozen=True, slots=True)
class Shared:
    """What several works touch of one array, one work after another.

    Parameters
    ----------
    accesses
        Of the works.
    letters
        Those that move it: none outside of a ring's loops, whose places come again.
    most
        Bytes of a ring.
    """

    accesses: tuple[Access | Shared, ...]
    letters: tuple[str, ...]
    most: float | None = None

    @property
    def array(self) -> str:
        """Its name."""
        return self.accesses[0].array

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return self.accesses[0].element

    @property
    def contiguous(self) -> tuple[str, ...]:
        """The letters of the last axis."""
        return self.accesses[0].contiguous

    @property
    def mode(self) -> Mode:
        """Whether a work writes it."""
        return next((one.mode for one in self.accesses if one.mode != "read"), "read")

    def stride(self, letter: str) -> float:
        """Return the bytes from one iteration of a letter to the next."""
        return self.accesses[0].stride(letter)

    def touched(self, box: Box, line: int, grid: Box | None = None) -> Size:
        """Return the bytes that a box touches, in whole lines: those of the work that does most."""
        sizes = [one.touched(box, line, grid) for one in self.accesses]
        found: Size = reduce(np.maximum, sizes) if len(sizes) > 1 else sizes[0]
        return found if self.most is None else _least(found, self.most)


@lru_cache(maxsize=4096)
def _bytes_in_symbols(access: Access, sides: tuple[Size, ...]) -> Signomial:
    """Return the bytes that a box of such sides touches, kept: programs have the same boxes."""
    return access.symbols(dict(zip(access.letters, sides, strict=True))) * float(access.element)


@lru_cache(maxsize=512)
def accesses_of(problem: Problem) -> tuple[Access, ...]:
    """Return what a contraction or convolution touches: its output, then its operands."""
    tensors = zip(problem.spec.names, problem.spec.tensors, strict=True)
    output, *operands = (access_of(problem, *pair, problem.itemsize) for pair in tensors)
    return replace(output, mode="write"), *operands


def touched_bytes(problem: Problem, box: Box | None = None) -> tuple[Size, ...]:
    """Return the bytes of each tensor that a box touches; a whole problem may leave some out.

    Examples
    --------
    >>> touched_bytes(Problem.of("h-[2h]", 4)), Problem.of("h-[2h]", 4).bytes
    ((32.0, 32.0), (32, 56))
    """
    sides = problem.sizes if box is None else box
    return tuple(one.touched(sides, 1) for one in accesses_of(problem))


def access_of(problem: Problem, name: str, tensor: Tensor, element: int) -> Access:
    """Return a tensor over a problem's letters as an access."""
    axes = tuple(Axis(subscript.terms) for subscript in tensor.subscripts)
    return Access(name, axes, tensor.shape(problem.sizes), element)


def _least(a: Size, b: Size) -> Size:
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def divisor(a: Size, b: Size) -> Size:
    """Return the greatest common divisor, element by element where there are arrays.

    Examples
    --------
    >>> divisor(8, 12), divisor(np.array([4, 6]), 12).tolist()
    (4, [4, 6])
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.gcd(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
    return gcd(int(a), int(b))
