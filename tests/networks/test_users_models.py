"""Models as users bring them: of any version, quantized, in several files, with any numbers."""

import numpy as np
import pytest

import tilesolve
from tilesolve.contractions.errors import ModelError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_networks import make_model  # noqa: E402

RNG = np.random.default_rng(0)

pytestmark = pytest.mark.usefixtures("planned_at_once")

NEWEST = onnx.defs.onnx_opset_version()


def random(*shape, rng=RNG):
    """Random numbers of a shape."""
    return rng.standard_normal(shape).astype(np.float32)


def of_version(opset, *, whole=True):
    """Nodes as that version has them, and the arrays that they read: what changed most often.

    A batch normalisation is written out where it is not to be whole: ONNX's evaluator takes those
    of old versions for training.
    """
    rng, nodes = np.random.default_rng(opset), []
    arrays = {"w": random(4, 3, 3, 3, rng=rng), "b": random(4, rng=rng)}

    def add(kind, *inputs, **given):
        nodes.append(helper.make_node(kind, list(inputs), [f"v{len(nodes)}"], **given))
        return nodes[-1].output[0]

    def told(kind, x, since, *, array=True, **given):
        """An operator whose numbers are attributes before a version, and inputs from then on."""
        if opset < since:
            return add(kind, x, **given)
        names = []
        for name, value in given.items():
            names.append(f"{name}{len(nodes)}")
            arrays[names[-1]] = np.array(value, np.int64 if array else np.float32)
        return add(kind, x, *names)

    scale, shift, mean, variance = (np.abs(random(4, rng=rng)) + 0.5 for _ in range(4))
    x = add("Conv", "x", "w", "b", pads=[1, 1, 1, 1])
    if whole:
        arrays |= {"s": scale, "h": shift, "m": mean, "v": variance}
        x = add("BatchNormalization", x, "s", "h", "m", "v", epsilon=0.25)
    else:
        scale = scale / np.sqrt(variance + 0.25)
        arrays |= {"s": scale[:, None, None], "h": (shift - mean * scale)[:, None, None]}
        x = add("Add", add("Mul", x, "s"), "h")
    x = told("Clip", x, 11, array=False, min=-1.0, max=2.0)
    x = add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = told("Pad", x, 11, pads=[0, 0, 1, 0, 0, 0, 0, 1])
    x = told("Slice", x, 10, starts=[1], ends=[5], axes=[2])
    x = add("Add", x, add("Sigmoid", x))
    x = told("ReduceSum", x, 13, axes=[3])
    x = told("Squeeze", x, 13, axes=[3])
    x = told("Unsqueeze", x, 13, axes=[1])
    x = add("Softmax", x, axis=3)
    x = told("ReduceMean", x, 18, axes=[1])
    x = add("Flatten", x)
    arrays["d"], arrays["c"] = random(16, 5, rng=rng), random(5, rng=rng)
    x = add("Gemm", x, "d", "c")
    nodes.append(helper.make_node("Relu", [x], ["y"]))
    return nodes, arrays


@pytest.mark.parametrize(
    "opset",
    [
        pytest.param(one, marks=[] if one in (7, 10, 13, NEWEST) else [pytest.mark.slow])
        for one in range(7, NEWEST + 1)
    ],
)
def test_versions_of_operators(opset):
    """From the oldest that is read to the newest that `onnx` knows."""
    x, models = random(1, 3, 8, 8), []
    for whole in (True, False):
        nodes, arrays = of_version(opset, whole=whole)
        models.append(make_model(nodes, {"x": x.shape}, arrays, opset=opset))
    (expected,) = ReferenceEvaluator(models[1]).run(None, {"x": x})
    loaded = tilesolve.onnx.load(models[0])
    np.testing.assert_allclose(loaded(x)["y"], expected, rtol=1e-4, atol=1e-5)
    assert loaded.count == "1 of 1 convolutions are layers, and 1 product"


def quantize(x, scale, zero):
    """Whole numbers, as QuantizeLinear gives them."""
    return np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)


