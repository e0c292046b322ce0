"""Programs as they are written, point by point: what machine code of them is held to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from point_values import PointValues

from tilesolve.contractions.errors import SizeError, SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import OPERATIONS, identity
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.kernels.programs.bounds import outer_bounds, summed_names
from tilesolve.kernels.programs.program import (
    Barrier,
    Buffer,
    Compute,
    Guard,
    Hold,
    Loop,
    Node,
    Program,
    Start,
)

Array = npt.NDArray[Any]
Point = Mapping[str, int]
Trace = Callable[[str, int, bool], None]
"""Takes the name of an array, the number of an element in C order, and whether it is written."""


@dataclass(frozen=True, slots=True)
class Interpreted:
    """What a program computed.

    Parameters
    ----------
    output
        The array that its last stage computes.
    computes
        How often each stage was computed, at whatever points.
    """

    output: Array
    computes: tuple[int, ...]


@dataclass(slots=True)
class _Memory:
    """An array or a buffer, and which positions it holds.

    Parameters
    ----------
    values
        Its elements.
    holds
        The number of the position that each element holds, in C order of the whole array; -1
        for none.
    origin, ring
        Of a buffer.
    """

    values: Array
    holds: npt.NDArray[np.int64]
    origin: tuple[int, ...] | None = None
    ring: int | None = None


def interpret(
    program: Program,
    arrays: Mapping[str, npt.ArrayLike],
    params: Mapping[str, float] | None = None,
    out: npt.ArrayLike | None = None,
    trace: Trace | None = None,
) -> Interpreted:
    """Run a program as it is written, and check it.

    Parameters
    ----------
    program
        What to run.
    arrays
        Each input by its name.
    params
        The value of each parameter.
    out
        What the output holds before; zeros unless given.
    trace
        Called for each element that is read or written, in order. Elements that are held count
        as they are loaded and stored.

    Raises
    ------
    SizeError
        If an element lies outside of its array or buffer.
    SpecError
        If an element is read before it is written, or a point is computed twice, outside of the
        region, or not at all. What is kept in buffers may be computed again.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> computation = bind_stages(parse_stages("out[x] = A[x] + A[x+1]"), 3)
    >>> zero, end = Affine.number(0), Affine.number(3)
    >>> program = Program(computation, (Loop("x", (zero,), (end,), (Compute(0),)),))
    >>> interpret(program, {"A": [1.0, 2.0, 3.0, 4.0]})
    Interpreted(output=array([3., 5., 7.]), computes=(3,))
    """
    run = _Run(program, arrays, params or {}, out, trace)
    with np.errstate(all="ignore"):
        run.body(program.body, {})
    run.check_points()
    name = program.computation.output.name
    return Interpreted(run.memories[name].values, tuple(run.computes))


class _Run:
    """One run of a program."""

    def __init__(
        self,
        program: Program,
        arrays: Mapping[str, npt.ArrayLike],
        params: Mapping[str, float],
        out: npt.ArrayLike | None,
        trace: Trace | None,
    ) -> None:
        self.program, self.computation = program, program.computation
        self.trace = trace or (lambda _name, _element, _written: None)
        self.params = {
            name: np.dtype(dtype).type(params[name]) for name, dtype in self.computation.params
        }
        self.memories: dict[str, _Memory] = {}
        self.computes = [0] * len(self.computation.stages)
        self.points = [Counter[tuple[int, ...]]() for _ in self.computation.stages]
        self.held: dict[tuple[int, ...], Any] | None = None
        self.buffered = {node.name for node in program.nodes if isinstance(node, Buffer)}
        for info in self.computation.arrays:
            given = arrays.get(info.name)
            numbers = np.arange(int(np.prod(info.shape))).reshape(info.shape)
            if info.name in self.computation.inputs:
                values = np.array(given, info.dtype)
                if values.shape != info.shape:
                    raise SizeError(f"{info.name} has shape {values.shape}, not {info.shape}")
                self.memories[info.name] = _Memory(values, numbers)
                continue
            values = np.zeros(info.shape, info.dtype)
            if out is not None and info == self.computation.output:
                values[...] = out
            self.memories[info.name] = _Memory(values, np.full(info.shape, -1))

    def body(self, body: Sequence[Node], point: dict[str, int]) -> None:
        """Run some parts in order."""
        for node in body:
            match node:
                case Loop(low=low, high=high):
                    last = min(one.at(point) for one in high)
                    for value in range(max(one.at(point) for one in low), last, node.step):
                        self.body(node.body, {**point, node.name: value})
                case Compute(stage=number):
                    self.compute(number, point)
                case Start(stage=number):
                    self.start(number, point)
                case Hold():
                    self.hold(node, point)
                case Guard(conditions=conditions):
                    if all(one.holds(point) for one in conditions):
                        self.body(node.body, point)
                case Buffer():
                    self.buffer(node, point)
                case Barrier():
                    pass

    def compute(self, number: int, point: Point) -> None:
        """Compute a stage at a point."""
        stage = self.computation.stages[number]
        self.computes[number] += 1
        letters = _letters(stage)
        self.points[number][tuple(point[letter] for letter in letters)] += 1
        inner = [one for one in stage.where if set(one.letters) <= set(letters)]
        if not all(one.holds(point) for one in inner):
            raise SpecError(f"{stage} is computed outside of its region, at {dict(point)}")
        values = PointValues(self.computation, stage, self.params, self.read)
        dtype = np.dtype(self.computation.dtypes[stage.name]).type
        where = tuple(values.place(one, point) for one in stage.axes)
        name = stage.update or (stage.reduction.name if stage.reduction else "")
        if not name:
            self.write(stage.name, where, values.value(stage.term, dtype.__name__, point))
            return
        term = stage.reduction.term if stage.reduction else stage.term
        found = values.value(term, np.dtype(dtype).name, point)
        function = OPERATIONS[name].function
        if self.held is not None:
            if where not in self.held:
                raise SpecError(f"{stage.name}{list(where)} is not held at {dict(point)}")
            self.held[where] = function(self.held[where], found).astype(dtype)
            return
        before = self.read(Read(stage.name, stage.axes), where)
        self.write(stage.name, where, function(before, found).astype(dtype))

    def start(self, number: int, point: Point) -> None:
        """Write what a reduction begins with."""
        stage = self.computation.stages[number]
        first = self.first(stage)
        if stage.update is None:
            values = PointValues(self.computation, stage, self.params, self.read)
            self.write(stage.name, tuple(values.place(one, point) for one in stage.axes), first)
            return
        for where in product(*map(range, self.computation.array(stage.name).shape)):
            self.write(stage.name, where, first)

    def first(self, stage: Stage) -> Any:
        """Return what a reduction begins with."""
        name = stage.update or (stage.reduction.name if stage.reduction else "")
        if not name:
            raise SpecError(f"{stage} is no reduction: nothing begins it")
        dtype = self.computation.dtypes[stage.name]
        return np.dtype(dtype).type(identity(name, dtype))

    def hold(self, hold: Hold, point: dict[str, int]) -> None:
        """Run a body while its elements are held."""
        stage = self.computation.stages[hold.stage]
        target = Read(stage.name, stage.axes)
        held: dict[tuple[int, ...], Any] = {}
        names = summed_names(stage, hold)
        for at in _held_points(hold.body, names, point):
            where = tuple(one.at(at) for one in stage.axes if isinstance(one, Affine))
            held[where] = self.first(stage) if hold.anew else self.read(target, where)
        self.held = held
        self.body(hold.body, point)
        self.held = None
        for where, value in held.items():
            self.write(stage.name, where, value)

    def buffer(self, buffer: Buffer, point: dict[str, int]) -> None:
        """Run a body with an array of its own."""
        before = self.memories[buffer.name]
        origin = tuple(one.at(point) for one in buffer.origin)
        values = np.zeros(buffer.shape, before.values.dtype)
        self.memories[buffer.name] = _Memory(values, np.full(buffer.shape, -1), origin, buffer.ring)
        self.body(buffer.body, point)
        self.memories[buffer.name] = before

    def locate(
        self, name: str, where: tuple[int, ...], what: object
    ) -> tuple[_Memory, tuple[int, ...], int]:
        """Return where an element lies, and the number of its position."""
        memory, shape = self.memories[name], self.computation.array(name).shape
        for axis, (place, extent) in enumerate(zip(where, shape, strict=True)):
            if not 0 <= place < extent:
                raise SizeError(f"{what} is at position {place} of axis {axis}, which has {extent}")
        number = int(np.ravel_multi_index(where, shape)) if shape else 0
        if memory.origin is None:
            return memory, where, number
        local = []
        for axis, (place, first) in enumerate(zip(where, memory.origin, strict=True)):
            extent = memory.values.shape[axis]
            at = place % extent if axis == memory.ring else place - first
            if not 0 <= at < extent:
                raise SizeError(
                    f"{what} is at position {place} of axis {axis}, but the buffer begins at "
                    f"{first} and has {extent}"
                )
            local.append(at)
        return memory, tuple(local), number

    def read(self, read: Read, where: tuple[int, ...]) -> Any:
        """Return an element."""
        memory, place, number = self.locate(read.array, where, read)
        if memory.holds[place] != number:
            raise SpecError(f"{read} is read at {where} before it is written")
        self.trace(read.array, _flat(place, memory.values.shape), False)
        return memory.values[place]

    def write(self, name: str, where: tuple[int, ...], value: Any) -> None:
        """Set an element."""
        memory, place, number = self.locate(name, where, name)
        memory.holds[place] = number
        memory.values[place] = value
        self.trace(name, _flat(place, memory.values.shape), True)

    def check_points(self) -> None:
        """Raise `SpecError` unless each point of the region was computed once."""
        for stage, points in zip(self.computation.stages, self.points, strict=True):
            if stage.name in self.buffered:
                continue
            letters = _letters(stage)
            conditions = [one for one in stage.where if set(one.letters) <= set(letters)]
            extents = [range(self.computation.sizes[letter]) for letter in letters]
            for values in product(*extents):
                point = dict(zip(letters, values, strict=True))
                wanted = int(all(one.holds(point) for one in conditions))
                if points[values] != wanted:
                    raise SpecError(
                        f"{stage} is computed {points[values]} times at {point}, not {wanted}"
                    )


def _letters(stage: Stage) -> tuple[str, ...]:
    """Return the letters of the points at which a stage is computed."""
    if stage.update is not None:
        return stage.letters
    over = stage.reduction.over if stage.reduction else ()
    return (*stage.output, *over)


def _held_points(
    body: Sequence[Node], names: frozenset[str], point: dict[str, int]
) -> Iterator[dict[str, int]]:
    """Yield the points of the output that a body of a hold touches."""
    for node in body:
        if isinstance(node, Compute):
            yield point
        elif isinstance(node, Loop) and node.name not in names:
            outer = replace(outer_bounds(node, names), body=node.body)
            last = min(one.at(point) for one in outer.high)
            for value in range(max(one.at(point) for one in outer.low), last, node.step):
                yield from _held_points(node.body, names, {**point, node.name: value})
        elif isinstance(node, Loop | Guard):
            yield from _held_points(node.body, names, point)
        else:
            raise SpecError(f"{type(node).__name__} stands in a Hold")


def _flat(place: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(place, shape)) if shape else 0
