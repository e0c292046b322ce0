"""What a call of a nest does as tasks: blocks, and what is left to Python."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tilesolve.kernels.runtime.task_fields import STAGE_COUNT
from tilesolve.nests import call_tasks, running
from tilesolve.nests.plan import nest
from tilesolve.transposes.limits import limits_in_force

MACHINE = "i7-6700k"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("where", ["j <= i", "k <= i"])
def test_blocks_of_a_region_are_tasks_of_one_call(where, threads, monkeypatch):
    """As many calls of compiled code as threads, however many blocks and stages there are."""
    text = "C[i,j] += A[i,k] * B[k,j]"
    plan = nest(text, 90, machine=MACHINE, threads=threads, where=where, route="contraction")
    (choice,) = plan.solutions
    assert choice.apart
    assert len(choice.places) >= 36
    counts, run = [], running.run_part

    def note(layout, team, part, *others):
        counts.append(int(team.table[slice(*part), STAGE_COUNT].sum()))
        return run(layout, team, part, *others)

    monkeypatch.setattr(running, "run_part", note)
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, 90, 90))
    right = np.tril(A @ B) if where == "j <= i" else np.tril(A) @ B
    for _ in range(3):
        np.testing.assert_allclose(plan(A, B), right, atol=1e-12)
    calls = 1 if threads == 1 else 3 * threads
    assert len(counts) <= calls
    assert max(counts) >= 8


def test_few_blocks_are_shared_by_all_threads():
    """Where all add to the same elements, threads divide each of them."""
    plan = nest(
        "o[i] += A[i,k,l] * B[k,l]",
        {"i": 9, "k": 60, "l": 50},
        where="l <= k",
        machine=MACHINE,
        threads=2,
        route="contraction",
    )
    (choice,) = plan.solutions
    assert not choice.apart
    *A, B = np.random.default_rng(0).standard_normal((10, 60, 50))
    A = np.array(A)
    right = np.einsum("ikl,kl->i", A, np.tril(B))
    for _ in range(2):
        np.testing.assert_allclose(plan(A, B), right, atol=1e-11)


def spy_jobs(monkeypatch):
    """Return a list that gets an element for each job of Python's in a call."""
    done = []
    for name in ("_call_plan", "_call_transpose"):
        job = getattr(call_tasks, name)
        note = partial(lambda call, *given: (done.append(call), call(*given)), job)
        monkeypatch.setattr(call_tasks, name, note)
    return done


def test_partial_outputs_are_added_by_python(monkeypatch):
    """Threads divide the sum of a small output, whose parts Python adds up, with its factors."""
    done = spy_jobs(monkeypatch)
    plan = nest(
        "o[i,j] = b * o[i,j] + a * sum(A[i,k] * B[k,j], k)",
        {"i": 3, "j": 4, "k": 5000},
        machine=MACHINE,
        threads=2,
        route="contraction",
    )
    rng = np.random.default_rng(6)
    A, B, o = (rng.standard_normal(shape) for shape in ((3, 5000), (5000, 4), (3, 4)))
    for out in (None, np.full((4, 3), 77.0).T, o):
        right = 0.5 * o - 2 * (A @ B)
        found = plan(o=o, A=A, B=B, out=out, a=-2.0, b=0.5)
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-9)
        assert out is None or found is out
    assert len(done) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_large_arrays_are_moved_past_the_caches(threads, monkeypatch):
    """As their alignment allows, which Python looks at; what a statement updates is copied so."""
    small = replace(limits_in_force(), last_cache_bytes=1)
    monkeypatch.setattr(call_tasks, "limits_in_force", lambda: small)
    done = spy_jobs(monkeypatch)
    sizes = {"i": 33, "j": 5, "k": 34}
    move = nest("o[i,j,k] = A[k,j,i]", sizes, machine=MACHINE, threads=threads, route="transpose")
    update = nest("o[i,j] = 2 * o[i,j] + A[i]", 50, machine=MACHINE, threads=threads)
    A, o = np.random.default_rng(7).standard_normal((2, 34, 5, 33))
    for begin in (0, 1):
        out = np.full(33 * 5 * 34 + begin, 77.0)[begin:].reshape(33, 5, 34)
        assert np.array_equal(move(A, out=out), A.T)
        values, out = o[:, 0, :].ravel()[begin : begin + 50], np.full((50, 50), 77.0)
        own = np.asfortranarray(np.arange(2500.0).reshape(50, 50))
        assert np.array_equal(update(own, values, out=out), 2 * own + values[:, None])
    assert len(done) == 2
