"""Bytes that are computed from bytes by arithmetic of 16 bits: even and odd ones apart.

Each half of a vector of bytes is a vector of 16-bit numbers as it lies, so that nothing is moved
across lanes. See docs/decisions/076.
"""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from tilesolve.contractions.statements.operations import named_kind
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Cast, Choose, Number, Param, Read
from tilesolve.kernels.ir.arithmetic import COMPARISONS
from tilesolve.kernels.ir.vectors import constant
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.scope import Scope
from tilesolve.kernels.programs.term_emitter import TermEmitter

_BYTES, _TWICE = ("int8", "uint8"), ("int16", "uint16")
_OPERATIONS = {
    *("add", "subtract", "multiply", "negative", "absolute", "minimum", "maximum"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"),
    *COMPARISONS,
}


def computes_in_halves(stage: Stage, dtypes: Mapping[str, str], letter: str) -> bool:
    """Return whether a stage makes bytes side by side along a letter of such, by 16-bit arithmetic.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> (stage,) = parse_stages("o[x] = uint8((uint16(A[x]) + uint16(B[x])) >> 1)")
    >>> bytes_of = dict.fromkeys("oAB", "uint8")
    >>> computes_in_halves(stage, bytes_of, "x"), computes_in_halves(stage, bytes_of, "y")
    (True, False)
    """
    if stage.reduction or stage.update or stage.sequence or dtypes[stage.name] not in _BYTES:
        return False
    kinds = set()
    for one in stage.term.all:
        if not isinstance(one, Apply | Cast | Choose | Number | Param | Read):
            return False
        if isinstance(one, Apply) and one.name not in _OPERATIONS:
            return False
        if not isinstance(one, Number):
            kinds.add(named_kind(one.kind(dtypes)))
    if not kinds <= {*_BYTES, *_TWICE, "bool"} or kinds.isdisjoint(_TWICE):
        return False
    reads = (stage.target, *stage.reads)
    return all(dtypes[one.array] in _BYTES and _lies_along(one, letter) for one in reads)


def _lies_along(read: Read, letter: str) -> bool:
    """Return whether lanes along a letter read neighbours."""
    if not read.plain:
        return False
    *before, last = read.plain
    side = last.factor(letter) == last.divisor == 1
    return side and not any(letter in one.letters for one in before)


def emit_halves(emitter: Emitter, number: int, scope: Scope) -> ir.Value | None:
    """Emit such a stage at the lanes of a vector; None for others, and where one has them all."""
    lanes, half = scope.lanes, ir.IntType(16)
    if lanes is None or scope.trips or lanes.count * half.width <= emitter.bits:
        return None
    if not computes_in_halves(emitter.stage(number), emitter.dtypes, lanes.letter):
        return None
    builder = emitter.builder
    even, odd = (_HalfEmitter(emitter, number, scope, odd=one).half() for one in (False, True))
    kind = ir.VectorType(half, even.type.count)
    even, odd = (builder.zext(one, kind) for one in (even, odd))
    pairs = builder.or_(even, builder.shl(odd, constant(kind, 8)))
    return builder.bitcast(pairs, ir.VectorType(ir.IntType(8), 2 * kind.count))


class _HalfEmitter(TermEmitter):
    """Terms at the even lanes of a vector, or at the odd ones."""

    def __init__(self, emitter: Emitter, number: int, scope: Scope, *, odd: bool) -> None:
        super().__init__(emitter, number, scope)
        assert self.lanes is not None
        self.odd, self.lanes = odd, self.lanes // 2

    def read(self, read: Read) -> ir.Value:
        """Emit the load of all lanes, and take the half."""
        found, builder = super().read(read), self.builder
        pairs = builder.bitcast(found, ir.VectorType(ir.IntType(16), found.type.count // 2))
        if self.odd:
            pairs = builder.lshr(pairs, constant(pairs.type, 8))
        return builder.trunc(pairs, ir.VectorType(ir.IntType(8), pairs.type.count))

    def half(self) -> ir.Value:
        """Emit what the stage computes there."""
        return self.lanes_of(self.value(self.stage.term, self.emitter.dtypes[self.stage.name]))
