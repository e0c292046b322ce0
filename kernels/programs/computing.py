"""What is computed at a point: terms that are written, put into reductions, or begun anew."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from llvmlite import ir

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import identity
from tilesolve.contractions.statements.promotion import widest_bytes
from tilesolve.contractions.statements.stage import Stage
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import BIT, EMITTERS, number_type
from tilesolve.kernels.ir.complexes import extract, select, vector_of
from tilesolve.kernels.ir.pixels import store_pixels
from tilesolve.kernels.ir.vectors import INT64, constant
from tilesolve.kernels.programs.accesses import (
    emit_pointer,
    full_mask,
    load_affine,
    store_affine,
    store_number,
    to_bytes,
    walks_pixels,
)
from tilesolve.kernels.programs.byte_halves import emit_halves
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.looked_at import emit_looked_at
from tilesolve.kernels.programs.points_in_step import stage_point
from tilesolve.kernels.programs.scope import Place, Scope, both, emit_places, emit_position
from tilesolve.kernels.programs.skeleton import Skeleton
from tilesolve.kernels.programs.term_emitter import TermEmitter
from tilesolve.packing.sizes import LINE_BYTES


def vector_lanes(skeleton: Skeleton, stages: list[int], bits: int, letter: str = "") -> int:
    """Return how many points a vector loop computes at once.

    As many as numbers of the widest dtype that the stages take fit a vector, those left out that
    are the same for all points along a letter; or as many as fill a
    line of an array that is written past the caches, if those are more.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.kernels.programs.program import Program
    >>> from tilesolve.kernels.programs.skeleton import find_skeleton
    >>> computation = bind_stages(parse_stages("out[x] = A[x] + B[x]"), 8, "int16")
    >>> vector_lanes(find_skeleton(Program(computation, ()))[0], [0], 256)
    16
    """
    dtypes = skeleton.dtypes
    widest, line = 1, 0
    for number in stages:
        stage = skeleton.stages[number]
        widest = max(widest, widest_bytes(stage, dtypes, letter))
        if stage.name in skeleton.non_temporal:
            line = max(line, LINE_BYTES // np.dtype(dtypes[stage.name]).itemsize)
    return max(bits // (8 * widest), line)


def emit_compute(emitter: Emitter, number: int, scope: Scope, *, non_temporal: bool) -> None:
    """Emit what a stage computes at a point, or at the lanes of a vector."""

    def emit() -> None:
        _emit_point(emitter, number, scope, non_temporal=non_temporal)

    if emitter.held_stage is None:
        emit_looked_at(emitter, number, scope, emit, emit)
    else:
        emit()


def _emit_point(emitter: Emitter, number: int, scope: Scope, *, non_temporal: bool) -> None:
    """Emit the same where positions are looked at, or are to be."""
    stage = emitter.stage(number)
    dtype = emitter.dtypes[stage.name]
    point = TermEmitter(emitter, number, scope)
    if stage.update is not None:
        _update(emitter, point, dtype)
        return
    reduction = stage.reduction
    if reduction is None:
        value, target = stage_value(emitter, number, scope), emitter.targets[stage.name]
        if not _put_in_pixels(emitter, stage, value, scope):
            axes = plain_axes(stage)
            store_affine(emitter.builder, target, axes, value, scope, non_temporal=non_temporal)
        return
    value = point.value(reduction.term, dtype)
    if scope.lanes is not None:
        value = point.lanes_of(value)
    if emitter.held_stage == number:
        before = emitter.held[scope.key]
        if isinstance(value.type, ir.VectorType) and not isinstance(before.type, ir.VectorType):
            value = reduce_lanes(emitter, reduction.name, dtype, value, scope)
        emitter.held[scope.key] = _combined(emitter, reduction.name, dtype, before, value, scope)
        return
    _accumulate(emitter, number, value, scope)


def stage_value(emitter: Emitter, number: int, scope: Scope) -> ir.Value:
    """Emit what a stage without a reduction computes at a point, or at the lanes of a vector."""
    if (halves := emit_halves(emitter, number, scope)) is not None:
        return halves
    stage, point = emitter.stage(number), stage_point(emitter, number, scope)
    value = point.value(stage.term, emitter.dtypes[stage.name])
    return value if scope.lanes is None else point.lanes_of(value)


def _put_in_pixels(emitter: Emitter, stage: Stage, value: ir.Value, scope: Scope) -> bool:
    """Store what was computed with the other channels of its pixels, if it is the last of them.

    Returns
    -------
    bool
        Whether it is stored then: loops over all channels are written out around the vectors.
    """
    target, axes, lanes = emitter.targets[stage.name], plain_axes(stage), scope.lanes
    if lanes is None or target.pixels is None or not walks_pixels(target, axes, lanes.letter):
        return False
    channel = stage.output[target.unit or 0]
    trip = scope.trips.get(channel)
    if trip is None or trip.count != target.pixels.channels:
        return False
    if any(channel in one.letters for one in stage.where):
        return False
    others = (scope.places[x] for x in stage.output if x != channel)
    key = (target.name, *((id(place.base), place.offset) for place in others))
    values = emitter.kept.setdefault(key, [])
    values.append(to_bytes(emitter.builder, value, target.dtype))
    if len(values) == trip.count:
        first = replace(scope, places={**scope.places, channel: Place(None)})
        where = emit_pointer(emitter.builder, target, emit_places(emitter.builder, axes, first))
        store_pixels(emitter.builder, values, where, lanes.mask)
    return True


def _accumulate(emitter: Emitter, number: int, value: ir.Value, scope: Scope) -> None:
    """Emit a reduction's step whose element lies in memory."""
    stage, builder = emitter.stage(number), emitter.builder
    reduction, dtype = stage.reduction, emitter.dtypes[stage.name]
    assert reduction is not None
    target, axes = emitter.targets[stage.name], plain_axes(stage)
    if scope.lanes is not None and scope.lanes.letter in stage.summed:
        value = reduce_lanes(emitter, reduction.name, dtype, value, scope)
    before = load_affine(builder, target, axes, scope)
    found = EMITTERS[reduction.name](builder, dtype, [before, value])
    store_affine(builder, target, axes, found, scope)


