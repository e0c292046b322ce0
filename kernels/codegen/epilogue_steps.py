"""Steps of epilogues in LLVM IR: functions of a block of C, for a dtype.

A block is several runs, so many bytes apart in C and in the operand. A step is given the address of
the first run, elements of a run, runs, bytes between them; the address of the operand's first
element, bytes from one to the next along a run and across; and two numbers. Unless the operand's
elements lie apart, it goes along runs by vectors. Operands of halves are widened; C of halves is an
operand, too: its sums are float32 until the last step rounds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llvmlite import ir

from tilesolve.contractions.half_precision import is_half, summed_dtype
from tilesolve.kernels.dtypes import real_of
from tilesolve.kernels.ir import smooth_functions, vectors
from tilesolve.kernels.ir.division import divide_down
from tilesolve.kernels.ir.half_precision import HALF_BYTES, load_kind, round_to_half, widen
from tilesolve.kernels.ir.reals import Real
from tilesolve.kernels.ir.vectors import INT64, to_pointer

ADD_MULTIPLE, WRITE = "add a multiple of C", "write C"
"""The steps that C of halves itself is the operand of."""

_SIGNATURE = ir.FunctionType(ir.VoidType(), [INT64] * 7 + [ir.DoubleType()] * 2)


def _rectify(x: Real, high: Real) -> Real:
    """Have nothing below zero or above a number; what is no number stays so."""
    return _clip_above(x.choose(x <= 0, 0, x), high)


def _clip_above(x: Real, high: Real) -> Real:
    return x.choose(x > high, high, x)


def _leak(x: Real, slope: Real) -> Real:
    """Multiply what is below zero by a slope."""
    return x.choose(x < 0, x * slope, x)


_WITH_OPERAND: Mapping[str, Callable[[Real, Real, Real], Real]] = {
    "*": lambda x, y, _: x * y,
    "+": lambda x, y, _: x + y,
    "+ relu": lambda x, y, high: _rectify(x + y, high),
    "+ relu6": lambda x, y, high: _rectify(x + y, high),
    ADD_MULTIPLE: lambda x, y, factor: x + factor * y,
}
"""What each step makes of an element, one of its operand, and the first number."""

_OF_ONE: Mapping[str, Callable[[Real, Real, Real], Real]] = {
    "relu": lambda x, high, _: _rectify(x, high),
    "relu6": lambda x, high, _: _rectify(x, high),
    "clip": lambda x, low, high: _clip_above(x.choose(x < low, low, x), high),
    "leaky": lambda x, slope, _: _leak(x, slope),
    "sigmoid": lambda x, *_: smooth_functions.sigmoid(x),
    "tanh": lambda x, *_: smooth_functions.tanh(x),
    "silu": lambda x, *_: smooth_functions.silu(x),
    "gelu": lambda x, *_: smooth_functions.gelu(x),
    "gelu-tanh": lambda x, *_: smooth_functions.gelu_tanh(x),
}
"""What each other step makes of an element and the two numbers."""


def takes_operand(name: str) -> bool:
    """Return whether a step has an operand, which is C itself for some."""
    return name not in _OF_ONE


def emit_step(module: ir.Module, symbol: str, name: str, dtype: str, bits: int) -> None:
    """Add a step for a dtype and vectors of so many bits to a module, as a function of a name.

    Examples
    --------
    >>> module = ir.Module()
    >>> emit_step(module, "step", "gelu", "float32", 256)
    >>> [function.name for function in module.functions][0]
    'step'
    """
    function = ir.Function(module, _SIGNATURE, symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    run, count, high, pitch, place, distance, apart, *numbers = function.args
    step = _Step(builder, name, dtype, bits, tuple(numbers))

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
        name: str,
        dtype: str,
        bits: int,
        numbers: tuple[ir.Value, ...],
    ) -> None:
        self.builder, self.name, self.dtype, self.numbers = builder, name, dtype, numbers
        summed = summed_dtype(dtype)
        kind = vectors.vector_type(real_of(summed), bits)
        self.scalar, self.parts = kind.element, 1 if real_of(summed) == summed else 2
        self.lanes = kind.count // self.parts
        self.size = bits // 8 // self.lanes
        self.operand_size = HALF_BYTES if is_half(dtype) else self.size

    def emit_run(self, run: ir.Value, count: ir.Value, place: ir.Value, distance: ir.Value) -> None:
        """Emit what is done to a run."""
        builder = self.builder
        if self.name in _OF_ONE:
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
        if self.name == WRITE:
            self._go_one_by_one(run, count, place, distance)
            return
        builder = self.builder
        same = builder.icmp_signed("==", distance, INT64(0))
        with builder.if_else(same) as (one, each):
            with one:
                known = self._read(place, ir.VectorType(self.scalar, self.parts)).value
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
        x = Real(builder, self._load(run, kind))
        if self.name == WRITE:
            assert place is not None
            self._store(place, round_to_half(builder, x.value, self.dtype))
            return
        first, second = (self._number(x, one) for one in self.numbers)
        if self.name in _OF_ONE:
            found = _OF_ONE[self.name](x, first, second)
        else:
            y = self._read(place, kind) if known is None else self._repeat(x, known)
            complex_product = self.name == "*" and self.parts == 2
            found = _multiply(x, y) if complex_product else _WITH_OPERAND[self.name](x, y, first)
        self._store(run, found.value)

    def _repeat(self, x: Real, known: ir.Value) -> Real:
        """Return one element in each lane."""
        order = [lane % self.parts for lane in range(x.value.type.count)]
        return x.of(vectors.shuffle(self.builder, known, known, order))

    def _number(self, x: Real, number: ir.Value) -> Real:
        """Return an argument of the step in each lane."""
        narrow = Real(self.builder, number).cast(x.element).value
        return x.of(vectors.broadcast(self.builder, narrow, x.value.type))

    def _read(self, place: ir.Value, kind: ir.VectorType) -> Real:
        """Return elements of the operand."""
        if not is_half(self.dtype):
            return Real(self.builder, self._load(place, kind))
        halves = self._load(place, load_kind(kind))
        return Real(self.builder, widen(self.builder, halves, self.dtype))

    def _load(self, place: ir.Value, kind: ir.VectorType) -> ir.Value:
        return vectors.load(self.builder, to_pointer(self.builder, place), kind, 1)

    def _store(self, place: ir.Value, value: ir.Value) -> None:
        vectors.store(self.builder, value, to_pointer(self.builder, place), 1)


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
