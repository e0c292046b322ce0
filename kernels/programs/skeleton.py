"""Skeletons: what machine code of a program depends on. Sizes are arguments of the code.

Programs of one statement at other extents and tiles have the same skeleton, as long as their loops
are the same. Code has small numbers in it, and those that tell how often a loop is written out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilesolve.constants import tuning
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.kernels.programs.bounds import (
    Ranges,
    count_trips,
    outer_bounds,
    range_of,
    summed_names,
    without_needless_bounds,
)
from tilesolve.kernels.programs.known_positions import (
    list_far,
    list_needless,
    list_picked,
    list_spread,
)
from tilesolve.kernels.programs.program import Buffer, Guard, Hold, Loop, Node, Program
from tilesolve.kernels.programs.range_checks import RangeCheck, range_checks


@dataclass(frozen=True, slots=True)
class SizedLoop(Loop):
    """A loop over tiles whose step is an argument of the code; `step` is the least that it is.

    Parameters
    ----------
    size
        The name of the argument.
    """

    size: str = ""

    @property
    def pace(self) -> Affine:
        """The step, as a position."""
        return Affine.letter(self.size)


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """An array of a skeleton: its name, dtype and number of axes."""

    name: str
    dtype: str
    axes: int


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A program whose sizes have names in place of values.

    Parameters
    ----------
    stages, params
        Of the computation.
    arrays
        Of the computation.
    extents
        Of each letter: a number or the name of a size.
    shapes
        Of the arrays that are filled, or read at positions that are computed.
    body, non_temporal
        Of the program.
    sizes
        The name of each size, and the greatest that it may be.
    needless
        Checks of positions that never fail.
    far
        Arrays that are too large for loads at computed positions to find them in a near cache.
    spread
        Stages whose updates go to several tables, and the elements of one at most.
    picked
        Reads of tables of bytes that fit registers, and their elements.
    """

    stages: tuple[Stage, ...]
    params: tuple[tuple[str, str], ...]
    arrays: tuple[ArrayForm, ...]
    extents: tuple[tuple[str, Affine], ...]
    shapes: tuple[tuple[str, tuple[Affine, ...]], ...]
    body: tuple[Node, ...]
    non_temporal: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]
    needless: tuple[RangeCheck, ...] = ()
    far: tuple[str, ...] = ()
    spread: tuple[tuple[int, int], ...] = ()
    picked: tuple[tuple[Read, int], ...] = ()

    @property
    def dtypes(self) -> Mapping[str, str]:
        """The dtype of each array and parameter."""
        return {array.name: array.dtype for array in self.arrays} | dict(self.params)

    @property
    def ranges(self) -> Ranges:
        """The least and the greatest value of each size."""
        return {name: (tuning.MAX_SIZE_IN_CODE + 1, most) for name, most in self.sizes}

    def extent(self, letter: str) -> Affine:
        """Return the extent of a letter."""
        return dict(self.extents)[letter]

    def shape(self, array: str) -> tuple[Affine, ...]:
        """Return the shape of an array."""
        return dict(self.shapes)[array]


def find_skeleton(program: Program) -> tuple[Skeleton, tuple[int, ...]]:
    """Return the skeleton of a program, and the values of its sizes.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.kernels.programs.program import Compute
    >>> def copy(extent):
    ...     found = bind_stages(parse_stages("out[x] = A[x]"), extent)
    ...     zero, end = Affine.number(0), Affine.number(extent)
    ...     return Program(found, (Loop("x", (zero,), (end,), (Compute(0),), kind="vector"),))
    >>> [find_skeleton(copy(extent))[1] for extent in (8, 100, 101)]
    [(), (100,), (101,)]
    >>> find_skeleton(copy(100))[0] == find_skeleton(copy(101))[0]
    True
    """
    try:
        if _has_blocks(program.body):
            return _Sizes(program, sys.maxsize).find()
        return _Sizes(program, tuning.MAX_SIZE_IN_CODE).find()
    except _WrittenOutError:
        return _Sizes(program, sys.maxsize).find()


def _has_blocks(body: Sequence[Node]) -> bool:
    """Return whether rows are written out around a vector loop: such code is faster for one size.

    Its rows are read and written at many strides, which are numbers in its addresses then.
    """
    loops = [node for node in body if isinstance(node, Loop)]
    return any(
        (loop.kind == "unrolled" and any(isinstance(one, Loop) for one in loop.body))
        or _has_blocks(loop.body)
        for loop in loops
    )


