"""ONNX models: their operators and fused layers give what ONNX's own evaluator gives."""

from unittest.mock import patch

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.errors import DtypeError, ModelError, SizeError
from tilesolve.networks.files import read_transposed_arguments

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_networks import check_loaded, make_model  # noqa: E402

RNG = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("planned_at_once")


def random(*shape):
    """Random numbers of a shape."""
    return RNG.standard_normal(shape).astype(np.float32)


ATTRIBUTES = [
    ((1, 4, 9), (6, 4, 3), {}),
    ((2, 4, 9, 8), (6, 4, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((2, 4, 9, 8), (6, 2, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 3], "group": 2}),
    ((2, 4, 9, 8), (4, 1, 2, 2), {"auto_pad": "SAME_LOWER", "group": 4, "kernel_shape": [2, 2]}),
    ((1, 4, 9, 8), (2, 4, 2, 2), {"auto_pad": "VALID", "dilations": [3, 2]}),
    ((1, 2, 5, 6, 7), (3, 2, 3, 2, 1), {"pads": [1, 1, 0, 1, 0, 0], "dilations": [2, 1, 1]}),
]
"""Shapes of images and of weights, and attributes of a Conv."""


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), ATTRIBUTES)
def test_convolutions(x_shape, w_shape, attributes):
    """The operator, with and without bias, and the layer that `load` makes of it."""
    x, w, bias = random(*x_shape), random(*w_shape), random(w_shape[0])
    for names in (["x", "w"], ["x", "w", "b"]):
        constants = {"w": w, "b": bias}
        made = make_model([helper.make_node("Conv", names, ["y"], **attributes)],
                     {"x": x_shape}, {name: constants[name] for name in names[1:]})  # fmt: skip
        (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
        (ours,) = ReferenceEvaluator(made, new_ops=tilesolve.onnx.operators()).run(None, {"x": x})
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
        loaded = check_loaded(made, {"x": x})
        (listed,) = tilesolve.onnx.layers(made)
        ran = loaded.layers[0].convolution
        assert (listed.flops, listed.groups, listed.stride) == (ran.flops, ran.groups, ran.stride)


def test_products():
    """Gemm with all its attributes, MatMul with batches, vectors and broadcasting."""
    gemms = [
        ({}, (3, 4), (4, 5), None),
        ({"transA": 1, "alpha": 0.5}, (4, 3), (4, 5), (5,)),
        ({"transB": 1, "beta": 2.0}, (3, 4), (5, 4), (3, 1)),
    ]
    for attributes, *shapes in gemms:
        operands = {n: random(*s) for n, s in zip("abc", shapes, strict=True) if s is not None}
        check_operator("Gemm", operands, attributes)
    for shapes in [((3, 4), (4, 5)), ((4,), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((4,), (4,))]:
        check_operator("MatMul", {n: random(*s) for n, s in zip("ab", shapes, strict=True)}, {})


def test_pooling():
    """The largest values, also where the evaluator does it itself."""
    for attributes in (
        {"kernel_shape": [3, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 1, 2]},
        {"kernel_shape": [2, 3], "dilations": [2, 1], "strides": [1, 2]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"},
    ):
        check_operator("MaxPool", {"x": random(2, 3, 9, 8)}, attributes)


def check_operator(kind, operands, attributes):
    """Compare an operator of ours to ONNX's."""
    node = helper.make_node(kind, list(operands), ["y"], **attributes)
    shapes = {name: array.shape for name, array in operands.items()}
    made = make_model([node], shapes, {})
    (expected,) = ReferenceEvaluator(made).run(None, operands)
    (ours,) = ReferenceEvaluator(made, new_ops=tilesolve.onnx.operators()).run(None, operands)
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


def block(outputs=None, opset=17):
    """A model of which three layers become two: norm, residual, activations."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "g", "b", "m", "v"], ["a2"], epsilon=0.01),
        node("LeakyRelu", ["a2"], ["a3"], alpha=0.25),
        node("Conv", ["a3", "w2", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Add", ["a3", "c"], ["d"]),
        node("Clip", ["d", "low", "high"], ["e"]),
        node("GlobalAveragePool", ["e"], ["f"]),
        node("Flatten", ["f"], ["h"]),
        node("Gemm", ["h", "w3"], ["y"], transB=1),
    ]
    constants = {
        **{"w1": random(6, 3, 3, 3), "w2": random(6, 6, 3, 3), "w3": random(4, 6)},
        **{"g": random(6), "b": random(6), "m": random(6), "v": random(6) ** 2},
        **{"low": np.float32(-1), "high": np.array(1, np.float32)},
    }
    return make_model(nodes, {"x": (2, 3, 7, 7)}, constants, outputs or {"y": 2}, opset)


def test_what_follows_becomes_part_of_layers(tmp_path):
    """One layer has norm and activation, one bias, residual and clip; also from a file."""
    made, x = block(), random(2, 3, 7, 7)
    onnx.save(made, tmp_path / "block.onnx")
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    for source in (made, tmp_path / "block.onnx", made.SerializeToString()):
        loaded = tilesolve.onnx.load(source)
        np.testing.assert_allclose(loaded({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
        first, head, *lines = str(loaded).splitlines()
        assert first == "2 of 2 convolutions are layers, and 1 product"
        assert head.split() == ["work", "predicted", "share", "bytes"]
        works = (
            "conv 3x3 3→6, 7x7, batch 2, padding 1, NHWC float32, bias, leaky(0.25)",
            "conv 3x3 6→6, 7x7, batch 2, padding 1, NHWC float32, bias, residual, clip(-1,1)",
            "GlobalAveragePool",
            "conv 1 6→4, 2, NHWC float32",
        )
        assert all(line.strip().startswith(work) for line, work in zip(lines, works, strict=False))
        assert lines[-3].startswith("all works: predicted ")
        assert lines[-2].startswith("arrays take ")
        measured = loaded.measure(x, rounds=2)
        assert len(measured) == len(works)
        assert "measured" in loaded.report(measured).splitlines()[1]
    assert tilesolve.onnx.layers(tmp_path / "block.onnx") == [
        Convolution.of((2, channels, 7, 7), (6, channels, 3, 3), padding=1) for channels in (3, 6)
    ]


def test_what_else_is_read_stays():
    """A result that the model gives, or that two nodes read, ends a layer."""
    made, x = block(outputs={"a2": 4, "c": 4, "y": 2}), random(2, 3, 7, 7)
    loaded = check_loaded(made, {"x": x})
    assert [str(one).count("clip") + str(one).count("leaky") for one in loaded.layers] == [0, 0, 0]


def test_weights_that_are_inputs():
    """They are no constants: the operator convolves, not a layer."""
    made = make_model([helper.make_node("Conv", ["x", "w"], ["y"])],
                 {"x": (1, 2, 5), "w": (3, 2, 3)}, {})  # fmt: skip
    assert check_loaded(made, {"x": random(1, 2, 5), "w": random(3, 2, 3)}).layers == ()


def test_bad_inputs():
    """Names, shapes and dtypes are looked at before anything runs."""
    loaded, x = tilesolve.onnx.load(block()), random(2, 3, 7, 7)
    for given, error, message in (
        ({}, ModelError, "inputs are x, got none"),
        ({"x": x, "z": x}, ModelError, "inputs are x, got x, z"),
        (
            {"x": x[:1]},
            SizeError,
            r"'x' has the shape \(1, 3, 7, 7\), the model has \(2,",
        ),
        ({"x": x.astype(float)}, DtypeError, "'x' is float64, the model has float32"),
    ):
        with pytest.raises(error, match=message):
            loaded(given)


def test_one_array_for_one_input():
    """It needs no name; a model of several inputs names them."""
    made, x = block(), random(2, 3, 7, 7)
    loaded = tilesolve.onnx.load(made)
    np.testing.assert_array_equal(loaded(x)["y"], loaded({"x": x})["y"])
    add = helper.make_node("Add", ["a", "b"], ["y"])
    two = tilesolve.onnx.load(make_model([add], {"a": (2,), "b": (2,)}, {}))
    lines = str(two).splitlines()
    assert (lines[0], lines[2].split()[0]) == ("no convolutions", "Add")
    for called, given, error, message in (
        (loaded, x[0], SizeError, r"'x' has the shape \(3, 7, 7\), the model has \(2,"),
        (loaded, None, SizeError, r"'x' has the shape \(\)"),
        (loaded, [[1], [2, 3]], DtypeError, "input 'x' is no array"),
        (two, x, ModelError, r"has 2 inputs: give .* by its name, {'a': \.\.\., 'b': \.\.\.}"),
        (two, {"a": x, 3: x}, ModelError, "inputs are a, b, got 3, a"),
    ):
        with pytest.raises(error, match=message):
            called(given)


def test_outputs_without_shapes():
    """ONNX allows them; the model runs."""
    made, x = block(), random(2, 3, 7, 7)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    made.graph.output[0].type.tensor_type.ClearField("shape")
    for source in (made, made.SerializeToString()):
        found = tilesolve.onnx.load(source)({"x": x})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert len(tilesolve.onnx.layers(source)) == 2
    assert not made.graph.output[0].type.tensor_type.HasField("shape")


def test_operators_of_others():
    """Convolutions of a model are listed beside an operator that only somebody else knows."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BiasGelu", ["c"], ["y"], domain="com.other"),
    ]
    made = make_model(nodes, {"x": (1, 2, 5)}, {"w": random(3, 2, 3)}, {"y": 3})
    made.opset_import.append(helper.make_opsetid("com.other", 1))
    assert len(tilesolve.onnx.layers(made)) == 1
    with pytest.raises(ModelError, match=r"cannot be run: .*'BiasGelu' from domain 'com\.other'"):
        tilesolve.onnx.load(made)


def damaged():
    """Models that cannot be, with what is said about them."""
    conv = lambda x, w, **more: make_model(  # noqa: E731
        [helper.make_node("Conv", ["x", "w"], ["y"], **more)], {"x": x}, {"w": random(*w)}
    )
    yield block().SerializeToString()[:300], "is damaged"
    yield b"", "is damaged: it has no operators"
    yield "missing.onnx", "missing.onnx cannot be read"
    yield block(opset=6), "operators of version 6; versions 7 to"
    yield block(opset=999), "operators of version 999"
    yield conv((2, 3, 7, 7), (4, 2, 3, 3)), "w has 2 channels|is damaged"
    yield conv((2, 3, 7, 7), (4, 3, 3, 3), kernel_shape=[2, 2]), "kernel_shape|is damaged"
    unknown = make_model([helper.make_node("Softly", ["x"], ["y"])], {"x": (1, 2)}, {})
    yield unknown, r"has the operator 'Softly' \(node 'y'\), which version 17 of ONNX's .* not have"
    apart = conv((2, 3, 7, 7), (4, 3, 3, 3))
    apart.graph.initializer[0].data_location = TensorProto.EXTERNAL
    entry = apart.graph.initializer[0].external_data.add()
    entry.key, entry.value = "location", "weights.bin"
    yield apart, "array 'w' in another file, 'weights.bin': give the path of the model"


def test_dynamic_shapes():
    """A model is planned for the shapes that come, or for given ones."""
    w = random(4, 3, 3, 3)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Add", ["r", "z"], ["y"]),
    ]
    made = make_model(nodes, {"x": ("N", 3, "H", "H"), "z": ("N", 4, "H", "H")}, {"w": w}, {"y": 4})
    with pytest.raises(ModelError, match=r"'x' has the dynamic shape \(N, 3, H, H\)"):
        tilesolve.onnx.layers(made)
    loaded = tilesolve.onnx.load(made)
    assert str(loaded) == (
        "a model of x (N, 3, H, H), z (N, 4, H, H), planned when it is first called"
    )
    with pytest.raises(ModelError, match="dynamic shapes, and nothing has run"):
        _ = loaded.program
    for count, side in ((1, 5), (3, 4), (1, 5), (2, 7), (1, 3), (1, 2), (1, 5)):
        given = {"x": random(count, 3, side, side), "z": random(count, 4, side, side)}
        (expected,) = ReferenceEvaluator(made).run(None, given)
        np.testing.assert_allclose(loaded(given)["y"], expected, rtol=1e-4, atol=1e-5)
        assert len(loaded.layers) == 1
    for x, z, error in (
        ((1, 3, 5, 4), (1, 4, 5, 5), r"'x' has the shape \(1, 3, 5, 4\), the model has \(N, 3, H"),
        ((1, 3, 5, 5), (2, 4, 5, 5), r"'z' has the shape \(2, 4, 5, 5\)"),
        ((1, 3, 5), (1, 4, 5, 5), r"'x' has the shape \(1, 3, 5\)"),
    ):
        with pytest.raises(SizeError, match=error):
            loaded({"x": random(*x), "z": random(*z)})
    told = tilesolve.onnx.load(made, shapes={"x": (2, 3, 5, 5), "z": (2, 4, 5, 5)})
    assert told.layers[0].out_shape == (2, 5, 5, 4)
    with pytest.raises(SizeError, match=r"shape \(2, 3, 5, 4\) is given for 'x'"):
        tilesolve.onnx.load(made, shapes={"x": (2, 3, 5, 4), "z": (2, 4, 5, 5)})
    with pytest.raises(ModelError, match="inputs are x, z, shapes are of x"):
        tilesolve.onnx.load(made, shapes={"x": (2, 3, 5, 5)})
    missing = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": None}, {})
    np.testing.assert_array_equal(tilesolve.onnx.load(missing)(np.float32([-1, 2]))["y"], [0, 2])
    with pytest.raises(ModelError, match="input 'x' has no shape: give it numbers"):
        tilesolve.onnx.layers(missing)


