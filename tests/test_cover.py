"""Covers: cells of extents against brute force."""

from itertools import pairwise

import pytest

from tilesolve.packing.cover import combinations, cut_evenly


@pytest.mark.parametrize("most", [1, 2, 5, 6, 8, 15])
def test_cells_are_as_few_as_possible_and_near_equal(most):
    """Cells sum up, the larger ones first, one apart at most, and none more than needed."""
    for extent in range(601):
        cells = cut_evenly(extent, most)
        assert sum(cells) == extent
        assert len(cells) == -(-extent // most)
        assert not cells or most >= cells[0] >= cells[-1] >= cells[0] - 1
        assert all(one >= next_one for one, next_one in pairwise(cells))
        if extent > 1 and most > 2:
            assert min(cells) > 1


@pytest.mark.parametrize(("most", "unit"), [(48, 16), (48, 8), (24, 8), (4, 4)])
def test_cells_are_whole_units(most, unit):
    """All cells but the last one are whole vectors; what is missing is missing there."""
    for extent in range(1, 401):
        cells = cut_evenly(extent, most, unit)
        assert sum(cells) == extent
        assert len(cells) == -(-extent // most)
        assert all(cell % unit == 0 for cell in cells[:-1])
        assert 0 < min(cells) <= max(cells) <= most
        assert max(cells) - min(cells[:-1] or cells) <= unit


@pytest.mark.parametrize(("low", "high"), [(8, 14), (8, 15), (2, 9)])
def test_combinations_are_all_that_brute_force_finds(low, high):
    """Each is there once, and covers its extent exactly."""
    expected = {extent: set() for extent in range(1, 101)}
    for size in range(low, high + 1):
        for other in range(size, high + 1):
            for first in range(1, 101 // size + 1):
                for second in range(101 // other + 1):
                    extent = first * size + second * other
                    if extent in expected and (second > 0) == (other > size):
                        expected[extent].add((size,) * first + (other,) * second)
    for extent, cells in expected.items():
        found = combinations(extent, range(low, high + 1))
        assert all(one.extent == sum(one.cells) == extent for one in found)
        assert len(found) == len(cells)
        assert {one.cells for one in found} == cells


def test_heights_from_8_on_are_covered_by_8_to_15():
    """Section 5.2 of TTile: two sizes of the class 8..15 cover all heights from 8 on."""
    assert all(combinations(extent, range(8, 16)) for extent in range(8, 601))
    assert not any(combinations(extent, range(8, 16)) for extent in (-1, 0, 1, 7))
