"""Pipelines for GPUs: kernels run as SPIR-V on the CPU, by NVIDIA's assembler, and as decisions."""

import json
from math import prod

import numpy as np
import pytest
from device_cases import BOX_SIZES, BOXES, check, drawn_case, function_case, group_plan, prepare
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tests.support.drawn_stages import draw_stages, fill
from tilesolve.bench.pipelines import CASES
from tilesolve.contractions.errors import DeviceError, DtypeError, PlanError, SizeError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.gpu.emulation import emulate, find_runtime
from tilesolve.gpu.occupancy import find_occupancy
from tilesolve.kernels.gpu.assembling import assemble, find_tool
from tilesolve.machine.device import Device, list_devices
from tilesolve.pipelines import device_groups, device_plan
from tilesolve.pipelines.device_groups import solve_stages
from tilesolve.pipelines.device_plan import DevicePlan
from tilesolve.pipelines.simplify import simplify
from tilesolve.pipelines.statements import read_statements
from tilesolve.plans import cache as plan_cache

needs_runtime = pytest.mark.skipif(find_runtime() is None, reason="gpu-test is missing")
needs_assembler = pytest.mark.skipif(find_tool("ptxas") is None, reason="gpu-test is missing")

TIER = ["blur", "unsharp", "harris", "maxfilter", "interpolate", "pyramid_blend", "stencil_chain"]
"""Pipelines that all systems of the thesis have."""

FUSIONS = ("none", "groups", "nested")

BLUR = """bx[y,x] = (I[y,x] + I[y,x+1] + I[y,x+2]) / 3
by[y,x] = (bx[y,x] + bx[y+1,x] + bx[y+2,x]) / 3"""


@pytest.fixture
def no_assembler(monkeypatch):
    monkeypatch.setattr(device_groups, "assemble", lambda *_: None)


def small(name):
    return CASES[name].shrink(32 if name != "maxfilter" else 64)


@needs_runtime
@pytest.mark.usefixtures("no_assembler")
def test_functions_are_right():
    """A stencil, and one with borders, channels and a division."""
    check([function_case(small("blur"), "h100", "groups")])


@needs_runtime
@pytest.mark.usefixtures("no_assembler")
def test_tiles_that_do_not_divide_an_image_are_right():
    cases = []
    for height, width in ((7, 17), (8, 16), (9, 15)):
        computation = read_statements(BLUR, {"I": (height + 2, width + 2)}, "float32")
        cases.append(drawn_case(computation, fill(computation, height), (8, 16), 64))
    check(cases)


@needs_runtime
@pytest.mark.slow
@pytest.mark.usefixtures("no_assembler")
@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("name", TIER)
def test_pipelines_are_right(name, fusion):
    check([function_case(small(name), "rtx2080ti", fusion)])


@needs_runtime
@pytest.mark.slow
@pytest.mark.usefixtures("no_assembler")
@pytest.mark.parametrize("name", TIER)
def test_pipelines_of_many_tiles_are_right(name):
    """All stages in one kernel, in tiles smaller than those that a price would choose."""
    case = small(name)
    computation, arrays = case.computation, {**case.constants, **case.arrays()}
    shape = computation.output.shape
    tiles = (*shape[:-2], 8, 16)
    run = prepare(group_plan(computation, tiles, 256, "h100"), arrays)
    check([(run, case.function(*(arrays[x].copy() for x, _ in case.shapes)))])


@needs_runtime
@pytest.mark.slow
@examples(3, 6)
@given(st.data())
def test_drawn_graphs_are_right(data):
    """Stencils, halved and doubled grids, several consumers, sums; any tiles and threads."""
    cases = []
    for seed in range(6):
        computation = bind_stages(*data.draw(draw_stages(largest=24)))
        tiles = [data.draw(st.integers(1, 25)) for _ in range(2)]
        threads = 32 * data.draw(st.integers(1, 5))
        cases.append(drawn_case(computation, fill(computation, seed), tiles, threads))
    check(cases)


