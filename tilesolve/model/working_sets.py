"""Working sets: what is touched between two uses of the same element (Algorithm 1 of PolyDL).

For each tensor and each loop that comes back to elements of it, the iterations from the first use
to a later one are a union of boxes, counted exactly. That is no part of the price, which a walk
over the loops finds much faster: it explains a nest, and the walk is tested against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Tensor
from tilesolve.machine.model import Machine
from tilesolve.model.copies import panel_tensor, repeats_elements
from tilesolve.model.iterations import Ranges, boxes_between, last_trips, loops_of, whole
from tilesolve.model.nest import CopyKind, Nest
from tilesolve.model.polyhedra import share_of_windows
from tilesolve.model.price import list_levels
from tilesolve.model.touched import count_elements, count_lines, windows_of

Trips = tuple[int, ...]
"""An iteration: the trip of each loop, outermost first."""

THREADS = "threads"
"""Stands for the tile of a loop whose trips are different threads'."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """That a loop comes back to elements of a tensor.

    Parameters
    ----------
    tensor
        Its number: 0 is the output.
    loop
        The loop's letter.
    over
        The level whose tiles the loop goes over; empty for single iterations, ``"threads"`` where
        each trip is another thread's.
    count
        How often the loop goes on to a next trip, in the whole nest.
    least, most
        Bytes touched from the first use of the first such element to its next one, and to the last
        one that the loop brings; they must stay for one reuse, and for all.
    level
        The nearest level that holds the least.

    Examples
    --------
    >>> found = Reuse(1, "n", "L1", count=31, least=2048, most=65536, level="L1")
    >>> found.count * found.least
    63488
    """

    tensor: int
    loop: str
    over: str
    count: int
    least: int
    most: int
    level: str


def find_reuses(
    problem: Problem, nest: Nest, machine: Machine, threads: int = 1, *, lines: bool = False
) -> tuple[Reuse, ...]:
    """Return the reuses of a nest, innermost loop first.

    Parameters
    ----------
    problem, nest
        What one thread computes.
    machine
        Whose levels hold the working sets.
    threads
        Those that work at once and share its levels.
    lines
        Whether arrays count in whole lines of the nearest cache, not in elements. Copies are
        contiguous in any case.

    Raises
    ------
    ModelError
        If windows share elements and islpy is missing.
    PlanError
        If windows share elements of register tiles of chosen sizes.

    Examples
    --------
    The example of the paper: A is used again at `j`, after 2K + 3 elements.

    >>> problem = Problem.of("ij-ik-kj", "i=4 j=5 k=6")
    >>> nest = Nest.of(problem, [("register", "kji", 1), ("memory", "kji", problem.sizes)])
    >>> again = find_reuses(problem, nest, Machine.load("i7-6700k"))[1]
    >>> problem.spec.names[again.tensor], again.loop, again.least // 8, again.most // 8
    ('A', 'j', 15, 36)
    """
    if 0 in problem.sizes.values():
        return ()
    places = list_levels(machine, threads)[1:]
    sets = _Sets(problem, nest, machine.levels[0].line if lines else None)
    found = []
    for at in reversed(range(len(sets.loops))):
        loop = sets.loops[at]
        for tensor in range(len(problem.spec.tensors)):
            ends = sets.ends(tensor, at)
            if ends is None:
                continue
            source, *targets = ends
            least, most = (sets.between(source, target) for target in targets)
            count = sets.count(at)
            level = next((p.name for p in places if least <= p.capacity), machine.memory.name)
            found.append(Reuse(tensor, loop.letter, loop.over, count, least, most, level))
    return tuple(found)


def find_shared(problem: Problem, split: str, threads: int, machine: Machine) -> tuple[Reuse, ...]:
    """Return what several threads use that divide the range of a letter.

    In which order they come to it is open, so all that they touch must stay: in a cache that all
    of them share, or in memory. Where the letter is a sum, each has an output of its own.

    Examples
    --------
    >>> problem, machine = Problem.of("ij-ik-kj", 64), Machine.load("i7-6700k")
    >>> [(one.tensor, one.least, one.level) for one in find_shared(problem, "i", 4, machine)]
    [(2, 98304, 'L3')]
    """
    extent = problem.sizes[split]
    trips = -(-extent // -(-extent // threads)) if extent else 0
    if trips < 2 or 0 in problem.sizes.values():
        return ()
    everything = [whole(problem)]
    running = frozenset(i for i, n in problem.sizes.items() if n > 1)
    output, *operands = (count_elements(one, everything) for one in problem.spec.tensors)
    summed = split not in problem.spec.output.letters
    size = problem.itemsize * (output * (trips if summed else 1) + sum(operands))
    shared = (
        level.name
        for level in machine.levels
        if level.shared_by >= threads and (level.usable is None or size <= level.usable)
    )
    level = next(shared, machine.memory.name)
    return tuple(
        Reuse(number, split, THREADS, trips - 1, size, size, level)
        for number, tensor in enumerate(problem.spec.tensors)
        if (number or not summed)
        and (split not in tensor.letters or split in windows_of(tensor, running).letters)
    )


@dataclass(frozen=True, slots=True)
class _Copy:
    """What calls read in a tensor's place.

    Parameters
    ----------
    tensor
        Its axes.
    outside
        Loops outside the tile that it holds.
    size
        Bytes that it has at most.
    itemsize
        Bytes of its elements.
    """

    tensor: Tensor
    outside: int
    size: int
    itemsize: int


class _Sets:
    """The loops of a nest, and what is touched between iterations of theirs."""

    def __init__(self, problem: Problem, nest: Nest, line: int | None) -> None:
        self.problem, self.line = problem, line
        self.loops = loops_of(problem, nest)
        self.running = frozenset(loop.letter for loop in self.loops)
        kinds = ("in place", *(nest.kind(at) for at in range(len(problem.spec.operands))))
        self.copies = [self._copy(nest, at, kind) for at, kind in enumerate(kinds)]
        self._known: dict[tuple[Trips, Trips], int] = {}

    def count(self, at: int) -> int:
        """Return how often a loop goes on to a next trip."""
        found = self.loops[at].tiles - self.loops[at].begins
        tiles = {loop.letter: loop.tiles for loop in self.loops[:at]}
        for letter, count in tiles.items():
            if letter != self.loops[at].letter:
                found *= count
        return found

    def ends(self, number: int, at: int) -> tuple[Trips, Trips, Trips] | None:
        """Return between which iterations a loop brings an element again; None if it does not.

        The first that uses such an element, and the first and the last that use it again.
        """
        copy, loop = self.copies[number], self.loops[at]
        tensor = self.problem.spec.tensors[number]
        outside = len(self.loops)
        if copy is not None and at < copy.outside:
            outside = copy.outside
        elif copy is not None:
            tensor = copy.tensor
        if loop.letter not in tensor.letters:
            first = (0,) * len(self.loops)
            least = tuple(int(number == at) for number in range(len(self.loops)))
            last = [
                None if n == at or (n > at and one.letter not in tensor.letters) else 0
                for n, one in enumerate(self.loops)
            ]
            return first, least, last_trips(self.problem, self.loops, last)
        return self._windows(tensor, at, outside)

    def _windows(self, tensor: Tensor, at: int, outside: int) -> tuple[Trips, Trips, Trips] | None:
        """Return the iterations between which a loop brings what windows of a tensor share.

        Loops inside the tile of a copy are in their first trip: there it is made.
        """
        windows = windows_of(tensor, self.running)
        numbers = [n for n, one in enumerate(self.loops) if one.letter in windows.letters]
        if at not in numbers:
            return None
        loops = [self.loops[n] for n in numbers]
        found = share_of_windows(windows.subscripts, loops, numbers.index(at))
        if found is None:
            return None
        source, least, most = (
            {n: trip for n, trip in zip(numbers, trips, strict=True) if n < outside}
            for trips in found
        )
        last = [
            None if n > at and one.letter not in tensor.letters else most.get(n, 0)
            for n, one in enumerate(self.loops)
        ]
        every = range(len(self.loops))
        return (
            tuple(source.get(n, 0) for n in every),
            tuple(least.get(n, 0) for n in every),
            last_trips(self.problem, self.loops, last),
        )

    def between(self, source: Trips, target: Trips) -> int:
        """Return the bytes touched from one iteration to another, both included."""
        key = source, target
        if key not in self._known:
            self._known[key] = sum(
                self._touched(number, source, target)
                for number in range(len(self.problem.spec.tensors))
            )
        return self._known[key]

    def _touched(self, number: int, source: Trips, target: Trips) -> int:
        copy, tensor = self.copies[number], self.problem.spec.tensors[number]
        everything = whole(self.problem)
        outside = 0 if copy is None else copy.outside
        if copy is None or source[:outside] == target[:outside]:
            boxes = boxes_between(everything, self.loops, source, target)
            if copy is None:
                return self._array(number, boxes)
            return copy.itemsize * count_elements(copy.tensor, boxes)
        changed = next(n for n, trip in enumerate(source) if trip != target[n])
        loops = self.loops[:outside]
        if not any(loop.letter in tensor.letters for loop in loops[changed:]):
            return copy.size  # no other tile is copied
        boxes = boxes_between(everything, loops, source[:outside], target[:outside])
        return copy.size + self._array(number, boxes)

    def _array(self, number: int, boxes: Sequence[Ranges]) -> int:
        """Return the bytes of a tensor's array that boxes touch."""
        if self.line is None:
            return self.problem.itemsize * count_elements(self.problem.spec.tensors[number], boxes)
        strides = self.problem.strides(number)
        return self.line * count_lines(strides, self.problem.itemsize, self.line, boxes)

    def _copy(self, nest: Nest, number: int, kind: CopyKind) -> _Copy | None:
        """Return what is read in a tensor's place; None if that is the array."""
        if kind == "in place":
            return None
        spec = self.problem.spec
        panels = kind != "windows" and repeats_elements(spec, number)
        tensor = panel_tensor(spec, number) if panels else spec.tensors[number]
        level = nest.packed[number - 1] if nest.packed else None
        if level is None:  # made before all calls
            return _Copy(tensor, 0, 0, self.problem.sum_itemsize)
        band = [one.level for one in nest.bands].index(level)
        outside = sum(loop.band > band for loop in self.loops)
        box = dict(nest.bands[band].box)
        if kind == "windows":
            width, elements = self.problem.itemsize, prod(tensor.shape(box))
        else:
            width = self.problem.sum_itemsize
            elements = count_elements(tensor, [{i: (0, side) for i, side in box.items()}])
        return _Copy(tensor, outside, width * elements, width)
