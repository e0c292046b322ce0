"""The pointer chase: the cycle through a block's lines, and loads that wait for each other."""

import platform
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.constants.tuning import CHASE_LOADS
from tilesolve.kernels.probes import latency
from tilesolve.kernels.probes.bandwidth import block_of_ones
from tilesolve.packing.sizes import LINE_BYTES, PAGE_BYTES

X86 = platform.machine().lower() in ("x86_64", "amd64")


@given(lines=st.integers(1, 200), seed=st.integers(0, 2**32 - 1))
def test_each_line_is_visited_once_before_the_first_comes_again(lines, seed):
    """The links are one cycle through all lines, and nothing else of the block is written."""
    whole = block_of_ones((lines + 2) * LINE_BYTES)
    block = whole[LINE_BYTES:-LINE_BYTES]
    words = block.view(np.int64).reshape(lines, -1)
    before = whole.copy()
    start = place = latency.link_lines(block, seed)
    seen = []
    for _ in range(lines):
        seen.append((place - block.ctypes.data) // LINE_BYTES)
        place = int(words[seen[-1], 0])
    assert place == start
    assert sorted(seen) == list(range(lines))
    changed = (whole != before).reshape(-1, LINE_BYTES).any(axis=0)
    assert not changed[8:].any()
    assert np.array_equal(whole[:LINE_BYTES], before[:LINE_BYTES])
    assert np.array_equal(whole[-LINE_BYTES:], before[-LINE_BYTES:])


@given(lines=st.integers(1, 100), trips=st.integers(0, 9))
def test_a_chase_ends_where_the_links_lead(lines, trips):
    """After as many loads as trips have, from the address that each load gave."""
    block = block_of_ones(lines * LINE_BYTES)
    start = place = latency.link_lines(block, lines)
    for _ in range(trips * CHASE_LOADS):
        place = int(block.view(np.int64)[(place - block.ctypes.data) // 8])
    assert latency.chase()(start, trips) == place


def test_an_order_is_its_seed_s():
    """The same seed gives the same cycle, another one another."""
    block = block_of_ones(PAGE_BYTES)
    found = []
    for seed in (1, 1, 2):
        latency.link_lines(block, seed)
        found.append(block.copy())
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize("part", [slice(8, 72), slice(0, 60), slice(0, 0)])
def test_a_block_is_whole_lines(part):
    """Aligned ones, and at least one of them."""
    with pytest.raises(ValueError, match="whole lines of 64 bytes"):
        latency.link_lines(block_of_ones(PAGE_BYTES)[part], 1)


@pytest.mark.skipif(not X86, reason="reads x86 mnemonics")
def test_each_load_takes_its_address_from_the_one_before():
    """Each reads where the register points that the last one wrote."""
    text = "\n".join(latency.chase().inspect_asm().values()).partition("retq")[0]
    loads = re.findall(r"\tmovq\t\(%(\w+)\), %(\w+)\n", text)
    assert len(loads) >= CHASE_LOADS
    assert all(place == register for (_, register), (place, _) in pairwise(loads))


def test_the_chase_releases_the_lock():
    """It runs without the GIL, as other probes do."""
    assert latency.chase().targetoptions["nogil"]
