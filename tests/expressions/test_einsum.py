import operator

import numpy as np
import pytest
from einsum_cases import catch_outcome, describe_difference, draw_call, set_costs
from numpy_cases import NETWORKS, SIZES, VIEWS

import tilesolve
from tilesolve.contractions.errors import (
    DtypeError,
    PathError,
    PlanError,
    SizeError,
    SpecError,
)
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.expressions import einsum as einsum_module

DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", "G")


@pytest.fixture(params=["as it is", "without numpy's loops"])
def paths(request, monkeypatch):
    """Small cases run as they do, and then by the routes that larger ones take."""
    if request.param != "as it is":
        set_costs(monkeypatch, einsum_loop_products=0.5)


def whole(shape, dtype, seed=0):
    """Return an array of small whole numbers, of which all sums are exact."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    values = np.asarray(rng.integers(-3 if dtype.kind in "ifc" else 0, 4, shape)).astype(dtype)
    if dtype.kind == "c":
        values = values + dtype.type(1j) * rng.integers(-3, 4, shape)
    return np.asarray(values, dtype)


def arrays(shapes, dtype):
    return [whole(shape, dtype, seed) for seed, shape in enumerate(shapes)]


def same(ours, theirs):
    """Whether two results are the same in value, dtype, shape and kind."""
    assert type(ours) is type(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours, theirs)


# numpy's own cases, beside its own tests


@pytest.mark.grid
@pytest.mark.parametrize("optimize", [True, False, "greedy", "optimal"])
@pytest.mark.parametrize("text", NETWORKS)
def test_numpys_networks(text, optimize, paths):
    """Many operands give the same result in each order of contraction."""
    terms = text.split("->")[0].split(",")
    operands = [np.random.default_rng(1).random([SIZES[x] for x in term]) for term in terms]
    ours = tilesolve.einsum(text, *operands, optimize=optimize)
    np.testing.assert_allclose(ours, np.einsum(text, *operands, optimize="greedy"), rtol=1e-10)


@pytest.mark.parametrize(("shape", "texts"), VIEWS)
def test_one_operand_gives_a_view(shape, texts):
    """What sums nothing is a view, as writable as its operand."""
    for text in texts:
        array = np.arange(np.prod(shape)).reshape(shape).copy()
        for _ in range(2):  # the second call is a kept one
            view = tilesolve.einsum(text, array)
            assert np.shares_memory(view, array)
            assert view.flags.writeable
            same(view, np.einsum(text, array))
        view[...] = -1
        assert (array == -1).sum() == view.size
        array.flags.writeable = False
        assert not tilesolve.einsum(text, array).flags.writeable


@pytest.mark.parametrize("dtype", [x for x in DTYPES if x not in "gG"])
def test_a_dtype_to_compute_in(dtype, paths):
    """With `dtype` and `casting`, operands are cast before, and the result into `out` after."""
    a, b = whole((4, 9), dtype), whole((9, 6), dtype, 1)
    out, theirs = np.zeros((4, 6), dtype), np.zeros((4, 6), dtype)
    if np.dtype(dtype).kind == "c":
        pytest.skip("numpy warns of imaginary parts that are lost")
    found = tilesolve.einsum("ij,jk", a, b, out=out, dtype="f8", casting="unsafe")
    np.einsum("ij,jk", a, b, out=theirs, dtype="f8", casting="unsafe")
    assert found is out
    np.testing.assert_array_equal(out, theirs)
    text, truth = "i,i,i->i", np.array([True, False, True, True])
    operands = (a[0, :4], b[:4, 0], truth)
    ours = tilesolve.einsum(text, *operands, dtype="?", casting="unsafe")
    same(ours, np.einsum(text, *operands, dtype="?", casting="unsafe"))


@pytest.mark.parametrize("text", ["ee->e", "ij->ji", "ii->", "ij,jk->ik"])
@pytest.mark.parametrize("dtype", ["<f8", ">f8", ">i4", "<f4"])
def test_casting_and_orders_of_bytes(text, dtype):
    """Views ignore what is given of dtypes, as numpy's do; casting "no" swaps no bytes."""
    operands = [whole((3, 3), "f8", seed).astype(dtype) for seed in range(1 + ("," in text))]
    for casting in ("no", "equiv", "safe", "same_kind", "unsafe"):
        for wanted in (None, "f8", "f4", "i8"):
            try:
                theirs = np.einsum(text, *operands, dtype=wanted, casting=casting)
            except TypeError:
                with pytest.raises(DtypeError):
                    tilesolve.einsum(text, *operands, dtype=wanted, casting=casting)
                continue
            ours = tilesolve.einsum(text, *operands, dtype=wanted, casting=casting)
            same(ours, theirs)
            assert np.shares_memory(ours, operands[0]) == np.shares_memory(theirs, operands[0])


