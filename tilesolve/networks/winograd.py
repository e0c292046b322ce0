"""Dense layers of 3x3 by Winograd's F(2x2, 3x3): 16 products for a tile in place of 36.

A tile of 4x4 pixels becomes 16 other numbers by additions; filters became such, once. Products of
both are summed over channels, as 16 contractions of one plan, and become 2x2 pixels of the result
by additions; bias, residual and activation are part of these. Additions are nests whose vectors lie
along channels. Rounding differs from that of a direct sum, and a tile that has an infinite number
may become NaN as a whole. See docs/decisions/077.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import prod

import numpy as np

from tilesolve.constants.nests import WINOGRAD_CROSSING_SHARE
from tilesolve.constants.policy import TIME_TOLERANCE
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.machine.detect import default_threads
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine
from tilesolve.model.price import list_levels
from tilesolve.model.score import begin_seconds, score_price
from tilesolve.model.starts import charge_sources, start_arrays
from tilesolve.nests.joined import join_statements
from tilesolve.nests.plan import NestPlan
from tilesolve.networks.chains import Chain
from tilesolve.networks.winograd_calls import Calls, LayerCall, NestCall, ProductCall
from tilesolve.networks.winograd_stages import OUT, TILE, enter_tiles, leave_tiles
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.sizes import LINE_BYTES
from tilesolve.pipelines.front import pipeline
from tilesolve.plans import cache as plan_cache
from tilesolve.plans.files import refuse_damage
from tilesolve.plans.plan import Plan, plan
from tilesolve.running.prepared import Prepared

Shape = tuple[int, ...]

Band = tuple[int, int]
"""Images, and rows of tiles, of a band."""


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
                self.known[key] = self._plan(layer, chain)
        return self.known[key]

    def _plan(self, layer: ConvLayer, chain: Chain) -> WinogradPlan | None:
        """Return the best plan of a layer if it is faster than the layer's own.

        Which bands it has is kept on disk.
        """
        convolution, machine = layer.convolution, Machine.load(self.machine)
        threads = default_threads() if self.threads is None else self.threads
        given = Epilogue.of(chain.activation or None), machine, threads
        ends = chain.bias is not None, layer.has_residual

        @cache
        def plan_bands(band: Band) -> WinogradPlan:
            return WinogradPlan.of(
                convolution, band, *given, has_bias=ends[0], has_residual=ends[1]
            )

        def solve() -> Band | tuple[()]:
            return _choose_band(layer, machine, threads, plan_bands)

        if plan_cache.is_enabled():
            shares = TIME_TOLERANCE, WINOGRAD_CROSSING_SHARE
            key = convolution, chain.activation, machine.to_toml(), threads, ends, shares
            band = plan_cache.recall(("winograd", *key), _read_band, solve, json.dumps)
        else:
            band = solve()
        return plan_bands(band) if band else None


def _read_band(text: str) -> Band | tuple[()]:
    """Return what `json.dumps` wrote: a band, or nothing."""
    with refuse_damage():
        images, rows = json.loads(text) or (0, 0)
    return (images, rows) if images else ()


def _choose_band(
    layer: ConvLayer, machine: Machine, threads: int, plan_bands: Callable[[Band], WinogradPlan]
) -> Band | tuple[()]:
    """Return the bands by which a layer is fastest; nothing if it is so by itself."""
    convolution = layer.convolution
    batch, rows, columns = tiles_of(convolution)
    flops = 2 * TILE**2 * batch * rows * columns * convolution.channels * convolution.filters
    if flops / machine.peak(convolution.dtype, threads) >= layer.plan.seconds:
        return ()
    plans = map(plan_bands, list_bands(convolution, machine, threads))
    crossing = 1 + WINOGRAD_CROSSING_SHARE
    found = min(plans, key=lambda one: one.seconds * (crossing if one.side == 1 else 1))
    assert isinstance(layer.plan, Plan)
    usual = (1 - TIME_TOLERANCE) * warm_seconds(layer.plan)
    return found.band if found.seconds < usual else ()


def list_bands(layer: Convolution, machine: Machine, threads: int = 1) -> list[Band]:
    """Return which bands are looked at: all at once, and if need be rows that stay in a cache.

    That is the one before the last. Of several threads each may have a band.

    Examples
    --------
    >>> layer = Convolution.of((1, 56, 56, 16), (16, 16, 3, 3), padding=1, layout="NHWC")
    >>> list_bands(layer, Machine.load("i7-6700k"))
    [(1, 28), (1, 4)]
    >>> list_bands(layer, Machine.load("i7-6700k"), threads=2)
    [(1, 28), (1, 14), (1, 4)]
    """
    batch, rows, columns = tiles_of(layer)
    element = np.dtype(layer.dtype).itemsize
    row = columns * TILE**2 * (layer.channels + layer.filters) * element
    whole, cache = (batch, rows), max((one.capacity or 0 for one in machine.caches[:-1]), default=0)
    found = [whole]
    if batch % threads == 0:
        found.append((batch // threads, rows))
    elif batch == 1 and rows % threads == 0:
        found.append((1, rows // threads))
    if batch * rows * row <= cache:
        return list(dict.fromkeys(found))
    room = cache - TILE**2 * layer.channels * layer.filters * element
    fits = [(1, n) for n in range(1, rows) if rows % n == 0 and n * row <= room]
    return list(dict.fromkeys([*found, *fits[-1:]]))


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

    def call(
        self, products: Array, bias: Array | None, residual: Array | None, out: Array
    ) -> NestCall:
        """Return the call that computes them."""
        (y, rows), (x, columns) = self.tiles
        given = [products[:, :, y : y + rows, x : x + columns]]
        low = (slice(None), slice(OUT * y, None), slice(OUT * x, None))
        high, wide = (OUT * (n - 1) + p for n, p in zip((rows, columns), self.pixels, strict=True))
        given += [] if bias is None else [bias]
        given += [] if residual is None else [residual[low][:, :high, :wide]]
        part = out[low][:, :high, :wide]
        outs = tuple(part[:, i::OUT, j::OUT] for i, j in product(*map(range, self.pixels)))
        return NestCall(self.plan, given, outs if len(outs) > 1 else outs[0])


@dataclass(frozen=True, slots=True, eq=False)
class WinogradPlan:
    """How a layer is computed: in bands of rows of tiles, one after another.

    Parameters
    ----------
    layer
        Shapes and arguments.
    band
        Images, and rows of tiles, of a band.
    side
        How many bands run side by side, each in a thread.
    pad, enter, product
        What puts zeros around images, if any are needed; what makes 16 numbers of each tile of a
        band; and what sums their products with filters.
    leaves
        What makes pixels of the sums, by the rows of pixels of a band.
    """

    layer: Convolution
    band: Band
    side: int
    pad: NestPlan | None
    enter: NestPlan
    product: Plan
    leaves: Mapping[int, tuple[_Leave, ...]]

    @classmethod
    def of(
        cls,
        layer: Convolution,
        band: Band,
        activation: Epilogue,
        machine: Machine,
        threads: int,
        *,
        has_bias: bool = False,
        has_residual: bool = False,
    ) -> WinogradPlan:
        """Plan a layer in bands."""
        batch, rows, columns = tiles_of(layer)
        count = batch * rows // prod(band)
        side = threads if count >= threads else 1
        own, each = divide_machine(machine, side), threads // side
        matrices = plan(
            "bxk-bxc-bck",
            {"b": TILE**2, "x": prod(band) * columns, "k": layer.filters, "c": layer.channels},
            own,
            dtype=layer.dtype,
            threads=each,
            constant="B",
            aligned_output=True,
        )
        whole, pixels = OUT * band[1], layer.out_shape[1:3]
        heights = {min(whole, pixels[0] - OUT * y) for y in range(0, rows, band[1])}
        leaves = dict[int, tuple[_Leave, ...]]()
        for height in heights:
            found = []
            for (y, high, deep), (x, wide, broad) in product(_ends(height), _ends(pixels[1])):
                stages = leave_tiles((deep, broad), activation, has_bias, has_residual)
                sizes = {"n": band[0], "y": high, "x": wide, "c": layer.filters}
                sums = {"sums": (TILE**2, *sizes.values())}
                nest = _join(stages, sizes, sums, layer.dtype, own, each)
                found.append(_Leave(((y, high), (x, wide)), (deep, broad), nest))
            leaves[height] = tuple(found)
        sizes = {"n": band[0], "y": band[1], "x": columns, "c": layer.channels}
        enter = _join(enter_tiles(), sizes, {}, layer.dtype, own, each)
        zeros, pad = _Pad.of(layer), None
        if any(map(any, zeros.ends)):
            images = np.broadcast_to(np.zeros((), layer.dtype), layer.x_shape)
            pad = pipeline(zeros, machine=machine, threads=threads).plan(images)
        return cls(layer, band, side, pad, enter, matrices, leaves)

    @property
    def bands(self) -> list[tuple[int, int]]:
        """The first image and the first row of tiles of each band."""
        batch, rows, _ = tiles_of(self.layer)
        return list(product(range(0, batch, self.band[0]), range(0, rows, self.band[1])))

    @property
    def seconds(self) -> float:
        """The predicted time, of images and weights that lie in a cache."""
        leaves = self.leaves.values()
        band = max(sum(one.plan.solution.work_seconds for one in found) for found in leaves)
        band += self.enter.solution.work_seconds + warm_seconds(self.product)
        pad = self.pad.solution.work_seconds if self.pad else 0.0
        return pad + band * -(-len(self.bands) // self.side)

    def predict(self, since: float) -> float:
        """Return the predicted time amid others that touched so many bytes since the weights."""
        near = sum(self.product.price.levels[-1].moved)
        first = self.product.solution.score_after((near, near, since))
        return self.seconds + first - warm_seconds(self.product)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of what is kept meanwhile: images with zeros, and both matrices of bands at work.

        Those of a thread lie together where each has its own.
        """
        layer, (batch, *counts) = self.layer, tiles_of(self.layer)
        padded = (OUT * count + TILE - OUT for count in counts)
        images = (batch, *padded, layer.channels) if self.pad else (0,)
        sizes = [TILE**2 * row for row in self._rows]
        return images, *([(self.side, sum(sizes))] if self.side > 1 else [(1, n) for n in sizes])

    @property
    def _rows(self) -> list[int]:
        """The elements of a row of both matrices.

        Rows are an odd number of lines apart: elements at the same place of different ones fall
        into different sets of a cache.
        """
        line = LINE_BYTES // np.dtype(self.layer.dtype).itemsize
        tiles = prod(self.band) * tiles_of(self.layer)[2]
        sizes = (tiles * extent for extent in (self.layer.channels, self.layer.filters))
        return [line * (-(-size // line) | 1) for size in sizes]

    def calls(
        self,
        x: Array,
        weights: Prepared,
        bias: Array | None,
        residual: Array | None,
        out: Array,
        kept: Sequence[Array],
    ) -> Calls:
        """Return the calls that compute the layer for arrays that stay where they are.

        Parameters
        ----------
        weights
            What `product` prepared of the filters.
        kept
            Arrays of `shapes`.
        """
        images, *matrices = kept
        found = [NestCall(self.pad, [x], images)] if self.pad else []
        source = images if self.pad else x
        lanes: list[list[LayerCall]] = [[] for _ in range(self.side)]
        for at, (first, row) in enumerate(self.bands):
            lane = at * self.side // len(self.bands)
            mine = slice(first, first + self.band[0])
            low, high = OUT * row, min(OUT * (row + self.band[1]), self.layer.out_shape[1])
            numbers, sums = (
                _cut_rows(one, (*self.band, tiles_of(self.layer)[2], extent))
                for one, extent in zip(
                    self._cut_lane(matrices, lane),
                    (self.layer.channels, self.layer.filters),
                    strict=True,
                )
            )
            part = source[mine, low : OUT * (row + self.band[1]) + TILE - OUT]
            added = None if residual is None else residual[mine, low:high]
            lanes[lane] += [
                NestCall(self.enter, [part], tuple(numbers)),
                ProductCall(self.product, _flatten(numbers), weights, _flatten(sums)),
                *(
                    one.call(sums, bias, added, out[mine, low:high])
                    for one in self.leaves[high - low]
                ),
            ]
        return Calls(found, lanes)

    def _cut_lane(self, kept: Sequence[Array], lane: int) -> list[Array]:
        """Return both matrices of a band, with whole rows."""
        cut = TILE**2 * self._rows[0]
        parts = [one[lane] for one in kept] if self.side == 1 else np.split(kept[0][lane], [cut])
        return [one.reshape(TILE**2, -1) for one in parts]


def _cut_rows(kept: Array, shape: Shape) -> Array:
    """Return the first elements of each row as an array of a shape."""
    return kept[:, : prod(shape)].reshape(-1, *shape)


def _flatten(matrices: Array) -> Array:
    return matrices.reshape(len(matrices), -1, matrices.shape[-1])


def warm_seconds(found: Plan) -> float:
    """Return what a plan is predicted to take for arrays that lie in a cache."""
    places, costs = list_levels(found.machine, found.threads), found.machine.costs
    return begin_seconds(found.price, costs) + score_price(
        charge_sources(start_arrays(found.price, places, "warm")), costs.level_overlap
    )


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


@dataclass(frozen=True, slots=True)
class _Pad:
    """Puts zeros around images: as many as tiles take."""

    ends: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, layer: Convolution) -> _Pad:
        """Return what does it for a layer."""
        _, *counts = tiles_of(layer)
        sides = zip(layer.size, layer.padding, counts, strict=True)
        ends = ((low, OUT * count + TILE - OUT - n - low) for n, (low, _), count in sides)
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