def _combined(
    emitter: Emitter, name: str, dtype: str, before: ir.Value, value: ir.Value, scope: Scope
) -> ir.Value:
    """Emit a reduction's step in registers."""
    found = EMITTERS[name](emitter.builder, dtype, [before, value])
    active, mask = scope.element
    chosen = None if scope.active is active else scope.active
    if isinstance(found.type, ir.VectorType):
        lanes = scope.lanes
        chosen = None if lanes is None or lanes.mask is mask else lanes.mask
    return found if chosen is None else select(emitter.builder, chosen, found, before)


def reduce_lanes(
    emitter: Emitter, name: str, dtype: str, value: ir.Value, scope: Scope
) -> ir.Value:
    """Emit a reduction over the lanes of a vector that are computed."""
    builder = emitter.builder
    if scope.lanes is not None and scope.lanes.mask is not None:
        nothing = constant(value.type, identity(name, dtype))
        value = select(builder, full_mask(scope), value, nothing)
    while value.type.count > 1:
        half = value.type.count // 2
        parts = [vectors.shuffle(builder, value, value, range(at, at + half)) for at in (0, half)]
        value = EMITTERS[name](builder, dtype, parts)
    return extract(builder, value, 0)


def _update(emitter: Emitter, point: TermEmitter, dtype: str) -> None:
    """Emit an update of an element whose position is computed."""
    stage, builder, scope = point.stage, emitter.builder, point.scope
    assert stage.update is not None
    target = emitter.targets[stage.name]
    value = point.value(stage.term, dtype)
    value = value if scope.lanes is None else point.lanes_of(value)
    places = point.checked_places(stage.target)
    before = load_affine(builder, target, places, scope)
    found = EMITTERS[stage.update](builder, dtype, [before, value])
    inside: ir.Value | None = None
    for outside in point.outside:
        if isinstance(outside.type, ir.VectorType):
            outside = vectors.reduce(builder, "or", outside)
        inside = both(builder, inside, builder.not_(outside))
    if scope.lanes is None or inside is None:
        active = both(builder, scope.active, inside)
        store_affine(builder, target, places, found, replace(scope, active=active))
        return
    with builder.if_then(inside):
        store_affine(builder, target, places, found, scope)


def emit_start(emitter: Emitter, number: int, scope: Scope) -> None:
    """Emit what a reduction begins with."""
    stage = emitter.stage(number)
    dtype = emitter.dtypes[stage.name]
    target = emitter.targets[stage.name]
    first = start_value(emitter, number, scope)
    if stage.update is None:
        store_affine(emitter.builder, target, plain_axes(stage), first, scope)
        return
    value = constant(number_type(dtype), _first(emitter, number))
    fill = partial(_fill, emitter, number, value, scope, ())
    if target.origin or len(target.strides) < 2:
        fill()
        return
    builder, count, whole = emitter.builder, INT64(1), BIT(1)
    for axis, extent in reversed([*enumerate(emitter.skeleton.shape(stage.name))]):
        step = builder.mul(count, INT64(target.itemsize))
        whole = builder.and_(whole, builder.icmp_signed("==", target.step(axis), step))
        count = builder.mul(count, emit_position(builder, extent, scope).value(builder))
    row = replace(target, strides=(target.itemsize,), unit=0)

    def write(index: ir.Value) -> None:
        store_number(builder, row, (Place(index),), value, None)

    emitter.branch(whole, partial(vectors.repeat, builder, count, write), fill)


def _first(emitter: Emitter, number: int) -> complex:
    """Return what a reduction begins with."""
    stage = emitter.stage(number)
    name = stage.update or (stage.reduction.name if stage.reduction else "add")
    return identity(name, emitter.dtypes[stage.name])


def start_value(emitter: Emitter, number: int, scope: Scope) -> ir.Value:
    """Return what a reduction begins with, in each lane if elements lie along them."""
    stage = emitter.stage(number)
    kind = number_type(emitter.dtypes[stage.name])
    if scope.lanes is not None and scope.lanes.letter in stage.output:
        kind = vector_of(kind, scope.lanes.count)
    return constant(kind, _first(emitter, number))


def _fill(
    emitter: Emitter, number: int, value: ir.Value, scope: Scope, places: tuple[Place, ...]
) -> None:
    """Emit loops over all elements of an array that write a number."""
    builder, name = emitter.builder, emitter.stage(number).name
    shape = emitter.skeleton.shape(name)
    if len(places) == len(shape):
        store_number(builder, emitter.targets[name], places, value, None)
        return

    def trip(index: ir.Value) -> None:
        with emitter.inside():
            _fill(emitter, number, value, scope, (*places, Place(index)))

    extent = emit_position(builder, shape[len(places)], scope).value(builder)
    vectors.repeat(builder, extent, trip)


def plain_axes(stage: Stage) -> list[Affine]:
    """Return the positions of an element that is no update."""
    return [one for one in stage.axes if isinstance(one, Affine)]
