"""Lanes of vectors that lie apart in memory: each has a pointer of its own."""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels.ir import vectors

_UNALIGNED = ir.IntType(32)(1)
_ELEMENTS = ir.DoubleType(), ir.PointerType(), ir.IntType(1)
"""Of values, pointers and masks in the examples."""


def gather(
    builder: ir.IRBuilder, places: ir.Value, kind: ir.VectorType, mask: ir.Value
) -> ir.Value:
    """Load lanes of a mask from a pointer each; the others are zero.

    Examples
    --------
    >>> kind, places, mask = (ir.VectorType(one, 4) for one in _ELEMENTS)
    >>> kinds = ir.FunctionType(kind, (places, mask))
    >>> function = ir.Function(ir.Module(), kinds, "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> gather(builder, function.args[0], kind, function.args[1]).callee.name
    'llvm.masked.gather.v4f64.v4p0'
    """
    name = f"llvm.masked.gather.{vectors.type_suffix(kind)}.{vectors.type_suffix(places.type)}"
    arguments = (places, _UNALIGNED, mask, ir.Constant(kind, None))
    return vectors.call_function(builder, name, kind, arguments)


def scatter(builder: ir.IRBuilder, value: ir.Value, places: ir.Value, mask: ir.Value) -> None:
    """Store lanes of a mask to a pointer each, in their order.

    Examples
    --------
    >>> kinds = [ir.VectorType(one, 4) for one in _ELEMENTS]
    >>> function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), kinds), "example")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> scatter(builder, *function.args)
    >>> builder.block.instructions[-1].callee.name
    'llvm.masked.scatter.v4f64.v4p0'
    """
    name = (
        f"llvm.masked.scatter.{vectors.type_suffix(value.type)}.{vectors.type_suffix(places.type)}"
    )
    vectors.call_function(builder, name, ir.VoidType(), (value, places, _UNALIGNED, mask))
