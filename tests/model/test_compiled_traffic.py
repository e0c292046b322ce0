"""Traffic that compiled code counts is what Python counts, to the last bit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.kernels.runtime import traffic_walk
from tilesolve.kernels.runtime.compiled import address
from tilesolve.model import traffic
from tilesolve.model.compiled_traffic import count_compiled
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import LoopTree, tree_of_bands
from tilesolve.model.traffic import count_traffic

SPECS = ("mn-mk-kn", "abc-dba-dc", "ba-cad-dbc", "abcd-ea-ebdc", "bmn-bmk-bkn", "ab-a-b", "a-ka-k")
LAYERS = (
    "hk-[2h+r]-rk",
    "hwk-[3h+2r]c[w+s]-kcrs",
    "hk-[3h]k-rk",
    "hcw-[h+2r]c[2w]-cr",
    "h-[h+r+s]-rs",
)
"""Those whose axes are sums of letters, or leave some out."""

CACHES = ("L1", "L2", "L3")


@pytest.fixture(autouse=True, scope="module")
def _compiled():
    """The code is there."""
    assert address(traffic_walk.count_tilings) > 0


@st.composite
def boxes(draw: st.DrawFn, problem: Problem, caches: int, many: tuple[int, ...]):
    """Draw the boxes of some bands: each letter's of a nest, or along an axis of many nests."""
    letters, found = problem.spec.letters, []
    axes = {
        i: draw(st.sampled_from([(), *((1,) * at + many[at:] for at in range(len(many)))]))
        for i in letters
    }
    inner = {i: np.ones(axes[i], int) for i in letters}
    for _ in range(1 + caches):
        for i in letters:
            count = inner[i].size
            most = problem.sizes[i]
            grown = [draw(st.integers(int(least), most)) for least in inner[i].ravel()]
            inner = {**inner, i: np.array(grown[:count]).reshape(axes[i])}
        found.append({i: inner[i] * 1.0 if axes[i] else int(inner[i]) for i in letters})
    return [*found, dict(problem.sizes)]


@st.composite
def trees(
    draw: st.DrawFn, specs: tuple[str, ...] = SPECS, many: tuple[int, ...] = ()
) -> tuple[LoopTree, list[LevelView]]:
    """Draw the loops of one or more nests, and places of any capacity."""
    spec = Spec.parse(draw(st.sampled_from(specs)))
    sizes = {i: draw(st.sampled_from([1, 2, 5, 8, 12, 24, 30, 64])) for i in spec.letters}
    dtype = draw(st.sampled_from(["float64", "float32", "float16"]))
    problem = Problem.of(spec, sizes, dtype)
    caches = draw(st.integers(1, len(CACHES)))
    names = ["register", *CACHES[:caches], "memory"]
    bands = [(name, draw(st.permutations(spec.letters))) for name in names]
    ways = ["in place", "micro-panels", "prepared"]
    plain = [all(one.plain for one in operand.subscripts) for operand in spec.operands]
    kinds = [draw(st.sampled_from(ways if one else [*ways, "windows"])) for one in plain]
    filled = [one in ("micro-panels", "windows") for one in kinds]
    packed = [draw(st.sampled_from(names[1:-1])) if one else None for one in filled]
    output = draw(st.sampled_from(["accumulate", "store", "stream"]))
    drawn = draw(boxes(problem, caches, many))
    tree = tree_of_bands(problem, bands, drawn, packed, output, kinds)
    room, places = sorted(draw(st.integers(8, 60_000)) for _ in names[:-1]), []
    for at, (name, server) in enumerate(pairwise(names)):
        line = draw(st.sampled_from([32, 64])) if at else 1
        places.append(LevelView(name, float(room[at]), line, server, 1e10))
    return tree, places


def assert_alike(tree: LoopTree, places: list[LevelView]) -> None:
    """Compare both ways."""
    assert count_compiled(tree, places) is not None
    by_code = count_traffic(tree, places)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traffic, "count_compiled", lambda *_: None)
        found = count_traffic(tree, places)
    assert by_code.arrays == found.arrays
    for name in ("moved", "volumes", "packing", "packed", "relaid", "calls"):
        one, other = getattr(by_code, name), getattr(found, name)
        for a, b in zip(flat(one), flat(other), strict=True):
            assert np.array_equal(*np.broadcast_arrays(a, b)), name


def flat(sizes):
    """Yield the numbers, or the arrays, of tuples within one another."""
    if isinstance(sizes, tuple):
        for one in sizes:
            yield from flat(one)
    else:
        yield sizes


@examples(60, 1000)
@given(trees())
def test_one_nest_by_compiled_code(drawn):
    """Any loops, copies, outputs and types."""
    assert_alike(*drawn)


@examples(40, 500)
@given(trees(many=(3, 2)))
def test_many_nests_by_compiled_code(drawn):
    """Steps that differ along axes of their own, some of which run in some nests alone."""
    assert_alike(*drawn)


@examples(60, 1000)
@given(trees(LAYERS))
def test_one_nest_of_a_layer(drawn):
    """Windows, strides, and copies of them."""
    assert_alike(*drawn)


@examples(40, 500)
@given(trees(LAYERS, many=(3, 2)))
def test_many_nests_of_a_layer(drawn):
    """Windows of boxes that differ."""
    assert_alike(*drawn)


def test_what_python_counts():
    """A letter of two axes is none of compiled code's; nor are too many nests."""
    places = [LevelView("register", 2048.0, 1, "memory", 1e10)]

    def tree(problem, box):
        bands = [(name, problem.spec.letters) for name in ("register", "memory")]
        return tree_of_bands(problem, bands, [box, problem.sizes], (None, None), "store")

    diagonal = Problem.of("hk-h[2h+r]-rk", "h=8,r=3,k=10")
    assert count_compiled(tree(diagonal, dict.fromkeys(diagonal.spec.letters, 2)), places) is None
    product = Problem.of("mn-mk-kn", 64)
    for count, known in ((8, True), (100_000, False)):
        several = {"m": 8, "n": np.full(count, 8.0), "k": 64}
        assert (count_compiled(tree(product, several), places) is not None) is known
