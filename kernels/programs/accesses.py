"""Loads and stores of a lowered program: vectors, single numbers, and lanes that lie apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import is_complex
from tilesolve.contractions.statements.terms import Read
from tilesolve.kernels.ir import masking, vectors
from tilesolve.kernels.ir.arithmetic import BIT, BYTE, memory_type
from tilesolve.kernels.ir.complexes import vector_of
from tilesolve.kernels.ir.division import divide_down
from tilesolve.kernels.ir.pixels import choose_lanes, load_pixels
from tilesolve.kernels.ir.vectors import INT64, constant
from tilesolve.kernels.programs.layout import Pixels
from tilesolve.kernels.programs.scope import Place, Scope, emit_places, emit_position


@dataclass(frozen=True, slots=True)
class Target:
    """An array in memory, as lowered code sees it.

    Parameters
    ----------
    name, dtype
        Of the array.
    base
        Pointer to the first element.
    strides
        Bytes between neighbours along each axis, known when the code is made or at run time.
    unit
        The axis along which neighbours lie side by side; None if there is none.
    origin
        Positions of the first element, in a buffer.
    ring
        Axis along which places are used again, and after how many.
    pixels
        The axis behind a short unit axis, and how many elements that has; None if it is not short.
    remainders
        Places along it that were computed, by the block that they are in and the position.
    """

    name: str
    dtype: str
    base: ir.Value
    strides: tuple[int | ir.Value, ...]
    unit: int | None
    origin: tuple[Place, ...] = ()
    ring: tuple[int, int] | None = None
    pixels: Pixels | None = None
    remainders: dict[tuple[ir.Block, int, int], Place] = field(default_factory=dict, compare=False)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    def step(self, axis: int) -> ir.Value:
        """Return the bytes between neighbours along an axis."""
        stride = self.strides[axis]
        return INT64(stride) if isinstance(stride, int) else stride


def emit_pointer(
    builder: ir.IRBuilder, target: Target, places: Sequence[Place], active: ir.Value | None = None
) -> ir.Value:
    """Emit the pointer to an element; to the first one where nothing is computed."""
    places = _local_places(builder, target, places)
    moving: ir.Value | None = None
    fixed, known = 0, INT64(0)
    for axis, (place, stride) in enumerate(zip(places, target.strides, strict=True)):
        if place.base is not None:
            term = builder.mul(place.base, target.step(axis))
            moving = term if moving is None else builder.add(moving, term)
        if isinstance(stride, int):
            fixed += place.offset * stride
        elif place.offset:
            known = builder.add(known, builder.mul(stride, INT64(place.offset)))
    distance = builder.add(known, INT64(fixed))
    if active is not None:
        moving = builder.select(active, INT64(0) if moving is None else moving, INT64(0))
        distance = builder.select(active, distance, INT64(0))
    where = target.base if moving is None else _step(builder, target.base, moving)
    return _step(builder, where, distance)


def _step(builder: ir.IRBuilder, pointer: ir.Value, distance: ir.Value) -> ir.Value:
    return builder.gep(pointer, [distance], source_etype=BYTE)


def _local_places(
    builder: ir.IRBuilder, target: Target, places: Sequence[Place]
) -> Sequence[Place]:
    """Return where an element lies in a buffer."""
    if not target.origin:
        return places
    found = []
    for axis, (place, origin) in enumerate(zip(places, target.origin, strict=True)):
        if target.ring is not None and axis == target.ring[0]:
            key = builder.block, id(place.base), place.offset
            if key not in target.remainders:
                rest = divide_down(builder, place.value(builder), target.ring[1])[1]
                target.remainders[key] = Place(rest)
            found.append(target.remainders[key])
            continue
        base = place.base
        if origin.base is not None:
            base = builder.sub(INT64(0) if base is None else base, origin.base)
        found.append(Place(base, place.offset - origin.offset))
    return found


def load_number(
    builder: ir.IRBuilder, target: Target, places: Sequence[Place], active: ir.Value | None
) -> ir.Value:
    """Load one element; any one where nothing is computed."""
    where = emit_pointer(builder, target, places, active)
    return builder.load(where, typ=memory_type(target.dtype), align=1)


def to_bits(builder: ir.IRBuilder, value: ir.Value, dtype: str) -> ir.Value:
    """Return a value from memory as registers have it."""
    if dtype != "bool":
        return value
    return builder.icmp_unsigned("!=", value, constant(value.type, 0))


def to_bytes(builder: ir.IRBuilder, value: ir.Value, dtype: str) -> ir.Value:
    """Return a value as memory has it."""
    if dtype != "bool":
        return value
    kind = value.type
    wide = ir.VectorType(BYTE, kind.count) if isinstance(kind, ir.VectorType) else BYTE
    return builder.zext(value, wide)


def load_affine(
    builder: ir.IRBuilder, target: Target, subscripts: Sequence[Affine | ir.Value], scope: Scope
) -> ir.Value:
    """Load what a read has at a point, or at the lanes of a vector.

    Subscripts that were computed are values: of the point, or of each lane.
    """
    lanes = scope.lanes
    if lanes is None or not any(_differs(one, lanes.letter) for one in subscripts):
        places = emit_places(builder, subscripts, scope)
        found = load_number(builder, target, places, scope.active)
        return to_bits(builder, found, target.dtype)
    kind = vector_of(memory_type(target.dtype), lanes.count)
    along, found = _find_along(target, subscripts, lanes.letter), None
    places = [] if along is None else emit_places(builder, subscripts, scope)
    if along is not None and along.divisor == 1:
        found = _load_near(builder, target, places, along.factor(lanes.letter), scope)
    elif along is not None:
        found = _load_repeated(builder, target, places, along, scope)
    elif walks_pixels(target, subscripts, lanes.letter):
        found = _load_channel(builder, target, subscripts, scope)
    if found is None and lanes.mask is None and all(isinstance(x, Affine) for x in subscripts):
        found = _load_lanes(builder, target, subscripts, scope, kind)
    if found is None:
        pointers = lane_pointers(builder, target, subscripts, scope)
        found = masking.gather(builder, pointers, kind, full_mask(scope))
    return to_bits(builder, found, target.dtype)


def _load_lanes(
    builder: ir.IRBuilder,
    target: Target,
    subscripts: Sequence[Affine | ir.Value],
    scope: Scope,
    kind: ir.VectorType,
) -> ir.Value | None:
    """Load each lane by itself, which takes a quarter of a gather; None of complex numbers."""
    if is_complex(target.dtype):
        return None
    found = ir.Constant(kind, ir.Undefined)
    for lane in range(kind.count):
        places = emit_places(builder, subscripts, scope.lane(lane))
        value = load_number(builder, target, places, None)
        found = builder.insert_element(found, value, ir.IntType(32)(lane))
    return found


def _differs(subscript: Affine | ir.Value, letter: str) -> bool:
    """Return whether lanes along a letter have different positions."""
    if isinstance(subscript, Affine):
        return subscript.factor(letter) != 0
    return isinstance(subscript.type, ir.VectorType)


def _find_along(
    target: Target, subscripts: Sequence[Affine | ir.Value], letter: str
) -> Affine | None:
    """Return the position along the unit axis where lanes differ in it alone, amid no ring."""
    if target.unit is None or (target.ring is not None and target.ring[0] == target.unit):
        return None
    if any(_differs(one, letter) for axis, one in enumerate(subscripts) if axis != target.unit):
        return None
    along = subscripts[target.unit]
    return along if isinstance(along, Affine) else None


Row = tuple[Target, Sequence[Affine]]
"""An array, and the position of an element of it."""


def find_row(targets: Mapping[str, Target], reads: Iterable[Read], letter: str) -> Row | None:
    """Return the array with most axes of which rows are read along a letter; None if none is."""
    found: Row | None = None
    for read in reads:
        target, places = targets[read.array], read.plain or ()
        along = _find_along(target, places, letter) if places else None
        walks = along is not None and along.factor(letter) == along.divisor == 1
        if walks and (found is None or len(places) > len(found[1])):
            found = target, places
    return found


def count_to_line(builder: ir.IRBuilder, row: Row, scope: Scope, lanes: int) -> ir.Value:
    """Emit how many elements of a row lie before the first vector that begins where a line does."""
    target, places = row
    pointer = emit_pointer(builder, target, emit_places(builder, places, scope))
    apart = builder.neg(builder.ptrtoint(pointer, INT64))
    size = target.itemsize
    return builder.udiv(builder.and_(apart, INT64(lanes * size - 1)), INT64(size))


def walks_pixels(target: Target, subscripts: Sequence[Affine | ir.Value], letter: str) -> bool:
    """Return whether lanes along a letter are the same channel of pixels side by side."""
    if target.pixels is None or is_complex(target.dtype):
        return False
    differs = [axis for axis, one in enumerate(subscripts) if _differs(one, letter)]
    along = subscripts[target.pixels.axis]
    if differs != [target.pixels.axis] or not isinstance(along, Affine):
        return False
    return along.divisor == 1 and along.factor(letter) == 1


def _load_channel(
    builder: ir.IRBuilder, target: Target, subscripts: Sequence[Affine | ir.Value], scope: Scope
) -> ir.Value:
    """Load a channel of pixels; all of the pixels where code knows which channel it is."""
    lanes, pixels = scope.lanes, target.pixels
    assert lanes is not None
    assert pixels is not None
    assert target.unit is not None
    places = emit_places(builder, subscripts, scope)
    channel: int | None = None
    if places[target.unit].base is None:
        channel, places[target.unit] = places[target.unit].offset, Place(None)
    where = emit_pointer(builder, target, places)
    kind = ir.VectorType(memory_type(target.dtype), lanes.count)
    return load_pixels(builder, where, kind, (pixels.channels, channel), lanes.mask)


def _load_near(
    builder: ir.IRBuilder, target: Target, places: Sequence[Place], factor: int, scope: Scope
) -> ir.Value | None:
    """Load lanes that lie a few elements apart; None if they are to be gathered."""
    lanes = scope.lanes
    assert lanes is not None
    assert target.unit is not None
    kind = vector_of(memory_type(target.dtype), lanes.count)
    first = list(places)
    if factor < 0:
        lowest = first[target.unit]
        away = factor * (lanes.count - 1)
        first[target.unit] = Place(lowest.base, lowest.offset + away)
    if lanes.mask is not None:
        if abs(factor) != 1:
            return None
        return _load_masked(builder, target, first, kind, factor, lanes.mask)
    span = abs(factor) * (lanes.count - 1) + 1
    pieces = -(-span // lanes.count)
    if pieces > tuning.NEAR_VECTORS:
        return None
    where = emit_pointer(builder, target, first)
    begins = [min(at * lanes.count, span - lanes.count) for at in range(pieces)]
    loaded = [
        vectors.load(builder, _step(builder, where, INT64(begin * target.itemsize)), kind, 1)
        for begin in begins
    ]
    wanted = [abs(factor) * lane for lane in range(lanes.count)]
    if factor < 0:
        wanted.reverse()
    return choose_lanes(builder, loaded, begins, wanted)


def _load_masked(
    builder: ir.IRBuilder,
    target: Target,
    places: Sequence[Place],
    kind: ir.VectorType,
    factor: int,
    mask: ir.Value,
) -> ir.Value:
    where = emit_pointer(builder, target, places)
    if factor == 1:
        return masking.load_masked(builder, where, kind, mask)
    back = range(kind.count - 1, -1, -1)
    found = masking.load_masked(builder, where, kind, vectors.shuffle(builder, mask, mask, back))
    return vectors.shuffle(builder, found, found, back)


def _load_repeated(
    builder: ir.IRBuilder, target: Target, places: Sequence[Place], along: Affine, scope: Scope
) -> ir.Value | None:
    """Load lanes that share elements, as in `A[x//2]`; None if they are to be gathered."""
    lanes, divisor = scope.lanes, along.divisor
    assert lanes is not None
    assert target.unit is not None
    if along.factor(lanes.letter) != 1 or divisor > tuning.NEAR_VECTORS or lanes.mask is not None:
        return None
    kind = vector_of(memory_type(target.dtype), lanes.count)
    whole = emit_position(builder, Affine(along.terms, along.offset), scope).value(builder)
    quotient, rest = divide_down(builder, whole, divisor)
    last, _ = divide_down(builder, builder.add(whole, INT64(lanes.count - 1)), divisor)
    first = list(places)
    first[target.unit] = Place(quotient)
    where = emit_pointer(builder, target, first)
    needed = builder.add(builder.sub(last, quotient), INT64(1))
    mask = masking.mask_first_lanes(builder, lanes.count, needed)
    loaded = masking.load_masked(builder, where, kind, mask)
    found = None
    for phase in range(divisor):
        order = [(phase + lane) // divisor for lane in range(lanes.count)]
        transposed = vectors.shuffle(builder, loaded, loaded, order)
        if found is None:
            found = transposed
            continue
        here = builder.icmp_signed("==", rest, INT64(phase))
        found = builder.select(here, transposed, found)
    return found


def full_mask(scope: Scope) -> ir.Value:
    """Return the mask of the lanes that are computed."""
    assert scope.lanes is not None
    if scope.lanes.mask is not None:
        return scope.lanes.mask
    return constant(ir.VectorType(BIT, scope.lanes.count), 1)


def lane_positions(builder: ir.IRBuilder, position: Affine, scope: Scope) -> ir.Value:
    """Emit a position at each lane of a vector."""
    lanes = scope.lanes
    assert lanes is not None
    kind = ir.VectorType(INT64, lanes.count)
    factor = position.factor(lanes.letter)
    whole = emit_position(builder, Affine(position.terms, position.offset), scope)
    steps = ir.Constant(kind, [INT64(factor * lane) for lane in range(lanes.count)])
    found = builder.add(vectors.broadcast(builder, whole.value(builder), kind), steps)
    return found if position.divisor == 1 else divide_down(builder, found, position.divisor)[0]


def lane_pointers(
    builder: ir.IRBuilder, target: Target, subscripts: Sequence[Affine | ir.Value], scope: Scope
) -> ir.Value:
    """Emit a pointer for each lane, by positions that are known or values of them."""
    assert scope.lanes is not None
    kind = ir.VectorType(INT64, scope.lanes.count)
    total = constant(kind, 0)
    for axis, one in enumerate(subscripts):
        if isinstance(one, Affine):
            found = lane_positions(builder, one, scope)
        elif isinstance(one.type, ir.VectorType):
            found = one
        else:
            found = vectors.broadcast(builder, one, kind)
        found = _local_lanes(builder, target, axis, found)
        step = vectors.broadcast(builder, target.step(axis), kind)
        total = builder.add(total, builder.mul(found, step))
    return pointers_at(builder, target.base, total)


def _local_lanes(builder: ir.IRBuilder, target: Target, axis: int, positions: ir.Value) -> ir.Value:
    """Return where positions along an axis lie in a buffer."""
    if not target.origin:
        return positions
    if target.ring is not None and axis == target.ring[0]:
        return divide_down(builder, positions, target.ring[1])[1]
    origin = target.origin[axis].value(builder)
    return builder.sub(positions, vectors.broadcast(builder, origin, positions.type))


def pointers_at(builder: ir.IRBuilder, base: ir.Value, distances: ir.Value) -> ir.Value:
    """Emit a pointer for each lane, so many bytes from another one."""
    kind = distances.type
    begin = vectors.broadcast(builder, builder.ptrtoint(base, INT64), kind)
    places = ir.VectorType(ir.PointerType(), kind.count)
    return builder.inttoptr(builder.add(begin, distances), places)


def store_number(
    builder: ir.IRBuilder,
    target: Target,
    places: Sequence[Place],
    value: ir.Value,
    active: ir.Value | None,
) -> None:
    """Store one element, if it is computed at all."""
    value = to_bytes(builder, value, target.dtype)
    if active is None:
        builder.store(value, emit_pointer(builder, target, places), align=1)
        return
    with builder.if_then(active):
        builder.store(value, emit_pointer(builder, target, places), align=1)


def store_affine(
    builder: ir.IRBuilder,
    target: Target,
    subscripts: Sequence[Affine | ir.Value],
    value: ir.Value,
    scope: Scope,
    *,
    non_temporal: bool = False,
) -> None:
    """Store a number, or the lanes of a vector, where letters stand."""
    lanes = scope.lanes
    if lanes is None or not isinstance(value.type, ir.VectorType):
        places = emit_places(builder, subscripts, scope)
        store_number(builder, target, places, value, scope.active)
        return
    value = to_bytes(builder, value, target.dtype)
    along = _find_along(target, subscripts, lanes.letter)
    if along is None or along.divisor > 1 or along.factor(lanes.letter) != 1:
        pointers = lane_pointers(builder, target, subscripts, scope)
        masking.scatter(builder, value, pointers, full_mask(scope))
        return
    where = emit_pointer(builder, target, emit_places(builder, subscripts, scope))
    if lanes.mask is not None:
        masking.store_masked(builder, value, where, lanes.mask)
    else:
        align = lanes.count * target.itemsize if non_temporal else 1
        vectors.store(builder, value, where, align, non_temporal=non_temporal)
