"""SConv's slicing analysis: equations 1 to 14 by values worked out by hand."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.contractions.layer_suites import layer_suite
from tilesolve.planning.slicing.csa import (
    CACHE_SHARE,
    Caches,
    Cell,
    LayerExtents,
    Schedule,
    Tiles,
    both_slices,
    count_accesses,
    slice_layer,
)

POWER10 = Cell(windows=16, filters=8)
X86 = Cell(windows=16, filters=24)
CAPACITIES = (32 << 10, 1 << 20, 4 << 20)
EXAMPLE = LayerExtents(channels=32, windows=75 * 75, filters=256, taps=9, element_bytes=4)
"""32 channels of 152 by 152, 256 filters of 3 by 3, stride 2."""


def test_the_example_of_the_paper_is_input_stationary():
    """All 32 channels, all 32 filter tiles, and 88 of 352 input tiles, in 23 984 640 cycles."""
    caches = Caches(CAPACITIES, 128)
    slices = slice_layer(EXAMPLE, POWER10, caches, "input stationary")
    assert (slices.channels, slices.passing, slices.staying) == (32, 32, 88)
    assert Tiles.of(EXAMPLE, POWER10, "input stationary", 32).staying_count == 352
    first, second = both_slices(EXAMPLE, POWER10, caches)
    assert first == slices
    assert [
        count_accesses(EXAMPLE, POWER10, 128, one).cycles((10, 30, 300)) for one in (first, second)
    ] == [23_984_640, 32_094_720]


def test_lines_that_move_by_hand():
    """Input stationary: memory once, the third cache nothing, filters for all tiles but one."""
    slices = slice_layer(EXAMPLE, POWER10, Caches(CAPACITIES, 128), "input stationary")
    found = count_accesses(EXAMPLE, POWER10, 128, slices)
    assert found.memory == (352 * 18432 + 32 * 9216) / 128
    assert found.third == 0
    assert found.second == 351 * 32 * 9216 / 128


def test_rounds_of_tiles_by_hand():
    """Two rounds of filters and four of inputs: both go to and fro, in each of two channel sets."""
    layer = LayerExtents(channels=8, windows=64, filters=32, taps=1, element_bytes=4)
    cell = Cell(windows=8, filters=8)
    # A tile of 4 channels: 128 bytes a side and 256 of output.
    caches = Caches((520 / 0.9, 900 / 0.9, 1450 / 0.9), 64)
    slices = slice_layer(layer, cell, caches, "input stationary")
    assert (slices.channels, slices.passing, slices.staying) == (4, 2, 1)
    found = count_accesses(layer, cell, 64, slices)
    assert found.memory == 2 * (8 * 128 + 4 * 128) / 64 + 2 * 1 * 7 * 4 * 128 / 64
    assert found.third == 2 * 1 * 8 * 128 / 64
    assert found.second == 2 * 7 * 4 * 128 / 64


@pytest.mark.parametrize("latencies", [(10, 30, 300), (14, 50, 200), (20, 50, 150)])
@pytest.mark.parametrize(
    ("cell", "line", "expected", "cut"),
    [(POWER10, 128, "input stationary", 276), (X86, 64, "weight stationary", 347)],
)
def test_the_cell_alone_decides_the_schedule(cell, line, expected, cut, latencies):
    """For all 393 layers; channels of most are cut."""
    caches, found, fewer = Caches(CAPACITIES, line, latencies), [], 0
    for one in layer_suite("sconv"):
        layer = extents(one.convolution)
        first, _ = both_slices(layer, cell, caches)
        found += [first.schedule] * one.times
        fewer += one.times * (first.channels < layer.channels)
    assert found == [expected] * 393
    assert fewer == cut


def extents(convolution):
    """What the equations know of a layer."""
    (high, wide), (taps, across) = convolution.out_size, convolution.window
    return LayerExtents(
        convolution.channels, high * wide, convolution.filters, taps * across, element_bytes=4
    )


numbers = st.integers(1, 600)


@given(
    st.builds(LayerExtents, numbers, numbers, numbers, st.integers(1, 49), st.sampled_from((4, 8))),
    st.builds(Cell, st.integers(1, 48), st.integers(1, 48)),
    st.lists(st.integers(9, 24), min_size=3, max_size=3).map(sorted),
    st.sampled_from(get_args(Schedule)),
)
def test_slices_fit_and_twice_of_any_would_not(layer, cell, bits, schedule):
    """Nc, K2 and K3 fit unless they are one; twice as many do not, or are more than there are."""
    capacities = tuple(1 << bit for bit in bits)
    slices = slice_layer(layer, cell, Caches(capacities, 64), schedule)
    first, second, third = (CACHE_SHARE * size for size in capacities)
    tiles = Tiles.of(layer, cell, schedule, slices.channels)
    twice = Tiles.of(layer, cell, schedule, 2 * slices.channels)
    k2, k3 = slices.passing, slices.staying
    assert k2 == 1 or tiles.middle(k2) <= second
    assert k3 == 1 or tiles.far(k2, k3) <= third
    assert slices.channels == 1 or tiles.near <= first
    # Halving rounds down: the number before was twice as many, or one more.
    before = Tiles.of(layer, cell, schedule, 2 * slices.channels + 1)
    assert 2 * slices.channels > layer.channels or max(twice.near, before.near) > first
    assert 2 * k2 > tiles.passing_count or tiles.middle(2 * k2 + 1) > second
    assert 2 * k3 > tiles.staying_count or tiles.far(k2, 2 * k3 + 1) > third
