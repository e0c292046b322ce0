"""What the page of nests says is refused, is."""

import re
from pathlib import Path

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
