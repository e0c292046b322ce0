"""numpy's own tests of einsum and einsum_path, with ours in their place."""

import inspect
from itertools import product

import numpy as np
import pytest
from einsum_cases import set_costs
from numpy._core.tests import test_einsum as numpys

import tilesolve


def numpys_cases():
    """Each test of numpy's as its class, its function and the values of its parameters."""
    for owner in (numpys, numpys.TestEinsum, numpys.TestEinsumPath):
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("test_"):
                continue
            marks = getattr(function, "pytestmark", [])
            given = [mark.args for mark in marks if mark.name == "parametrize"]
            names = [name for name, _ in given]
            for values in product(*(values for _, values in given)):
                chosen = dict(zip(names, values, strict=True))
                words = "-".join(getattr(x, "__name__", str(x)) for x in chosen.values())
                yield pytest.param(owner, function, chosen, id=f"{name}[{words}]")


CHOICES = {"test_long_paths", "test_edge_paths", "test_path_type_input"}
"""Those that say which of several orders numpy's own search finds; opt_einsum's finds others."""

LARGE = "by the routes of large ones"


@pytest.fixture(params=["as it is", LARGE])
def in_place(request, monkeypatch):
    """numpy's module finds ours where it looks for numpy's."""
    if request.param == LARGE:
        set_costs(monkeypatch, einsum_loop_products=0.5)
    monkeypatch.setattr(np, "einsum", tilesolve.einsum)


@pytest.mark.parametrize(("owner", "function", "given"), list(numpys_cases()))
def test_numpys(owner, function, given, in_place, monkeypatch):
    """What numpy asks of its einsum and einsum_path holds of ours, for small arrays and large."""
    if function.__name__ not in CHOICES:
        monkeypatch.setattr(np, "einsum_path", tilesolve.einsum_path)
    if "einsum_fn" in given:
        given = given | {"einsum_fn": getattr(np, given["einsum_fn"].__name__)}
    arguments = () if owner is numpys else (owner(),)
    function(*arguments, **given)
