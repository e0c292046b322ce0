"""What users hold: plans for GPUs, their reports and files, and errors without a card."""

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import DeviceError, DtypeError, PlanError, SizeError
from tilesolve.machine.device import Device
from tilesolve.plans.gpu_plan import GpuPlan


@pytest.fixture(autouse=True)
def no_assembler(monkeypatch):
    monkeypatch.setattr("tilesolve.gpu.strategy.assemble", lambda *_: None)


@pytest.fixture
def plan():
    return tilesolve.plan("ij-ik-kj", "i=64 j=48 k=96", "h100", dtype="float16")


def test_a_name_of_a_device_makes_a_plan_for_it(plan):
    assert isinstance(plan, GpuPlan)
    assert plan == tilesolve.plan(
        "ij-ik-kj", "i=64 j=48 k=96", Device.load("h100"), dtype="float16"
    )
    assert plan.seconds > 0
    assert plan.flops == plan.problem.flops / plan.seconds
    assert "h100" in repr(plan)


def test_reports_name_all_levels_and_that_nothing_was_measured(plan):
    text = str(plan)
    assert all(word in text for word in ("shared", "L2", "memory", "compute", "not measured"))
    assert plan.solution.tiling.form.instruction in text
    assert "<table>" in plan._repr_html_()


def test_plans_are_written_and_read(plan):
    for one in (plan, tilesolve.plan("ij-ik-kj", 512, "a100", dtype="float32", schedule="thesis")):
        assert GpuPlan.from_json(one.to_json()) == one
    for text in ("", "{}", '{"format": 7}', plan.to_json().replace("warps", "wraps")):
        with pytest.raises(PlanError):
            GpuPlan.from_json(text)


def test_results_are_added_and_followed_by_functions():
    found = tilesolve.plan(
        "bij-bik-bkj", 96, "a100", dtype="float32", accumulate=True, epilogue="*bj +i relu"
    )
    assert GpuPlan.from_json(found.to_json()) == found
    assert "C is where(" in str(found)
    own = tilesolve.elementwise(lambda x: x * x)
    assert "C is sum[] * sum[]" in str(tilesolve.plan("ij-ik-kj", 96, "a100", epilogue=own))


def test_bytes_are_summed_as_integers():
    found = tilesolve.plan("ij-ik-jk", 256, "a100", dtype="int8")
    assert GpuPlan.from_json(found.to_json()) == found
    assert found.problem.bytes == (4 * 256**2, 256**2, 256**2)
    with pytest.raises(DtypeError):
        tilesolve.plan("ij-ik-jk", 256, "i7-6700k", dtype="int8")


def test_what_if_parts_were_faster(plan):
    assert plan.whatif(compute=2.0).seconds <= plan.seconds
    with pytest.raises(tilesolve.TilesolveError):
        plan.whatif(speed=2.0)


def test_code_is_ptx_or_spirv(plan):
    assert ".target sm_90" in plan.code("ptx")
    assert plan.code("spirv")[:4] == b"\x03\x02\x23\x07"
    with pytest.raises(PlanError):
        plan.code("cuda")


def test_the_schedule_of_the_thesis_is_a_plan():
    found = tilesolve.plan("ij-ik-kj", 1024, "rtx2080ti", dtype="float16", schedule="thesis")
    form = found.solution.tiling.form
    assert (form.rows, form.columns, form.depth, form.threads) == (128, 128, 64, 256)
    assert found.price.calls == 64
    assert found.device.multiprocessors == 68
    # Thirty-two fragments of 16×16×16 for each warp and step, each two instructions twice.
    assert form.instructions(75) == 4 * 32


def test_calls_without_a_card_say_so(plan):
    one, other = np.zeros((64, 96), "f2"), np.zeros((96, 48), "f2")
    with pytest.raises(DeviceError, match="GPU"):
        plan(one, other)


def test_wrong_arrays_are_not_emulated(plan):
    one, other = np.zeros((64, 96), "f2"), np.zeros((96, 48), "f2")
    with pytest.raises(SizeError):
        plan.emulate(one, other[1:])
    with pytest.raises(DtypeError):
        plan.emulate(one.astype("f4"), other)


@pytest.mark.parametrize(
    "asked",
    [
        {"tries": 2},
        {"epilogue": "+z"},
        {"epilogue": tilesolve.elementwise(lambda x: float(str(x)))},
        {"strategy": "composition"},
        {"constant": "B"},
        {"workers": 2},
        {"schedule": "fast"},
        {"tf32": True},
    ],
)
def test_what_kernels_do_not_do_is_refused(asked):
    with pytest.raises(tilesolve.TilesolveError):
        tilesolve.plan("ij-ik-kj", 64, "h100", dtype="float16", **asked)


def test_cpus_have_no_schedules():
    for asked in ({"schedule": "thesis"}, {"tf32": True}):
        with pytest.raises(PlanError, match="GPU"):
            tilesolve.plan("ij-ik-kj", 64, "i7-6700k", **asked)
