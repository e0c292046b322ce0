"""What traced functions compute: what NumPy computes."""

import re
import warnings
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from drawn_functions import DTYPES, OPERATIONS, drawn_functions
from drawn_texts import draw_function, lay_out
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tilesolve.bench.pipelines import CASES
from tilesolve.contractions.errors import SizeError, TilesolveError, TraceError
from tilesolve.machine.model import Machine
from tilesolve.nests.plan import keep_plan
from tilesolve.nests.request import NestRequest
from tilesolve.pipelines.front import PipelineFunction
from tilesolve.pipelines.plan import PipelinePlan


def check(function, arrays, place=np.copy, **named):
    """A pipeline gives what NumPy does, in its dtype and shape; arguments are as NumPy has them."""
    theirs, given = [one.copy() for one in arrays], [place(one) for one in arrays]
    run = tilesolve.pipeline(function, cache=False, **named)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = function(*theirs)
        except (ValueError, TypeError, IndexError, OverflowError) as error:  # NumPy has it not
            with pytest.raises((TilesolveError, type(error))):
                run(*given)
            return
    found = run(*given)
    results = [found] if not isinstance(found, tuple) else found
    expected = wanted if isinstance(found, tuple) else [wanted]
    for one, other in zip([*results, *given], [*expected, *theirs], strict=True):
        assert (one.dtype, np.shape(one)) == (other.dtype, np.shape(other))
        assert type(one) is type(other)  # a number, or an array without axes
        if other.dtype.kind in "fc":
            tolerance = 1e-4 if other.dtype in ("float32", "complex64") else 1e-9
            assert np.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            assert np.array_equal(one, other)


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_each_operation(number):
    """Every operation of the drawn functions by itself, on axes of different extents."""
    rng = np.random.default_rng(number)
    shape, dtype = ((5, 4, 3), (4, 5))[number % 2], DTYPES[number % len(DTYPES)]
    check(OPERATIONS[number], [rng.integers(0, 5, shape).astype(dtype)])


@examples(6, 25)
@given(drawn_functions())
def test_drawn_functions(drawn):
    """Operations one after another, on drawn shapes and dtypes."""
    function, _, arrays = drawn
    check(function, arrays)


def drawn_lines(seed, change=str):
    """A drawn function, and its arrays."""
    text, arrays = draw_function(seed)
    names = {"np": np}
    exec(compile(change(text), "<drawn>", "exec"), names)
    return names["function"], arrays


@examples(16, 400)
@given(st.integers(0, 10**6))
def test_drawn_lines(seed):
    """Lines of several arrays, writes among them: NumPy's values, or an error of ours."""
    function, arrays = drawn_lines(seed)
    with suppress(TilesolveError):  # pipelines have not all of NumPy's dtypes and functions
        check(function, arrays, partial(lay_out, seed), threads=1 + seed % 2)


@examples(6, 200)
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_drawn_steps(seed, steps):
    """Steps are calls one after another, on what was written before."""
    step, arrays = drawn_lines(seed, lambda x: re.sub("return .*", "return A, B", x))

    def loop(*arrays):
        for _ in range(steps):
            arrays = step(*arrays)
        return arrays

    theirs = [one.copy() for one in arrays]
    with warnings.catch_warnings(), suppress(TilesolveError):
        warnings.simplefilter("ignore")
        try:
            loop(*theirs)
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        found = tilesolve.pipeline(step, cache=False)(*arrays, steps=steps)
        for one, other in zip(found, theirs, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, 1e-4, 1e-4)


@examples(6, 200)
@given(st.integers(0, 10**6))
def test_drawn_lines_run_together(seed):
    """Stages that slide, that overlap, and that run one by one give the same bits."""
    function, arrays = drawn_lines(seed)
    machine, found = Machine.load(None), []
    with warnings.catch_warnings(), suppress(TilesolveError, ValueError, TypeError, IndexError):
        warnings.simplefilter("ignore")
        for fusion in ("slide", "overlap", "root"):

            def plan(computation, fusion=fusion):
                request = NestRequest(computation, machine, 1, "default", fusion=fusion)
                return keep_plan(PipelinePlan, request, cache=False)

            given = [one.copy() for one in arrays]
            results = PipelineFunction(function, plan)(*given)
            found.append([np.asarray(one).tobytes() for one in (*results, *given)])
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", CASES)
def test_suite(name):
    """Pipelines that are written from their descriptions."""
    case = CASES[name]
    small = case.shrink(32 if name != "maxfilter" else 64)
    arrays = small.arrays()
    if name == "vdsr":
        arrays["weights"] = arrays["weights"][:1]
    check(case.function, list(arrays.values()))


