"""Rows that lie one behind another are one row; those with gaps between are as they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support import guard_pages
from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.nests.merged_rows import merge_rows

STATEMENTS = {
    "o[z,y,x] = A[z,y,x] - 2 * B[z,y,x]": lambda A, B, c, T: A - 2 * B,
    "o[z,y,x] = where(A[z,y,x] > 9, B[z,y,x], 3)": lambda A, B, c, T: np.where(A > 9, B, 3),
    "o[z,y,x] = A[z,y,x] + c[z]": lambda A, B, c, T: A + c[:, None, None],
    "o[y,z,x] = A[z,y,x] + B[z,y,x]": lambda A, B, c, T: (A + B).transpose(1, 0, 2),
    "o[z,y,x] = T[A[z,y,x]]": lambda A, B, c, T: T[A],
    "o[A[z,y,x]] += B[z,y,x]": lambda A, B, c, T: count(A, B),
    "o[z] = max(A[z,y,x])": lambda A, B, c, T: A.max(axis=(1, 2)),
    "o[x] = max(A[z,y,x] - 2 * B[z,y,x]) + 1": lambda A, B, c, T: (A - 2 * B).max((0, 1)) + 1,
    "o[z] = sum(A[z,y,x] & B[z,y,x], y, x)": lambda A, B, c, T: (A & B).sum((1, 2)),
    "o[z,y,x] = A[z,y,x] + x": lambda A, B, c, T: A + np.arange(A.shape[2]),
    "o[z,y,x] = A[z,y,x] + B[z,0,x]": lambda A, B, c, T: A + B[:, :1],
    "o[z,y,x] = A[z,y,x] - A[0,0,0]": lambda A, B, c, T: A - A[0, 0, 0],
    "o[z,y,x] = A[z,y,x] - B[z,y,x] * A[0,0,x]": lambda A, B, c, T: A - B * A[0, 0],
}


def count(A, B):
    """The sums of values at the same position."""
    found = np.zeros(50, B.dtype)
    np.add.at(found, A, B)
    return found


@examples(20, 120)
@given(
    st.sampled_from(list(STATEMENTS)),
    st.sampled_from(["int32", "int64"]),
    st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 70)),
    st.lists(st.sampled_from(["rows", "rows", "any", "gaps"]), min_size=3, max_size=3),
    st.integers(1, 2),
    st.integers(0, 10**6),
)
def test_any_rows_give_what_numpy_gives(text, dtype, shape, forms, threads, seed):
    """Some arrays have gaps between rows, others axes in another order; `out` has either, too."""
    rng = np.random.default_rng(seed)
    drawn = {"A": shape, "B": shape, "c": shape[:1], "T": (50,)}
    values = {name: rng.integers(0, 50, one).astype(dtype) for name, one in drawn.items()}
    expected = STATEMENTS[text](**values)
    used = {name: one for name, one in values.items() if f"{name}[" in text}
    sizes = {name: one.shape for name, one in used.items()}
    sizes |= {"o": (50,)} if "o[A" in text else {}
    plan = tilesolve.nest(text, sizes, dtype, threads=threads)
    form, *rest = forms
    out = place(np.ones(expected.shape, plan.computation.output.dtype), form, rng)
    given_arrays = {
        name: place(one, rest[number % 2], rng) for number, (name, one) in enumerate(used.items())
    }
    np.testing.assert_array_equal(plan(**given_arrays, out=out), expected)
    if out.base is not None and form == "gaps":
        assert (out.base[..., -1] == 1).all()


def place(values, form, rng):
    """The same values in rows of one another, in rows with gaps between, or in any order."""
    if form == "any":
        return guard_pages.lay(values, rng)
    room = np.ones((*values.shape[:-1], values.shape[-1] + (form == "gaps")), values.dtype)
    found = room[..., : values.shape[-1]]
    found[...] = values
    return found


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("o[z,y,x] = A[z,y,x]", "o[x] = A[x]  x=40"),
        ("o[z,y,x] = A[z,y,x] + c[z]", "o[z,x] = A[z,x] + c[z]  z=2 x=20"),
        ("o[c,y,x] = I[y,x,c]", "o[c,x] = I[x,c]  c=3 x=20"),
        ("o[y,x] = A[x,y]", None),
        ("o[y,x] = A[y,x] + A[y,x+1]", None),
        ("o[y,x] = A[y,x] * y", None),
        ("o[z] = sum(A[z,y,x], y, x)", None),
        ("o[z] = max(A[z,y,x])", "o[z] = max(A[z,x], x)  z=2 x=20"),
        ("o[z,y] = max(A[z,y,x])", "o[y] = max(A[y,x], x)  y=8 x=5"),
        ("o[z,x] = min(A[z,y,x], y)", None),
    ],
)
def test_letters_that_stand_side_by_side_everywhere_are_one(text, merged):
    """Not those that are numbers, or that other positions have; sums keep their order."""
    letters = {"z": 2, "y": 4, "x": 5, "c": 3}
    stages = parse_stages(text)
    sizes = {x: n for x, n in letters.items() if x in stages[0].letters}
    found = merge_rows(bind_stages(stages, sizes), 8)
    assert (None if found is None else str(found.computation)) == (merged and f"{merged} float64")
    assert merge_rows(bind_stages(stages, {**sizes, "x": 10**6}), 8) is None or "z" in sizes


def test_an_error_speaks_of_the_statement_as_it_is_written():
    """A position outside is told with the letters of the user's own text."""
    plan = tilesolve.nest(
        "o[y,x] = T[v[y,x]]", {"v": (4, 6), "T": (9,)}, {"v": "int32", "T": "float64"}
    )
    v, T = np.zeros((4, 6), "int32"), np.ones(9)
    v[2, 3] = 9
    with pytest.raises(
        SizeError, match=r"o\[y,x\] = T\[v\[y,x\]\]: T\[v\[y,x\]\] is at position 9"
    ):
        plan(T, v)
    assert (plan(T, v - v) == 1).all()
