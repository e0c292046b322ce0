"""What plans say that they use again."""

import sys

import pytest

import tilesolve
from tilesolve.contractions.errors import ModelError
from tilesolve.model import polyhedra


def test_a_plan_tells_its_reuses_and_its_file_does_too():
    """They follow from the solution; the report has a row for each loop around calls."""
    plan = tilesolve.plan("ij-ik-kj", 512, "i7-6700k", cache=False)
    assert tilesolve.Plan.from_json(plan.to_json()).reuses == plan.reuses
    lines = str(plan).splitlines()
    head = next(at for at, line in enumerate(lines) if line.lstrip().startswith("used again"))
    around = [one for one in plan.reuses if one.over]
    rows = [line.split() for line in lines[head + 1 : lines.index("", head)]]
    names = plan.problem.spec.names
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        (names[one.tensor], one.loop, one.over, one.level) for one in around
    ]


def test_several_threads_tell_what_they_share():
    """The operand that has not the letter which they divide."""
    plan = tilesolve.plan("ij-ik-kj", 512, "i7-6700k", threads=4, cache=False)
    (shared,) = [one for one in plan.reuses if one.over == "threads"]
    assert (shared.loop, shared.count) == (plan.split, 3)
    assert plan.split not in plan.problem.spec.tensors[shared.tensor].letters


def test_a_report_of_windows_says_that_islpy_is_missing(monkeypatch):
    """The rest of it is there; the property raises."""
    monkeypatch.setitem(sys.modules, "islpy", None)
    polyhedra.count_images.cache_clear()
    plan = tilesolve.plan("kh-c[h+r]-kcr", "k=16 h=40 c=8 r=3", "i7-6700k", cache=False)
    assert "what is used again: islpy is missing: pip install" in str(plan)
    assert "microkernel" in str(plan)
    with pytest.raises(ModelError, match="islpy is missing"):
        plan.reuses  # noqa: B018
