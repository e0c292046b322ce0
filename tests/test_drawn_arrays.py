"""Arrays anywhere in memory: each public function gives the right result, or says why not.

Byte orders, odd addresses, gaps of odd bytes, negative and zero strides, and elements that share
memory are drawn for every array of a call. `array_cases` has the calls.
"""

import gc
import weakref
from functools import cache

import numpy as np
import pytest
from array_cases import CASES as PLANNED
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_array_cases import NEST_CASES
from placements import Placed, placements

from tilesolve import TilesolveError
from tilesolve.contractions.errors import DtypeError, PlanError

CASES = PLANNED | NEST_CASES

made = cache(lambda name: CASES[name]())
"""Returns a case: most plan something."""


def draw_values(shape, dtype, rng):
    """Return whole numbers whose sums half precision holds, too; positions are 0 to 4."""
    kind = np.dtype(dtype).kind
    least, most = (0, 5) if kind in "iu" else (-2, 3)
    values = rng.integers(least, most, shape)
    return (values + (1j * rng.integers(least, most, shape) if kind == "c" else 0)).astype(dtype)


def widen(array):
    """Return the numbers of an array in a dtype that has them all, in the machine's byte order."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


@st.composite
def calls(draw, case):
    """Draw where operands and `out` lie, and whether there is an `out`."""
    operands = [draw(placements(len(shape))) for shape in case.shapes]
    out = draw(placements(len(case.shape), written=True))
    return operands, out if draw(st.sampled_from(case.takes_out)) else None


def check_call(case, call, rng):
    """Hold one call to what is right; what is refused leaves all memory as it was."""
    where, target = call
    operands = [
        Placed.of(draw_values(shape, dtype, rng), one)
        for shape, dtype, one in zip(case.shapes, case.dtypes, where, strict=True)
    ]
    given = [one.array for one in operands]
    out = None
    if target is not None:
        out = Placed.of(draw_values(case.shape, case.dtype, rng), target)
    before = None if out is None else widen(out.array)
    right = case.right(*map(widen, given), out=before)
    foreign = any(one.swapped for one in (*where, target) if one is not None)
    reasons = (*([DtypeError] if foreign and not case.converts else []),)
    if target is not None and target.shares:
        reasons += (PlanError,)
    try:
        found = case.call(*given, out=None if out is None else out.array)
    except TilesolveError as error:
        if not isinstance(error, reasons):
            raise
        assert out is None or out.is_unchanged()
    else:
        assert out is None or (found is out.array and out.has_whole_gaps())
        np.testing.assert_array_equal(found, right)
    assert all(one.is_unchanged() for one in operands)


def check_calls(name, data, seed):
    """Call a case with arrays like those of the call before but elsewhere, and with others."""
    case, rng = made(name), np.random.default_rng(seed)
    drawn = [data.draw(calls(case)) for _ in range(2)]
    for call in (drawn[0], drawn[0], drawn[1], drawn[0]):
        check_call(case, call, rng)


SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5)
@given(data=st.data(), seed=SEEDS)
def test_arrays_anywhere(name, data, seed):
    check_calls(name, data, seed)


@pytest.fixture
def case_alone(request):
    """A case, when collections no longer look at what there is by then: they would take seconds."""
    found = made(request.param)
    gc.collect()
    gc.freeze()
    return found


@pytest.mark.parametrize("case_alone", CASES, indirect=True)
def test_calls_keep_no_array(case_alone):
    """Once the caller forgets operands and results, their memory is free."""
    case, rng = case_alone, np.random.default_rng(1)
    for takes_out in (*case.takes_out, *case.takes_out):
        operands = [draw_values(*one, rng) for one in zip(case.shapes, case.dtypes, strict=True)]
        out = draw_values(case.shape, case.dtype, rng) if takes_out else None
        operands.append(case.call(*operands, out=out))
        known = list(map(weakref.ref, operands))
        del operands, out
        gc.collect()
        assert all(one() is None for one in known)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60)
@given(data=st.data(), seed=SEEDS)
def test_many_arrays_anywhere(name, data, seed):
    check_calls(name, data, seed)
