"""Kernels of stages: a block of threads computes a tile of the last one, and what it is made of.

What the others compute for a tile lies in shared memory. Threads share the points of each stage,
and wait for one another where they read what others wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil, prod

import numpy as np
from llvmlite import ir

from tilesolve.constants.gpu import CHANNELS, UNROLLED_STEPS
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import ArrayInfo
from tilesolve.contractions.statements.operations import identity
from tilesolve.contractions.statements.terms import Choose, Param, Position, Read, Reduce, Term
from tilesolve.kernels.gpu.targets import GLOBAL, I8, I32, I64, Target
from tilesolve.kernels.ir.arithmetic import EMITTERS, memory_type, number_type
from tilesolve.kernels.ir.division import divide_down
from tilesolve.kernels.ir.term_values import TermValues
from tilesolve.kernels.ir.vectors import INT64, constant, emit_loop, extreme

Places = Mapping[str, ir.Value]
"""The values of letters, as 32-bit numbers."""


@dataclass(frozen=True, slots=True)
class Side:
    """What tiles need of a stage along an axis: of a letter of its own, `room` values at most.

    They go from `low` of the values with which a tile begins to `high` of those with which it ends.
    """

    letter: str
    extent: int
    low: Affine
    high: Affine
    room: int


@dataclass(frozen=True, slots=True)
class Step:
    """A stage of a kernel: its array, and the term of each element."""

    name: str
    sides: tuple[Side, ...]
    term: Term
    dtype: str

    @property
    def points(self) -> int:
        """How many elements a tile has room for."""
        return prod(side.room for side in self.sides)

    @property
    def bytes(self) -> int:
        """Bytes of all of them, to a multiple of 16."""
        return ceil(self.points * np.dtype(self.dtype).itemsize / 16) * 16


@dataclass(frozen=True)
class StageKernel:
    """A kernel of stages: what the last one computes is an array, all else stays within blocks.

    Tiles are of its letters, extents of these and of those that are summed. Arrays are what the
    kernel is given, the one that it writes last; parameters have one element.
    """

    name: str
    steps: tuple[Step, ...]
    tiles: tuple[tuple[str, int], ...]
    extents: tuple[tuple[str, int], ...]
    arrays: tuple[ArrayInfo, ...]
    threads: int

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The extents by letters."""
        return dict(self.extents)

    @property
    def blocks(self) -> int:
        """How many tiles there are."""
        return prod(ceil(self.sizes[letter] / tile) for letter, tile in self.tiles)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return sum(step.bytes for step in self.steps[:-1])

    @property
    def waits(self) -> tuple[bool, ...]:
        """Before which steps threads wait: those that read what was written since they did."""
        fresh, found = set[str](), list[bool]()
        for step in self.steps:
            found.append(any(read.array in fresh for read in step.term.reads))
            fresh = {step.name} if found[-1] else {*fresh, step.name}
        return tuple(found)


@dataclass(frozen=True)
class StageKernels:
    """The kernels of a pipeline, in the order in which they run."""

    kernels: tuple[StageKernel, ...]


def write_stages(target: Target, form: StageKernels) -> ir.Module:
    """Write all kernels of a pipeline; return their module.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.targets import Nvptx
    >>> x = Affine.letter("x")
    >>> double = Step("o", (Side("x", 99, x, x, 32),), 2 * Read("A", (x,)), "float32")
    >>> arrays = ArrayInfo("A", (99,), "float32"), ArrayInfo("o", (99,), "float32")
    >>> form = StageKernel("double", (double,), (("x", 32),), (("x", 99),), arrays, 32)
    >>> "double" in str(write_stages(Nvptx(80), StageKernels((form,))))
    True
    """
    most = max(one.shared_bytes for one in form.kernels)
    pool: ir.Value | None = None
    for one in form.kernels:
        function = target.kernel(one.name, [GLOBAL] * len(one.arrays), one.threads)
        for argument, array in zip(function.args, one.arrays, strict=True):
            argument.name = array.name
            argument.add_attribute("noalias")
        builder = ir.IRBuilder(function.append_basic_block("begin"))
        if most and pool is None:
            pool = target.pool(builder, most)
        _Kernel(target, builder, one, pool).write()
    return target.module


