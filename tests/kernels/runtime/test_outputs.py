"""Outputs whose own elements share memory: refused by all that writes, whatever the strides."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from running_cases import varied

import tilesolve
from tilesolve.contractions.errors import PlanError
from tilesolve.kernels.microkernel_costs import Catalogue, RegisterTile
from tilesolve.kernels.runtime import state
from tilesolve.packing.buffers import empty
from tilesolve.packing.memory_overlap import overlaps_itself

FIRST, SECOND = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
PRODUCT = FIRST @ SECOND


@cache
def product_plan():
    return tilesolve.plan("ik-ij-jk", "i=3 j=4 k=5", "i7-6700k", cache=False)


def planned(out):
    product_plan()(FIRST, SECOND, out)


def batched(out):
    product_plan().batch([FIRST] * 2, [SECOND] * 2, [np.zeros((3, 5)), out])


def by_einsum(out):
    tilesolve.einsum("ij,jk->ik", FIRST, SECOND, out=out)


def by_an_expression(out):
    tilesolve.expression("ij,jk->ik", FIRST, SECOND)(FIRST, SECOND, out=out)


def transposed(out):
    tilesolve.transpose(PRODUCT.T, out=out)


WRITERS = (planned, batched, by_einsum, by_an_expression, transposed)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("strides", [(0, 8), (8, 8), (16, 8), (8, 16), (24, 16), (36, 8)])
def test_elements_that_share_memory_hold_no_result(write, strides):
    """Windows, repeated rows and halves of elements are refused, and nothing is written."""
    memory = np.full(64, 7.0)
    out = as_strided(memory, (3, 5), strides)
    with pytest.raises(PlanError, match=r"share memory.*strides"):
        write(out)
    assert (memory == 7).all()


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("strides", [(8, 24), (40, 24), (-40, 8), (48, 8), (24, 72)])
def test_elements_that_lie_between_each_other_hold_one(write, strides):
    """An output may have any strides as long as no two of its elements meet."""
    memory = np.full(128, 7.0)
    out = as_strided(memory[64:], (3, 5), strides)
    write(out)
    np.testing.assert_allclose(out, PRODUCT)
    assert (memory == 7).sum() == 128 - 15


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(-12, 12), st.sampled_from((1, 4))), max_size=4
    )
)
@example([(2, 3, 4), (3, 2, 4)])
@example([(2, 1, 4), (4, 2, 4), (4, 3, 4)])
def test_folded_arrays_are_found_exactly(axes):
    """An array counts as folded if and only if two of its elements have a byte in common."""
    memory = np.zeros(2048, np.float32)
    shape, strides = [n for n, *_ in axes], [step * unit for _, step, unit in axes]
    array = as_strided(memory[1024:], shape, strides)
    starts = [np.dot(at, strides) for at in product(*map(range, shape))] if axes else [0]
    taken = [int(start) + byte for start in starts for byte in range(4)]
    assert overlaps_itself(array) == (len(set(taken)) < len(taken))


@pytest.mark.parametrize("crowded", [None, 1.0, 2.0])
@pytest.mark.parametrize("n", [504, 512])
def test_c_goes_through_the_caches_where_its_lines_hinder_each_other(n, crowded):
    """Rows of 4096 bytes have the lines of a call at one place in their pages, others do not."""
    tiles = (RegisterTile(2, 6, 6.3, 10.0),)
    catalogue = Catalogue("float64", 256, 16, tiles, aliased_store_slowdown=crowded)
    machine = tilesolve.Machine.load("i7-6700k").replace(catalogues=(catalogue,))
    found = tilesolve.plan("mn-mk-kn", {"m": 96, "n": n, "k": 8}, machine, cache=False)
    found = varied(found, output="stream")
    assert dict(found.nest.bands[0].box)["m"] > 1
    first, second = np.random.default_rng(n).standard_normal((2, 96, n))
    second = second[:8]
    out = empty((96, n), np.dtype(float))
    out.fill(np.nan)
    found(first[:, :8], second, out)
    assert np.allclose(out, first[:, :8] @ second)
    (layout,) = found.executor.layouts.values()
    through = n == 512 and crowded == 2.0
    assert [bool(task.state[state.NON_TEMPORAL_BYTES]) for task in layout.tasks] == [not through]
    said = next(line for line in str(found).splitlines() if "C is" in line)
    assert ("through the caches" in said) is through
