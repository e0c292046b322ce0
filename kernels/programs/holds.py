"""Elements of a reduction that stay in registers while loops over summed letters run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import identity
from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.arithmetic import BIT, EMITTERS, number_type
from tilesolve.kernels.ir.complexes import vector_of
from tilesolve.kernels.ir.vectors import INT64, constant
from tilesolve.kernels.programs.accesses import (
    count_to_line,
    emit_pointer,
    find_row,
    load_affine,
    store_affine,
)
from tilesolve.kernels.programs.bounds import (
    check_written_out,
    count_trips,
    outer_bounds,
    range_of,
    summed_names,
    without_needless_bounds,
)
from tilesolve.kernels.programs.computing import plain_axes, reduce_lanes, start_value
from tilesolve.kernels.programs.conditions import activate, activate_some, mask_lanes
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.program import Compute, Guard, Hold, Loop, Node
from tilesolve.kernels.programs.scope import (
    Lanes,
    Place,
    Scope,
    Trip,
    both,
    emit_extreme,
    emit_position,
    enter_trip,
    full_loop,
)
from tilesolve.kernels.programs.vector_loops import Emit, lanes_of, writes_past


def emit_hold(emitter: Emitter, hold: Hold, scope: Scope, emit: Emit) -> None:
    """Emit a hold: loads or first values, the body, and stores.

    Where loops that are written out have all their trips, nothing is masked; where they have not,
    all vectors are, and points beyond the end are not computed.
    """
    if emitter.held_stage is not None:
        raise SpecError("a Hold stands within another one")
    if emitter.stage(hold.stage).reduction is None:
        raise SpecError(f"a Hold keeps a reduction; {emitter.stage(hold.stage)} is none")
    whole = _whole(emitter, hold.body, scope, summed_names(emitter.stage(hold.stage), hold))
    straight, ragged = (
        partial(_emit_held, emitter, hold, scope, emit, ragged=way) for way in (False, True)
    )
    if whole is None:
        straight()
    else:
        emitter.branch(whole, straight, ragged)


def _emit_held(emitter: Emitter, hold: Hold, scope: Scope, emit: Emit, *, ragged: bool) -> None:
    stage = emitter.stage(hold.stage)
    emitter.held_stage, emitter.held_ragged = hold.stage, ragged
    emitter.held_names = summed_names(emitter.stage(hold.stage), hold)
    try:
        points = dict(_points(emitter, hold.body, scope))
        if len(points) > tuning.MAX_HELD_VECTORS:
            raise SpecError(
                f"a Hold of {stage.name} keeps {len(points)} vectors; "
                f"{tuning.MAX_HELD_VECTORS} at most are kept in registers"
            )
        across = {
            key: point.lanes is not None and point.lanes.letter in stage.summed
            for key, point in points.items()
        }
        emitter.held = {
            key: _first(emitter, hold, point, across=across[key]) for key, point in points.items()
        }
        with emitter.inside():
            emit(hold.body, scope)
        results = dict(emitter.held)
        for key, point in points.items():
            if across[key]:
                results[key] = _put_together(emitter, hold, point, results[key])
        emitter.held = {}
        plain = [replace(p, lanes=None) if across[k] else p for k, p in points.items()]
        _store_all(emitter, hold, dict(zip(points, plain, strict=True)), results)
    finally:
        emitter.held, emitter.held_stage = {}, None


def _first(emitter: Emitter, hold: Hold, point: Scope, *, across: bool) -> ir.Value:
    """Return what an element begins with: lanes across it begin with what changes nothing."""
    stage = emitter.stage(hold.stage)
    reduction, dtype = stage.reduction, emitter.dtypes[stage.name]
    assert reduction is not None
    if across:
        assert point.lanes is not None
        kind = vector_of(number_type(dtype), point.lanes.count)
        return constant(kind, identity(reduction.name, dtype))
    if hold.anew:
        return start_value(emitter, hold.stage, point)
    found = load_affine(emitter.builder, emitter.targets[stage.name], plain_axes(stage), point)
    if point.lanes is not None and not isinstance(found.type, ir.VectorType):
        raise SpecError(f"the vector loop over {point.lanes.letter} does not reach {stage.target}")
    return found


def _put_together(emitter: Emitter, hold: Hold, point: Scope, lanes: ir.Value) -> ir.Value:
    """Return the element that lanes of partial sums make."""
    stage = emitter.stage(hold.stage)
    reduction, dtype = stage.reduction, emitter.dtypes[stage.name]
    assert reduction is not None
    assert point.lanes is not None
    alone = replace(point, lanes=None)
    total = reduce_lanes(
        emitter, reduction.name, dtype, lanes, replace(point, lanes=replace(point.lanes, mask=None))
    )
    before = _first(emitter, hold, alone, across=False)
    return EMITTERS[reduction.name](emitter.builder, dtype, [before, total])


def _store_all(
    emitter: Emitter,
    hold: Hold,
    points: dict[tuple[tuple[str, int], ...], Scope],
    results: dict[tuple[tuple[str, int], ...], ir.Value],
) -> None:
    """Emit the stores of all elements: past the caches if that is wanted and they are aligned."""
    builder, stage = emitter.builder, emitter.stage(hold.stage)
    target, axes = emitter.targets[stage.name], plain_axes(stage)

    def store(past: bool) -> None:
        for key, point in points.items():
            streams = past and point.lanes is not None and point.lanes.mask is None
            store_affine(builder, target, axes, results[key], point, non_temporal=streams)

    letters = {point.lanes.letter for point in points.values() if point.lanes is not None}
    if not hold.anew or not any(writes_past(emitter, hold.stage, letter) for letter in letters):
        store(False)
        return
    aligned: ir.Value = BIT(1)
    for point in points.values():
        if point.lanes is None or point.lanes.mask is not None:
            continue
        places = [emit_position(builder, one, point) for one in axes]
        where = builder.ptrtoint(emit_pointer(builder, target, places), INT64)
        rest = builder.and_(where, INT64(point.lanes.count * target.itemsize - 1))
        aligned = builder.and_(aligned, builder.icmp_signed("==", rest, INT64(0)))
    emitter.branch(aligned, partial(store, True), partial(store, False))


def _whole(
    emitter: Emitter, body: Sequence[Node], scope: Scope, inner: frozenset[str]
) -> ir.Value | None:
    """Emit whether all loops over letters of the output have all trips that are written out.

    None if they always have.
    """
    found: ir.Value | None = None
    builder = emitter.builder
    for node in body:
        if not isinstance(node, Loop | Guard):
            continue
        mine: ir.Value | None = None
        scopes = [scope]
        if isinstance(node, Loop) and node.name not in inner:
            loop = without_needless_bounds(outer_bounds(node, inner), scope.ranges)
            trips = count_trips(loop, scope.ranges)
            low = emit_extreme(builder, loop.low, scope, ">")
            if not trips.exact:
                mine = full_loop(builder, loop, scope, trips.most)
            # A tile's last trip may be short; so may any on which loops within depend.
            each = loop.step > 1 or _bounds(loop.name, node.body)
            numbers = range(trips.most) if each else (0,)
            scopes = [enter_trip(loop, scope, low, Trip(number, trips.most)) for number in numbers]
        for one in scopes:
            mine = both(builder, mine, _whole(emitter, node.body, one, inner))
        found = both(builder, found, mine)
    return found


def _bounds(name: str, body: Sequence[Node]) -> bool:
    """Return whether bounds of loops within a body depend on a loop around."""
    inner = [node for node in body if isinstance(node, Loop | Guard)]
    return any(
        (isinstance(node, Loop) and any(name in one.letters for one in (*node.low, *node.high)))
        or _bounds(name, node.body)
        for node in inner
    )


def _points(
    emitter: Emitter, body: Sequence[Node], scope: Scope
) -> Iterator[tuple[tuple[tuple[str, int], ...], Scope]]:
    """Yield the elements that a body touches: the trips that lead there, and the scope."""
    for node in body:
        if isinstance(node, Compute):
            if node.stage != emitter.held_stage:
                raise SpecError("a Hold computes its own stage alone")
            yield scope.key, scope
        elif isinstance(node, Guard):
            yield from _points(emitter, node.body, scope)
        elif isinstance(node, Loop):
            if node.name in emitter.held_names:
                lanes = lanes_of(emitter, node) if node.kind == "vector" else 0
                inner = replace(scope, lanes=Lanes(node.name, lanes)) if lanes else scope
                yield from _points(emitter, node.body, inner)
                continue
            for inner in _enter(emitter, node, scope, before=True):
                yield from _points(emitter, node.body, inner)
        else:
            raise SpecError(f"{type(node).__name__} stands in a Hold")


def held_place(emitter: Emitter, loop: Loop, scope: Scope, emit: Emit) -> bool:
    """Emit the trips of a loop over elements that are held; return whether it is one."""
    if loop.name in emitter.held_names:
        if loop.kind == "vector":
            _emit_summed(emitter, loop, scope, emit)
        return loop.kind == "vector"
    for inner in _enter(emitter, loop, scope, before=False):
        emit(loop.body, inner)
    return True


def _emit_summed(emitter: Emitter, loop: Loop, scope: Scope, emit: Emit) -> None:
    """Emit a vector loop over a summed letter: each lane has a sum of its own.

    Where few sums are held, several vectors of a trip have their own, which do not wait for one
    another.
    """
    builder, lanes = emitter.builder, lanes_of(emitter, loop)
    loop = without_needless_bounds(loop, scope.ranges)
    low = emit_extreme(builder, loop.low, scope, ">").value(builder)
    high = emit_extreme(builder, loop.high, scope, "<").value(builder)
    values, keys = range_of(loop, scope.ranges), list(emitter.held)

    def emit_vector(place: Place, end: ir.Value | None) -> None:
        """Emit one vector, without lanes from an end on."""
        inner = replace(scope.at(loop.name, place, values), lanes=Lanes(loop.name, lanes))
        inner = _all_lanes(builder, inner).enter_element(scope)
        if end is not None:
            left = builder.sub(end, place.value(builder))
            mask = masking.mask_first_lanes(builder, lanes, left)
            inner = activate_some(builder, mask_lanes(builder, inner, mask))
        with emitter.inside():
            emit(loop.body, _all_lanes(builder, inner))

    def run(count: ir.Value, begin: ir.Value, end: ir.Value | None, vectors_of_trip: int) -> None:
        """Emit trips of some vectors."""

        def trip(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            found: list[ir.Value] = []
            moved = builder.mul(index, INT64(lanes * vectors_of_trip))
            for number in range(vectors_of_trip):
                emitter.held = dict(zip(keys, carried[len(found) :], strict=False))
                emit_vector(Place(builder.add(begin, moved), number * lanes), end)
                found += emitter.held.values()
            return found

        sums = _more_sums(emitter, vectors_of_trip)
        found = vectors.emit_loop(builder, count, sums, trip)
        emitter.held = dict(zip(keys, _join_sums(emitter, found, len(keys)), strict=True))

    most, reads = count_trips(loop, scope.ranges).most, emitter.stage(emitter.held_stage or 0).reads
    row, least = find_row(emitter.targets, reads, loop.name), lanes * tuning.ALIGNED_SUM_VECTORS
    if len(keys) == 1 and row is not None and most >= least:
        here = scope.at(loop.name, Place(low), values)
        to_line = partial(count_to_line, builder, row, here, lanes)
        low = _reach_line(emitter, (low, high), least, to_line, emit_vector)
    length = vectors.extreme(builder, ">", builder.sub(high, low), INT64(0))
    count = builder.sdiv(length, INT64(lanes))
    several, done = tuning.INDEPENDENT_SUMS // len(keys), INT64(0)
    if several > 1 and most >= several * lanes:
        trips = builder.sdiv(count, INT64(several))
        run(trips, low, None, several)
        done = builder.mul(trips, INT64(several))
    run(builder.sub(count, done), builder.add(low, builder.mul(done, INT64(lanes))), None, 1)
    done = builder.mul(count, INT64(lanes))
    left = builder.zext(builder.icmp_signed("<", done, length), INT64)
    run(left, builder.add(low, done), high, 1)


def _reach_line(
    emitter: Emitter,
    ends: tuple[ir.Value, ir.Value],
    least: int,
    to_line: Callable[[], ir.Value],
    emit_vector: Callable[[Place, ir.Value | None], None],
) -> ir.Value:
    """Emit what lies before the first line of a long row; return where what is left begins."""
    builder, keys, (low, high) = emitter.builder, list(emitter.held), ends

    def begin(_: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        emitter.held = dict(zip(keys, carried[1:], strict=True))
        line = builder.add(low, to_line())
        emit_vector(Place(low), line)
        return [line, *emitter.held.values()]

    long = builder.zext(builder.icmp_signed(">=", builder.sub(high, low), INT64(least)), INT64)
    line, *sums = vectors.emit_loop(builder, long, [low, *emitter.held.values()], begin)
    emitter.held = dict(zip(keys, sums, strict=True))
    return line


def _more_sums(emitter: Emitter, count: int) -> list[ir.Value]:
    """Return what is held, and as many sums again that have nothing, so that there are `count`."""
    name, dtype = _operation(emitter)
    held = list(emitter.held.values())
    nothing = [constant(one.type, identity(name, dtype)) for one in held]
    return held + nothing * (count - 1)


def _join_sums(emitter: Emitter, sums: Sequence[ir.Value], held: int) -> list[ir.Value]:
    """Return so many sums as are held, from several of each."""
    name, dtype = _operation(emitter)
    found = list(sums[:held])
    for at in range(held, len(sums), held):
        pairs = zip(found, sums[at : at + held], strict=True)
        found = [EMITTERS[name](emitter.builder, dtype, pair) for pair in pairs]
    return found


def _operation(emitter: Emitter) -> tuple[str, str]:
    """Return the operation of the reduction that is held, and the dtype."""
    assert emitter.held_stage is not None
    stage = emitter.stage(emitter.held_stage)
    assert stage.reduction is not None
    return stage.reduction.name, emitter.dtypes[stage.name]


def _enter(emitter: Emitter, loop: Loop, scope: Scope, *, before: bool) -> Iterator[Scope]:
    """Yield the scopes of a loop's trips, written out; of vectors in a vector loop.

    Before the body, bounds that depend on loops within the hold do not count.
    """
    builder = emitter.builder
    outer = without_needless_bounds(outer_bounds(loop, emitter.held_names), scope.ranges)
    low = emit_extreme(builder, outer.low, scope, ">")
    lanes = lanes_of(emitter, loop) if loop.kind == "vector" else 1
    trips = count_trips(outer, scope.ranges).most
    most = tuning.MAX_HELD_VECTORS * lanes
    check_written_out(outer, scope.ranges, most if loop.kind == "vector" else most // lanes)
    values = range_of(outer, scope.ranges)
    inner = _inner_bounds(loop, emitter.held_names)
    for number in range(-(-trips // lanes)):
        place = Place(low.base, low.offset + number * lanes * loop.step)
        here = scope.at(loop.name, place, values)
        here = replace(here, key=(*scope.key, (loop.name, number)))
        if loop.kind == "vector":
            here = _all_lanes(builder, replace(here, lanes=Lanes(loop.name, lanes)))
        elif not emitter.held_ragged and loop.step == 1:
            here = replace(here, trips={**here.trips, loop.name: Trip(number, trips)})
        bounds = outer.high if emitter.held_ragged or trips - number * lanes < lanes else ()
        if before:
            yield _bounded(emitter, here, ((), bounds))
            continue
        here = _within_loop(emitter, here, low, bounds).enter_element(scope)
        yield _bounded(emitter, here, inner)


def _within_loop(emitter: Emitter, scope: Scope, low: Place, bounds: Sequence[Affine]) -> Scope:
    """Return the scope of a trip that stands in the place of the first one if it is beyond the end.

    So what all trips read alike is loaded once. What is computed beyond the end is not stored.
    """
    if not bounds:
        return scope
    builder, name = emitter.builder, scope.key[-1][0]
    place, lanes = scope.places[name], scope.lanes
    high = emit_extreme(builder, bounds, scope, "<").value(builder)
    first, here = low.value(builder), place.value(builder)
    if lanes is not None and lanes.letter == name:
        mask = masking.mask_first_lanes(builder, lanes.count, builder.sub(high, here))
        scope = mask_lanes(builder, scope, mask)
    elif place != low:
        moved = builder.select(builder.icmp_signed("<", here, high), here, first)
        scope = scope.at(name, Place(moved))
    if emitter.held_ragged:
        scope = activate(builder, scope, builder.icmp_signed("<", first, high))
    return scope


def _inner_bounds(
    loop: Loop, inner: frozenset[str]
) -> tuple[tuple[Affine, ...], tuple[Affine, ...]]:
    """Return the bounds of a loop that depend on loops within the hold."""
    return (
        tuple(one for one in loop.low if inner.intersection(one.letters)),
        tuple(one for one in loop.high if inner.intersection(one.letters)),
    )


def _bounded(
    emitter: Emitter, scope: Scope, bounds: tuple[Sequence[Affine], Sequence[Affine]]
) -> Scope:
    """Return a scope whose point, or whose lanes, are computed only within bounds of their loop."""
    builder, name, lanes = emitter.builder, scope.key[-1][0], scope.lanes
    if lanes is not None and lanes.letter == name:
        return _bounded_lanes(emitter, scope, bounds)
    here = scope.places[name].value(builder)
    for side, symbol, extreme in ((0, ">=", ">"), (1, "<", "<")):
        if bounds[side]:
            end = emit_extreme(builder, bounds[side], scope, extreme).value(builder)
            scope = activate(builder, scope, builder.icmp_signed(symbol, here, end))
    return scope


def _bounded_lanes(
    emitter: Emitter, scope: Scope, bounds: tuple[Sequence[Affine], Sequence[Affine]]
) -> Scope:
    """Return a scope whose lanes are computed only within bounds, and nothing if none are."""
    builder, lanes = emitter.builder, scope.lanes
    assert lanes is not None
    here = scope.places[lanes.letter].value(builder)
    for side, extreme in ((0, ">"), (1, "<")):
        if bounds[side]:
            end = emit_extreme(builder, bounds[side], scope, extreme).value(builder)
            mask = masking.mask_first_lanes(builder, lanes.count, builder.sub(end, here))
            mask = mask if side else builder.not_(mask)
            scope = activate_some(builder, mask_lanes(builder, scope, mask))
    return _all_lanes(builder, scope)


def _all_lanes(builder: ir.IRBuilder, scope: Scope) -> Scope:
    """Return a scope whose lanes are masked where its point may not be computed."""
    lanes = scope.lanes
    if lanes is None or lanes.mask is not None or scope.active is None:
        return scope
    mask = vectors.broadcast(builder, scope.active, ir.VectorType(BIT, lanes.count))
    return replace(scope, lanes=replace(lanes, mask=mask))
