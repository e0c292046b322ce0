"""Division of integers: rounded down, and nothing where the divisor is; no CPU traps."""

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu, compile_module
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.division import divide_down

LANES = 16


def divide(x, y):
    """Quotients and remainders of vectors; a divisor that is a number is known in the code."""
    kind = ir.VectorType(ir.IntType(8 * x.itemsize), LANES)
    module, pointer = ir.Module(), ir.PointerType()
    types = ir.FunctionType(ir.VoidType(), [pointer] * 4 + [vectors.INT64])
    function = ir.Function(module, types, "divide")
    builder = ir.IRBuilder(function.append_basic_block())

    def trip(at):
        places = [builder.gep(argument, [at], source_etype=kind) for argument in function.args[:4]]
        given = vectors.load(builder, places[0], kind, 1)
        divisor = y if isinstance(y, int) else vectors.load(builder, places[1], kind, 1)
        made = divide_down(builder, given, divisor, signs=x.dtype.kind == "i")
        for value, place in zip(made, places[2:], strict=True):
            vectors.store(builder, value, place, 1)

    vectors.repeat(builder, function.args[4], trip)
    builder.ret_void()
    code = LoadedCode(compile_module(module, TargetCpu.here(), unroll=False))
    found = np.empty((2, x.size), x.dtype)
    arrays = x, x if isinstance(y, int) else y, *found
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(code.address("divide"))
    call(*(array.ctypes.data for array in arrays), x.size // LANES)
    return found


def expected(x, y):
    """What Python's integers give, wrapped around."""
    pairs = [divmod(a, b) if b else (0, 0) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return np.array(pairs).T.astype(x.dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_all_pairs_of_bytes(dtype):
    """Zero, and the least number by -1, are among them."""
    every = np.arange(256).astype(np.uint8).view(dtype)
    x, y = (np.ascontiguousarray(part.ravel()) for part in np.meshgrid(every, every))
    np.testing.assert_array_equal(divide(x, y), expected(x, y))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
@pytest.mark.parametrize("divisor", [0, 1, 2, 3, 7, 64, 127, 128, 255, -1, -2, -128])
def test_known_divisors(dtype, divisor):
    """Powers of two are shifts; what has the sign's bit set is one without signs alone."""
    ends = np.iinfo(dtype)
    if not ends.min <= divisor <= ends.max:
        pytest.skip("no number of the dtype")
    x = np.arange(256).astype(np.uint8).view("int8").astype(dtype)
    y = np.full_like(x, divisor)
    np.testing.assert_array_equal(divide(x, divisor), expected(x, y))