def test_the_list_format():
    """Lists of integers mean what letters do: numpy's integers, ranges and ellipses too."""
    a, b = whole((2, 3, 4), "i8"), whole((4, 3), "i8", 1)
    cases = [
        ((a, [0, 1, 2], b, [2, 1]), "ABC,CB"),
        ((a, [0, 1, 2], b, [2, 1], [1]), "ABC,CB->B"),
        ((a, [51, ..., 26], b, [26, 0], [..., 51]), "z...a,aA->...z"),
        ((a, np.arange(3)), "ABC"),
        ((b, range(1, 3), [2, 1]), "BC->CB"),
        ((b, (Ellipsis,), []), None),
        ((3, [], a, [..., 1], []), None),
    ]
    for arguments, text in cases:
        ours = catch_outcome(tilesolve.einsum, arguments[0], arguments[1:])
        theirs = catch_outcome(np.einsum, arguments[0], arguments[1:])
        if text is None:
            assert isinstance(ours, ValueError) == isinstance(theirs, ValueError)
            continue
        same(ours, theirs)
        same(ours, tilesolve.einsum(text, *arguments[: 2 * text.count(",") + 1 : 2]))
    for labels in ([0, 52], [0, -1], [0, "a"], [0, 1.0], "ij", 3, None):
        with pytest.raises(SpecError):
            tilesolve.einsum(b, labels)


@pytest.mark.parametrize("order", ["C", "F", "A", "K", "c", "f"])
def test_the_result_has_the_layout_asked_for(order, paths):
    """C and F order are kept, A is F if all operands are."""
    a, b = np.ones((2, 3, 5), order="F"), np.ones((4, 3), order="F")
    found = tilesolve.einsum("...ft,mf->...mt", a, b, order=order)
    np.testing.assert_array_equal(found, np.einsum("...ft,mf->...mt", a, b))
    if order in "Cc":
        assert found.flags.c_contiguous
    elif order in "AFf":
        assert found.flags.f_contiguous
    assert tilesolve.einsum("...ft,mf->...mt", a, b.copy("C"), order="A").flags.c_contiguous


# dtypes


@pytest.mark.parametrize("one", ["?", "u1", "i8", "f2", "f4", "c8", ">f8"])
@pytest.mark.parametrize("two", ["?", "i1", "u8", "f4", "f8", "c16", ">i4"])
def test_mixed_dtypes_are_promoted_as_numpy_does(one, two, paths):
    """The result's dtype is numpy's for any two, in any byte order."""
    a, b = whole((5, 6), one), whole((6, 7), two, 1)
    for text in ("ij,jk->ik", "ij,jk->k", "ij,jk->ijk", "ij,jk->"):
        same(tilesolve.einsum(text, a, b), np.einsum(text, a, b))
    same(tilesolve.einsum("ij->j", a), np.einsum("ij->j", a))


def test_integers_and_truth_values_are_exact(paths):
    """Integers wrap as numpy's do, past where floating point would round; booleans are logic."""
    big = np.full((20, 20), 2**62 + 1)
    same(tilesolve.einsum("ij,jk", big, big), np.einsum("ij,jk", big, big))
    assert tilesolve.einsum("ij,jk", big, big)[0, 0] == np.int64(20 * ((1 << 62) + 1) ** 2 % 2**64)
    truth = np.ones((20, 20), bool)
    assert tilesolve.einsum("ij,jk", truth, truth).all()
    assert tilesolve.einsum("ij->", truth) is np.True_


