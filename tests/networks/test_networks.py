"""Convolutions of whole networks are layers, however constants are written; others say why not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tilesolve.contractions.errors import ModelError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_networks import (  # noqa: E402
    Network,
    check_loaded,
    make_model,
    mobilenet_v2,
    resnet18,
)

from tilesolve.bench.network_models import NETWORKS, write_network  # noqa: E402
from tilesolve.networks.works import EvaluatorWork  # noqa: E402

RNG = np.random.default_rng(0)

LONG = ("resnet18", "resnet50", "efficientnet-b0", "convnext-t")
"""Networks that take long, and have little that others have not."""


pytestmark = pytest.mark.usefixtures("planned_at_once")


def load_right(build, dtype, tolerance, **kinds):
    """Load a network that gives what onnx's evaluator gives in float64, of the same numbers."""
    loaded = tilesolve.onnx.load(build(Network(dtype, dtype, **kinds)))
    wide = ReferenceEvaluator(build(Network("float64", dtype, **kinds)))
    shape, kind = loaded.inputs["image"]
    image = RNG.standard_normal(shape).astype(kind)
    (found,) = loaded(image).values()
    assert found.dtype == np.dtype(dtype)
    (expected,) = wide.run(None, {"image": image.astype(np.float64)})
    assert abs(found.astype(np.float64) - expected).max() <= tolerance * abs(expected).max()
    return loaded


@pytest.mark.grid
@pytest.mark.parametrize("folds", [True, False])
@pytest.mark.parametrize(("build", "count"), [(resnet18, 20), (mobilenet_v2, 52)])
def test_all_convolutions_are_layers(build, count, folds):
    """Biases of zeros stand there once, as torch writes them; or batch normalisations do."""
    loaded = load_right(build, "float32", 1e-4, folds=folds)
    assert (len(loaded.layers), loaded.others) == (count + 1, ())
    told = f"{count} of {count} convolutions are layers, and 1 product"
    assert str(loaded).splitlines()[0] == told
    assert repr(loaded) == f"<Model of image: {told}>"
    residuals = sum(layer.has_residual for layer in loaded.layers)
    assert residuals == (8 if build is resnet18 else 10)
    ends = [str(layer).partition("\n")[0].rpartition(", ")[2] for layer in loaded.layers]
    activations = [end for end in ends if end in ("relu", "clip(0,6)")]
    assert len(activations) == (17 if build is resnet18 else 35)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_layers_of_half_precision(dtype):
    """Models of two bytes a number have layers, too, and pipelines in single precision."""
    pytest.importorskip("ml_dtypes")
    loaded = load_right(resnet18, dtype, 0.02 if dtype == "float16" else 0.15)
    assert (len(loaded.layers), loaded.others) == (21, ())
    assert {layer.convolution.dtype for layer in loaded.layers} == {dtype}


@st.composite
def written_constants(draw):
    """Nodes that make an array of a model from others, in some version of the operators."""
    opset = draw(st.sampled_from([11, 13, 17, 21]))
    values = RNG.standard_normal((3, 2, 3, 2)).astype(np.float32)
    steps = draw(st.lists(st.sampled_from(["Identity", "Cast", "Reshape", "Transpose", "Axes"])))
    first, nodes, arrays = "w0", [], {"w0": values}
    if draw(st.booleans()):
        arrays = {}
        nodes = [helper.make_node("Constant", [], ["w0"], value=numpy_helper.from_array(values))]
    for step in steps:
        names = [f"{first}{end}" for end in "abc"]
        if step == "Identity":
            nodes.append(helper.make_node("Identity", [first], names[:1]))
        elif step == "Cast":
            for source, name, kind in ((first, names[1], 11), (names[1], names[0], 1)):
                nodes.append(helper.make_node("Cast", [source], [name], to=kind))
        elif step == "Reshape":
            flat, shape = np.array([-1]), np.array(values.shape)
            arrays |= {f"{first}flat": flat, f"{first}shape": shape}
            nodes += [
                helper.make_node("Reshape", [first, f"{first}flat"], [names[1]]),
                helper.make_node("Reshape", [names[1], f"{first}shape"], [names[0]]),
            ]
        elif step == "Transpose":
            for source, name in ((first, names[1]), (names[1], names[0])):
                nodes.append(helper.make_node("Transpose", [source], [name], perm=[3, 1, 2, 0]))
        else:
            given = {"axes": [1]} if opset < 13 else {}
            axes = [] if given else [f"{first}axes"]
            arrays |= {one: np.array([1]) for one in axes}
            for kind, source, name in (
                ("Unsqueeze", first, names[1]),
                ("Squeeze", names[1], names[0]),
            ):
                nodes.append(helper.make_node(kind, [source, *axes], [name], **given))
        first = names[0]
    return opset, nodes, arrays, first, values


