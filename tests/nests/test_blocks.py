"""Contractions in regions: blocks compute what the statement does, and nothing else."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples, quick_each

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.nests.plan import NestPlan, nest

MACHINE = "i7-6700k"

STATEMENTS = {
    "C[i,j] += A[i,k] * A[j,k]": "ijk",
    "B[i,j] += A[i,k] * B0[k,j]": "ijk",
    "C[i,j] += A[i,k] * B[k,j] - D[i,k] * E[k,j]": "ijk",
    "C[i,j] = b * C[i,j] - a * sum(A[i,k] * B[k,j], k)": "ijk",
    "O[k,y] += I[c,y+2*r] * W[k,c,r]": "kycr",
}


@st.composite
def regions(draw):
    """A statement, its extents, and conditions on two letters each."""
    text = draw(st.sampled_from(list(STATEMENTS)))
    letters = STATEMENTS[text]
    sizes = {x: draw(st.integers(1, 19)) for x in letters}
    if "A[j,k]" in text:
        sizes["j"] = sizes["i"]
    conditions = []
    for _ in range(draw(st.integers(1, 2))):
        first, second = draw(st.permutations(letters))[:2]
        signs = [draw(st.sampled_from(("", "-", "2*", "3*"))) for _ in range(2)]
        relation = draw(st.sampled_from(("<=", ">=", "<", ">")))
        offset = draw(st.integers(-9, 9))
        conditions.append(f"{signs[0]}{first} + {offset} {relation} {signs[1]}{second}")
    return text, sizes, conditions


def draw_arrays(plan, seed, order):
    """Inputs by name, in some memory order."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in plan.computation.inputs:
        values = rng.standard_normal(plan.computation.array(name).shape)
        found[name] = np.asarray(values, order=order)
    return found


@examples(4, 15)
@given(regions(), st.sampled_from("CF"), st.booleans(), st.sampled_from((1, 2)))
def test_regions_are_computed_and_others_stay(region, order, wide, threads):
    """Any affine region of two letters: empty, whole, bands; strided output, in place, threads."""
    text, sizes, where = region
    plan = nest(text, sizes, where=where, machine=MACHINE, threads=threads, route="contraction")
    arrays = draw_arrays(plan, 1, order)
    params = {"a": 1.5, "b": -0.5} if "a *" in text else {}
    shape = plan.computation.output.shape
    room = np.full((*shape[:-1], 2 * shape[-1]) if wide else shape, 77.0)
    out = room[..., ::2] if wide else room
    if "C" in arrays:
        out[...] = arrays["C"]
        arrays["C"] = out
    before = room.copy()
    right = evaluate(plan.computation, arrays, params, out.copy())
    plan(*arrays.values(), out=out, **params)
    np.testing.assert_allclose(out, right, rtol=1e-11, atol=1e-11)
    left = _left(plan)
    kept = before[..., ::2] if wide else before
    assert (out[left] == kept[left]).all()
    if wide:
        assert (room[..., 1::2] == before[..., 1::2]).all()


def _left(plan):
    """Which elements of the output are outside of the region."""
    (stage,) = plan.computation.stages
    sizes = plan.computation.sizes
    grid = dict(zip(stage.output, np.ix_(*(range(sizes[x]) for x in stage.output)), strict=True))
    inside = np.ones([sizes[x] for x in stage.output], bool)
    for one in stage.where:
        if set(one.letters) <= set(stage.output):
            inside = inside & one.holds(grid)
    return ~inside


def test_what_is_outside_of_a_region_is_not_read_into_it():
    """NaN in the other triangle, of an operand and of a row that few elements add."""
    plan = nest(
        "B[i,j] += A[i,k] * B0[k,j]", 40, where="k >= i", machine=MACHINE, route="contraction"
    )
    arrays = draw_arrays(plan, 2, "C")
    right = np.triu(arrays["A"]) @ arrays["B0"]
    arrays["A"][np.tril_indices(40, -1)] = np.nan
    np.testing.assert_allclose(plan(*arrays.values()), right, rtol=1e-11, atol=1e-11)
    arrays["B0"][0] = np.nan
    found = plan(*arrays.values())
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1:], right[1:], rtol=1e-11, atol=1e-11)