@needs_runtime
@pytest.mark.slow
@pytest.mark.usefixtures("no_assembler")
def test_dtypes_functions_and_parameters_are_right():
    cases = []
    for text, dtype in (
        ("o[y,x] = exp(A[y,x] / 3) + log(A[y,x] + 1) * sqrt(A[y,x])", "float64"),
        ("o[y,x] = (A[y,x] // 3) * 7 - A[y,x] % 5 ^ A[y,x+1]", "int64"),
        ("o[y,x] = where(A[y,x] > A[y,x+1], A[y,x] >> 1, A[y+1,x] << 2)", "uint8"),
        ("o[y,x] = max(A[y,x], A[y+1,x]) > 3", "int16"),
        ("o[y,x] = sum(A[y+r,x] * A[y,x], r) / 2.5", "float32"),
        ("o[y,x] = arctan2(A[y,x], 2) + tanh(A[y+1,x]) ** A[y,x]", "float32"),
    ):
        sizes = {"A": (19, 37), **({"r": 11} if ",r" in text.replace(" ", "") else {})}
        computation = read_statements(text, sizes, dtype)
        cases.append(drawn_case(computation, fill(computation), (4, 16), 32))
    check(cases)
    plan = tilesolve.pipeline("o[x] = a * A[x] + b", A=(70,), dtype="float32", machine="a100")
    array = np.arange(70, dtype="float32")
    assert np.allclose(plan.emulate(array, a=2.0, b=-1.0), 2 * array - 1)


@needs_runtime
@pytest.mark.usefixtures("no_assembler")
def test_angles_are_right_to_three_units_in_the_last_place():
    """Of any size, and near multiples of a quarter turn; what is no angle has no sine."""
    rng = np.random.default_rng(3)
    angles = np.concatenate(
        [
            rng.uniform(-10, 10, 100),
            2.0 ** rng.uniform(-60, 1020, 100) * rng.choice([-1, 1], 100),
            np.pi / 2 * np.arange(-9, 10),
            [0.0, -0.0, 1e22, 2.0**20, 2.0**20 - 1, np.inf, -np.inf, np.nan],
        ]
    )
    text = "s[i] = sin(A[i]); c[i] = cos(A[i]); t[i] = tan(A[i])"
    functions, cases, wanted = (np.sin, np.cos, np.tan), [], []
    for dtype in ("float64", "float32"):
        with np.errstate(over="ignore", invalid="ignore"):
            array = angles.astype(dtype)
            wide = array.astype("longdouble" if dtype == "float64" else "float64")
            wanted += [function(wide).astype(dtype) for function in functions]
        plan = tilesolve.pipeline(text, A=array.shape, dtype=dtype, machine="h100", fusion="none")
        cases.append(prepare(plan, {"A": array}))
    found = [one for results in emulate(cases) for one in results]
    for one, right in zip(found, wanted, strict=True):
        known = np.isfinite(right)
        assert (known == np.isfinite(one)).all()
        assert (np.abs(one - right)[known] <= 3 * np.spacing(np.abs(right[known]))).all()
        assert (np.signbit(one) == np.signbit(right))[right == 0].all()


@needs_assembler
@pytest.mark.parametrize(("name", "machine"), [("blur", "rtx2080ti"), ("unsharp", "h100")])
def test_plans_have_the_registers_that_the_assembler_counts(name, machine):
    check_assembled(CASES[name].computation, machine)


@needs_assembler
@pytest.mark.slow
@pytest.mark.parametrize("machine", ["rtx2080ti", "a100", "h100"])
@pytest.mark.parametrize("name", TIER)
def test_pipelines_do_not_spill(name, machine):
    check_assembled(CASES[name].computation, machine)


def check_assembled(computation, machine):
    """No kernel spills; registers and shared memory are the plan's, and what the device has."""
    device = Device.load(machine)
    found = solve_stages(computation, device)
    assert found.assembled
    made = assemble(found.form, device.capability)
    assert {name: counts[1] for name, counts in made.counts.items()} == dict.fromkeys(
        made.counts, 0
    )
    for one in found.groups:
        assert made.counts[one.kernel.name][0] == one.registers
        held = find_occupancy(device, one.kernel.threads, one.registers, one.kernel.shared_bytes)
        assert held == one.occupancy
        assert held.blocks


@pytest.mark.usefixtures("no_assembler")
@examples(8, 15)
@given(draw_stages(largest=200), st.sampled_from(list_devices()), st.sampled_from(FUSIONS))
def test_groups_keep_to_the_limits(drawn, machine, fusion):
    """Of threads, shared memory and occupancy; each stage is computed once, in order."""
    computation, device = bind_stages(*drawn), Device.load(machine)
    found = solve_stages(computation, device, fusion)
    done = set(computation.inputs)
    for one in found.groups:
        kernel = one.kernel
        assert kernel.threads % 32 == 0
        assert kernel.threads <= device.block_threads
        assert kernel.shared_bytes <= device.shared_block
        assert one.occupancy.share >= 0.1
        sizes = [prod(computation.array(name).shape) for name in one.names]
        assert one.work * sum(sizes) >= sizes[-1] * (1 - 1e-9)  # nobody may need all of the others
        for step in kernel.steps:
            reads = {read.array for read in step.term.reads}
            assert reads <= done | {inner.name for inner in kernel.steps}
        assert not done & {step.name for step in kernel.steps}
        done.add(one.names[-1])
    assert {*computation.outputs} <= done
    assert found.seconds <= solve_stages(computation, device, "none").seconds * (1 + 1e-9)


