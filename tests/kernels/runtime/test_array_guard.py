"""Guards: a call like the last one is known by its arrays alone, and no other call is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from running_cases import relaid

from tilesolve import Machine, Problem, plan, reference
from tilesolve.kernels.runtime import guard_fields
from tilesolve.kernels.runtime.array_guard import describe_arrays, match_arrays

SPEC, SIZES = "mn-mk-kn", {"m": 5, "n": 6, "k": 7}


def told(arrays, outputs=1):
    """Return the words of a run for such arrays."""
    words = np.append(np.zeros(guard_fields.ARRAYS, np.int64), describe_arrays(arrays, outputs))
    words[guard_fields.GIVEN] = len(arrays)
    return words


def held(words, arrays):
    """Return whether compiled code takes arrays for alike."""
    row = np.array([id(array) for array in arrays])
    return bool(match_arrays(words.ctypes.data, row.ctypes.data))


def laid(shape, how, dtype="float64"):
    """Return an array that lies in memory of its own in some way."""
    if how == "repeated":
        return np.broadcast_to(np.zeros((), dtype), shape)
    return relaid(np.zeros(shape, dtype), how)


shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
ways = st.sampled_from(["plain", "fortran", "reversed", "spread", "repeated"])
dtypes = st.sampled_from(["float32", "float64", "complex64"])
kinds = st.tuples(shapes, ways, dtypes)


@given(st.tuples(kinds, kinds, kinds), st.integers(0, 2), kinds)
def test_only_alike_arrays_are_taken_for_alike(three, place, other):
    """Others with the same shapes, strides and dtypes are; with any other one they are not."""
    three = [
        (shape, "plain" if how == "repeated" and not at else how, dtype)
        for at, (shape, how, dtype) in enumerate(three)
    ]
    arrays = [laid(*kind) for kind in three]
    words = told(arrays)
    assert held(words, arrays)
    again = [laid(*kind) for kind in three]
    assert held(words, again)
    changed = [*again]
    changed[place] = laid(*other)
    same = (
        all(
            (one.shape, one.strides, one.dtype) == (two.shape, two.strides, two.dtype)
            for one, two in zip(arrays, changed, strict=True)
        )
        and changed[0].flags.writeable
    )
    assert held(words, changed) == same
    again[0].flags.writeable = False
    assert not held(words, again)


@given(st.integers(0, 60), st.integers(0, 60), st.booleans(), st.booleans())
def test_an_output_that_may_share_memory_is_not_apart(out_at, at, backwards, second):
    """As numpy sees it by the bounds of both."""
    memory, step = np.zeros(100), -1 if backwards else 1
    apart = np.zeros(8)[:6], np.zeros(20)[::2], np.zeros(20)[::2]
    words = told([apart[0], apart[1][::step], apart[2][::step]])
    out, operand = memory[out_at : out_at + 6], memory[at : at + 20 : 2][::step]
    operands = (
        [np.zeros(20)[::2][::step], operand] if second else [operand, np.zeros(20)[::2][::step]]
    )
    assert held(words, [out, *operands]) == (not np.may_share_memory(out, operand))


places = st.lists(st.integers(0, 40), min_size=2, max_size=4)


@given(places, st.integers(1, 3), st.integers(0, 3), st.integers(0, 3))
def test_several_outputs_are_apart_from_one_another(begins, outputs, frozen, own):
    """And from inputs, but for one that has an output's elements, which it then has to have."""
    outputs = min(outputs, len(begins) - 1)
    apart = [np.zeros(8) for _ in begins]
    if own < outputs:
        apart[-1] = apart[own]
    words = told(apart, outputs)
    assert held(words, apart)
    memory = np.zeros(60)
    others = [memory[at : at + 8] for at in begins]
    pairs = [(one, two) for two in range(len(others)) for one in range(min(two, outputs))]
    right = True
    for one, two in pairs:
        if two == len(others) - 1 and one == own:
            right &= begins[one] == begins[two]
        else:
            right &= not np.may_share_memory(others[one], others[two])
    assert held(words, others) == right
    apart[frozen % len(apart)].flags.writeable = False
    assert held(words, apart) == all(one.flags.writeable for one in apart[:outputs])


@given(st.lists(st.tuples(ways, ways, ways, st.booleans()), min_size=2, max_size=6))
def test_calls_of_many_layouts_in_turn_are_right(calls):
    """Whatever the last call's arrays were like, with an output and without one."""
    problem = Problem.of(SPEC, SIZES)
    found = plan(problem, machine=Machine.load("i7-6700k"), threads=1)
    generator = np.random.default_rng(1)
    for hows in calls:
        out, *operands = (
            laid(shape, "plain" if how == "repeated" else how)
            for shape, how in zip(problem.shapes, hows, strict=False)
        )
        for array in operands:
            array[...] = generator.standard_normal(array.shape)
        out[...] = np.nan
        expected = reference(problem, *operands)
        for _ in range(2):
            if hows[-1]:
                assert found(*operands, out=out) is out
            else:
                out = found(*operands)
            assert np.allclose(out, expected)
            assert np.allclose(found(*operands, out=out, alpha=2.0, beta=-1.0), expected)


def test_interleaved_memory_is_no_overlap():
    """Bounds that cross are looked at again: elements between others are not shared."""
    problem = Problem.of("i-i-", 4)
    found = plan(problem, machine=Machine.load("i7-6700k"), threads=1, cache=False)
    memory, scalar = np.arange(8.0), np.array(3.0)
    found(np.arange(8.0)[::2], scalar, out=np.zeros(8)[::2])
    found(memory[::2], scalar, out=memory[1::2])
    assert memory.tolist() == [0, 0, 2, 6, 4, 12, 6, 18]