def test_results_are_right_where_many_terms_are_summed():
    """Against extended precision, sums of random numbers are as near as rounding allows."""
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((30, 40, 50)), rng.standard_normal((50, 30, 40, 3))
    exact = np.einsum("ijk,kijl->l", a.astype("g"), b.astype("g"))
    np.testing.assert_allclose(tilesolve.einsum("ijk,kijl->l", a, b), exact, rtol=1e-10)
    value = np.broadcast_to(1 + np.finfo(float).eps * 8196, 1_000_000)
    assert tilesolve.einsum("i->", value) / 1_000_000 == pytest.approx(value[0], abs=1e-15)


# Shapes


def test_extents_of_0_and_1(paths):
    """Nothing summed is zero, nothing kept is empty; extent 1 goes with any other, 0 too."""
    for shapes, text in [
        ([(0, 3), (3, 2)], "ij,jk->ik"),
        ([(2, 0), (0, 3)], "ij,jk->ik"),
        ([(1, 3), (0, 3)], "ij,ij->ij"),
        ([(2, 1), (0, 3)], "ij,jk->ik"),
        ([(1,), (5,)], "i,i->i"),
        ([(1, 1), (5, 1)], "ij,ij->"),
        ([(1, 7), (1, 1), (7, 1)], "ij,jk,jk->ki"),
        ([(1, 1)], "ii->"),
    ]:
        operands = arrays(shapes, "f8")
        same(tilesolve.einsum(text, *operands), np.einsum(text, *operands))
        theirs = np.einsum(text, *operands)
        out = np.full(theirs.shape, np.nan)
        tilesolve.einsum(text, *operands, out=out)
        np.testing.assert_array_equal(out, theirs)


def test_strides_do_not_matter(paths):
    """Operands and out may be reversed, stepped, transposed and broadcast views."""
    base = whole((12, 14, 10), "f8")
    a, b = base[::-2, ::3, 1], np.broadcast_to(base[0, :5, 0], (7, 5)).T
    text = "ij,jk->ki"
    theirs = np.einsum(text, a, b)
    same(tilesolve.einsum(text, a, b), theirs)
    out = np.zeros((20, 6))[::-3, :][:7]
    assert tilesolve.einsum(text, a, b, out=out) is out
    np.testing.assert_array_equal(out, theirs)


def test_forty_letters_and_more():
    """Operands of 40 letters of extent 1 are taken, and 60 letters in all, past numpy's 52."""
    letters = [chr(code) for code in range(97, 123)] + [chr(0x3B1 + code) for code in range(40)]
    first = "".join(letters[:40])
    assert tilesolve.einsum(f"{first},{first}->", np.ones((1,) * 40), np.ones((1,) * 40)) == 1
    shape = (2, *(1,) * 38, 3)
    found = tilesolve.einsum(f"{first}->{first[-1]}{first[0]}", whole(shape, "i8"))
    np.testing.assert_array_equal(found, whole(shape, "i8").reshape(2, 3).T)
    many = "".join(letters[:30]), "".join(letters[30:60])
    a, b = np.ones((2, *(1,) * 29)), np.ones((*(1,) * 29, 3))
    assert tilesolve.einsum(f"{many[0]},{many[1]}->", a, b) == 6


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_array_likes_and_subclasses():
    """Lists and numbers are arrays; a matrix or masked array is taken as the array below it."""
    assert tilesolve.einsum("i,i", [1, 2], (3, 4)) == 11
    assert tilesolve.einsum(",", 2, 3.5) == 7.0
    for n in (3, 20):
        matrix, masked = np.matrix(np.ones((n, n))), np.ma.ones((n, n))
        for _ in range(2):
            found = tilesolve.einsum("ij,jk->ik", matrix, masked)
            assert type(found) is np.ndarray
            assert (found == n).all()


