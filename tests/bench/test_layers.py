"""Sweeps of layers: what is measured, who computes it and how well, and what is shown of it."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from commands import invoke
from hypothesis import given, settings
from hypothesis import strategies as st
from running_cases import make_shallow_machine, write_shallow_machine
from turns import quick_each

from tilesolve.bench.contenders import Contender, parse_layer_contenders
from tilesolve.bench.layers import (
    LayerCase,
    channels_first,
    draw_layer,
    find_layers,
    list_layers,
    name_layer,
)
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.layer_tables import (
    list_layer_columns,
    list_layer_means,
    list_layer_rows,
    list_model_rows,
    report_layers,
)
from tilesolve.bench.results.record import Conditions
from tilesolve.bench.results.report import list_notes
from tilesolve.bench.results.sweeps import Entry, Figures, LayerSweep, Result
from tilesolve.bench.run.im2col import make_im2col
from tilesolve.bench.run.made import Made
from tilesolve.bench.run.sweep import measure_case
from tilesolve.bench.run.team import keep_crew
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.errors import BenchmarkError, TilesolveError
from tilesolve.contractions.layer_suites import list_layer_suites

MACHINE = make_shallow_machine(256, 16)

SMALL = Convolution.of((1, 4, 9, 8), (6, 4, 3, 3), stride=2, padding=1)

LAYERS = {
    "usual": SMALL,
    "batch": Convolution.of((2, 5, 6, 7), (3, 5, 2, 3)),
    "pointwise": Convolution.of((2, 8, 5, 6), (7, 8, 1, 1)),
    "strided pointwise": Convolution.of((1, 8, 5, 6), (7, 8, 1, 1), stride=2),
    "depthwise": Convolution.of((1, 6, 9, 9), (6, 1, 3, 3), padding=1, groups=6),
    "groups": Convolution.of((2, 6, 8, 8), (4, 3, 3, 3), padding=1, groups=2),
    "grouped pointwise": Convolution.of((2, 6, 4, 5), (4, 3, 1, 1), groups=2),
    "uneven": Convolution.of((1, 3, 7, 8), (4, 3, 3, 3), padding=((0, 1), (2, 1)), stride=2),
    "dilated": Convolution.of((1, 3, 9, 9), (4, 3, 3, 3), padding=2, dilation=2),
    "far padding": Convolution.of((1, 2, 2, 2), (3, 2, 2, 2), padding=3),
    "volume": Convolution.of((1, 2, 4, 5, 6), (3, 2, 3, 2, 3), padding=1),
    "row": Convolution.of((1, 2, 9), (3, 2, 3), padding=1),
}


def convolve(layer, x, w, bias):
    """The layer in double precision, by its definition."""
    sides = ((0, 0), (0, 0), *layer.padding)
    padded = np.pad(channels_first(layer, x).astype(np.float64), sides)
    own, made = layer.channels // layer.groups, layer.filters // layer.groups
    found = np.zeros((layer.batch, layer.filters, *layer.out_size))
    for at in np.ndindex(*layer.out_size):
        places = tuple(
            slice(step * place, step * place + gap * (taps - 1) + 1, gap)
            for place, step, gap, taps in zip(
                *(at, layer.stride, layer.dilation, layer.window), strict=True
            )
        )
        for filter_ in range(layer.filters):
            first = filter_ // made * own
            seen = padded[(slice(None), slice(first, first + own), *places)]
            axes = tuple(range(1, seen.ndim))
            found[(slice(None), filter_, *at)] = (seen * w[filter_]).sum(axis=axes)
    return np.maximum(found + bias.reshape(-1, *(1,) * len(layer.size)), 0)


class TestWhatIsMeasured:
    @pytest.mark.parametrize("name", list_layer_suites())
    def test_different_layers_have_different_names(self, name):
        """No layer is lost, and each counts as often as networks have it."""
        rows, found = list_layers(name), find_layers(name)
        assert len(found) == len({row.convolution for row in rows})
        assert sum(one.times for one in found.values()) == sum(row.times for row in rows)
        assert all(name_layer(one.work) == key == one.name for key, one in found.items())

    def test_networks_and_layers_are_chosen(self):
        """A pattern may mean either; one that means nothing is refused."""
        squeeze = find_layers("sconv", chosen=["SqueezeNet"])
        assert sum(one.times for one in squeeze.values()) == 26
        assert {model for one in squeeze.values() for model, _ in one.uses} == {"SqueezeNet"}
        taps = find_layers("sconv", chosen=["* 5x5 *"])
        assert {one.work.window for one in taps.values()} == {(5, 5)}
        with pytest.raises(BenchmarkError, match=r"no layer 'VGG', nor a network .* VGG-16"):
            find_layers("sconv", chosen=["VGG"])

    def test_dtypes(self):
        """The layers of a suite are of another dtype where one is asked for, but not of every."""
        (one,) = find_layers("resnet18", chosen=["3-64 *"], dtype="float64").values()
        assert one.work.dtype == one.dtype == "float64"
        with pytest.raises(BenchmarkError, match="complex64"):
            find_layers("resnet18", dtype="complex64")

    def test_models(self, tmp_path):
        """Like layers of an ONNX file are one row."""
        file = write_model(tmp_path)
        assert [(row.model, row.times) for row in list_layers(str(file))] == [("mine", 2)]
        done = invoke("suites", file)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "2 layers, 0 of them products" in done.stdout

    @pytest.mark.parametrize(("name", "count"), [("sconv", 393), ("resnet18", 12)])
    def test_suites_are_listed(self, name, count):
        """The list has how many there are, a suite each of its rows."""
        lines = invoke("suites").stdout.splitlines()
        assert [name, str(count), str(len(find_layers(name)))] in [line.split() for line in lines]
        shown = invoke("suites", name).stdout
        assert all(str(row.convolution) in shown for row in list_layers(name))


def write_model(folder):
    """A file with two like convolutions."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 4, 6, 6)) for name in "xz"
    ]
    nodes = [
        helper.make_node("Conv", [first, "w"], [second], pads=[1, 1, 1, 1])
        for first, second in ("xy", "yz")
    ]
    w = onnx.numpy_helper.from_array(np.ones((4, 4, 3, 3), np.float32), "w")
    graph = helper.make_graph(nodes, "mine", ends[:1], ends[1:], [w])
    file = folder / "mine.onnx"
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), str(file))
    return file


