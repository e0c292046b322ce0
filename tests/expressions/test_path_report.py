"""einsum_path: the order that it returns is one for ours and for numpy's einsum."""

import numpy as np
import pytest
from numpy_cases import NETWORKS, SIZES

import tilesolve
from tilesolve.contractions.errors import PathError, SizeError, SpecError


@pytest.mark.grid
@pytest.mark.parametrize("optimize", [True, False, "greedy", "optimal", ("greedy", 30), None])
@pytest.mark.parametrize("text", NETWORKS[::5])
def test_the_path_is_taken_by_both(text, optimize):
    """It contracts all operands, and the report has a line a step."""
    terms = text.split("->")[0].split(",")
    operands = [np.random.default_rng(1).random([SIZES[x] for x in term]) for term in terms]
    path, report = tilesolve.einsum_path(text, *operands, optimize=optimize)
    assert path[0] == "einsum_path"
    expected = np.einsum(text, *operands, optimize="greedy")
    for einsum in (np.einsum, tilesolve.einsum):
        np.testing.assert_allclose(einsum(text, *operands, optimize=path), expected, rtol=1e-9)
    lines = report.split("\n\n")[1].splitlines()
    assert len(lines) == len(path)
    assert report.splitlines()[1].startswith(f"{len(path) - 1} step")
    again, same = tilesolve.einsum_path(text, *operands, optimize=path)
    assert (again, same) == (path, report)


def test_the_costs_are_those_of_the_expression():
    """The operations of the steps are what `expression` counts."""
    operands = [np.ones(shape) for shape in [(30, 40), (40, 50), (50, 60), (60, 2)]]
    text = "ab,bc,cd,de->ae"
    path, report = tilesolve.einsum_path(text, *operands)
    found = tilesolve.expression(text, *operands, optimize=path)
    assert f"3 steps, {found.flops} operations" in report


def test_lists_and_affine_subscripts():
    """As `einsum` takes them."""
    a, b = np.ones((2, 7)), np.ones((4, 2, 3))
    assert tilesolve.einsum_path(a, [0, 1], b, [2, 0, 3], [1])[0] == ["einsum_path", (0, 1)]
    path, report = tilesolve.einsum_path("c[2h+r],kcr->kh", a, b)
    assert path == ["einsum_path", (0, 1)]
    assert "h=3" in report


def test_what_is_refused():
    """By the errors of `einsum`."""
    a = np.ones((2, 3))
    for error, arguments in [
        (SpecError, ()),
        (SpecError, ("ij",)),
        (SpecError, ("ij,jk", a)),
        (SizeError, ("ij,jk", a, a)),
    ]:
        with pytest.raises(error):
            tilesolve.einsum_path(*arguments)
    with pytest.raises(PathError):
        tilesolve.einsum_path("ij,kj,lj", a, a, a, optimize=[(0, 1)])
    with pytest.raises(PathError):
        tilesolve.einsum_path("ij,kj,lj", a, a, a, optimize="nonsense")
