"""Vector loops: whole vectors, and masked ones where a loop begins or ends amid one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.term_values import chains_formulas
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.kernels.programs.bounds import count_trips, range_of
from tilesolve.kernels.programs.byte_halves import computes_in_halves
from tilesolve.kernels.programs.computing import emit_compute, emit_start, vector_lanes
from tilesolve.kernels.programs.conditions import within
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.points_in_step import emit_in_step
from tilesolve.kernels.programs.program import Compute, Guard, Hold, Loop, Node, Start
from tilesolve.kernels.programs.range_checks import range_checks, updates_rows
from tilesolve.kernels.programs.scope import Lanes, Place, Scope, both, emit_extreme
from tilesolve.kernels.programs.streamed_rows import (
    Part,
    Run,
    Store,
    StreamedRows,
    aligned_vectors,
    emit_first_lanes,
)
from tilesolve.kernels.programs.term_emitter import TermEmitter

Emit = Callable[[Sequence[Node], Scope], None]


def stages_of(body: Sequence[Node]) -> Iterator[int]:
    """Return the stages that parts compute or begin, at any depth."""
    for node in body:
        match node:
            case Compute(stage=stage) | Start(stage=stage):
                yield stage
            case Loop(body=inner) | Guard(body=inner) | Hold(body=inner):
                yield from stages_of(inner)


def lanes_of(emitter: Emitter, loop: Loop) -> int:
    """Return how many points a vector loop computes at once."""
    return vector_lanes(emitter.skeleton, list(stages_of(loop.body)), emitter.bits, loop.name)


def _count_vectors(emitter: Emitter, loop: Loop) -> int:
    """Return how many vectors of the widest numbers a vector loop computes at once."""
    stages = [emitter.stage(one) for one in stages_of(loop.body)]
    if any(chains_formulas(one.term) for one in stages):
        return tuning.CHAINED_VECTORS
    return 1 + all(computes_in_halves(one, emitter.dtypes, loop.name) for one in stages)


def keep_positions(emitter: Emitter, loop: Loop, scope: Scope) -> None:
    """Emit computed positions of a loop's stages that are the same in all its trips, and checks.

    Stages with others are left out: their checks stay in order.
    """
    checks = range_checks(emitter.skeleton.stages)
    builder, trips = emitter.builder, count_trips(loop, scope.ranges)
    if not trips.exact or not trips.most:
        low, high = (
            emit_extreme(builder, side, scope, symbol).value(builder)
            for side, symbol in ((loop.low, ">"), (loop.high, "<"))
        )
        runs = builder.icmp_signed("<", low, high)
        scope = replace(scope, active=both(builder, scope.active, runs))
    for node in loop.body:
        if not isinstance(node, Compute):
            continue
        mine = [one for one in checks if one.stage == node.stage]
        if any(loop.name in one.read.subscripts[one.axis].letters for one in mine):
            continue
        for read in dict.fromkeys(one.read for one in mine):
            TermEmitter(emitter, node.stage, scope, keeps=True).checked_places(read)


def emit_vector_loop(
    emitter: Emitter, loop: Loop, scope: Scope, block: Sequence[Scope], emit: Emit
) -> None:
    """Emit a vector loop: in each step one vector, of each point of a block around.

    Where a function of another one's result waits for that, several vectors are one longer one.

    Parameters
    ----------
    emitter
        Where to write.
    loop
        The loop.
    scope
        What surrounds it.
    block
        The scopes of trips that are written out within it; none for that scope itself.
    emit
        Emits other parts.
    """
    if any(not isinstance(node, Compute | Start | Guard) for node in loop.body):
        raise SpecError(f"the vector loop {loop.name} is innermost: it has no loops within it")
    builder, lanes = emitter.builder, lanes_of(emitter, loop)
    if block and is_ragged(loop, scope):
        _emit_ragged(emitter, loop, block, lanes)
        return
    points, trips = list(block) or [scope], count_trips(loop, scope.ranges)
    low = emit_extreme(builder, loop.low, scope, ">")
    high = emit_extreme(builder, loop.high, scope, "<")
    past_caches = find_past_caches(emitter, loop)
    if past_caches is None:
        lanes *= 1 if block else _count_vectors(emitter, loop)
        if trips.exact:
            lanes = min(lanes, 1 << max(trips.most - 1, 0).bit_length())
    rows = None
    if past_caches is not None:
        what = (loop, past_caches, lanes)
        rows = StreamedRows.of(emitter, what, scope, low, in_block=bool(block))
        low, high = rows.give_to_next(low, high)
    extent = builder.sub(high.value(builder), low.value(builder))
    values = range_of(loop, scope.ranges)

    def part(place: Place, mask: ir.Value | None, store: Store | None = None) -> None:
        """Emit one vector of each point: all lanes, or those of a mask."""
        whole(Lanes(loop.name, lanes, mask), place, store)

    def whole(vector: Lanes, place: Place, store: Store | None = None) -> None:
        """Emit one vector of each point."""
        with emitter.inside():
            scopes = [replace(one.at(loop.name, place, values), lanes=vector) for one in points]
            emit_in_step(emitter, loop.body, scopes)
            for inner in scopes:
                _emit_body(emitter, loop.body, inner, store)

    def run(begin: ir.Value, end: ir.Value, past: int | None) -> ir.Value:
        """Emit the whole vectors between two distances, and return where they end."""
        count = builder.sdiv(builder.sub(end, begin), INT64(lanes))
        count = vectors.extreme(builder, ">", count, INT64(0))
        first = builder.add(low.value(builder), begin)

        def store(stage: int, scope: Scope) -> bool:
            """Emit whole lines of the stage that goes past the caches."""
            if stage == past:
                emit_compute(emitter, stage, scope, non_temporal=True)
            return stage == past

        def trip(index: ir.Value) -> None:
            part(Place(builder.add(first, builder.mul(index, INT64(lanes)))), None, store)

        vectors.repeat(builder, count, trip)
        return builder.add(begin, builder.mul(count, INT64(lanes)))

    if rows is not None:
        rows.emit(low, extent, part, run)
    elif updates_alone(emitter, loop):
        _emit_halves(builder, Lanes(loop.name, lanes), (low, extent), (whole, run))
    else:
        _emit_near(emitter, (loop, lanes, bool(block)), scope, (low, extent), part, run)


def _emit_near(
    emitter: Emitter,
    what: tuple[Loop, int, bool],
    scope: Scope,
    row: tuple[Place, ir.Value],
    part: Part,
    run: Run,
) -> None:
    """Emit a row, or those of a block, through the caches, by vectors of so many lanes.

    Whole vectors begin with lines in long rows that are stored.
    """
    (loop, lanes, in_block), (low, extent), none = what, row, INT64(0)
    trips, stored = count_trips(loop, scope.ranges), find_stored(emitter, loop)
    if stored is not None and trips.most >= aligned_vectors(in_block) * lanes:
        rows = StreamedRows.of(emitter, (loop, stored, lanes), scope, low, in_block=in_block)
        rows.emit_through_caches(low, extent, part, run)
    else:
        done = run(none, extent, None)
        if not trips.exact or trips.most % lanes:
            left = emitter.builder.sub(extent, done)
            emit_first_lanes(emitter.builder, lanes, (low, done, left), part)


def _emit_halves(
    builder: ir.IRBuilder,
    lanes: Lanes,
    row: tuple[Place, ir.Value],
    parts: tuple[Callable[[Lanes, Place], None], Run],
) -> None:
    """Emit a row in whole vectors, and the rest in ones of half the lanes, and of half as many.

    An update loads what the last one stored, which is not at hand where a mask stored it.
    """
    (low, extent), (part, run) = row, parts
    done = run(INT64(0), extent, None)
    extent = vectors.extreme(builder, ">", extent, INT64(0))
    while lanes.count > 1:
        lanes = replace(lanes, count=lanes.count // 2)
        left = builder.and_(builder.sub(extent, done), INT64(lanes.count))
        with builder.if_then(builder.icmp_signed("!=", left, INT64(0))):
            part(lanes, Place(builder.add(low.value(builder), done)))
        done = builder.add(done, left)


def updates_alone(emitter: Emitter, loop: Loop) -> bool:
    """Return whether a loop updates elements side by side alone, by a term of moderate length."""
    if len(loop.body) != 1 or not isinstance(node := loop.body[0], Compute):
        return False
    stage = emitter.stage(node.stage)
    return updates_rows(stage, loop.name) and len(stage.term.all) <= tuning.MAX_TRIPS_WRITTEN_OUT


def find_stored(emitter: Emitter, loop: Loop) -> int | None:
    """Return the stage of a loop that computes it alone and stores its vectors side by side.

    What is in buffers begins with vectors, and sums load what they store.
    """
    if len(loop.body) != 1 or not isinstance(node := loop.body[0], Compute):
        return None
    stage = emitter.stage(node.stage)
    target = emitter.targets[stage.name]
    if target.origin or stage.reduction is not None:
        return None
    return node.stage if _lies_along(emitter, node.stage, loop.name) else None


def _lies_along(emitter: Emitter, number: int, letter: str) -> bool:
    """Return whether what a stage stores lies side by side along a letter."""
    stage = emitter.stage(number)
    unit = emitter.targets[stage.name].unit
    along = None if unit is None else stage.axes[unit]
    return isinstance(along, Affine) and along.plain == letter


def is_ragged(loop: Loop, scope: Scope) -> bool:
    """Return whether rows of a block within a scope begin or end a vector loop apart."""
    bounds = (*loop.low, *loop.high)
    return any(x not in scope.places for one in bounds for x in one.letters)


def _emit_ragged(emitter: Emitter, loop: Loop, rows: Sequence[Scope], lanes: int) -> None:
    """Emit a vector loop over rows that begin or end apart.

    Vectors are whole where all rows have them, and each row has a mask of its own elsewhere.
    """
    builder = emitter.builder
    lows, highs = (
        [emit_extreme(builder, side, one, symbol).value(builder) for one in rows]
        for side, symbol in ((loop.low, ">"), (loop.high, "<"))
    )

    def reach(symbol: str, ends: Sequence[ir.Value]) -> ir.Value:
        return reduce(partial(vectors.extreme, builder, symbol), ends)

    begin, end, values = reach("<", lows), reach(">", highs), range_of(loop, rows[0].ranges)

    def count(to: ir.Value, rounded: int, least: ir.Value) -> ir.Value:
        """Emit how many vectors lie before a place, no fewer than some."""
        apart = builder.add(builder.sub(to, begin), INT64(rounded))
        found = builder.sdiv(apart, INT64(lanes))
        return vectors.extreme(builder, ">", found, least)

    every = count(end, lanes - 1, INT64(0))
    first = vectors.extreme(builder, "<", count(reach(">", lows), lanes - 1, INT64(0)), every)
    last = vectors.extreme(builder, "<", count(reach("<", highs), 0, first), every)
    whole = builder.sub(last, first)

    def place(number: ir.Value) -> ir.Value:
        return builder.add(begin, builder.mul(number, INT64(lanes)))

    def emit_whole(index: ir.Value) -> None:
        where = Place(place(builder.add(first, index)))
        scopes = [replace(x.at(loop.name, where, values), lanes=all_lanes) for x in rows]
        with emitter.inside():
            emit_in_step(emitter, loop.body, scopes)
            for inner in scopes:
                _emit_body(emitter, loop.body, inner, None)

    def emit_masked(index: ir.Value) -> None:
        before = builder.icmp_signed("<", index, first)
        where = place(builder.select(before, index, builder.add(index, whole)))
        reached = masking.mask_first_lanes(builder, lanes, builder.sub(end, where))
        with emitter.inside():
            for row, low, high in zip(rows, lows, highs, strict=True):
                own = (builder.sub(one, where) for one in (low, high))
                mask = masking.mask_lanes_between(builder, lanes, *own)
                vector = Lanes(loop.name, lanes, mask, reached)
                inner = replace(row.at(loop.name, Place(where), values), lanes=vector)
                _emit_body(emitter, loop.body, inner, None)

    all_lanes = Lanes(loop.name, lanes)
    vectors.repeat(builder, whole, emit_whole)
    vectors.repeat(builder, builder.sub(every, whole), emit_masked)


def find_past_caches(emitter: Emitter, loop: Loop) -> int | None:
    """Return the first stage of a loop whose results are written past the caches."""
    for node in loop.body:
        if isinstance(node, Compute) and writes_past(emitter, node.stage, loop.name):
            return node.stage
    return None


def writes_past(emitter: Emitter, number: int, letter: str) -> bool:
    """Return whether the vectors of a stage are stored past the caches.

    Those of buffers, and of arrays that other stages read, are not: parts of lines wait before they
    are written.
    """
    stage = emitter.stage(number)
    target = emitter.targets[stage.name]
    if stage.name not in emitter.skeleton.non_temporal:
        return False
    stages = emitter.skeleton.stages
    if target.origin or any(read.array == stage.name for one in stages for read in one.reads):
        return False
    reduces = stage.reduction is not None and emitter.held_stage != number
    return _lies_along(emitter, number, letter) and not reduces


def _emit_body(emitter: Emitter, body: Sequence[Node], scope: Scope, store: Store | None) -> None:
    """Emit what a vector loop computes, at one vector."""
    assert scope.lanes is not None
    for node in body:
        match node:
            case Compute(stage=stage):
                if store is None or not store(stage, scope):
                    emit_compute(emitter, stage, scope, non_temporal=False)
            case Start(stage=stage):
                emit_start(emitter, stage, scope)
            case Guard(conditions=conditions, body=inner):
                _emit_body(emitter, inner, within(emitter.builder, conditions, scope), None)
            case _:
                raise SpecError(f"{type(node).__name__} stands in a vector loop")
