"""Packing kernels: strips of vectors from elements that lie anywhere.

A strip holds one *group* of ``lanes`` rows (or columns): for each k one vector of them. Its
elements lie in the source at ``row offset + k offset``. These kernels cover every layout; `frame`
addresses their arguments by `FIELDS`:

* ``copy``: groups that are contiguous in the source, moved as vectors, k by k;
* ``turn_sums``: k is contiguous in the source: blocks of ``lanes`` steps of k are transposed in
  registers;
* ``turn_rows``: other rows are contiguous: blocks of ``lanes`` groups are transposed;
* ``few_sums``, ``few_rows``: as these two, for blocks of only as many steps or groups as lie in 16
  bytes (`tables.few`);
* ``even_rows``: as ``turn_rows``, for blocks whose lanes are all one distance apart, and so are
  their groups;
* ``gather``: anything, an element at a time; it also fills the lanes that a group lacks with 0.

``source`` is the address that the offsets count from, ``target`` that of strip 0 at the first k of
the offsets' table; strips are ``strip`` bytes apart. Vectors of a strip are aligned to their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from tilesolve.kernels.codegen import vectors
from tilesolve.kernels.codegen.vectors import INT64
from tilesolve.kernels.dtypes import lanes, real_of
from tilesolve.kernels.tuning import PACK_PREFETCH_STEPS
from tilesolve.packing.offset_tables import short_block
from tilesolve.packing.sizes import LINE_BYTES

FIELDS = (
    "source",
    "target",
    "strip",
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
of the k to do (``gather``), of the blocks of k (``turn_sums``) or of the blocks' groups
(``turn_rows``); ``first`` and ``count`` are a range of k (``copy``, ``turn_rows``) or of entries of
``steps``. ``groups`` is how many strips ``copy`` fills, or blocks ``turn_rows`` does from number
``lanes`` on; ``lanes`` is how many rows ``gather`` finds. ``later`` is a table of the rows that
``turn_sums`` does next.
"""


KINDS = ("copy", "turn_sums", "turn_rows", "gather", "few_sums", "few_rows", "even_rows")


@dataclass(frozen=True, slots=True)
class MicroPanel:
    """How the elements of strips lie.

    Parameters
    ----------
    dtype
        Of the tensors.
    lanes
        Rows of one group.

    Examples
    --------
    >>> MicroPanel("float64", 8).name("copy")
    'copy_float64_8'
    """

    dtype: str
    lanes: int

    def name(self, kind: str) -> str:
        """Return the symbol of a kernel of one of `KINDS`."""
        return f"{kind}_{self.dtype}_{self.lanes}"


def emit_packers(module: ir.Module, strip: MicroPanel) -> list[ir.Function]:
    """Add the packing kernels of one kind of strip to a module.

    Examples
    --------
    >>> [f.name for f in emit_packers(ir.Module(), MicroPanel("float64", 4))][:3]
    ['copy_float64_4', 'turn_sums_float64_4', 'turn_rows_float64_4']
    """
    together = short_block(strip.lanes, np.dtype(strip.dtype).itemsize)
    return [
        _Packer(module, strip, "copy").copy(),
        _Packer(module, strip, "turn_sums").turn_sums(strip.lanes),
        _Packer(module, strip, "turn_rows").turn_rows(strip.lanes),
        _Packer(module, strip, "gather").gather(),
        _Packer(module, strip, "few_sums").turn_sums(together),
        _Packer(module, strip, "few_rows").turn_rows(together),
        _Packer(module, strip, "even_rows").turn_rows(strip.lanes, even=True),
    ]


