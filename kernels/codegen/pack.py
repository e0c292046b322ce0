"""Packing kernels: micro-panels of vectors from elements that lie anywhere.

A micro-panel holds one *group* of ``lanes`` rows (or columns): for each k one vector of them. Its
elements lie in the source at ``row offset + k offset``. These kernels cover every layout, and take
their arguments from a frame (`FIELDS`):

* ``copy``: groups that are contiguous in the source, copied as vectors, k by k;
* ``turn_sums``: k is contiguous in the source: blocks of ``lanes`` steps of k are transposed in
  registers;
* ``turn_rows``: other rows are contiguous: blocks of ``lanes`` groups are transposed;
* ``few_sums``, ``few_rows``: as these two, for blocks of only as many steps or groups as lie in 16
  bytes (`offset_tables.few_entries`);
* ``even_rows``: as ``turn_rows``, for blocks whose lanes are all one distance apart, and so are
  their groups;
* ``gather``: anything, an element at a time; it also fills the lanes that a group lacks with 0.

``source`` is the address that the offsets count from, ``target`` that of micro-panel 0 at the first
k of the offsets' table; micro-panels are ``panel`` bytes apart. Their vectors are aligned to their
size. Halves are widened when they are loaded, to the float32 of micro-panels. Measurements behind
the kernels are in docs/decisions/042.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from tilesolve.constants.tuning import PACK_PREFETCH_STEPS
from tilesolve.kernels.dtypes import lanes, real_of
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.half_precision import load_kind, widen
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.offset_tables import few_entries
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

FIELDS = (
    "source",
    "target",
    "panel",
    "rows",
    "groups",
    "sums",
    "steps",
    "first",
    "count",
    "lanes",
    "later",
)
"""Names of the 8-byte fields of a frame, in order.

