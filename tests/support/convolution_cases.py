"""Convolutions to test with, and what they give by sliding windows over a padded copy."""

import numpy as np
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy_epilogues import apply_epilogue

from tilesolve.contractions.reference import reference
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.nests.arguments import read_computation


def slow_convolution(x, w, *, stride, padding, dilation, groups):
    """Convolve images in NCHW with filters in torch's order; numbers are per dimension."""
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    padded = np.pad(x, [(0, 0), (0, 0), *padding])
    reach = [d * (n - 1) + 1 for d, n in zip(dilation, w.shape[2:], strict=True)]
    axes = tuple(range(2, x.ndim))
    windows = sliding_window_view(padded, reach, axis=axes)
    steps = (slice(None, None, s) for s in stride)
    taps = (slice(None, None, d) for d in dilation)
    windows = windows[(slice(None), slice(None), *steps, *taps)]
    own, made = x.shape[1] // groups, w.shape[0] // groups
    count = len(axes)
    found = []
    for group in range(groups):
        part = windows[:, group * own : (group + 1) * own]
        filters = w[group * made : (group + 1) * made]
        summed = [1, *range(part.ndim - count, part.ndim)]
        product = np.tensordot(part, filters, (summed, [1, *range(2, filters.ndim)]))
        found.append(np.moveaxis(product, -1, 1))
    return np.concatenate(found, axis=1)


def to_layout(array, layout, block=1):
    """Bring an array from NCHW to a layout, in C order."""
    if layout == "NHWC":
        array = np.moveaxis(array, 1, -1)
    elif layout == "NCHWc":
        n, c, *pixels = array.shape
        array = np.moveaxis(array.reshape(n, c // block, block, *pixels), 2, -1)
    return np.ascontiguousarray(array)


def from_layout(array, layout):
    """Bring an array from a layout to NCHW."""
    if layout == "NHWC":
        return np.moveaxis(array, -1, 1)
    if layout == "NCHWc":
        array = np.moveaxis(array, -1, 2)
        n, outer, block, *pixels = array.shape
        return array.reshape(n, outer * block, *pixels)
    return array


def block_filters(w, blocks):
    """Bring filters from torch's order to that of blocks of channels and of filters."""
    k, c, *window = w.shape
    last, first = min(blocks[0], c), blocks[1]
    parts = w.reshape(k // first, first, c // last, last, *window)
    return np.ascontiguousarray(np.moveaxis(parts, (3, 1), (-2, -1)))


@st.composite
def layers(draw, layouts=("NCHW", "NHWC", "NCHWc"), most=6):
    """Arguments of a layer: shapes in NCHW and torch's order, and the rest."""
    layout = draw(st.sampled_from(layouts))
    order = draw(st.integers(1, 3))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(order))  # noqa: E731
    window, dilation, stride = each(1, 3), each(1, 2), each(1, 3)
    padding = tuple((draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(order))
    reach = [d * (n - 1) + 1 for d, n in zip(dilation, window, strict=True)]
    size = tuple(
        draw(st.integers(max(1, r - sum(ends)), r + most))
        for r, ends in zip(reach, padding, strict=True)
    )
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    blocks = (1, 1)
    own, made = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if layout == "NCHWc":
        blocks = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        if groups > 1:
            groups, own, made, blocks = groups * blocks[0], 1, 1, (blocks[0],) * 2
        else:
            own, made = own * blocks[0], made * blocks[1]
    x_shape = (draw(st.integers(1, 2)), own * groups, *size)
    w_shape = (made * groups, own, *window)
    rest = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return x_shape, w_shape, rest, layout, blocks


class ReferencePrepared(np.ndarray):
    """An operand as it was prepared: itself."""

    @property
    def array(self):
        """The operand."""
        return np.asarray(self)

    @property
    def held_bytes(self):
        """Its bytes."""
        return self.nbytes


class ReferenceNest:
    """A plan of statements that evaluates them, slowly."""

    def __init__(self, stages, sizes, dtype, *, outputs, fewer, **_):
        self.computation = read_computation(stages, sizes, dtype, outputs=outputs)
        self.inputs, self.executor = self.computation.inputs, self
        self.seconds = len(stages) if fewer else -len(stages)

    def repeat(self, arrays, named, out):
        return None

    def __call__(self, *arrays, out):
        found = evaluate(self.computation, dict(zip(self.inputs, arrays, strict=True)), out=out)
        several = (found, out) if isinstance(out, tuple) else ((found,), (out,))
        for values, target in zip(*several, strict=True):
            target[...] = values


class ReferencePlan:
    """A plan that computes by the reference, at once."""

    output = "store"
    seconds = 0.0
    partial_outputs = 0

    def __init__(self, problem, *, epilogue, **_):
        self.problem, self.epilogue = problem, epilogue
        self.executor = self.solution = self

    def recall(self, out, first, second, others):
        return None

    def score_after(self, between):
        return self.seconds

    def list_tasks(self, out, first, second, others):
        return None

    def prepare(self, array):
        return array.copy().view(ReferencePrepared)

    hold = prepare

    def __call__(self, first, second, out, *, beta, operands):
        assert (first.shape, second.shape) == self.problem.shapes[1:]
        found = reference(self.problem, first, second)
        if beta:
            found = found + beta * out
        out[...] = apply_epilogue(self.epilogue, self.problem, found, operands)
