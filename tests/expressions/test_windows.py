"""Affine subscripts in einsum and expression: by numpy's loops and by plans."""

import numpy as np
import pytest
from einsum_cases import set_costs

import tilesolve
from tilesolve.contractions.errors import (
    DtypeError,
    MemoryLimitError,
    SizeError,
    SpecError,
    TilesolveError,
)

SPECS = [
    ("nc[2h+r][2w+s],kcrs->nkhw", [(2, 3, 11, 9), (5, 3, 3, 3)]),
    ("nkhw,nc[2h+r][2w+s]->kcrs", [(2, 5, 5, 4), (2, 3, 11, 9)]),
    ("nc[h+3r],kcr", [(2, 3, 10), (4, 3, 2)]),
    ("c[h+r],cr->ch", [(7, 9), (7, 3)]),
    ("[h+r]h,rj->jh", [(6, 4), (3, 2)]),
    ("c[h+r]q,kr->kh", [(4, 10, 2), (3, 3)]),
    ("[3h],h->h", [(10,), (4,)]),
]


def whole(shapes, dtype):
    rng = np.random.default_rng(4)
    return [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes]


CASES = [(False, dtype, *spec) for dtype in ("f4", "c16", "i8", "u1", object) for spec in SPECS]
CASES += [(True, "f4", *spec) for spec in SPECS[:2]] + [
    (True, "c16", *SPECS[4]),
    (True, "i8", *SPECS[2]),
]


@pytest.mark.parametrize(("planned", "dtype", "text", "shapes"), CASES)
def test_affine_subscripts_are_contracted(text, shapes, dtype, planned, monkeypatch):
    """Of any dtype, strides and layout of `out`, as the reference does."""
    if planned:
        set_costs(monkeypatch, einsum_plan_flops=1, einsum_kernel_flops=1)
    operands = whole(shapes, dtype)
    problem = tilesolve.Problem.from_arrays(text, *(x.astype("c16") for x in operands))
    expected = tilesolve.reference(problem, *(x.astype("c16") for x in operands)).real
    expected = expected.astype("i8").astype(dtype)
    flipped = [np.flip(np.flip(x).copy()) for x in operands]
    contraction = tilesolve.expression(text, *operands)
    assert contraction.planned == (planned and dtype in ("f4", "f8", "c16"))
    assert str(contraction).count("\n")
    for given in (operands, flipped):
        for _ in range(2):
            found = tilesolve.einsum(text, *given)
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected)
        out = np.full(expected.shape[::-1], 77, dtype).T
        assert tilesolve.einsum(text, *given, out=out) is out
        assert np.array_equal(out, expected)
        assert np.array_equal(contraction(*given), expected)


@pytest.mark.parametrize("planned", [False, True])
def test_operands_of_different_dtypes_are_cast(planned, monkeypatch):
    """To what numpy promotes them to; the report and the peak tell of the copy."""
    if planned:
        set_costs(monkeypatch, einsum_kernel_flops=1)
    image, filters = whole([(3, 12), (4, 3, 2)], "f8")
    contraction = tilesolve.expression("c[h+r],kcr->kh", image, filters.astype("i2"))
    found = contraction(image, filters.astype("i2"))
    assert np.array_equal(found, tilesolve.einsum("c[h+r],kcr->kh", image, filters))
    assert ("kcr->kcr" in str(contraction)) == planned
    assert contraction.peak >= planned * filters.nbytes
    if planned:
        with pytest.raises(MemoryLimitError, match="memory_limit is 5"):
            tilesolve.expression("c[h+r],kcr->kh", image, filters.astype("i2"), memory_limit=5)


def test_an_out_may_overlap():
    """As with plain subscripts."""
    image = np.arange(12.0)
    out = image[:10]
    expected = tilesolve.einsum("[h+r],r->h", image.copy(), np.ones(3))
    assert tilesolve.einsum("[h+r],r->h", image, np.ones(3), out=out) is out
    assert np.array_equal(out, expected)


def test_extents_of_0_and_1():
    """No window sums to zero, none at all gives an empty result."""
    assert tilesolve.einsum("[h+r],r->h", np.ones(4), np.ones(4)).tolist() == [4]
    assert tilesolve.einsum("c[h+r],cr->h", np.ones((0, 4)), np.ones((0, 2))).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("error", "words", "text", "shapes"),
    [
        (SizeError, "do not determine 'h', 'r'", "[h+r],k->hk", [(5,), (3,)]),
        (SizeError, "do not determine 'h', 'r'", "[h+r]->h", [(5,)]),
        (SizeError, "needs 3 plus a multiple of 2: 5 or 7", "[2h+r],r->h", [(6,), (3,)]),
        (SizeError, "needs at least 9", "[h+r],r->h", [(5,), (9,)]),
        (SizeError, "the extents of 'c'", "c[h+r],cr->h", [(2, 5), (3, 3)]),
        (SpecError, "for 2 operands, but 1", "[h+r],r->h", [(5,)]),
        (SpecError, "has 1 subscripts and no", "[h+r],r->h", [(5, 2), (3,)]),
        (SpecError, "one or two", "[h+r],r,h->h", [(5,), (3,), (3,)]),
        (SpecError, "ellipsis", "...[h+r],r->h", [(5,), (3,)]),
        (SpecError, "dashes", "h-[h+r]-r", [(5,), (3,)]),
        (SpecError, r"\[", "[h+,r->h", [(5,), (3,)]),
        (SpecError, r"\]", "h+r],r->h", [(5,), (3,)]),
    ],
)
def test_what_does_not_fit_is_named(error, words, text, shapes):
    """The letter, the axis and the extents, in einsum and in expression."""
    operands = [np.ones(shape) for shape in shapes]
    for call in (tilesolve.einsum, tilesolve.expression):
        with pytest.raises(error, match=words) as caught:
            call(text, *operands)
        assert isinstance(caught.value, TilesolveError)


def test_operands_of_an_expression_are_checked():
    """An axis is called by its subscript."""
    contraction = tilesolve.expression("c[2h+r],cr->h", (2, 7), (2, 3))
    with pytest.raises(SizeError, match=r"has 9 for '\[2h\+r\]', the expression 7"):
        contraction(np.ones((2, 9)), np.ones((2, 3)))
    with pytest.raises(DtypeError):
        contraction(np.ones((2, 7), "f4"), np.ones((2, 3)))
