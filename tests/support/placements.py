"""Where arrays lie: byte orders, odd addresses, gaps, steps that are negative or too short."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

LINE = 64
"""Bytes of a line of the caches, where arrays may begin or not."""

NO_NUMBER = 0xFF
"""A byte of which elements of floating point are NaN: it fills what lies around arrays."""


@dataclass(frozen=True)
class Placement:
    """How an array lies in its memory.

    Parameters
    ----------
    order
        Its axes from the one with the longest steps to that with the shortest.
    gaps
        Bytes between neighbours along each of these beside what they need: they may be odd ones.
    backwards
        Axes whose steps are negative.
    begin
        Bytes before its first address, counted from a line of the caches.
    swapped
        Whether it has the byte order that is not the machine's.
    same
        Axes whose elements are all one: their steps are zero.
    squeezed
        Whether the outermost steps are so short that elements share memory; there are no gaps then.
    """

    order: tuple[int, ...]
    gaps: tuple[int, ...]
    backwards: frozenset[int] = frozenset()
    begin: int = 0
    swapped: bool = False
    same: frozenset[int] = frozenset()
    squeezed: bool = False

    @property
    def shares(self) -> bool:
        """Whether elements may share memory."""
        return self.squeezed or bool(self.same)

    def strides(self, shape: tuple[int, ...], size: int) -> list[int]:
        """Return the steps of each axis, for elements of so many bytes; all positive."""
        steps, reach = [0] * len(shape), size
        for axis, gap in zip(reversed(self.order), self.gaps, strict=True):
            if axis not in self.same:
                steps[axis] = reach + (0 if self.squeezed else gap)  # else parts would be shared
                reach += steps[axis] * max(0, shape[axis] - 1)
        if self.squeezed and self.order:
            steps[self.order[0]] = min(steps[self.order[0]], size)
        return steps

    def reach(self, shape: tuple[int, ...], size: int) -> int:
        """Return the bytes from the first element to the end of the last one."""
        steps = self.strides(shape, size)
        ends = (step * (n - 1) for n, step in zip(shape, steps, strict=True))
        return size + sum(ends) if 0 not in shape else 0


def make_room(size: int) -> np.ndarray:
    """Return memory that has so many bytes behind the beginning of a line."""
    return np.full(size + LINE + 1, NO_NUMBER, np.uint8)


@dataclass(frozen=True)
class Placed:
    """An array, and all of its memory: what lies around its elements, too."""

    array: np.ndarray
    memory: np.ndarray
    before: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, values: np.ndarray, where: Placement, room: np.ndarray | None = None) -> "Placed":
        """Return an array of these values, or of what is left of them where elements are shared.

        It lies in memory of its own, or in a room of bytes where others lie, too.
        """
        dtype = values.dtype.newbyteorder() if where.swapped else values.dtype
        steps = where.strides(values.shape, dtype.itemsize)
        ends = [step * (n - 1) for n, step in zip(values.shape, steps, strict=True)]
        if room is None:
            room = make_room(where.reach(values.shape, dtype.itemsize) + where.begin)
        first = -room.ctypes.data % LINE + where.begin
        for axis in where.backwards if values.size else ():
            first, steps[axis] = first + ends[axis], -steps[axis]
        array = np.ndarray(values.shape, dtype, room, first, steps)
        array[...] = values
        return cls(array, room, room.copy())

    def as_it_is(self) -> "Placed":
        """Return the array with what its memory has now as what it had before."""
        return Placed(self.array, self.memory, self.memory.copy())

    def is_unchanged(self) -> bool:
        """Return whether no byte of the memory has changed."""
        return np.array_equal(self.memory, self.before)

    def has_whole_gaps(self) -> bool:
        """Return whether no byte but those of the elements has changed."""
        now = self.memory.copy()
        self._elements(now)[...] = self._elements(self.before)
        return np.array_equal(now, self.before)

    def _elements(self, memory: np.ndarray) -> np.ndarray:
        first = self.array.ctypes.data - self.memory.ctypes.data
        return np.ndarray(self.array.shape, self.array.dtype, memory, first, self.array.strides)


@st.composite
def placements(draw, axes: int, *, written: bool = False) -> Placement:
    """Draw where an array of so many axes lies; one that is written mostly shares no elements."""
    each = st.sampled_from([0, 0, 0, 1, 3, 8, 16, 24, 64])
    some = st.frozensets(st.integers(0, axes - 1)) if axes else st.just(frozenset())
    rarely = st.integers(0, 20 if written else 4).map(lambda n: n == 1)
    return Placement(
        tuple(draw(st.permutations(range(axes)))),
        tuple(draw(each) for _ in range(axes)),
        draw(some) if draw(st.booleans()) else frozenset(),
        draw(st.sampled_from([0, 16, 32]) | st.integers(0, LINE - 1)),
        draw(st.integers(0, 7)) == 1,
        draw(some) if draw(rarely) else frozenset(),
        draw(rarely),
    )