class _Kernel:
    """Writes a kernel.

    `begins` and `ends` have the first and the last values of the block's tile, `firsts` those of
    stages that are in shared memory.
    """

    def __init__(
        self, target: Target, b: ir.IRBuilder, form: StageKernel, pool: ir.Value | None
    ) -> None:
        self.target, self.b, self.form, self.pool = target, b, form, pool
        self.given = {
            array.name: (argument, array)
            for argument, array in zip(b.function.args, form.arrays, strict=True)
        }
        self.dtypes = {array.name: array.dtype for array in form.arrays}
        self.dtypes |= {step.name: step.dtype for step in form.steps}
        self.rooms: dict[str, tuple[ir.Value, Step]] = {}
        self.firsts: dict[str, list[ir.Value]] = {}
        self.begins, self.ends = self._tile()
        offset = 0
        for step in form.steps[:-1]:
            self.rooms[step.name] = b.gep(pool, [I32(offset)], source_etype=I8), step
            offset += step.bytes

    def _tile(self) -> tuple[dict[str, ir.Value], dict[str, ir.Value]]:
        """Return the first and the last values of the letters of the block's tile."""
        b, rest = self.b, self.target.block(self.b, 0)
        begins, ends = dict[str, ir.Value](), dict[str, ir.Value]()
        for letter, tile in reversed(self.form.tiles):
            extent = self.form.sizes[letter]
            count = ceil(extent / tile)
            begins[letter], ends[letter] = I32(0), I32(extent - 1)
            if count > 1:
                begin = b.mul(b.urem(rest, I32(count)), I32(tile))
                rest = b.udiv(rest, I32(count))
                begins[letter] = begin
                ends[letter] = extreme(b, "<", b.add(begin, I32(tile - 1)), I32(extent - 1))
        return begins, ends

    def write(self) -> None:
        """Write all steps."""
        thread = self.target.thread(self.b)
        for step, waits in zip(self.form.steps, self.form.waits, strict=True):
            if waits:
                self.target.barrier(self.b)
            self._step(step, thread)
        self.b.ret_void()

    def _step(self, step: Step, thread: ir.Value) -> None:
        """Write the points of a stage, which the threads of a block share."""
        b, threads = self.b, self.form.threads
        lasts = []
        self.firsts[step.name] = firsts = []
        for side in step.sides:
            firsts.append(extreme(b, ">", self.position(side.low, self.begins), I32(0)))
            high = self.position(side.high, self.ends)
            lasts.append(extreme(b, "<", high, I32(side.extent - 1)))
        walked = {side.letter: ends for side in step.sides if (ends := self._walked(side))}
        others = [at for at, side in enumerate(step.sides) if side.letter not in walked]
        trips = ceil(prod(step.sides[at].room for at in others) / threads)

        def trip(index: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            number = b.add(b.mul(b.trunc(index, I32), I32(threads)), thread)
            places, rest, inside = dict[str, ir.Value](), number, None
            for at in reversed(others):
                side, outermost = step.sides[at], at == others[0]
                place = rest if outermost else b.urem(rest, I32(side.room))
                rest = rest if outermost else b.udiv(rest, I32(side.room))
                places[side.letter] = place = b.add(firsts[at], place)
                own = b.icmp_signed("<=", place, lasts[at])
                inside = own if inside is None else b.and_(inside, own)
            with b.if_then(b.icmp_unsigned("<", number, I32(1)) if inside is None else inside):
                found = []
                for chosen in product(*walked.values()):
                    more = zip(walked, map(I32, chosen), strict=True)
                    point = _Point(self, step, {**places, **dict(more)})
                    found.append((point, point.whole(step.term, step.dtype)))
                for point, value in found:
                    point.store(value)
            return []

        if trips > 1:
            emit_loop(b, INT64(trips), [], trip)
        else:
            trip(INT64(0), [])

    def _walked(self, side: Side) -> range | None:
        """Return the values of a side that each thread walks, if they are few, and known."""
        sizes = self.form.sizes
        tiled = {letter for letter, tile in self.form.tiles if tile < sizes[letter]}
        if tiled.intersection(side.low.letters, side.high.letters) or side.room > CHANNELS:
            return None
        box = {letter: (0, sizes[letter] - 1) for letter, _ in self.form.tiles}
        last = min(side.high.interval(box)[1], side.extent - 1)
        return range(max(side.low.interval(box)[0], 0), last + 1)

    def position(self, position: Affine, places: Places) -> ir.Value:
        """Return a position, of the values of its letters."""
        b, total = self.b, I32(position.offset)
        for factor, letter in position.terms:
            place = places[letter]
            total = b.add(total, place if factor == 1 else b.mul(place, I32(factor)))
        return divide_down(b, total, position.divisor)[0] if position.divisor > 1 else total


class _Point(TermValues):
    """The values of a stage's term at one point: the same as on CPUs."""

    def __init__(self, kernel: _Kernel, step: Step, places: Places) -> None:
        super().__init__(kernel.b, kernel.dtypes, None)
        self.kernel, self.step, self.places = kernel, step, places

    def whole(self, term: Term, dtype: str) -> ir.Value:
        """Return the value of a stage's term, in its dtype: a reduction runs in that."""
        return self._reduce(term, dtype) if isinstance(term, Reduce) else self.value(term, dtype)

    def leaf(self, term: Term) -> ir.Value:
        """Emit a parameter, a position, an element or a reduction."""
        match term:
            case Param(name=name):
                return self._load(name, ())
            case Position(position=position):
                return self.builder.sext(self.kernel.position(position, self.places), I64)
            case Read(array=name, subscripts=subscripts):
                return self._load(name, subscripts)
            case Reduce():
                return self._reduce(term, self.kind(term))
        raise SpecError(f"{term} is no term that GPUs compute")

    def store(self, value: ir.Value) -> None:
        """Store the stage's element."""
        if self.step.dtype == "bool":
            value = self.builder.zext(value, memory_type("bool"))
        own = [Affine.letter(side.letter) for side in self.step.sides]
        self.builder.store(value, *self._element(self.step.name, own))

    def _load(self, name: str, subscripts: Sequence[Affine | Term]) -> ir.Value:
        dtype = self.dtypes[name]
        where, align = self._element(name, subscripts)
        found = self.builder.load(where, align=align, typ=memory_type(dtype))
        return self.builder.icmp_unsigned("!=", found, I8(0)) if dtype == "bool" else found

    def _element(self, name: str, subscripts: Sequence[Affine | Term]) -> tuple[ir.Value, int]:
        """Return where an element is, and the bytes that its address is a multiple of.

        Positions that a choice leaves out, or that are computed, are held within the array.
        """
        b, kernel = self.builder, self.kernel
        size = np.dtype(self.dtypes[name]).itemsize
        base, total = kernel.given.get(name, (None, None))[0], None
        if name in kernel.rooms:
            base, step = kernel.rooms[name]
            sides = [side.room for side in step.sides]
        else:
            sides = list(kernel.given[name][1].shape)
        chooses = any(isinstance(one, Choose) for one in self.step.term.all)
        for axis, (subscript, extent) in enumerate(zip(subscripts, sides, strict=False)):
            if isinstance(subscript, Affine):
                place, sure = kernel.position(subscript, self.places), True
            else:
                place, sure = b.trunc(self.value(subscript, "int64"), I32), False
            if name in kernel.rooms:
                place, sure = b.sub(place, kernel.firsts[name][axis]), not chooses
            if not sure:
                place = b.select(b.icmp_unsigned("<", place, I32(extent)), place, I32(0))
            total = place if total is None else b.add(b.mul(total, I32(extent)), place)
        where = [b.zext(I32(0) if total is None else total, I64)]
        return b.gep(base, where, source_etype=memory_type(self.dtypes[name])), size

    def _reduce(self, term: Reduce, dtype: str) -> ir.Value:
        """Emit a reduction, step by step; loops of few steps are written out."""
        b, sizes = self.builder, self.kernel.form.sizes

        def loops(letters: Sequence[str], places: Places, so_far: ir.Value) -> ir.Value:
            if not letters:
                value = _Point(self.kernel, self.step, places).value(term.term, dtype)
                return EMITTERS[term.name](b, dtype, [so_far, value])
            letter, rest = letters[0], letters[1:]
            if sizes[letter] <= UNROLLED_STEPS:
                for at in range(sizes[letter]):
                    so_far = loops(rest, {**places, letter: I32(at)}, so_far)
                return so_far

            def trip(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                return [loops(rest, {**places, letter: b.trunc(index, I32)}, carried[0])]

            return emit_loop(b, INT64(sizes[letter]), [so_far], trip)[0]

        first = constant(number_type(dtype), identity(term.name, dtype))
        return loops(term.over, self.places, first)