@pytest.mark.parametrize(
    "number", [3, -3, 2.5, True, np.float32(1.5), np.int8(-3), np.uint8(200), np.float64(2)]
)
def test_numbers_promote_as_numpys(number):
    """Numbers of Python's take the dtype of arrays, those of NumPy have one of their own."""
    for dtype in ("uint8", "int16", "float32", "float64"):
        array = np.arange(1, 6).astype(dtype)
        if type(number) is int and number < 0 and dtype == "uint8":
            continue  # NumPy refuses it, too
        check(lambda a: a * number - (a > number), [array])


def test_powers():
    """Whole powers are products, in the dtype that NumPy has."""
    for dtype in ("uint8", "int32", "float32", "float64"):
        array = np.arange(1, 6).astype(dtype)
        check(lambda a: (a**2, a**3, a**1.0, a**0.5 if a.dtype.kind == "f" else a), [array])


def test_results_without_axes():
    """Sums of all elements are numbers of NumPy's, and so are elements."""
    check(lambda a: (a.sum(), a[1, 2], a.max() - a.mean()), [np.arange(12.0).reshape(3, 4)])
    check(lambda a, b: a * b, [np.arange(3.0), np.array(2.0)])


def test_numbers_are_no_views():
    """What is written to their array, or to an array of theirs, does not reach them."""

    def element(a):
        first = a[0]
        a[0] = 5
        return a + first

    def views(a):
        total = a.sum()
        one, same, alone = total[None], total[...], total.reshape(1)
        one[...] = 3
        same += 1
        alone[0] = -1
        return total, one, same, alone, total.T, total[()], total.copy(), np.copy(total)

    def arrays(a):
        inner, chosen = a[0, ...], np.where(a[1] > 0, a[0], a[2])
        a[0] = 7
        chosen += 1
        return inner, chosen, inner + chosen, np.zeros(()), a.max(out=np.zeros(()))

    for function in (element, views, arrays):
        check(function, [np.arange(4.0)])


def test_rows_at_a_number_are_views():
    """They are NumPy's where they are read before their array is written, else refused."""

    def before(a, i):
        row = a[i[0]] * 2
        a[...] = 1
        return row, a[i[0, ...]]

    def late(a, i):
        row = a[i[0]]
        a[...] = 1
        return row

    def written(a, i):
        row = a[i[0]]
        row[...] = 1

    given = [np.arange(6.0).reshape(2, 3), np.array([1, 0])]
    check(before, given)
    for function in (late, written):
        with pytest.raises(TraceError, match=r"read alone|written to since"):
            tilesolve.pipeline(function)(*given)