class TestChecks:
    @settings(max_examples=40, deadline=None)
    @given(st.sampled_from(sorted(LAYERS)), st.sampled_from(["NHWC", "NCHW"]))
    def test_elements_are_those_of_the_definition(self, name, layout):
        """Sums at single places leave out what padding has, and nothing else."""
        layer = replace(LAYERS[name], layout=layout)
        *operands, out = LayerCase(name, layer).draw()
        expected = LayerCase(name, layer).expect(operands)
        right = convolve(layer, *operands)
        np.testing.assert_allclose(expected.values, right[expected.places], rtol=1e-12, atol=1e-12)
        assert (expected.slack > 0).all()
        assert expected.describe_fault(right.astype(layer.dtype)) == ""
        assert "wrong result: nan where" in expected.describe_fault(channels_first(layer, out))

    def test_data_are_the_same_in_each_layout(self):
        """So that sums over results compare."""
        first, last = (draw_layer(replace(SMALL, layout=layout)) for layout in ("NCHW", "NHWC"))
        assert np.array_equal(first[0], np.moveaxis(last[0], -1, 1))
        assert np.array_equal(first[1], last[1])


def everyone():
    """Each installed contender of layers, and tilesolve."""
    found = parse_layer_contenders("torch,torch-eager,onnxruntime,openvino,im2col")
    return [one for one in found if one.installed]


