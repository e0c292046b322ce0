"""Terms of programs in LLVM IR: their values at a point, or at all lanes of a vector."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import identity, is_complex
from tilesolve.contractions.statements.terms import (
    Apply,
    Number,
    Param,
    Position,
    Read,
    Reduce,
    Term,
)
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import BYTE, EMITTERS, cast, number_type
from tilesolve.kernels.ir.complexes import select
from tilesolve.kernels.ir.masking import load_masked, mask_first_lanes
from tilesolve.kernels.ir.picked_bytes import LANES, pick_bytes
from tilesolve.kernels.ir.term_values import TermValues
from tilesolve.kernels.ir.vectors import INT64, constant
from tilesolve.kernels.programs.accesses import (
    full_mask,
    lane_positions,
    load_affine,
    to_bits,
)
from tilesolve.kernels.programs.conditions import within
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.range_checks import RangeCheck
from tilesolve.kernels.programs.scope import Place, Scope, emit_position
from tilesolve.kernels.programs.transposed_blocks import load_transposed


class TermEmitter(TermValues):
    """Terms of a stage at one point: what is the same is computed once.

    Parameters
    ----------
    emitter
        Where to write.
    stage
        The position of the stage.
    scope
        What surrounds the point.
    keeps
        Whether computed subscripts are kept for what is emitted within.

    Attributes
    ----------
    outside
        For each computed subscript so far, whether it lies outside of its array.
    """

    def __init__(self, emitter: Emitter, stage: int, scope: Scope, *, keeps: bool = False) -> None:
        lanes = None if scope.lanes is None else scope.lanes.count
        super().__init__(emitter.builder, emitter.dtypes, lanes)
        self.emitter, self.number, self.scope, self.keeps = emitter, stage, scope, keeps
        self.stage = emitter.stage(stage)
        self.outside: list[ir.Value] = []

    def leaf(self, term: Term) -> ir.Value:
        """Emit a parameter, a position, an element or a reduction."""
        match term:
            case Param(name=name):
                return self.emitter.params[name]
            case Position(position=position):
                return self.position(position)
            case Read():
                return self.read(term)
            case Reduce():
                return self._reduce(term)
        raise SpecError(f"{term!r} is no term that is lowered")

    def apply(self, term: Apply, dtypes: Sequence[str], values: Sequence[ir.Value]) -> ir.Value:
        """Emit an operation of values; powers of integers tell of an exponent below 0."""
        kind = dtypes[-1]
        if (
            term.name == "power"
            and kind.startswith("int")
            and not isinstance(term.parts[1], Number)
        ):
            exponent = cast(self.builder, values[1], kind, "int64")
            below = self.builder.icmp_signed("<", exponent, constant(exponent.type, 0))
            self.emitter.tell(-1 - self.number, below, exponent, self.scope)
        return super().apply(term, dtypes, values)

    def position(self, position: Affine) -> ir.Value:
        """Emit a position as a number."""
        builder, lanes = self.emitter.builder, self.scope.lanes
        if lanes is not None and position.factor(lanes.letter):
            return lane_positions(builder, position, self.scope)
        return emit_position(builder, position, self.scope).value(builder)

    def read(self, read: Read) -> ir.Value:
        """Emit the load of an element."""
        target = self.emitter.targets[read.array]
        plain = read.plain
        if plain is not None:
            transposed = load_transposed(self.emitter, target, plain, self.scope)
            if transposed is not None:
                return to_bits(self.emitter.builder, transposed, target.dtype)
        if (count := self._fits_registers(read)) is not None:
            return self._pick(read, count)
        if self._runs_apart(read):
            return self._lane_by_lane(read)
        places: Sequence[Affine | ir.Value] = plain or ()
        if plain is None:
            places = self.checked_places(read)
        return load_affine(self.emitter.builder, target, places, self.scope)

    def _fits_registers(self, read: Read) -> int | None:
        """Return the elements of a table of bytes that is kept in registers; None if it is not."""
        lanes, targets = self.scope.lanes, self.emitter.targets
        if lanes is None or lanes.count != LANES or not self.emitter.picks_bytes:
            return None
        count = dict(self.emitter.skeleton.picked).get(read)
        along = any(lanes.letter in one.letters for one in read.parts)
        return count if along and targets[read.array].unit == 0 else None

    def _pick(self, read: Read, count: int) -> ir.Value:
        """Emit picks of elements out of registers that have the table."""
        builder, target = self.emitter.builder, self.emitter.targets[read.array]
        kind, (position,) = ir.VectorType(BYTE, LANES), read.parts
        table = []
        for begin in range(0, count, LANES):
            where = builder.gep(target.base, [INT64(begin)], source_etype=BYTE)
            mask = mask_first_lanes(builder, LANES, INT64(count - begin))
            table.append(load_masked(builder, where, kind, mask))
        if table[1:] and len(table) % 2:  # pairs of registers are picked from
            table.append(table[0])
        found = pick_bytes(builder, table, self.value(position, "uint8"))
        return to_bits(builder, found, target.dtype)

    def _runs_apart(self, read: Read) -> bool:
        """Return whether each lane loads by itself, at positions whose checks hold."""
        lanes = self.scope.lanes
        if lanes is None or lanes.mask is not None or read.plain is not None:
            return False
        if read.array in self.emitter.skeleton.far or is_complex(self.emitter.dtypes[read.array]):
            return False
        axes = [axis for axis, one in enumerate(read.subscripts) if isinstance(one, Term)]
        checks = {RangeCheck(self.number, read, axis) for axis in axes}
        if not checks <= self.emitter.passed:
            return False
        return any(lanes.letter in one.letters for one in read.parts)

    def _lane_by_lane(self, read: Read) -> ir.Value:
        """Emit a load for each lane: positions come from memory, not out of a vector."""
        builder, lanes = self.emitter.builder, self.scope.lanes
        assert lanes is not None
        kind = ir.VectorType(number_type(self.emitter.dtypes[read.array]), lanes.count)
        found = ir.Constant(kind, ir.Undefined)
        first = vectors.hide_origin(builder, self.scope.places[lanes.letter].value(builder))
        scope = self.scope.at(lanes.letter, Place(first))
        for lane in range(lanes.count):
            point = TermEmitter(self.emitter, self.number, scope.lane(lane))
            found = builder.insert_element(found, point.read(read), ir.IntType(32)(lane))
        return found

    def checked_places(self, read: Read) -> list[Affine | ir.Value]:
        """Return the positions of an element, those that are computed after a check."""
        found: list[Affine | ir.Value] = []
        for axis, one in enumerate(read.subscripts):
            if isinstance(one, Affine):
                found.append(one)
                continue
            kept = self.emitter.kept.get((self.number, read, axis))
            if kept is not None:
                found.append(kept[0])
                self.outside.append(kept[1])
                continue
            value = self.value(one, "int64")
            check = RangeCheck(self.number, read, axis)
            if check in self.emitter.passed:
                found.append(value)
                continue
            extent = self.emitter.skeleton.shape(read.array)[axis]
            place, outside = self.emitter.check(check, value, extent, self.scope)
            found.append(place)
            self.outside.append(outside)
            if self.keeps:
                self.emitter.kept[self.number, read, axis] = [place, outside]
        return found

    def _reduce(self, term: Reduce) -> ir.Value:
        """Emit a reduction within a term, with loops of its own."""
        emitter, builder = self.emitter, self.emitter.builder
        kind = self.kind(term)
        first = constant(number_type(kind), identity(term.name, kind))
        bounds = {x for one in self.stage.conditions(term) for x in one.letters}
        if self.scope.lanes is not None and self.scope.lanes.letter in {*term.letters, *bounds}:
            first = self.lanes_of(first)

        def loops(letters: Sequence[str], scope: Scope, so_far: ir.Value) -> ir.Value:
            if not letters:
                return self._reduced_at(term, kind, scope, so_far)
            letter, extent = letters[0], emitter.skeleton.extent(letters[0])
            last = max(0, extent.interval(scope.ranges)[1] - 1)

            def trip(index: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
                inner = scope.at(letter, Place(index), (0, last))
                with emitter.inside():
                    return [loops(letters[1:], inner, carried[0])]

            count = emit_position(builder, extent, scope).value(builder)
            return vectors.emit_loop(builder, count, [so_far], trip)[0]

        return loops(term.over, self.scope, first)

    def _reduced_at(self, term: Reduce, kind: str, scope: Scope, so_far: ir.Value) -> ir.Value:
        """Emit one step of a reduction within a term."""
        builder = self.emitter.builder
        conditions = self.stage.conditions(term)
        inner = scope
        if conditions:
            inner = within(builder, conditions, scope)
        point = TermEmitter(self.emitter, self.number, inner)
        value = point.value(term.term, kind)
        if isinstance(so_far.type, ir.VectorType):
            value = point.lanes_of(value)
        found = EMITTERS[term.name](builder, kind, [so_far, value])
        if not conditions:
            return found
        chosen = inner.active
        if isinstance(so_far.type, ir.VectorType):
            chosen = full_mask(inner)
        return select(builder, chosen, found, so_far)
