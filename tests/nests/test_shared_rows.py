"""Stencils whose rows are computed together, because neighbours read the same elements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tests.support.points import Points
from tilesolve.constants.nests import NEST_UNEVEN_SHARE
from tilesolve.constants.tuning import ALIGNED_SUM_VECTORS
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.kernels.programs.program import Loop
from tilesolve.machine.model import Machine
from tilesolve.nests.loop_choice import choose_loops, choose_rows, price_loops
from tilesolve.nests.plan import NestPlan, nest
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import plain_tree, rows_tree
from tilesolve.nests.solutions import LoopSolution
from tilesolve.nests.solved import SolvedNest

STEPS = st.integers(0, 2)


@st.composite
def stencils(draw):
    """A text, the extents of its letters, and a region or none."""
    axes = draw(st.sampled_from(["yx", "zyx"]))
    places = draw(st.lists(st.tuples(*(STEPS for _ in axes)), min_size=1, max_size=7))
    terms = (
        f"{weight} * A[{','.join(f'{x}+{step}' for x, step in zip(axes, place, strict=True))}]"
        for weight, place in enumerate(places, 1)
    )
    text = f"o[{','.join(axes)}] = {' + '.join(terms)} + B[x]"
    sizes = {x: draw(st.integers(1, 11)) for x in axes[:-1]} | {"x": draw(st.integers(1, 70))}
    region = draw(st.sampled_from(["", "1 <= y < 6", "y >= 2 and x < 9", "y <= x"]))
    return text, sizes, region


def walks_rows(plan):
    """Whether rows are written out around vectors."""
    (solution,) = plan.solutions
    nodes = list_nodes(solution.program.body)
    return any(isinstance(one, Loop) and one.kind == "unrolled" for one in nodes)


@examples(10, 60)
@given(
    stencils(),
    st.sampled_from(["float32", "float64", "int16", "uint8"]),
    st.integers(1, 2),
    st.integers(0, 7),
)
def test_rows_together_are_what_each_point_is(stencil, dtype, threads, shift):
    """In a region, too, and wherever the output begins; around it nothing is written."""
    text, sizes, region = stencil
    computation = bind_stages(parse_stages(text, region or ()), sizes, dtype)
    rng = np.random.default_rng(len(text))
    arrays = {
        name: rng.integers(0, 100, computation.array(name).shape).astype(dtype)
        for name in computation.inputs
    }
    expected = Points(computation, arrays).run()
    plan = nest(text, sizes, dtype, where=region, threads=threads, machine="i7-6700k")
    shape, kind = expected.shape, np.dtype(dtype)
    room = np.full(np.prod(shape) + 16, 77, kind)
    out = room[shift : shift + expected.size].reshape(shape)
    out[...] = 0
    for _ in range(2):
        np.testing.assert_array_equal(plan(**arrays), expected)
        plan(**arrays, out=out)
        np.testing.assert_array_equal(out, expected)
        assert (room[:shift] == 77).all()
        assert (room[shift + expected.size :] == 77).all()


def test_rows_are_together_where_they_read_the_same():
    """Along the axis with most neighbours; not where only one row reads an element."""
    sizes = {"y": 40, "x": 100}
    assert walks_rows(nest("o[y,x] = A[y,x] + A[y+1,x]", sizes))
    assert walks_rows(nest("o[y,x] = A[y,x+1] - A[y+2,x] + A[y+1,x]", sizes))
    assert not walks_rows(nest("o[y,x] = A[y,x+1] - A[y+2,x]", sizes))
    assert not walks_rows(nest("o[y,x] = A[y,x] + A[y,x+1]", sizes))
    assert not walks_rows(nest("o[y,x] = A[y,x] + A[y+1,x]", {"y": 2, "x": 100}))


@pytest.mark.parametrize("columns", [2048, 2051])
@pytest.mark.parametrize("side", [(0, 1), (0, 1, 2)])
def test_the_price_decides_on_rows_together_past_the_caches(side, columns):
    """No other loops of a stencil in memory are predicted to take less."""
    text = f"o[y,x] = {' + '.join(f'A[y+{i},x+{j}]' for i in side for j in side)}"
    computation = bind_stages(parse_stages(text), {"y": 1500, "x": columns}, "float32")
    request = NestRequest(computation, Machine.load("i7-6700k"), start="cold")
    found = choose_loops(request).score
    trees = [plain_tree(request, streamed=one) for one in (False, True)]
    trees += [rows_tree(request, "y", 4, streamed=one) for one in (False, True)]
    for tree in trees:
        assert found <= LoopSolution(request, "", price_loops(request, tree), tree).score


@examples(8, 40)
@given(
    st.sampled_from(
        ["sum(X[i,k] == Y[j,k], k)", "max(X[i,k] - Y[j,k], k)", "sum(X[i,k] * Y[j,k] * z[k], k)"]
    ),
    st.tuples(st.integers(1, 20), st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(["float32", "float64", "int32", "int8"]),
    st.sampled_from(["", "j <= i", "k <= i", "k <= j"]),
)
def test_short_sums_are_across_vectors_or_along_them(term, extents, dtype, region):
    """Whatever their length, in a region, too."""
    sizes = dict(zip("ijk", extents, strict=True))
    text = f"d[i,j] = {term}"
    computation = bind_stages(parse_stages(text, region or ()), sizes, dtype)
    rng = np.random.default_rng(extents)
    arrays = {
        name: rng.integers(0, 4, computation.array(name).shape).astype(dtype)
        for name in computation.inputs
    }
    plan = nest(text, sizes, dtype, where=region, machine="i7-6700k")
    for _ in range(2):
        np.testing.assert_array_equal(plan(**arrays), evaluate(computation, arrays))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [{"y": 29, "x": 70}, {"y": 1101, "x": 2048}])
def test_eight_rows_together_past_the_caches_or_through_them(sizes, threads):
    """The last rows and columns, too; more operations than a few are none of this kind."""
    text = "o[y,x] = (A[y,x] + A[y,x+1]) / 3 + (A[y+1,x] + A[y+1,x+1]) / 3"
    computation = bind_stages(parse_stages(text), sizes, "float32")
    request = NestRequest(computation, Machine.load("i7-6700k"), threads, start="cold")
    solution = choose_rows(request, 8)
    assert solution.loops.output == ("stream" if sizes["x"] == 2048 else "store")
    shape = computation.array("A").shape
    A = np.random.default_rng(1).random(shape, dtype=np.float32)
    found = NestPlan(SolvedNest(request, (solution,)))(A)
    pairs = (A[:, :-1] + A[:, 1:]) / 3
    np.testing.assert_allclose(found, pairs[:-1] + pairs[1:], rtol=1e-6)
    costly = bind_stages(parse_stages(text.replace("A[y,x] +", "exp(A[y,x]) +")), sizes, "float32")
    assert choose_rows(NestRequest(costly, Machine.load("i7-6700k")), 8) is None


@pytest.mark.parametrize("rows", [4, 8])
def test_rows_of_a_stencil_load_what_they_share_once(rows):
    """Each row of the array once for each column, for all rows that are computed."""
    text = f"o[y,x] = {' + '.join(f'A[y+{i},x+{j}]' for i in range(3) for j in range(3))}"
    computation = bind_stages(parse_stages(text), {"y": 80, "x": 320}, "float32")
    request = NestRequest(computation, Machine.load("i7-6700k"))
    loaded = [
        tree.works[0].accesses[1].loaded
        for tree in (plain_tree(request), rows_tree(request, "y", rows))
    ]
    assert loaded[1] / loaded[0] == pytest.approx(3 * (rows + 2) / (9 * rows))


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize(("term", "run"), [("sum(A[u,k])", np.sum), ("max(A[u,k], k)", np.max)])
def test_sums_of_rows_that_begin_amid_lines(term, run, dtype):
    """Of lengths around those whose whole vectors begin with a line; no neighbour counts."""
    near = ALIGNED_SUM_VECTORS * 64 // np.dtype(dtype).itemsize
    rng = np.random.default_rng(2)
    for length in (near - 1, near, near + 1, near + 70, 3 * near + 5):
        plan = nest(f"s[u] = {term}", {"A": (2, length)}, dtype)
        for begin in (0, 1, 3, 11):
            whole = np.full((2, begin + length + 9), 111).astype(dtype)
            if whole.dtype.kind == "f":
                whole[:] = np.nan
            rows = whole[:, begin : begin + length]
            rows[:] = rng.integers(1, 99, rows.shape)
            np.testing.assert_allclose(plan(rows), run(rows, axis=1), rtol=1e-5)


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=3),
    st.integers(2, 4),
    st.sampled_from(["", "i <= 2", "i >= 1"]),
)
def test_threads_divide_a_letter_that_gives_each_as_much(extents, threads, region):
    """The busiest one has no more than with any other letter, or little more than its share."""
    letters = "ijx"[: len(extents)] + "v"
    sizes = dict(zip(letters, (*extents, 64), strict=True))
    text = f"o[{','.join(letters)}] = A[{','.join(letters)}] + 1"
    stages = parse_stages(text, region)
    bound = bind_stages(stages, sizes, "float32")
    first = plain_tree(NestRequest(bound, Machine.load("i7-6700k"), threads)).loops[0]

    def longest(letter):
        share = -(-sizes[letter] // threads)
        inside = [
            x for x in range(sizes[letter]) if letter != "i" or not region or _is_in(x, region)
        ]
        parts = [
            sum(low <= x < low + share for x in inside) for low in range(0, sizes[letter], share)
        ]
        return max(parts) * threads / max(len(inside), 1)

    if first.kind == "threads" and first.letter != "v" and sizes["i"] >= threads:
        least = min(longest(letter) for letter in letters[:-1])
        assert longest(first.letter) <= max(least, NEST_UNEVEN_SHARE) + 1e-9


def _is_in(value, region):
    return value <= 2 if "<=" in region else value >= 1
