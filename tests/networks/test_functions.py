"""Operators as NumPy functions: each gives what ONNX's own evaluator gives, traced or not."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tilesolve.contractions.errors import TraceError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tilesolve.networks.graph import Node  # noqa: E402
from tilesolve.networks.windows import FUNCTIONS  # noqa: E402

RNG = np.random.default_rng(0)
OPSET = onnx.defs.onnx_opset_version()

EXTENTS = st.integers(1, 5)
FLOATS = st.sampled_from(["float32", "float64"])

ONE = (
    "Abs Neg Floor Ceil Round Exp Tanh Sin Cos Tan Sign Relu "
    "Sigmoid Softplus Softsign Mish HardSwish"
)
TWO = "Add Sub Mul Div Equal Less LessOrEqual Greater GreaterOrEqual Max Min Sum Mean"
WITH_NUMBERS = {
    "LeakyRelu": ["alpha"],
    "Elu": ["alpha"],
    "Selu": ["alpha", "gamma"],
    "Celu": ["alpha"],
    "ThresholdedRelu": ["alpha"],
    "HardSigmoid": ["alpha", "beta"],
}
REDUCTIONS = "Sum Mean Max Min Prod SumSquare L1 L2"


def numbers(shape, dtype="float32"):
    """Numbers of either sign, none of them near a whole one."""
    whole = RNG.integers(-3, 4, shape)
    return (whole + 0.3 + 0.4 * RNG.random(shape)).astype(dtype)


@st.composite
def shapes(draw, least=1, most=4):
    """A shape."""
    return tuple(draw(st.lists(EXTENTS, min_size=least, max_size=most)))


@st.composite
def elementwise(draw):
    """An operator of elements."""
    dtype, shape = draw(FLOATS), draw(shapes())
    kind = draw(st.sampled_from([*ONE.split(), *TWO.split(), *WITH_NUMBERS]))
    given_numbers = {
        name: draw(st.sampled_from([0.25, 0.5, 1.5])) for name in WITH_NUMBERS.get(kind, ())
    }
    arrays = [numbers(shape, dtype)]
    if kind in TWO.split():
        other = [draw(st.sampled_from([1, n])) for n in shape]
        arrays.append(numbers(other[draw(st.integers(0, len(other) - 1)) :], dtype))
    return kind, arrays, given_numbers


@st.composite
def reductions(draw):
    """A reduction, softmax or normalisation along some axes."""
    shape, dtype = draw(shapes()), draw(FLOATS)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    kind = draw(st.sampled_from(["Reduce", "Softmax", "LogSoftmax", "LayerNormalization"]))
    if kind == "Reduce":
        axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
        kind += draw(st.sampled_from(REDUCTIONS.split()))
        return kind, [numbers(shape, dtype), np.array(axes)], {"keepdims": draw(st.integers(0, 1))}
    if kind != "LayerNormalization":
        return kind, [numbers(shape, dtype)], {"axis": axis}
    wide = (*shape, 3)
    axis = draw(st.integers(-len(wide), len(wide) - 1))
    own = wide[axis % len(wide) :]
    return kind, [numbers(wide, dtype), numbers(own, dtype), numbers(own, dtype)], {"axis": axis}


@st.composite
def normalisations(draw):
    """A normalisation by channels."""
    kind, channels = draw(st.sampled_from(["Instance", "Batch"])), draw(EXTENTS)
    x = numbers((draw(EXTENTS), channels, draw(EXTENTS), 3))
    scale, bias = numbers((channels,)), numbers((channels,))
    more = [numbers((channels,)), scale**2] if kind == "Batch" else []
    return f"{kind}Normalization", [x, scale, bias, *more], {}


@st.composite
def moves(draw):
    """An operator that puts elements elsewhere."""
    shape = draw(shapes(2, 4))
    x, rank = numbers(shape), len(shape)
    kind = draw(
        st.sampled_from(
            [
                "Transpose",
                "Flatten",
                "Unsqueeze",
                "Squeeze",
                "Slice",
                "Concat",
                "Expand",
                "Tile",
                "Pad",
                "Gather",
                "Reshape",
                "Split",
            ]
        )
    )
    axis = draw(st.integers(-rank, rank - 1))
    if kind == "Transpose":
        return kind, [x], {"perm": draw(st.permutations(range(rank)))}
    if kind == "Flatten":
        return kind, [x], {"axis": draw(st.integers(-rank, rank))}
    if kind == "Unsqueeze":
        axes = draw(st.lists(st.integers(0, rank), min_size=1, max_size=2, unique=True))
        return kind, [x, np.array(axes)], {}
    if kind == "Squeeze":
        return kind, [x[:, None], np.array([1])], {}
    if kind == "Slice":
        step = draw(st.sampled_from([1, 2, -1, -2]))
        begin, end = draw(st.integers(-6, 6)), draw(st.integers(-9, 9))
        return kind, [x, *(np.array([one]) for one in (begin, end, axis, step))], {}
    if kind == "Concat":
        return kind, [x, numbers(shape), x], {"axis": axis}
    if kind == "Expand":
        return kind, [x[:, :1], np.array([2, 1, 5, *[1] * (rank - 2)])], {}
    if kind == "Tile":
        return kind, [x, np.array([draw(st.integers(1, 3)) for _ in range(rank)])], {}
    if kind == "Pad":
        ends = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
        mode = draw(st.sampled_from(["constant", "edge"]))
        filled = [np.float32(0.5)] if mode == "constant" else []
        return kind, [x, np.array(ends), *filled], {"mode": mode}
    if kind == "Gather":
        extent = shape[axis]
        at = draw(st.lists(st.integers(-extent, extent - 1), min_size=1, max_size=4))
        return kind, [x, np.array(at if draw(st.booleans()) else at[0])], {"axis": axis}
    if kind == "Reshape":
        return kind, [x, np.array([0, -1])], {}
    return kind, [np.concatenate([x, x, x], axis)], {"axis": axis, "num_outputs": 3}


@st.composite
def blocks(draw):
    """Depth to space and back, and images that are resized."""
    kind = draw(st.sampled_from(["DepthToSpace", "SpaceToDepth", "Resize"]))
    if kind == "DepthToSpace":
        mode = draw(st.sampled_from(["DCR", "CRD"]))
        return kind, [numbers((2, 8, 3, 2))], {"blocksize": 2, "mode": mode}
    if kind == "SpaceToDepth":
        return kind, [numbers((2, 3, 4, 6))], {"blocksize": 2}
    x, none = numbers((1, 2, 6, 4)), np.array([], np.float32)
    where = draw(
        st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    )
    mode = draw(st.sampled_from(["nearest", "linear"]))
    found = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        rounds = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        found["nearest_mode"] = draw(st.sampled_from(rounds))
    factors = [1, 1, *(draw(st.sampled_from([1, 2, 3, 0.5])) for _ in range(2))]
    return kind, [x, none, np.array(factors, np.float32)], found


ALL = st.one_of(elementwise(), reductions(), normalisations(), moves(), blocks())


def reference(kind, arrays, attributes, outputs=("y",)):
    """What ONNX's own evaluator gives."""
    names = [f"i{at}" for at in range(len(arrays))]
    node = helper.make_node(kind, names, list(outputs), **attributes)
    value = helper.make_empty_tensor_value_info
    graph = helper.make_graph([node], "g", [value(x) for x in names], [value(x) for x in outputs])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    with np.errstate(all="ignore"):
        return node, ReferenceEvaluator(made).run(None, dict(zip(names, arrays, strict=True)))


