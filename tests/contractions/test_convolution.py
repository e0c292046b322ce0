"""Convolutions as problems: equal to sliding windows, for all arguments and layouts."""

import numpy as np
import pytest
from convolution_cases import block_filters, from_layout, layers, slow_convolution, to_layout
from hypothesis import given
from turns import examples

from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.reference import reference


def random_layer(arguments, seed=0):
    """Arrays of a layer in its layout, and the result in NCHW."""
    x_shape, w_shape, rest, layout, blocks = arguments
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal(x_shape), rng.standard_normal(w_shape)
    expected = slow_convolution(x, w, **rest)
    blocked = block_filters(w, blocks) if layout == "NCHWc" else w
    return to_layout(x, layout, blocks[0]), blocked, expected


@examples(60, 150)
@given(layers())
def test_problems_are_convolutions(arguments):
    """The reference of the problem, on views, is what sliding windows give; so is the flat form."""
    _, _, rest, layout, _ = arguments
    x, w, expected = random_layer(arguments)
    layer = Convolution.of(x.shape, w.shape, layout=layout, dtype="float64", **rest)
    assert (layer.x_shape, layer.w_shape) == (x.shape, w.shape)
    assert from_layout(np.empty(layer.out_shape), layout).shape == expected.shape
    for flat in {False, layer.pointwise}:
        form = layer.form(flat=flat)
        out = np.full(layer.out_shape, np.nan)
        assert np.shares_memory(form.results(out), out)
        form.results(out)[...] = reference(form.problem, form.images(x), form.filters(w))
        np.testing.assert_allclose(from_layout(out, layout), expected, rtol=1e-12, atol=1e-12)
    values = np.arange(layer.filters)
    assert [form.problem.sizes[i] for i in form.channel_letters] == list(
        form.channels(values).shape
    )


def test_pointwise_layers_are_products():
    """All pixels are one letter; of one image, or of all where they lie side by side."""
    specs = {
        layout: str(Convolution.of(shape, (8, 4, 1, 1), layout=layout).flat_problem.spec)
        for layout, shape in (("NCHW", (2, 4, 5, 6)), ("NHWC", (2, 5, 6, 4)))
    }
    assert specs == {"NCHW": "nkx-ncx-kc", "NHWC": "xk-xc-ck"}
    strided = Convolution.of((2, 4, 5, 6), (8, 4, 1, 1), stride=2)
    assert str(strided.problem.spec) == "nkhw-nchw-kc"
    one = Convolution.of((1, 4, 5, 6), (8, 4, 1, 1))
    assert str(one.flat_problem.spec) == "kx-cx-kc"
    form = one.form(flat=True)
    assert form.images.fits(np.empty((1, 4, 5, 6)))
    assert not form.images.fits(np.empty((1, 4, 5, 12))[..., :6])


def test_depthwise_layers_have_a_batch_letter():
    """Channels are a letter that all tensors have, last in NHWC; several filters have their own."""

    def spec(filters, layout, shape):
        layer = Convolution.of(shape, (filters, 1, 3, 3), groups=8, layout=layout)
        return str(layer.problem.spec)

    assert spec(8, "NHWC", (2, 9, 9, 8)) == "nhwc-n[h+r][w+s]c-rsc"
    assert spec(16, "NHWC", (2, 9, 9, 8)) == "nhwcm-n[h+r][w+s]c-rscm"
    assert spec(8, "NCHW", (2, 8, 9, 9)) == "nchw-nc[h+r][w+s]-crs"


def test_text():
    """All that is unusual is named."""
    layer = Convolution.of(
        (2, 8, 9, 9), (8, 4, 3, 1), stride=2, padding=[(0, 1), 0], dilation=(2, 1), groups=2
    )
    assert str(layer) == (
        "3x1 8→8, 9x9, batch 2, stride 2, padding 0+1x0, dilation 2x1, 2 groups, NCHW float32"
    )


BAD = [
    ({"x_shape": (1, 4, 8, 8), "groups": 3}, SizeError, "groups=3 do not divide 4 channels"),
    ({"w_shape": (5, 2, 3, 3), "groups": 2}, SizeError, "groups=2 do not divide 5 filters"),
    ({"w_shape": (8, 3, 3, 3)}, SizeError, "w has 3 channels .* x has 4 in 1 groups"),
    ({"w_shape": (8, 4, 9, 3)}, SizeError, "reaches over 9 pixels of dimension 0, .* x has 8"),
    ({"dilation": 4}, SizeError, "reaches over 9 pixels"),
    ({"padding": -1}, SizeError, "padding must be at least 0, got -1"),
    ({"padding": [(1, -2), 0]}, SizeError, "padding must be at least 0, got -2"),
    ({"padding": (1, 2, 3)}, SizeError, "padding has 3 entries, x has 2"),
    ({"padding": [(1, 2, 3), 0]}, SizeError, "a number or a pair"),
    ({"padding": 0.5}, SizeError, "padding must be an integer, got 0.5"),
    ({"padding": "full"}, SpecError, "padding 'full' is not known"),
    ({"padding": "same", "stride": 2}, SizeError, "'same' needs a stride of 1"),
    ({"stride": 0}, SizeError, "stride must be at least 1, got 0"),
    ({"stride": (1, 2, 3)}, SizeError, "stride has 3 numbers, x has 2"),
    ({"stride": "2"}, SizeError, "stride must be an integer, got '2'"),
    ({"dilation": True}, SizeError, "dilation must be an integer, got True"),
    ({"groups": 0}, SizeError, "groups must be at least 1, got 0"),
    ({"x_shape": (4, 8)}, SizeError, "x has 2 axes"),
    ({"x_shape": (1, 4, 8, 8, 8, 8)}, SizeError, "x has 6 axes"),
    ({"w_shape": (8, 4, 3)}, SizeError, "w has 3 axes, .* must have 4"),
    ({"w_shape": (8, 4, 3, 0)}, SizeError, "window of w is empty"),
    ({"w_shape": (0, 4, 3, 3)}, SizeError, "number of filters must be at least 1"),
    ({"layout": "CHWN"}, SpecError, "layout 'CHWN' is not known"),
    ({"dtype": "int32"}, DtypeError, "int32"),
    ({"layout": "NCHWc", "x_shape": (1, 1, 8, 8, 4), "w_shape": (1, 1, 3, 3, 2, 8)}, SizeError,
     "blocks of w have 2 channels .* blocks of x 4"),
    ({"layout": "NCHWc", "x_shape": (1, 1, 8, 8, 4), "w_shape": (2, 1, 3, 3, 1, 4), "groups": 4},
     SizeError, "one filter for each of the 4 channels"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "error", "message"), BAD)
def test_bad_arguments(changed, error, message):
    """The message names the argument and both sizes."""
    usual = {"x_shape": (1, 4, 8, 8), "w_shape": (8, 4, 3, 3)}
    with pytest.raises(error, match=message):
        Convolution.of(**(usual | changed))
