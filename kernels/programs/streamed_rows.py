"""Rows that a vector loop stores: whole lines, and past the caches where runs of them are long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.arithmetic import BIT
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.kernels.programs.accesses import Target, emit_pointer, to_bytes
from tilesolve.kernels.programs.computing import stage_value
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.program import Loop
from tilesolve.kernels.programs.scope import Place, Scope, emit_extreme, emit_position

Store = Callable[[int, Scope], bool]
"""Emits a stage at one vector, and its store, if it is one that this stores; returns whether it
is."""

Part = Callable[[Place, ir.Value | None, Store | None], None]
"""Emits what a loop computes at one vector: where it begins, the mask of its lanes, and what is
stored in another way than usual."""

Run = Callable[[ir.Value, ir.Value, int | None], ir.Value]
"""Emits the whole vectors between two distances from where a loop begins, and the stage whose are
written past the caches; returns where they end."""


@dataclass(frozen=True, slots=True)
class StreamedRows:
    """The rows that a vector loop writes past the caches: one, or those of a block.

    Parameters
    ----------
    emitter, loop, stage, scope, lanes
        What is emitted.
    in_block
        Whether there is a row for each point of a block around.
    whole
        Whether rows consist of whole elements that lie alike in vectors.
    """

    emitter: Emitter
    loop: Loop
    stage: int
    scope: Scope
    lanes: int
    in_block: bool
    whole: ir.Value

    @classmethod
    def of(
        cls,
        emitter: Emitter,
        what: tuple[Loop, int, int],
        scope: Scope,
        low: Place,
        *,
        in_block: bool,
    ) -> Self:
        """Emit what is to be known of rows that begin at a place: of a loop, a stage and lanes."""
        builder, (loop, stage, lanes) = emitter.builder, what
        found = cls(emitter, loop, stage, scope, lanes, in_block, BIT(1))
        rest = builder.and_(found._amid(low), INT64(found.target.itemsize - 1))
        whole = builder.icmp_signed("==", rest, INT64(0))
        if in_block:
            aligned = rows_aligned(builder, found.target, lanes * found.target.itemsize)
            whole = builder.and_(whole, aligned)
        return replace(found, whole=whole)

    @property
    def target(self) -> Target:
        """The array."""
        return self.emitter.targets[self.emitter.stage(self.stage).name]

    def count_to_line(self, place: Place) -> ir.Value:
        """Emit how many elements lie between a place and the next vector that begins a line."""
        builder, size = self.emitter.builder, self.target.itemsize
        apart = builder.sub(INT64(0), self._amid(place))
        return builder.udiv(builder.and_(apart, INT64(self.lanes * size - 1)), INT64(size))

    def _amid(self, place: Place) -> ir.Value:
        """Emit the bytes between where a vector begins and a place."""
        at = self.scope.at(self.loop.name, place)
        where = self._address(at, rows=not self.in_block)
        return self.emitter.builder.and_(where, INT64(self.lanes * self.target.itemsize - 1))

    def _address(self, scope: Scope, *, rows: bool = True) -> ir.Value:
        """Emit the address of what is written first, or of as much along the unit axis alone."""
        builder, target = self.emitter.builder, self.target
        places = [
            emit_position(builder, one, scope)
            if isinstance(one, Affine) and (rows or axis == target.unit)
            else Place(None)
            for axis, one in enumerate(self.emitter.stage(self.stage).axes)
        ]
        return builder.ptrtoint(emit_pointer(builder, target, places), INT64)

    def give_to_next(self, low: Place, high: Place) -> tuple[Place, Place]:
        """Return where a tile of rows begins and ends if it leaves parts of lines to the next one.

        All tiles but the first begin with a line then, so that each line is written as a whole.
        """
        builder, scope = self.emitter.builder, self.scope
        name = self.loop.low[0].plain or ""
        tile = scope.tiles.get(name) if len(self.loop.low) == 1 else None
        if tile is None:
            return low, high
        others = [one for one in self.loop.high if one != Affine.letter(name) + tile.pace]
        if len(others) == len(self.loop.high) or any(name in one.letters for one in others):
            return low, high
        begin = scope.places[name]
        end = emit_position(builder, Affine.letter(name) + tile.pace, scope)
        step = emit_position(builder, tile.pace, scope).value(builder)
        short = builder.icmp_signed("<", step, INT64(self.lanes))
        fixed = builder.or_(short, builder.not_(self.whole))

        def move(place: Place, stays: ir.Value) -> Place:
            """Emit where a place goes unless it stays."""
            stays = builder.or_(stays, fixed)
            value = place.value(builder)
            line = builder.add(value, self.count_to_line(place))
            return Place(builder.select(stays, value, line))

        first = emit_extreme(builder, tile.low, scope, ">").value(builder)
        last = emit_extreme(builder, tile.high, scope, "<").value(builder)
        low = move(begin, builder.icmp_signed("==", begin.value(builder), first))
        high = move(end, builder.icmp_signed(">=", end.value(builder), last))
        for one in others:
            bound = emit_position(builder, one, scope).value(builder)
            value = high.value(builder)
            high = Place(vectors.extreme(builder, "<", value, bound))
        return low, high

    def emit(self, low: Place, extent: ir.Value, part: Part, run: Run) -> None:
        """Emit the loop over a row: whole vectors that begin where lines do, and both its ends.

        Where runs are short, or rows lie apart by no whole vectors in a block, all go through the
        caches. The code of a block is larger: both ways share its ends.
        """
        builder, none = self.emitter.builder, INT64(0)
        streams = builder.and_(self.whole, self._runs_long(low, extent))
        if not self.in_block:
            row = partial(self._emit_row, low, extent, part, run)
            near = partial(self.emit_through_caches, low, extent, part, run)
            self.emitter.branch(streams, row, near)
            return
        head = self._head(low, extent, streams)
        past = run(head, builder.select(streams, extent, none), self.stage)
        done = run(head, builder.select(streams, none, extent), None)
        done = builder.select(streams, past, done)
        emit_ends(builder, self.lanes, (low, extent), (head, done), part)

    def emit_through_caches(self, low: Place, extent: ir.Value, part: Part, run: Run) -> None:
        """Emit the same through the caches, which store what crosses lines as two parts.

        Short rows have code of their own, if that is short: they need not look where lines begin.
        """
        builder, none = self.emitter.builder, INT64(0)

        def emit_long() -> None:
            head = self._head(low, extent, BIT(0))
            done = run(head, extent, None)
            emit_ends(builder, self.lanes, (low, extent), (head, done), part)

        def emit_short() -> None:
            done = run(none, extent, None)
            left = builder.sub(extent, done)
            emit_first_lanes(builder, self.lanes, (low, done, left), part)

        parts = len(self.emitter.stage(self.stage).term.all)
        if self.in_block or parts > tuning.MAX_SHORT_ROW_PARTS:
            emit_long()
        else:
            self.emitter.branch(self._is_long(extent), emit_long, emit_short)

    def _head(self, low: Place, extent: ir.Value, streams: ir.Value) -> ir.Value:
        """Emit how many elements of a row lie before its first whole vector.

        It begins a line where rows go past the caches, or are long and begin alike.
        """
        builder = self.emitter.builder
        begins = builder.or_(streams, builder.and_(self.whole, self._is_long(extent)))
        head = vectors.extreme(builder, "<", self.count_to_line(low), extent)
        return builder.select(begins, head, INT64(0))

    def _is_long(self, extent: ir.Value) -> ir.Value:
        """Emit whether rows begin with a line where they go through the caches."""
        least = INT64(aligned_vectors(self.in_block) * self.lanes)
        return self.emitter.builder.icmp_signed(">=", extent, least)

    def _emit_row(self, low: Place, extent: ir.Value, part: Part, run: Run) -> None:
        """Emit a row past the caches, of whose first and last line parts belong to other rows."""
        builder = self.emitter.builder
        head = self._head(low, extent, BIT(1))
        done = run(head, extent, self.stage)
        # The first line begins before the row, with lanes that are those of the row before.
        before = builder.sub(INT64(self.lanes), self.count_to_line(low))

        def end(trip: ir.Value) -> None:
            first = builder.icmp_signed("==", trip, INT64(0))
            skipped = builder.select(first, before, INT64(0))
            begin = builder.sub(builder.select(first, INT64(0), done), skipped)
            behind = builder.sub(builder.select(first, head, extent), begin)

            def store(stage: int, scope: Scope) -> bool:
                return self._store_end(stage, scope, (skipped, behind))

            with builder.if_then(builder.icmp_signed(">", behind, skipped)):
                mask = masking.mask_lanes_between(builder, self.lanes, skipped, behind)
                part(Place(builder.add(low.value(builder), begin)), mask, store)

        vectors.repeat(builder, INT64(2), end)

    def _store_end(self, stage: int, scope: Scope, lanes: tuple[ir.Value, ir.Value]) -> bool:
        """Emit an end of a row: it waits for the row that goes on there. Return if it is one."""
        if stage != self.stage:
            return False
        emitter, builder = self.emitter, self.emitter.builder
        value = to_bytes(builder, stage_value(emitter, stage, scope), self.target.dtype)
        waiting = emitter.waiting_part(self.target, self.lanes)
        waiting.join(builder, value, self._address(scope), lanes)
        return True

    def _runs_long(self, low: Place, extent: ir.Value) -> ir.Value:
        """Emit whether runs are so long that the parts of lines at their ends do not matter.

        A run goes on from row to row where neither has anything between them. Those of a block are
        written side by side, and each has its ends. Rows of whole lines have none.
        """
        builder, size = self.emitter.builder, self.target.itemsize
        run = builder.mul(extent, INT64(size))
        ends = builder.or_(self._amid(low), builder.and_(run, INT64(self.lanes * size - 1)))
        whole = builder.icmp_signed("==", ends, INT64(0))
        if self.in_block:
            least = INT64(tuning.MIN_CACHED_ENDS_RUN_BYTES)
            return builder.or_(whole, builder.icmp_signed(">=", run, least))
        pieces = size >= tuning.MIN_NON_TEMPORAL_BYTES
        least = tuning.MIN_STREAMED_RUN_BYTES if pieces else tuning.MIN_CACHED_ENDS_RUN_BYTES
        long = builder.and_(
            builder.icmp_signed(">=", run, INT64(tuning.MIN_STREAMED_ROW_BYTES)),
            builder.icmp_signed(">=", self._join_rows(run), INT64(least)),
        )
        return builder.or_(long, whole)

    def _join_rows(self, run: ir.Value) -> ir.Value:
        """Emit the bytes of a run that goes on from row to row, if they have nothing between them.

        Axes are taken from the last one on, as long as each begins where the one before ends.
        """
        builder, target = self.emitter.builder, self.target
        joins: ir.Value = BIT(1)
        for axis in reversed(range(len(target.strides))):
            position = self.emitter.stage(self.stage).axes[axis]
            if axis == target.unit:
                continue
            letter = position.plain if isinstance(position, Affine) else None
            if letter is None:
                break
            joins = builder.and_(joins, builder.icmp_signed("==", target.step(axis), run))
            extent = emit_position(builder, self.emitter.skeleton.extent(letter), self.scope)
            whole = builder.mul(run, extent.value(builder))
            run = builder.select(joins, whole, run)
        return run


def aligned_vectors(in_block: bool) -> int:
    """Return from how many vectors on a row, or each of a block, begins them at lines."""
    return tuning.ALIGNED_BLOCK_VECTORS if in_block else tuning.ALIGNED_VECTORS


def emit_ends(
    builder: ir.IRBuilder,
    lanes: int,
    row: tuple[Place, ir.Value],
    whole: tuple[ir.Value, ir.Value],
    part: Part,
) -> None:
    """Emit what a row of so many elements has around its whole vectors: both ends are masked."""
    (low, extent), (head, done), none = row, whole, INT64(0)

    def end(trip: ir.Value) -> None:
        last = builder.icmp_signed("==", trip, none)
        begin = builder.select(last, done, none)
        count = builder.select(last, builder.sub(extent, done), head)
        emit_first_lanes(builder, lanes, (low, begin, count), part)

    begins_amid = builder.icmp_signed(">", head, none)
    vectors.repeat(builder, builder.select(begins_amid, INT64(2), INT64(1)), end)


def emit_first_lanes(
    builder: ir.IRBuilder, lanes: int, where: tuple[Place, ir.Value, ir.Value], part: Part
) -> None:
    """Emit the first lanes of a vector: where a row begins, how far from there, and how many."""
    low, begin, count = where
    with builder.if_then(builder.icmp_signed(">", count, INT64(0))):
        mask = masking.mask_first_lanes(builder, lanes, count)
        part(Place(builder.add(low.value(builder), begin)), mask, None)


def rows_aligned(builder: ir.IRBuilder, target: Target, size: int) -> ir.Value:
    """Emit whether all rows of an array lie a multiple of so many bytes apart."""
    found: ir.Value = BIT(1)
    for axis in range(len(target.strides)):
        if axis == target.unit:
            continue
        rest = builder.and_(target.step(axis), INT64(size - 1))
        found = builder.and_(found, builder.icmp_signed("==", rest, INT64(0)))
    return found
