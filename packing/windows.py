"""Window copies: a box of an operand laid out again, with zeros where its padding is.

Windows that overlap share elements, so that the copy has each element of the box once. It keeps the
order of the array's axes, unless vectors need another one; rows that would alias in a cache are set
a line apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tilesolve.contractions.padding import Padding
from tilesolve.contractions.spec import Tensor
from tilesolve.packing import window_fields as fields
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import PANEL_GAP_BYTES


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of an operand and of its window copy.

    Parameters
    ----------
    terms
        Coefficients and letters of its subscript.
    extent
        Elements of the array.
    before
        Zeros before them.
    step
        Bytes from one to the next in the array.
    pitch
        The same in the copy.
    """

    terms: tuple[tuple[int, str], ...]
    extent: int
    before: int
    step: int
    pitch: int

    def reach(self, sizes: Mapping[str, int]) -> int:
        """Return how many places a box touches."""
        return 1 + sum(c * (sizes[letter] - 1) for c, letter in self.terms)


@dataclass(frozen=True, slots=True)
class WindowCopy:
    """How the boxes of an operand are copied.

    Parameters
    ----------
    axes
        Outermost first. Those that every box has whole and that lie side by side, in the array and
        in the copy, are left out: they are one unit.
    unit_bytes
        Bytes that are always copied together.
    unit_strides
        Bytes from one index to the next of each letter that moves within a unit.
    size_bytes
        Bytes of the largest copy.

    Examples
    --------
    >>> from tilesolve.contractions.spec import Spec
    >>> image = Spec.parse("hk-[h+r]c-rck").operands[0]
    >>> box = dict(h=4, r=3, c=2)
    >>> found = WindowCopy.of(image, (8, 2), [Padding(1, 0, 1, 1)], (16, 8), box, 8)
    >>> found.unit_bytes, found.size_bytes, found.strides
    (16, 96, {'c': 8, 'h': 16, 'r': 16})
    """

    axes: tuple[WindowAxis, ...]
    unit_bytes: int
    unit_strides: tuple[tuple[str, int], ...]
    size_bytes: int

    @classmethod
    def of(
        cls,
        tensor: Tensor,
        shape: Sequence[int],
        padding: Iterable[Padding],
        steps: Sequence[int],
        box: Mapping[str, int],
        element: int,
        lane: str | None = None,
    ) -> Self:
        """Return how boxes of an array are copied.

        Parameters
        ----------
        tensor
            The operand.
        shape, steps
            Of its array.
        padding
            Its zeros.
        box
            The extents of the largest box.
        element
            Bytes of an element.
        lane
            A letter that the copy is contiguous along, whatever the array is.
        """
        zeros = {one.axis: one.before for one in padding}
        order = sorted(
            range(len(shape)),
            key=lambda axis: (
                tensor.subscripts[axis].letters != (lane,),
                abs(steps[axis]),
                -axis,
            ),
        )
        axes: list[WindowAxis] = []
        pitch, unit = element, element
        within: dict[str, int] = {}
        for axis in order:
            terms = tensor.subscripts[axis].terms
            found = WindowAxis(terms, shape[axis], zeros.get(axis, 0), steps[axis], pitch)
            reach = found.reach(box)
            if not axes and steps[axis] == pitch and reach == shape[axis] and axis not in zeros:
                for coefficient, letter in terms:
                    within[letter] = within.get(letter, 0) + coefficient * pitch
                unit = pitch = pitch * reach
                continue
            axes.insert(0, found)
            pitch *= reach
            pitch += PANEL_GAP_BYTES * (pitch % (2 * PANEL_GAP_BYTES) == 0)
        return cls(tuple(axes), unit, tuple(within.items()), pitch)

    @property
    def strides(self) -> dict[str, int]:
        """Bytes from one index to the next of each letter in the copy."""
        found = dict(self.unit_strides)
        for axis in self.axes:
            for coefficient, letter in axis.terms:
                found[letter] = found.get(letter, 0) + coefficient * axis.pitch
        return found

    def records(
        self,
        begins: Mapping[str, Integers],
        sizes: Mapping[str, Integers],
        backwards: Iterable[str] = (),
    ) -> Integers:
        """Return a row of `window_fields` for each box.

        Parameters
        ----------
        begins
            Where each letter begins in each box.
        sizes
            Its extent there.
        backwards
            Letters that are walked from their last index to their first.
        """
        count = len(next(iter(begins.values()))) if begins else 1
        found = np.zeros((count, fields.SIZE + fields.AXIS_WORDS * len(self.axes)), np.int64)
        found[:, fields.UNIT_BYTES], found[:, fields.AXES] = self.unit_bytes, len(self.axes)
        strides = self.strides
        for letter in backwards:
            found[:, fields.ORIGIN] += strides.get(letter, 0) * (sizes[letter] - 1)
        for at, axis in enumerate(self.axes):
            first = sum(c * begins[letter] for c, letter in axis.terms) - axis.before
            reach = 1 + sum(c * (sizes[letter] - 1) for c, letter in axis.terms)
            before = np.clip(-first, 0, reach)
            counted = np.clip(axis.extent - first, 0, reach) - before
            found[:, fields.SOURCE] += np.maximum(first, 0) * axis.step * (counted > 0)
            words = fields.SIZE + fields.AXIS_WORDS * at
            found[:, words + fields.BEFORE] = before
            found[:, words + fields.COUNT] = counted
            found[:, words + fields.AFTER] = reach - before - counted
            found[:, words + fields.STEP] = axis.step
            found[:, words + fields.PITCH] = axis.pitch
        return found