@pytest.mark.parametrize("number", [-1, -300, 256, 2**31, 2**63, 2**64])
def test_comparisons_with_numbers_that_no_element_is(number):
    """A number that does not fit a dtype is larger, or smaller, than all of its values."""
    for dtype in ("int8", "uint8", "int64", "uint64"):
        array = np.array([0, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
        check(lambda a: (a > number, a <= number, number == a, a != number), [array])


def test_sums_of_no_elements():
    """An axis of a number that is cut to nothing is summed to nothing."""
    check(lambda a: (a[None][:0].sum(), a[None][:0].prod(0), a[None][:0].any()), [np.array(3.0)])
    check(lambda a, b: np.einsum("i,j->i", a, b.repeat(0)), [np.arange(3), np.array(2)])


def test_sums_over_what_is_chosen():
    """A sum over one of several arrays that were put together, and a view of one without axes."""

    def chosen(a):
        both = np.stack([a, a + 1])
        return np.sum(both[1:] - both[:1], axis=0), np.sum(np.diff(both, axis=0), axis=-2)

    def squeezed(a):
        inner = a[:1].squeeze()
        a *= 2
        return inner, a

    for function in (chosen, squeezed):
        check(function, [np.arange(5)])


def test_results_that_all_rows_read():
    """Threads divide rows that a result has not."""
    rng = np.random.default_rng(0)
    one, all_rows = rng.random((1, 65)), rng.random((33, 65))

    def function(a, b):
        row = a + 1
        return row >= b, row

    found = tilesolve.pipeline(function, threads=2, cache=False)(one, all_rows)
    for mine, theirs in zip(found, function(one, all_rows), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_bytes_beside_wide_numbers():
    """Vectors of bytes have as many lanes as there are of what they are made of."""

    def function(a, b):
        none = np.zeros_like(b)
        products = np.angle(none).cumprod(dtype="float32")
        return a <= none, np.concatenate([products, products])

    rng = np.random.default_rng(1)
    given = [rng.integers(0, 9, (9, 2, 32)).astype(x) for x in ("uint16", "uint64")]
    check(function, [given[0], given[1][:, :1]])


POWERS = [
    lambda a, b: ((a**b), a + 1)[1],
    lambda a, b: (a**b)[2:],
    lambda a, b: (a**b)[:2] + (a**b)[1:],
    lambda a, b: ((a**b).sum(), a)[1],
    lambda a, b: (np.pad(a**b, 1)[:2], a[b].__setitem__(0, 0))[0],
]
POSITIONS = [
    lambda a, b: (a[b], a + 1)[1],
    lambda a, b: np.take(a, b)[:1],
    lambda a, b: np.repeat(np.take(a, b), 2).reshape(3, 2),
    lambda a, b: (a[b[1]], a)[1],
]


@pytest.mark.parametrize("function", [*POWERS, *POSITIONS])
def test_values_are_checked_that_no_result_needs(function):
    """NumPy computes them, too, and refuses powers below 0, and positions outside."""
    array = np.array([2, 3, 4])
    check(function, [array, np.array([2, 0, 1])])
    bad = np.array([0, -1, 2]) if function in POWERS else np.array([0, 7, 2])
    check(function, [array, bad])


def test_values_are_checked_that_are_written_over():
    """So are those that another value takes the place of."""

    def function(a, b):
        power = a**b
        power[1:] = 0
        return power

    for exponents in ([1, 0, 2], [1, -2, 0]):
        check(function, [np.array([2, 3, 4]), np.array(exponents)])


def test_steps_check_values():
    """What is computed to be checked alone is no grid of a step."""

    @tilesolve.pipeline
    def step(a, b):
        a[b]
        return a + 1

    array = np.arange(3)
    assert np.array_equal(step(array, array, steps=3), array + 3)
    assert np.array_equal(step(array, array, out=np.empty(3, int)), array + 1)
    assert step.bind(array, array, out=np.empty(3, int)) is None
    with pytest.raises(SizeError, match="position 3"):
        step(array, array + 1, steps=2)


def test_not_a_number_stays():
    """A NaN is written as what gives one."""
    check(lambda a: np.where(a > 2, np.nan, a), [np.arange(5.0)])
    check(lambda a: np.full(a.shape, np.inf) - a, [np.arange(5.0)])


def test_contractions():
    """Products of matrices in all of NumPy's ways."""
    rng = np.random.default_rng(0)
    a, b, c = rng.random((3, 4)), rng.random((4, 5)), rng.random((2, 1, 4, 3))
    check(lambda a, b: (a @ b, np.dot(a, b), np.einsum("ij,jk", a, b)), [a, b])
    check(lambda a, c: (c @ a, a @ c, np.tensordot(c, a, ((2,), (1,)))), [a, c])
    check(lambda a, b: (a[0] @ b, a @ b[:, 0], np.outer(a[0], b[0]), np.inner(a, b.T)), [a, b])
    check(lambda a: np.einsum("ii->i", a[:, :3]), [a])
    check(lambda a: a @ a.T, [np.arange(12, dtype="uint8").reshape(3, 4)])


def test_borders_of_any_width():
    """Borders that are wider than the array turn back and forth, as NumPy's do."""
    array = np.arange(12.0).reshape(3, 4)
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        check(lambda a, mode=mode: np.pad(a, ((5, 1), (0, 7)), mode), [array])
    check(lambda a: np.pad(a, 2, constant_values=7), [array])


def test_writes_to_views_reach_the_array():
    """A view is written to, and the array that it views is read."""

    def function(a):
        b = np.empty(a.shape)
        b[...] = 1
        row, column = b[1], b.T[2]
        row[::2] += a[0, ::2]
        column -= 3
        b[0] = row[::-1]
        return b, row

    check(function, [np.arange(20.0).reshape(4, 5)])


def test_old_values_stay_with_who_read_them():
    """A value that was read before a write is what it was."""

    def function(a):
        b = a + 1
        before = b[:-1] * 2
        b[1:] = 0
        return before + b[1:], b

    check(function, [np.arange(5.0)])


def test_tables_of_the_functions_own():
    """Elements of a constant at positions that are computed, as of an argument."""
    table = np.arange(10, 20).astype("int16")
    check(lambda a: np.take(table, a), [np.array([[3, 0], [9, -2]])])
    check(lambda a: a + np.take(table, [1, 2]), [np.array([3, 1])])


def test_numbers_of_other_dtypes():
    """What is no number, and minus zero, are as wide as arrays; limits are of one dtype."""
    for dtype in ("float32", "int32", "complex64"):
        array = np.arange(5).astype(dtype)
        check(lambda a: (a * np.nan, a * -0.0, a + -0.0), [array])
        check(lambda a: np.where(a == 2, np.nan, a) if a.dtype.kind == "f" else a, [array])
    check(lambda a, b: np.clip(a, -1, b), [np.array([True, False]), np.arange(2, dtype="int16")])
    check(lambda a: a.conj(), [np.array([True, False])])


def test_copies_and_views_are_numpys():
    """What NumPy copies is not written to, and what it has a view for is."""

    def copies(a):
        for other in (np.pad(a, 0, "edge"), np.take(a, 0, 0), np.roll(a, 1, ()), a[0, ::2].ravel()):
            other[...] = 7
        flat = a.flatten()
        flat[1:3] = 5
        return a, flat

    def views(a):
        a.real[0] += 1
        a[1, 1:].ravel()[:] = 3
        part = a.conj()
        part[-1] -= 2
        return a * 2

    def masked(a):
        a[a > 3] = 2.5
        return a

    def numbers(a):
        first = same = a[0, 0]
        first += 5
        a[1, 1] += 2
        return a * first + same

    check(numbers, [np.arange(12.0).reshape(3, 4)])
    check(copies, [np.arange(12.0).reshape(3, 4)])
    check(views, [np.arange(12.0).reshape(3, 4)])
    check(masked, [np.array([2**60 + 1, 7, 1])])


def test_arguments_without_axes_are_written():
    """They are returned as they were given: without axes."""
    check(lambda a, b: (b.fill(0.5), a.fill(2), b, a)[2:], [np.array(1.0), np.array(3.0)])


def test_positions_outside_are_found():
    """Those of a part of an array, of one with borders or of constants, as those of a whole one."""
    array = np.arange(10.0)
    parts = [lambda a: a[2:-2], lambda a: a[2:-2] * 2, lambda a: np.pad(a, 1), lambda a: a[::-1]]
    for part in [*parts, lambda a: np.zeros_like(a[:4])]:
        extent = len(part(array))
        check(
            lambda a, i, part=part: part(a)[i] + a[0], [array, np.array([0, extent - 1, -extent])]
        )
        for position in (extent, -extent - 1):
            check(lambda a, i, part=part: part(a)[i] + a[0], [array, np.array([0, position])])


@pytest.mark.parametrize("mode", ["default", "plain", "thesis", "untiled"])
def test_modes_of_no_elements(mode):
    """Stages without points are planned in each mode."""

    def function(a):
        return np.diff(a < a, n=2, axis=2), np.pad(np.std(a[:, :0], axis=1), 1, "symmetric")

    array = np.ones((2, 3, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = function(array)
    found = tilesolve.pipeline(function, mode=mode, threads=2, cache=False)(array)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "float32"])
def test_a_product_stands_beside_results_of_other_dtypes(dtype):
    """Whatever comes last: a product is in its own dtype."""

    def both(first, second, whole):
        return first @ second, whole[::-1]

    rng = np.random.default_rng(4)
    first, second = rng.random((2, 70, 70))
    check(both, [first, second, rng.integers(0, 9, (70, 70)).astype(dtype)])


def write_raveled(a):
    """Write to an element of what is a view or a copy."""
    flat = a.ravel()
    flat[0] = 5
    return a * 2


def add_to_raveled(a):
    """Change all of what is a view or a copy."""
    flat = a.ravel()
    flat += 1
    return a * 2


def read_reshaped(a):
    """Read what is a view or a copy after a write."""
    flat = a.reshape(-1)
    a[...] = 0
    return flat + 1


def write_raveled_row(a):
    """Write to a row that is a view or a copy."""
    flat = a[0].ravel()
    flat[...] = 5
    return a * 2


@pytest.mark.parametrize(
    "function", [write_raveled, add_to_raveled, read_reshaped, write_raveled_row]
)
def test_arguments_lie_as_they_lie(function):
    """One pipeline, called with arrays in any order, writes where NumPy does, or refuses it."""
    traced, rng = tilesolve.pipeline(function), np.random.default_rng()
    whole = rng.standard_normal((4, 6))
    layouts = [whole, np.asfortranarray(whole), whole[:, ::2], whole[::2], whole.T, whole[::-1]]
    layouts += [whole[0, :1], whole[:, :1], whole[:1]]
    if function is not write_raveled_row:
        layouts += [whole[0], whole[0, ::2], whole[:, 0], whole[0, ::-1]]
    done = 0
    for layout in layouts:
        base = [rng.standard_normal(whole.shape)] * 2
        given, expected = (
            np.lib.stride_tricks.as_strided(one, layout.shape, layout.strides)
            if min(layout.strides) > 0
            else one[::-1]
            if layout.ndim == 2
            else one[0, ::-1]
            for one in (array.copy() for array in base)
        )
        wanted = function(expected)
        try:
            found = traced(given)
        except TraceError:
            continue
        done += 1
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(given, expected)
    assert done