@pytest.mark.usefixtures("no_assembler")
@examples(5, 10)
@given(draw_stages(largest=60), st.sampled_from(list_devices()), st.sampled_from(FUSIONS))
def test_plans_are_written_and_read(drawn, machine, fusion):
    plan = DevicePlan(solve_stages(bind_stages(*drawn), Device.load(machine), fusion))
    assert DevicePlan.from_json(plan.to_json()) == plan


@pytest.mark.usefixtures("no_assembler")
def test_plans_are_kept_for_other_processes(monkeypatch):
    """Of the same stages, device and fusion; unless that is not wanted."""
    planned = tilesolve.pipeline(BLUR, I=(66, 66), dtype="float32", machine="h100")
    plan_cache.forget()
    monkeypatch.setattr(device_plan, "solve_stages", None)
    kept = tilesolve.pipeline(BLUR, I=(66, 66), dtype="float32", machine="h100")
    assert kept is not planned
    assert kept == planned
    assert tilesolve.pipeline(BLUR, I=(66, 66), dtype="float32", machine="h100") is kept
    for asked in ({"fusion": "none"}, {"machine": "a100"}, {"cache": False}, {"I": (66, 67)}):
        with pytest.raises(TypeError):  # it is planned anew
            tilesolve.pipeline(
                BLUR, **{"I": (66, 66), "dtype": "float32", "machine": "h100", **asked}
            )


@pytest.mark.usefixtures("no_assembler")
def test_damaged_plans_are_refused():
    image = np.ones((66, 130), "float32")
    plan = tilesolve.pipeline(CASES["blur"].function).plan(image, machine="h100", fusion="none")
    text = plan.to_json()
    whole = {name: one for name, one in json.loads(text).items() if name != "checksum"}
    assert DevicePlan.from_json(json.dumps(whole)) == plan
    first, second = whole["groups"]
    for groups in ([first], [second, first], [first, second, second], [first, {}]):
        with pytest.raises(PlanError):
            DevicePlan.from_json(json.dumps({**whole, "groups": groups}))
    large = {**first, "threads": 4096}
    for wrong in (
        text.replace("threads", "heads"),
        json.dumps({**whole, "groups": [large, second]}),
    ):
        with pytest.raises(PlanError):
            DevicePlan.from_json(wrong)


def test_the_example_of_the_thesis():
    """A tile of 4×4 takes blocks of 4×8 threads; one of 32×12 takes 512, and 2048 bytes nested."""
    computation = bind_stages(parse_stages(BOXES), BOX_SIZES, "float32")
    little = group_plan(computation, (4, 4)).solution.groups[0].kernel
    assert [step.points for step in little.steps] == [3 * 4 * 8, 4 * 8, 4 * 4]
    assert little.threads == 4 * 8
    nested = simplify(computation, pinned=frozenset(computation.outputs))
    assert [stage.name for stage in nested.stages] == ["W", "Z"]
    large = group_plan(nested, (12, 32), device="rtx2080ti").solution.groups[0]
    assert (large.kernel.threads, large.kernel.shared_bytes) == (512, 2048)
    assert (large.registers, large.occupancy.share) == (64, 1.0)
    # K needs no element twice: in registers it is computed as often as in shared memory.
    apart = group_plan(computation, (12, 32), device="rtx2080ti").solution.groups[0]
    assert apart.kernel.shared_bytes > large.kernel.shared_bytes
    assert apart.kernel.steps[0].points == 3 * large.kernel.steps[0].points