def test_kept_calls_see_what_changes(paths):
    """A call like an earlier one, but for shapes, dtypes or options, is computed anew."""
    a = whole((3, 4), "f8")
    same(tilesolve.einsum("ij,kj", a, a), np.einsum("ij,kj", a, a))
    for b in (a[:, :1], a.astype("f4"), a.astype("c16"), a[:2], a.astype(">f8")):
        same(tilesolve.einsum("ij,kj", a, b), np.einsum("ij,kj", a, b))
    same(
        tilesolve.einsum("ij,kj", a, a, dtype="c8", casting="unsafe"),
        np.einsum("ij,kj", a, a, dtype="c8", casting="unsafe"),
    )
    for _ in range(2):
        with pytest.raises(SizeError):
            tilesolve.einsum("ij,kj", a, a[:, :2])


# Bad input


def untouched(error, *arguments, **options):
    """Assert that a call is refused and leaves `out` as it was."""
    out = options.get("out")
    before = out.copy() if isinstance(out, np.ndarray) else None
    with pytest.raises(error) as caught:
        tilesolve.einsum(*arguments, **options)
    if before is not None:
        np.testing.assert_array_equal(out, before)
    return str(caught.value)


def test_sizes_that_disagree_are_named():
    """The message has the letter, both operands and both sizes."""
    message = untouched(SizeError, "ij,jk->ik", np.ones((2, 3)), np.ones((4, 5)))
    for part in ("'j'", "3 on axis 1 of operand 0", "4 on axis 0 of operand 1", "'ij,jk->ik'"):
        assert part in message
    message = untouched(SizeError, "...i,...i", np.ones((2, 3)), np.ones((4, 3)))
    assert "axis -1 of the ellipsis" in message


def test_operands_that_are_no_numbers():
    """Text, dates, nothing, lists of such and ragged lists are refused by name."""
    one = np.ones(2)
    for bad in (
        [1, None],
        ["a", "b"],
        np.array(["2020"], "M8[Y]"),
        None,
        object(),
        [[1], [1, 2]],
        "ab",
    ):
        out = np.full(2, 7.0)
        assert "operand 1" in untouched(DtypeError, "i,i->i", one, bad, out=out)


def test_out_is_checked_before_anything_is_written():
    """A wrong shape or dtype, read-only memory and overlap with itself leave `out` as it was."""
    a, b = np.ones((2, 3)), np.ones((3, 4))
    call = ("ij,jk->ik", a, b)
    assert "3 for 'i'" in untouched(SizeError, *call, out=np.zeros((3, 4)))
    assert "(2, 4, 1)" in untouched(SizeError, *call, out=np.zeros((2, 4, 1)))
    assert "list" in untouched(DtypeError, *call, out=[[0] * 4] * 2)
    assert "float32" in untouched(DtypeError, *call, out=np.zeros((2, 4), "f4"))
    assert "datetime64" in untouched(DtypeError, *call, out=np.zeros((2, 4), "M8[s]"))
    frozen = np.zeros((2, 4))
    frozen.flags.writeable = False
    assert "read-only" in untouched(PlanError, *call, out=frozen)
    shared = np.lib.stride_tricks.as_strided(np.zeros(4), (2, 4), (0, 8))
    assert "share memory" in untouched(PlanError, *call, out=shared)
    out = np.zeros((2, 4), "f4")
    assert tilesolve.einsum(*call, out=out, casting="same_kind") is out
    assert (out == 3).all()


def test_options_that_make_no_sense():
    """Unknown orders, castings, dtypes, paths and keywords are refused."""
    a = np.ones((3, 3))
    untouched(SpecError, "ii", a, order="W")
    untouched(SpecError, "ii", a, casting="blah")
    untouched(DtypeError, "ii", a, dtype="bad_data_type")
    untouched(DtypeError, "ii", a, dtype="M8[s]")
    untouched(DtypeError, "ii", a, dtype="f4")
    untouched(TypeError, "ii", a, bad_arg=0)
    untouched(SpecError, 3)
    untouched(SpecError, a)
    untouched(SpecError, "iι".encode(), a)
    big = np.ones((9, 9))
    for path in ("nonsense", [(0, 3), (0, 1)], [(0, 1)], [(0, 0), (0, 1)], [(0, "a")], 3.5):
        untouched(PathError, "ij,jk,kl", big, big, big, optimize=path)


