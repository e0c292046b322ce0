"""Vector loops: whole vectors, and masked ones where a loop begins or ends amid one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from llvmlite import ir

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.codegen import vectors
from tilesolve.kernels.codegen.vectors import INT64
from tilesolve.kernels.programs.accesses import Target, emit_pointer
from tilesolve.kernels.programs.arithmetic import BIT
from tilesolve.kernels.programs.bounds import count_trips, range_of
from tilesolve.kernels.programs.computing import emit_compute, emit_start, vector_lanes
from tilesolve.kernels.programs.conditions import within
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.program import Compute, Guard, Hold, Loop, Node, Start
from tilesolve.kernels.programs.scope import Lanes, Place, Scope, emit_extreme, emit_position

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
    return vector_lanes(emitter.program, list(stages_of(loop.body)), emitter.bits)


def emit_vector_loop(
    emitter: Emitter, loop: Loop, scope: Scope, block: Sequence[Scope], emit: Emit
) -> None:
    """Emit a vector loop: in each step one vector, of each point of a block around.

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
    points = list(block) or [scope]
    low = emit_extreme(builder, loop.low, scope, ">")
    high = emit_extreme(builder, loop.high, scope, "<")
    extent = builder.sub(high.value(builder), low.value(builder))
    values = range_of(loop, scope.ranges)
    past_caches = _past_caches(emitter, loop)

    def part(place: Place, count: ir.Value | None, past: int | None = None) -> None:
        """Emit one vector of each point: all lanes, or so many first ones."""
        mask = None
        if count is not None:
            mask = vectors.mask_first_lanes(builder, ir.VectorType(BIT, lanes), count)
        with emitter.inside():
            for point in points:
                inner = replace(
                    point.at(loop.name, place, values), lanes=Lanes(loop.name, lanes, mask)
                )
                _emit_body(emitter, loop.body, inner, past)

    def run(begin: ir.Value, end: ir.Value, past: int | None) -> ir.Value:
        """Emit the whole vectors between two distances, and return where they end."""
        trips = builder.sdiv(builder.sub(end, begin), INT64(lanes))
        trips = builder.select(builder.icmp_signed(">", trips, INT64(0)), trips, INT64(0))
        first = builder.add(low.value(builder), begin)

        def trip(index: ir.Value) -> None:
            moved = builder.mul(index, INT64(lanes))
            part(Place(builder.add(first, moved)), None, past)

        vectors.repeat(builder, trips, trip)
        return builder.add(begin, builder.mul(trips, INT64(lanes)))

    if past_caches is not None:
        _emit_aligned(
            emitter, (loop, past_caches), (scope, bool(block)), (low, extent, lanes), (part, run)
        )
        return
    done = run(INT64(0), extent, None)
    trips = count_trips(loop, scope.ranges)
    if not (trips.exact and trips.most % lanes == 0):
        left = builder.sub(extent, done)
        with builder.if_then(builder.icmp_signed(">", left, INT64(0))):
            part(Place(builder.add(low.value(builder), done)), left)


def _past_caches(emitter: Emitter, loop: Loop) -> int | None:
    """Return the first stage of a loop whose results are written past the caches."""
    for node in loop.body:
        if isinstance(node, Compute) and writes_past(emitter, node.stage, loop.name):
            return node.stage
    return None


def writes_past(emitter: Emitter, number: int, letter: str) -> bool:
    """Return whether the vectors of a stage are stored past the caches."""
    stage = emitter.stage(number)
    target = emitter.targets[stage.name]
    if stage.name not in emitter.program.non_temporal or target.unit is None:
        return False
    along = stage.axes[target.unit]
    reduces = stage.reduction is not None and emitter.held_stage != number
    return isinstance(along, Affine) and along.plain == letter and not reduces


def _emit_aligned(
    emitter: Emitter,
    what: tuple[Loop, int],
    around: tuple[Scope, bool],
    sizes: tuple[Place, ir.Value, int],
    parts: tuple[Any, Any],
) -> None:
    """Emit a loop whose whole vectors begin where lines do, after a masked first one.

    Vectors of a block whose rows lie apart by no whole vectors go through the caches.
    """
    builder = emitter.builder
    (loop, stage), (scope, in_block) = what, around
    (low, extent, lanes), (part, run) = sizes, parts
    target = emitter.targets[emitter.stage(stage).name]
    size = lanes * target.itemsize
    where = _address(emitter, stage, scope.at(loop.name, low), rows=not in_block)
    amid = builder.and_(where, INT64(size - 1))
    rest = builder.and_(amid, INT64(target.itemsize - 1))
    whole = builder.icmp_signed("==", rest, INT64(0))
    if in_block:
        whole = builder.and_(whole, rows_aligned(builder, target, size))
    apart = builder.udiv(
        builder.and_(builder.sub(INT64(0), amid), INT64(size - 1)), INT64(target.itemsize)
    )
    head = builder.select(builder.icmp_signed("<", apart, extent), apart, extent)
    done = run(head, builder.select(whole, extent, INT64(0)), stage)
    # The first and the last vector, or all of them: none is aligned as it should be.
    all_vectors = builder.sdiv(builder.add(extent, INT64(lanes - 1)), INT64(lanes))
    count = builder.select(whole, INT64(2), all_vectors)

    def partial(trip: ir.Value) -> None:
        first = builder.icmp_signed("==", trip, INT64(0))
        usual = builder.mul(trip, INT64(lanes))
        begin = builder.select(whole, builder.select(first, INT64(0), done), usual)
        end = builder.select(builder.and_(whole, first), head, extent)
        left = builder.sub(end, begin)
        with builder.if_then(builder.icmp_signed(">", left, INT64(0))):
            part(Place(builder.add(low.value(builder), begin)), left)

    vectors.repeat(builder, count, partial)


def rows_aligned(builder: ir.IRBuilder, target: Target, size: int) -> ir.Value:
    """Emit whether all rows of an array lie a multiple of so many bytes apart."""
    found: ir.Value = BIT(1)
    for axis, stride in enumerate(target.strides):
        if axis == target.unit:
            continue
        step = INT64(stride) if isinstance(stride, int) else stride
        rest = builder.and_(step, INT64(size - 1))
        found = builder.and_(found, builder.icmp_signed("==", rest, INT64(0)))
    return found


def _address(emitter: Emitter, number: int, scope: Scope, *, rows: bool) -> ir.Value:
    """Emit the address of what a vector loop writes first, or of as much along the unit axis."""
    builder, stage = emitter.builder, emitter.stage(number)
    target = emitter.targets[stage.name]
    places = [
        emit_position(builder, one, scope)
        if isinstance(one, Affine) and (rows or axis == target.unit)
        else Place(None)
        for axis, one in enumerate(stage.axes)
    ]
    return builder.ptrtoint(emit_pointer(builder, target, places), INT64)


def _emit_body(emitter: Emitter, body: Sequence[Node], scope: Scope, past: int | None) -> None:
    """Emit what a vector loop computes, at one vector."""
    builder = emitter.builder
    assert scope.lanes is not None
    for node in body:
        match node:
            case Compute(stage=stage):
                streams = past == stage and scope.lanes.mask is None
                emit_compute(emitter, stage, scope, non_temporal=streams)
            case Start(stage=stage):
                emit_start(emitter, stage, scope)
            case Guard(conditions=conditions, body=inner):
                _emit_body(emitter, inner, within(builder, conditions, scope), past)
            case _:
                raise SpecError(f"{type(node).__name__} stands in a vector loop")