@given(ALL)
@examples(150, 300)
def test_functions_of_arrays(case):
    """On plain arrays, whatever their shapes and attributes are."""
    kind, arrays, attributes = case
    outputs = ("y", "y1", "y2") if kind == "Split" else ("y",)
    node, expected = reference(kind, arrays, attributes, outputs)
    with np.errstate(all="ignore"):
        found = FUNCTIONS[kind](Node.of(node), OPSET, *arrays)
    for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


@given(ALL)
@examples(6, 12)
def test_functions_in_models(case):
    """As `load` computes them, from arrays in any order of axes."""
    kind, arrays, attributes = case
    outputs = ("y", "y1", "y2") if kind == "Split" else ("y",)
    _, expected = reference(kind, arrays, attributes, outputs)
    x, *others = arrays
    value, own = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype
    names = ["x", *(f"i{at}" for at in range(len(others)))]
    graph = helper.make_graph(
        [helper.make_node(kind, names, list(outputs), **attributes)],
        "g",
        [value("x", own(x.dtype), x.shape)],
        [value(name, own(one.dtype), None) for name, one in zip(outputs, expected, strict=True)],
        [
            numpy_helper.from_array(np.asarray(one), n)
            for one, n in zip(others, names[1:], strict=True)
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    for one, other in zip(tilesolve.onnx.load(made)(x).values(), expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


@st.composite
def pools(draw):
    """A pool: images, windows, strides, dilations, and all kinds of ends."""
    order = draw(st.integers(1, 3))
    x = numbers((1, 2, *(draw(st.integers(5, 8)) for _ in range(order))))
    taps = [draw(st.integers(1, 3)) for _ in range(order)]
    found = {"kernel_shape": taps, "strides": [draw(st.integers(1, 3)) for _ in range(order)]}
    ends = draw(st.sampled_from(["pads", "auto", "none"]))
    if ends == "auto":
        found["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    else:
        found["ceil_mode"] = draw(st.integers(0, 1))
        found["dilations"] = [draw(st.integers(1, 2)) for _ in range(order)]
    if ends == "pads":
        found["pads"] = [draw(st.integers(0, n - 1)) for _ in range(2) for n in taps]
    return x, found


def windows_of(extent, at, given_ends):
    """The positions of each window along an axis, those in the padding included, and their ends."""
    taps, step = given_ends["kernel_shape"][at], given_ends["strides"][at]
    gap = given_ends.get("dilations", [1] * 3)[at]
    order = len(given_ends["kernel_shape"])
    pads = given_ends.get("pads", [0] * 2 * order)
    low, high, reach = pads[at], pads[at + order], gap * (taps - 1) + 1
    kind = given_ends.get("auto_pad", "NOTSET")
    if kind.startswith("SAME"):
        count = -(-extent // step)
        lack = max(0, (count - 1) * step + reach - extent)
        low = lack // 2 if kind == "SAME_UPPER" else lack - lack // 2
        high = lack - low
    else:
        rest = extent + low + high - reach
        count = (-(-rest // step) if given_ends.get("ceil_mode") else rest // step) + 1
        if given_ends.get("ceil_mode") and (count - 1) * step >= extent + low:
            count -= 1
    return [[step * one - low + gap * tap for tap in range(taps)] for one in range(count)], high


@given(pools(), st.integers(0, 1))
@settings(max_examples=150, deadline=None)
def test_pools(case, counts_ends):
    """The largest and the mean value of each window, as ONNX's text has them."""
    x, attributes = case
    extents = x.shape[2:]
    told = [windows_of(extent, at, attributes) for at, extent in enumerate(extents)]
    shape = tuple(len(windows) for windows, _ in told)
    largest, means = np.empty((*x.shape[:2], *shape)), np.empty((*x.shape[:2], *shape))
    for place in np.ndindex(shape):
        positions = [windows[at] for (windows, _), at in zip(told, place, strict=True)]
        within = [[p for p in one if 0 <= p < n] for one, n in zip(positions, extents, strict=True)]
        counted = [
            [p for p in one if p < n + high]
            for one, n, (_, high) in zip(positions, extents, told, strict=True)
        ]
        values = x[(slice(None), slice(None), *np.ix_(*within))].astype(np.float64)
        values = values.reshape(*x.shape[:2], -1)
        count = np.prod([len(one) for one in (counted if counts_ends else within)])
        largest[(..., *place)] = values.max(-1, initial=-np.inf)
        means[(..., *place)] = values.sum(-1) / count if count else np.nan
    for kind, expected, more in (
        ("MaxPool", largest, {}),
        ("AveragePool", means, {"count_include_pad": counts_ends}),
    ):
        node = helper.make_node(kind, ["x"], ["y"], **attributes, **more)
        with np.errstate(all="ignore"):
            found = FUNCTIONS[kind](Node.of(node), OPSET, x)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@given(st.sampled_from([1, 2, 4]), EXTENTS)
def test_groups_of_channels(groups, images):
    """Each has the mean 0 and the variance 1, then every channel its factor and its summand."""
    x, scale, bias = numbers((images, 4, 5)), numbers((4,)), numbers((4,))
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=groups)
    found = FUNCTIONS["GroupNormalization"](Node.of(node), OPSET, x, scale, bias)
    apart = x.astype(np.float64).reshape(images, groups, -1)
    apart = (apart - apart.mean(-1, keepdims=True)) / np.sqrt(apart.var(-1, keepdims=True) + 1e-5)
    expected = apart.reshape(x.shape) * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from([0.5, 0.75, 1.0]))
@settings(deadline=None)
def test_neighbouring_channels(size, channels, power):
    """Each number is divided by a power of what is near; ONNX's evaluator looks at other ones."""
    x = numbers((2, channels, 3, 2))
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.3, beta=power, bias=1.5)
    found = FUNCTIONS["LRN"](Node.of(node), OPSET, x)
    squares, expected = x.astype(np.float64) ** 2, np.empty(x.shape)
    for at in range(channels):
        near = squares[:, max(0, at - (size - 1) // 2) : at + size // 2 + 1].sum(1)
        expected[:, at] = x[:, at] / (1.5 + 0.3 / size * near) ** power
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("GroupNormalization", {"num_groups": 2}),
        ("MeanVarianceNormalization", {}),
        ("LRN", {"size": 3}),
    ],
)
def test_operators_whose_shapes_nobody_tells(kind, attributes):
    """They lie amid others, and results have the shape of what they read."""
    x, scale, bias = numbers((2, 4, 3, 5)), numbers((4,)), numbers((4,))
    more = {"s": scale, "b": bias} if kind == "GroupNormalization" else {}
    nodes = [
        helper.make_node("Relu", ["x"], ["u"]),
        helper.make_node(kind, ["u", *more], ["v"], **attributes),
        helper.make_node("Neg", ["v"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    ends = [value("x", 1, x.shape)], [value("y", 1, None)]
    weights = [numpy_helper.from_array(one, name) for name, one in more.items()]
    graph = helper.make_graph(nodes, "g", *ends, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    given = np.maximum(x, 0).astype(np.float64)
    if kind == "LRN":
        padded = np.pad(given**2, [(0, 0), (1, 1), (0, 0), (0, 0)])
        near = sum(padded[:, at : at + 4] for at in range(3))
        expected = given / (1 + 1e-4 / 3 * near) ** 0.75
    else:
        axes = (2, 3, 4) if more else (0, 3, 4)
        split = given.reshape(2, 2, 2, 3, 5) if more else given.reshape(2, 4, 1, 3, 5)
        apart = split - split.mean(axes, keepdims=True)
        deviation = np.sqrt(split.var(axes, keepdims=True) + (1e-5 if more else 1e-9))
        expected = (apart / deviation).reshape(x.shape)
        if more:
            expected = expected * scale[:, None, None] + bias[:, None, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tilesolve.onnx.load(made, threads=1)(x)["y"]
    np.testing.assert_allclose(found, -expected, rtol=1e-4, atol=1e-5)


def test_what_pipelines_do_not_have():
    """It is refused with a reason, and left to ONNX's own evaluator."""
    for kind, attributes, arrays in (
        ("Resize", {"mode": "cubic"}, [numbers((1, 1, 4, 4)), None, np.float32([1, 1, 2, 2])]),
        ("MaxPool", {"kernel_shape": [2, 2]}, [numbers((1, 1, 4, 4))]),
        ("Div", {}, [np.array([7, -7]), np.array([2, 2])]),
    ):
        outputs = ["y", "z"] if kind == "MaxPool" else ["y"]
        node = helper.make_node(kind, ["x"] * len(arrays), outputs, **attributes)
        with pytest.raises(TraceError):
            FUNCTIONS[kind](Node.of(node), OPSET, *arrays)
