"""Dense layers of 3x3 by Winograd's F(2x2, 3x3): 16 products for a tile in place of 36.

A tile of 4x4 pixels becomes 16 other numbers by additions; filters became such, once. Products of
both are summed over channels, as 16 contractions of one plan, and become 2x2 pixels of the result
by additions; bias, residual and activation are part of these. Additions are nests whose vectors lie
along channels. Rounding differs from that of a direct sum, and a tile that has an infinite number
may become NaN as a whole. See docs/decisions/077.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from math import prod
from operator import add

import numpy as np

from tilesolve.constants.policy import TIME_TOLERANCE
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.epilogue import Epilogue, Operation
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Choose, Read, Term, apply
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.machine.detect import default_threads
from tilesolve.machine.model import Machine
from tilesolve.nests.joined import join_statements
from tilesolve.nests.plan import NestPlan
from tilesolve.networks.chains import Chain
from tilesolve.packing.memory_overlap import Array
from tilesolve.pipelines.front import pipeline
from tilesolve.plans.plan import Plan, plan
from tilesolve.running.prepared import Prepared
from tilesolve.running.repeat_call import Argument

Step = Callable[[], object]
"""Computes a part of a layer."""

Shape = tuple[int, ...]

OUT = 2
"""Pixels of a side of a tile of the result."""

_IMAGES = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_RESULTS = ((1, 1, 1, 0), (0, 1, -1, -1))
_FILTERS = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_TILE = len(_IMAGES)
_N, _Y, _X, _C = (Affine.letter(letter) for letter in "nyxc")


@dataclass(slots=True, eq=False)
class WinogradChoice:
    """Chooses layers that are faster so, by their prices; those that are alike are planned once."""

    machine: Machine | str | None
    threads: int | None
    known: dict[Hashable, WinogradPlan | None] = field(default_factory=dict)

    def choose(self, chain: Chain, layer: ConvLayer) -> WinogradPlan | None:
        """Return the plan of a layer; None if its own takes no longer."""
        has_bias, convolution = chain.bias is not None, layer.convolution
        key = convolution, chain.activation, has_bias, layer.has_residual
        if key not in self.known:
            self.known[key] = None
            if fits_winograd(convolution):
                found = WinogradPlan.of(
                    convolution,
                    Epilogue.of(chain.activation or None),
                    Machine.load(self.machine),
                    default_threads() if self.threads is None else self.threads,
                    has_bias=has_bias,
                    has_residual=layer.has_residual,
                )
                if found.seconds < (1 - TIME_TOLERANCE) * layer.plan.seconds:
                    self.known[key] = found
        return self.known[key]


def fits_winograd(layer: Convolution) -> bool:
    """Return whether a layer is dense, of neighbouring 3x3 windows, channels last, in whole floats.

    Examples
    --------
    >>> fits_winograd(Convolution.of((1, 8, 8, 4), (4, 4, 3, 3), layout="NHWC"))
    True
    >>> fits_winograd(Convolution.of((1, 8, 8, 4), (4, 4, 3, 3), stride=2, layout="NHWC"))
    False
    """
    return (
        layer.window == (3, 3)
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.layout == "NHWC"
        and layer.dtype in ("float32", "float64")
        and all(layer.out_shape)
    )


def transform_filters(weights: Array) -> Array:
    """Return filters as 16 matrices of channels and filters, summed in float64.

    Examples
    --------
    >>> transform_filters(np.ones((8, 4, 3, 3), "float32")).shape
    (16, 4, 8)
    """
    factors = np.array(_FILTERS)
    found = np.einsum("ir,js,kcrs->ijck", factors, factors, weights.astype(np.float64))
    return found.reshape(-1, *found.shape[2:]).astype(weights.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class _Leave:
    """What computes the pixels of some tiles: of whole ones, or of those cut off at an end.

    Parameters
    ----------
    tiles
        From which tile on along both axes, and how many.
    pixels
        How many pixels of each.
    plan
        Takes products, bias and residual.
    """

    tiles: tuple[tuple[int, int], tuple[int, int]]
    pixels: tuple[int, int]
    plan: NestPlan

    def bind(self, products: Array, bias: Array | None, residual: Array | None, out: Array) -> Step:
        """Return what computes them."""
        (y, rows), (x, columns) = self.tiles
        given = [products[:, :, y : y + rows, x : x + columns]]
        low = (slice(None), slice(OUT * y, None), slice(OUT * x, None))
        high, wide = (OUT * (n - 1) + p for n, p in zip((rows, columns), self.pixels, strict=True))
        given += [] if bias is None else [bias]
        given += [] if residual is None else [residual[low][:, :high, :wide]]
        part = out[low][:, :high, :wide]
        outs = tuple(part[:, i::OUT, j::OUT] for i, j in product(*map(range, self.pixels)))
        return self.plan.bind(*given, out=outs if len(outs) > 1 else outs[0])


@dataclass(frozen=True, slots=True, eq=False)
class WinogradPlan:
    """How a layer is computed.

    Parameters
    ----------
    layer
        Shapes and arguments.
    pad, enter, product, leaves
        What puts zeros around images, if any are needed, makes 16 numbers of each tile of these,
        sums their products with filters, and makes pixels of the sums.
    """

    layer: Convolution
    pad: NestPlan | None
    enter: NestPlan
    product: Plan
    leaves: tuple[_Leave, ...]

    @classmethod
    def of(
        cls,
        layer: Convolution,
        activation: Epilogue,
        machine: Machine,
        threads: int,
        *,
        has_bias: bool = False,
        has_residual: bool = False,
    ) -> WinogradPlan:
        """Plan a layer."""
        matrices = plan(
            "bxk-bxc-bck",
            {"b": _TILE**2, "x": prod(tiles_of(layer)), "k": layer.filters, "c": layer.channels},
            machine,
            dtype=layer.dtype,
            threads=threads,
            constant="B",
            aligned_output=True,
        )
        ends = (_ends(extent) for extent in layer.out_shape[1:3])
        leaves = []
        for (y, rows, high), (x, columns, wide) in product(*ends):
            stages = _leave(layer, (high, wide), activation, has_bias, has_residual)
            sizes = {"n": layer.batch, "y": rows, "x": columns, "c": layer.filters}
            sums = {"sums": (_TILE**2, *sizes.values())}
            found = _join(stages, sizes, sums, layer.dtype, machine, threads)
            leaves.append(_Leave(((y, rows), (x, columns)), (high, wide), found))
        zeros, pad = _Pad.of(layer), None
        if any(map(any, zeros.ends)):
            images = np.broadcast_to(np.zeros((), layer.dtype), layer.x_shape)
            pad = pipeline(zeros, machine=machine, threads=threads).plan(images)
        return cls(layer, pad, _enter(layer, machine, threads), matrices, tuple(leaves))

    @property
    def seconds(self) -> float:
        """The predicted time."""
        parts = self.enter, self.product, *(one.plan for one in self.leaves)
        return sum(one.seconds for one in parts) + (self.pad.seconds if self.pad else 0.0)

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """Of what is kept meanwhile: images with zeros, their tiles' numbers, and the sums."""
        tiles = tiles_of(self.layer)
        batch, *counts = tiles
        padded = (OUT * count + _TILE - OUT for count in counts)
        numbers = _TILE**2, *tiles
        filters, channels = self.layer.filters, self.layer.channels
        images = (batch, *padded, channels) if self.pad else (0,)
        return images, (*numbers, channels), (*numbers, filters)

    def bind(
        self,
        x: Array,
        weights: Prepared,
        bias: Array | None,
        residual: Array | None,
        out: Array,
        kept: Sequence[Array],
    ) -> list[Step]:
        """Return what computes the layer for arrays that stay where they are, one after another.

        Parameters
        ----------
        weights
            What `product` prepared of the filters.
        kept
            Arrays of `shapes`.
        """
        padded, numbers, sums = kept
        flat, flat_sums = (one.reshape(_TILE**2, -1, one.shape[-1]) for one in (numbers, sums))
        images = padded if self.pad else x
        return [
            *([self.pad.bind(x, out=padded)] if self.pad else []),
            self.enter.bind(images, out=tuple(numbers)),
            _bind_product(self.product, flat, weights, flat_sums),
            *(one.bind(sums, bias, residual, out) for one in self.leaves),
        ]