@pytest.mark.usefixtures("no_assembler")
def test_bytes_are_those_of_tiles_and_of_arrays():
    computation = read_statements(BLUR, {"I": (1026, 1026)}, "float32")
    apart = solve_stages(computation, Device.load("a100"), "none").groups
    whole = solve_stages(computation, Device.load("a100"), "groups").groups
    volumes = [[level.volume for level in one.cost.levels] for one in (*apart, *whole)]
    assert volumes[0][2] == 4 * (1026 * 1026 + 1026 * 1024)
    assert volumes[2][2] == 4 * (1026 * 1026 + 1024 * 1024)
    assert all(near >= far >= once for near, far, once in volumes)
    kernel = whole[0].kernel
    rows, columns = (tile for _, tile in kernel.tiles)
    assert kernel.shared_bytes == -(-(rows + 2) * columns * 4 // 16) * 16
    assert kernel.waits == (False, True)


@pytest.mark.usefixtures("no_assembler")
def test_costs_of_the_thesis_decide_when_asked():
    """They merge what they find cheaper together; the prediction is that of the price."""
    computation = read_statements(BLUR, {"I": (1538, 2562)}, "float32")
    device = Device.load("rtx2080ti")
    apart = solve_stages(computation, device, "none", "thesis")
    whole = solve_stages(computation, device, "groups", "thesis")
    assert [len(one.names) for one in whole.groups] == [2]
    assert sum(one.thesis for one in whole.groups) < sum(one.thesis for one in apart.groups)
    assert whole.seconds >= solve_stages(computation, device, "groups").seconds
    assert all(one.occupancy.share >= 0.2 for one in whole.groups)


@pytest.mark.usefixtures("no_assembler")
def test_what_if_parts_were_faster():
    plan = tilesolve.pipeline(BLUR, I=(2050, 2050), dtype="float32", machine="h100")
    assert plan.whatif(memory_bandwidth=2.0).seconds < plan.seconds
    assert plan.whatif(compute=0.5).seconds >= plan.seconds


@pytest.mark.usefixtures("no_assembler")
def test_plans_are_had_from_functions_and_statements():
    image = np.ones((66, 130), "float32")
    function = tilesolve.pipeline(CASES["blur"].function)
    plan = function.plan(image, machine=Device.load("h100"), fusion="groups")
    assert plan.inputs == ("image",)
    assert [len(one.names) for one in plan.solution.groups] == [2]
    text = str(plan)
    assert all(x in text for x in ("rows", "blur", "shared", "L2", "occupancy", "barriers"))
    assert "not measured" in text
    assert "<table>" in plan._repr_html_()
    assert "bar.sync" in plan.code("ptx") or "barrier.sync" in plan.code("ptx")
    assert plan.code("spirv")[:4] == b"\x03\x02\x23\x07"
    assert function.plan(image).inputs == ("image",)  # that of a CPU
    with pytest.raises(PlanError):
        plan.code("cuda")
    with pytest.raises(DeviceError, match="GPU"):
        plan(image)
    with pytest.raises(SizeError):
        plan.emulate(image[1:])
    with pytest.raises(SizeError):
        plan.emulate()
    with pytest.raises(DtypeError):
        plan.emulate(image.astype("float64"))


@pytest.mark.parametrize(
    ("text", "sizes", "reason"),
    [
        ("h[v[i]] += w[i]", {"h": (4,), "v": (9,), "w": (9,)}, "h is a scatter"),
        ("C[i,j] += A[i,k] * B[k,j]", {"A": (256, 256), "B": (256, 256)}, "C is a contraction"),
        ("a[i] = x[i] + 1; a[i] = a[i] * 2", {"x": (9,)}, "a is computed in parts"),
    ],
)
def test_stages_that_kernels_lack_are_named(text, sizes, reason):
    kinds = {"v": "int64", "h": "float64", "w": "float64"} if "v" in sizes else "float64"
    with pytest.raises(DeviceError, match=reason):
        tilesolve.pipeline(text, **sizes, dtype=kinds, machine="h100")


def test_scans_and_gathers_are_named():
    array = np.arange(12.0)
    for function, reason in (
        (lambda a: np.cumsum(a), "own elements"),
        (lambda a: a[a.astype("int64") % 5], "values are positions"),
    ):
        with pytest.raises(DeviceError, match=reason):
            tilesolve.pipeline(function).plan(array, machine="h100")


def test_wrong_demands_are_refused():
    image = np.ones((9, 9))
    function = tilesolve.pipeline(CASES["blur"].function)
    for asked in (
        {"machine": "h100", "fusion": "all"},
        {"machine": "i7-6700k"},
        {"fusion": "nested"},
        {"machine": "h100", "mode": "untiled"},
    ):
        with pytest.raises(PlanError):
            function.plan(image, **asked)
    with pytest.raises(PlanError):
        tilesolve.pipeline(CASES["blur"].function, machine="h100")
    with pytest.raises(PlanError):
        tilesolve.pipeline(BLUR, I=(9, 9), fusion="nested")
