"""Covers: cells of extents against brute force."""

from itertools import pairwise

import pytest

from tilesolve.contractions.errors import SizeError
from tilesolve.packing.cover import combine, cover


@pytest.mark.parametrize("most", [1, 2, 5, 6, 8, 15])
def test_cells_are_as_few_as_possible_and_near_equal(most):
    """Cells sum up, the larger ones first, one apart at most, and none more than needed."""
    for extent in range(601):
        cells = cover(extent, most)
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
        cells = cover(extent, most, unit)
        assert sum(cells) == extent
        assert len(cells) == -(-extent // most)
        assert all(cell % unit == 0 for cell in cells[:-1])
        assert 0 < min(cells) <= max(cells) <= most
        assert max(cells) - min(cells[:-1] or cells) <= unit


@pytest.mark.parametrize(("low", "high"), [(8, 14), (8, 15), (2, 9)])
def test_combinations_cost_as_little_as_brute_force_finds(low, high):
    """No combination of two sizes costs less; what none covers is an error."""
    costs = {size: size + 3 + 5 * (size % 3) for size in range(low, high + 1)}
    best = {}
    for size in costs:
        for other in costs:
            for first in range(600 // size + 1):
                for second in range((600 - first * size) // other + 1):
                    extent = first * size + second * other
                    cost = first * costs[size] + second * costs[other]
                    best[extent] = min(cost, best.get(extent, cost))
    for extent in range(1, 601):
        if extent in best:
            found = combine(extent, costs)
            assert found.extent == sum(found.cells) == extent
            assert sum(costs[cell] for cell in found.cells) == best[extent]
        else:
            with pytest.raises(SizeError, match=f"extent of {extent}$"):
                combine(extent, costs)


def test_heights_from_8_on_are_covered_by_8_to_15():
    """Section 5.2 of TTile: two sizes of the class 8..15 cover all heights from 8 on."""
    costs = dict.fromkeys(range(8, 16), 1.0)
    assert all(combine(extent, costs).extent == extent for extent in range(8, 601))
