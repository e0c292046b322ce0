"""Random tiles of nests, what they are predicted to take, and how the arithmetic is counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine
from tilesolve.model.nest import tile_counts
from tilesolve.nests.arithmetic import arithmetic_seconds
from tilesolve.nests.draws import draw_tilings
from tilesolve.nests.request import NestRequest
from tilesolve.nests.running import NestRunner
from tilesolve.nests.shapes import make_tree, over
from tilesolve.nests.solved import SolvedNest

MACHINE = Machine.load("i7-6700k")
MATMUL = "C[i,j] += A[i,k] * B[k,j]"


def bound(text, sizes, dtype="int64"):
    """A computation from text."""
    return bind_stages(parse_stages(text), sizes, dtype)


@pytest.mark.grid
@pytest.mark.parametrize("text", [MATMUL, "C[i,j] = 2 * C[i,j] + sum(A[i,k] * A[j,k])"])
@pytest.mark.parametrize("threads", [1, 2])
def test_random_tiles_compute_the_same(text, threads):
    """They differ in their loops, and the seed tells which they are."""
    computation = bound(text, {"i": 19, "j": 21, "k": 18})
    rng = np.random.default_rng(1)
    arrays = {
        name: rng.integers(0, 9, computation.array(name).shape) for name in computation.inputs
    }
    right = evaluate(computation, arrays, {}, None)
    request = NestRequest(computation, MACHINE, threads)
    drawn = draw_tilings(request, count=6, seed=3)
    assert drawn == draw_tilings(request, count=6, seed=3)
    assert len({tuple(one.loops for one in choices) for choices in drawn}) == 6
    for choices in drawn:
        out = arrays["C"].copy() if "C" in arrays else np.full(right.shape, 77)
        NestRunner(SolvedNest(request, choices)).compute(list(arrays.values()), {}, out)
        np.testing.assert_array_equal(out, right)


def test_few_tilings_are_all_that_there_are():
    """A small extent has no thirty that differ."""
    found = draw_tilings(NestRequest(bound(MATMUL, 2), MACHINE), count=30)
    assert 0 < len(found) < 30


@given(st.integers(1, 40), st.lists(st.integers(1, 20), min_size=1, max_size=3), st.integers(1, 8))
def test_trips_are_those_of_loops_run_one_by_one(extent, steps, lanes):
    """Tiles that end early have shorter loops within them; vectors may be longer than tiles."""
    steps = sorted(steps, reverse=True)

    def run(low, high, left):
        first, *rest = left
        if not rest:
            return len(range(low, high, first * lanes))
        return sum(run(at, min(at + first, high), rest) for at in range(low, high, first))

    sizes = [steps[-1] * lanes, *steps[-2::-1], extent]
    assert tile_counts(sizes)[0] == run(0, extent, steps)


def product(*loops, held=3, threads=1):
    """What a product of 96 on a side takes, by loops of which the last ones are held."""
    computation = bound(MATMUL, 96, "float32")
    request = NestRequest(computation, MACHINE, threads)
    return arithmetic_seconds(
        computation, make_tree(request, [over(*one) for one in loops], held), MACHINE
    )


def test_few_sums_in_registers_wait_for_one_another():
    """Many are as fast as the machine adds; a tile that is no multiple has vectors half full."""
    inner = (("k",), ("i", 1, "unrolled"), ("j", 1, "vector"))
    fast = product(("i", 6), ("j", 16), *inner)
    flops = 2 * 96**3
    assert flops / MACHINE.peak("float32") < fast < 1.2 * flops / MACHINE.peak("float32")
    assert product(("i", 1), ("j", 8), ("k",), ("j", 1, "vector"), held=2) > 3 * fast
    assert product(("i", 6), ("j", 12), *inner) > 1.2 * fast


def test_sums_that_are_held_for_few_steps_cost_starts():
    """As walks to the next tile do."""
    inner = (("i", 1, "unrolled"), ("j", 1, "vector"))
    long = product(("i", 6), ("j", 16), ("k",), *inner)
    short = product(("k", 4), ("i", 6), ("j", 16), ("k",), *inner)
    starts = 16 * 6 * (24 - 1) * MACHINE.costs.tile_cycles / MACHINE.frequency
    assert short - long == pytest.approx(starts)


def test_threads_share_trips_as_evenly_as_they_go():
    """Three threads take as long for four tiles as two do."""
    loops = (("i", 24, "threads"), ("i", 6), ("j", 16), ("k",))
    inner = (("i", 1, "unrolled"), ("j", 1, "vector"))
    one, two, three = (product(*loops, *inner, threads=n) for n in (1, 2, 3))
    assert two == pytest.approx(one / 2)
    assert three == pytest.approx(two)