def test_paths_as_numpy_gives_them():
    """What `einsum_path` returns is an order, also where it takes one operand alone."""
    rng = np.random.default_rng(0)
    operands = [rng.random([SIZES[x] for x in term]) for term in ("dcc", "fce", "ea", "dbf")]
    text = "dcc,fce,ea,dbf->ab"
    theirs = np.einsum(text, *operands)
    for path in (
        ["einsum_path", (0, 2), (0, 2), (0, 1)],
        [(0, 1, 2, 3)],
        [(1,), (0, 2), (0, 1, 2)],
        np.einsum_path(text, *operands)[0],
    ):
        np.testing.assert_allclose(tilesolve.einsum(text, *operands, optimize=path), theirs)


# Fuzz


def agree(seed, count):
    rng = np.random.default_rng(seed)
    found, refused = [], 0
    for _ in range(count):
        text, operands = draw_call(rng)
        ours, theirs = (catch_outcome(of, text, operands) for of in (tilesolve.einsum, np.einsum))
        refused += isinstance(ours, Exception)
        found.append(describe_difference(text, operands, ours, theirs))
    assert [difference for difference in found if difference] == []
    assert count / 20 < refused < count / 2


def test_random_calls(paths):
    """Random subscripts over ASCII, valid or not: numpy's result, or both refuse."""
    agree(1, 400)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_ten_thousand_random_calls(part, paths):
    """The same, 2 × 10,000 times."""
    agree(100 + part, 2000)


# tensordot


def test_tensordot_is_numpys(paths):
    """Numbers of axes, pairs of axes, negative ones and single axes give numpy's result."""
    a, b = whole((3, 4, 5), "f8"), whole((4, 3, 5), "f8", 1)
    for one, two, axes in [
        (a, b, ([0, 1], [1, 0])),
        (a, b, ([1, 0, 2], [0, 1, 2])),
        (a, b, (-1, -1)),
        (a, b, ((2,), 2)),
        (a, a.T, 1),
        (a, b, 0),
        (a, a.T, np.int64(1)),
        (a, a[0], 2),
        (a[0], b[:, 0], ([], [])),
        (a, np.ones((4, 5, 0)), 2),
        (a.astype(int), b, ([2], [2])),
        (a > 0, b > 0, ([2], [2])),
        ([1, 2], [3, 4], 1),
    ]:
        same(tilesolve.tensordot(one, two, axes), np.asarray(np.tensordot(one, two, axes)))
    assert tilesolve.tensordot(a, a.transpose(1, 2, 0)).shape == (3, 3)


def test_tensordot_refuses_what_numpy_does():
    """Axes that are not there, not as long, named twice, or not a pair of lists."""
    a, b = np.ones((3, 4, 5)), np.ones((4, 3, 5))
    for axes in (
        1,
        2,
        4,
        -1,
        ([0], [0]),
        ([3], [0]),
        ([0, 1], [1]),
        ([0, 0], [1, 1]),
        "ab",
        1.5,
        ([0], ["a"]),
        ([0], [1], [2]),
        None,
    ):
        with pytest.raises(SizeError):
            tilesolve.tensordot(a, b, axes)
    with pytest.raises(SizeError, match=r"axis 2 of a, which has 5, and axis 0 of b, which has 1"):
        tilesolve.tensordot(a, b[:1], 1)


def test_where_plans_run(monkeypatch):
    """From a number of flops on einsum plans; tensordot too, and the result is numpy's."""
    set_costs(monkeypatch, einsum_plan_flops=1000)
    rng = np.random.default_rng(2)
    a, b, c = rng.random((9, 10, 31)), rng.random((31, 40)), rng.random((40, 20))
    for _ in range(2):
        found = tilesolve.einsum("ijk,kl,lm->ijm", a, b, c)
        np.testing.assert_allclose(found, np.einsum("ijk,kl,lm->ijm", a, b, c), rtol=1e-12)
    assert [found.planned for found in einsum_module._expressions.values()] == [True]
    assert not einsum_module._calls
    np.testing.assert_allclose(tilesolve.tensordot(a, b, 1), np.tensordot(a, b, 1), rtol=1e-12)
    out = np.zeros((40, 10, 9)).T
    assert tilesolve.einsum("ijk,kl->ijl", a, b, out=out) is out
    np.testing.assert_allclose(out, np.tensordot(a, b, 1), rtol=1e-12)
    assert operator.attrgetter("planned")(next(reversed(einsum_module._expressions.values())))


