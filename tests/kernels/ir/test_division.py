"""Division of integers: rounded down, and nothing where the divisor is; of reals by constants."""

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu, compile_module
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import number_type
from tilesolve.kernels.ir.division import divide_by, divide_down

LANES = 16


def divide(x, y):
    """Quotients and remainders of vectors; a divisor that is a number is known in the code."""
    kind = ir.VectorType(number_type(x.dtype.name), LANES)
    module, pointer = ir.Module(), ir.PointerType()
    types = ir.FunctionType(ir.VoidType(), [pointer] * 4 + [vectors.INT64])
    function = ir.Function(module, types, "divide")
    builder = ir.IRBuilder(function.append_basic_block())

    def trip(at):
        places = [builder.gep(argument, [at], source_etype=kind) for argument in function.args[:4]]
        given = vectors.load(builder, places[0], kind, 1)
        if isinstance(y, float):
            made = [divide_by(builder, given, vectors.constant(kind, y))] * 2
        else:
            divisor = y if isinstance(y, int) else vectors.load(builder, places[1], kind, 1)
            made = divide_down(builder, given, divisor, signs=x.dtype.kind == "i")
        for value, place in zip(made, places[2:], strict=True):
            vectors.store(builder, value, place, 1)

    vectors.repeat(builder, function.args[4], trip)
    builder.ret_void()
    code = LoadedCode(compile_module(module, TargetCpu.here(), unroll=False))
    found = np.empty((2, x.size), x.dtype)
    arrays = x, y if isinstance(y, np.ndarray) else x, *found
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


def reals(dtype, seed):
    """Numbers of all sizes: drawn bits, those near products, and what is none."""
    rng = np.random.default_rng(seed)
    ends, bits = np.finfo(dtype), np.dtype(f"u{np.dtype(dtype).itemsize}")
    drawn = rng.integers(0, np.iinfo(bits).max, 1 << 16, bits).view(dtype)
    whole = rng.integers(-(1 << 20), 1 << 20, 1 << 12).astype(dtype)
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, ends.max, ends.tiny, ends.smallest_subnormal]
    found = np.concatenate([drawn, whole, np.array(odd * LANES, dtype)])
    return found[: found.size // LANES * LANES]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "divisor", [3.0, -3.0, 5.0, 7.0, 9.0, 12.0, 81.0, 255.0, 65535.0, 1.1, 0.1, 4.0, 1e30, 1.0, 0.0]
)
def test_reals_by_constants(dtype, divisor):
    """As the CPU rounds; near zero the last digit may differ."""
    x = reals(dtype, seed=int(abs(divisor)) % 1000)
    with np.errstate(all="ignore"):
        right = x / np.array(divisor, dtype)
    found = divide(x, divisor)[0]
    near = np.abs(right) < np.finfo(dtype).tiny / np.finfo(dtype).eps * 4
    exact = ~near | (right == 0)
    np.testing.assert_array_equal(found[exact], right[exact])
    np.testing.assert_array_equal(np.signbit(found[right == 0]), np.signbit(right[right == 0]))
    gap = np.spacing(np.abs(right[near]))
    assert (np.abs(found[near] - right[near]) <= gap).all()


@pytest.mark.parametrize("divisor", [3.0, 9.0, 12.0, 81.0])
def test_all_fractions(divisor):
    """Quotients of all numbers between two powers of two; others differ by powers alone."""
    x = np.arange(0x3F800000, 0x40000000, dtype=np.int32).view(np.float32)
    np.testing.assert_array_equal(divide(x, divisor)[0], x / np.float32(divisor))
