"""Arrays anywhere in memory: each public function gives the right result, or says why not.

Byte orders, odd addresses, gaps of odd bytes, negative and zero strides, and elements that share
memory are drawn for every array of a call. `array_cases` has the calls.
"""

import gc
import weakref
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from array_cases import CASES as PLANNED
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_array_cases import NEST_CASES
from placements import Placed, make_room, placements
from turns import examples

from tilesolve import TilesolveError
from tilesolve.contractions.errors import DtypeError, PlanError
from tilesolve.packing.memory_overlap import overlap

CASES = PLANNED | NEST_CASES

SEEDS = st.integers(0, 2**32 - 1)

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


@st.composite
def shared_calls(draw, case):
    """Draw a call whose `out` lies in the memory of one of its operands, and which one."""
    where = [draw(placements(len(shape))) for shape in case.shapes]
    target = draw(placements(len(case.shape), written=True))
    number = draw(st.integers(0, len(where) - 1))
    size = where[number].reach(case.shapes[number], np.dtype(case.dtypes[number]).itemsize)
    before = target.reach(case.shape, np.dtype(case.dtype).itemsize)
    where[number] = replace(where[number], begin=before + where[number].begin)
    # The very same elements are as likely as some others that it shares.
    begins = st.just(where[number].begin) | st.integers(0, where[number].begin + size)
    return where, replace(target, begin=draw(begins)), number


def check_shared_call(case, call, rng):
    """Where `out` and an operand share memory, the call is refused, or right as it is elsewhere."""
    where, target, number = call
    drawn = [draw_values(*one, rng) for one in zip(case.shapes, case.dtypes, strict=True)]
    size, last = np.dtype(case.dtype).itemsize, where[number]
    room = make_room(
        max(
            target.begin + target.reach(case.shape, size),
            last.begin + last.reach(drawn[number].shape, drawn[number].itemsize),
        )
    )
    out = Placed.of(draw_values(case.shape, case.dtype, rng), target, room)
    placed = [
        Placed.of(values, one, room if at == number else None)
        for at, (values, one) in enumerate(zip(drawn, where, strict=True))
    ]
    out, given = out.as_it_is(), [one.array for one in placed]
    with np.errstate(invalid="ignore"):  # parts of numbers are any
        right = case.right(*map(widen, given), out=widen(out.array))
    foreign = any(one.swapped for one in (*where, target)) and not case.converts
    try:
        found = case.call(*given, out=out.array)
    except TilesolveError as error:
        shares = target.shares or overlap(out.array, given[number])
        if not isinstance(error, (DtypeError,) * foreign + (PlanError,) * shares):
            raise
        assert out.is_unchanged()
    else:
        assert found is out.array
        assert out.has_whole_gaps()
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("name", CASES)
@examples(3, 5)
@given(data=st.data(), seed=SEEDS)
def test_an_out_amid_an_operand(name, data, seed):
    """Nothing is read that the call itself wrote before."""
    case = made(name)
    if True not in case.takes_out:
        pytest.skip("takes no out")
    check_shared_call(case, data.draw(shared_calls(case)), np.random.default_rng(seed))


@pytest.mark.parametrize("name", CASES)
@examples(3, 5)
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
