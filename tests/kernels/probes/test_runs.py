"""Runs of lines: where they begin, what is loaded of them, and the code that loads it."""

import platform
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.kernels.probes.bandwidth import block_of_ones
from tilesolve.kernels.probes.runs import runs, shuffle_runs
from tilesolve.machine.model import Machine
from tilesolve.packing.sizes import LINE_BYTES, PAGE_BYTES

X86 = platform.machine().lower() in ("x86_64", "amd64")
BITS = Machine.detect().vector_bits


@given(st.integers(0, 300), st.sampled_from((1, 2, 4, 16, 64)), st.integers(0, 2**31))
def test_runs_fill_a_block_without_overlap(lines, length, seed):
    """Each begins where another one ends, and those that do not fit whole are left out."""
    found = shuffle_runs(lines * LINE_BYTES, length, seed)
    assert sorted(found) == [n * length * LINE_BYTES for n in range(lines // length)]


@pytest.mark.grid
@pytest.mark.parametrize("bits", [128, BITS])
@pytest.mark.parametrize("lines", [1, 2, 7, 64])
def test_every_element_of_a_run_is_loaded(bits, lines):
    """The sum says so, and that nothing beside the runs is."""
    block = block_of_ones(4 * PAGE_BYTES)
    words = block.view(np.int64)
    words[:] = np.arange(words.size) ** 2
    offsets = shuffle_runs(block.size, lines, 3)[::2].copy()
    per_run = lines * LINE_BYTES // 8
    wanted = sum(int(words[at // 8 : at // 8 + per_run].sum()) for at in offsets)
    assert runs(bits, lines)(block, offsets, 3) == 3 * wanted
    assert runs(bits, lines)(block, offsets[:0], 3) == 0


def test_a_block_is_aligned():
    """As the blocks of sweeps are."""
    with pytest.raises(ValueError, match="aligned to 64 bytes"):
        runs(BITS, 1)(block_of_ones(PAGE_BYTES)[8:-504], np.zeros(1, np.int64), 1)


@pytest.mark.skipif(not X86, reason="reads x86 mnemonics")
@pytest.mark.parametrize("lines", [1, 64])
def test_a_run_is_loaded_by_whole_vectors_without_a_loop(lines):
    """Loads of full width, as many as the run has vectors or a multiple where LLVM unrolls."""
    text = "\n".join(runs(BITS, lines).inspect_asm().values())
    register = {128: "xmm", 256: "ymm", 512: "zmm"}[BITS]
    loads = re.findall(rf"v?paddq\s+[-\d]*\(%[^\n]*%{register}\d+\n", text)
    assert len(loads) >= lines * LINE_BYTES * 8 // BITS
