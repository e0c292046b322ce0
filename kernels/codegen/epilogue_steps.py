"""Steps of epilogues in LLVM IR: functions that put a term in each element of a block of C.

A block is several runs, so many bytes apart in C and in the operand. A step is given the address of
the first run, elements of a run, runs, bytes between them; the address of the operand's first
element, bytes from one to the next along a run and across; and two numbers. Unless the operand's
elements lie apart, it goes along runs by vectors. Operands of halves are widened; C of halves is an
operand, too: its sums are float32 until the last step rounds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from tilesolve.contractions.epilogue_terms import (
    FIRST,
    OPERAND,
    SECOND,
    SUM,
    WRITE,
    reads_operand,
)
from tilesolve.contractions.half_precision import is_half, summed_dtype
from tilesolve.contractions.statements.terms import Apply, Read, Term
from tilesolve.kernels.dtypes import real_of
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import cast
from tilesolve.kernels.ir.division import divide_down
from tilesolve.kernels.ir.half_precision import HALF_BYTES, load_kind, round_to_half, widen
from tilesolve.kernels.ir.reals import Real
from tilesolve.kernels.ir.term_values import TermValues
from tilesolve.kernels.ir.vectors import INT64, to_pointer

_SIGNATURE = ir.FunctionType(ir.VoidType(), [INT64] * 7 + [ir.DoubleType()] * 2)


def emit_step(module: ir.Module, symbol: str, term: Term, dtype: str, bits: int) -> None:
    """Add a step for a dtype and vectors of so many bits to a module, as a function of a name.

    Examples
    --------
    >>> module = ir.Module()
    >>> emit_step(module, "step", SUM + OPERAND, "float32", 256)
    >>> [function.name for function in module.functions][0]
    'step'
    """
    function = ir.Function(module, _SIGNATURE, symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    run, count, high, pitch, place, distance, apart, *numbers = function.args
    step = _Step(builder, term, dtype, bits, numbers)

    def go_along(row: ir.Value) -> None:
        here = builder.add(run, builder.mul(row, pitch))
        step.emit_run(here, count, builder.add(place, builder.mul(row, apart)), distance)

    vectors.repeat(builder, high, go_along)
    builder.ret_void()


class _Step:
    """A step while it is written."""

    def __init__(
        self,
        builder: ir.IRBuilder,
        term: Term,
        dtype: str,
        bits: int,
        numbers: Sequence[ir.Value],
    ) -> None:
        self.builder, self.term, self.dtype, self.numbers = builder, term, dtype, numbers
        summed = summed_dtype(dtype)
        self.real = real_of(summed)
        kind = vectors.vector_type(self.real, bits)
        self.scalar, self.parts = kind.element, 1 if self.real == summed else 2
        self.lanes = kind.count // self.parts
        self.size = bits // 8 // self.lanes
        self.operand_size = HALF_BYTES if is_half(dtype) else self.size

    def emit_run(self, run: ir.Value, count: ir.Value, place: ir.Value, distance: ir.Value) -> None:
        """Emit what is done to a run."""
        builder = self.builder
        if not reads_operand(self.term):
            self._go_by_vectors(run, count)
            return
        beside = builder.icmp_signed("==", distance, INT64(self.operand_size))
        with builder.if_else(beside) as (then, otherwise):
            with then:
                self._go_by_vectors(run, count, place)
            with otherwise:
                self._go_along(run, count, place, distance)

    def _go_along(
        self, run: ir.Value, count: ir.Value, place: ir.Value, distance: ir.Value
    ) -> None:
        """Emit what is done to a run whose operand is one number, or whose elements lie apart."""
        if self.term == WRITE:
            self._go_one_by_one(run, count, place, distance)
            return
        builder = self.builder
        same = builder.icmp_signed("==", distance, INT64(0))
        with builder.if_else(same) as (one, each):
            with one:
                known = self._read(place, ir.VectorType(self.scalar, self.parts))
                self._go_by_vectors(run, count, known=known)
            with each:
                self._go_one_by_one(run, count, place, distance)

    def _go_by_vectors(
        self,
        run: ir.Value,
        count: ir.Value,
        place: ir.Value | None = None,
        known: ir.Value | None = None,
    ) -> None:
        """Emit what goes along a run by vectors, with an operand beside it or one that is known.

        What remains takes vectors of half the width, a quarter, and so on: masked stores would hold
        up loads of the next run, where that begins within their width.
        """
        builder = self.builder

        def apply(first: ir.Value, lanes: int) -> None:
            there = None if place is None else self._at(place, first, INT64(self.operand_size))
            self._apply(self._at(run, first, INT64(self.size)), lanes, there, known)

        whole, rest = divide_down(builder, count, self.lanes)
        vectors.repeat(
            builder, whole, lambda trip: apply(builder.mul(trip, INT64(self.lanes)), self.lanes)
        )
        lanes = self.lanes
        while lanes > 1:
            left, lanes = rest, lanes // 2
            quotient, rest = divide_down(builder, left, lanes)
            with builder.if_then(builder.icmp_signed(">", quotient, INT64(0))):
                apply(builder.sub(count, left), lanes)

    def _go_one_by_one(
        self, run: ir.Value, count: ir.Value, place: ir.Value, distance: ir.Value
    ) -> None:
        def apply(number: ir.Value) -> None:
            there = self._at(place, number, distance)
            self._apply(self._at(run, number, INT64(self.size)), 1, there, None)

        vectors.repeat(self.builder, count, apply)

    def _at(self, base: ir.Value, number: ir.Value, distance: ir.Value) -> ir.Value:
        return self.builder.add(base, self.builder.mul(number, distance))

    def _apply(
        self,
        run: ir.Value,
        lanes: int,
        place: ir.Value | None,
        known: ir.Value | None,
    ) -> None:
        """Emit what is done to so many elements."""
        builder, kind = self.builder, ir.VectorType(self.scalar, self.parts * lanes)
        x = self._load(run, kind)
        if self.term == WRITE:
            assert place is not None
            self._store(place, round_to_half(builder, x, self.dtype))
            return
        given: dict[Term, ir.Value] = {SUM: x}
        if known is not None:
            order = [lane % self.parts for lane in range(kind.count)]
            given[OPERAND] = vectors.shuffle(builder, known, known, order)
        elif place is not None:
            given[OPERAND] = self._read(place, kind)
        for name, number in zip((FIRST, SECOND), self.numbers, strict=True):
            narrow = cast(builder, number, "float64", self.real)
            given[name] = vectors.broadcast(builder, narrow, kind)
        values = _StepValues(builder, self.real, self.parts, given)
        self._store(run, values.lanes_of(values.value(self.term, self.real)))

    def _read(self, place: ir.Value, kind: ir.VectorType) -> ir.Value:
        """Return elements of the operand."""
        if not is_half(self.dtype):
            return self._load(place, kind)
        return widen(self.builder, self._load(place, load_kind(kind)), self.dtype)

    def _load(self, place: ir.Value, kind: ir.VectorType) -> ir.Value:
        return vectors.load(self.builder, to_pointer(self.builder, place), kind, 1)

    def _store(self, place: ir.Value, value: ir.Value) -> None:
        vectors.store(self.builder, value, to_pointer(self.builder, place), 1)


class _StepValues(TermValues):
    """Terms of elements, of which some are known; complex ones are two numbers each."""

    def __init__(
        self, builder: ir.IRBuilder, dtype: str, parts: int, given: Mapping[Term, ir.Value]
    ) -> None:
        names = [one.array if isinstance(one, Read) else str(one) for one in given]
        super().__init__(builder, dict.fromkeys(names, dtype), given[SUM].type.count)
        self.parts, self.given = parts, given

    def leaf(self, term: Term) -> ir.Value:
        """Return what is known."""
        return self.given[term]

    def apply(self, term: Apply, dtypes: Sequence[str], values: Sequence[ir.Value]) -> ir.Value:
        """Emit an operation."""
        if term.name == "multiply" and self.parts > 1:
            return _multiply(*(Real(self.builder, value) for value in values)).value
        return super().apply(term, dtypes, values)


def _multiply(x: Real, y: Real) -> Real:
    """Return the products of complex numbers, whose parts alternate."""
    builder, count = x.builder, x.value.type.count

    def pick(value: Real, order: list[int]) -> Real:
        return x.of(vectors.shuffle(builder, value.value, value.value, order))

    lanes = range(count)
    straight = x * pick(y, [lane & ~1 for lane in lanes])
    crossed = pick(x, [lane ^ 1 for lane in lanes]) * pick(y, [lane | 1 for lane in lanes])
    sums, differences = (straight + crossed).value, (straight - crossed).value
    order = [lane + count * (lane & 1) for lane in lanes]
    return x.of(vectors.shuffle(builder, differences, sums, order))
