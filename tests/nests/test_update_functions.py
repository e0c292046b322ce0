"""Functions that are computed before: in updates, and where several points have the same."""

import numpy as np
import pytest

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.nests.plan import nest


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "text",
    [
        "h[int64(arctan2(y[i], x[i]) + 3.2)] += hypot(y[i], x[i])",
        "h[min(int64(sqrt(x[i] * x[i] + w[k])), 6)] += exp(-w[k]) * y[i]",
        "h[int64(abs(x[i]) * 2)] += 1",
    ],
)
def test_histograms_of_functions(text, threads, dtype):
    """As they are in double precision."""
    rng = np.random.default_rng(3)
    sizes = {"i": 301, "k": 7}
    values = {"x": rng.uniform(-3, 3, 301), "y": rng.uniform(-3, 3, 301), "w": rng.random(7)}
    (stage,) = stages = parse_stages(text)
    used = {x: sizes[x] for x in stage.letters}
    read = {one.array for one in stage.reads}
    arrays = {name: values[name].astype(dtype) for name in read}
    wide = {name: array.astype("float64") for name, array in arrays.items()}
    expected = evaluate(bind_stages(stages, used, "float64", {"h": (7,)}), wide)
    plan = nest(text, used | {"h": (7,)}, dtype, threads=threads)
    np.testing.assert_allclose(plan(**arrays), expected, rtol=1e-4 if dtype == "float32" else 1e-12)


def test_functions_run_side_by_side_where_that_is_predicted_to_take_less():
    """Not those that have no letter, and none where positions are all that is computed."""
    text = "h[int64(arctan2(y[i], x[i]) + 3.2)] += hypot(y[i], x[i])"
    sizes, machine = {"i": 10000, "h": (7,)}, "i7-6700k"
    plan = nest(text, sizes, "float32", machine=machine)
    assert len(plan.solutions) == 3
    for text in ("h[int64(x[i])] += y[i]", "h[int64(x[i])] += exp(2.0) * y[i]"):
        assert len(nest(text, sizes, "float32", machine=machine).solutions) == 1


def test_positions_of_functions_that_lie_outside():
    plan = nest("h[int64(exp(x[i]))] += 1", {"i": 500, "h": (7,)}, "float64")
    x = np.zeros(500)
    assert plan(x)[1] == 500
    x[499] = 4
    with pytest.raises(SizeError, match=r"position 54 of axis 0 of h, which has 7"):
        plan(x)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "text",
    [
        "o[y,x] = A[y,x] * (cos(w[x]) + 2 * sin(v[y]))",
        "o[y,x] = exp(w[x] - v[y]) * exp(w[x])",
        "o[y] = sum(A[y,x] * log(w[x] + 1), x)",
    ],
)
def test_functions_that_several_points_share(text, threads):
    """Each is computed once, whatever letters it has."""
    rng, sizes = np.random.default_rng(4), {"y": 37, "x": 129}
    stages = parse_stages(text)
    computation = bind_stages(stages, sizes, "float64")
    arrays = {x: rng.random(computation.array(x).shape) for x in computation.inputs}
    plan = nest(text, sizes, "float64", threads=threads)
    np.testing.assert_allclose(plan(**arrays), evaluate(computation, arrays), rtol=1e-12)


def test_functions_of_fewer_letters_are_statements_before():
    text = "o[y,x] = A[y,x] * exp(w[x]) + log(A[y,x])"
    plan = nest(text, {"y": 200, "x": 100}, "float32", machine="i7-6700k")
    assert str(plan.solutions[0].statement) == "o_exp[x] = exp(w[x])"
    assert len(plan.solutions) == 2
