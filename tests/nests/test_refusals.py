"""What the page of nests says is refused, is."""

import re
from pathlib import Path

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions import errors

PAGE = Path(__file__).parents[2] / "docs" / "nests.md"


def refusals():
    """Statements of the table, each with its region and the error that it is."""
    table = PAGE.read_text().partition("## What is refused")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| (`.*`) \| `(\w+Error)` \|", table, re.MULTILINE):
        for text in re.findall(r"`([^`]+)`", row[0]):
            statement, _, where = text.partition(" ;; ")
            yield statement, where, row[1]


@pytest.mark.parametrize(("text", "where", "error"), list(refusals()))
def test_it_is_refused(text, where, error):
    kind = getattr(errors, error)
    dtypes = {"v": "int64"} if "v[" in text else {}
    names = set(re.findall(r"(\w+)\[", text)) - {"C", "h", "v"}
    sizes = {"i": 9, "h": (5,)} if "h[" in text else 9
    with pytest.raises(kind):
        tilesolve.nest(
            text, sizes, {**dict.fromkeys(names, "float64"), **dtypes}, where=where, cache=False
        )


def test_there_are_some():
    assert len(list(refusals())) > 20


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_powers_of_integers_below_zero(dtype):
    """They are found where they are computed, and nowhere else, as NumPy finds them."""
    plan = tilesolve.nest("o[i] = a[i] ** b[i]", 37, dtype)
    part = tilesolve.nest("o[i] = a[i] ** b[i]", 37, dtype, where="i < 30")
    a, b = (np.arange(37) % 5).astype(dtype), (np.arange(37) % 4).astype(dtype)
    for place in (0, 8, 36):
        wrong = b.copy()
        wrong[place] = -2
        with pytest.raises(errors.DtypeError, match=r"o\[i\] = .*no power of -2"):
            plan(a, wrong)
        np.testing.assert_array_equal(plan(a, b), a**b)
    np.testing.assert_array_equal(part(a, wrong)[:30], (a**b)[:30])
