"""Working sets: the paper's numbers, brute force, and the movement model beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.contractions.errors import ModelError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.model import polyhedra
from tilesolve.model.nest import Nest
from tilesolve.model.set_costs import fill_levels
from tilesolve.model.working_sets import find_reuses

MACHINE = Machine.load("i7-6700k")


@given(st.integers(2, 40), st.integers(2, 40), st.integers(2, 40))
def test_the_papers_example_has_its_sets(m, n, k):
    """A of a matrix product is used again after 2K + 3 elements; all of it after NK + N + 1."""
    problem = Problem.of("ij-ik-kj", {"i": m, "j": n, "k": k})
    nest = Nest.of(problem, [("register", "kji", 1), ("memory", "kji", problem.sizes)])
    (found,) = [one for one in find_reuses(problem, nest, MACHINE) if one.loop == "j"]
    assert found.tensor == 1
    assert found.least == 8 * (2 * k + 3)
    assert found.most == 8 * (n * k + n + 1)
    assert found.count == m * (n - 1)


def test_the_papers_matrix_product_fills_caches_as_published():
    """128×2048×4096 in tiles of 32, 16 and 32: bytes that L1 and L2 hold by the fill."""
    problem = Problem.of("mn-mk-kn", "m=128 n=2048 k=4096", "float32")
    box = {"m": 32, "n": 16, "k": 32}
    nest = Nest.of(
        problem, [("register", "kmn", 1), ("L1", "knm", box), ("memory", "knm", problem.sizes)]
    )
    sets = [(one.least, one.most) for one in find_reuses(problem, nest, MACHINE)]
    (first, second, _), _ = fill_levels(sets, [32 * 2**10, 2**20, 39424 * 2**10 // 28])
    assert (first, second) == (18584, 782592)


def test_windows_without_islpy_are_a_clear_error(monkeypatch):
    """The message says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "islpy", None)
    problem = Problem.of("h-[h+r]-r", "h=9 r=3")
    nest = Nest.of(problem, [("register", "rh", 1), ("memory", "rh", problem.sizes)])
    polyhedra.count_images.cache_clear()
    with pytest.raises(ModelError, match=r"pip install 'tilesolve\[polyhedral\]'"):
        find_reuses(problem, nest, MACHINE)