def test_sums_that_leave_no_letter():
    """Numpy's loops take them where BLAS would need a copy of an operand that is not large."""

    def taken(text, rows, columns):
        shapes = [(rows, columns) if term == "ij" else (columns, rows) for term in ("ij", text)]
        return [s.kernel.route for s in tilesolve.expression(f"ij,{text}->", *shapes).steps]

    assert taken("ij", 700, 700) == taken("ij", 800, 700) == ["matmul"]
    assert taken("ji", 700, 700) == ["loops"]
    assert taken("ji", 800, 700) == ["matmul"]


@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", "c16"])
def test_large_copies_in_another_order(dtype, monkeypatch):
    """Copies that are large go by `transpose`; the result is numpy's, bit by bit."""
    set_costs(monkeypatch, einsum_transpose_bytes=1)
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, (7, 5, 9, 3)).astype(dtype)
    out = np.empty((3, 5, 7, 9), dtype)
    assert tilesolve.einsum("abcd->dbac", a, out=out) is out
    assert np.array_equal(out, a.transpose(3, 1, 0, 2))
    x = rng.integers(-9, 9, (12, 40, 11)).astype("f8")
    y = rng.integers(-9, 9, (11, 9, 12, 8)).astype("f8")
    found = tilesolve.einsum("aib,bjac->cji", x, y, out=np.empty((8, 9, 40)))
    assert np.array_equal(found, np.einsum("aib,bjac->cji", x, y))


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("ij,ji->", (101, 120), (120, 101)),
        ("kij,jki->", (30, 21, 40), (40, 30, 21)),
        ("bik,kjb->bij", (5, 30, 31), (31, 29, 5)),
        ("ik,k->i", (90, 200), (200,)),
    ],
)
@pytest.mark.parametrize("step", [1, 2, -1])
def test_operands_that_must_be_copied_for_blas(text, first, second, step, monkeypatch):
    """Whatever their strides, operands become matrices; large ones by our transpose."""
    rng = np.random.default_rng(5)
    x, y = (
        rng.integers(-9, 9, (*shape[:-1], 2 * shape[-1])).astype("f8")[..., ::step]
        for shape in (first, second)
    )
    x, y = x[..., : first[-1]], y[..., : second[-1]]
    set_costs(
        monkeypatch, einsum_transpose_bytes=1
    )  # or sums that leave no letter go by numpy's loops
    given = tilesolve.expression(text, first, second)
    assert [step.kernel.route for step in given.steps] == ["matmul"]
    right = np.einsum(text, x, y)
    for large in (1 << 22, 1):
        set_costs(monkeypatch, einsum_transpose_bytes=large)
        assert np.array_equal(given(x, y), right)


# What a replacement of numpy's has to take


@pytest.mark.parametrize(
    "operands", [((1, 2, 3),), (range(3),), (5.0,), ((1.0, 2.0, 3.0), np.array([4.0, 5, 6]))]
)
def test_lists_whose_labels_are_arrays_are_read_each_time(operands):
    """What comes first is hashable, but does not say what the operands are."""
    label = np.array([0] if np.ndim(operands[0]) else [], int)
    arguments = [x for operand in operands for x in (operand, label)]
    for _ in range(3):
        same(tilesolve.einsum(*arguments), np.einsum(*arguments))
    other = [x for operand in operands for x in (np.add(operand, 1.0), label)]
    same(tilesolve.einsum(*other), np.einsum(*other))


@pytest.mark.parametrize(
    ("text", "shapes"), [("i,j->j", [(70000,), (4,)]), ("ij,k->k", [(300, 300), (4,)])]
)
def test_sums_of_half_precision_go_beyond_it(text, shapes):
    """An operand whose own letters sum to more than float16 holds; the product is small again."""
    first, second = np.ones(shapes[0], "f2"), np.full(shapes[1], 1e-3, "f2")
    same(tilesolve.einsum(text, first, second), np.einsum(text, first, second))


class Noisy(np.ndarray):
    """A subclass that computes nothing itself."""

    def __array_ufunc__(self, *_arguments, **_options):
        return NotImplemented


