"""What runs plans on a card, on a driver that notes what it is told, or emulates it."""

import numpy as np
import pytest
from fake_card import CardArray, FakeCard

import tilesolve
from tilesolve.contractions.errors import DeviceError, DtypeError, PlanError, SizeError
from tilesolve.gpu.emulation import find_runtime

STAGES = """b[y,x] = A[y,x] + A[y,x+1]
o[y,x] = b[y,x] * b[y+1,x] + c"""

needs_runtime = pytest.mark.skipif(find_runtime() is None, reason="gpu-test is missing")


@pytest.fixture(autouse=True)
def no_assembler(monkeypatch):
    monkeypatch.setattr("tilesolve.gpu.strategy.assemble", lambda *_: None)
    monkeypatch.setattr("tilesolve.pipelines.device_groups.assemble", lambda *_: None)


@pytest.fixture
def card(monkeypatch):
    return FakeCard(monkeypatch)


@pytest.fixture
def plan():
    return tilesolve.pipeline(STAGES, A=(35, 70), dtype="float32", machine="h100", fusion="none")


def test_kernels_of_a_pipeline_start_in_order(card, plan):
    plan(np.ones((35, 70), "float32"), c=2.5)
    kernels = [one.kernel for one in plan.solution.groups]
    assert [one.name for one in card.launched] == ["group0", "group1"]
    for one, kernel in zip(card.launched, kernels, strict=True):
        assert (one.grid, one.block) == ((kernel.blocks, 1, 1), (kernel.threads, 1, 1))
        assert one.shmem_size == card.limits[one.name] == kernel.shared_bytes
        assert [type(value) for value in one.given] == [np.uint64] * len(kernel.arrays)
    first, second = ([int(value) for value in one.given] for one in card.launched)
    names = [array.name for array in kernels[1].arrays]
    assert second[names.index("b")] == first[-1]
    number = next(one for one in card.buffers if one.handle == second[names.index("c")])
    assert number.bytes.view("float32") == 2.5
    assert all(one.closed is not None for one in card.buffers)


def test_arrays_on_the_card_stay_there(card, plan):
    """The caller's stream has all launches; kernels are loaded once."""
    array, out = CardArray(np.ones((35, 70), "float32")), CardArray(np.ones((34, 69), "float32"))
    for _ in range(2):
        assert plan(array, out=out, c=1, stream=7) is out
    assert {one.stream.handle for one in card.launched} == {7}
    assert len(card.launched) == 2 * len(card.loaded) == 4
    assert int(card.launched[0].given[0]) == array.buffer.handle
    assert int(card.launched[1].given[-1]) == out.buffer.handle
    assert all(one.closed.handle == 7 for one in card.buffers)


def test_wrong_arrays_are_refused_before_anything_starts(card, plan):
    array, out = CardArray(np.ones((35, 70), "float32")), CardArray(np.ones((34, 69), "float32"))
    for arrays, named, kind in (
        ((array,), {"c": 1}, DeviceError),
        ((array,), {"c": 1, "out": np.ones((34, 69), "float32")}, DeviceError),
        ((array,), {"c": 1, "out": CardArray(np.ones((34, 70), "float32"))}, SizeError),
        ((array,), {"c": 1, "out": CardArray(np.ones((34, 69)))}, DtypeError),
        ((array,), {"out": out}, SizeError),
        ((array, array), {"c": 1, "out": out}, SizeError),
        ((array,), {"A": array, "out": out}, SizeError),
    ):
        with pytest.raises(kind):
            plan(*arrays, **named)
    out.buffer = array.buffer
    with pytest.raises(PlanError, match="shares elements with A"):
        plan(array, c=1, out=out)
    array.strides = (1, 35)
    with pytest.raises(DeviceError, match="C order"):
        plan(array, c=1, out=out)
    assert not card.launched


def test_older_cards_are_refused(monkeypatch, plan):
    FakeCard(monkeypatch, capability=(8, 0))
    with pytest.raises(DeviceError, match=r"compute capability 9\.0"):
        plan(np.ones((35, 70), "float32"), c=1)


@needs_runtime
def test_what_is_launched_computes_the_results(card, plan):
    """Of NumPy's arrays: what lies between kernels, tables, parts and numbers included."""
    rng = np.random.default_rng(0)
    card.plays = plan.solution.launches.kernels
    array = rng.random((35, 70), dtype="float32")
    sums = array[:, :-1] + array[:, 1:]
    assert np.allclose(plan(array, c=0.5), sums[:-1] * sums[1:] + np.float32(0.5))
    one, other = rng.random((9, 700)), rng.random((700, 5))
    found = tilesolve.plan("ij-ik-kj", "i=9 j=5 k=700", "a100", accumulate=True)
    assert found.solution.launches.scratch
    card.plays, out = found.solution.launches.kernels, rng.random((9, 5))
    wanted = out + one @ other
    assert found(one, other, out) is out
    assert np.allclose(out, wanted)


@needs_runtime
def test_tensor_maps_are_encoded_of_where_arrays_are(card):
    """By the driver's function, at multiples of 128 bytes; the kernel takes each by its value."""
    rng = np.random.default_rng(0)
    one, other = (rng.random(shape).astype("float16") for shape in ((3, 96, 200), (3, 200, 72)))
    found = tilesolve.plan("bik,bkj->bij", [one, other], "h100")
    launches = found.solution.launches
    card.plays, card.maps = launches.kernels, launches.maps
    result = found(one, other)
    wanted = one.astype("float64") @ other.astype("float64")
    assert np.allclose(result, wanted, rtol=2e-3)
    names = launches.kernels[0].arguments
    given = dict(zip(names, card.launched[0].given, strict=True))
    assert len(launches.maps) == len(card.encoded) == 2
    for name, own in launches.maps:
        element, address, extents, strides, box, steps, how = given[name]
        assert element == 1  # two bytes
        assert address == given[name.removesuffix("_map")]
        assert (extents, strides, box) == (own.extents, own.strides[1:], own.box)
        assert steps == (1,) * len(box)
        assert how == (0, {32: 1, 64: 2, 128: 3}[own.swizzle], 2, 0)
        assert all(one % 16 == 0 for one in strides)
