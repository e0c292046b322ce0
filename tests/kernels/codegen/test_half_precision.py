"""Conversions of halves: every half has its value, every float32 is rounded as it should be."""

import ctypes
import re

import ml_dtypes
import numpy as np
import pytest
from machine_code import WIDTHS, assembly, build_once, call

from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.epilogue_terms import FIRST, OPERAND, SUM, WRITE, list_steps
from tilesolve.contractions.errors import MachineError
from tilesolve.contractions.half_precision import HALF_DTYPES, array_dtype
from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import Family, TargetCpu
from tilesolve.kernels.codegen.pack import FIELDS
from tilesolve.kernels.runtime.epilogue_steps import step_address

STEP = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7, *[ctypes.c_double] * 2)
ADD_MULTIPLE = "add a multiple of C"
halves = pytest.mark.parametrize("dtype", HALF_DTYPES)


def every_half(dtype):
    """All halves there are, subnormal ones, infinities and what is no number among them."""
    return np.arange(1 << 16, dtype=np.uint16).view(array_dtype(dtype))


def round_off(values, dtype, apart=2):
    """What the last step of an epilogue writes for float32, so many bytes apart."""
    given = np.ascontiguousarray(values, np.float32)
    found = np.full(given.size * apart // 2, 0x5555, np.uint16)
    STEP(step_address(WRITE, dtype))(
        given.ctypes.data, given.size, 1, 0, found.ctypes.data, apart, 0, 0.0, 0.0
    )
    assert np.all(found.reshape(given.size, -1)[:, 1:] == 0x5555)
    return found[:: apart // 2].view(array_dtype(dtype))


def check_same(found, expected):
    """Hold numbers to others bit by bit; of what is no number only that it is none, and quiet."""
    nothing = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(found.astype(np.float32)), nothing)
    size = f"u{found.dtype.itemsize}"
    assert np.array_equal(found.view(size)[~nothing], expected.view(size)[~nothing])


@pytest.mark.grid
@halves
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("side", [0, 1])
def test_packing_widens_every_half_to_its_value(dtype, bits, side):
    """As vectors, and one by one."""
    family = Family.of(dtype, bits, WIDTHS[bits], halved=False)
    panel = family.micro_panels[side]
    kernels = LoadedCode(build_once(family, ()))
    given = every_half(dtype)
    groups = given.size // panel.lanes
    offsets = 2 * np.arange(given.size)
    steps = np.zeros(1, np.int64)
    for kind in ("copy", "gather"):
        raw = np.zeros(4 * given.size + 64, np.uint8)
        begin = -raw.ctypes.data % 64
        found = raw[begin : begin + 4 * given.size].view(np.float32)
        rows = np.ascontiguousarray(offsets[:: panel.lanes] if kind == "copy" else offsets)
        for group in range(1 if kind == "copy" else groups):
            frame = np.zeros(len(FIELDS), np.int64)
            told = {
                "source": given.ctypes.data,
                "target": found.ctypes.data + 4 * panel.lanes * group,
                "panel": 4 * panel.lanes,
                "rows": rows.ctypes.data + (0 if kind == "copy" else 8 * panel.lanes * group),
                "groups": groups,
                "sums": steps.ctypes.data,
                "steps": steps.ctypes.data,
                "first": 0,
                "count": 1,
                "lanes": panel.lanes,
            }
            for name, value in told.items():
                frame[FIELDS.index(name)] = value
            call(kernels, panel.name(kind), frame.ctypes.data)
        check_same(found, given.astype(np.float32))


def awkward_numbers(dtype):
    """Every half, what is midway between two, and what is next to these; and any bits."""
    given = every_half(dtype)
    exact = given.astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    middle = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    largest = exact[-1:].astype(np.float64) * (1 + np.array([2.0**-12, 2.0**-9, 2.0**-8, 1.0]))
    with np.errstate(over="ignore"):
        beyond = largest.astype(np.float32)
    some = np.concatenate([exact, middle, beyond, -beyond, given.astype(np.float32)])
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        near = [np.nextafter(some, np.float32(end)) for end in (-np.inf, np.inf)]
    return np.concatenate([some, *near, bits])


@halves
@pytest.mark.parametrize("apart", [2, 6])
def test_float32_is_rounded_to_nearest_even(dtype, apart):
    """Overflow is infinite, subnormal numbers are right, and what is no number stays so."""
    given = awkward_numbers(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = given.astype(array_dtype(dtype))
    check_same(round_off(given, dtype, apart), expected)


@halves
def test_rounding_a_nan_keeps_its_sign_and_makes_it_quiet(dtype):
    given = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF], np.uint32).view(np.float32)
    found = round_off(given, dtype)
    assert np.isnan(found.astype(np.float32)).all()
    assert (found.view(np.uint16) >> 15).tolist() == [0, 1, 0, 1]
    quiet = 0x200 if dtype == "float16" else 0x40
    assert (found.view(np.uint16) & quiet).all()


@halves
@pytest.mark.parametrize("name", ["*", "+", "+ relu", "+ relu6", "+ clip(-1.5,0.5)", ADD_MULTIPLE])
@pytest.mark.parametrize("apart", [0, 2, 10])
def test_steps_read_operands_of_halves(dtype, name, apart):
    """One for all, side by side, or apart."""
    if name == ADD_MULTIPLE and apart == 0:
        pytest.skip("C has an element of its own for each sum")
    generator = np.random.default_rng(1)
    given = generator.standard_normal(100).astype(np.float32)
    operand = generator.standard_normal(500).astype(array_dtype(dtype))
    found = given.copy()
    term = SUM + FIRST * OPERAND
    if name != ADD_MULTIPLE:
        term = next(list_steps(Epilogue.parse(name))).term
    STEP(step_address(term, dtype))(
        found.ctypes.data, found.size, 1, 0, operand.ctypes.data, apart, 0, -1.5, 0.5
    )
    wide = operand[apart // 2 * np.arange(100)].astype(np.float32)
    expected = {
        "*": given * wide,
        ADD_MULTIPLE: given + np.float32(-1.5) * wide,
    }.get(name, given + wide)
    if "relu" in name:
        expected = np.clip(expected, 0, {"+ relu": np.inf, "+ relu6": 6}[name])
    elif "clip" in name:
        expected = np.clip(expected, -1.5, 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@halves
def test_code_calls_no_library_on_cpus_without_conversions(dtype):
    """A CPU of the oldest kind has no instruction for halves."""
    family = Family.of(dtype, 128, 16)
    shapes = [*family.part(packed=True)[:1]]
    try:
        text = assembly(family, shapes, TargetCpu.named("x86-64", 128))
    except MachineError:
        pytest.skip("this LLVM makes no code for x86")
    assert not re.search(r"\bcall|jmp\s+_", text)


def test_bfloat16_is_the_dtype_of_ml_dtypes():
    assert array_dtype("bfloat16") == np.dtype(ml_dtypes.bfloat16)