@given(written=written_constants(), also=st.booleans())
@settings(max_examples=40)
def test_weights_computed_of_constants(written, also):
    """They are weights of a layer, whatever constants they are made of, and are kept nowhere else.

    Where an output gives them, too, they are as they should be.
    """
    opset, nodes, arrays, name, values = written
    nodes = [*nodes, helper.make_node("Conv", ["x", name], ["y"])]
    outputs = {"y": 4} | ({name: 4} if also else {})
    loaded = tilesolve.onnx.load(make_model(nodes, {"x": (1, 2, 5, 4)}, arrays, outputs, opset))
    assert (len(loaded.layers), loaded.others) == (1, ())
    x = RNG.standard_normal((1, 2, 5, 4)).astype(np.float32)
    found = loaded(x)
    made = make_model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x.shape}, {"w": values})
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(found["y"], expected, rtol=1e-4, atol=1e-5)
    if also:
        np.testing.assert_array_equal(found[name], values)
    assert len(loaded.program.works) == 1


def branch(nodes, name):
    """A graph within If."""
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 3)
    return helper.make_graph(nodes, name, [], [value])


def without_layers():
    """Models of one convolution that is no layer, with the reason."""
    node, x = helper.make_node, (1, 2, 6)
    w, bias = (RNG.standard_normal(s).astype(np.float32) for s in ((3, 2, 3), (3,)))
    conv = node("Conv", ["x", "w"], ["y"], name="c")
    yield make_model([conv], {"x": x, "w": w.shape}, {}), "its weights 'w' are an input"
    made = node("Mul", ["v", "v"], ["w"])
    yield make_model([made, conv], {"x": x, "v": w.shape}, {}), "its weights 'w' are the result of"
    biased = node("Conv", ["x", "w", "b"], ["y"], name="c")
    yield make_model([biased], {"x": x, "b": (3,)}, {"w": w}), "its bias 'b' is an input"
    shaped = [node("Reshape", ["z", "s"], ["x"]), conv]
    inputs = {"z": x, "s": (3,)}
    yield make_model(shaped, inputs, {"w": w}), "the shape of 'x' is not known before it runs"
    turned = node("ConvTranspose", ["x", "w"], ["y"], name="c", strides=[4])
    yield make_model([turned], {"x": x}, {"w": w.swapaxes(0, 1).copy()}), "it is transposed, and"
    inner = [node("Conv", ["x", "w", "b"], ["t"], name="c")]
    other = [node("Identity", ["x"], ["e"])]
    choice = node("If", ["go"], ["y"], name="i", then_branch=branch(inner, "t"),
                  else_branch=branch(other, "e"))  # fmt: skip
    inputs = {"x": x, "go": ()}
    yield make_model([choice], inputs, {"w": w, "b": bias}), "it stands within If 'i'"


