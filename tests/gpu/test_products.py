"""Contractions as products of matrices, and tilings of them."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
from gpu_cases import SPECS, draw_group_tiling, draw_problem, draw_tiling

from tilesolve.contractions.device_problem import DeviceProblem
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.launches import list_launches
from tilesolve.gpu.product import Product
from tilesolve.gpu.program import relax
from tilesolve.gpu.strategy import can_group, choose_arithmetic, solve_for_device
from tilesolve.gpu.tilings import (
    estimate,
    estimate_registers,
    occupy,
    price_tiling,
    score_tilings,
)
from tilesolve.machine.device import Device
from tilesolve.model.score import score_price


@pytest.fixture(autouse=True)
def no_assembler(monkeypatch):
    """Decisions are the same wherever tests run."""
    monkeypatch.setattr("tilesolve.gpu.strategy.assemble", lambda *_: None)


@pytest.mark.parametrize("spec", SPECS)
def test_places_reach_every_element_once(spec):
    rng = random.Random(spec)
    problem = draw_problem(rng, "fma32", spec)
    found = Product.of(problem)
    rows, columns, sums, batches = found.extents
    named = (
        (found.operands[0], "first_free", "first_sum"),
        (found.operands[1], "second_free", "second_sum"),
        (0, "output_row", "output_column"),
    )
    for at, (tensor, one, other) in enumerate(named):
        starts = found.batch_places[at::3]
        places = starts[:, None, None] + found.places[one][:, None] + found.places[other]
        assert np.array_equal(np.sort(places, axis=None), np.arange(np.prod(problem.shape(tensor))))
    assert rows * columns * sums * batches == np.prod(list(problem.sizes.values()))


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_copied_at_once_lies_side_by_side(spec):
    rng = random.Random(spec)
    for _ in range(5):
        problem = draw_problem(rng, "float16", spec)
        found = Product.of(problem)
        for at, name in enumerate(("first", "second")):
            own = found.operand(at)
            along, across = (found.places[f"{name}_{kind}"] for kind in ("sum", "free"))
            if not own.along_sum:
                along, across = across, along
            assert len(along) % own.width == 0
            assert (np.diff(along.reshape(-1, own.width), axis=1) == 1).all()
            assert not (along[:: own.width] % own.width).any()
            assert not (across % own.width).any()
            assert not (found.batch_places[at::3] % own.width).any()


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("h-[h+r]-r", PlanError), ("ij-ikl-kj", PlanError), ("ii-ik-ki", Exception)],
)
def test_what_is_no_product_is_refused(spec, kind):
    with pytest.raises(kind):
        solve_for_device(Product.of(Problem.of(spec, 8)), Device.load("a100"))


def test_empty_and_huge_tensors_are_refused():
    for extent in (0, 2**16):
        with pytest.raises(SizeError):
            solve_for_device(Product.of(Problem.of("ij-ik-kj", extent)), Device.load("a100"))


@pytest.mark.parametrize(
    ("device", "dtype", "tf32", "found"),
    [
        ("a100", "float64", False, "float64"),
        ("rtx2080ti", "float64", False, "fma64"),
        ("rtx2080ti", "float16", False, "float16"),
        ("h100", "float32", True, "tf32"),
        ("rtx2080ti", "bfloat16", False, DtypeError),
        ("xavier", "float16", False, DtypeError),
        ("xavier", "float32", True, PlanError),
        ("a100", "complex64", False, DtypeError),
        ("h100", "int8", False, "int8"),
        ("rtx2080ti", "int8", False, DtypeError),
    ],
)
def test_arithmetic_is_what_the_device_has(device, dtype, tf32, found):
    problem = DeviceProblem.of("ij-ik-kj", 64, dtype)
    if isinstance(found, str):
        assert choose_arithmetic(problem, Device.load(device), tf32=tf32) == found
    else:
        with pytest.raises(found):
            choose_arithmetic(problem, Device.load(device), tf32=tf32)


@pytest.mark.parametrize("device", ["a100", "rtx2080ti", "h200"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_solutions_fit_their_device(device, dtype):
    rng, device = random.Random(device + dtype), Device.load(device)
    sizes = {x: round(2 ** rng.uniform(4, 12)) for x in "ijk"}
    if dtype == "int8" and device.peak(dtype) is None:
        pytest.skip("it has no such tensor cores")
    found = solve_for_device(Product.of(DeviceProblem.of("ij-ik-kj", sizes, dtype)), device)
    form = found.tiling.form
    assert form.shared_bytes <= device.shared_block
    assert form.threads <= device.block_threads
    assert estimate_registers(form) <= device.thread_registers
    assert found.occupancy.blocks >= 1
    assert found.seconds >= found.cost.seconds
    launches = list_launches(found.product, found.tiling)
    assert bool(launches.scratch) == (found.tiling.parts > 1) == (len(launches.kernels) == 2)


def test_prices_of_many_are_the_prices_of_each():
    rng, device = random.Random(3), Device.load("a100")
    product = Product.of(Problem.of("bij-bik-bkj", "b=3 i=300 j=200 k=1000", "float16"))
    tilings = [draw_tiling(rng, product, "float16") for _ in range(20)]
    scores = score_tilings(product, device, tilings)
    check_scores(product, device, tilings, scores)


def check_scores(product, device, tilings, scores):
    for tiling, score in zip(tilings, scores, strict=True):
        price, waiting = price_tiling(product, device, tiling, occupy(device, tiling.form))
        assert score_price(price, device.overlap, waiting) == pytest.approx(score)


def test_groups_are_priced_beside_warps():
    """Their operands leave shared memory once in each instruction, and their rate is their own."""
    rng, device = random.Random(3), Device.load("h100")
    product = Product.of(Problem.of("ij-ik-kj", "i=512 j=512 k=1024", "float16"))
    draws = [draw_tiling, draw_group_tiling] * 5
    tilings = [draw(rng, product, "float16", parts=1) for draw in draws]
    check_scores(product, device, tilings, score_tilings(product, device, tilings))
    for tiling in tilings[1::2]:
        form = tiling.form
        found = estimate(product, device, [tiling], [occupy(device, form)])
        moved = [float(np.max(one)) for one in found.volumes[0]][1:]
        across = -(-512 // form.columns) * form.warps[1]
        assert moved == [2 * 512 * 1024 * across, 2 * 512 * 1024 * 512 / 64]
        slower = device.scale({"compute": 0.5})
        again = estimate(product, slower, [tiling], [occupy(device, form)])
        assert again.compute[0] > found.compute[0]


@pytest.mark.parametrize("fault", [{"spilled": 8}, {"serialized": True}, {"registers": 256}])
def test_tilings_that_the_assembler_spoils_give_way(fault, monkeypatch):
    """What spills, waits or takes too many registers is refused, and the next tiling is taken."""
    asked = []

    def assemble(form, capability):
        asked.append(form)
        made = {"registers": 64, "spilled": 0, "serialized": False}
        return SimpleNamespace(**{**made, **(fault if len(asked) < 4 else {})})

    monkeypatch.setattr("tilesolve.gpu.strategy.assemble", assemble)
    product = Product.of(Problem.of("ij-ik-kj", "i=511 j=513 k=1023", "float16"))
    found = solve_for_device(product, Device.load("h100"))
    assert found.spilled == 3
    assert found.form == asked[-1] != asked[0]
    assert (found.registers, found.assembled) == (64, True)


def test_groups_multiply_where_that_costs_less():
    product = Product.of(Problem.of("ij-ik-kj", 2048, "float16"))
    device = Device.load("h100")
    found, other = (solve_for_device(product, device, grouped=one) for one in (True, False))
    assert found.tiling.form.grouped
    assert not other.tiling.form.grouped
    assert found.seconds < other.seconds
    relaxed = found.relaxed
    assert relaxed.seconds <= found.seconds
    assert dict(relaxed.sizes)["W_N"] <= 256 * (1 + 1e-6)


def test_bytes_that_lie_along_columns_are_multiplied_by_warps():
    for spec, able in (("ij-ik-jk", True), ("ij-ik-kj", False)):
        product = Product.of(DeviceProblem.of(spec, 1024, "int8"))
        assert can_group(product, Device.load("h100"), "int8") == able


def test_bytes_are_counted_block_by_block():
    """Every block reads its rows and columns once for all steps of the sum, every warp its own."""
    device = Device.load("a100")
    problem = Problem.of("ij-ik-kj", "i=512 j=768 k=640", "float16")
    product = Product.of(problem)
    rng = random.Random(4)
    for _ in range(10):
        tiling = draw_tiling(rng, product, "float16", parts=1, stages=2)
        form = tiling.form
        found = estimate(product, device, [tiling], [occupy(device, form)])
        rows, columns = 512 / form.rows, 768 / form.columns
        tiles = [-(-512 // form.rows), -(-768 // form.columns)]
        assert (rows, columns) == tuple(tiles)
        volumes = [float(np.max(one)) for one in found.volumes[1]]
        once = problem.bytes
        assert volumes == [once[0], once[1] * tiles[1], once[2] * tiles[0]]
        down, across = form.warp_tile
        near = [float(np.max(one)) for one in found.volumes[0]]
        assert near == [once[0], once[1] * (768 / across), once[2] * (512 / down)]
        far = [float(np.max(one)) for one in found.volumes[2]]
        assert all(a <= b <= c for a, b, c in zip(once, far, volumes, strict=True))


def test_what_ends_a_result_is_paid_for():
    device, problem = Device.load("a100"), Problem.of("ij-ik-kj", 512, "float32")
    plain, added, scaled = (
        Product.of(problem),
        Product.of(problem, accumulate=True),
        Product.of(problem, Epilogue.parse("*ij")),
    )
    seconds = [
        solve_for_device(one, device).cost.level("memory").seconds for one in (plain, added, scaled)
    ]
    assert seconds[0] < seconds[1] == pytest.approx(seconds[2])


def test_the_program_is_no_slower_than_whole_tiles():
    """Relaxed tiles have no fragments, no waves and no waiting: whole ones take longer."""
    device = Device.load("a100")
    product = Product.of(Problem.of("ij-ik-kj", 4096, "float16"))
    relaxed = relax(product, device, "float16", 32, 3)
    found = solve_for_device(product, device)
    assert relaxed.seconds <= found.seconds
    sizes = dict(relaxed.sizes)
    assert sizes["W_M"] <= sizes["B_M"] * (1 + 1e-6)
    assert sizes["B_M"] * sizes["B_N"] * 4 <= 4 * device.registers


def test_faster_parts_never_make_a_plan_slower():
    device = Device.load("h100")
    problem = Problem.of("ij-ik-kj", "i=700 j=3000 k=900", "float16")
    usual = solve_for_device(Product.of(problem), device).seconds
    for name in ("compute", "memory_bandwidth", "l2_bandwidth"):
        factors = {name: 1.2}
        assert (
            solve_for_device(Product.of(problem), device.scale(factors)).seconds <= usual * 1.000001
        )
