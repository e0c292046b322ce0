"""Misses that prices predict, against caches that prefetch and run the addresses of programs."""

import random
import statistics
from dataclasses import replace

import numpy as np
import pytest
from interpreter import interpret

from tests.support.nest_addresses import count_misses, trace_nest, with_gaps
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine
from tilesolve.nests.price import price_nest
from tilesolve.nests.programs import write_program
from tilesolve.nests.request import NestRequest
from tilesolve.nests.setting import make_setting
from tilesolve.nests.shapes import tiled_tree
from tilesolve.nests.temporal import TemporalTiles, list_boundary_loops, order_loops
from tilesolve.simulation.cache_simulator import CacheShape

LINE, COLUMNS = 64, 64
"""Bytes of a line, and the least elements of a tile's runs."""

NEAR, FAR = CacheShape(16384, LINE, 8), CacheShape(131072, LINE, 8)

MACHINE = Machine.load("i7-6700k")
MACHINE = MACHINE.replace(
    levels=(
        replace(MACHINE.levels[0], capacity=NEAR.capacity, ways=8),
        replace(MACHINE.levels[1], capacity=FAR.capacity, ways=8),
        *MACHINE.levels[2:],
    )
)

STATEMENTS = (
    ("C[i,j] += A[i,k] * B[k,j]", 40, 120),
    ("C[i,j] += A[k,i] * B[k,j]", 40, 120),
    ("C[i,j] += A[i,k] * B[j,k]", 40, 100),
    ("S[r,q,p] += A[r,q,s] * C[s,p]", 12, 40),
    ("O[k,y,x] += I[c,y+r,x+s] * W[k,c,r,s]", 8, 24),
)
"""Each with the least and the largest extent of its letters, but for columns and for filters."""


def draw_nest(rng, most_columns=5 * COLUMNS):
    """A statement with extents, and tiles that fit both caches; None if none were found."""
    text, low, high = rng.choice(STATEMENTS)
    stages = parse_stages(text)
    column = stages[0].output[-1]
    sizes = {x: rng.randint(low, high) for x in stages[0].letters}
    sizes |= {column: rng.randint(2 * COLUMNS, most_columns)}
    sizes |= {x: 3 for x in "rs" if len(sizes) > 4}
    computation = bind_stages(stages, sizes, "float32")
    setting = make_setting(computation, stages[0], MACHINE)
    for _ in range(300):
        ends = rng.choice(list(list_boundary_loops(setting)))
        tiles = dict(sizes)
        for letter in setting.tiled:
            least = COLUMNS if letter == column else 1
            tile = round(least * (sizes[letter] / least) ** rng.random())
            whole = letter != column or tile == sizes[letter]
            tiles[letter] = tile if whole else tile // setting.step * setting.step
        if setting.fits(tiles, ends.outermost_point, None):
            orders = order_loops(setting, ends, tiles)
            found = TemporalTiles(ends, tiles, 0.0, *orders)
            return computation, found
    return None


def compare(rng):
    """What is predicted over what is simulated, for both caches, of one nest."""
    drawn = None
    while drawn is None:
        drawn = draw_nest(rng)
    computation = with_gaps(drawn[0], rng.randint(48, 80))
    tree = tiled_tree(NestRequest(computation, MACHINE, mode="thesis"), drawn[1])
    found = count_misses(trace_nest(computation, tree), (NEAR, FAR))
    cost = price_nest(computation, tree, MACHINE)
    return [sum(level.moved) / LINE / n for level, n in zip(cost.levels[1:3], found, strict=True)]


@pytest.mark.parametrize(
    ("count", "bounds"),
    [(10, (0.25, 0.02)), pytest.param(200, (0.06, 0.04), marks=pytest.mark.slow)],
)
def test_predicted_misses_are_those_of_simulated_caches(count, bounds):
    """All lines, where nothing prefetches: in the median.

    Nests that just fill the first cache are furthest off: its sets keep a part of what the rule
    counts as gone.
    """
    rng = random.Random(5)
    ratios = np.array([compare(rng) for _ in range(count)])
    errors = [statistics.median(abs(one - 1)) for one in ratios.T]
    assert all(error <= bound for error, bound in zip(errors, bounds, strict=True)), errors


@pytest.mark.parametrize("text", ["C[i,j] += A[i,k] * B[k,j]", "C[i] += A[i+k] * x[k]"])
def test_the_addresses_are_those_that_the_program_touches(text):
    """Read by read, as the interpreter runs it; what begins sums is left out."""
    (stage,) = parse_stages(text)
    sizes = {x: extent for x, extent in {"i": 7, "j": 9, "k": 5}.items() if x in stage.letters}
    computation = bind_stages([stage], sizes, "float32")
    setting = make_setting(computation, stage, MACHINE)
    ends = next(iter(list_boundary_loops(setting)))
    tiles = {x: max(n // 2, 1) for x, n in computation.sizes.items()}
    found = TemporalTiles(ends, tiles, 0.0, *order_loops(setting, ends, tiles))
    tree = tiled_tree(NestRequest(computation, MACHINE, mode="thesis"), found)
    bases, at = {}, 0
    for array in computation.arrays:
        bases[array.name] = at
        at += (-(-array.bytes // 4096) + 1) * 4096
    touched = []

    def trace(name, number, written):
        if not written:
            touched.append(bases[name] + 4 * number)

    arrays = {x: np.ones(computation.array(x).shape, "float32") for x in computation.inputs}
    interpret(write_program(computation, tree), arrays, trace=trace)
    points = trace_nest(computation, tree).reshape(-1, 3)
    assert np.array_equal(np.sort(np.reshape(touched, (-1, 3))), np.sort(points))