OUTS = [
    lambda zeros: np.ma.array(zeros),
    lambda zeros: np.ma.array(zeros, mask=True, hard_mask=True),
    lambda zeros: zeros.view(Noisy),
    lambda zeros: zeros.view(np.matrix),
]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("kind", OUTS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("ij,jk->ik", [(50, 45), (45, 60)]),
        ("ij,jk->ki", [(1, 300), (300, 5000)]),
        ("ij,jk->ki", [(1, 90000), (90000, 1)]),
        ("i,j->ij", [(500,), (30,)]),
        ("ij->ji", [(30, 40)]),
    ],
)
def test_out_of_any_subclass_is_written_as_an_array(text, shapes, dtype, kind):
    """All of its elements, whatever its class would do with them."""
    operands = arrays(shapes, "f8")
    expected = np.einsum(text, *operands)
    memory = np.full(expected.shape, 7, dtype)
    out = kind(memory)
    assert tilesolve.einsum(text, *operands, out=out, casting="same_kind") is out
    np.testing.assert_array_equal(memory if out.base is memory else np.asarray(out), expected)
    if dtype == "f8":
        out = kind(np.full(expected.shape, 7, dtype))
        assert tilesolve.expression(text, *shapes)(*operands, out=out) is out
        np.testing.assert_array_equal(np.asarray(out), expected)


@pytest.mark.parametrize("text", ["ii->i", "ij->ji", "ij->ij", "ij->j", "ij->", "ij,jk->ik"])
def test_another_byte_order(text):
    """A view of one operand is a view, in its byte order; what is computed is in the machine's."""
    for order in "<>":
        array = whole((4, 4), "f8").astype(order + "f8")
        operands = [array] * (1 + text.count(","))
        ours, theirs = tilesolve.einsum(text, *operands), np.einsum(text, *operands)
        same(ours, theirs)
        assert np.shares_memory(ours, array) == np.shares_memory(theirs, array)


@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "same_kind", "unsafe"])
@pytest.mark.parametrize(("one", "two"), [("f8", "f4"), ("f8", ">f8"), ("f8", "f8"), ("i4", "f8")])
def test_operands_are_cast_by_what_is_allowed(casting, one, two):
    """Without a dtype, too."""
    operands = np.ones(3, one), np.ones(3, two)
    try:
        expected = np.einsum("i,i", *operands, casting=casting)
    except TypeError:
        with pytest.raises(DtypeError, match="casting"):
            tilesolve.einsum("i,i", *operands, casting=casting)
    else:
        same(tilesolve.einsum("i,i", *operands, casting=casting), expected)


@pytest.mark.parametrize("text", ["ij,jk->ik", "i,j->ij", "ij->i", "ij,jk,kl->il"])
def test_infinities_come_without_a_word(text):
    """As numpy's einsum, which does not ask what floating-point errors are to do."""
    shapes = [(60,) * len(term) for term in text.partition("->")[0].split(",")]
    operands = [np.full(shape, 1e200) for shape in shapes]
    with np.errstate(all="raise"):
        found = tilesolve.einsum(text, *operands)
        theirs = np.einsum(text, *operands)
        np.testing.assert_array_equal(np.isinf(found), np.isinf(theirs))


def test_an_order_with_a_limit_as_numpy_gives_it():
    """A name and the elements that intermediate results had better not exceed."""
    operands = arrays([(4, 5), (5, 6), (6, 7), (7, 8)], "f8")
    for limit in (1, 10, 1000):
        for name in ("greedy", "optimal"):
            options = {"optimize": (name, limit)}
            text = "ab,bc,cd,de->ae"
            same(
                tilesolve.einsum(text, *operands, **options), np.einsum(text, *operands, **options)
            )


def test_more_axes_than_arrays_have():
    """The message says how many the result would have."""
    first = "".join(chr(0x4E00 + at) for at in range(40))
    second = "".join(chr(0x5E00 + at) for at in range(40))
    ones = np.ones((1,) * 40)
    with pytest.raises(SpecError, match=r"has 80 axes"):
        tilesolve.einsum(f"{first},{second}->{first}{second}", ones, ones)


