"""Transposed convolutions: equal to windows that are added one by one in float64."""

import numpy as np
import pytest
from convolution_cases import ReferencePlan
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

import tilesolve
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError, SpecError
from tilesolve.convolutions.conv import forget_convolutions

pytestmark = pytest.mark.usefixtures("planned_at_once")


def scatter(x, w, bias, stride, padding, more, dilation, groups):
    """The definition, with channels first."""
    order, own, made = len(stride), len(w) // groups, w.shape[1]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    whole = [
        s * (n - 1) + r + extra
        for s, n, r, extra in zip(stride, x.shape[2:], reach, more, strict=True)
    ]
    found = np.zeros((len(x), made * groups, *whole), np.float64)
    for pixel in np.ndindex(*x.shape[2:]):
        window = tuple(
            slice(s * i, s * i + r, d)
            for s, i, r, d in zip(stride, pixel, reach, dilation, strict=True)
        )
        for group in range(groups):
            channels = slice(group * own, (group + 1) * own)
            values = np.tensordot(x[(slice(None), channels, *pixel)], w[channels], 1)
            found[(slice(None), slice(group * made, (group + 1) * made), *window)] += values
    found += bias.reshape(-1, *[1] * order)
    cut = (slice(a, n - b) for (a, b), n in zip(padding, whole, strict=True))
    return found[(slice(None), slice(None), *cut)]


@st.composite
def cases(draw):
    """Arrays, with channels first, and arguments of one or two dimensions."""
    order = draw(st.integers(1, 2))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(order))  # noqa: E731
    size, window, stride, dilation, more = (
        each(1, 4),
        each(1, 4),
        each(1, 4),
        each(1, 3),
        each(0, 3),
    )
    room = [
        s * (n - 1) + d * (k - 1) + extra
        for s, n, d, k, extra in zip(stride, size, dilation, window, more, strict=True)
    ]
    padding = []
    for most in room:
        before = draw(st.integers(0, most))
        padding.append((before, draw(st.integers(0, most - before))))
    groups, own, made, batch = (draw(st.integers(1, 2)) for _ in range(4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((batch, groups * own, *size))
    w, bias = rng.standard_normal((groups * own, made, *window)), rng.standard_normal(groups * made)
    return x, w, bias, (stride, padding, more, dilation, groups)


@examples(40, 80)
@given(cases(), st.sampled_from(["NCHW", "NHWC"]), st.booleans())
def test_any_transposed_convolution(case, layout, shifted):
    """Whatever strides, padding and gaps are: every pixel of out is written, and right."""
    x, w, bias, (stride, padding, more, dilation, groups) = case
    bias = bias if shifted else np.zeros_like(bias)
    expected = scatter(x, w, bias, stride, padding, more, dilation, groups)
    moved = (lambda a: np.moveaxis(a, 1, -1)) if layout == "NHWC" else (lambda a: a)
    out = np.full(moved(expected).shape, np.nan)
    found = tilesolve.conv_transpose(
        *(moved(x), w, bias if shifted else None),
        stride=stride,
        padding=padding,
        output_padding=more,
        dilation=dilation,
        groups=groups,
        layout=layout,
        out=out,
    )
    assert found is out
    np.testing.assert_allclose(out, moved(expected), atol=1e-10)


def test_same_padding_and_single_numbers():
    """As `conv` takes them: results as large as the images, where the stride is 1."""
    x, w = np.ones((1, 2, 5)), np.ones((2, 3, 3))
    found = tilesolve.conv_transpose(x, w, padding="same")
    assert found.tolist() == [[[4.0, 6.0, 6.0, 6.0, 4.0]] * 3]
    assert tilesolve.conv_transpose(x, w, stride=2, padding=1, output_padding=1).shape == (1, 3, 10)


def test_bad_arguments():
    """Messages name the argument and both sizes; nothing is written."""
    x, w, out = np.ones((1, 2, 5)), np.ones((2, 3, 3)), np.full((1, 3, 7), 7.0)
    for change, error, message in [
        ({"w": np.ones((4, 3, 3))}, SizeError, r"w has 4 channels \(shape \(4, 3, 3\)\), x has 2"),
        ({"w": np.ones((2, 3, 3, 3))}, SizeError, "w has 4 axes"),
        ({"w": np.ones((2, 3, 0))}, SizeError, "0 taps"),
        ({"w": w.astype("f4")}, DtypeError, "w is float32, x is float64"),
        ({"bias": np.ones(2)}, SizeError, r"bias has the shape \(2,\), it must be \(3,\)"),
        ({"padding": 4}, SizeError, "5 pixels of x and 3 taps of w reach over 7, .* 4 and 4"),
        ({"stride": 0}, SizeError, "stride"),
        ({"output_padding": -1}, SizeError, "output_padding"),
        ({"output_padding": (0, 1)}, SizeError, "output_padding has 2 numbers"),
        ({"groups": 3}, SizeError, "groups=3 do not divide 2 channels"),
        ({"layout": "NCHWc"}, SpecError, "NCHWc"),
        ({"out": out[:, :2]}, SizeError, "out has the shape"),
        ({"x": out[:, :2, :5]}, PlanError, "out shares memory with x"),
    ]:
        given = {"x": x, "w": w, "out": out} | change
        with pytest.raises(error, match=message):
            tilesolve.conv_transpose(**given)
    assert (out == 7).all()


def test_phases_share_plans(monkeypatch):
    """Twelve of eighteen phases have taps, of two shapes: two plans, though none is kept."""
    planned = []

    def count(problem, **given):
        planned.append(problem)
        return ReferencePlan(problem, **given)

    monkeypatch.setenv("TILESOLVE_CACHE", "off")
    monkeypatch.setattr("tilesolve.convolutions.layer_plans.plan", count)
    forget_convolutions()
    rng = np.random.default_rng(0)
    x, w = (
        (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype("complex64")
        for shape in ((2, 8, 7, 8, 4), (4, 8, 4, 4, 2))
    )
    found = tilesolve.conv_transpose(x, w, stride=(2, 3, 3), layout="NHWC", groups=2)
    assert len(planned) == 2
    given = {"stride": (2, 3, 3), "padding": [(0, 0)] * 3, "more": (0,) * 3}
    parts = [
        [scatter(np.moveaxis(a, -1, 1), b, np.zeros(16), **given, dilation=(1,) * 3, groups=2)
         for b in (w.real, w.imag)]
        for a in (x.real, x.imag)
    ]  # fmt: skip
    expected = parts[0][0] - parts[1][1] + 1j * (parts[0][1] + parts[1][0])
    np.testing.assert_allclose(found, np.moveaxis(expected, 1, -1), rtol=1e-3, atol=1e-4)