@pytest.mark.filterwarnings("ignore:.*(Reshape|If)")
@pytest.mark.parametrize(("made", "reason"), list(without_layers()))
def test_convolutions_without_layers(made, reason):
    """The model says which they are and why; its results are right."""
    loaded = tilesolve.onnx.load(made)
    (other,) = loaded.others
    assert (loaded.layers, other.name) == ((), "c")
    assert other.reason.startswith(reason)
    lines = str(loaded).splitlines()
    assert lines[0] == "0 of 1 convolutions are layers"
    assert f"{other.operator} 'c' is no layer: {other.reason}" in lines
    given = {
        name: RNG.standard_normal(shape).astype(np.float32)
        for name, (shape, _) in loaded.inputs.items()
    }
    given |= {"s": np.array([1, 2, 6])} if "s" in given else {}
    given |= {"go": np.array(True)} if "go" in given else {}
    check_loaded(made, given)


@pytest.mark.filterwarnings("ignore:.*If")
def test_results_read_within_another_graph():
    """What a branch of If reads stays, though one node alone reads it beside that."""
    node, w = helper.make_node, RNG.standard_normal((3, 2, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("If", ["go"], ["i"], then_branch=branch([node("Neg", ["c"], ["t"])], "t"),
             else_branch=branch([node("Identity", ["c"], ["e"])], "e")),
        node("Add", ["r", "i"], ["y"]),
    ]  # fmt: skip
    made = make_model(nodes, {"x": (1, 2, 6), "go": ()}, {"w": w})
    given = {"x": RNG.standard_normal((1, 2, 6)).astype(np.float32), "go": np.array(True)}
    assert len(check_loaded(made, given).layers) == 1


def test_identities_between_nodes():
    """What follows an Identity becomes part of the layer, too."""
    node, w = helper.make_node, RNG.standard_normal((3, 2, 3)).astype(np.float32)
    nodes = [
        node("Identity", ["x"], ["x2"]),
        node("Conv", ["x2", "w"], ["c"]),
        node("Identity", ["c"], ["c2"]),
        node("Identity", ["c2"], ["c3"]),
        node("Relu", ["c3"], ["r"]),
        node("Identity", ["r"], ["y"]),
    ]
    made = make_model(nodes, {"x": (1, 2, 6)}, {"w": w})
    loaded = check_loaded(made, {"x": RNG.standard_normal((1, 2, 6)).astype(np.float32)})
    assert str(loaded.layers[0]).partition("\n")[0].endswith(", relu")


def test_convolutions_of_functions():
    """Functions that the model defines are put where they are called."""
    node, w = helper.make_node, RNG.standard_normal((3, 2, 3)).astype(np.float32)
    block = helper.make_function(
        *("own", "Block", ["a", "v"], ["b"]),
        [node("Conv", ["a", "v"], ["c"]), node("Relu", ["c"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    made = make_model([node("Block", ["x", "w"], ["y"], domain="own")], {"x": (1, 2, 6)}, {"w": w},
                 functions=[block], versions=[helper.make_opsetid("own", 1)])  # fmt: skip
    loaded = check_loaded(made, {"x": RNG.standard_normal((1, 2, 6)).astype(np.float32)})
    assert (len(loaded.layers), loaded.others) == (1, ())
    assert len(tilesolve.onnx.layers(made)) == 1


def test_constants_that_cannot_be_computed():
    """An operator of constants that fails is named."""
    nodes = [
        helper.make_node("Reshape", ["v", "s"], ["w"], name="bad"),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    arrays = {"v": np.ones(7, np.float32), "s": np.array([3, 2, -1])}
    with pytest.raises(ModelError, match=r"is damaged|Reshape 'bad' of constants"):
        tilesolve.onnx.load(make_model(nodes, {"x": (1, 2, 6)}, arrays))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_operators_of_half_precision(kind):
    """What follows one another is rounded at its end; casts to halves are the end of it, too."""
    pytest.importorskip("ml_dtypes")
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    node, shape = helper.make_node, (1, 3, 6, 8)
    nodes = [
        node("Cast", ["x"], ["h"], to=kind),
        node("MaxPool", ["h"], ["p"], kernel_shape=[3, 3], pads=[1] * 4),
        node("Mul", ["p", "w"], ["m"]),
        node("Exp", ["m"], ["e"]),
        node("Cast", ["e"], ["y"], to=TensorProto.FLOAT),
        node("Greater", ["e", "h"], ["g"]),
        node("Cast", ["g"], ["z"], to=TensorProto.FLOAT),
    ]
    w = (0.25 * RNG.standard_normal((3, 1, 1))).astype(dtype)
    loaded = tilesolve.onnx.load(make_model(nodes, {"x": shape}, {"w": w}, {"y": 4, "z": 4}))
    assert not [work for work in loaded.program.works if isinstance(work, EvaluatorWork)]
    x = RNG.standard_normal(shape).astype(np.float32)
    found = loaded(x)
    h = x.astype(dtype).astype(np.float32)
    wide = np.pad(h, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    p = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3)).max((-1, -2))
    e = np.exp(p * w.astype(np.float32))
    slack = 2 * float(np.finfo(dtype).eps) if kind == TensorProto.FLOAT16 else 2**-6
    np.testing.assert_allclose(found["y"], e, rtol=slack)
    sure = abs(e - h) > slack * e
    np.testing.assert_array_equal(found["z"][sure], (e > h)[sure])


@given(
    turns=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    sizes=st.tuples(*[st.integers(1, 9)] * 4),
)
@examples(6, 15)
def test_products_of_turned_operands(turns, sizes):
    """Products of arrays as Transpose leaves them, and one behind, which needs no copy."""
    b, m, n, k = sizes
    shapes = {"a": (b, 2, m, k), "b": (b, 2, k, n)}
    nodes, names = [], []
    for name, turn in zip("ab", turns, strict=False):
        if turn:
            shapes[name] = tuple(shapes[name][axis] for axis in (0, 3, 1, 2))
            nodes.append(helper.make_node("Transpose", [name], [f"{name}t"], perm=[0, 2, 3, 1]))
        names.append(f"{name}t" if turn else name)
    nodes.append(helper.make_node("MatMul", names, ["c"]))
    last = ["Transpose", "Reshape"] if turns[2] else ["Identity", "Relu"]
    nodes.append(
        helper.make_node(last[0], ["c"], ["t"], **({"perm": [0, 2, 1, 3]} if turns[2] else {}))
    )
    shape = np.array([b, m, -1])
    nodes.append(helper.make_node(last[1], ["t", *(["shape"] if turns[2] else [])], ["y"]))
    made = make_model(
        nodes, shapes, {"shape": shape} if turns[2] else {}, {"y": 3 if turns[2] else 4}
    )
    given = {name: RNG.standard_normal(one).astype(np.float32) for name, one in shapes.items()}
    loaded = check_loaded(made, given)
    assert len(loaded.program.works) <= 2 + (not turns[2])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in NETWORKS],
)
def test_whole_networks(name):
    """All that benchmarks run: nothing is left to ONNX's evaluator, and results are its."""
    made = write_network(name, 64, shares=True)
    loaded = tilesolve.onnx.load(made)
    assert not [work for work in loaded.program.works if isinstance(work, EvaluatorWork)]
    assert loaded.others == ()
    assert loaded.least_bytes <= loaded.bytes <= 1.3 * loaded.least_bytes
    assert loaded._recent.bound.inputs["image"].flags.c_contiguous  # layers copy windows of it
    image = RNG.standard_normal((1, 3, 64, 64)).astype(np.float32)
    (expected,) = ReferenceEvaluator(made).run(None, {"image": image})
    for _ in range(3):  # nothing that a call leaves in the arena is read by the next one
        loaded._recent.bound.inputs["image"].base.fill(255)
        (found,) = loaded(image).values()
        assert abs(found - expected).max() <= 1e-5 * abs(expected).max()
