"""Runs of stores amid lines: the order in which tiles of C are stored, and what is stored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.kernels.probes.bandwidth import block_of_ones
from tilesolve.kernels.probes.part_lines import NUMPY_BYTES, store_runs, tile_order
from tilesolve.machine.model import Machine
from tilesolve.packing.sizes import PAGE_BYTES

BITS = Machine.detect().vector_bits


@given(st.integers(0, 2000), st.integers(1, 9), st.integers(1, 9))
def test_boxes_are_stored_piece_by_piece(runs, pieces, columns):
    """Whole boxes, each run once; what completes a run's last line comes a box's columns later."""
    found = tile_order(64 * runs, 64, pieces, columns)
    boxes = runs // (pieces * columns)
    assert sorted(found) == [64 * n for n in range(boxes * pieces * columns)]
    at = {place: number for number, place in enumerate(found.tolist())}
    for place, number in at.items():
        if place // 64 % pieces < pieces - 1:
            assert at[place + 64] == number + columns


@pytest.mark.parametrize("bits", [128, BITS])
@pytest.mark.parametrize("run", [64, 192, 1024])
def test_runs_begin_behind_a_line(bits, run):
    """All of each run is stored, and nothing beside it."""
    block = block_of_ones(4 * PAGE_BYTES)
    offsets = tile_order(block.size - 64, run, 1, 1)[::2].copy()
    store_runs(bits, run)(block, offsets, 3.0)
    wanted = np.ones(block.size // 8)
    for at in offsets:
        wanted[(at + NUMPY_BYTES) // 8 : (at + NUMPY_BYTES + run) // 8] = 3.0
    assert (block.view(np.float64) == wanted).all()
