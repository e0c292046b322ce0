"""Kernels that multiply: tiles through shared memory, fragments through registers."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from tilesolve.kernels.gpu.forms import Form, Operand
from tilesolve.kernels.gpu.store import store_sums
from tilesolve.kernels.gpu.targets import CHUNKS, GLOBAL, I8, I32, I64, Target
from tilesolve.kernels.gpu.warps import Warp

KERNEL = "product"
"""The name of the kernel."""

ARGUMENTS = (
    *("first", "second", "output", "tables"),
    *("rows", "columns", "sum", "part", "group", "batches", "batch_places"),
    *("first_free", "first_sum", "second_sum", "second_free", "row_step", "column_step"),
)
"""What a kernel takes: addresses, then 32-bit numbers. The last six are how far apart elements are,
or where in the tables their places begin."""


def write_product(target: Target, form: Form) -> ir.Module:
    """Write the kernel of a form; return its module.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.targets import Nvptx
    >>> form = Form("fma32", 64, 64, 8, (2, 1), 2, Operand(False, 4), Operand(False, 4))
    >>> "barrier" in str(write_product(Nvptx(80), form))
    True
    """
    kinds = [GLOBAL] * 4 + [I32] * (len(ARGUMENTS) - 4)
    kernel = target.kernel(KERNEL, kinds, form.threads)
    for argument, name in zip(kernel.args, ARGUMENTS, strict=True):
        argument.name = name
    _Product(target, form, kernel).write()
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


class _Product:
    """Writes one kernel."""

    def __init__(self, target: Target, form: Form, kernel: ir.Function) -> None:
        self.target, self.form, self.kernel = target, form, kernel
        self.b = ir.IRBuilder(kernel.append_basic_block("begin"))
        self.given = dict(zip(ARGUMENTS, kernel.args, strict=True))

    def write(self) -> None:
        """Write all of it."""
        b, form = self.b, self.form
        self.pool = self.target.pool(b, form.shared_bytes)
        self.tid = self.target.thread(b)
        self._find_block()
        self.chunks = [self._find_chunks(0), self._find_chunks(1)]
        self.warp = Warp(self.target, b, form, self.tid, self.pool)
        sums = self._loop()
        store_sums(
            b,
            form,
            self.warp,
            sums,
            self.output,
            self.begin,
            (self.given["rows"], self.given["columns"]),
            (
                lambda at: self._place("row_step", at, form.row_linear or form.partial),
                lambda at: self._place("column_step", at, form.column_linear or form.partial),
            ),
        )
        b.ret_void()

    def _place(self, name: str, at: ir.Value, linear: bool) -> ir.Value:
        """Return how many elements from the tensor's begin something is along one axis."""
        b, step = self.b, self.given[name]
        if linear:
            return b.mul(at, step)
        place = b.gep(self.given["tables"], [b.add(step, at)], source_etype=I32)
        return b.load(place, align=4, typ=I32)

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
        left = b.sub(down, first)
        height = b.select(b.icmp_unsigned("<", left, given["group"]), left, given["group"])
        rest = b.urem(number, whole)
        row = b.add(first, b.urem(rest, height))
        self.begin = b.mul(row, I32(form.rows)), b.mul(b.udiv(rest, height), I32(form.columns))
        part, batch = self.target.block(b, 1), self.target.block(b, 2)
        self.low = b.mul(part, given["part"])
        high = b.add(self.low, given["part"])
        self.high = b.select(b.icmp_unsigned("<", high, given["sum"]), high, given["sum"])
        self.bases = [self._batch_base(at, batch) for at in range(2)]
        if form.partial:
            number = b.add(b.mul(part, given["batches"]), batch)
            one = b.mul(b.zext(given["rows"], I64), b.zext(given["columns"], I64))
            begin = b.mul(b.zext(number, I64), one)
            kind = CHUNKS[form.fragment.summed]
            self.output = b.gep(given["output"], [begin], source_etype=kind)
        else:
            self.output = self._batch_base(2, batch)

    def _batch_base(self, at: int, batch: ir.Value) -> ir.Value:
        """Return where a tensor's batch begins."""
        b, given = self.b, self.given
        number = b.add(b.add(given["batch_places"], b.mul(batch, I32(3))), I32(at))
        place = b.gep(given["tables"], [number], source_etype=I32)
        begin = b.zext(b.load(place, align=4, typ=I32), I64)
        kind = CHUNKS[self.form.fragment.element]
        tensor = given[("first", "second", "output")[at]]
        return b.gep(tensor, [begin], source_etype=kind)

    def _operand(self, at: int) -> Operand:
        return (self.form.first, self.form.second)[at]

    def _find_chunks(self, at: int) -> _Chunks:
        """Find what a thread copies of an operand: which chunks of each tile, and their rows."""
        b, form, own = self.b, self.form, self._operand(at)
        side, extent = ((form.rows, "rows"), (form.columns, "columns"))[at]
        inner, outer = (form.depth, side) if own.along_sum else (side, form.depth)
        each = inner // own.width
        total = each * outer
        found = _Chunks([], [], [], [])
        for first in range(0, total, form.threads):
            number = b.and_(b.add(self.tid, I32(first)), I32(total - 1))
            along = b.mul(b.and_(number, I32(each - 1)), I32(own.width))
            line = b.lshr(number, I32(each.bit_length() - 1))
            size = form.fragment.element
            to = b.add(b.mul(line, I32(form.pitch(at))), b.mul(along, I32(size)))
            free, depth = (line, along) if own.along_sum else (along, line)
            free = b.add(self.begin[at], free)
            inside = b.icmp_unsigned("<", free, self.given[extent])
            name = ("first_free", "second_free")[at]
            place = self._place(name, b.select(inside, free, I32(0)), own.free_linear)
            for where, one in zip(found, (to, inside, place, depth), strict=True):
                where.append(one)
        return found

    def _copy_tiles(self, stage: ir.Value, begin: ir.Value) -> None:
        """Copy both operands' tiles from a step of the sum on to a stage in shared memory."""
        b, form = self.b, self.form
        for at, chunks in enumerate(self.chunks):
            own, size = self._operand(at), form.fragment.element
            base = b.add(b.mul(stage, I32(form.stage_bytes)), I32(at * form.tile_bytes(0)))
            name = ("first_sum", "second_sum")[at]
            for to, inside, place, depth in zip(*chunks, strict=True):
                step = b.add(begin, depth)
                wanted = b.and_(inside, b.icmp_unsigned("<", step, self.high))
                summed = self._place(name, b.select(wanted, step, I32(0)), own.sum_linear)
                offset = b.select(wanted, b.add(place, summed), I32(0))
                source = b.gep(self.bases[at], [b.zext(offset, I64)], source_etype=CHUNKS[size])
                where = b.gep(self.pool, [b.add(base, to)], source_etype=I8)
                self.target.copy(b, where, source, size * own.width, wanted)
        self.target.close_copies(b)

    def _loop(self) -> list[ir.Value]:
        """Write the loop over the sum: copies run ahead of what is multiplied."""
        b, form, target = self.b, self.form, self.target
        ahead = form.stages - 1
        for stage in range(ahead):
            self._copy_tiles(I32(stage), b.add(self.low, I32(stage * form.depth)))
        before = b.block
        loop, done = (self.kernel.append_basic_block(name) for name in ("loop", "done"))
        zero = self.warp.zero
        count = form.side[0] * form.side[1] * self.warp.sums
        some = b.icmp_unsigned("<", self.low, self.high)
        b.cbranch(some, loop, done)
        b.position_at_end(loop)
        step, read, write = (b.phi(I32) for _ in range(3))
        sums = [b.phi(zero.type) for _ in range(count)]
        for phi, one in zip((step, read, write), (self.low, I32(0), I32(ahead)), strict=True):
            phi.add_incoming(one, before)
        if ahead:
            target.await_copies(b, ahead - 1)
            target.barrier(b)
        self._copy_tiles(write, b.add(step, I32(ahead * form.depth)))
        if not ahead:
            target.await_copies(b, 0)
            target.barrier(b)
        added = self.warp.multiply(b.mul(read, I32(form.stage_bytes)), list(sums))
        if not ahead:
            target.barrier(b)
        following = b.add(step, I32(form.depth))
        turns = [self._next_stage(one) for one in (read, write)]
        last = b.block
        for phi, one in zip((step, read, write), (following, *turns), strict=True):
            phi.add_incoming(one, last)
        for phi, one in zip(sums, added, strict=True):
            phi.add_incoming(zero, before)
            phi.add_incoming(one, last)
        b.cbranch(b.icmp_unsigned("<", following, self.high), loop, done)
        b.position_at_end(done)
        target_sums = [b.phi(zero.type) for _ in range(count)]
        for phi, one in zip(target_sums, added, strict=True):
            phi.add_incoming(zero, before)
            phi.add_incoming(one, last)
        target.await_copies(b, 0)
        return target_sums

    def _next_stage(self, stage: ir.Value) -> ir.Value:
        """Return the stage after another one, the first after the last."""
        following = self.b.add(stage, I32(1))
        over = self.b.icmp_unsigned("==", following, I32(self.form.stages))
        return self.b.select(over, I32(0), following)
