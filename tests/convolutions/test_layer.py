"""Layers and single convolutions: equal to sliding windows in float64, whatever is asked for."""

import pickle
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from convolution_cases import (
    ReferenceNest,
    ReferencePlan,
    block_filters,
    from_layout,
    layers,
    slow_convolution,
    to_layout,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from running_cases import LAYOUTS, make_shallow_machine, relaid
from turns import examples

import tilesolve
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError, SpecError
from tilesolve.convolutions import layer_plans
from tilesolve.convolutions.conv import forget_convolutions
from tilesolve.packing.buffers import allocate

pytestmark = pytest.mark.usefixtures("any_tiles")

MACHINE = make_shallow_machine(256, 16)
EPS = 1e-3


def functions(name, values):
    """What an activation makes of values."""
    return {
        "": lambda: values,
        "relu": lambda: np.maximum(values, 0),
        "relu6": lambda: np.clip(values, 0, 6),
        "clip(-0.5,0.25)": lambda: np.clip(values, -0.5, 0.25),
        "leaky(0.25) tanh": lambda: np.tanh(np.where(values < 0, values / 4, values)),
    }[name]()


def wide(values, array):
    """A number for each channel, against an array in NCHW."""
    return values.reshape(-1, *(1,) * (array.ndim - 2))


def strided(draw, array):
    """An array of the same values, perhaps with gaps or backwards in memory."""
    return relaid(array, draw(st.sampled_from(LAYOUTS)))


@examples(50, 100)
@given(data=st.data())
def test_layers_are_convolutions(data):
    """All arguments, layouts and strides come to plans as they must."""
    nests = partial(ReferenceNest, fewer=data.draw(st.booleans()))
    with (
        patch("tilesolve.convolutions.layer_plans.plan", ReferencePlan),
        patch("tilesolve.convolutions.group_plans.nest", nests),
    ):
        compute_layer(data)


@settings(max_examples=3)
@given(data=st.data())
def test_planned_layers_are_convolutions(data):
    """So they do where plans run."""
    compute_layer(data)


def compute_layer(data):
    """Compare any layer: with batch norm, bias, residual; into poisoned memory."""
    x_shape, w_shape, rest, layout, blocks = data.draw(layers(most=4))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    filters = w_shape[0]
    bias = rng.standard_normal(filters).astype(dtype) if data.draw(st.booleans()) else None
    norm = None
    expected = slow_convolution(x, w, **rest)
    if bias is not None:
        expected += wide(bias, expected)
    if data.draw(st.booleans()):
        gamma, beta, mean = rng.standard_normal((3, filters))
        var = rng.random(filters) + 0.1
        norm = (gamma, beta, mean, var, EPS)
        scale = gamma / np.sqrt(var + EPS)
        expected = (expected - wide(mean, expected)) * wide(scale, expected) + wide(beta, expected)
    residual = None
    if data.draw(st.booleans()):
        residual = rng.standard_normal(expected.shape).astype(dtype)
        expected += residual
    activation = data.draw(
        st.sampled_from(["", "relu", "relu6", "clip(-0.5,0.25)", "leaky(0.25) tanh"])
    )
    expected = functions(activation, expected)

    own = strided(data.draw, to_layout(x, layout, blocks[0]))
    weights = block_filters(w, blocks) if layout == "NCHWc" else strided(data.draw, w)
    layer = tilesolve.conv_layer(
        *(own.shape, weights, bias),
        **(rest | {"layout": layout, "batch_norm": norm, "residual": residual is not None}),
        epilogue=activation,
        machine=MACHINE,
    )
    out = strided(data.draw, np.full(layer.out_shape, np.nan, dtype))
    added = None
    if residual is not None:
        added = strided(data.draw, to_layout(residual, layout, blocks[1]))
    weights[...] = np.nan
    assert layer(own, out=out, residual=added) is out
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(from_layout(out, layout), expected, rtol=tolerance, atol=tolerance)


@settings(max_examples=40)
@given(data=st.data())
def test_single_convolutions(data):
    """`conv` gives the same, with and without `out`, twice from what is kept."""
    x_shape, w_shape, rest, layout, blocks = data.draw(layers(most=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, w = rng.standard_normal(x_shape), rng.standard_normal(w_shape)
    bias = rng.standard_normal(w_shape[0]) if data.draw(st.booleans()) else None
    expected = slow_convolution(x, w, **rest)
    if bias is not None:
        expected += wide(bias, expected)
    own = strided(data.draw, to_layout(x, layout, blocks[0]))
    weights = block_filters(w, blocks) if layout == "NCHWc" else strided(data.draw, w)
    call = lambda **more: tilesolve.conv(own, weights, bias, layout=layout, **rest, **more)  # noqa: E731
    forget_convolutions()
    nests = partial(ReferenceNest, fewer=data.draw(st.booleans()))
    with (
        patch("tilesolve.convolutions.layer_plans.plan", ReferencePlan),
        patch("tilesolve.convolutions.group_plans.nest", nests),
    ):
        found = call(epilogue="relu")
        out = np.full(found.shape, np.nan)
        assert call(out=out) is out
    np.testing.assert_allclose(
        from_layout(found, layout), np.maximum(expected, 0), rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(from_layout(out, layout), expected, rtol=1e-11, atol=1e-11)


def test_first_convolution():
    """One runs, by a plan that is kept."""
    x, w = np.random.default_rng(0).standard_normal((2, 1, 3, 3, 9))
    w, rest = w[..., :3], {"stride": (1, 2), "padding": ((1, 1),) * 2}
    expected = slow_convolution(x, w, **rest, dilation=(1, 1), groups=1)
    for _ in range(2):
        np.testing.assert_allclose(tilesolve.conv(x, w, **rest), expected, atol=1e-12)


def small(**changed):
    """A layer of one pixel row, quickly planned, and what it takes."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 6)), rng.standard_normal((4, 3, 3))
    return x, w, tilesolve.conv_layer(x.shape, w, padding=1, machine=MACHINE, **changed)


def test_pickles_and_reports():
    """A layer from a pickle has weights of its own and gives the same; its text names all."""
    x, _, layer = small(bias=np.ones(4), epilogue="relu", residual=True)
    added = np.ones(layer.out_shape)
    expected = layer(x, residual=added)
    copy = pickle.loads(pickle.dumps(layer))
    np.testing.assert_array_equal(copy(x, residual=added), expected)
    text = str(copy)
    assert text.startswith("conv 3 3→4, 6, padding 1, NCHW float64, bias, residual, relu\n")
    assert "weights are packed once" in text
    assert str(layer.plan) in text
    assert str(layer.epilogue) == "+k +kw relu"
    assert layer.flops == 2 * 4 * 3 * 3 * 6
    assert repr(layer) == "<ConvLayer 3 3→4, 6, padding 1, NCHW float64>"


def aligned(array, by):
    """A copy of an array that begins so many elements behind a line."""
    room = allocate(array.nbytes + 64 * array.itemsize).view(array.dtype)
    room = room[by : by + array.size].reshape(array.shape)
    room[...] = array
    return room


@pytest.mark.parametrize("begins", [(0, 0), (1, 1), (0, 1, 0, 1)])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(
    ("layout", "shape", "w_shape", "rest"),
    [
        ("NHWC", (1, 5, 5, 19), (17, 19, 1, 1), {}),
        ("NHWC", (2, 6, 5, 3), (17, 3, 3, 3), {"padding": 1}),
        ("NHWC", (1, 6, 6, 8), (8, 1, 3, 3), {"padding": 1, "groups": 8}),
        ("NCHW", (1, 4, 7, 7), (6, 4, 1, 1), {"stride": 2}),
        ("NCHW", (1, 4, 7, 7), (6, 4, 3, 3), {"stride": 2, "padding": 1}),
    ],
)
def test_calls_alike_in_turn_are_right(layout, shape, w_shape, rest, residual, begins):
    """The second call finds by its arrays what the first did; whatever it is given is right."""
    rng = np.random.default_rng(1)
    w, bias = rng.standard_normal(w_shape), rng.standard_normal(w_shape[0])
    layer = tilesolve.conv_layer(
        *(shape, w, bias),
        **(rest | {"layout": layout, "residual": residual, "epilogue": "relu"}),
        machine=MACHINE,
        threads=1,
    )
    slow = {"stride": (1, 1), "padding": ((0, 0),) * 2, "dilation": (1, 1), "groups": 1} | {
        name: value if name == "groups" else ((value, value),) * 2 if name == "padding" else (2, 2)
        for name, value in rest.items()
    }
    for number, begin in enumerate(begins):
        x = aligned(rng.standard_normal(shape), begin)
        out = aligned(np.full(layer.out_shape, np.nan), 1 - begin)
        added = rng.standard_normal(layer.out_shape) if residual else None
        expected = slow_convolution(from_layout(x, layout), w, **slow) + wide(bias, w)
        if added is not None:
            expected = expected + from_layout(added, layout)
        expected = np.maximum(expected, 0)
        assert layer(x, out, added) is out
        np.testing.assert_allclose(from_layout(out, layout), expected, atol=1e-12)
        found = layer(x, residual=added)
        np.testing.assert_array_equal(found, out)
        with patch.object(type(layer), "_run", side_effect=AssertionError):
            assert layer(x, out, added) is out
        np.testing.assert_array_equal(found, out)
        if number:
            continue
        frozen = found.copy()
        frozen.flags.writeable = False
        for error, arguments in (
            (SizeError, (x[..., :-1], out, added)),
            (DtypeError, (x.astype("f4"), out, added)),
            (PlanError, (x, frozen, added)),
            (PlanError, (x, out, out if added is None else None)),
        ):
            with pytest.raises(error):
                layer(*arguments)
        np.testing.assert_array_equal(found, out)
        np.testing.assert_allclose(layer(x.tolist(), None, added), found, atol=1e-12)


def cube(x):
    return x * x * x


def test_functions_of_ones_own():
    """They follow bias and residual, of layers, their pickles, and `conv`."""
    x, w, layer = small(bias=np.ones(4), epilogue=tilesolve.elementwise(cube), residual=True)
    added = np.ones(layer.out_shape)
    _, _, plain = small(bias=np.ones(4), residual=True)
    expected = plain(x, residual=added) ** 3
    for one in (layer, pickle.loads(pickle.dumps(layer))):
        np.testing.assert_allclose(one(x, residual=added), expected, rtol=1e-12, atol=1e-12)
    assert "elementwise(cube)" in str(layer)
    chain = ["relu", tilesolve.elementwise(cube)]
    found = tilesolve.conv(x, w, padding=1, epilogue=chain)
    expected = np.maximum(tilesolve.conv(x, w, padding=1), 0) ** 3
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_layers_ask_for_tries(monkeypatch):
    """Of each plan, also those that come from a pickle."""
    asked = []

    def planned(problem, *, tries, **options):
        asked.append(tries)
        return tilesolve.plan(problem, **options)

    x, _, plain = small()
    monkeypatch.setattr(layer_plans, "plan", planned)
    layer = small(tries=3)[2]
    np.testing.assert_array_equal(layer(x), plain(x))
    pickle.loads(pickle.dumps(layer))
    assert asked == [3, 3]
    monkeypatch.undo()
    with pytest.raises(PlanError, match="tries must be a positive integer, got 0"):
        small(tries=0)


RESIDUALS = {
    "whole rows": ((1, 8, 8, 16), (64, 16, 3, 3), {"padding": 1, "layout": "NHWC"}),
    "ragged rows": ((1, 7, 5, 6), (21, 6, 3, 3), {"padding": 1, "layout": "NHWC"}),
    "columns side by side": ((2, 32, 9, 9), (48, 32, 3, 3), {"padding": 1}),
    "pixels side by side": ((1, 3, 20, 33), (5, 3, 3, 3), {"stride": 2}),
    "pointwise": ((2, 24, 7, 7), (32, 24, 1, 1), {}),
    "depthwise": ((1, 12, 12, 40), (40, 1, 3, 3), {"groups": 40, "layout": "NHWC"}),
    "sums in several boxes": ((1, 2048, 2, 2), (16, 2048, 2, 2), {"padding": 1}),
    "large": ((1, 16, 130, 130), (64, 16, 3, 3), {"padding": 1, "threads": 2}),
}


@pytest.mark.parametrize("name", RESIDUALS)
def test_a_residual_may_be_what_out_holds(name):
    """It is added as another array is, however C is written; x and memory around stay."""
    x_shape, w_shape, rest = RESIDUALS[name]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, w_shape))
    layer = tilesolve.conv_layer(
        *(x_shape, w, rng.standard_normal(len(w)).astype(np.float32)),
        **(rest | {"residual": True, "epilogue": "relu", "machine": MACHINE}),
    )
    added = rng.standard_normal(layer.out_shape).astype(np.float32)
    expected = layer(x, residual=added)
    room = np.full((*layer.out_shape[:-1], layer.out_shape[-1] + 3), 7, np.float32)
    for out in (added.copy(), room[..., 2:-1]):
        for view in (out, out[:]):
            out[:] = added
            assert layer(x, out=out, residual=view) is out
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)
    assert (room[..., :2] == 7).all()
    assert (room[..., -1] == 7).all()


def test_pointwise_layers_take_any_strides():
    """Where pixels are no one axis in memory, another plan runs, of the same weights."""
    rng = np.random.default_rng(0)
    room, w = rng.standard_normal((2, 4, 5, 9)), rng.standard_normal((3, 4, 1, 1))
    layer = tilesolve.conv_layer((2, 4, 5, 6), w, machine=MACHINE)
    assert str(layer.plan.problem.spec) == "nkx-ncx-kc"
    for x in (room[..., :6], room[..., :6].copy()):
        expected = np.einsum("nchw,kc->nkhw", x, w[:, :, 0, 0])
        np.testing.assert_allclose(layer(x), expected, atol=1e-12)


def bad_calls(x, layer, plain):
    """Calls that must not write, with errors and messages."""
    out, added = np.full(layer.out_shape, 7.0), np.ones(layer.out_shape)
    fixed = out.copy()
    fixed.flags.writeable = False
    wide = np.full((1, 4, 12), 7.0)
    yield layer, (x[:, :2], out, added), SizeError, r"x has the shape \(1, 2, 6\), .* \(1, 3, 6\)"
    yield layer, (x[0], out, added), SizeError, "x has the shape"
    yield layer, (x.astype("f4"), out, added), DtypeError, "x is float32, the layer's dtype"
    yield layer, (x, out[:, :3], added), SizeError, "out has the shape"
    yield layer, (x, out.astype("f4"), added), DtypeError, "out is float32"
    yield layer, (x, fixed, added), PlanError, "out is read-only"
    yield layer, (x, [1.0], added), DtypeError, "out must be a numpy array"
    yield layer, (x, out, added[:, :2]), SizeError, r"residual has the shape \(1, 2, 6\)"
    yield layer, (x, out, added.astype("f4")), DtypeError, "residual is float32"
    yield layer, (x, out), PlanError, "no residual is given to a layer that was made with one"
    yield layer, (x, wide[..., :6], wide[..., 3:9]), PlanError, "out shares memory with residual"
    yield layer, (x, out, out[..., ::-1]), PlanError, "out shares memory with residual"
    yield layer, (x, fixed, fixed), PlanError, "out is read-only"
    yield plain, (x, out, added), PlanError, "a residual is given to a layer .* without one"
    yield plain, (x, wide[:, :3, :6], None), SizeError, "out has the shape"
    yield plain, (wide[:, 1:, 2:8], wide[..., :6]), PlanError, "out shares memory with x"
    overlapping = np.lib.stride_tricks.as_strided(np.full(20, 7.0), (1, 4, 6), (8, 8, 8))
    yield plain, (x, overlapping), PlanError, "elements that share memory"


def test_bad_calls():
    """Messages name the argument and both sizes; nothing is written."""
    x, _, layer = small(residual=True)
    plain = small()[2]
    for called, arguments, error, message in bad_calls(x, layer, plain):
        with pytest.raises(error, match=message):
            called(*arguments)
        out = np.asarray(arguments[1])
        assert (out == 7).all() or out.shape == (1,)


BAD = [
    ({"bias": np.ones(3)}, SizeError, r"bias has the shape \(3,\), it must be \(4,\)"),
    ({"bias": np.ones(4, "f4")}, DtypeError, "bias is float32, w is float64"),
    ({"epilogue": "+k relu"}, SpecError, "give it as bias, batch_norm or residual"),
    ({"epilogue": "softmax"}, SpecError, "softmax"),
    ({"batch_norm": (np.ones(4),) * 4}, PlanError, "gamma, beta, mean, var and eps, got 4"),
    ({"batch_norm": (*(np.ones(3),) * 4, 0.1)}, SizeError, "gamma of batch_norm has the shape"),
    ({"batch_norm": (*(-np.ones(4),) * 4, 0.1)}, SizeError, "var \\+ eps .* must be positive"),
    ({"layout": "NWC"}, SpecError, "layout 'NWC' is not known"),
]


@pytest.mark.parametrize(("changed", "error", "message"), BAD)
def test_bad_layers(changed, error, message):
    """A layer that cannot be is refused before anything is planned."""
    with pytest.raises(error, match=message):
        small(**changed)


def test_bad_convolutions():
    """`conv` refuses what layers refuse, and operands of two dtypes."""
    x, w = np.ones((1, 3, 6)), np.ones((4, 3, 3))
    out = np.full((1, 4, 4), 7.0)
    for arguments, more, error, message in (
        ((x, w.astype("f4")), {}, DtypeError, "w is float32, x is float64"),
        ((x.astype(int), w), {}, DtypeError, "not in .*int64"),
        ((x, w, np.ones(5)), {}, SizeError, "bias has the shape"),
        ((x, w), {"stride": [1, 1]}, SizeError, "stride has 2 numbers, x has 1"),
        ((x, w), {"out": out[:, :2]}, SizeError, "out has the shape"),
        ((x, [[1.0], [1.0, 2.0]]), {}, DtypeError, "w is no array"),
        ((out[:, :3, :], w), {"out": out, "padding": [1]}, PlanError, "out shares memory with x"),
    ):
        with pytest.raises(error, match=message):
            tilesolve.conv(*arguments, **({"out": out} | more))
        assert (out == 7).all()


def test_what_calls_leave_can_be_forgotten(tmp_path, monkeypatch):
    """`clear_cache` makes the next call plan anew."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(tmp_path))
    x, w = np.ones((1, 3, 6)), np.ones((4, 3, 3))
    problem = Convolution.of(x.shape, w.shape, dtype=float).problem
    with patch("tilesolve.convolutions.layer_plans.plan", wraps=ReferencePlan) as planned:
        for _ in range(2):
            tilesolve.conv(x, w)
            tilesolve.conv(x, w)
            tilesolve.clear_cache()
    assert planned.call_count == 2
    assert planned.call_args.args[0].spec == problem.spec


def test_folded_batch_norm():
    """The scale and the shift are what the normalisation does."""
    gamma, beta, mean, var, x = np.random.default_rng(0).random((5, 7))
    scale, shift = tilesolve.fold_batchnorm(gamma, beta, mean, var, 0.1)
    np.testing.assert_allclose(
        scale * x + shift, (x - mean) / np.sqrt(var + 0.1) * gamma + beta, rtol=1e-12
    )
    assert tilesolve.fold_batchnorm(*np.ones((4, 2), "f4"))[0].dtype == np.float32
    with pytest.raises(SizeError, match=r"var .* shape \(1, 7\), gamma has \(7,\)"):
        tilesolve.fold_batchnorm(gamma, beta, mean, var[None])