def test_operands_may_end_where_the_region_does():
    """A block at the border is not computed as a whole where an array has not all it would read."""
    plan = nest(
        "C[i,j] += A[i+j,k] * B[k,j]",
        {"A": (30, 9), "i": 30, "j": 30, "B": (9, 30)},
        where="i + j <= 29",
        machine=MACHINE,
        route="contraction",
    )
    arrays = draw_arrays(plan, 3, "C")
    out = np.full((30, 30), 5.0)
    right = evaluate(plan.computation, arrays, {}, out.copy())
    np.testing.assert_allclose(plan(*arrays.values(), out=out), right, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("text", "where", "threads", "size"),
    quick_each(
        [
            ("B[i,j] += A[i,k] * B0[k,j]", "k >= i", 1, 257),
            ("C[i,j] += A[i,k] * A[j,k]", "j <= i", 2, 337),
            ("C[i,j] += A[i,k] * B[j,k] + B[i,k] * A[j,k]", (), 2, 193),
        ],
        of=2,
    ),
)
def test_large_ones_are_left_to_plans_by_their_price(text, where, threads, size):
    """The report says which blocks there are; forced loops are as they were."""
    plan = nest(text, size, "float32", where=where, machine=MACHINE, threads=threads)
    assert plan.how == "contraction, contraction"
    assert ("blocks" in str(plan)) == bool(where)
    arrays = {name: array.astype("float32") for name, array in draw_arrays(plan, 4, "C").items()}
    right = evaluate(plan.computation, arrays, {}, np.zeros((size, size)))
    np.testing.assert_allclose(plan(*arrays.values()), right, rtol=1e-3, atol=1e-3)
    assert NestPlan.from_json(plan.to_json()) == plan
    forced = nest(text, size, "float32", where=where, machine=MACHINE, route="nest")
    assert forced.how == "temporal, nest"


def test_narrow_bands_stay_loops():
    """Blocks would compute far more than the band has."""
    band = nest("C[i,j] += A[i,k] * A[j,k]", 600, where="0 <= i - j < 3", machine=MACHINE)
    assert band.how == "temporal, nest"


@pytest.mark.parametrize(
    ("dtype", "where", "reason"),
    [
        ("int32", "j <= i", "one floating dtype"),
        ("float64", "i + j <= k", "more letters than two, i, j, k"),
    ],
)
def test_other_regions_are_loops_and_refused_as_contractions(dtype, where, reason):
    """With the reason."""
    text = "C[i,j] += A[i,k] * B[k,j]"
    assert nest(text, 140, dtype, where=where, machine=MACHINE).how == "temporal, nest"
    with pytest.raises(PlanError, match=re.escape(reason)):
        nest(text, 140, dtype, where=where, machine=MACHINE, route="contraction")


def test_nothing_to_sum_is_not_a_region_for_plans():
    """Loops set the elements that sums of nothing have."""
    text, sizes = "C[i,j] += A[i,k] * B[k,j]", {"i": 3, "j": 3, "k": 0}
    found = nest(text, sizes, where="j <= i", machine=MACHINE)(np.ones((3, 0)), np.ones((0, 3)))
    assert not found.any()
    with pytest.raises(PlanError, match="there is nothing to compute"):
        nest(text, sizes, where="j <= i", machine=MACHINE, route="contraction")


def test_sums_of_one_or_three_operands_are_loops():
    """Plans have two operands; large ones were refused once they ran."""
    for text in ("C[i] += A[i,k]", "D[i,l] += A[i,j] * B[j,k] * C[k,l]"):
        plan = nest(text, 2100 if "C[i]" in text else 40, machine=MACHINE)
        assert plan.how == "temporal, nest"
        arrays = draw_arrays(plan, 5, "C")
        right = evaluate(plan.computation, arrays)
        np.testing.assert_allclose(plan(*arrays.values()), right, rtol=1e-10, atol=1e-10)
