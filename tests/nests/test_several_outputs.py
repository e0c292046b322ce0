"""Several results of one call, and arrays that several statements compute, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support.points import Points
from tilesolve.contractions.errors import PlanError, SizeError, SpecError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.nests.calls import Signature
from tilesolve.nests.plan import NestPlan
from tilesolve.nests.running import NestRunner

TEXTS = (
    "s[i] = sum(A[i,j], j); p[j] = max(A[i,j], i)",
    "t[i,j] = A[i,j] + 1; u[i,j] = t[i,j] * 2; v[j,i] = t[i,j] - B[j]",
    "d = sum(A[i,j], i, j); o[i,j] = A[i,j] - d",
    "B[j] = B[j] + sum(A[i,j], i); o[i,j] = A[i,j] * B[j]",
    "o[i,j] = A[i,j] + B[j]; o[i,k] = o[i,k] * 2",
    "o[i,k] = B[k]; o[i,j] = o[i,j] + A[i,j]; s[i] = sum(o[i,j], j)",
    "C[i,l] = sum(A[i,j] * A[l,j], j); C[i,m] = C[i,m] - B[m]; t[i] = C[i,i]",
)


def drawn(text, rows, columns, dtype):
    """A computation, and small whole numbers for it."""
    sizes = {"i": rows, "j": columns, "k": min(rows, columns), "l": rows, "m": min(rows, columns)}
    stages = parse_stages(text)
    letters = {x for stage in stages for x in stage.letters}
    sizes = {x: n for x, n in sizes.items() if x in letters}
    shapes = {"B": (columns,)} if "B[" in text else {}
    computation = bind_stages(stages, sizes, dtype, shapes)
    rng = np.random.default_rng([rows, columns])
    arrays = {
        name: rng.integers(0, 5, computation.array(name).shape).astype(dtype)
        for name in computation.inputs
    }
    return computation, sizes | shapes, arrays


def as_tuple(found):
    """Results as a tuple, also where there is one."""
    return found if isinstance(found, tuple) else (found,)


@examples(7, 40)
@given(
    st.sampled_from(TEXTS),
    st.integers(1, 20),
    st.integers(1, 40),
    st.sampled_from(["int32", "float64"]),
    st.integers(1, 2),
)
def test_all_that_is_not_read_later_is_returned(text, rows, columns, dtype, threads):
    """In new arrays and in given ones, which may lie in larger ones; plans go through JSON."""
    computation, sizes, arrays = drawn(text, rows, columns, dtype)
    infos = [computation.array(name) for name in computation.outputs]
    before = [np.zeros(one.shape, one.dtype) for one in infos]
    expected = as_tuple(Points(computation, arrays).run())
    for one, right in zip(as_tuple(evaluate(computation, arrays)), expected, strict=True):
        np.testing.assert_array_equal(one, right)
    plan = tilesolve.nest(text, sizes, dtype, threads=threads)
    plan = NestPlan.from_json(plan.to_json())
    assert plan.outputs == computation.outputs
    kept = {name: one.copy() for name, one in arrays.items()}
    outs = tuple(np.zeros([n + 1 for n in one.shape], one.dtype) for one in before)
    given = outs if len(outs) > 1 else outs[0]
    for _ in range(2):
        found = as_tuple(plan(**arrays))
        assert plan(**arrays, out=given) is given or len(outs) > 1
        for one, out, right in zip(found, outs, expected, strict=True):
            assert one.dtype == right.dtype
            np.testing.assert_array_equal(one, right)
            np.testing.assert_array_equal(out[tuple(map(slice, right.shape))], right)
    for name, one in arrays.items():
        np.testing.assert_array_equal(one, kept[name])


PLACES = st.one_of(st.integers(0, 60), st.sampled_from((0, 20, 40, 48, 54)))


@examples(15, 40)
@given(st.lists(st.tuples(PLACES, PLACES, PLACES, st.integers(0, 5)), min_size=1, max_size=5))
def test_calls_with_several_results_are_what_the_first_one_is(calls):
    """Whether results overlap, cannot be written, or are no tuple: as a runner says that is new."""
    plan = tilesolve.nest("A[i] = 2 * A[i]; t[i] = A[i] + B[i]", 6, outputs=("A", "t"))

    def call(runner, places, kind):
        memory = np.arange(70.0)
        first, second, given = (memory[at : at + 6] for at in places)
        outs = (first, second) if kind else [first, second]
        second.flags.writeable = kind != 1
        outs = {2: memory[:12].reshape(2, 6), 3: (first,), 4: None}.get(kind, outs)
        try:
            found = runner.compute((given, np.ones(6)), {}, outs)
        except (SizeError, PlanError) as error:
            return str(error), memory.tolist()
        assert type(found) is tuple
        assert outs is None or all(one is two for one, two in zip(found, outs, strict=True))
        return [one.tolist() for one in found], memory.tolist()

    for *places, kind in [(0, 20, 40, 5), *calls]:
        assert call(plan.executor, places, kind) == call(NestRunner(plan.solution), places, kind)


def test_python_looks_at_no_call_with_several_results_that_is_like_the_last(monkeypatch):
    """With numbers, with results given and without."""
    plan = tilesolve.nest("s[i] = a * A[i]; t[i] = A[i] + 1", {"i": 6})
    A, outs = np.random.rand(6), (np.zeros(6), np.zeros(6))
    plan(A, a=2.0)

    def refuse(*_):
        raise AssertionError("Python looks at the arrays")

    monkeypatch.setattr(Signature, "read", refuse)
    for found in (plan(A, a=3.0), plan(A, a=3.0, out=outs), plan(a=3.0, A=A, out=list(outs))):
        np.testing.assert_array_equal(found, (3 * A, A + 1))
    assert all(one is two for one, two in zip(found, outs, strict=True))


def test_outputs_may_be_named():
    A = np.random.rand(6, 7)
    text = "t[i,j] = A[i,j] + 1; s[i] = sum(t[i,j], j)"
    plan = tilesolve.nest(text, {"A": A}, outputs=("s", "t"))
    assert "takes A; returns s, t" in str(plan)
    s, t = plan(A)
    np.testing.assert_array_equal(t, A + 1)
    np.testing.assert_allclose(s, t.sum(axis=1), rtol=1e-14)
    assert tilesolve.nest(text, {"A": A}).outputs == ("s",)
    with pytest.raises(SpecError, match="'A' is no output: the statements compute t, s"):
        tilesolve.nest(text, {"A": A}, outputs=("A",))
    with pytest.raises(SpecError, match="nothing reads s, and it is no output"):
        tilesolve.nest(text, {"A": A}, outputs=("t",))


def test_arrays_for_several_results_are_checked():
    A = np.random.rand(6, 7)
    plan = tilesolve.nest("s[i] = A[i,0]; t[i] = A[i,1]", {"A": A})
    with pytest.raises(SizeError, match="several results: out is a tuple, of s, t"):
        plan(A, out=np.zeros(6))
    both = np.zeros(6)
    with pytest.raises(PlanError, match="shares memory with s"):
        plan(A, out=(both, both))
    with pytest.raises(PlanError, match="A"):
        plan(A, out=(both, A[:, 0]))
    assert not both.any()


def test_a_second_sum_into_an_array_is_refused():
    """It would begin anew, where Python's adds to what is there."""
    with pytest.raises(SpecError, match="C is computed twice"):
        tilesolve.nest("C[i] += A[i,k]; C[i] += B[i,k]", 4)
