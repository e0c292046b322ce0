"""Kernels that multiply: tiles through shared memory, fragments through registers."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from tilesolve.kernels.gpu.forms import BARRIER_BYTES, WARP, Ending, Form
from tilesolve.kernels.gpu.groups import Group, place_in_tile
from tilesolve.kernels.gpu.targets import CHUNKS, I8, I32, I64, Copy, Fetch, Target, Values
from tilesolve.kernels.gpu.warps import Warp
from tilesolve.kernels.gpu.writing import MAP_NAME, TYPES, Results, Writer

KERNEL = "product"
"""The name of the kernel."""

OPERANDS = "first", "second"
"""The names of A and B."""


def product_arguments(form: Form) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a kernel's arguments: addresses, then numbers.

    Of a part of a sum the output is memory in between.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.forms import Operand
    >>> operands = Operand(False, 4), Operand(False, 4)
    >>> product_arguments(Form(Ending("fma32"), 64, 64, 8, (2, 1), 2, *operands))[0]
    ('first', 'second', 'tables', 'output')
    """
    ending = Ending(form.arithmetic) if form.partial else form.ending
    numbers = "rows", "columns", "sum", "part", "group", "batches"
    sides = "first_free", "first_sum", "second_free", "second_sum"
    maps = (f"{OPERANDS[at]}{MAP_NAME}" for at in form.boxed)
    return (*OPERANDS, *maps, "tables", *ending.arrays), (*numbers, *sides, *ending.sides)


def write_product(target: Target, form: Form) -> ir.Module:
    """Write the kernel of a form; return its module.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.forms import Operand
    >>> from tilesolve.kernels.gpu.targets import Nvptx
    >>> operands = Operand(False, 4), Operand(False, 4)
    >>> form = Form(Ending("fma32"), 64, 64, 8, (2, 1), 2, *operands)
    >>> "barrier" in str(write_product(Nvptx(80), form))
    True
    """
    _Product(target, form).write()
    return target.module


class _Chunks(NamedTuple):
    """Chunks of an operand's tile that a thread copies."""

    to: list[ir.Value]
    """Bytes from the tile's begin in shared memory."""
    inside: list[ir.Value]
    """Whether they are within the tensor along rows or columns of C."""
    places: list[ir.Value]
    """Elements from the tensor's begin, as far as rows or columns of C say."""
    depths: list[ir.Value]
    """Steps of the sum from the tile's begin."""


