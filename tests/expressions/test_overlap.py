"""An `out` that shares memory with operands: the result is numpy's, as if it shared none."""

import numpy as np
import pytest
from einsum_cases import set_costs
from hypothesis import example, given
from hypothesis import strategies as st

import tilesolve
from tilesolve.contractions.errors import PlanError

SPECS = (
    "ij,jk->ik",
    "ij,jk->ki",
    "ij,kj->ik",
    "ij,ij->ij",
    "ij,ji->ij",
    "ij->ji",
    "ij->ij",
    "ij,jk,kl->il",
    "ij,jk,lk->li",
    "ij,i->ij",
    "i,j->ij",
    "ij,j->i",
    "ii->i",
)

VIEWS = {
    "itself": lambda room, n: room[:n, :n],
    "transposed": lambda room, n: room[:n, :n].T,
    "rows reversed": lambda room, n: room[:n, :n][::-1],
    "columns reversed": lambda room, n: room[:n, :n][:, ::-1],
    "both reversed": lambda room, n: room[:n, :n][::-1, ::-1],
    "moved down": lambda room, n: room[1 : n + 1, :n],
    "moved right, transposed": lambda room, n: room[:n, 1 : n + 1].T,
    "every second column": lambda room, n: room[:n, : 2 * n : 2],
    "every second row": lambda room, n: room[1 : 2 * n : 2, :n],
}


def overlapping(text, names, n, dtype, lower):
    """Return operands and an output that are views of one array, and a copy of that array."""
    room = np.random.default_rng(n).integers(-9, 9, (2 * n + 1, 2 * n + 1)).astype(dtype)
    inputs, output = text.split("->")
    *operands, out = (VIEWS[name](room, n) for name in names[: inputs.count(",") + 2])
    operands = [
        array if len(letters) == 2 else array[0]
        for letters, array in zip(inputs.split(","), operands, strict=True)
    ]
    if lower:  # for which the result is cast
        out = room.view(f"{room.dtype.kind}{room.itemsize // 2}")[: out.shape[0], : out.shape[1]]
    return room, operands, out if len(output) == 2 else out[0]


@given(
    st.sampled_from(SPECS),
    st.lists(st.sampled_from(sorted(VIEWS)), min_size=4, max_size=4),
    st.sampled_from([1, 2, 3, 8, 21, 40]),
    st.sampled_from(["i8", "f8", "c16"]),
    st.booleans(),
)
@example("ii->i", ["columns reversed", *["every second row"] * 3], 8, "i8", False)
def test_every_overlap_gives_what_numpy_gives(text, names, n, dtype, lower):
    """Operands and output are views of one array: what is around the output stays as it was."""
    options = {"casting": "same_kind"} if lower else {}
    found = []
    for einsum in (tilesolve.einsum, np.einsum):
        room, operands, out = overlapping(text, names, n, dtype, lower)
        assert einsum(text, *operands, out=out, **options) is out
        found.append(room)
    np.testing.assert_array_equal(*found)
    if not lower:
        room, operands, out = overlapping(text, names, n, dtype, lower)
        contraction = tilesolve.expression(text, *operands)
        assert contraction(*operands, out=out) is out
        np.testing.assert_array_equal(room, found[0])


@pytest.mark.parametrize("view", ["itself", "transposed", "both reversed"])
def test_plans_compute_into_a_temporary_result(view, monkeypatch):
    """A contraction that is planned, too; a plan that is called itself refuses the overlap."""
    set_costs(monkeypatch, einsum_plan_flops=1)
    n = 150
    first, second = np.random.default_rng(1).integers(-9, 9, (2, n, n)).astype(float)
    expected = first @ second
    contraction = tilesolve.plan("ik-ij-jk", n)
    with pytest.raises(PlanError, match="shares memory"):
        contraction(first, second, out=VIEWS[view](second, n))
    out = VIEWS[view](second, n)
    assert tilesolve.einsum("ij,jk->ik", first, second, out=out) is out
    np.testing.assert_array_equal(out, expected)