class _Packer:
    """One packing kernel while it is written."""

    def __init__(self, module: ir.Module, strip: MicroPanel, kind: str) -> None:
        signature = ir.FunctionType(ir.VoidType(), (INT64,))
        self.function = ir.Function(module, signature, strip.name(kind))
        self.function.attributes.add("nounwind")
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        self.frame = self.function.args[0]
        self.lanes = strip.lanes
        number = real_of(strip.dtype)
        self.parts = 1 if number == strip.dtype else 2
        self.size = 64 // lanes(number, 512)
        self.step = self.size * self.lanes * self.parts
        self.kind = vectors.vector_type(number, 8 * self.step)

    def field(self, name: str) -> ir.Value:
        return self.integer(self.frame, INT64(FIELDS.index(name)))

    def integer(self, table: ir.Value, index: ir.Value) -> ir.Value:
        where = vectors.to_pointer(self.builder, table, self.builder.mul(index, INT64(8)))
        return self.builder.load(where, typ=INT64, align=8)

    def end(self) -> ir.Function:
        self.builder.ret_void()
        return self.function

    def copy(self) -> ir.Function:
        builder = self.builder
        source, target, strip = (self.field(n) for n in ("source", "target", "strip"))
        rows, sums, groups = (self.field(n) for n in ("rows", "sums", "groups"))
        first = self.field("first")

        def at_k(trip: ir.Value) -> None:
            k = builder.add(first, trip)
            near = builder.add(source, self.integer(sums, k))
            soon = builder.add(
                source, self.integer(sums, self.ahead(first, trip, self.field("count")))
            )
            far = builder.add(target, builder.mul(k, INT64(self.step)))

            def move(group: ir.Value) -> None:
                row = self.integer(rows, group)
                vectors.prefetch(builder, vectors.to_pointer(builder, soon, row))
                place = vectors.to_pointer(builder, near, row)
                value = vectors.load(builder, place, self.kind, self.size)
                where = vectors.to_pointer(builder, far, builder.mul(group, strip))
                vectors.store(builder, value, where, min(self.step, 64))

            vectors.repeat(builder, groups, move)

        vectors.repeat(builder, self.field("count"), at_k)
        return self.end()

    def ahead(
        self, first: ir.Value, trip: ir.Value, trips: ir.Value, steps: int = PACK_PREFETCH_STEPS
    ) -> ir.Value:
        """Return the number of the entry so many trips later, or of the last one."""
        builder = self.builder
        later = builder.add(trip, INT64(steps))
        last = builder.sub(trips, INT64(1))
        return builder.add(
            first, builder.select(builder.icmp_signed("<", later, last), later, last)
        )

    def _expect(self, sources: Sequence[ir.Value], offset: ir.Value, *, near: bool = True) -> None:
        """Have the lines at an offset from each source fetched."""
        for source in sources:
            place = vectors.to_pointer(self.builder, source, offset)
            vectors.prefetch(self.builder, place, near=near)

    def _lanes_from(self, base: ir.Value) -> list[ir.Value]:
        rows = self.field("rows")
        return [
            self.builder.add(base, self.integer(rows, INT64(lane))) for lane in range(self.lanes)
        ]

    def _block(self, sources: Sequence[ir.Value], targets: Sequence[ir.Value]) -> None:
        """Load as many elements as there are targets from each source, and store transposed."""
        builder, count = self.builder, len(targets)
        kind = ir.VectorType(self.kind.element, count * self.parts)
        loaded = [
            vectors.load(builder, vectors.to_pointer(builder, place), kind, self.size)
            for place in sources
        ]
        # Vectors of pieces of every so many rows: transposing each piece brings rows in order.
        wide = [vectors.concatenate(builder, loaded[at::count]) for at in range(count)]
        turned = vectors.transpose_vectors(builder, wide, self.parts)
        for value, place in zip(turned, targets, strict=True):
            vectors.store(builder, value, vectors.to_pointer(builder, place), min(self.step, 64))

    def turn_sums(self, length: int) -> ir.Function:
        """Emit blocks of so many steps of one group.

        Meanwhile the next group's lines are brought to the second cache. Each row is a stream that
        ends with the segment: before hardware follows it, it is over.
        """
        builder = self.builder
        places = self._lanes_from(self.field("source"))
        target, sums, steps = (self.field(n) for n in ("target", "sums", "steps"))
        source, later, first = (self.field(n) for n in ("source", "later", "first"))

        then = [self.integer(later, INT64(lane)) for lane in range(self.lanes)]
        count = self.field("count")

        def ask(trip: ir.Value, offset: ir.Value) -> None:
            soon = builder.mul(self.ahead(first, trip, count), INT64(length))
            self._expect(places, self.integer(sums, self.integer(steps, soon)))
            self._expect(then, builder.add(source, offset), near=False)

        size = length * self.size * self.parts

        def blocks(begin: ir.Value, together: int) -> None:
            """Emit some blocks, and ask once for those that follow each other in the source."""
            follows = None
            for at in range(together):
                trip = builder.add(begin, INT64(at))
                entry = builder.mul(builder.add(first, trip), INT64(length))
                ks = [self.integer(steps, builder.add(entry, INT64(i))) for i in range(length)]
                offset = self.integer(sums, ks[0])
                if follows is None:
                    ask(trip, offset)
                else:
                    apart = builder.icmp_signed("!=", offset, follows)
                    with builder.if_then(apart, likely=False):
                        ask(trip, offset)
                follows = builder.add(offset, INT64(size))
                self._block(
                    [builder.add(place, offset) for place in places],
                    [builder.add(target, builder.mul(k, INT64(self.step))) for k in ks],
                )

        line = max(1, LINE_BYTES // size)
        lines = builder.udiv(count, INT64(line))
        done = builder.mul(lines, INT64(line))
        vectors.repeat(builder, lines, lambda trip: blocks(builder.mul(trip, INT64(line)), line))
        if line > 1:
            rest = builder.sub(count, done)
            vectors.repeat(builder, rest, lambda trip: blocks(builder.add(done, trip), 1))
        return self.end()

    def turn_rows(self, length: int, *, even: bool = False) -> ir.Function:
        """Emit blocks of so many groups in the inner loop.

        Their sources are neighbours, those of k are not. So hardware follows the blocks, but not
        the step to the next k: its lines are asked for, a line of each lane with each block. They
        go to the second cache, as lanes are often so far apart that all of them fall into one set
        of the nearest.

        Where all is even, addresses are worked out from the first two. The fewer instructions a
        block takes, the more blocks a CPU begins while it waits for the lines of one (measured on
        a Zen 4, `abcde-ecbfa-fd` in float32: 8.6 and 7.5 cycles a line).
        """
        builder = self.builder
        source, target, strip = (self.field(n) for n in ("source", "target", "strip"))
        rows, sums, steps = (self.field(n) for n in ("rows", "sums", "steps"))
        first = self.field("first")
        blocks, low = self.field("groups"), self.field("lanes")

        def some(table: ir.Value, begin: ir.Value, count: int) -> list[ir.Value]:
            """Return so many entries of a table, or those that tell the others."""
            known = min(count, 2) if even else count
            return [self.integer(table, builder.add(begin, INT64(at))) for at in range(known)]

        def places(base: ir.Value, offsets: Sequence[ir.Value], count: int) -> list[ir.Value]:
            if even:
                return self._evenly(base, offsets, count)
            return [builder.add(base, offset) for offset in offsets]

        def at_k(trip: ir.Value) -> None:
            k = builder.add(first, trip)
            near = builder.add(source, self.integer(sums, k))
            soon = self.ahead(first, trip, self.field("count"), 1)
            soon = builder.add(source, self.integer(sums, soon))
            far = builder.add(target, builder.mul(k, INT64(self.step)))

            def turn(number: ir.Value) -> None:
                entry = builder.mul(builder.add(low, number), INT64(length))
                groups = some(steps, entry, length)
                lanes = some(rows, builder.mul(groups[0], INT64(self.lanes)), self.lanes)
                strips = [builder.mul(group, strip) for group in groups]
                self._expect(places(soon, lanes, self.lanes), INT64(0), near=False)
                self._block(places(near, lanes, self.lanes), places(far, strips, length))

            vectors.repeat(builder, blocks, turn)

        vectors.repeat(builder, self.field("count"), at_k)
        return self.end()

    def _evenly(self, base: ir.Value, ends: Sequence[ir.Value], count: int) -> list[ir.Value]:
        """Return so many addresses one distance apart, given the first two's offsets from a base.

        The compiler must not see how every fourth comes about: else it holds each address in a
        register of its own, of which there are too few.
        """
        builder, first = self.builder, ends[0]
        at, found = builder.add(base, first), []
        apart = builder.sub(ends[-1], first)
        twice, thrice = (builder.mul(apart, INT64(times)) for times in (2, 3))
        for lane in range(count):
            if lane and lane % 4 == 0:
                at = vectors.hide_origin(builder, builder.add(at, builder.mul(apart, INT64(4))))
            found.append(builder.add(at, (INT64(0), apart, twice, thrice)[lane % 4]))
        return found

    def gather(self) -> ir.Function:
        builder = self.builder
        source, target, rows = (self.field(n) for n in ("source", "target", "rows"))
        sums, steps, first = (self.field(n) for n in ("sums", "steps", "first"))
        count, found = self.field("count"), self.field("lanes")
        scalar = self.kind.element
        pitch = self.size * self.parts

        def at_k(trip: ir.Value) -> None:
            k = self.integer(steps, builder.add(first, trip))
            soon = self.integer(steps, self.ahead(first, trip, count))
            soon = builder.add(source, self.integer(sums, soon))
            near = builder.add(source, self.integer(sums, k))
            far = builder.add(target, builder.mul(k, INT64(self.step)))

            def move(lane: ir.Value) -> None:
                row = self.integer(rows, lane)
                vectors.prefetch(builder, vectors.to_pointer(builder, soon, row))
                place = builder.add(near, row)
                where = builder.add(far, builder.mul(lane, INT64(pitch)))
                for part in range(self.parts):
                    at = part * self.size
                    value = builder.load(
                        vectors.to_pointer(builder, place, at), typ=scalar, align=self.size
                    )
                    builder.store(value, vectors.to_pointer(builder, where, at), align=self.size)

            def clear(missing: ir.Value) -> None:
                lane = builder.add(found, missing)
                where = builder.add(far, builder.mul(lane, INT64(pitch)))
                for part in range(self.parts):
                    at = vectors.to_pointer(builder, where, part * self.size)
                    builder.store(ir.Constant(scalar, 0.0), at, align=self.size)

            vectors.repeat(builder, found, move)
            vectors.repeat(builder, builder.sub(INT64(self.lanes), found), clear)

        vectors.repeat(builder, count, at_k)
        return self.end()
