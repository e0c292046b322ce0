"""Vector loops: whole vectors, and masked ones where a loop begins or ends amid one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.term_values import chains_formulas
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.kernels.programs.bounds import count_trips, range_of
from tilesolve.kernels.programs.computing import emit_compute, emit_start, vector_lanes
from tilesolve.kernels.programs.conditions import within
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.points_in_step import emit_in_step
from tilesolve.kernels.programs.program import Compute, Guard, Hold, Loop, Node, Start
from tilesolve.kernels.programs.range_checks import range_checks
from tilesolve.kernels.programs.scope import Lanes, Place, Scope, both, emit_extreme
from tilesolve.kernels.programs.streamed_rows import Store, StreamedRows, emit_through_caches
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
    points, trips = list(block) or [scope], count_trips(loop, scope.ranges)
    low = emit_extreme(builder, loop.low, scope, ">")
    high = emit_extreme(builder, loop.high, scope, "<")
    past_caches = _past_caches(emitter, loop)
    if past_caches is None:
        stages = map(emitter.stage, stages_of(loop.body))
        if not block and any(chains_formulas(one.term) for one in stages):
            lanes *= tuning.CHAINED_VECTORS
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
        vector = Lanes(loop.name, lanes, mask)
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
            moved = builder.mul(index, INT64(lanes))
            part(Place(builder.add(first, moved)), None, store)

        vectors.repeat(builder, count, trip)
        return builder.add(begin, builder.mul(count, INT64(lanes)))

    if rows is not None:
        rows.emit(low, extent, part, run)
        return
    if trips.exact and trips.most % lanes == 0:
        run(INT64(0), extent, None)
    else:
        emit_through_caches(builder, lanes, (low, extent), part, run)


def _past_caches(emitter: Emitter, loop: Loop) -> int | None:
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
    if stage.name not in emitter.skeleton.non_temporal or target.unit is None:
        return False
    stages = emitter.skeleton.stages
    if target.origin or any(read.array == stage.name for one in stages for read in one.reads):
        return False
    along = stage.axes[target.unit]
    reduces = stage.reduction is not None and emitter.held_stage != number
    return isinstance(along, Affine) and along.plain == letter and not reduces


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