``rows`` is a table of row offsets: of each group's first row for ``copy``, of all groups' rows for
``turn_rows``, of each row of one group else. ``sums`` is the table of k offsets; ``steps`` a table
of the k to pack (``gather``), of the blocks of k (``turn_sums``) or of the blocks' groups
(``turn_rows``); ``first`` and ``count`` are a range of k (``copy``, ``turn_rows``) or of entries of
``steps``. ``groups`` is how many micro-panels ``copy`` fills, or blocks ``turn_rows`` packs from
number ``lanes`` on; ``lanes`` is how many rows ``gather`` finds. ``later`` is a table of the rows
that ``turn_sums`` packs next.
"""

KINDS = ("copy", "turn_sums", "turn_rows", "gather", "few_sums", "few_rows", "even_rows")
"""Symbols of the kernels, without dtype and lanes, in the order of their numbers."""


@dataclass(frozen=True, slots=True)
class MicroPanel:
    """How the elements of micro-panels lie.

    Parameters
    ----------
    dtype
        Of its elements.
    lanes
        Rows of one group.
    source
        The dtype of the tensors, where these are halves; else empty.

    Examples
    --------
    >>> MicroPanel("float64", 8).name("copy")
    'copy_float64_8'
    """

    dtype: str
    lanes: int
    source: str = ""

    def name(self, kind: str) -> str:
        """Return the symbol of a kernel of one of `KINDS`."""
        return f"{kind}_{self.source or self.dtype}_{self.lanes}"


def emit_packers(module: ir.Module, panel: MicroPanel) -> list[ir.Function]:
    """Add the packing kernels of one kind of micro-panel to a module.

    Examples
    --------
    >>> [f.name for f in emit_packers(ir.Module(), MicroPanel("float64", 4))][:3]
    ['copy_float64_4', 'turn_sums_float64_4', 'turn_rows_float64_4']
    """
    together = few_entries(panel.lanes, 2 if panel.source else np.dtype(panel.dtype).itemsize)
    return [
        _PackerEmitter(module, panel, "copy").copy(),
        _PackerEmitter(module, panel, "turn_sums").transpose_sums(panel.lanes),
        _PackerEmitter(module, panel, "turn_rows").transpose_rows(panel.lanes),
        _PackerEmitter(module, panel, "gather").gather(),
        _PackerEmitter(module, panel, "few_sums").transpose_sums(together),
        _PackerEmitter(module, panel, "few_rows").transpose_rows(together),
        _PackerEmitter(module, panel, "even_rows").transpose_rows(panel.lanes, even=True),
    ]


class _PackerEmitter:
    """One packing kernel while it is written.

    Registers hold real numbers of `size` bytes, of which the source has `read`; `step` is the bytes
    of one k of a micro-panel.
    """

    def __init__(self, module: ir.Module, panel: MicroPanel, kind: str) -> None:
        signature = ir.FunctionType(ir.VoidType(), (INT64,))
        self.function = ir.Function(module, signature, panel.name(kind))
        self.function.attributes.add("nounwind")
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        self.frame = self.function.args[0]
        self.lanes = panel.lanes
        number = real_of(panel.dtype)
        self.parts = 1 if number == panel.dtype else 2
        self.size = LINE_BYTES // lanes(number, 8 * LINE_BYTES)
        self.step = self.size * self.lanes * self.parts
        self.kind = vectors.vector_type(number, 8 * self.step)
        self.source = panel.source
        self.read = 2 if self.source else self.size

    def load_numbers(self, where: ir.Value, kind: ir.Type) -> ir.Value:
        """Return numbers of the source as micro-panels have them."""
        if not self.source:
            return self.builder.load(where, typ=kind, align=self.read)
        halves = self.builder.load(where, typ=load_kind(kind), align=self.read)
        return widen(self.builder, halves, self.source)

    def field(self, name: str) -> ir.Value:
        """Return a field of the frame."""
        return self.load_integer(self.frame, INT64(FIELDS.index(name)))

    def load_integer(self, table: ir.Value, index: ir.Value) -> ir.Value:
        """Return an entry of a table."""
        where = vectors.to_pointer(self.builder, table, self.builder.mul(index, INT64(WORD_BYTES)))
        return self.builder.load(where, typ=INT64, align=WORD_BYTES)

    def _return(self) -> ir.Function:
        """End the function and return it."""
        self.builder.ret_void()
        return self.function

    def copy(self) -> ir.Function:
        """Emit copies of groups that are contiguous in the source."""
        builder = self.builder
        source, target, panel = (self.field(n) for n in ("source", "target", "panel"))
        rows, sums, groups = (self.field(n) for n in ("rows", "sums", "groups"))
        first = self.field("first")

        def pack_k(trip: ir.Value) -> None:
            k = builder.add(first, trip)
            near = builder.add(source, self.load_integer(sums, k))
            ahead = builder.add(
                source, self.load_integer(sums, self._entry_ahead(first, trip, self.field("count")))
            )
            far = builder.add(target, builder.mul(k, INT64(self.step)))

            def copy_group(group: ir.Value) -> None:
                row = self.load_integer(rows, group)
                self._prefetch([ahead], row, self.lanes)
                place = vectors.to_pointer(builder, near, row)
                value = self.load_numbers(place, self.kind)
                where = vectors.to_pointer(builder, far, builder.mul(group, panel))
                vectors.store(builder, value, where, min(self.step, LINE_BYTES))

            vectors.repeat(builder, groups, copy_group)

        vectors.repeat(builder, self.field("count"), pack_k)
        return self._return()

    def _entry_ahead(
        self, first: ir.Value, trip: ir.Value, trips: ir.Value, steps: int = PACK_PREFETCH_STEPS
    ) -> ir.Value:
        """Return the number of the entry so many trips later, or of the last one."""
        builder = self.builder
        later = builder.add(trip, INT64(steps))
        last = builder.sub(trips, INT64(1))
        return builder.add(first, vectors.extreme(builder, "<", later, last))

    def _prefetch(
        self, sources: Sequence[ir.Value], offset: ir.Value, count: int, *, near: bool = True
    ) -> None:
        """Prefetch the line of the last of so many elements at an offset from each source.

        Where they begin amid a line, that of the first one was read with what lies before them.
        """
        last = self.builder.add(offset, INT64((count - 1) * self.read * self.parts))
        for source in sources:
            place = vectors.to_pointer(self.builder, source, last)
            vectors.prefetch(self.builder, place, near=near)

    def _lane_addresses(self, base: ir.Value) -> list[ir.Value]:
        """Return the addresses of a group's rows."""
        rows = self.field("rows")
        return [
            self.builder.add(base, self.load_integer(rows, INT64(lane)))
            for lane in range(self.lanes)
        ]

    def _transpose_block(self, sources: Sequence[ir.Value], targets: Sequence[ir.Value]) -> None:
        """Load as many elements as there are targets from each source, and store transposed."""
        builder, count = self.builder, len(targets)
        kind = ir.VectorType(self.kind.element, count * self.parts)
        loaded = [self.load_numbers(vectors.to_pointer(builder, place), kind) for place in sources]
        transposed = vectors.transpose_vectors(builder, loaded, self.parts)
        for value, place in zip(transposed, targets, strict=True):
            vectors.store(
                builder, value, vectors.to_pointer(builder, place), min(self.step, LINE_BYTES)
            )

    def transpose_sums(self, length: int) -> ir.Function:
        """Emit blocks of so many steps of one group.

        Meanwhile the next group's lines are prefetched to the second cache: each row is a stream
        that ends with the segment, before hardware prefetchers follow it.
        """
        builder = self.builder
        places = self._lane_addresses(self.field("source"))
        target, sums, steps = (self.field(n) for n in ("target", "sums", "steps"))
        source, later, first = (self.field(n) for n in ("source", "later", "first"))

        next_rows = [self.load_integer(later, INT64(lane)) for lane in range(self.lanes)]
        count = self.field("count")

        def prefetch(trip: ir.Value, offset: ir.Value, elements: int) -> None:
            ahead = builder.mul(self._entry_ahead(first, trip, count), INT64(length))
            ahead = self.load_integer(sums, self.load_integer(steps, ahead))
            self._prefetch(places, ahead, elements)
            self._prefetch(next_rows, builder.add(source, offset), elements, near=False)

        size = length * self.read * self.parts

        def pack_blocks(begin: ir.Value, together: int) -> None:
            """Emit some blocks, with one prefetch for those that are neighbours in the source."""
            follows = None
            for at in range(together):
                trip = builder.add(begin, INT64(at))
                entry = builder.mul(builder.add(first, trip), INT64(length))
                ks = [self.load_integer(steps, builder.add(entry, INT64(i))) for i in range(length)]
                offset = self.load_integer(sums, ks[0])
                if follows is None:  # runs have few blocks of few entries
                    prefetch(trip, offset, length * (together if length == self.lanes else 1))
                else:
                    elsewhere = builder.icmp_signed("!=", offset, follows)
                    with builder.if_then(elsewhere, likely=False):
                        prefetch(trip, offset, length)
                follows = builder.add(offset, INT64(size))
                self._transpose_block(
                    [builder.add(place, offset) for place in places],
                    [builder.add(target, builder.mul(k, INT64(self.step))) for k in ks],
                )

        line = max(1, LINE_BYTES // size)
        lines = builder.udiv(count, INT64(line))
        done = builder.mul(lines, INT64(line))
        vectors.repeat(
            builder, lines, lambda trip: pack_blocks(builder.mul(trip, INT64(line)), line)
        )
        if line > 1:
            rest = builder.sub(count, done)
            vectors.repeat(builder, rest, lambda trip: pack_blocks(builder.add(done, trip), 1))
        return self._return()

    def transpose_rows(self, length: int, *, even: bool = False) -> ir.Function:
        """Emit blocks of so many groups in the inner loop.

        Their sources are neighbours, those of k are not. So hardware prefetchers follow the blocks,
        but not the step to the next k: each block prefetches a line of each lane there. They go to
        the second cache, as lanes are often so far apart that all share a set of the first.

        Where all is even, addresses are computed from the first two. The fewer instructions a
        block takes, the more blocks a CPU begins while it waits for the lines of one.
        """
        builder = self.builder
        source, target, panel = (self.field(n) for n in ("source", "target", "panel"))
        rows, sums, steps = (self.field(n) for n in ("rows", "sums", "steps"))
        first = self.field("first")
        blocks, low = self.field("groups"), self.field("lanes")

        def load_entries(table: ir.Value, begin: ir.Value, count: int) -> list[ir.Value]:
            """Return so many entries of a table, or the two that tell the others."""
            known = min(count, 2) if even else count
            return [self.load_integer(table, builder.add(begin, INT64(at))) for at in range(known)]

        def add_offsets(base: ir.Value, offsets: Sequence[ir.Value], count: int) -> list[ir.Value]:
            if even:
                return self._equidistant(base, offsets, count)
            return [builder.add(base, offset) for offset in offsets]

        def pack_k(trip: ir.Value) -> None:
            k = builder.add(first, trip)
            near = builder.add(source, self.load_integer(sums, k))
            ahead = self._entry_ahead(first, trip, self.field("count"), 1)
            ahead = builder.add(source, self.load_integer(sums, ahead))
            far = builder.add(target, builder.mul(k, INT64(self.step)))

            def transpose(number: ir.Value) -> None:
                entry = builder.mul(builder.add(low, number), INT64(length))
                groups = load_entries(steps, entry, length)
                lanes = load_entries(rows, builder.mul(groups[0], INT64(self.lanes)), self.lanes)
                panels = [builder.mul(group, panel) for group in groups]
                self._prefetch(add_offsets(ahead, lanes, self.lanes), INT64(0), length, near=False)
                self._transpose_block(
                    add_offsets(near, lanes, self.lanes), add_offsets(far, panels, length)
                )

            vectors.repeat(builder, blocks, transpose)

        vectors.repeat(builder, self.field("count"), pack_k)
        return self._return()

    def _equidistant(self, base: ir.Value, ends: Sequence[ir.Value], count: int) -> list[ir.Value]:
        """Return so many equidistant addresses, given the first two's offsets from a base.

        The compiler must not know where every fourth comes from: else it holds each address in a
        register of its own, of which there are too few.
        """
        builder, first = self.builder, ends[0]
        at, found = builder.add(base, first), []
        distance = builder.sub(ends[-1], first)
        twice, thrice = (builder.mul(distance, INT64(times)) for times in (2, 3))
        for lane in range(count):
            if lane and lane % 4 == 0:
                at = vectors.hide_origin(builder, builder.add(at, builder.mul(distance, INT64(4))))
            found.append(builder.add(at, (INT64(0), distance, twice, thrice)[lane % 4]))
        return found

    def gather(self) -> ir.Function:
        """Emit copies of single elements, and zeros for the lanes that a group lacks."""
        builder = self.builder
        source, target, rows = (self.field(n) for n in ("source", "target", "rows"))
        sums, steps, first = (self.field(n) for n in ("sums", "steps", "first"))
        count, found = self.field("count"), self.field("lanes")
        scalar = self.kind.element
        pitch = self.size * self.parts

        def pack_k(trip: ir.Value) -> None:
            k = self.load_integer(steps, builder.add(first, trip))
            ahead = self.load_integer(steps, self._entry_ahead(first, trip, count))
            ahead = builder.add(source, self.load_integer(sums, ahead))
            near = builder.add(source, self.load_integer(sums, k))
            far = builder.add(target, builder.mul(k, INT64(self.step)))

            def copy_lane(lane: ir.Value) -> None:
                row = self.load_integer(rows, lane)
                vectors.prefetch(builder, vectors.to_pointer(builder, ahead, row))
                place = builder.add(near, row)
                where = builder.add(far, builder.mul(lane, INT64(pitch)))
                for part in range(self.parts):
                    at = part * self.size
                    value = self.load_numbers(vectors.to_pointer(builder, place, at), scalar)
                    builder.store(value, vectors.to_pointer(builder, where, at), align=self.size)

            def clear_lane(missing: ir.Value) -> None:
                lane = builder.add(found, missing)
                where = builder.add(far, builder.mul(lane, INT64(pitch)))
                for part in range(self.parts):
                    at = vectors.to_pointer(builder, where, part * self.size)
                    builder.store(ir.Constant(scalar, 0.0), at, align=self.size)

            vectors.repeat(builder, found, copy_lane)
            vectors.repeat(builder, builder.sub(INT64(self.lanes), found), clear_lane)

        vectors.repeat(builder, count, pack_k)
        return self._return()
