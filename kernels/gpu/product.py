"""Kernels that multiply: tiles through shared memory, fragments through registers."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from tilesolve.kernels.gpu.forms import Ending, Form
from tilesolve.kernels.gpu.groups import Group, place_in_tile
from tilesolve.kernels.gpu.targets import CHUNKS, I8, I32, I64, Target, Values
from tilesolve.kernels.gpu.warps import Warp
from tilesolve.kernels.gpu.writing import TYPES, Results, Writer

KERNEL = "product"
"""The name of the kernel."""


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
    return ("first", "second", "tables", *ending.arrays), (*numbers, *sides, *ending.sides)


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
        self._find_block()
        self.chunks = [self._find_chunks(0), self._find_chunks(1)]
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
        names, tensors = ("first", "second"), 2 + len(form.ending.arrays)
        kind = CHUNKS[form.fragment.element]
        self.bases = [self.base(name, at, tensors, kind) for at, name in enumerate(names)]
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

    def _copy_tiles(self, stage: ir.Value, begin: ir.Value) -> None:
        """Copy both operands' tiles from a step of the sum on to a stage in shared memory."""
        b, form, size = self.b, self.form, self.form.fragment.element
        for at, (chunks, own) in enumerate(zip(self.chunks, form.operands, strict=True)):
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
        """Write the loop over the sum: copies run ahead of what is multiplied."""
        b, form, target = self.b, self.form, self.target
        ahead = form.ahead
        for stage in range(ahead):
            self._copy_tiles(I32(stage), b.add(self.low, I32(stage * form.depth)))
        before = b.block
        loop, done = (self.kernel.append_basic_block(name) for name in ("loop", "done"))
        zero = self.warp.zero
        count = form.side[0] * form.side[1] * form.fragment.sums
        b.cbranch(b.icmp_unsigned("<", self.low, self.high), loop, done)
        b.position_at_end(loop)
        step, read, write = (b.phi(I32) for _ in range(3))
        sums = [b.phi(zero.type) for _ in range(count)]
        if ahead:
            target.await_copies(b, ahead - 1)
            if form.grouped:
                target.show_copies(b)
            target.barrier(b)
        stage, added = b.mul(read, I32(form.stage_bytes)), list[ir.Value](sums)
        if form.grouped:
            added = self.warp.multiply(stage, added)
        self._copy_tiles(write, b.add(step, I32(ahead * form.depth)))
        if not ahead:
            target.await_copies(b, 0)
            target.barrier(b)
        if not form.grouped:
            added = self.warp.multiply(stage, added)
        if not ahead:
            target.barrier(b)
        following = b.add(step, I32(form.depth))
        turns = [self._next_stage(one) for one in (read, write)]
        last = b.block
        b.cbranch(b.icmp_unsigned("<", following, self.high), loop, done)
        b.position_at_end(done)
        found = [b.phi(zero.type) for _ in range(count)]
        begins = [self.low, I32(0), I32(ahead), *[zero] * 2 * count]
        nexts = [following, *turns, *added, *added]
        for phi, begin, one in zip([step, read, write, *sums, *found], begins, nexts, strict=True):
            phi.add_incoming(begin, before)
            phi.add_incoming(one, last)
        target.await_copies(b, 0)
        return self.warp.finish(found)

    def _next_stage(self, stage: ir.Value) -> ir.Value:
        """Return the stage after another one, the first after the last."""
        following = self.b.add(stage, I32(1))
        over = self.b.icmp_unsigned("==", following, I32(self.form.stages))
        return self.b.select(over, I32(0), following)

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
