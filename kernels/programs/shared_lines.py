"""Lines that two rows share: the part that one row ends in waits for the row that goes on there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.arithmetic import memory_type
from tilesolve.kernels.ir.complexes import plain_type, select, vector_of
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.kernels.programs.accesses import Target


@dataclass(frozen=True, slots=True)
class WaitingPart:
    """A part of a vector of an array that is written past the caches, and has not been written yet.

    Parameters
    ----------
    kind
        The vector, which begins a line.
    itemsize
        Bytes of an element.
    values, begin, end
        Where the function keeps the elements, and the addresses that the part goes from and to.
        Both addresses are 0 where nothing waits. LLVM keeps all of them in registers.
    """

    kind: ir.VectorType
    itemsize: int
    values: ir.Value
    begin: ir.Value
    end: ir.Value

    @classmethod
    def of(cls, builder: ir.IRBuilder, target: Target, lanes: int) -> Self:
        """Make room for the part in a function, at its entry: nothing waits."""
        kind = vector_of(memory_type(target.dtype), lanes)
        with builder.goto_entry_block():
            slots = [builder.alloca(one) for one in (kind, INT64, INT64)]
            builder.store(ir.Constant(kind, None), slots[0])
            for slot in slots[1:]:
                builder.store(INT64(0), slot)
        return cls(kind, target.itemsize, *slots)

    def join(
        self, builder: ir.IRBuilder, value: ir.Value, line: ir.Value, lanes: tuple[ir.Value, ...]
    ) -> None:
        """Emit the store of a row's part of a line, together with the part that waits for it.

        Parameters
        ----------
        builder
            Where to write.
        value
            A vector, whose first and last lane of the row are given.
        line
            The address of its first lane.
        lanes
            The row's first lane, and the one behind its last.
        """
        first, last = lanes
        size = INT64(self.itemsize)
        here, stop = (builder.add(line, builder.mul(lane, size)) for lane in lanes)
        end = builder.load(self.end, typ=INT64)
        joins = builder.icmp_signed("==", end, here)
        with builder.if_then(builder.not_(joins), likely=False):
            self.write(builder)
        mask = masking.mask_first_lanes(builder, self.kind.count, first)
        mask = builder.and_(mask, vectors.broadcast(builder, joins, mask.type))
        both = select(builder, mask, builder.load(self.values, typ=self.kind), value)
        begin = builder.select(joins, builder.load(self.begin, typ=INT64), here)
        builder.store(both, self.values)
        builder.store(begin, self.begin)
        builder.store(stop, self.end)
        ends = builder.icmp_signed("==", last, INT64(self.kind.count))
        with builder.if_then(ends):
            whole = builder.icmp_signed("==", begin, line)
            with builder.if_else(whole, likely=True) as (yes, no):
                with yes:
                    where = vectors.to_pointer(builder, line)
                    bytes_ = self.kind.count * self.itemsize
                    vectors.store(builder, both, where, bytes_, non_temporal=True)
                    self._forget(builder)
                with no:
                    self.write(builder)

    def write(self, builder: ir.IRBuilder) -> None:
        """Emit the store of what waits, if anything does."""
        values = builder.load(self.values, typ=self.kind)
        ends = [builder.load(slot, typ=INT64) for slot in (self.begin, self.end)]
        with builder.if_then(builder.icmp_signed("!=", ends[0], ends[1]), likely=False):
            builder.call(self._writer(builder.module), [values, *ends])
        self._forget(builder)

    def _forget(self, builder: ir.IRBuilder) -> None:
        for slot in (self.begin, self.end):
            builder.store(INT64(0), slot)

    def _writer(self, module: ir.Module) -> ir.Function:
        """Return the function that writes a part of a vector: from one address up to another."""
        name = f"write_part_{vectors.type_suffix(plain_type(self.kind))}_{self.itemsize}"
        found = module.globals.get(name)
        if found is not None:
            return found
        made = ir.Function(module, ir.FunctionType(ir.VoidType(), (self.kind, INT64, INT64)), name)
        made.linkage = "internal"
        made.attributes.add("noinline")
        values, begin, end = made.args
        builder = ir.IRBuilder(made.append_basic_block())
        size = INT64(self.itemsize)
        line = builder.and_(begin, INT64(-self.kind.count * self.itemsize))
        first, last = (builder.udiv(builder.sub(one, line), size) for one in (begin, end))
        if self.itemsize < tuning.MIN_NON_TEMPORAL_BYTES:
            mask = masking.mask_lanes_between(builder, self.kind.count, first, last)
            masking.store_masked(builder, values, vectors.to_pointer(builder, line), mask)
        else:
            self._write_elements(builder, values, line, (first, last))
        builder.ret_void()
        return made

    def _write_elements(
        self, builder: ir.IRBuilder, values: ir.Value, line: ir.Value, lanes: tuple[ir.Value, ...]
    ) -> None:
        """Emit non-temporal stores of single elements: of a line no part is left in a cache."""
        kept = builder.alloca(self.kind)
        builder.store(values, kept)
        element = ir.IntType(8 * self.itemsize)
        first, last = lanes

        def trip(index: ir.Value) -> None:
            lane = builder.add(first, index)
            value = builder.load(builder.gep(kept, [lane], source_etype=element), typ=element)
            where = vectors.to_pointer(builder, line, builder.mul(lane, INT64(self.itemsize)))
            vectors.store(builder, value, where, self.itemsize, non_temporal=True)

        vectors.repeat(builder, builder.sub(last, first), trip)