def test_more_memory_than_there_is():
    """A result that no system holds is numpy's error, not one of files."""
    huge = np.broadcast_to(np.float64(0), (1 << 45, 3))
    with pytest.raises(MemoryError):
        tilesolve.transpose(huge)


HALF_CASES = [
    ("ij,jk->ik", [(9, 5), (5, 7)]),
    ("ij,jk->ik", [(300, 200), (200, 400)]),
    ("ij,jk,kl->il", [(20, 300), (300, 40), (40, 30)]),
    ("i,j->ij", [(30,), (40,)]),
    ("ij->i", [(30, 4000)]),
    ("ii,ij->j", [(30, 30), (30, 4)]),
    ("ijx,jk->ki", [(30, 30, 3), (30, 4)]),
    ("bij,bjk->bik", [(1, 130, 140), (3, 140, 150)]),
    (",ij->ji", [(), (30, 4)]),
]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(("text", "shapes"), HALF_CASES)
def test_halves_are_summed_in_float32_and_rounded_once(name, text, shapes):
    """By whatever route: small whole numbers are exact but for the rounding of the result."""
    kind, generator = array_dtype(name), np.random.default_rng(4)
    arrays = [generator.integers(-3, 4, shape).astype(kind) for shape in shapes]
    wide = [array.astype(np.float64) for array in arrays]
    expected = np.einsum(text, *wide).astype(kind)
    found = tilesolve.einsum(text, *arrays)
    assert found.dtype == kind
    assert np.array_equal(found, expected)
    out = np.empty(expected.shape, kind)
    assert tilesolve.einsum(text, *arrays, out=out) is out
    assert np.array_equal(out, expected)
    again = tilesolve.expression(text, *arrays)(*arrays)
    assert np.array_equal(again, expected)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves_are_promoted_as_numpy_does(name):
    """With float32 to that; of both kinds, which numpy promotes to nothing, that is said."""
    half, other = np.ones((3, 4), array_dtype(name)), np.ones((4, 5), np.float32)
    assert tilesolve.einsum("ij,jk", half, other).dtype == np.float32
    view = tilesolve.einsum("ij->ji", half)
    assert view.dtype == half.dtype
    assert np.shares_memory(view, half)
    turned = tilesolve.transpose(np.arange(6).astype(half.dtype).reshape(2, 3))
    assert turned.astype(int).tolist() == [[0, 3], [1, 4], [2, 5]]
    mixed = np.ones((4, 5), array_dtype("bfloat16" if name == "float16" else "float16"))
    with pytest.raises(DtypeError, match=r"no common dtype: \w*float16, \w*float16$"):
        tilesolve.einsum("ij,jk", half, mixed)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("extent", [8, 400])
def test_halves_with_windows_and_constants(name, extent):
    """By loops, or by a plan that has packed what is constant."""
    kind, generator = array_dtype(name), np.random.default_rng(6)
    image = generator.integers(-2, 3, (8, extent + 2)).astype(kind)
    filters = generator.integers(-2, 3, (extent, 8, 3)).astype(kind)
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(float), 3, axis=1)
    expected = np.einsum("chr,kcr->kh", windows, filters.astype(float)).astype(kind)
    assert np.array_equal(tilesolve.einsum("c[h+r],kcr->kh", image, filters), expected)
    matrix = generator.integers(-2, 3, (extent, extent)).astype(kind)
    kept = tilesolve.expression("ij,jk->ik", matrix, matrix, constants=[1])
    expected = (matrix.astype(float) @ matrix.astype(float)).astype(kind)
    assert np.array_equal(kept(matrix), expected)


def test_large_halves_run_by_a_plan_of_theirs():
    """Which reads them as they are: nothing is widened before."""
    found = tilesolve.expression("ij,jk->ik", (300, 300), (300, 300), dtype="float16")
    assert [step.kernel.route for step in found.steps] == ["plan"]
    assert found.steps[0].kernel.plan.problem.dtype == "float16"
    found = tilesolve.expression("ij,jk->ik", (3, 3), (3, 3), dtype="float16")
    assert [step.kernel.route for step in found.steps] == ["loops", "round"]
