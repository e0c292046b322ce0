"""Powers of e: those of the definition, in higher precision, everywhere."""

import ctypes
from math import inf

import numpy as np
import pytest
from llvmlite import ir

from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu, compile_module
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.exponentials import emit_exp

UNITS = 2


def power(x):
    """Powers of e of numbers, as vectors."""
    kind = vectors.vector_type(str(x.dtype), 256)
    types = ir.FunctionType(ir.VoidType(), (vectors.INT64, ir.PointerType(), ir.PointerType()))
    function = ir.Function(ir.Module(), types, "power")
    builder = ir.IRBuilder(function.append_basic_block())
    count, *pointers = function.args

    def trip(at):
        source, target = (builder.gep(place, [at], source_etype=kind) for place in pointers)
        vectors.store(builder, emit_exp(builder, vectors.load(builder, source, kind, 1)), target, 1)

    vectors.repeat(builder, count, trip)
    builder.ret_void()
    code = LoadedCode(compile_module(function.module, TargetCpu.here(), unroll=False))
    found = np.empty_like(x)
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 2)(code.address("power"))
    assert x.size % kind.count == 0
    call(x.size // kind.count, x.ctypes.data, found.ctypes.data)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_units_are_lost(dtype):
    """From what becomes zero to what becomes infinite, subnormal results among them."""
    ends = np.finfo(dtype)
    least, most = float(np.log(ends.smallest_subnormal)), float(np.log(ends.max))
    x = np.concatenate([np.linspace(least - 9, most, 60_000), np.linspace(-2, 2, 20_000)])
    x = np.minimum(x.astype(dtype), np.nextafter(np.array(most, dtype), 0, dtype=dtype))
    with np.errstate(under="ignore"):
        expected = np.exp(x.astype(np.longdouble))
        unit = np.spacing(expected.astype(dtype)).astype(np.longdouble)
    lost = np.abs(power(x).astype(np.longdouble) - expected) / unit
    assert lost.max() <= UNITS, (x[lost.argmax()], lost.max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_and_what_is_no_number(dtype):
    largest = np.finfo(dtype).max
    x = np.array([np.nan, inf, -inf, largest, -largest, 0.0, -0.0, 1e4], dtype)
    np.testing.assert_array_equal(power(x), [np.nan, inf, 0, inf, 0, 1, 1, inf])