def quantized(form):
    """A convolution, a move and a product of quantized numbers; and how far floats are off."""
    w, d = random(4, 3, 3, 3), random(144, 5)
    arrays = {
        "sx": np.float32(0.05), "zx": np.int8(3), "sw": np.full(4, 0.02, "f"),
        "zw": np.zeros(4, np.int8), "sy": np.float32(0.2), "zy": np.int8(-1),
        "sd": np.float32(0.03), "zd": np.int8(0), "so": np.float32(2), "zo": np.int8(0),
        "w": quantize(w, 0.02, 0), "b": (100 * random(4)).astype(np.int32),
        "d": quantize(d, 0.03, 0), "sb": np.full(4, 0.001, "f"),
    }  # fmt: skip
    node = helper.make_node
    x = [node("QuantizeLinear", ["x", "sx", "zx"], ["qx"])]
    moves = [
        node("Transpose", ["qc"], ["qp"], perm=[0, 2, 1, 3]),
        node("Flatten", ["qp"], ["qf"]),
    ]
    if form == "QLinear":
        nodes = [
            node("QLinearConv", ["qx", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"], ["qc"]),
            *moves,
            node("QLinearMatMul", ["qf", "sy", "zy", "d", "sd", "zd", "so", "zo"], ["qo"]),
        ]
    else:
        nodes = [
            node("DequantizeLinear", ["qx", "sx", "zx"], ["fx"]),
            node("DequantizeLinear", ["w", "sw", "zw"], ["fw"], axis=0),
            node("DequantizeLinear", ["b", "sb"], ["fb"], axis=0),
            node("Conv", ["fx", "fw", "fb"], ["fc"]),
            node("QuantizeLinear", ["fc", "sy", "zy"], ["qc"]),
            *moves,
            node("DequantizeLinear", ["qf", "sy", "zy"], ["ff"]),
            node("DequantizeLinear", ["d", "sd", "zd"], ["fd"]),
            node("MatMul", ["ff", "fd"], ["fo"]),
            node("QuantizeLinear", ["fo", "so", "zo"], ["qo"]),
        ]
    return [*x, *nodes], arrays, node("DequantizeLinear", ["qo", "so", "zo"], ["y"])


@pytest.mark.parametrize("form", ["QLinear", "QDQ"])
@pytest.mark.parametrize("ends", ["floats", "whole"])
def test_quantized_models(form, ends):
    """They run as floats, with one warning; what differs is a few steps of their rounding."""
    nodes, arrays, last = quantized(form)
    if ends == "floats":
        nodes.append(last)
    else:
        nodes.append(helper.make_node("Cast", ["qo"], ["y"], to=TensorProto.FLOAT))
    made = make_model(nodes, {"x": (2, 3, 8, 8)}, arrays, opset=19)
    x = random(2, 3, 8, 8)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    with pytest.warns(UserWarning, match="quantized numbers, which run as floats"):
        loaded = tilesolve.onnx.load(made)
    assert loaded.count == "1 of 1 convolutions are layers, and 1 product"
    step = 2.0 if ends == "floats" else 1.0
    found = loaded(x)["y"]
    assert np.abs(found - expected).max() <= 5 * step
    assert np.abs(found).max() > 10 * step


def test_quantized_inputs():
    """Whole numbers that a model is given are made floats first."""
    node = helper.make_node
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["f"]), node("Relu", ["f"], ["y"])]
    made = make_model(nodes, {"x": (2, 9)}, {"s": np.float32(0.5), "z": np.uint8(7)}, opset=13)
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    x = RNG.integers(0, 20, (2, 9)).astype(np.uint8)
    with pytest.warns(UserWarning, match="run as floats"):
        found = tilesolve.onnx.load(made)(x)["y"]
    np.testing.assert_array_equal(found, np.maximum(0.5 * (x.astype("f") - 7), 0))


def external(folder, whole=False):
    """A model whose weights lie in files beside it, one for all or one for each array."""
    made = make_model(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"])],
        {"x": (1, 3, 6, 6)},
        {"w": random(4, 3, 3, 3), "b": random(4)},
    )
    path = folder / "model.onnx"
    given = {"location": "weights.bin"} if whole else {}
    onnx.save_model(
        onnx.ModelProto.FromString(made.SerializeToString()), path, save_as_external_data=True,
        all_tensors_to_one_file=whole, size_threshold=0, convert_attribute=False, **given,
    )  # fmt: skip
    return made, path


@pytest.mark.parametrize("whole", [True, False])
def test_external_data(whole, tmp_path):
    """By path it is read; else, or where a file is missing, the error names that file."""
    made, path = external(tmp_path, whole)
    x = random(1, 3, 6, 6)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    for source in (path, str(path), onnx.load(path)):
        found = tilesolve.onnx.load(source)(x)["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    file = "weights.bin" if whole else "w"
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(ModelError, match=f"array 'w' in another file, '{file}': give the path"):
            tilesolve.onnx.load(source)
    (tmp_path / file).unlink()
    with pytest.raises(ModelError, match=f"{file}"):
        tilesolve.onnx.load(path)


def test_shapes_that_overflow():
    """Shape arithmetic that leaves 64 bits is refused, and no memory is asked for."""
    node = helper.make_node
    large = numpy_helper.from_array(np.array([2**62], np.int64))
    nodes = [
        node("Constant", [], ["large"], value=large),
        node("Mul", ["large", "four"], ["shape"]),
        node("Expand", ["x", "shape"], ["y"]),
    ]
    for factor in (4, 2):  # which wraps to zero, and to a negative number
        made = make_model(nodes, {"x": (1,)}, {"four": np.array([factor], np.int64)})
        with pytest.raises(ModelError, match="overflow"):
            tilesolve.onnx.load(made)
    nodes[1:2] = []
    nodes[-1].input[1] = "large"
    made = make_model(nodes, {"x": (1,)}, {})
    with pytest.raises(ModelError, match="more than memory"):
        tilesolve.onnx.load(made)
