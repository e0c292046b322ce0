"""Programs of networks as task lists: shared by threads that come, or do not come."""

import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
from patience import PATIENCE

import tilesolve
from tilesolve.kernels.runtime import task_fields as fields
from tilesolve.networks import ahead, task_lists
from tilesolve.networks.pictures import find_edges
from tilesolve.networks.works import BorderWork
from tilesolve.system.cancellation import Stop

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_networks import make_model  # noqa: E402

RNG = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("any_tiles")


@pytest.fixture(autouse=True)
def shared_works(monkeypatch):
    """Threads share works however small they are, and no other process plans ahead."""
    monkeypatch.setattr(ahead, "helped", lambda *_: nullcontext())
    monkeypatch.setattr(task_lists, "NETWORK_SHARED_SECONDS", 0.0)
    monkeypatch.setattr(task_lists, "NETWORK_SHARED_ZEROS", 0)


def random(*shape):
    """Random numbers of a shape."""
    return (0.2 * RNG.standard_normal(shape)).astype(np.float32)


def small_network(*, python):
    """Layers with a residual, a pool and a softmax; amid them what only ONNX's reference has."""
    node = helper.make_node
    amid = node("Det", ["square"], ["d"]) if python else node("ReduceSum", ["square"], ["d"])
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "v"], ["e"], pads=[1, 1, 1, 1]),
        node("Add", ["e", "r"], ["s"]),
        node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "g"], ["q"], pads=[1, 1, 1, 1], group=8),
        node("GlobalAveragePool", ["q"], ["m"]),
        node("MatMul", ["q", "q"], ["square"]),
        amid,
        node("Softmax", ["m"], ["o"], axis=1),
        node("Mul", ["o", "d4"] if python else ["o", "d"], ["y"]),
    ]
    arrays = {"w": random(8, 3, 3, 3), "b": random(8), "v": random(8, 8, 3, 3)}
    arrays["g"] = random(8, 1, 3, 3)
    if python:
        arrays["shape"] = np.array([1, 8, 1, 1])
        nodes[-1:-1] = [node("Reshape", ["d", "shape"], ["d4"])]
    return make_model(nodes, {"x": (1, 3, 12, 12)}, arrays)


@pytest.mark.grid
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("python", [False, True])
@pytest.mark.filterwarnings("ignore:.*run in ONNX's reference")
def test_threads_share_a_program(threads, python):
    """Whatever threads do, results are ONNX's; only what its reference computes is Python's."""
    made, x = small_network(python=python), random(1, 3, 12, 12)
    loaded = tilesolve.onnx.load(made, machine="i7-6700k", threads=threads)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    tasks = loaded._recent.bound.tasks
    assert len([run for run in tasks.runs if run.step is not None]) == python
    for _ in range(3):
        loaded._recent.bound.inputs["x"].base.fill(255)
        np.testing.assert_allclose(loaded(x)["y"], expected, rtol=1e-4, atol=1e-5)
    measured = loaded.measure(x, 2)
    assert len(measured) == len(loaded.program.works)
    assert all(one > 0 for one in (*measured, *loaded.measure_alone(x, 2)))


def test_one_thread_does_small_works(monkeypatch):
    """What takes less than to tell others of it."""
    monkeypatch.setattr(task_lists, "NETWORK_SHARED_SECONDS", 1.0)
    monkeypatch.setattr(task_lists, "NETWORK_SHARED_ZEROS", 1 << 20)
    made, x = small_network(python=False), random(1, 3, 12, 12)
    loaded = tilesolve.onnx.load(made, machine="i7-6700k", threads=2)
    assert set(loaded._recent.bound.tasks.team.table[:, fields.STAGE_COUNT]) == {1}
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(loaded(x)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("late", [None, 0, 1])
def test_a_thread_that_comes_late_holds_up_no_other(late, monkeypatch):
    """The others do its tasks, and what it finds to do when it comes is nothing."""
    made, x = small_network(python=False), random(1, 3, 12, 12)
    loaded = tilesolve.onnx.load(made, machine="i7-6700k", threads=2)
    tasks = loaded._recent.bound.tasks
    assert tasks.team.table[:, fields.STAGE_COUNT].max() == 2
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})

    def run_apart(jobs, **_):
        order = [jobs[1 - late], jobs[late]] if late is not None else jobs[:1]
        for job in order:
            job()

    monkeypatch.setattr(task_lists, "run_together", run_apart)
    np.testing.assert_allclose(loaded(x)["y"], expected, rtol=1e-4, atol=1e-5)


def test_programs_end_when_they_are_told_to():
    """Threads that wait for others hear a stop: here for one that never does its task."""
    made, x = small_network(python=False), random(1, 3, 12, 12)
    loaded = tilesolve.onnx.load(made, machine="i7-6700k", threads=2)
    tasks = loaded._recent.bound.tasks
    loaded(x)
    tasks.team.marks.fill(0)
    tasks.team.marks[0] = 1  # taken by nobody
    with Stop() as stop:
        waiting = threading.Thread(
            target=stop.run, args=(lambda: tasks._run_part(tasks.runs[0], 0),)
        )
        waiting.start()
        time.sleep(0.05)
        assert waiting.is_alive()
        stop.end()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_pictures_have_an_arrow_for_each_array(tmp_path):
    """From what writes an array to what reads it, a residual included; times are written."""
    pytest.importorskip("matplotlib")
    loaded = tilesolve.onnx.load(small_network(python=False), machine="i7-6700k")
    works = loaded.program.works
    edges = find_edges(works)
    layers = [at for at, work in enumerate(works) if str(work).startswith("conv 3x3")]
    assert (layers[0], layers[1]) in edges
    assert all(start < end for start, end in edges)
    zeros = {at for at, work in enumerate(works) if isinstance(work, BorderWork)}
    assert {end for _, end in edges} == set(range(1, len(works))) - zeros
    loaded.plot(tmp_path / "net.svg", loaded.measure(random(1, 3, 12, 12), 1))
    assert "measured times" in (tmp_path / "net.svg").read_text("utf-8")


ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 1.5, -2.5, np.nan, 3.0], np.float32)
"""Numbers that comparisons and products treat as no others."""


@pytest.mark.parametrize("kind", ["Relu", "Clip", "Max", "Min", "LeakyRelu", "Sigmoid", "Tanh"])
def test_numbers_that_are_none(kind):
    """NaN stays NaN and infinities are ordered, as ONNX Runtime has it, alone and behind layers."""
    others = {"Clip": ["l", "h"], "Max": ["o"], "Min": ["o"]}.get(kind, [])
    arrays = {"l": np.float32(-1), "h": np.float32(2), "o": np.ones(8, np.float32)}
    arrays = {name: arrays[name] for name in others}
    node = helper.make_node(kind, ["x", *others], ["y"])
    x = np.tile(ODD, (3, 1))
    made = make_model([node], {"x": x.shape}, arrays)
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    if kind == "Sigmoid":
        expected[:, 1] = 1  # where ONNX's evaluator divides infinities
    np.testing.assert_allclose(tilesolve.onnx.load(made)(x)["y"], expected, rtol=1e-5)
    assert np.isnan(expected[:, 0]).all()
    eye = {"w": np.float32([[[[1]]]]), **arrays}
    node.input[0] = "c"
    made = make_model([helper.make_node("Conv", ["x", "w"], ["c"]), node], {"x": (1, 1, 3, 8)}, eye)
    found = tilesolve.onnx.load(made)(x[None, None])["y"]
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-5)