@pytest.mark.parametrize(("source", "message"), list(damaged()))
def test_damaged_models(source, message):
    """An error says which model and why."""
    for read in (tilesolve.onnx.load, tilesolve.onnx.layers):
        with pytest.raises((ModelError, SizeError), match=message) as caught:
            read(source)
        assert str(caught.value).count("damaged") <= 1


TRANSPOSED = [
    ((1, 2, 5), (2, 3, 3), {}),
    ((2, 4, 5, 4), (4, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    (
        (1, 4, 5, 4),
        (4, 2, 3, 3),
        {"strides": [2, 2], "output_padding": [1, 0], "dilations": [1, 2]},
    ),
    ((1, 3, 5, 4), (3, 2, 3, 3), {"strides": [2, 1], "auto_pad": "SAME_UPPER"}),
    ((1, 3, 5, 4), (3, 2, 4, 2), {"strides": [3, 1], "auto_pad": "SAME_LOWER"}),
    ((1, 3, 5), (3, 2, 3), {"strides": [2], "auto_pad": "VALID", "kernel_shape": [3]}),
]
"""Shapes of images and of weights, and attributes of a ConvTranspose."""


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), TRANSPOSED)
def test_transposed_convolutions(x_shape, w_shape, attributes):
    """The operator, with and without bias, also in models of ours; layers are others alone."""
    x, w, bias = random(*x_shape), random(*w_shape), random(w_shape[1])
    for names in (["x", "w"], ["x", "w", "b"]):
        operands = {"x": x, "w": w, "b": bias}
        node = helper.make_node("ConvTranspose", names, ["y"], **attributes)
        made = make_model([node], {"x": x_shape}, {name: operands[name] for name in names[1:]})
        check_loaded(made, {"x": x})
        assert tilesolve.onnx.layers(made) == []


def test_the_shape_of_a_transposed_convolution():
    """A shape that is asked for decides the padding, of which the end has less."""
    x, w = random(1, 2, 5), random(2, 3, 4)
    for size, lack in ((9, (2, 1)), (12, (0, 0))):
        node = helper.make_node(
            "ConvTranspose", ["x", "w"], ["y"], strides=[2], output_shape=[size]
        )
        found = tilesolve.onnx.load(make_model([node], {"x": x.shape}, {"w": w}))({"x": x})["y"]
        expected = tilesolve.conv_transpose(x, w, stride=2, padding=[lack])
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(
        ModelError, match=r"output_shape of a ConvTranspose is \(13,\), .* too large"
    ):
        read_transposed_arguments({"strides": [2], "output_shape": [13]}, x.shape, w.shape)
    with pytest.raises(ModelError, match="auto_pad of a ConvTranspose is 'SAME'"):
        read_transposed_arguments({"auto_pad": "SAME"}, x.shape, w.shape)


def test_without_the_package():
    """An error says how to install it."""
    with patch.dict("sys.modules", onnx=None), pytest.raises(ModelError, match="pip install"):
        tilesolve.onnx.layers("any.onnx")
