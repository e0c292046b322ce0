"""The micro-benchmark kernels: their arithmetic, the memory they touch, and their machine code."""

import platform
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding

from tilesolve.constants.tuning import CHAIN_OPERATIONS, SWEEP_BYTES
from tilesolve.kernels.dtypes import lanes
from tilesolve.kernels.probes import bandwidth
from tilesolve.packing.sizes import PAGE_BYTES

WIDTHS = (128, 256, 512)
DTYPES = ("float32", "float64")
GUARD = 4 * SWEEP_BYTES
X86 = platform.machine().lower() in ("x86_64", "amd64")
FEATURES = binding.get_host_cpu_features() if X86 else {}
REGISTERS = {128: "xmm", 256: "ymm", 512: "zmm"}
NATIVE = [
    bits
    for bits, feature in ((128, "sse2"), (256, "avx"), (512, "avx512f"))
    if FEATURES.get(feature)
]

kinds = pytest.mark.parametrize(
    ("dtype", "bits"), [(dtype, bits) for dtype in DTYPES for bits in WIDTHS]
)
on_x86 = pytest.mark.skipif(not X86, reason="reads x86 mnemonics")


def guarded(steps, seed):
    """Random bytes with a block of `steps` steps in the middle, and that block."""
    whole = bandwidth.block_of_ones(steps * SWEEP_BYTES + 2 * GUARD)
    whole.view(np.float32)[:] = np.random.default_rng(seed).uniform(0.5, 2.0, whole.size // 4)
    return whole, whole[GUARD:-GUARD]


def same_outside(whole, before):
    """Whether nothing but the block in the middle has changed."""
    return np.array_equal(whole[:GUARD], before[:GUARD]) and np.array_equal(
        whole[-GUARD:], before[-GUARD:]
    )


def loops(kernel):
    """The innermost loops of a kernel, each as its lines of assembly.

    Such a loop is one piece of code without labels or jumps that ends in a jump to its start. The
    kernel itself comes first in the assembly; behind it are the functions by which Python calls it.
    """
    label, found, lines = "", [], []
    for line in "\n".join(kernel.inspect_asm().values()).splitlines():
        if start := re.match(r"(\.\w+0_\w+):", line):
            label, lines = start[1], []
            continue
        if jump := re.match(r"\s+j\w+\s+(\S+)", line):
            if jump[1] == label:
                found.append(lines)
            label, lines = "", []
        lines.append(line)
    return found


def matches(lines, pattern):
    return sum(bool(re.search(pattern, line)) for line in lines)


def vector_accesses(lines):
    """How many instructions of a loop have a vector register and a memory operand."""
    return matches(lines, r"\(%.*%[xyz]mm|%[xyz]mm.*\(%")


@pytest.mark.grid
@kinds
@settings(max_examples=15)
@given(
    steps=st.integers(1, 20),
    passes=st.integers(0, 4),
    scale=st.floats(0.5, 2, width=32),
    shift=st.floats(0, 4, width=32),
    seed=st.integers(0, 2**32 - 1),
)
def test_sweep_computes_what_numpy_does(dtype, bits, steps, passes, scale, shift, seed):
    """Each pass replaces every element by its multiple plus a constant, and touches no other."""
    whole, block = guarded(steps, seed)
    before = whole.copy()
    values = block.view(dtype)
    values[:] = np.random.default_rng(seed).uniform(0.5, 2.0, values.size)
    expected = values.astype(np.float64)
    for _ in range(passes):
        expected = expected * scale + shift
    bandwidth.sweep(dtype, bits)(block, passes, scale, shift)
    assert same_outside(whole, before)
    np.testing.assert_allclose(values, expected, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("bits", WIDTHS)
@settings(max_examples=15)
@given(steps=st.integers(1, 20), passes=st.integers(0, 4), seed=st.integers(0, 2**32 - 1))
def test_read_sums_every_element(bits, steps, passes, seed):
    """The sum over all passes depends on every integer of the block, and changes none."""
    whole, block = guarded(steps, seed)
    before = whole.copy()
    total = sum(map(int, block.view(np.uint64))) * passes
    assert bandwidth.read(bits)(block, passes) % 2**64 == total % 2**64
    assert np.array_equal(whole, before)


@pytest.mark.parametrize("bits", WIDTHS)
@settings(max_examples=15)
@given(pages=st.integers(1, 70), value=st.floats(allow_nan=False))
def test_streaming_stores_fill_the_block(bits, pages, value):
    """Every element is set, and no other."""
    whole, block = guarded(pages * PAGE_BYTES // SWEEP_BYTES, seed=0)
    before = whole.copy()
    for passes, stored in ((1, value), (0, value + 1)):
        assert bandwidth.stream(bits)(block, passes, stored) is None
        assert same_outside(whole, before)
        assert np.array_equal(block.view(np.float64), np.full(block.size // 8, value))


@pytest.mark.grid
@kinds
@pytest.mark.parametrize("accumulators", [1, 12])
def test_multiply_adds_computes_every_accumulator(dtype, bits, accumulators):
    """All accumulators are there and take every step: the sum is that of the same steps here."""
    values = np.arange(accumulators, dtype=dtype)
    for _ in range(5):
        values = values * 0.5 + 3.0
    total = float(values.sum()) * lanes(dtype, bits)
    found = bandwidth.multiply_adds(dtype, bits, accumulators)(5, 0.5, 3.0)
    assert found == pytest.approx(total, rel=1e-5)


@given(trips=st.integers(0, 5), numbers=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3))
def test_cycles_computes_the_whole_chain(trips, numbers):
    """No operation of the chain is left out: its last value is the one computed step by step."""
    x, y, z = numbers
    for _ in range(trips * CHAIN_OPERATIONS // 2):
        x = ((x ^ y) + z) % 2**64
    assert bandwidth.cycles()(trips, *numbers) % 2**64 == x % 2**64


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("cut", [slice(8, 8 + SWEEP_BYTES), slice(0, SWEEP_BYTES - 64)])
def test_a_block_that_does_not_fit_is_refused(bits, cut):
    """A block that is not aligned, or not a whole number of steps, raises and stays as it is."""
    whole = bandwidth.block_of_ones(2 * SWEEP_BYTES)
    before = whole.copy()
    calls = [
        lambda block: bandwidth.sweep("float64", bits)(block, 1, 0.5, 1.0),
        lambda block: bandwidth.read(bits)(block, 1),
        lambda block: bandwidth.stream(bits)(block, 1, 2.0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="aligned to 64 bytes"):
            call(whole[cut])
    assert np.array_equal(whole, before)


def test_buffer_is_page_aligned():
    """A buffer starts on a page, so that no vector of it crosses one."""
    assert bandwidth.block_of_ones(10_000).ctypes.data % 4096 == 0


@kinds
def test_intermediate_code_has_full_vectors(dtype, bits):
    """On every CPU the optimised code works on vectors of the width that was asked for."""
    kind = f"<{lanes(dtype, bits)} x {'float' if dtype == 'float32' else 'double'}>"
    code = "\n".join(bandwidth.sweep(dtype, bits).inspect_llvm().values())
    vectors = SWEEP_BYTES * 8 // bits
    assert len(re.findall(rf"= load {kind}", code)) >= vectors
    assert len(re.findall(rf"call {kind} @llvm.fmuladd", code)) >= vectors
    assert len(re.findall(rf"store {kind}", code)) >= vectors


@pytest.mark.parametrize("bits", WIDTHS)
def test_passes_are_kept_apart(bits):
    """Between two passes the optimised code tells the compiler that all of memory may change."""
    for kernel in (bandwidth.sweep("float64", bits), bandwidth.read(bits), bandwidth.stream(bits)):
        code = "\n".join(kernel.inspect_llvm().values())
        assert re.search(r'asm sideeffect "", "~\{memory\}"', code)


@pytest.mark.parametrize("bits", WIDTHS)
def test_streaming_stores_are_marked(bits):
    """On every CPU the streaming kernel's stores are marked as non-temporal, and waited for."""
    code = "\n".join(bandwidth.stream(bits).inspect_llvm().values())
    stores = [line for line in code.splitlines() if re.search(r"store <\d+ x double>", line)]
    assert len(stores) >= SWEEP_BYTES * 8 // bits
    assert all("!nontemporal" in line for line in stores)
    assert "fence seq_cst" in code


@on_x86
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", NATIVE)
def test_sweep_assembly(dtype, bits):
    """A trip loads, multiplies and stores each vector once, at full width and none other."""
    register = REGISTERS[bits]
    found = [lines for lines in loops(bandwidth.sweep(dtype, bits)) if vector_accesses(lines)]
    assert found
    for lines in found:
        stores = matches(lines, rf"mov\w+\s+%{register}\d+, .*\(%")
        loads = matches(lines, rf"\(%.*\), .*%{register}\d+$")
        assert stores == loads == vector_accesses(lines) / 2
        assert stores % (SWEEP_BYTES * 8 // bits) == 0
        if bits > 128 and FEATURES.get("fma"):
            assert matches(lines, rf"vfmadd\w+p[sd]\s.*%{register}") == stores
        else:
            assert matches(lines, rf"(mul|fmadd\w+)p[sd]\s.*%{register}") == stores


@on_x86
@pytest.mark.parametrize("bits", NATIVE)
def test_read_assembly(bits):
    """A trip loads each vector once, at full width, and stores nothing."""
    register = REGISTERS[bits]
    found = [lines for lines in loops(bandwidth.read(bits)) if vector_accesses(lines)]
    assert found
    for lines in found:
        loads = matches(lines, rf"\(%.*\), .*%{register}\d+$")
        assert loads == vector_accesses(lines)
        assert loads % (SWEEP_BYTES * 8 // bits) == 0


@on_x86
@pytest.mark.parametrize("bits", NATIVE)
def test_stream_assembly(bits):
    """A trip writes each vector with a non-temporal store of full width, and loads nothing."""
    found = [lines for lines in loops(bandwidth.stream(bits)) if vector_accesses(lines)]
    assert found
    for lines in found:
        stores = matches(lines, rf"movntp[sd]\s+%{REGISTERS[bits]}\d+, .*\(%")
        assert stores == vector_accesses(lines)
        assert stores % (SWEEP_BYTES * 8 // bits) == 0


@on_x86
@pytest.mark.skipif(not FEATURES.get("fma"), reason="needs FMA instructions")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", NATIVE)
def test_peak_assembly(dtype, bits):
    """A trip is FMAs of full width between registers: nothing is spilled or merged."""
    accumulators = 24 if bits == 512 else 12
    kernel = bandwidth.multiply_adds(dtype, bits, accumulators)
    pattern = rf"vfmadd\w+p[sd]\s.*%{REGISTERS[bits]}"
    found = [lines for lines in loops(kernel) if matches(lines, pattern)]
    assert found
    for lines in found:
        assert matches(lines, pattern) % accumulators == 0
        assert not matches(lines, r"\(%")
    written = {re.findall(r"%\w+", line)[-1] for line in found[0] if re.search(pattern, line)}
    assert len(written) == accumulators


@pytest.mark.parametrize("bits", WIDTHS)
def test_kernels_release_the_lock(bits):
    """Kernels run without the GIL, so that all cores can work at once."""
    kernels = [
        bandwidth.sweep("float64", bits),
        bandwidth.read(bits),
        bandwidth.stream(bits),
        bandwidth.multiply_adds("float64", bits, 12),
    ]
    assert all(kernel.targetoptions["nogil"] for kernel in kernels)