class _Product(Writer):
    """Writes one kernel."""

    def __init__(self, target: Target, form: Form) -> None:
        super().__init__(target, KERNEL, form.threads, *product_arguments(form))
        self.form = form

    def write(self) -> None:
        """Write all of it."""
        b, form = self.b, self.form
        self.pool = self.target.pool(b, form.shared_bytes)
        self.memory = self.target.address(b, self.pool)
        self._find_block()
        self.boxes = {at: self._find_boxes(at) for at in form.boxed}
        self.chunks = {at: self._find_chunks(at) for at in range(2) if at not in self.boxes}
        kind = Group if form.grouped else Warp
        self.warp = kind(self.target, b, form, self.thread, self.pool)
        self._store(self._loop())
        b.ret_void()

    def _find_block(self) -> None:
        """Find the block's tile: groups of rows of tiles, so that neighbours share operands in L2.

        Blocks along the second axis of the grid have parts of the sum, along the third batches.
        """
        b, form, given = self.b, self.form, self.given
        number = self.target.block(b, 0)
        down = b.udiv(b.add(given["rows"], I32(form.rows - 1)), I32(form.rows))
        across = b.udiv(b.add(given["columns"], I32(form.columns - 1)), I32(form.columns))
        whole = b.mul(given["group"], across)
        first = b.mul(b.udiv(number, whole), given["group"])
        height = self._least(b.sub(down, first), given["group"])
        rest = b.urem(number, whole)
        row = b.add(first, b.urem(rest, height))
        self.begin = b.mul(row, I32(form.rows)), b.mul(b.udiv(rest, height), I32(form.columns))
        part = self.target.block(b, 1)
        self.low = b.mul(part, given["part"])
        self.high = self._least(b.add(self.low, given["part"]), given["sum"])
        tensors, kind = 2 + len(form.ending.arrays), CHUNKS[form.fragment.element]
        self.bases = [self.base(name, at, tensors, kind) for at, name in enumerate(OPERANDS)]
        parts = None
        if form.partial:
            number = b.add(b.mul(part, given["batches"]), self.batch)
            one = b.mul(b.zext(given["rows"], I64), b.zext(given["columns"], I64))
            kind = TYPES[form.fragment.dtypes[1]]
            parts = b.gep(given["output"], [b.mul(b.zext(number, I64), one)], source_etype=kind)
        self.results = Results(self, form.ending, parts)

    def _least(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.b.select(self.b.icmp_unsigned("<", one, other), one, other)

    def _find_chunks(self, at: int) -> _Chunks:
        """Find what a thread copies of an operand: which chunks of each tile, and their rows."""
        b, form, own = self.b, self.form, self.form.operands[at]
        lines, length = form.tile(at)
        each = length // own.width
        found = _Chunks([], [], [], [])
        for first in range(0, lines * each, form.threads):
            number = b.urem(b.add(self.thread, I32(first)), I32(lines * each))
            along = b.mul(b.urem(number, I32(each)), I32(own.width))
            line = b.udiv(number, I32(each))
            if form.grouped:
                to = place_in_tile(b, form, at, line, along)
            else:
                to = b.mul(along, I32(form.fragment.element))
                to = b.add(b.mul(line, I32(form.pitch(at))), to)
            free, depth = (line, along) if own.along_sum else (along, line)
            free = b.add(self.begin[at], free)
            inside = b.icmp_unsigned("<", free, self.given[("rows", "columns")[at]])
            side = ("first_free", "second_free")[at]
            place = self.place(side, b.select(inside, free, I32(0)), linear=own.free_linear)
            for where, one in zip(found, (to, inside, place, depth), strict=True):
                where.append(one)
        return found

    def _split(self, index: ir.Value, extents: tuple[int, ...]) -> Values:
        """Return the values of letters at an index, the innermost first."""
        b, found = self.b, list[ir.Value]()
        for extent in reversed(extents):
            found.append(b.urem(index, I32(extent)))
            index = b.udiv(index, I32(extent))
        return [*found, index]

    def _find_boxes(self, at: int) -> list[tuple[int, Values]]:
        """Return the pieces of an operand's tile: their bytes from its begin, and C's letters."""
        form, own = self.form, self.form.operands[at]
        assert own.box
        apart = form.pitch(at) // form.fragment.element
        return [
            (
                piece * form.depth * form.pitch(at),
                self._split(
                    self.b.add(self.begin[at], I32(0 if own.along_sum else piece * apart)),
                    own.box.free,
                ),
            )
            for piece in range(form.pieces(at))
        ]

    def _barrier(self, stage: ir.Value, *, free: bool) -> ir.Value:
        """Return the address of a stage's barrier: until it is full, or free again."""
        form = self.form
        begin = form.stages * (form.stage_bytes + free * BARRIER_BYTES)
        own = self.b.mul(stage, I32(BARRIER_BYTES))
        return self.b.add(self.b.add(self.memory, I32(begin)), own)

    def _fetch_boxes(self, stage: ir.Value, parity: ir.Value, begin: ir.Value) -> None:
        """Let the first thread fetch what bulk copies bring of a stage, if there is a tile."""
        b, form, copies = self.b, self.form, list[Copy]()
        size = form.fragment.element
        for at, pieces in self.boxes.items():
            own, name = form.operands[at], OPERANDS[at]
            assert own.box
            base = b.add(b.mul(stage, I32(form.stage_bytes)), self.memory)
            steps = self._split(begin, own.box.sums)
            batches = [] if own.box.batches is None else self._split(self.batch, own.box.batches)
            for to, free in pieces:
                sides = (steps, free) if own.along_sum else (free, steps)
                place = b.add(base, I32(at * form.tile_bytes(0) + to))
                given = self.given[name], self.given[f"{name}{MAP_NAME}"]
                copies.append(Copy(place, *given, [*sides[0], *sides[1], *batches], size))
        first = b.icmp_unsigned("==", self.thread, I32(0))
        wanted = b.zext(b.and_(first, b.icmp_unsigned("<", begin, self.high)), I32)
        free, full = self._barrier(stage, free=True), self._barrier(stage, free=False)
        total = sum(form.tile(at)[0] * form.tile(at)[1] * size for at in self.boxes)
        warps = form.threads // WARP
        self.target.fetch(b, Fetch(wanted, free, parity, warps, full, total, copies))

    def _copy_tiles(self, stage: ir.Value, parity: ir.Value, begin: ir.Value) -> None:
        """Copy both operands' tiles from a step of the sum on to a stage in shared memory."""
        if self.boxes:
            self._fetch_boxes(stage, parity, begin)
        if not self.chunks:
            return
        b, form, size = self.b, self.form, self.form.fragment.element
        for at, chunks in self.chunks.items():
            own = form.operands[at]
            base = b.add(b.mul(stage, I32(form.stage_bytes)), I32(at * form.tile_bytes(0)))
            side = ("first_sum", "second_sum")[at]
            for to, inside, place, depth in zip(*chunks, strict=True):
                step = b.add(begin, depth)
                wanted = b.and_(inside, b.icmp_unsigned("<", step, self.high))
                step = b.select(wanted, step, I32(0))
                summed = self.place(side, step, linear=own.sum_linear)
                offset = b.select(wanted, b.add(place, summed), I32(0))
                source = b.gep(self.bases[at], [b.zext(offset, I64)], source_etype=CHUNKS[size])
                where = b.gep(self.pool, [b.add(base, to)], source_etype=I8)
                self.target.copy(b, where, source, size * own.width, wanted)
        self.target.close_copies(b)

    def _loop(self) -> Values:
        """Write the loop over the sum: copies run ahead of what is multiplied.

        Stages take turns, and bits say of what is read, written and given back which turn it is.
        """
        b, form, target = self.b, self.form, self.target
        ahead = form.ahead
        if self.boxes:
            barriers = {
                self._barrier(I32(stage), free=free): form.threads // WARP if free else 1
                for free in (False, True)
                for stage in range(form.stages)
            }
            first = b.zext(b.icmp_unsigned("==", self.thread, I32(0)), I32)
            target.open_barriers(b, first, barriers)
        for stage in range(ahead):
            self._copy_tiles(I32(stage), I32(1), b.add(self.low, I32(stage * form.depth)))
        before = b.block
        loop, done = (self.kernel.append_basic_block(name) for name in ("loop", "done"))
        zero = self.warp.zero
        count = form.side[0] * form.side[1] * form.fragment.sums
        b.cbranch(b.icmp_unsigned("<", self.low, self.high), loop, done)
        b.position_at_end(loop)
        step, read, write, turn, other = (b.phi(I32) for _ in range(5))
        sums = [b.phi(zero.type) for _ in range(count)]
        stage, added = b.mul(read, I32(form.stage_bytes)), list[ir.Value](sums)
        if ahead and self.chunks:
            target.await_copies(b, ahead - 1)
            if form.grouped:
                target.show_copies(b)
            target.barrier(b)
        if self.boxes:
            target.await_fetch(b, self._barrier(read, free=False), turn, stage)
        if form.grouped:
            added = self.warp.multiply(stage, added)
        if self.boxes:
            self._release(read, step)
        self._copy_tiles(write, other, b.add(step, I32(ahead * form.depth)))
        if not ahead:
            target.await_copies(b, 0)
            target.barrier(b)
        if not form.grouped:
            added = self.warp.multiply(stage, added)
        if not ahead:
            target.barrier(b)
        following = b.add(step, I32(form.depth))
        pairs = self._next_stage(read, turn), self._next_stage(write, other)
        last = b.block
        b.cbranch(b.icmp_unsigned("<", following, self.high), loop, done)
        b.position_at_end(done)
        found = [b.phi(zero.type) for _ in range(count)]
        begins = [self.low, I32(0), I32(ahead), I32(0), I32(1), *[zero] * 2 * count]
        nexts = [following, *(one for two in zip(*pairs, strict=True) for one in two)]
        nexts += [*added, *added]
        phis = [step, read, write, turn, other, *sums, *found]
        for phi, begin, one in zip(phis, begins, nexts, strict=True):
            phi.add_incoming(begin, before)
            phi.add_incoming(one, last)
        if self.chunks:
            target.await_copies(b, 0)
        return self.warp.finish(found)

    def _release(self, read: ir.Value, step: ir.Value) -> None:
        """Give back the stage before the one that is read, whose products are done."""
        b, form = self.b, self.form
        began = b.icmp_unsigned("==", read, I32(0))
        before = b.select(began, I32(form.stages - 1), b.sub(read, I32(1)))
        lane = b.icmp_unsigned("==", b.and_(self.thread, I32(WARP - 1)), I32(0))
        wanted = b.and_(lane, b.icmp_unsigned("!=", step, self.low))
        self.target.release(b, b.zext(wanted, I32), self._barrier(before, free=True))

    def _next_stage(self, stage: ir.Value, turn: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the stage after another one, the first after the last; and the bit of its turn."""
        following = self.b.add(stage, I32(1))
        over = self.b.icmp_unsigned("==", following, I32(self.form.stages))
        turned = self.b.xor(turn, self.b.zext(over, I32))
        return self.b.select(over, I32(0), following), turned

    def _store(self, sums: Values) -> None:
        """Store what becomes of this lane's sums, as far as they lie within C."""
        b = self.b
        known: dict[tuple[int, int], tuple[Values, ir.Value]] = {}
        for where, one in zip(self.warp.places(), sums, strict=True):
            for axis, at in enumerate(where):
                if (axis, id(at)) not in known:
                    place = b.add(self.begin[axis], at)
                    inside = b.icmp_unsigned("<", place, self.given[("rows", "columns")[axis]])
                    place = b.select(inside, place, I32(0))
                    known[axis, id(at)] = self.results.find(axis, place), inside
            (row, one_in), (column, other_in) = (
                known[axis, id(at)] for axis, at in enumerate(where)
            )
            with b.if_then(b.and_(one_in, other_in)):
                self.results.store(row, column, one)
