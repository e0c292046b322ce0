"""Prices of transposes: of the tree of the walk that runs, which covers each element once."""

import itertools
from collections import Counter
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesolve
from tilesolve.constants import policy
from tilesolve.machine.model import Machine
from tilesolve.model.loop_tree import Do, Loop
from tilesolve.model.price import list_levels
from tilesolve.nests.plan import nest
from tilesolve.transposes import walk_setup
from tilesolve.transposes.limits import Limits
from tilesolve.transposes.price import price_transpose, tree_of_transpose
from tilesolve.transposes.solution import solve_transpose

MACHINE = Machine.load("i7-6700k")
SMALL = Limits(512, True, 0, 0, 1 << 16, 4)


def solve(shape, axes, itemsize, threads=1, limits=None, **how):
    """The transpose of an array in C order to another one."""
    source = np.empty(shape, f"V{itemsize}").transpose(axes)
    target = np.empty(source.shape, source.dtype)
    limits = limits or Limits.of(MACHINE)
    strides = target.strides, source.strides
    return solve_transpose(source.shape, *strides, itemsize, threads, limits, **how)


def visit(body, ranges):
    """Yield the points that loops visit, as values of each letter."""
    for node in body:
        if isinstance(node, Do):
            yield tuple(range_.start for range_ in ranges.values())
        elif isinstance(node, Loop):
            around = ranges[node.letter]
            for low in around[:: node.step]:
                inner = range(low, min(low + node.step, around.stop))
                yield from visit(node.body, {**ranges, node.letter: inner})
        else:
            yield from visit(node.body, ranges)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 13), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 4, 8, 12]),
    st.sampled_from([{}, {"streamed": True}, {"streamed": True, "aligned": True}, {"held": True}]),
    st.integers(1, 3),
)
def test_a_tree_covers_each_element_once(shape, order, itemsize, how, threads):
    """Whatever its tiles, its staging and its blocks are."""
    axes = order.sample(range(len(shape)), len(shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "TRANSPOSE_RUN_BYTES", 64)
        patch.setattr(policy, "TRANSPOSE_TILE_BYTES", 512)
        tree = tree_of_transpose(solve(shape, axes, itemsize, threads, SMALL, **how))
    (work,) = tree.works
    extents = dict(work.extents)
    visits = Counter(visit(tree.body, {x: range(extent) for x, extent in extents.items()}))
    assert set(visits) == set(itertools.product(*map(range, extents.values())))
    assert set(visits.values()) == {1}
    assert prod(extents.values()) * work.summed == prod(shape) * itemsize


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3000, 2000), (1, 0)), ((60, 500, 200), (2, 1, 0)), ((90, 400, 96), (1, 0, 2))],
)
def test_memory_moves_each_array_once(shape, axes, threads):
    """And lines that are written, twice, unless they are streamed."""
    whole = 8 * prod(shape)
    streamed, stored = (
        price_transpose(solve(shape, axes, 8, threads, streamed=past, aligned=past), MACHINE)
        for past in (True, False)
    )
    rate = list_levels(MACHINE, threads)[-1].stream_rate
    for price, times in ((streamed, 1), (stored, 2)):
        target, source = price.level("memory").volumes
        target += price.past_caches * rate
        assert target * threads == pytest.approx(
            times * whole, rel=0.15
        )  # threads have whole tiles
        assert source * threads == pytest.approx(whole, rel=0.15)
        assert price.compute > 0
    assert streamed.seconds < stored.seconds
    taken = streamed.level("memory").seconds + streamed.past_caches
    assert taken >= 2 * whole / MACHINE.bandwidth(MACHINE.levels[-1], threads)


@pytest.mark.parametrize("shape", [(700, 900), (40, 30), (300, 7)])
def test_what_a_statement_is_priced_by_is_what_runs(shape, monkeypatch):
    """The tiles of a nest's move are those that a call of it has, and `transpose`."""
    monkeypatch.setenv("TILESOLVE_MACHINE", MACHINE.name)
    sizes = dict(zip("yx", shape, strict=True))
    found = nest("o[x,y] = A[y,x]", sizes, route="transpose")
    (solution,) = found.solutions
    assert solution.cost == price_transpose(solution.transpose, MACHINE)
    solved = []
    usual = walk_setup.solve_transpose

    def solve_and_keep(*args, **how):
        solved.append(usual(*args, **how))
        return solved[-1]

    monkeypatch.setattr(walk_setup, "solve_transpose", solve_and_keep)
    array = np.random.default_rng(1).standard_normal(shape)
    for run in (found, tilesolve.transpose):
        walk_setup.walk_between.cache_clear()
        out = np.empty(prod(shape) + 8)
        begin = -out.ctypes.data // 8 % 8
        target = out[begin : begin + prod(shape)].reshape(shape[::-1])
        np.testing.assert_array_equal(run(array, out=target), array.T)
    assert solved == [solution.transpose] * 2
