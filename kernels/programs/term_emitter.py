"""Terms of programs in LLVM IR: their values at a point, or at all lanes of a vector."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import identity
from tilesolve.contractions.statements.terms import Param, Position, Read, Reduce, Term
from tilesolve.kernels.ir import arithmetic, vectors
from tilesolve.kernels.ir.arithmetic import EMITTERS, number_type
from tilesolve.kernels.ir.masking import gather
from tilesolve.kernels.ir.term_values import TermValues
from tilesolve.kernels.ir.vectors import constant
from tilesolve.kernels.programs.accesses import (
    full_mask,
    lane_pointers,
    lane_positions,
    load_affine,
    load_number,
    to_bits,
)
from tilesolve.kernels.programs.conditions import within
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.range_checks import RangeCheck
from tilesolve.kernels.programs.scope import Place, Scope, emit_places, emit_position
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

    Attributes
    ----------
    outside
        For each computed subscript so far, whether it lies outside of its array.
    """

    def __init__(self, emitter: Emitter, stage: int, scope: Scope) -> None:
        lanes = None if scope.lanes is None else scope.lanes.count
        super().__init__(emitter.builder, emitter.dtypes, lanes)
        self.emitter, self.number, self.scope = emitter, stage, scope
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
            return load_affine(self.emitter.builder, target, plain, self.scope)
        return self._read_computed(read)

    def _read_computed(self, read: Read) -> ir.Value:
        builder, scope = self.emitter.builder, self.scope
        target = self.emitter.targets[read.array]
        places = self.checked_places(read)
        if scope.lanes is None or not any(self._differs(place) for place in places):
            where = emit_places(builder, places, scope)
            return to_bits(builder, load_number(builder, target, where, scope.active), target.dtype)
        pointers = lane_pointers(builder, target, places, scope)
        kind = ir.VectorType(arithmetic.memory_type(target.dtype), scope.lanes.count)
        found = gather(builder, pointers, kind, full_mask(scope))
        return to_bits(builder, found, target.dtype)

    def _differs(self, place: Affine | ir.Value) -> bool:
        """Return whether lanes of the vector have different positions."""
        if isinstance(place, Affine):
            return self.scope.lanes is not None and place.factor(self.scope.lanes.letter) != 0
        return isinstance(place.type, ir.VectorType)

    def checked_places(self, read: Read) -> list[Affine | ir.Value]:
        """Return the positions of an element, those that are computed after a check."""
        found: list[Affine | ir.Value] = []
        for axis, one in enumerate(read.subscripts):
            if isinstance(one, Affine):
                found.append(one)
                continue
            value = self.value(one, "int64")
            check = RangeCheck(self.number, read, axis)
            extent = self.emitter.skeleton.shape(read.array)[axis]
            place, outside = self.emitter.check(check, value, extent, self.scope)
            found.append(place)
            self.outside.append(outside)
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
        return builder.select(chosen, found, so_far)
