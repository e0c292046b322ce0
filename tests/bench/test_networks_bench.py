"""Sweeps of whole networks: what is measured, who runs it, and what is shown of it."""

import csv

import numpy as np
import pytest
from commands import bench

from tilesolve.bench.contenders import NETWORK_PEERS, parse_network_contenders
from tilesolve.bench.results.sweeps import NetworkSweep
from tilesolve.bench.run import network_peers
from tilesolve.bench.run.network_layers import match_nodes
from tilesolve.contractions.errors import BenchmarkError, ModelError
from tilesolve.machine.model import Machine
from tilesolve.networks.graph import Node
from tilesolve.networks.works import LayerWork, PipelineWork

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from tilesolve.bench.networks import NetworkCase, WholeNetwork, find_networks  # noqa: E402

MACHINE = Machine.load("i7-6700k")


def small_model(extents=(1, 2, 6, 5)):
    """A model of one convolution."""
    value = helper.make_tensor_value_info
    w = np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])],
        "small",
        [value("x", TensorProto.FLOAT, extents)],
        [value("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("peer", ["tilesolve", *NETWORK_PEERS])
def test_contenders_compute_what_onnx_does(peer, tmp_path):
    """A small model, poisoned results; a wrong element is found."""
    if peer != "tilesolve":
        pytest.importorskip(peer)
    onnx.save(small_model(), tmp_path / "small.onnx")
    (case,) = find_networks(str(tmp_path / "small.onnx")).values()
    *operands, out = case.draw()
    out.fill(77)
    expected = case.expect(operands)
    made = getattr(network_peers, peer)(case.work, MACHINE, 1, operands, out)
    found = getattr(made, "run", made)().copy()
    assert expected.describe_fault(found) == ""
    found.flat[3] += 1
    assert "at 1 of" in expected.describe_fault(found)


def test_names_choose_networks_and_contenders():
    """Patterns, a file, and peers that run whole networks."""
    assert list(find_networks("networks", chosen=["*net*", "u-net"]))[:2] == [
        "resnet18",
        "resnet50",
    ]
    assert find_networks("some/mine.onnx") == {
        "mine": NetworkCase("mine", WholeNetwork("some/mine.onnx"))
    }
    with pytest.raises(BenchmarkError, match="no network"):
        find_networks("networks", chosen=["alexnet"])
    assert [one.name for one in parse_network_contenders("none")] == ["tilesolve"]
    with pytest.raises(BenchmarkError, match="whole networks"):
        parse_network_contenders("tblis")


def test_the_command_measures_a_file(tmp_path):
    """From end to end, with all files; what needs another option is refused."""
    file, page = tmp_path / "small.onnx", tmp_path / "page.md"
    cells, results = tmp_path / "a.csv", tmp_path / "a.json"
    onnx.save(small_model(), file)
    done = bench(
        *(file, "--whole", "--peers", "none", "--repeat", 1, "--machine", "i7-6700k"),
        *("--page", page, "--csv", cells, "--json", results),
    )
    assert done.exit_code == 0, done.output
    text = page.read_text("utf-8").replace("\n", " ")
    assert "1 of 1 convolutions are layers" in text
    assert "hold what earlier runs left" in text
    sweep = NetworkSweep.read(results)
    assert NetworkSweep.from_json(sweep.to_json()) == sweep
    (case,) = sweep.cases
    assert case.seconds("tilesolve") > 0
    assert case.plan.predicted > 0
    assert case.plan.again > 0
    assert "| loading | again |" in text
    (row,) = csv.DictReader(cells.read_text("utf-8").splitlines())
    assert (row["contender"], float(row["cold_s"]) > 0) == ("tilesolve", True)
    for words, message in (
        (("tccg", "--whole"), "--whole is of an ONNX file"),
        (("networks", "--dtype", "f64"), "a sweep of networks takes no --dtype"),
        (("tccg", "--within"), "--within is of an ONNX file"),
        ((file, "--within", "--whole"), "--within takes no --whole"),
    ):
        refused = bench(*words)
        assert refused.exit_code == 2
        assert message in " ".join(refused.output.replace("│", " ").split())
    done = bench(file, "--within", "--repeat", 2, "--machine", "i7-6700k")
    assert done.exit_code == 0, done.output
    assert "the price is within 25% for" in done.output
    assert done.output.splitlines()[2].split()[:2] == ["conv", "3x3"]
    dynamic = tmp_path / "dynamic.onnx"
    onnx.save(small_model(("N", 2, 6, 5)), dynamic)
    with pytest.raises(ModelError, match="dynamic shape"):
        find_networks(str(dynamic))["dynamic"].draw()


def test_nodes_of_others_are_layers_of_ours():
    """By the names of what is in a layer, with something behind; none by half of a name."""
    onnx_runtime = [
        ("relu_1_nchwc", "Conv", 2.0),
        ("mul_9/QuickGeluFusion/", "QuickGelu", 0.5),
        ("conv_8_nchwc", "Conv", 1.0),
        ("conv_80_nchwc", "Conv", 8.0),
        ("pool_2", "MaxPool", 4.0),
    ]
    names = [["conv_0", "relu_1"], ["pool_2"], ["conv_8", "mul_9"]]
    works = [
        LayerWork([Node("", [], [name]) for name in several], None, False, None, None)
        for several in names
    ]
    works[1] = PipelineWork(works[1].nodes, None, [], [])
    assert match_nodes(works, onnx_runtime) == {0: 2.0, 2: 1.5}
