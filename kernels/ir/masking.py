"""Masked loads and stores: lanes that are not there are neither read nor written.

Lanes lie side by side, or each has a pointer of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tilesolve.constants import tuning
from tilesolve.kernels.ir import complexes, vectors
from tilesolve.kernels.ir.complexes import ComplexVector
from tilesolve.kernels.ir.vectors import INT64

_INT32 = ir.IntType(32)


def mask_first_lanes(builder: ir.IRBuilder, lanes: int, count: ir.Value) -> ir.Value:
    """Return the mask of so many first lanes of all; of none if the count is not positive.

    Examples
    --------
    >>> builder, count = vectors.example_function()
    >>> print(mask_first_lanes(builder, 4, count).type)
    <4 x i1>
    """
    element = INT64
    if lanes > tuning.MAX_WORD_LANES:
        for symbol, bound in ((">", 0), ("<", lanes)):
            count = vectors.extreme(builder, symbol, count, INT64(bound))
        element = ir.IntType(max(8, 1 << lanes.bit_length().bit_length()))
        count = builder.trunc(count, element)
    kind = ir.VectorType(element, lanes)
    numbers = ir.Constant(kind, [element(lane) for lane in range(lanes)])
    return builder.icmp_signed("<", numbers, vectors.broadcast(builder, count, kind))


def mask_lanes_between(
    builder: ir.IRBuilder, lanes: int, first: ir.Value, end: ir.Value
) -> ir.Value:
    """Return the mask of the lanes from one on, up to the one before another.

    Examples
    --------
    >>> builder, count = vectors.example_function()
    >>> print(mask_lanes_between(builder, 4, INT64(1), count).type)
    <4 x i1>
    """
    before, mask = (mask_first_lanes(builder, lanes, lane) for lane in (first, end))
    return builder.and_(mask, builder.not_(before))


def load_masked(
    builder: ir.IRBuilder, where: ir.Value, kind: ir.VectorType, mask: ir.Value
) -> ir.Value:
    """Load the lanes of a mask from an unaligned address; the others are zero.

    Memory of the other lanes is not accessed.

    Examples
    --------
    >>> builder, count = vectors.example_function()
    >>> kind = vectors.vector_type("float64", 256)
    >>> mask = mask_first_lanes(builder, 4, count)
    >>> load_masked(builder, vectors.to_pointer(builder, count), kind, mask).callee.name
    'llvm.masked.load.v4f64.p0'
    """
    if isinstance(kind, ComplexVector):
        parts = load_masked(builder, where, kind.plain, complexes.spread(builder, mask))
        return complexes.to_complex(builder, parts, kind)
    arguments = (where, _INT32(1), mask, ir.Constant(kind, None))
    return _call_masked(builder, "load", kind, arguments, kind, where)


def store_masked(builder: ir.IRBuilder, value: ir.Value, where: ir.Value, mask: ir.Value) -> None:
    """Store the lanes of a mask to an unaligned address.

    Memory of the other lanes is not accessed.

    Examples
    --------
    >>> builder, count = vectors.example_function()
    >>> values = vectors.broadcast(builder, count, vectors.vector_type("int64", 256))
    >>> mask = mask_first_lanes(builder, 4, count)
    >>> store_masked(builder, values, vectors.to_pointer(builder, count), mask)
    >>> builder.block.instructions[-1].callee.name
    'llvm.masked.store.v4i64.p0'
    """
    if isinstance(value.type, ComplexVector):
        value, mask = complexes.to_plain(builder, value), complexes.spread(builder, mask)
    element = value.type.element
    if isinstance(element, ir.IntType) and element.width < INT64.width:
        mask = _hide(builder, mask)
    arguments = (value, where, _INT32(1), mask)
    _call_masked(builder, "store", ir.VoidType(), arguments, value.type, where)


def gather(
    builder: ir.IRBuilder, places: ir.Value, kind: ir.VectorType, mask: ir.Value
) -> ir.Value:
    """Load lanes of a mask from a pointer each; the others are zero.

    Examples
    --------
    >>> builder, count = vectors.example_function()
    >>> places = ir.Constant(ir.VectorType(ir.PointerType(), 4), None)
    >>> kind, mask = vectors.vector_type("float64", 256), mask_first_lanes(builder, 4, count)
    >>> gather(builder, places, kind, mask).callee.name
    'llvm.masked.gather.v4f64.v4p0'
    """
    if isinstance(kind, ComplexVector):
        both = complexes.spread_places(builder, places, kind.element.part)
        parts = gather(builder, both, kind.plain, complexes.spread(builder, mask))
        return complexes.to_complex(builder, parts, kind)
    arguments = (places, _INT32(1), mask, ir.Constant(kind, None))
    return _call_masked(builder, "gather", kind, arguments, kind, places)


def scatter(builder: ir.IRBuilder, value: ir.Value, places: ir.Value, mask: ir.Value) -> None:
    """Store lanes of a mask to a pointer each, in their order.

    Examples
    --------
    >>> builder, count = vectors.example_function()
    >>> values = vectors.broadcast(builder, count, vectors.vector_type("int64", 256))
    >>> places = builder.inttoptr(values, ir.VectorType(ir.PointerType(), 4))
    >>> scatter(builder, values, places, mask_first_lanes(builder, 4, count))
    >>> builder.block.instructions[-1].callee.name
    'llvm.masked.scatter.v4i64.v4p0'
    """
    if isinstance(value.type, ComplexVector):
        places = complexes.spread_places(builder, places, value.type.element.part)
        value, mask = complexes.to_plain(builder, value), complexes.spread(builder, mask)
    arguments = (value, places, _INT32(1), mask)
    _call_masked(builder, "scatter", ir.VoidType(), arguments, value.type, places)


def _hide(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Return a mask whose lanes the compiler does not know.

    Where it knows that a single lane of truncated integers is stored, LLVM up to 22.1 stores them
    as wide as they were before (llvm/llvm-project#179489).
    """
    bits = ir.IntType(mask.type.count)
    number = builder.bitcast(mask, bits)
    if bits.width <= INT64.width:
        known = vectors.hide_origin(builder, builder.zext(number, INT64))
        return builder.bitcast(builder.trunc(known, bits), mask.type)
    first = vectors.hide_origin(builder, builder.trunc(number, INT64))  # others may be known
    others = builder.and_(number, ir.Constant(bits, -(1 << INT64.width)))
    return builder.bitcast(builder.or_(others, builder.zext(first, bits)), mask.type)


def _call_masked(
    builder: ir.IRBuilder,
    what: str,
    returns: ir.Type,
    arguments: Sequence[ir.Value],
    kind: ir.VectorType,
    where: ir.Value,
) -> ir.Value:
    # An alignment among the arguments is what LLVM up to 21 wants; later ones take it, too.
    suffix = f"{vectors.type_suffix(kind)}.{vectors.type_suffix(where.type)}"
    return vectors.call_function(builder, f"llvm.masked.{what}.{suffix}", returns, arguments)