def tiles_of(layer: Convolution) -> tuple[int, int, int]:
    """Return how many images, and tiles along their axes, a layer has."""
    _, rows, columns, _ = layer.out_shape
    return layer.batch, -(-rows // OUT), -(-columns // OUT)


def _ends(extent: int) -> Iterator[tuple[int, int, int]]:
    """Yield whole tiles of an axis, and one that is cut off: from which on, how many, pixels."""
    whole, left = divmod(extent, OUT)
    if whole:
        yield 0, whole, OUT
    if left:
        yield whole, 1, left


def _bind_product(found: Plan, first: Array, weights: Prepared, out: Array) -> Step:
    """Return what multiplies arrays that stay where they are."""
    found(first, weights, out)
    recent = found.executor.recall(Argument(out, out), Argument(first, first), weights, ())
    if recent is None:
        return lambda: found(first, weights, out)
    return lambda: recent.run(out, 1.0, 0.0, first)


@dataclass(frozen=True, slots=True)
class _Pad:
    """Puts zeros around images: as many as tiles take."""

    ends: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, layer: Convolution) -> _Pad:
        """Return what does it for a layer."""
        _, *counts = tiles_of(layer)
        sides = zip(layer.size, layer.padding, counts, strict=True)
        ends = ((low, OUT * count + _TILE - OUT - n - low) for n, (low, _), count in sides)
        return cls(((0, 0), *ends, (0, 0)))

    def __call__(self, x: Array) -> Array:
        """Return the images with zeros around them."""
        return np.pad(x, self.ends)


