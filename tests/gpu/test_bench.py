"""The benchmark of a card, and its calibration, on stubs: no card is needed."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from commands import invoke

from tilesolve.bench.gpu import Lab, list_cases, main, measure
from tilesolve.bench.gpu_cases import OURS, WARPS
from tilesolve.bench.pipelines import CASES
from tilesolve.calibration.gpu import TOLD, calibrate_gpu
from tilesolve.contractions.errors import DeviceError, MachineError
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.machine.device import Device, find_device


class StubLab(Lab):
    """A lab of NumPy's arrays; our own result is as wrong as it is told to be."""

    def __init__(self, wrong=0.0, device="a100"):
        self.card = SimpleNamespace(name="NVIDIA Stub 1")
        self.device, self.wrong, self.timed = Device.load(device), wrong, 0

    def draw(self, shape, dtype):
        return np.ones([min(2, extent) for extent in shape])

    def _fill(self, out, value):
        out[...] = value

    def run(self, product, first, second, out, *, grouped=True):
        return lambda: self._fill(out, 4.0 + self.wrong), 1e-3

    def list_peers(self, product, first, second, out):
        return {"cuBLAS": lambda: np.full_like(out, 4.0)}

    def send(self, array):
        return np.array(array)

    def fetch(self, array):
        return array

    def bind(self, solution, arrays):
        computation = solution.computation
        (name,), kind = computation.outputs, computation.output.dtype
        result = evaluate(computation, arrays).astype(kind) + self.wrong
        return lambda: self._fill(arrays[name], result)

    def list_function_peers(self, function, arrays):
        return {"torch.compile": lambda: function(*arrays)}

    def compare(self, one, other):
        return float(np.abs(one - other).max() / np.abs(other).max())

    def time(self, run):
        self.timed += 1
        return 1e-3 * self.timed


@pytest.fixture(autouse=True)
def small_pipelines(monkeypatch):
    found = tuple(CASES[name].shrink(32) for name in ("blur", "unsharp"))
    monkeypatch.setattr("tilesolve.bench.gpu.PIPELINES", found)
    monkeypatch.setattr("tilesolve.pipelines.device_groups.assemble", lambda *_: None)


def test_losses_come_first_and_a_page_is_written(tmp_path, capsys):
    file = tmp_path / "found.json"
    assert main(["--json", str(file), "--page", str(tmp_path)], StubLab()) == 0
    found = json.loads(file.read_text())["cases"]
    groups = [one["case"].split()[0] for one in found]
    assert groups == sorted(groups, key=("drawn", "products", "pipelines", "tccg").index)
    assert groups.count("products") == 16
    assert groups.count("tccg") == 72
    pipelines = [one for one in found if one["case"].startswith("pipelines")]
    modes = {OURS, f"{OURS} in groups", f"{OURS} one by one", "torch.compile"}
    assert [one["seconds"].keys() for one in pipelines] == [modes] * 2
    dtypes = {one["case"].split()[-1] for one in found}
    assert dtypes >= {"float16", "bfloat16", "int8", "float64"}
    lines = capsys.readouterr().out.splitlines()
    ratios = [float(line.split("|")[2]) for line in lines if line.startswith(("| d", "| p", "| t"))]
    assert len(ratios) == len(found)
    assert ratios == sorted(ratios)
    page = (tmp_path / "nvidia-stub-1.md").read_text()
    assert page.startswith("# NVIDIA Stub 1")
    assert "tccg float32" in page
    assert all(f"{mode}: {OURS} takes" in page for mode in modes - {OURS, "torch.compile"})


def test_groups_are_measured_beside_warps(tmp_path, capsys):
    lab = StubLab(device="h100")
    assert main(["--json", str(tmp_path / "found.json")], lab) == 0
    found = json.loads((tmp_path / "found.json").read_text())["cases"]
    both = [one for one in found if WARPS in one["seconds"]]
    assert {one["case"].split()[-1] for one in both} == {"float16", "bfloat16", "int8"}
    assert {"drawn", "products"} == {one["case"].split()[0] for one in both}
    assert f"products float16 {WARPS}: " in capsys.readouterr().out


def test_wrong_results_fail_and_are_not_timed(tmp_path):
    lab = StubLab(wrong=8.0)
    case = next(list_cases(lab))
    assert "wrong by" in measure(lab, case).fault
    assert lab.timed == 0
    pipeline = next(one for one in list_cases(lab) if one.group == "pipelines")
    assert "wrong by" in measure(lab, pipeline).fault
    assert main(["--json", str(tmp_path / "x.json")], lab) == 1


def test_cases_are_left_when_the_time_is_over(tmp_path, capsys):
    assert main(["--json", str(tmp_path / "x.json"), "--seconds", "-1"], StubLab()) == 0
    assert "0 cases measured" in capsys.readouterr().out


def test_without_a_card_it_says_so(tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise DeviceError("no GPU was found")

    monkeypatch.setattr("tilesolve.bench.gpu.Card", fail)
    assert main(["--json", str(tmp_path / "x.json")]) == 2
    assert "no GPU" in capsys.readouterr().err


def test_a_measured_device_is_planned_for(tmp_path):
    """What a driver tells and what is measured stand in a file that names a device."""

    class StubCard:
        name, capability, stream = "NVIDIA Stub 1", 90, None
        device = SimpleNamespace(allocate=lambda *_, **__: SimpleNamespace(handle=16))
        told = dict.fromkeys(TOLD.values(), 32) | {
            **{"CLOCK_RATE": 1_000_000, "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "WARP_SIZE": 32},
            **{"L2_CACHE_SIZE": 2**24, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 2**17},
        }

        def attribute(self, name):
            return self.told[name]

        def nearest(self):
            return Device.load("h100")

        def load(self, one, capability):
            return None

        def upload(self, array):
            return None

        def time(self, work, rounds):
            return 4e-3

    found = calibrate_gpu(StubCard())
    assert (found.multiprocessors, found.warps, found.frequency) == (32, 64, 1e9)
    assert found.level("memory").bandwidth == pytest.approx(2**32 / 4e-3)
    assert found.level("L2").bandwidth == pytest.approx(2**32 / 4e-3)
    assert found.level("shared").bandwidth == 128 * 32 * 1e9
    assert found.host_bandwidth == pytest.approx(2**28 / 4e-3)
    assert found.measured == ("L2", "memory", "host")
    assert "L2, memory, host are measured" in found.source
    path = tmp_path / "mine.toml"
    path.write_text(found.to_toml())
    assert find_device(str(path)) == find_device(path) == Device.load(path) == found
    path.write_text("capability = 3")
    with pytest.raises(MachineError):
        find_device(path)


def test_others_that_fail_have_no_time():
    class Failing(StubLab):
        def list_peers(self, product, first, second, out):
            return {**super().list_peers(product, first, second, out), "other": lambda: 1 / 0}

    lab = Failing()
    found = measure(lab, next(list_cases(lab)))
    assert found.seconds.keys() == {OURS, "cuBLAS"}


def test_a_calibration_without_a_card_writes_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise DeviceError("no GPU was found")

    monkeypatch.setattr("tilesolve.gpu.card.Card.__init__", fail)
    file = tmp_path / "mine.toml"
    done = invoke("calibrate", "--gpu", "--output", str(file))
    assert done.exit_code == 2
    assert "no GPU was found" in done.stderr
    assert not file.exists()
    assert invoke("calibrate", "--gpu").exit_code == 2
