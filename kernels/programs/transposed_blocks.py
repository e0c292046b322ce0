"""Blocks that are transposed in registers: reads whose lanes lie apart, but whose rows do not."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.contractions.statements.affine import Affine
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import BYTE, memory_type
from tilesolve.kernels.ir.complexes import vector_of
from tilesolve.kernels.programs.accesses import Target, emit_pointer, walks_pixels
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.scope import Place, Scope, emit_position


def load_transposed(
    emitter: Emitter, target: Target, subscripts: Sequence[Affine], scope: Scope
) -> ir.Value | None:
    """Load lanes that lie apart through rows of a block that is transposed; None if it is none.

    The array's unit axis is walked by a loop that is written out, by as many trips at least as a
    vector has lanes. The first point of a block loads its rows and transposes them; others take
    their vectors.
    """
    letter = _row_letter(target, subscripts, scope)
    side = 0 if letter is None else _side(scope, letter)
    if letter is None or side < tuning.LEAST_TRANSPOSED_ROWS:
        return None
    number = scope.trips[letter].number % side
    places = [_position_before(emitter, one, scope, letter, number) for one in subscripts]
    key = (
        target.name,
        side,
        tuple((_identity(place.base), place.offset) for place in places),
        None if scope.lanes is None else (scope.lanes.count, _identity(scope.lanes.block_mask)),
    )
    if key not in emitter.kept:
        emitter.kept[key] = _load_block(emitter, target, subscripts, places, scope, side)
    return emitter.kept[key][number]


def _row_letter(target: Target, subscripts: Sequence[Affine], scope: Scope) -> str | None:
    """Return the letter of the loop that walks the rows of a block; None if there is none."""
    lanes = scope.lanes
    if lanes is None or target.unit is None or target.ring is not None:
        return None
    if walks_pixels(target, subscripts, lanes.letter):
        return None
    along = subscripts[target.unit]
    others = [one for axis, one in enumerate(subscripts) if axis != target.unit]
    across = [one for one in others if one.factor(lanes.letter)]
    if along.factor(lanes.letter) or not across:
        return None
    if along.divisor > 1 or any(one.divisor > 1 for one in across):
        return None
    for factor, letter in along.terms:
        if factor == 1 and letter in scope.trips and not any(one.factor(letter) for one in others):
            return letter
    return None


def _side(scope: Scope, letter: str) -> int:
    """Return how many trips make a block: as many as lanes, or a power of two of those left."""
    assert scope.lanes is not None
    trip, side = scope.trips[letter], scope.lanes.count
    while side > 1 and trip.number - trip.number % side + side > trip.count:
        side //= 2
    return side


def _position_before(
    emitter: Emitter, position: Affine, scope: Scope, letter: str, back: int
) -> Place:
    """Emit a position as many trips of a loop before."""
    place = scope.places[letter]
    earlier = scope.at(letter, Place(place.base, place.offset - back))
    return _emit_once(emitter, position, earlier)


def _emit_once(emitter: Emitter, position: Affine, scope: Scope) -> Place:
    """Emit a position, or find what was emitted for it where letters stood the same."""
    if position.divisor > 1:
        return emit_position(emitter.builder, position, scope)
    offset = position.offset + sum(
        factor * scope.places[letter].offset for factor, letter in position.terms
    )
    key = (position.terms, tuple(_identity(scope.places[x].base) for x in position.letters))
    if key not in emitter.kept:
        base = emit_position(emitter.builder, position, scope).base
        if base is None:
            return Place(None, offset)
        emitter.kept[key] = [base]
    return Place(emitter.kept[key][0], offset)


def _identity(value: ir.Value | None) -> int:
    return 0 if value is None else id(value)


def _load_block(
    emitter: Emitter,
    target: Target,
    subscripts: Sequence[Affine],
    places: Sequence[Place],
    scope: Scope,
    side: int,
) -> list[ir.Value]:
    """Emit the loads of a block's rows, one a lane, and return its columns."""
    builder, lanes = emitter.builder, scope.lanes
    assert lanes is not None
    kind = vector_of(memory_type(target.dtype), side)
    rows = []
    for lane in range(lanes.count):
        shifted = [
            Place(place.base, place.offset + one.factor(lanes.letter) * lane)
            if one.divisor == 1
            else place
            for one, place in zip(subscripts, places, strict=True)
        ]
        active = None
        if lanes.block_mask is not None:  # any other row will do
            active = builder.extract_element(lanes.block_mask, ir.IntType(32)(lane))
        where = emit_pointer(builder, target, shifted, active)
        rows.append(vectors.load(builder, where, kind, 1))
        if active is None:
            ahead = ir.IntType(64)(tuning.TRANSPOSED_PREFETCH_BYTES)
            vectors.prefetch(builder, builder.gep(where, [ahead], source_etype=BYTE), near=False)
    return vectors.transpose_vectors(builder, rows)
