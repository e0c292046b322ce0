"""Bytes that compiled functions copy: lines, parts of lines, and elements that lie apart.

All are intrinsics, for compiled functions only. Only targets of non-temporal stores need be
aligned.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.choices import choose
from tilesolve.kernels.ir.intrinsics import intrinsic
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.sizes import LINE_BYTES, WORD_BYTES

SINGLE_BYTES = (2, 4, 8, 16)
"""Bytes of the elements that `copy_apart` copies."""


@intrinsic
def prefetch_source(builder, address):
    """Prefetch a line to the second cache, to be read."""
    vectors.prefetch(builder, vectors.to_pointer(builder, address), near=False)


@intrinsic
def prefetch_target(builder, address):
    """Prefetch a line to the first cache, to be written to."""
    vectors.prefetch(builder, vectors.to_pointer(builder, address), write=True)


@intrinsic
def store_line(builder, source, target):
    """Copy a line to an address that is a multiple of `LINE_BYTES`, by non-temporal stores."""
    _copy(builder, LINE_BYTES, (source, target), non_temporal=True)


@intrinsic
def store_joined_line(builder, before, source, target, size):
    """Store a line non-temporally: so many bytes from one address, then those of another line.

    Both lines are joined in registers: through memory, the load of the joined line would wait for
    the stores of its parts, and for all stores before them.
    """
    kind = ir.VectorType(ir.IntType(8), LINE_BYTES)
    first, second = (
        vectors.load(builder, vectors.to_pointer(builder, place), kind, 1)
        for place in (before, source)
    )
    count = builder.trunc(size, kind.element)
    counts = vectors.broadcast(builder, count, kind)
    lanes = ir.Constant(kind, list(range(LINE_BYTES)))
    value = builder.select(builder.icmp_signed("<", lanes, counts), first, second)
    vectors.store(
        builder, value, vectors.to_pointer(builder, target), LINE_BYTES, non_temporal=True
    )


@intrinsic
def list_lines(builder, place, source, target, count):
    """Write the addresses of so many lines, and of those that they go to, in pairs from a place on.

    They are written four pairs at a time: there must be room for three more.
    """
    kind = vectors.vector_type("int64", 8 * LINE_BYTES)
    pairs = kind.count // 2
    steps = ir.Constant(kind, [LINE_BYTES * at for at in range(pairs) for _ in range(2)])
    first = ir.Constant(kind, ir.Undefined)
    for at in range(kind.count):
        first = builder.insert_element(first, (source, target)[at % 2], INT64(at))
    further = vectors.broadcast(builder, INT64(LINE_BYTES * pairs), kind)

    def write(trip: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        where = builder.add(place, builder.mul(trip, INT64(LINE_BYTES)))
        vectors.store(builder, values[0], vectors.to_pointer(builder, where), WORD_BYTES)
        return [builder.add(values[0], further)]

    trips = builder.sdiv(builder.add(count, INT64(pairs - 1)), INT64(pairs))
    vectors.emit_loop(builder, trips, [builder.add(first, steps)], write)


@intrinsic
def copy_line(builder, source, target):
    """Copy `LINE_BYTES` bytes."""
    _copy(builder, LINE_BYTES, (source, target))


@intrinsic
def copy_part(builder, source, target, size):
    """Copy less than `LINE_BYTES` bytes."""
    done = builder.append_basic_block("copied")
    power = LINE_BYTES // 2
    while power:  # two parts that may overlap
        enough = builder.icmp_unsigned(">=", size, INT64(power))
        with builder.if_then(enough, likely=True):
            last = builder.sub(size, INT64(power))
            for away in (INT64(0), last):
                places = [builder.add(place, away) for place in (source, target)]
                _copy(builder, power, places)
            builder.branch(done)
        power //= 2
    builder.branch(done)
    builder.position_at_end(done)


@intrinsic
def store_head(builder, source, target, size):
    """Copy the bytes up to the end of a line, by non-temporal stores."""
    _store_parts(
        builder, (source, target, size), [1 << at for at in range(LINE_BYTES.bit_length() - 1)]
    )


@intrinsic
def store_tail(builder, source, target, size):
    """Copy less than `LINE_BYTES` bytes to the beginning of a line, by non-temporal stores."""
    _store_parts(
        builder,
        (source, target, size),
        [LINE_BYTES >> at for at in range(1, LINE_BYTES.bit_length())],
    )


@intrinsic
def copy_apart(builder, size, source, target, count, steps):
    """Copy elements of `SINGLE_BYTES` one by one.

    Parameters
    ----------
    size
        Of an element; of another size none is copied.
    source, target
        Addresses of the first element.
    count
        How many there are.
    steps
        Bytes between neighbours in the source and in the target.
    """

    def emit(single: int) -> None:
        def copy_one(at: ir.Value) -> None:
            read, written = (
                vectors.to_pointer(builder, place, builder.mul(at, step))
                for place, step in zip((source, target), steps, strict=True)
            )
            value = builder.load(read, typ=ir.IntType(8 * single), align=1)
            builder.store(value, written, align=1)

        vectors.repeat(builder, count, copy_one)

    choose(builder, size, {one: partial(emit, one) for one in SINGLE_BYTES})


def _store_parts(builder: ir.IRBuilder, args: Any, powers: Sequence[int]) -> None:
    """Copy less than `LINE_BYTES` bytes in parts, each to a multiple of its size."""
    source, target, size = args
    for power in powers:
        part = builder.and_(size, INT64(power))
        with builder.if_then(builder.icmp_signed("!=", part, INT64(0))):
            _copy(
                builder,
                power,
                (source, target),
                non_temporal=power >= tuning.MIN_NON_TEMPORAL_BYTES,
            )
        source, target = builder.add(source, part), builder.add(target, part)


def _copy(builder: ir.IRBuilder, size: int, places: Any, *, non_temporal: bool = False) -> None:
    """Copy so many bytes, a power of two, through a register."""
    part = min(size, WORD_BYTES)
    kind = ir.VectorType(ir.IntType(8 * part), size // part)
    source, target = (vectors.to_pointer(builder, place) for place in places)
    value = vectors.load(builder, source, kind, 1)
    vectors.store(builder, value, target, size if non_temporal else 1, non_temporal=non_temporal)
