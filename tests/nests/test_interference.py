"""How many rows stay in a cache: the closed form against Algorithm 1, line by line."""

from collections import Counter
from itertools import pairwise, product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesolve.constants.nests import NEST_CROWD_RATIO
from tilesolve.machine.level import Level
from tilesolve.nests.interference import CacheSets, conflict_share, largest_height

L1, L2 = Level("L1", 32768, 1e11, ways=8), Level("L2", 262144, 1e11, ways=8)


def height(cache, width, pitch, limit=1 << 20, address=0):
    """The number of rows so wide that stay."""
    return largest_height(cache, cache.row_lines(width), pitch, limit, address)


def emulate(cache, row_lines, pitch, limit, address):
    """Algorithm 1: rows are fetched until one finds its set full."""
    filled = [0] * cache.sets
    for row in range(limit):
        first = -(-(address + row * pitch) // cache.line)
        for line in range(row_lines):
            place = (first + line) % cache.sets
            if filled[place] == cache.ways:
                return row
            filled[place] += 1
        for line in range(row_lines, row_lines + cache.ahead):
            if filled[(first + line) % cache.sets] == cache.ways:
                return row
    return limit


@pytest.mark.parametrize(
    ("pitch", "near", "far"),
    [(2048, 4, 8), (1024, 4, 16), (2000, 43, 172), (1600, 32, 215), (800, 41, 215), (400, 46, 174)],
)
def test_heights_worked_by_hand(pitch, near, far):
    """Floats in caches of 32 and 256 KiB, 8 ways for two threads, rows of 64, 2 lines ahead."""
    assert height(CacheSets.first(L1, 4, 2), 64, pitch) == near
    assert height(CacheSets.second(L2, 4, 2, 2), 64, pitch) == far


@pytest.mark.parametrize(("pitch", "near", "far"), [(2048, 32, 128), (1024, 64, 256)])
def test_sets_as_printed_let_more_rows_stay(pitch, near, far):
    """Algorithm 1 divides by the bytes of an element: 16 times as many sets."""
    assert height(CacheSets.first(L1, 4, 2, "printed"), 64, pitch) == near
    assert height(CacheSets.second(L2, 4, 2, 2, "printed"), 64, pitch) == far


def test_lines_fetched_ahead_need_room():
    """Without them, rows of 2000 floats fill half the second cache."""
    assert height(CacheSets.second(L2, 4, 2, 0), 64, 2000) == 256


caches = st.builds(
    CacheSets, st.integers(1, 32), st.integers(1, 4), st.integers(1, 8), st.integers(0, 3)
)


@given(caches, st.integers(1, 12), st.integers(0, 200), st.integers(0, 60), st.integers(0, 20))
@settings(max_examples=300, deadline=None)
def test_the_closed_form_is_the_loop(cache, row_lines, pitch, limit, address):
    """For any cache, row, pitch and address."""
    found = largest_height(cache, row_lines, pitch, limit, address)
    assert found == emulate(cache, row_lines, pitch, limit, address)


@given(caches, st.integers(0, 200), st.integers(0, 60), st.integers(0, 20))
@settings(max_examples=100, deadline=None)
def test_wider_rows_never_let_more_of_them_stay(cache, pitch, limit, address):
    """The height falls with the width."""
    found = [largest_height(cache, lines, pitch, limit, address) for lines in range(1, 12)]
    assert all(wider <= narrower for narrower, wider in pairwise(found))


def test_a_cache_of_unknown_ways_counts_its_lines_alone():
    """One set holds everything, so that its lines are the limit."""
    cache = CacheSets.second(Level("L2", 4096, 1e11), 4)
    assert height(cache, 16, 2048) == 64


@given(
    caches,
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 90)), max_size=2),
    st.integers(1, 40),
)
@settings(max_examples=100, deadline=None)
def test_a_box_is_crowded_where_sets_have_more_of_its_lines_than_ways(cache, axes, width):
    """All lines counted one by one; a box that no cache could hold is crowded as a whole."""
    sides, strides = (*(side for side, _ in axes), width), (*(pitch for _, pitch in axes), 1)
    across, lines = -(-width // cache.line), set()
    for where in product(*map(range, sides[:-1])):
        first = sum(at * pitch for at, pitch in zip(where, strides, strict=False)) // cache.line
        lines |= set(range(first, first + across))
    held = Counter(line % cache.sets for line in lines)
    over = sum(count for count in held.values() if count > cache.ways)
    if prod(sides[:-1]) * across > NEST_CROWD_RATIO * cache.sets * cache.ways:
        assert conflict_share(cache, sides, strides) == 1.0
    else:
        assert conflict_share(cache, sides, strides) == pytest.approx(over / len(lines))
