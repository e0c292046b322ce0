"""The simulated caches against an obvious one: an ordered dictionary for every set."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation_cases import access_all
from turns import examples

from tilesolve.simulation.cache_simulator import CacheShape, caches

SPAN = 2048

traces = st.lists(st.tuples(st.integers(0, SPAN - 1), st.integers(0, 2)), max_size=300)


class ObviousCache:
    """One level: every set a dictionary of its lines, oldest first."""

    def __init__(self, shape: CacheShape) -> None:
        self.ways = shape.ways or shape.capacity // shape.line
        self.sets = [OrderedDict() for _ in range(shape.capacity // shape.line // self.ways)]
        self.shape = shape

    def set_of(self, line: int) -> OrderedDict:
        return self.sets[line % len(self.sets)]

    def insert(self, line: int) -> int | None:
        """Put a line in; return the one that had to leave."""
        lines = self.set_of(line)
        lines[line] = None
        return lines.popitem(last=False)[0] if len(lines) > self.ways else None


def obvious_misses(shapes: list[CacheShape], trace: list[tuple[int, int]]) -> np.ndarray:
    """Count misses by level and owner."""
    levels = [ObviousCache(shape) for shape in shapes]
    misses = np.zeros((len(shapes), 3), np.int64)
    for address, owner in trace:
        let_go = None
        for at, level in enumerate(levels):
            line = address // level.shape.line
            hit = line in level.set_of(line)
            if level.shape.inclusive:
                if hit:
                    level.set_of(line).move_to_end(line)
                else:
                    let_go = level.insert(line)
            else:
                level.set_of(line).pop(line, None)
                let_go = level.insert(let_go) if let_go is not None else None
            if hit:
                break
            misses[at, owner] += 1
    return misses


def simulated_misses(shapes: list[CacheShape], trace: list[tuple[int, int]]) -> np.ndarray:
    state = caches(shapes, SPAN, owners=3)
    addresses = np.array([address for address, _ in trace], np.int64)
    access_all(state, addresses, np.array([owner for _, owner in trace], np.int64))
    return state.misses


@st.composite
def hierarchies(draw: st.DrawFn, levels: tuple[int, int] = (1, 4)) -> list[CacheShape]:
    """Draw levels of any associativity, some of them victim caches."""
    line = draw(st.sampled_from((1, 8, 64)))
    shapes = []
    for level in range(draw(st.integers(*levels))):
        ways, sets = draw(st.integers(1, 6)), draw(st.sampled_from((1, 2, 4)))
        full = sets == 1 and draw(st.booleans())
        inclusive = level == 0 or draw(st.booleans())
        shapes.append(CacheShape(ways * sets * line, line, None if full else ways, inclusive))
    return shapes


@examples(40, 100)
@given(hierarchies(), traces)
def test_misses_are_those_of_the_obvious_caches(shapes, trace):
    """Each level misses, for each owner, exactly what ordered dictionaries miss."""
    assert np.array_equal(simulated_misses(shapes, trace), obvious_misses(shapes, trace))


@examples(40, 100)
@given(st.lists(st.sampled_from((8, 16, 64)), min_size=2, max_size=3).map(sorted), traces)
def test_levels_may_have_lines_of_different_length(lines, trace):
    """A level with longer lines than the nearer one is as simple as any other."""
    shapes = [CacheShape(line * 4 * 2**at, line) for at, line in enumerate(lines)]
    assert np.array_equal(simulated_misses(shapes, trace), obvious_misses(shapes, trace))


@examples(40, 100)
@given(st.integers(1, 12), st.integers(1, 12), traces)
def test_a_victim_cache_adds_its_capacity(near, far, trace):
    """Exclusive levels miss what one inclusive level with the sum of their capacities misses."""
    both = [CacheShape(8 * near, 8), CacheShape(8 * far, 8, inclusive=False)]
    one = [CacheShape(8 * (near + far), 8)]
    assert np.array_equal(simulated_misses(both, trace)[1], simulated_misses(one, trace)[0])


@examples(40, 100)
@given(st.integers(1, 12), st.integers(0, 12), traces)
def test_a_larger_cache_never_misses_more(lines, more, trace):
    """Least recently used replacement has no anomaly of capacity."""
    small, large = (
        simulated_misses([CacheShape(8 * count, 8)], trace).sum() for count in (lines, lines + more)
    )
    assert large <= small


@given(traces)
def test_an_endless_cache_misses_each_line_once(trace):
    """What never has to go is missed when it is first touched only."""
    misses = simulated_misses([CacheShape(SPAN, 8)], trace)
    assert misses.sum() == len({address // 8 for address, _ in trace})


def test_a_cycle_one_line_too_long_never_hits():
    """Going round one line more than the cache holds misses every time."""
    trace = [(8 * line, 0) for line in range(5)] * 10
    assert simulated_misses([CacheShape(32, 8)], trace).sum() == 50
    assert simulated_misses([CacheShape(40, 8)], trace).sum() == 5


@pytest.mark.parametrize("shape", [CacheShape(64 * 9, 64, 4), CacheShape(64 * 12, 64, 4)])
def test_ways_must_divide_the_lines_into_a_power_of_two(shape):
    """Sets are numbered by bits of the address, so other numbers of them are refused."""
    with pytest.raises(ValueError, match=r"the ways .* do not divide|powers of two"):
        caches([shape], SPAN)


def test_more_lines_than_can_be_numbered_are_refused():
    """A number of a line that does not fit its place would be another line's."""
    with pytest.raises(ValueError, match="more lines than can be told apart"):
        caches([CacheShape(4096, 64)], 64 << 31)