class _WrittenOutError(Exception):
    """How often a loop is written out depends on a size, or code of any size would be too long."""


@dataclass(frozen=True, slots=True)
class _Around:
    """What surrounds a node.

    Parameters
    ----------
    names
        What loops are called in the skeleton: those over tiles by numbers.
    paces
        By these names: the steps of loops, and what the skeleton has for them.
    exact, ranges
        The first and the last value of each name in the program, and in the skeleton.
    summed
        Within a `Hold`, the loops that run while elements are held.
    copies
        How often what is here is written out, but for vectors.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    paces: Mapping[str, tuple[int, Affine]] = field(default_factory=dict)
    exact: Ranges = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    summed: frozenset[str] | None = None
    copies: int = 1

    def rename(self, position: Affine) -> Affine:
        """Return a position with the skeleton's names."""
        terms = [(factor, self.names.get(name, name)) for factor, name in position.terms]
        return Affine.of(terms, position.offset, position.divisor)

    def writes_out(self, loop: Loop) -> bool:
        """Return whether a loop is written out."""
        held = self.summed is not None and loop.name not in self.summed
        return held or loop.kind == "unrolled"

    def bounded(self, loop: Loop, renamed: Loop, ranges: Ranges) -> Loop:
        """Return a loop that is renamed with those bounds alone that tell how often it runs."""
        if self.summed is not None and loop.name not in self.summed:
            inner = frozenset(self.names.get(one, one) for one in self.summed)
            renamed = outer_bounds(renamed, inner)
        return without_needless_bounds(renamed, ranges)