@pytest.mark.parametrize(
    ("name", "who"),
    quick_each(product(LAYERS, everyone()), of=5),
    ids=lambda one: getattr(one, "name", one),
)
def test_peers_compute_layers(who, name, tmp_path):
    """What a contender finds is what the definition says, and its operands stay as they were."""
    layer = replace(LAYERS[name], layout=who.layout)
    *operands, out = LayerCase(name, layer).draw()
    kept = [array.copy() for array in operands]
    module, _, function = who.maker.partition(":")
    make = getattr(importlib.import_module(module), function)
    try:
        found = make(layer, make_shallow_machine(256, 16), 1, operands, out)
    except BenchmarkError:
        dimensions = len(layer.size)
        assert who.library in ("torch", "torch-eager")
        assert dimensions == 1 or (dimensions == 3 and who.library == "torch")
        return
    run = found.run if isinstance(found, Made) else found
    right = convolve(layer, *kept)
    for _ in range(2):
        result = np.asarray(run())
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-4)
    assert all(map(np.array_equal, kept, operands))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_im2col_of_doubles(layout):
    """It computes in the dtype of its arrays."""
    layer = replace(SMALL, layout=layout, dtype="float64")
    x, w, bias = draw_layer(layer)
    out = np.full(layer.out_shape, np.nan)
    make_im2col(layer, x, w, bias, out)()
    right = convolve(layer, x, w, bias)
    np.testing.assert_allclose(channels_first(layer, out), right, rtol=1e-12, atol=1e-12)


def test_contenders():
    """Peers are known by name; one that is not is refused."""
    assert [one.layout for one in parse_layer_contenders("none")] == 2 * ["NHWC", "NCHW"]
    with pytest.raises(BenchmarkError, match="no peer 'numpy' computes layers; torch, torch-eager"):
        parse_layer_contenders("numpy")


class TestMeasuring:
    def test_processes_are_kept(self, monkeypatch):
        """For the layers that follow, but not one that failed: its next layer has a new one."""
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent / "support"))
        kinds = [("im2col NCHW", "tilesolve.bench.run.conv_peers:im2col"), ("moody NCHW", MOODY)]
        contenders = [
            *(Contender(name, make, "numpy", layout="NCHW") for name, make in kinds),
            Contender("gone NCHW", "gone:make", "no_such_package", layout="NCHW"),
        ]
        with keep_crew(contenders, Procedure(repeat=2)) as crew:
            seen = []
            for layer in (SMALL, LAYERS["batch"], SMALL):
                used = LayerCase("small", layer, (("net", 2),))
                case = measure_case(used, crew, MACHINE, lambda *_: None)
                seen.append({name: entry.reason for name, entry in case.entries.items()})
                assert len(case.entries["im2col NCHW"].seconds) == 2
                ids = {name: team.workers[0].process.pid for name, (team, _) in crew.teams.items()}
                seen[-1]["process"] = ids
        first, second, third = seen
        assert first["gone NCHW"] == "not installed"
        assert (first["moody NCHW"], third["moody NCHW"]) == ("", "")
        assert second["moody NCHW"] == "RuntimeError: two images are too many"
        assert "moody NCHW" not in second["process"]
        assert first["process"]["moody NCHW"] != third["process"]["moody NCHW"]
        assert len({one["process"]["im2col NCHW"] for one in seen}) == 1
        assert not any(map(lives, first["process"].values()))

    def test_a_wrong_result_is_found(self, monkeypatch):
        """At single places, or by the sums that others found."""
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent / "support"))
        contender = Contender("wrong NCHW", "fake_conv_peers:wrong", "numpy", layout="NCHW")
        with keep_crew([contender], Procedure(repeat=1)) as crew:
            used = LayerCase("small", SMALL, (("net", 1),))
            case = measure_case(used, crew, MACHINE, lambda *_: None)
        assert "wrong result: 0 where" in case.entries["wrong NCHW"].reason

    def test_command(self, tmp_path):
        """A sweep of one layer is kept, written, and not made again."""
        file, page = tmp_path / "found.json", tmp_path / "page.md"
        asked = ["bench", "resnet18", "--case", "256-512 1x1 *", "--peers", "im2col"]
        asked += ["--repeat", "1", "--machine", str(write_shallow_machine(tmp_path))]
        asked += ["--json", str(file)]
        for _ in range(2):
            done = invoke(*asked, "--page", page, "--csv", tmp_path / "found.csv")
            assert done.exit_code == 0, done.stderr
        assert "0 cases" in done.stderr
        assert "256-512 1x1 14x14 stride 2" in done.stdout
        (case,) = LayerSweep.read(file).cases
        assert all(entry.seconds for entry in case.entries.values())
        assert set(case.figures) == {n for n in case.entries if not n.startswith("im2col")}
        assert {"aligned NHWC", "aligned NCHW", "tilesolve NHWC"} < set(case.figures)
        assert page.read_text("utf-8").count("## layers of resnet18, float32, 1 thread") == 1
        assert (tmp_path / "found.csv").read_text("utf-8").count("\n") == 1 + len(case.entries)

    @pytest.mark.parametrize(
        "option", [("--batch", "1"), ("--plot", "a.png"), ("--html", "a.html")]
    )
    def test_options_that_layers_do_not_take(self, option):
        done = invoke("bench", "sconv", *option)
        assert done.exit_code == 2
        assert f"takes no {option[0]}" in " ".join(done.stderr.replace("│", " ").split())

    def test_problems_stay_reachable(self):
        """The specs over padded inputs have names of their own."""
        asked = ["bench", "resnet18", "--problems", "--case", "no such", "--peers", "none"]
        assert "it has ResNet18-1" in invoke(*asked).stderr


