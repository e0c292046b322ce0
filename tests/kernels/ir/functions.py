"""Functions of real numbers in machine code, called on arrays."""

import ctypes

import numpy as np
from llvmlite import ir

from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu, compile_module
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.reals import Real


def call(function, *arrays, bits=256):
    """What a function gives for numbers in some arrays, as vectors; one by one where bits is 0."""
    dtype = str(arrays[0].dtype)
    kind = vectors.vector_type(dtype, bits or 128)
    kind = kind if bits else kind.element
    lanes = kind.count if bits else 1
    pointers = [ir.PointerType()] * (1 + len(arrays))
    types = ir.FunctionType(ir.VoidType(), (vectors.INT64, *pointers))
    builder = ir.IRBuilder(ir.Function(ir.Module(), types, "apply").append_basic_block())
    count, *places = builder.function.args

    def trip(at):
        target, *sources = (builder.gep(one, [at], source_etype=kind) for one in places)
        given = [Real(builder, builder.load(one, typ=kind, align=1)) for one in sources]
        builder.store(function(*given).value, target, align=1)

    vectors.repeat(builder, count, trip)
    builder.ret_void()
    code = LoadedCode(compile_module(builder.module, TargetCpu.here(), unroll=False))
    size = -(-arrays[0].size // lanes) * lanes
    given = [np.resize(one, size) for one in arrays]
    found = np.empty_like(given[0])
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))
    addresses = (one.ctypes.data for one in (found, *given))
    run(code.address("apply"))(size // lanes, *addresses)
    return found[: arrays[0].size]


def lost_units(found, expected):
    """How many units in the last place numbers are off, where the expected ones are finite."""
    dtype = found.dtype
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype)
        unit = np.spacing(np.abs(rounded)).astype(np.longdouble)
        lost = np.abs(found.astype(np.longdouble) - expected) / unit
    return np.where(np.isfinite(rounded), lost, 0)