@dataclass(slots=True)
class _Sizes:
    """Gives the sizes of a program names.

    Parameters
    ----------
    program
        Which.
    limit
        Numbers up to this one stay in the code.
    known
        The name of each size so far, by what it is of and its value.
    loops
        How many loops have new names.
    roots
        The letter of each loop over tiles.
    fixed
        Loops over tiles whose loops within are written out.
    """

    program: Program
    limit: int
    known: dict[tuple[str, int], str] = field(default_factory=dict)
    loops: int = 0
    roots: Mapping[str, str] = field(init=False)
    fixed: frozenset[str] = field(init=False)

    def find(self) -> tuple[Skeleton, tuple[int, ...]]:
        """Return the skeleton and the sizes."""
        computation = self.program.computation
        self.roots = _find_letters(self.program)
        self.fixed = frozenset(_list_fixed(self.program.body, computation.stages, _Around()))
        extents = tuple((x, self._size(x, extent)) for x, extent in computation.extents)
        shapes = tuple(
            (name, tuple(self._size(f"{name}{axis}", one) for axis, one in enumerate(shape)))
            for name, shape in _list_shapes(computation)
        )
        body = self._body(self.program.body, _Around())
        arrays = (ArrayForm(one.name, one.dtype, len(one.shape)) for one in computation.arrays)
        found = Skeleton(
            computation.stages,
            computation.params,
            tuple(arrays),
            extents,
            shapes,
            body,
            tuple(sorted(self.program.non_temporal)),
            self._sizes,
            tuple(list_needless(computation)),
            tuple(list_far(computation)),
            tuple(list_spread(computation)),
            tuple(list_picked(computation)),
        )
        return found, tuple(value for _, value in self.known)

    @property
    def _sizes(self) -> tuple[tuple[str, int], ...]:
        """The name of each size so far, and the greatest of its kind: of short loops, or of any."""
        short = tuning.UNINTERRUPTED_VECTORS
        return tuple(
            (name, short if value <= short else sys.maxsize)
            for (_, value), name in self.known.items()
        )

    def _size(self, what: str, value: int) -> Affine:
        """Return a size: a number if it is small, else a name."""
        if value <= self.limit:
            return Affine.number(value)
        return Affine.letter(self.known.setdefault((what, value), f"#{len(self.known)}"))

    def _body(self, body: Sequence[Node], around: _Around) -> tuple[Node, ...]:
        return tuple(self._node(node, around) for node in body)

    def _node(self, node: Node, around: _Around) -> Node:
        match node:
            case Loop():
                return self._loop(node, around)
            case Hold():
                stage = self.program.computation.stages[node.stage]
                inner = replace(around, summed=summed_names(stage, node))
                return replace(node, body=self._body(node.body, inner))
            case Guard():
                found = (Condition(around.rename(one.position)) for one in node.conditions)
                return replace(node, conditions=tuple(found), body=self._body(node.body, around))
            case Buffer():
                origin = tuple(map(around.rename, node.origin))
                return replace(node, origin=origin, body=self._body(node.body, around))
        return node

    def _loop(self, loop: Loop, around: _Around) -> Loop:
        """Return a loop of the skeleton."""
        root, name = self.roots.get(loop.name, ""), loop.name
        if root != name:
            name, self.loops = f"@{self.loops}", self.loops + 1
        low, high = (tuple(map(around.rename, side)) for side in (loop.low, loop.high))
        plain = replace(loop, name=name, low=low, high=high)
        exact = around.bounded(loop, plain, around.exact)
        found, copies = self._with_sizes(plain, root, around), around.copies
        if around.writes_out(loop):
            most = count_trips(exact, around.exact).most
            found = self._with_trips(loop, (found, plain), most, around)
            copies *= 1 if loop.kind == "vector" else most
            if copies > tuning.MAX_TRIPS_WRITTEN_OUT and self.limit < sys.maxsize:
                raise _WrittenOutError
        elif loop.step > self.limit and loop.name not in self.fixed:
            size = self._size(f"{root} step", loop.step).letters[0]
            least = self.limit + 1
            found = SizedLoop(name, found.low, found.high, loop.body, least, loop.kind, size)
        ranges = self._ranges(around)
        reached = range_of(around.bounded(loop, found, ranges), ranges)
        inner = replace(
            around,
            names={**around.names, loop.name: name},
            paces={**around.paces, name: (loop.step, found.pace)},
            exact={**around.exact, name: range_of(exact, around.exact)},
            ranges={**around.ranges, name: reached},
            copies=copies,
        )
        return replace(found, body=self._body(loop.body, inner))

    def _with_trips(self, loop: Loop, forms: Sequence[Loop], most: int, around: _Around) -> Loop:
        """Return the first form of a loop that is written out by which it has so many trips."""
        ranges = self._ranges(around)
        for form in forms:
            if count_trips(around.bounded(loop, form, ranges), ranges).most == most:
                return form
        raise _WrittenOutError

    def _ranges(self, around: _Around) -> Ranges:
        """Return the first and the last value of each name and size, as code knows them."""
        return {**around.ranges, **{name: (self.limit + 1, most) for name, most in self._sizes}}

    def _with_sizes(self, loop: Loop, root: str, around: _Around) -> Loop:
        """Return a loop whose bounds have sizes in place of large numbers."""
        low, high = (
            tuple(self._bound(one, root, around) for one in side) for side in (loop.low, loop.high)
        )
        return replace(loop, low=low, high=high)

    def _bound(self, bound: Affine, root: str, around: _Around) -> Affine:
        """Return a bound with a size in place of a large number: the step if a tile ends there."""
        number = bound.offset
        if abs(number) <= self.limit:
            return bound
        steps = (around.paces[x] for x in bound.letters if bound.factor(x) == bound.divisor == 1)
        size = next((pace for step, pace in steps if step == number), None)
        size = size or self._size(root, abs(number))
        sign = 1 if number > 0 else -1
        added = [(sign * factor, name) for factor, name in size.terms]
        return Affine.of((*bound.terms, *added), sign * size.offset, bound.divisor)


def _find_letters(program: Program) -> Mapping[str, str]:
    """Return the letter of each loop: its own, or that of the loop that begins with its tiles."""
    letters = program.computation.sizes
    found = {letter: letter for letter in letters}
    loops = [node for node in program.nodes if isinstance(node, Loop)]
    for loop in reversed(loops):  # those within others first
        for one in loop.low:
            if one.plain is not None and loop.name in found:
                found.setdefault(one.plain, found[loop.name])
    return found


def _list_fixed(body: Sequence[Node], stages: Sequence[Stage], around: _Around) -> Iterator[str]:
    """Yield the loops over tiles within which a loop over a tile is written out."""
    for node in body:
        inner = around
        if isinstance(node, Hold):
            inner = replace(around, summed=summed_names(stages[node.stage], node))
        elif isinstance(node, Loop) and (
            around.writes_out(node) or (around.summed is not None and node.kind == "vector")
        ):
            yield from (one.plain for one in node.low if one.plain is not None)
        if isinstance(node, Loop | Hold | Guard | Buffer):
            yield from _list_fixed(node.body, stages, inner)


def _list_shapes(computation: Computation) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the arrays whose shapes code has: with positions that are computed."""
    names = {check.read.array for check in range_checks(computation.stages)}
    names |= {stage.name for stage in computation.stages if stage.update is not None}
    yield from ((one.name, one.shape) for one in computation.arrays if one.name in names)