def _join(
    stages: Sequence[Stage],
    sizes: Mapping[str, int],
    shapes: Mapping[str, Shape],
    dtype: str,
    machine: Machine,
    threads: int,
) -> NestPlan:
    """Return the plan of statements over images, tiles and channels."""
    outputs = [one.name for one in stages]
    computation = bind_stages(stages, sizes, dtype, shapes, outputs)
    order = "nyxc" if sizes["n"] >= threads > 1 else "ynxc"
    return join_statements(computation, order, machine, threads)


def _enter(layer: Convolution, machine: Machine, threads: int) -> NestPlan:
    """Return what makes the numbers of tiles."""
    stages = []
    for at, (row, column) in enumerate(product(_IMAGES, _IMAGES)):

        def read(i: int, j: int) -> Term:
            return Read("images", (_N, OUT * _Y + i, OUT * _X + j, _C))

        stages.append(Stage(f"tile{at}", (_N, _Y, _X, _C), _combine(row, column, read)))
    sizes = dict(zip("nyx", tiles_of(layer), strict=True)) | {"c": layer.channels}
    return _join(stages, sizes, {}, layer.dtype, machine, threads)


def _leave(
    layer: Convolution,
    pixels: tuple[int, int],
    activation: Epilogue,
    has_bias: bool,
    has_residual: bool,
) -> list[Stage]:
    """Return what makes pixels of sums."""
    stages = []
    for i, j in product(*map(range, pixels)):

        def read(row: int, column: int) -> Term:
            return Read("sums", (Affine.number(_TILE * row + column), _N, _Y, _X, _C))

        found = _combine(_RESULTS[i], _RESULTS[j], read)
        if has_bias:
            found = found + Read("bias", (_C,))
        if has_residual:
            found = found + Read("residual", (_N, OUT * _Y + i, OUT * _X + j, _C))
        found = reduce(_activate, activation.operations, found)
        stages.append(Stage(f"pixel{i}{j}", (_N, _Y, _X, _C), found))
    return stages


def _combine(row: Sequence[int], column: Sequence[int], read: Callable[[int, int], Term]) -> Term:
    """Return elements added up with factors of 1 and -1 along both axes."""

    def added(factors: Sequence[int], part: Callable[[int], Term]) -> Term:
        plus = [part(at) for at, factor in enumerate(factors) if factor > 0]
        minus = (part(at) for at, factor in enumerate(factors) if factor < 0)
        return reduce(lambda found, one: found - one, minus, reduce(add, plus))

    return added(column, lambda j: added(row, lambda i: read(i, j)))


def _activate(term: Term, operation: Operation) -> Term:
    """Return a function of an epilogue as a term."""
    name, numbers = operation.name, operation.numbers
    if name == "leaky":
        return Choose(apply("less", term, 0), term * numbers[0], term)
    bounds = {"relu": (0.0, np.inf), "relu6": (0.0, 6.0), "clip": numbers}.get(name)
    if bounds is None:
        return apply(name.replace("-", "_"), term)
    low, high = bounds
    found = apply("maximum", term, low) if low > -np.inf else term
    return apply("minimum", found, high) if high < np.inf else found
