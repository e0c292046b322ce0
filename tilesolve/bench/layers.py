"""Layers as cases: the convolutions of published networks, or of an ONNX file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any, Self

import numpy as np

from tilesolve.bench.case import (
    NUMPY_OFFSET_BYTES,
    ROUNDING_ERRORS,
    Array,
    Expected,
    match_any,
    pick_places,
    place_array,
)
from tilesolve.bench.cases import ProblemCase
from tilesolve.bench.results.fields import read_value
from tilesolve.contractions.convolution import Convolution, Layout
from tilesolve.contractions.convolution_arguments import write_numbers, write_unusual
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.layer_suites import SuiteLayer, layer_suite, list_layer_suites
from tilesolve.contractions.problem import Problem, dtype_name

TINY = Convolution.of((1, 2, 4, 4), (2, 2, 3, 3), padding=1)
"""The layer that is computed first in a process."""

LAYER_SECONDS = 0.5
"""Estimated seconds to make a layer ready, beside its runs."""


@dataclass(frozen=True, slots=True)
class LayerCase(ProblemCase[Convolution]):
    """A layer that is measured once, with bias and ReLU, and the networks that have it.

    `uses` are networks, each with how many such layers it has.
    """

    START_SECONDS = LAYER_SECONDS
    KEEPS_PROCESSES = True
    uses: tuple[tuple[str, int], ...] = ()

    @property
    def times(self) -> int:
        """How many such layers all networks have."""
        return sum(times for _, times in self.uses)

    @property
    def problem(self) -> Problem:
        """The layer as a contraction, without bias and ReLU."""
        return self.work.problem

    def laid_out(self, layout: str) -> LayerCase:
        """Return the layer with arrays in a contender's layout."""
        found: Layout = "NHWC" if layout == "NHWC" else "NCHW"
        return replace(self, work=replace(self.work, layout=found))

    def shrink(self) -> LayerCase:
        """Return a tiny layer, one for all of a layout and dtype."""
        tiny = replace(TINY, layout=self.work.layout, dtype=self.work.dtype)
        return LayerCase("", tiny)

    def draw(self, offset: int = NUMPY_OFFSET_BYTES) -> list[Array]:
        """Return images, filters, a bias, and an array for the result, which holds NaN."""
        out = place_array(self.work.out_shape, self.dtype, offset)
        out.fill(np.nan)
        return [*draw_layer(self.work, offset=offset), out]

    def expect(self, operands: Sequence[Array]) -> Expected:
        """Return some elements of the result, with channels first."""
        shape = (self.work.batch, self.work.filters, *self.work.out_size)
        at = pick_places(shape)
        x, w, bias = operands
        return Expected(shape, self.dtype, tuple(at.T), *compute_results(self.work, x, w, bias, at))

    def to_data(self) -> dict[str, Any]:
        """Return the JSON fields of the layer, and of the problem that it is."""
        sides = ("x_shape", "w_shape", "stride", "padding", "dilation", "groups")
        layer = {side: getattr(self.work, side) for side in sides}
        return {**ProblemCase.to_data(self), "layer": layer, "uses": dict(self.uses)}

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Return the layer that such JSON fields describe."""
        data = read_value(entry, "layer")
        layer = Convolution.of(
            *(read_value(data, what) for what in ("x_shape", "w_shape")),
            **{what: read_value(data, what) for what in ("stride", "dilation", "groups")},
            padding=[tuple(ends) for ends in read_value(data, "padding")],
            dtype=entry["dtype"],
        )
        return cls(entry["name"], layer, tuple(read_value(entry, "uses").items()))


def has_layers(name: str) -> bool:
    """Return whether a suite has layers: by its name, or as an ONNX file.

    Examples
    --------
    >>> has_layers("sconv"), has_layers("mine.onnx"), has_layers("tccg")
    (True, True, False)
    """
    return name in list_layer_suites() or name.endswith(".onnx")


def list_layers(name: str) -> tuple[SuiteLayer, ...]:
    """Return the layers of a suite, or of an ONNX file.

    Raises
    ------
    SuiteError
        If there is no such suite.
    ModelError
        If the file is no model, or one whose layers are not known.
    """
    if not name.endswith(".onnx"):
        return layer_suite(name)
    from tilesolve.networks.onnx import layers

    counted = Counter(layers(name))
    return tuple(SuiteLayer(Path(name).stem, times, one) for one, times in counted.items())


def name_layer(layer: Convolution) -> str:
    """Return a layer's name in tables, which no other layer has.

    Examples
    --------
    >>> name_layer(Convolution.of((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3))
    '3-64 7x7 224x224 stride 2 padding 3'
    >>> name_layer(Convolution.of((1, 32, 8, 8), (32, 1, 3, 3), groups=32))
    '32-32 3x3 8x8 32 groups'
    """
    sides = [one if one == other else f"{one}+{other}" for one, other in layer.padding]
    parts = (
        f"{layer.channels}-{layer.filters}",
        write_numbers(layer.window),
        write_numbers(layer.size),
        f"batch {layer.batch}" if layer.batch != 1 else "",
        write_unusual("stride", layer.stride, 1),
        write_unusual("padding", sides, 0),
        write_unusual("dilation", layer.dilation, 1),
        f"{layer.groups} groups" if layer.groups != 1 else "",
    )
    return " ".join(filter(None, parts))


def find_layers(
    name: str, *, chosen: Sequence[str] = (), dtype: str | None = None
) -> dict[str, LayerCase]:
    """Return the different layers of a sweep by name.

    `name` is a suite of layers, or the path of an ONNX file. `chosen` has names of layers or of
    networks, or patterns such as ``* 1x1 *``; without any, all layers are meant. `dtype`
    replaces float32.

    Raises
    ------
    SuiteError, ModelError
        If there is no such suite or model.
    BenchmarkError
        If no layer or network has a chosen name, or a dtype has no order, as ReLU needs.

    Examples
    --------
    >>> found = find_layers("sconv", chosen=["ResNet-18"])
    >>> len(find_layers("sconv")), len(found), sum(one.times for one in found.values())
    (136, 11, 20)
    """
    kind = "float32" if dtype is None else dtype_name(dtype)
    if kind.startswith("complex"):
        raise BenchmarkError(f"layers end with ReLU, which {kind} has not")
    rows = list_layers(name)
    for pattern in chosen:
        if not any(match_any(_name(row), [pattern]) for row in rows):
            models = ", ".join(dict.fromkeys(row.model for row in rows))
            raise BenchmarkError(
                f"{name!r} has no layer {pattern!r}, nor a network of that name; it has {models}"
            )
    uses: dict[Convolution, Counter[str]] = {}
    for row in rows:
        if not chosen or match_any(_name(row), chosen):
            uses.setdefault(replace(row.convolution, dtype=kind), Counter())[row.model] += row.times
    cases = [LayerCase(name_layer(one), one, tuple(own.items())) for one, own in uses.items()]
    return {case.name: case for case in cases}


def _name(row: SuiteLayer) -> Iterable[str]:
    """Return the names by which a layer is chosen: its own, and its network's."""
    return name_layer(row.convolution), row.model


def draw_layer(layer: Convolution, offset: int = NUMPY_OFFSET_BYTES) -> tuple[Array, Array, Array]:
    """Return images in the layer's layout, filters and a bias; the same for each layout."""
    rng = np.random.default_rng(7)
    first = (layer.batch, layer.channels, *layer.size)
    x, w, bias = (
        place_array(shape, layer.dtype, offset)
        for shape in (first, layer.w_shape, (layer.filters,))
    )
    for array in (x, w, bias):
        rng.standard_normal(out=array, dtype=array.dtype.type)
    if layer.layout == "NHWC":
        last = place_array(layer.x_shape, layer.dtype, offset)
        last[...] = np.moveaxis(x, 1, -1)
        x = last
    return x, w, bias


def channels_first(layer: Convolution, array: Array) -> Array:
    """Return a view of images or results with channels before pixels."""
    return np.moveaxis(array, -1, 1) if layer.layout == "NHWC" else array


def compute_results(
    layer: Convolution, x: Array, w: Array, bias: Array, at: Array
) -> tuple[Array, Array]:
    """Return some elements of the layer's result, after ReLU, and how far each may be off.

    Examples
    --------
    >>> layer = Convolution.of((1, 1, 2, 2), (1, 1, 3, 3), padding=1)
    >>> x, w = np.ones((1, 1, 2, 2)), np.full((1, 1, 3, 3), 2.0)
    >>> compute_results(layer, x, w, np.array([-1.0]), np.array([[0, 0, 1, 1]]))[0].tolist()
    [7.0]
    """
    images = channels_first(layer, x)
    own, made = layer.channels // layer.groups, layer.filters // layer.groups
    values, slack = np.zeros(len(at)), np.zeros(len(at))
    epsilon = float(np.finfo(layer.dtype).eps)
    for row, (image, filter_, *pixel) in enumerate(at.tolist()):
        first = filter_ // made * own
        taps, pixels = [], []
        for axis, place in enumerate(pixel):
            steps = layer.dilation[axis] * np.arange(layer.window[axis])
            reached = place * layer.stride[axis] - layer.padding[axis][0] + steps
            inside = (reached >= 0) & (reached < layer.size[axis])
            taps.append(np.flatnonzero(inside))
            pixels.append(reached[inside])
        channels = np.arange(own)
        seen: Any = images[image][np.ix_(first + channels, *pixels)].astype(np.float64)
        product = seen * w[filter_][np.ix_(channels, *taps)]
        shift = float(bias[filter_])
        values[row] = max(0.0, float(product.sum()) + shift)
        size = sqrt(float((product**2).sum()) + shift**2)
        slack[row] = ROUNDING_ERRORS * epsilon * sqrt(product.size + 1) * size
    return values, slack