MOODY = "fake_conv_peers:moody"


def lives(number):
    """Whether there is a process of a number that is no zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def case(name, ours, peers, uses=(("net", 1),), layer=SMALL):
    """A measured layer: seconds of ours in NHWC and NCHW, and of peers."""
    times = dict(zip(("tilesolve NHWC", "tilesolve NCHW"), ours, strict=True)) | peers
    entries = {who: Entry((seconds,) * 3, "", 0.2) for who, seconds in times.items()}
    figures = {"tilesolve NHWC": Figures(0.5, 1.5, "compute", 4096.0, 0.1, 0.2)}
    return Result(LayerCase(name, layer, tuple(uses)), entries, figures, peak=1e9)


@pytest.fixture
def sweep():
    """Three layers of two networks, one of them with a peer that failed, and one skipped."""
    pointwise, depthwise = LAYERS["pointwise"], LAYERS["depthwise"]
    both = [("one", 3), ("two", 1)]
    cases = [
        case("a", (1.0, 2.0), {"torch NHWC": 2.0, "torch NCHW": 1.0, "im2col NCHW": 4.0}, both),
        case("b", (4.0, 2.0), {"torch NHWC": 1.0, "im2col NCHW": 8.0}, layer=pointwise,
             uses=[("two", 1)]),
        case("c", (1.0, 1.0), {"torch NHWC": 4.0, "im2col NCHW": 1.0}, layer=depthwise,
             uses=[("two", 2)]),
    ]  # fmt: skip
    failed = cases[1].entries | {"torch NCHW": Entry((), "crashed: SIGSEGV")}
    cases[1] = replace(cases[1], entries=failed)
    cases = [
        replace(one, entries={**one.entries, "openvino NHWC": Entry((), "not installed")})
        for one in cases
    ]
    large = LayerCase("d", LAYERS["batch"], (("one", 1),))
    cases.append(Result(large, skipped="does not fit"))
    names = [*cases[0].entries]
    labels = {name: f"{name}: made {at}" for at, name in enumerate(names)}
    made = Conditions("mine.onnx", None, 1, 1, 3, labels, "toy 123")
    return LayerSweep(made, {"CPU": "a fast one"}, MACHINE.to_toml(), tuple(cases))


class TestTables:
    def test_layers(self, sweep):
        """The worst first, with the ratios that the columns name."""
        columns, rows = list(list_layer_columns(sweep)), list_layer_rows(sweep)
        assert [row[0] for row in rows] == ["b", "a", "c", "d"]
        assert {len(row) for row in rows} == {len(columns)}
        cells = [dict(zip(columns, row, strict=True)) for row in rows]
        ratios = ["to best peer", "in NHWC", "in NCHW", "to im2col", "predicted"]
        assert [cells[1][what] for what in ratios] == ["1.00", "2.00", "0.50", "4.00", "1.50"]
        assert [cells[0][what] for what in ratios[:4]] == ["0.50", "0.25", "4.00", "4.00"]
        assert cells[0]["torch NCHW"] == "crashed"
        assert (cells[1]["times"], cells[1]["packed"]) == ("4", "4.1 kB")
        assert (cells[1]["packing"], cells[1]["predicted packing"]) == ("10.0%", "20.0%")
        assert cells[3]["roofline"] == "skipped"
        assert "openvino NHWC" not in columns

    def test_networks(self, sweep):
        """Sums of times, each layer as often as the network has it; skipped ones count for none."""
        first, second = list_model_rows(sweep)
        assert first[:2] == ("one", "3 of 4")
        assert first[3:] == ("3 s", "-", "3 s", "12 s", "1.00", "4.00", "100%", "10.0%", "20.0%")
        assert second[:2] == ("two", "4")
        assert second[3:] == ("5 s", "-", "4 s", "14 s", "0.80", "2.80", "75%", "10.0%", "20.0%")

    def test_aligned_arrays(self, sweep):
        """A time of each network, and a ratio of each layer, from the faster of the layouts."""
        cases = [
            replace(one, entries={**one.entries, "aligned NHWC": Entry((one.ours / 2,))})
            for one in sweep.cases[:3]
        ]
        labels = {**sweep.conditions.contenders, "aligned NHWC": "aligned NHWC: made"}
        made = replace(sweep.conditions, contenders=labels)
        found = replace(sweep, cases=tuple(cases), conditions=made)
        assert [row[3:5] for row in list_model_rows(found)] == [("3 s", "1.5 s"), ("5 s", "2.5 s")]
        at = list(list_layer_columns(found)).index("to aligned")
        assert {row[at] for row in list_layer_rows(found)} == {"0.50"}
        assert list_layer_means(found)["to aligned"].startswith("0.50, ahead in 0% of 7 layers")
        assert {row[at] for row in list_layer_rows(sweep)[:3]} == {"-"}

    def test_means(self, sweep):
        """Each layer counts as often as networks have it."""
        found = list_layer_means(sweep)
        assert found["layers with a result"] == "7 of 8, 4 different"
        mean = math.prod([1.0**4, 0.5, 1.0**2]) ** (1 / 7)
        assert found["to the best peer"] == f"{mean:.2f}, ahead in 86% of 7 layers, worst 0.50 (b)"
        assert found["pointwise, to im2col"].startswith("4.00, ahead in 100% of 1 layer,")
        assert found["depthwise, to the best peer"].startswith("1.00, ahead in 100% of 2 layers")
        assert "to openvino" not in found
        assert "to im2col" in found

    def test_notes(self, sweep):
        """Who is not installed, who failed, and what was skipped."""
        assert list_notes(sweep) == [
            "openvino NHWC: not installed",
            "b, torch NCHW: crashed: SIGSEGV",
            "d: does not fit",
        ]

    def test_section(self, sweep):
        """All tables are on the page."""
        text = report_layers(sweep).render_section()
        assert text.startswith("## layers of mine, float32, 1 thread\n")
        assert text.count("| --- |") == 6
        assert "| two | 4 |" in text

    def test_no_peers(self, sweep):
        """Tables say nothing of who is not there."""
        alone = tuple(
            replace(one, entries={n: e for n, e in one.entries.items() if n.startswith("tile")})
            for one in sweep.cases[:3]
        )
        labels = {name: name for name in alone[0].entries}
        found = replace(sweep, cases=alone, conditions=replace(sweep.conditions, contenders=labels))
        assert [row[3:] for row in list_model_rows(found)] == [
            ("3 s", *["-"] * 6, "10.0%", "20.0%"),
            ("5 s", *["-"] * 6, "10.0%", "20.0%"),
        ]
        assert list(list_layer_means(found)) == ["layers with a result", "packing"]

    def test_json(self, sweep):
        """Results come back as they were; what is damaged is refused."""
        assert LayerSweep.from_json(sweep.to_json()) == sweep
        assert sweep.to_csv().count("\n") == 2 + sum(len(one.entries) for one in sweep.cases)
        data = json.loads(sweep.to_json())
        for what, value in [("layer", {}), ("figures", {"x": {"packed": -1}}), ("uses", 3)]:
            bad = data | {"cases": [data["cases"][0] | {what: value}]}
            with pytest.raises(TilesolveError, match="damaged"):
                LayerSweep.from_json(json.dumps(bad))
