"""The lowering of a program's parts: loops, buffers, guards, and what is computed in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.kernels.programs.accesses import Target
from tilesolve.kernels.programs.bounds import (
    Trips,
    block_of,
    check_written_out,
    count_trips,
    range_of,
    tiles_within,
    without_needless_bounds,
)
from tilesolve.kernels.programs.computing import emit_compute, emit_start
from tilesolve.kernels.programs.conditions import holding, within
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.holds import emit_hold, held_place
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.kernels.programs.phases import buffer_strides
from tilesolve.kernels.programs.program import (
    Barrier,
    Buffer,
    Compute,
    Guard,
    Hold,
    Loop,
    Node,
    Start,
)
from tilesolve.kernels.programs.range_checks import updates_rows
from tilesolve.kernels.programs.scope import (
    Place,
    Scope,
    Trip,
    both,
    emit_extreme,
    emit_position,
    enter_trip,
    full_loop,
)
from tilesolve.kernels.programs.spread_updates import spread_updates, update_in_turns
from tilesolve.kernels.programs.vector_loops import (
    emit_vector_loop,
    find_past_caches,
    is_ragged,
    keep_positions,
    lanes_of,
    stages_of,
)

Body = Sequence[Node]


@dataclass(slots=True)
class Lowering:
    """The walk over the parts of a program that emits each of them.

    Parameters
    ----------
    emitter
        Where to write.
    buffers
        The memory of each buffer, by its identity.
    share
        The number of this thread's part, and of how many: of the trips of loops of threads.
    written_out
        Whether loops may be written out; not amid trips that are left over.
    depth
        Loops around.
    tables
        Those that updates go to in turn; none where they are not spread.
    """

    emitter: Emitter
    buffers: Mapping[int, ir.Value]
    share: tuple[ir.Value, ir.Value]
    written_out: bool = True
    depth: int = field(default=0)
    tables: Sequence[Target] = ()

    def emit(self, body: Body, scope: Scope) -> None:
        """Emit some parts in order."""
        for node in body:
            match node:
                case Loop():
                    self._loop(node, scope)
                case Compute(stage=stage):
                    emit_compute(self.emitter, stage, scope, non_temporal=False)
                case Start(stage=stage):
                    emit_start(self.emitter, stage, scope)
                case Hold():
                    emit_hold(self.emitter, node, scope, self.emit)
                case Guard():
                    self._guard(node, scope)
                case Buffer():
                    self._buffer(node, scope)
                case Barrier():
                    raise SpecError("a barrier stands between parts of a program, not within them")

    def _loop(self, loop: Loop, scope: Scope) -> None:
        if self.emitter.held_stage is not None and held_place(self.emitter, loop, scope, self.emit):
            return
        loop = without_needless_bounds(loop, scope.ranges)
        if not (self.tables or self.depth) and (spread := self._spread(loop)) is not None:
            with spread_updates(self.emitter, spread, scope) as self.tables:
                self._loop(loop, scope)
            self.tables = ()
            return
        match loop.kind:
            case "vector" if not self._single(loop):
                self._vector(loop, scope)
            case "unrolled" if self.written_out:
                self._unrolled(loop, scope)
            case "threads":
                self._trips(loop, scope, self.share)
            case _:
                self._serial(loop, scope)

    def _vector(self, loop: Loop, scope: Scope) -> None:
        """Emit a vector loop, in pieces if an interrupt would wait for it."""
        piece = lanes_of(self.emitter, loop) * tuning.UNINTERRUPTED_VECTORS
        outer = self.depth < tuning.INTERRUPTED_LOOPS and self.emitter.held_stage is None
        if outer and count_trips(loop, scope.ranges).most > piece:
            self._trips(_in_pieces(loop, piece), scope, None)
            return
        with self.emitter.inside():
            keep_positions(self.emitter, loop, scope)
            emit_vector_loop(self.emitter, loop, scope, (), self.emit)

    def _single(self, loop: Loop) -> bool:
        """Return whether a loop computes what goes one by one: updates of elements."""
        stages = map(self.emitter.stage, stages_of(loop.body))
        return any(one.update is not None and not updates_rows(one, loop.name) for one in stages)

    def _serial(self, loop: Loop, scope: Scope) -> None:
        """Emit a loop trip by trip, in pieces between which an interrupt is looked for if short."""
        piece = tuning.UNINTERRUPTED_VECTORS
        outer = self.depth < tuning.INTERRUPTED_LOOPS and self.emitter.held_stage is None
        many = loop.step == 1 and count_trips(loop, scope.ranges).most > piece
        if outer and many and _short_trips(loop, scope):
            loop = _in_pieces(loop, piece)
        if tables := self._update_tables(loop):
            low, rest = update_in_turns(self.emitter, loop, scope, tables)
            self._run(loop, scope, low, rest)
        else:
            self._trips(loop, scope, None)

    def _update_tables(self, loop: Loop) -> Sequence[Target]:
        """Return where updates of a loop go in turn, several a trip; none if it has no updates."""
        node = loop.body[0]
        if not isinstance(node, Compute) or loop.step > 1:
            return ()
        stage = self.emitter.stage(node.stage)
        if stage.update is None or len(stage.term.all) > tuning.MAX_TRIPS_WRITTEN_OUT:
            return ()
        return self.tables or [self.emitter.targets[stage.name]] * tuning.UPDATE_TABLES

    def _spread(self, loop: Loop) -> int | None:
        """Return the stage of a loop whose updates are spread, if it computes no other."""
        stages = list(stages_of(loop.body))
        found = [number for number, _ in self.emitter.skeleton.spread if stages == [number]]
        return found[0] if found else None

    def _trips(self, loop: Loop, scope: Scope, share: tuple[ir.Value, ir.Value] | None) -> None:
        """Emit a loop that runs trip by trip, or a thread's part of it."""
        builder = self.emitter.builder
        low = emit_extreme(builder, loop.low, scope, ">")
        high = emit_extreme(builder, loop.high, scope, "<")
        step = emit_position(builder, loop.pace, scope).value(builder)
        length = builder.sub(high.value(builder), low.value(builder))
        count = length
        if loop.step > 1:
            count = builder.sdiv(builder.add(length, builder.sub(step, INT64(1))), step)
        begin: ir.Value = INT64(0)
        if share is not None:
            count = vectors.extreme(builder, ">", count, INT64(0))
            begin, end = (
                builder.udiv(builder.mul(count, part), share[1])
                for part in (share[0], builder.add(share[0], INT64(1)))
            )
            count = builder.sub(end, begin)
        elif self.emitter.held_stage is not None and has_lanes(loop):
            short = builder.icmp_signed("<", length, step)
            whole = builder.select(short, INT64(0), builder.sdiv(length, step))
            self._run(whole_tiles(loop), scope, low, (INT64(0), whole))
            begin, count = whole, builder.sub(count, whole)
        self._run(loop, scope, low, (begin, count))

    def _run(self, loop: Loop, scope: Scope, low: Place, trips: tuple[ir.Value, ir.Value]) -> None:
        """Emit trips of a loop: from which number on, and how many."""
        emitter, builder = self.emitter, self.emitter.builder
        values, step = range_of(loop, scope.ranges), emit_position(builder, loop.pace, scope)
        begin, count = trips
        keys, most = list(emitter.held), count_trips(loop, scope.ranges).most
        brief = most <= tuning.UNINTERRUPTED_VECTORS and _short_trips(loop, scope)

        def trip(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            emitter.held = dict(zip(keys, carried, strict=True))
            number = builder.add(begin, index)
            moved = builder.mul(number, step.value(builder)) if loop.step > 1 else number
            place = Place(builder.add(moved, low.value(builder)))
            self.depth += 1
            outer = self.depth <= tuning.INTERRUPTED_LOOPS and emitter.held_stage is None
            if outer and not brief:
                self._heed_stop()
            tiles = tiles_within(loop, scope.tiles)
            with emitter.inside():
                self.emit(loop.body, replace(scope.at(loop.name, place, values), tiles=tiles))
            self.depth -= 1
            return list(emitter.held.values())

        found = vectors.emit_loop(builder, count, list(emitter.held.values()), trip)
        emitter.held = dict(zip(keys, found, strict=True))

    def _heed_stop(self) -> None:
        """Return from the function if the run is to end."""
        builder = self.emitter.builder
        word = builder.load_atomic(self.emitter.stop, "monotonic", 8, typ=INT64)
        with builder.if_then(builder.icmp_signed("!=", word, INT64(0)), likely=False):
            builder.ret_void()

    def _unrolled(self, loop: Loop, scope: Scope) -> None:
        """Emit all trips one after another, or a loop where some are missing."""
        chain, inner = block_of(loop, scope.ranges)
        if inner is not None and self._is_block(inner, scope):
            self._block(chain, inner, scope)
            return
        count = check_written_out(loop, scope.ranges, tuning.MAX_TRIPS_WRITTEN_OUT)
        exact = count_trips(loop, scope.ranges).exact
        low = emit_extreme(self.emitter.builder, loop.low, scope, ">")

        def whole() -> None:
            for number in range(count):
                self.emit(loop.body, enter_trip(loop, scope, low, Trip(number, count)))

        self._whole_or_not([(loop, scope, Trips(count, exact))], whole, (loop,), scope)

    def _is_block(self, inner: Loop, scope: Scope) -> bool:
        """Return whether a vector loop computes all rows of loops written out around it at once."""
        if self._single(inner) or self.emitter.held_stage is not None:
            return False
        return not is_ragged(inner, scope) or find_past_caches(self.emitter, inner) is None

    def _block(self, chain: Sequence[Loop], inner: Loop, scope: Scope) -> None:
        """Emit loops that are written out around a vector loop, within the loop over vectors."""
        builder = self.emitter.builder
        scopes, needed = [scope], []
        for loop in chain:
            count = check_written_out(loop, scopes[0].ranges, tuning.MAX_TRIPS_WRITTEN_OUT)
            needed.append(
                (loop, scopes[0], Trips(count, count_trips(loop, scopes[0].ranges).exact))
            )
            low = emit_extreme(builder, loop.low, scope, ">")
            scopes = [
                enter_trip(loop, one, low, Trip(number, count))
                for one in scopes
                for number in range(count)
            ]

        if not scopes:  # a letter has no values
            return

        def whole() -> None:
            emit_vector_loop(self.emitter, inner, scope, scopes, self.emit)

        self._whole_or_not(needed, whole, (chain[0],), scope)

    def _whole_or_not(
        self,
        needed: Sequence[tuple[Loop, Scope, Trips]],
        whole: Callable[[], None],
        otherwise: Body,
        scope: Scope,
    ) -> None:
        """Emit code for loops that have all their trips, and other code where they have not."""
        builder, emitter = self.emitter.builder, self.emitter
        found: ir.Value | None = None
        for loop, around, trips in needed:
            if trips.exact:
                continue
            missing = full_loop(builder, loop, around, trips.most)
            found = both(builder, found, missing)
        if found is None:
            whole()
            return
        with branches(emitter, found) as (yes, no):
            with yes:
                whole()
            with no:
                before, self.written_out = self.written_out, False
                self.emit(otherwise, scope)
                self.written_out = before

    def _guard(self, guard: Guard, scope: Scope) -> None:
        emitter, builder = self.emitter, self.emitter.builder
        if scope.lanes is not None or emitter.held_stage is not None:
            self.emit(guard.body, within(builder, guard.conditions, scope))
            return
        holds = holding(builder, guard.conditions, scope)
        if holds is None:
            self.emit(guard.body, scope)
            return
        with builder.if_then(holds), emitter.inside():
            self.emit(guard.body, scope)

    def _buffer(self, buffer: Buffer, scope: Scope) -> None:
        emitter = self.emitter
        target = buffer_target(emitter, buffer, self.buffers[id(buffer)], scope)
        before, depth = emitter.targets.get(buffer.name), self.depth
        emitter.targets[buffer.name] = target
        self.depth = min(depth, tuning.INTERRUPTED_LOOPS - 1)  # each trip may be long
        self.emit(buffer.body, scope)
        self.depth = depth
        if before is None:
            del emitter.targets[buffer.name]
        else:
            emitter.targets[buffer.name] = before


def buffer_target(emitter: Emitter, buffer: Buffer, base: ir.Value, scope: Scope) -> Target:
    """Return a buffer as an array of the thread's own."""
    dtype = emitter.skeleton.dtypes[buffer.name]
    last = len(buffer.shape) - 1
    return Target(
        buffer.name,
        dtype,
        base,
        buffer_strides(buffer, np.dtype(dtype).itemsize),
        last if last >= 0 else None,
        tuple(emit_position(emitter.builder, one, scope) for one in buffer.origin),
        None if buffer.ring is None else (buffer.ring, buffer.shape[buffer.ring]),
    )


def has_lanes(loop: Loop) -> bool:
    """Return whether a loop is one over tiles that vectors lie along."""
    inner = (node for node in list_nodes(loop.body) if isinstance(node, Loop))
    return any(one.kind == "vector" and Affine.letter(loop.name) in one.low for one in inner)


def whole_tiles(loop: Loop) -> Loop:
    """Return a loop over tiles of which none is cut short, so that what is in them ends with them.

    Examples
    --------
    >>> tile, end = Affine.letter("tile"), Affine.letter("n")
    >>> row = Loop("x", (tile,), (tile + 16, end), (Compute(0),))
    >>> (inner,) = whole_tiles(Loop("tile", (Affine.number(0),), (end,), (row,), 16)).body
    >>> [str(one) for one in inner.high]
    ['tile+16']
    """
    end = Affine.letter(loop.name) + loop.pace

    def within(node: Node) -> Node:
        if isinstance(node, Loop) and end in node.high:
            kept = tuple(one for one in node.high if one not in loop.high)
            return replace(node, high=kept, body=tuple(map(within, node.body)))
        if isinstance(node, Loop | Guard):
            return replace(node, body=tuple(map(within, node.body)))
        return node

    return replace(loop, body=tuple(map(within, loop.body)))


def _short_trips(loop: Loop, scope: Scope) -> bool:
    """Return whether a trip of a loop takes so little that interrupts are not looked for in each.

    It computes a point, or runs a short loop over points.
    """
    inner = [node for node in list_nodes(loop.body) if isinstance(node, Loop)]
    if len(inner) >= tuning.INTERRUPTED_LOOPS:
        return False
    ranges = {**scope.ranges, loop.name: range_of(loop, scope.ranges)}
    return all(count_trips(one, ranges).most <= tuning.MAX_SIZE_IN_CODE for one in inner)


def _in_pieces(loop: Loop, step: int) -> Loop:
    """Return a loop as one over pieces of so many trips."""
    name = f"{loop.name}_{step}"
    begin = Affine.letter(name)
    inner = replace(loop, low=(begin,), high=(begin + step, *loop.high))
    return Loop(name, loop.low, loop.high, (inner,), step)


@contextmanager
def branches(emitter: Emitter, condition: ir.Value) -> Iterator[tuple[Any, Any]]:
    """Emit two ways, behind which elements that are held are those of the way taken."""
    builder, before = emitter.builder, dict(emitter.held)
    results: list[tuple[dict[Any, ir.Value], ir.Block]] = []

    @contextmanager
    def way(block: Any) -> Iterator[None]:
        with block, emitter.inside():
            emitter.held = dict(before)
            yield
            results.append((emitter.held, builder.block))

    with builder.if_else(condition, likely=True) as (yes, no):
        yield way(yes), way(no)
    merged = {}
    for key in before:
        phi = builder.phi(before[key].type)
        for held, block in results:
            phi.add_incoming(held[key], block)
        merged[key] = phi
    emitter.held = merged
