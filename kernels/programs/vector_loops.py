"""Vector loops: whole vectors, and masked ones where a loop begins or ends amid one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from llvmlite import ir

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.codegen import masking, vectors
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
    past_caches = _past_caches(emitter, loop)
    rows = None
    if past_caches is not None:
        rows = _Rows.of(emitter, (loop, past_caches), scope, low, in_block=bool(block))
        low, high = _give_to_next(rows, low, high)
    extent = builder.sub(high.value(builder), low.value(builder))
    values = range_of(loop, scope.ranges)

    def part(place: Place, count: ir.Value | None, past: int | None = None) -> None:
        """Emit one vector of each point: all lanes, or so many first ones."""
        mask = None
        if count is not None:
            mask = masking.mask_first_lanes(builder, ir.VectorType(BIT, lanes), count)
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

    if rows is not None:
        _emit_aligned(rows, (low, extent), (part, run))
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


@dataclass(frozen=True, slots=True)
class _Rows:
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
        what: tuple[Loop, int],
        scope: Scope,
        low: Place,
        *,
        in_block: bool,
    ) -> Self:
        """Emit what is to be known of rows that begin at a place."""
        builder, lanes = emitter.builder, lanes_of(emitter, what[0])
        found = cls(emitter, *what, scope, lanes, in_block, BIT(1))
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
        where = _address(self.emitter, self.stage, at, rows=not self.in_block)
        return self.emitter.builder.and_(where, INT64(self.lanes * self.target.itemsize - 1))


def _give_to_next(rows: _Rows, low: Place, high: Place) -> tuple[Place, Place]:
    """Return where a tile of rows begins and ends if it leaves parts of lines to the next one.

    All tiles but the first begin with a line then, so that each line is written as a whole.
    """
    builder, scope = rows.emitter.builder, rows.scope
    name = rows.loop.low[0].plain or ""
    tile = scope.tiles.get(name) if len(rows.loop.low) == 1 else None
    if tile is None or tile.step < rows.lanes:
        return low, high
    others = [one for one in rows.loop.high if one != Affine.letter(name) + tile.step]
    if len(others) == len(rows.loop.high) or any(name in one.letters for one in others):
        return low, high
    begin = scope.places[name]
    end = Place(begin.base, begin.offset + tile.step)

    def move(place: Place, stays: ir.Value) -> Place:
        """Emit where a place goes unless it stays."""
        stays = builder.or_(stays, builder.not_(rows.whole))
        value = place.value(builder)
        line = builder.add(value, rows.count_to_line(place))
        return Place(builder.select(stays, value, line))

    first = emit_extreme(builder, tile.low, scope, ">").value(builder)
    last = emit_extreme(builder, tile.high, scope, "<").value(builder)
    low = move(begin, builder.icmp_signed("==", begin.value(builder), first))
    high = move(end, builder.icmp_signed(">=", end.value(builder), last))
    for one in others:
        bound = emit_position(builder, one, scope).value(builder)
        value = high.value(builder)
        high = Place(builder.select(builder.icmp_signed("<", value, bound), value, bound))
    return low, high


def _emit_aligned(rows: _Rows, sizes: tuple[Place, ir.Value], parts: tuple[Any, Any]) -> None:
    """Emit a loop whose whole vectors begin where lines do, after a masked first one.

    Vectors of a block whose rows lie apart by no whole vectors go through the caches.
    """
    builder, whole = rows.emitter.builder, rows.whole
    (low, extent), (part, run) = sizes, parts
    apart = rows.count_to_line(low)
    head = builder.select(builder.icmp_signed("<", apart, extent), apart, extent)
    past = run(head, builder.select(whole, extent, INT64(0)), rows.stage)
    near = run(INT64(0), builder.select(whole, INT64(0), extent), None)
    done = builder.select(whole, past, near)

    def partial(trip: ir.Value) -> None:
        first = builder.and_(whole, builder.icmp_signed("==", trip, INT64(0)))
        begin = builder.select(first, INT64(0), done)
        left = builder.sub(builder.select(first, head, extent), begin)
        with builder.if_then(builder.icmp_signed(">", left, INT64(0))):
            part(Place(builder.add(low.value(builder), begin)), left)

    vectors.repeat(builder, builder.select(whole, INT64(2), INT64(1)), partial)


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
