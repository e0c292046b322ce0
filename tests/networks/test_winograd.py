"""Layers by Winograd's F(2x2, 3x3) are right within 1e-5 of the largest number, and named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesolve
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import ModelError
from tilesolve.machine.model import Machine
from tilesolve.networks.winograd import WinogradPlan, fits_winograd, list_bands, tiles_of
from tilesolve.networks.winograd_stages import transform_filters
from tilesolve.packing.buffers import allocate

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx_networks import make_model  # noqa: E402

ERRORS = {"float32": 1e-5, "float64": 1e-14}
"""Least bars on errors, as shares of the largest number."""

ACTIVATIONS = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "clip(-1,2)": lambda x: np.clip(x, -1, 2),
    "leaky(0.1)": lambda x: np.where(x < 0, 0.1 * x, x),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def direct(x, w, ends):
    """The convolution in float64."""
    x = np.pad(x.astype(np.float64), [(0, 0), *ends, (0, 0)])
    high, wide = x.shape[1] - 2, x.shape[2] - 2
    taps = ((r, s) for r in range(3) for s in range(3))
    return sum(
        x[:, r : r + high, s : s + wide] @ w[:, :, r, s].T.astype(np.float64) for r, s in taps
    )


def poisoned(shape, dtype):
    """An array of NaN that begins with a line."""
    memory = allocate(max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1))
    found = np.ndarray(shape, dtype, memory)
    found[...] = np.nan
    return found


def check(layer, band, activation, *, bias=True, residual=True, threads=1, machine=None, seed=0):
    """A layer of random numbers is right; so is a second call with other images."""
    rng, kind = np.random.default_rng(seed), layer.dtype
    weights = rng.standard_normal((layer.filters, layer.channels, 3, 3)).astype(kind)
    shift = rng.standard_normal(layer.filters).astype(kind) if bias else None
    added = rng.standard_normal(layer.out_shape).astype(kind) if residual else None
    options = {"has_bias": bias, "has_residual": residual}
    given = Epilogue.of(activation or None), Machine.load(machine), threads
    plan = WinogradPlan.of(layer, band, *given, **options)
    assert plan.seconds > 0
    images, out = poisoned(layer.x_shape, kind), poisoned(layer.out_shape, kind)
    kept = [poisoned(shape, kind) for shape in plan.shapes]
    filters = plan.product.prepare(transform_filters(weights))
    images[...] = 0
    steps = plan.calls(images, filters, shift, added, out, kept).bind()
    for _ in range(2):
        images[...] = rng.standard_normal(layer.x_shape)
        out[...] = np.nan
        for step in steps:
            step()
        expected = direct(images, weights, layer.padding)
        expected += (0 if shift is None else shift) + (0 if added is None else added)
        error = abs(out - ACTIVATIONS[activation](expected)).max()
        assert error <= ERRORS[kind] * abs(expected).max()


def test_odd_sides_end_in_tiles_that_are_cut_off():
    """Both sides are odd: tiles of four, two and one pixels; bands of one row of tiles."""
    layer = Convolution.of((2, 5, 3, 5), (7, 5, 3, 3), padding=1, layout="NHWC")
    check(layer, (1, 1), "leaky(0.1)")


@st.composite
def layers(draw):
    """Small layers, with channels around whole vectors, and a band."""
    side = st.integers(1, 9)
    ends = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=2))
    size = [max(draw(side), 3 - sum(one)) for one in ends]
    channels = st.sampled_from([1, 3, 8, 15, 16, 17, 33])
    c, k, batch = draw(channels), draw(channels), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(sorted(ERRORS)))
    layer = Convolution.of((batch, *size, c), (k, c, 3, 3), padding=ends, layout="NHWC", dtype=kind)
    rows = tiles_of(layer)[1]
    whole = (batch, rows)
    bands = [whole, *((1, n) for n in range(1, rows + 1) if rows % n == 0)]
    return layer, draw(st.sampled_from(bands))


@pytest.mark.slow
@settings(max_examples=25)
@given(
    drawn=layers(),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    bias=st.booleans(),
    residual=st.booleans(),
    threads=st.integers(1, 3),
    machine=st.sampled_from([None, "i7-6700k"]),
)
def test_layers(drawn, activation, bias, residual, threads, machine):
    """All sizes, paddings, batches, channels, epilogues, bands and threads are right."""
    layer, band = drawn
    options = {"bias": bias, "residual": residual, "threads": threads, "machine": machine}
    check(layer, band, activation, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("side", "channels"), [(14, 256), (7, 512)])
def test_many_channels_stay_within_the_bar(side, channels):
    """Sums are as long as those of whole networks."""
    shape = (channels, channels, 3, 3)
    layer = Convolution.of((1, side, side, channels), shape, padding=1, layout="NHWC")
    check(layer, (1, tiles_of(layer)[1]), "", residual=False)


@pytest.mark.parametrize(
    ("shape", "more"),
    [
        ((8, 4, 3, 3), {"stride": 2}),
        ((8, 4, 3, 3), {"dilation": 2}),
        ((8, 2, 3, 3), {"groups": 2}),
        ((8, 4, 5, 5), {}),
        ((8, 4, 1, 3), {}),
        ((8, 4, 3, 3), {"dtype": "float16"}),
    ],
)
def test_other_layers_are_direct(shape, more):
    """Strides, dilations, groups, other windows and halves have no such plan."""
    assert fits_winograd(Convolution.of((1, 9, 9, 4), (8, 4, 3, 3), layout="NHWC"))
    assert not fits_winograd(Convolution.of((1, 9, 9, 4), shape, layout="NHWC", **more))


def test_bands_stay_in_a_cache():
    """Large images are computed in bands of equal rows of tiles; small ones at once."""
    machine = Machine.load("i7-6700k")
    for side in (8, 56, 112):
        layer = Convolution.of((1, side, side, 16), (16, 16, 3, 3), padding=1, layout="NHWC")
        whole, *bands = list_bands(layer, machine)
        tiles = tiles_of(layer)
        assert whole == tiles[:2]
        assert bool(bands) == (side > 8)
        for images, rows in bands:
            assert images == 1
            assert tiles[1] % rows == 0
            assert rows * tiles[2] * 16 * 32 * 4 <= machine.level("L2").capacity


@pytest.mark.parametrize(("batch", "threads"), [(1, 2), (4, 2), (1, 3)])
def test_threads_have_neighbouring_bands(batch, threads):
    """One of the ways has a band for each thread; of more bands each has those side by side."""
    layer = Convolution.of((batch, 12, 4, 3), (4, 3, 3, 3), padding=1, layout="NHWC")
    images, rows, _ = tiles_of(layer)
    bands = list_bands(layer, Machine.load("i7-6700k"), threads)
    assert any(images * rows == threads * one * other for one, other in bands)
    check(layer, bands[-1], "relu", threads=threads)
    check(layer, (1, 1), "relu", threads=threads)
    plan = WinogradPlan.of(layer, (1, 1), Epilogue.of(None), Machine.load(None), threads)
    x, out = poisoned(layer.x_shape, "float32"), poisoned(layer.out_shape, "float32")
    filters = plan.product.prepare(np.zeros((16, 3, 4), np.float32))
    kept = [poisoned(shape, "float32") for shape in plan.shapes]
    lanes = plan.calls(x, filters, None, None, out, kept).lanes
    written = [one.out if isinstance(one.out, tuple) else (one.out,) for x in lanes for one in x]
    begins = [parts[0].ctypes.data for parts in written if np.may_share_memory(parts[0], out)]
    assert len(lanes) == threads
    assert len(begins) == batch * rows
    assert begins == sorted(begins)


def test_networks_choose_by_price(monkeypatch):
    """What is faster is chosen unless it is not wanted; the report names it."""
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s, np.float32) for s in ((1, 8, 6, 6), (16, 8, 3, 3), 16))
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["t"], pads=[1] * 4),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    model = make_model(nodes, {"x": x.shape}, {"w": w, "b": b})
    monkeypatch.setattr("tilesolve.networks.winograd.TIME_TOLERANCE", -1e9)  # it counts as faster
    fewer, usual = (tilesolve.onnx.load(model, threads=1, winograd=one) for one in (True, False))
    assert ", by Winograd" in str(fewer)
    assert ", by Winograd" not in str(usual)
    assert [one.convolution for one in fewer.layers] == [one.convolution for one in usual.layers]
    expected = np.maximum(direct(x.transpose(0, 2, 3, 1), w, [(1, 1)] * 2) + b, 0)
    for one in (fewer, usual):
        found = one(x)["y"].transpose(0, 2, 3, 1)
        assert abs(found - expected).max() <= 1e-5 * expected.max()
    monkeypatch.setattr("tilesolve.networks.winograd.TIME_TOLERANCE", 1.0)  # nothing is faster
    assert ", by Winograd" not in str(tilesolve.onnx.load(model, threads=1))


def test_winograd_is_yes_or_no():
    """Anything else is refused."""
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 2)}, {})
    with pytest.raises(ModelError, match="winograd"):
        tilesolve.onnx.load(model, winograd="auto")
