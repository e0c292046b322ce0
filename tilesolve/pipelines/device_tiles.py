"""Groups of stages on a GPU: tiles of the last one, what they take, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import ceil, prod

import numpy as np

from tilesolve.constants.gpu import (
    BARRIER_CYCLES,
    BUSY_WARPS,
    CHANNELS,
    LEAST_OCCUPANCY,
    POINT_OPERATIONS,
    POINT_SHARES,
    STAGE_REGISTERS,
    TILE_HEIGHTS,
    TILE_WIDTHS,
)
from tilesolve.contractions.statements.affine import Affine, Box
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Term
from tilesolve.gpu.occupancy import Occupancy, find_occupancy
from tilesolve.gpu.tilings import view_levels
from tilesolve.kernels.gpu.forms import WARP
from tilesolve.kernels.gpu.stages import Side, StageKernel, Step
from tilesolve.machine.device import Device
from tilesolve.model.price import LevelPrice, Price
from tilesolve.model.score import score_price
from tilesolve.nests.cuts import largest_part
from tilesolve.nests.operations import count_operations
from tilesolve.nests.regions import Regions, find_regions
from tilesolve.nests.spans import Span
from tilesolve.nests.subscript_ends import subscript_ends

Tiles = Mapping[str, int]
"""Of each letter of a group's last stage."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """A group with tiles, and their price.

    Parameters
    ----------
    kernel
        What computes it.
    registers
        Of a thread, counted or estimated.
    occupancy
        Blocks that a multiprocessor holds at once.
    cost, waiting, score
        The price, the seconds that are waited for besides, and what both are compared by.
    work
        How many points are computed for each that the stages have.
    """

    kernel: StageKernel
    registers: int
    occupancy: Occupancy
    cost: Price
    waiting: float
    score: float
    work: float

    @property
    def names(self) -> tuple[str, ...]:
        """Its stages."""
        return tuple(step.name for step in self.kernel.steps)


@dataclass(frozen=True, slots=True)
class _Work:
    """What a point of a stage does: operations, and bytes of loads; and terms that say so."""

    stage: Stage
    operations: float
    loaded: float
    size: int
    steps: int


@dataclass(frozen=True)
class DeviceGroup:
    """Stages that run in one kernel, whose tiles are to be found.

    Parameters
    ----------
    device
        Where.
    computation
        The stages, the last of which is the only one that others need.
    """

    device: Device
    computation: Computation
    _known: dict[tuple[object, ...], tuple[int, float]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def regions(self) -> Regions:
        """What tiles need of each stage."""
        return find_regions(self.computation)

    @cached_property
    def _works(self) -> tuple[_Work, ...]:
        found, dtypes, sizes = [], self.computation.dtypes, self.computation.sizes
        for whole in self.computation.stages:
            stage = largest_part(self.computation, whole)
            loaded = sum(np.dtype(dtypes[read.array]).itemsize for read in stage.term.reads)
            steps = prod(sizes[x] for x in stage.summed)
            size = np.dtype(dtypes[stage.name]).itemsize
            found.append(_Work(stage, count_operations(stage.term, dtypes), loaded, size, steps))
        return tuple(found)

    @property
    def arrays(self) -> tuple[ArrayInfo, ...]:
        """What the kernel is given, the array that it writes last."""
        made = {stage.name for stage in self.computation.stages}
        given = [one for one in self.computation.arrays if one.name not in made]
        given += [ArrayInfo(name, (1,), kind) for name, kind in self.computation.params]
        return (*given, self.computation.output)

    def list_tiles(self) -> Iterator[dict[str, int]]:
        """Yield tiles worth a look: few values as a whole, those side by side first."""
        extents = self.regions.extents
        wide = [letter for letter, extent in extents.items() if extent > CHANNELS]
        sides = (*reversed((TILE_WIDTHS, TILE_HEIGHTS)[: len(wide)]),)
        choices = [
            sorted({min(side, extents[x]) for side in own})
            for x, own in zip(wide[-len(sides) :], sides, strict=False)
        ]
        ones = {x: 1 if x in wide else extent for x, extent in extents.items()}
        for chosen in product(*choices):
            yield {**ones, **dict(zip(wide[-len(sides) :], chosen, strict=False))}

    def tile(self, tiles: Tiles) -> StageKernel:
        """Return the kernel for tiles, with a thread for each point of the largest stage."""
        steps = tuple(self._step(work.stage.name, at, tiles) for at, work in enumerate(self._works))
        items = max(prod(x.room for x in one.sides if x.extent > CHANNELS) for one in steps)
        threads = ceil(items / WARP) * WARP
        return StageKernel(
            self.computation.stages[-1].name,
            steps,
            tuple(tiles.items()),
            tuple(self.computation.sizes.items()),
            self.arrays,
            threads,
        )

    def _step(self, name: str, at: int, tiles: Tiles) -> Step:
        spans = self.regions.spans[name]
        sides = tuple(
            Side(x, span.extent, span.low, span.high, self._reach(span, tiles)[0])
            for x, span in spans.items()
        )
        stage = self.computation.stages[at]
        return Step(name, sides, stage.term, self.computation.dtypes[name])

    def _reach(self, span: Span, tiles: Tiles) -> tuple[int, float]:
        """Return the most values that a tile needs, and how many tiles need in the mean."""
        letters = span.low.letters
        key = span, *(tiles[x] for x in letters)
        if key not in self._known:
            extents = self.regions.extents
            begins = np.ix_(*(np.arange(0, extents[x], tiles[x]) for x in letters))
            first = dict(zip(letters, begins, strict=True))
            last = {x: np.minimum(one + tiles[x], extents[x]) - 1 for x, one in first.items()}
            lengths = np.asarray(span.lengths(first, last))
            self._known[key] = max(int(lengths.max()), 1), float(lengths.mean())
        return self._known[key]

    def price(self, kernel: StageKernel, registers: int = STAGE_REGISTERS) -> Tiled | None:
        """Return a kernel with its price; None if the device does not hold enough of its blocks.

        Each multiprocessor feeds itself from L1 and L2: the busiest one's time counts. All take
        longer where too few warps run at once.
        """
        device, tiles = self.device, dict(kernel.tiles)
        held = find_occupancy(device, kernel.threads, registers, kernel.shared_bytes)
        if held.share < LEAST_OCCUPANCY or not held.blocks:
            return None
        busiest = ceil(kernel.blocks / device.multiprocessors)
        uneven = busiest * device.multiprocessors / kernel.blocks
        warps = kernel.threads / WARP * min(held.blocks, busiest)
        slower = max(1.0, BUSY_WARPS / warps)
        near, points, compute = np.zeros(2), 0.0, 0.0
        for work, step in zip(self._works, kernel.steps, strict=True):
            spans = self.regions.spans[step.name].values()
            own = kernel.blocks * prod(self._reach(span, tiles)[1] for span in spans)
            near += own * work.size, own * work.steps * work.loaded
            points += own
            turns = ceil(step.points / kernel.threads) * kernel.threads * kernel.blocks
            each = work.operations * work.steps + POINT_OPERATIONS
            peak = device.peak("fma64" if step.dtype == "float64" else "fma32") or 1.0
            compute += max(own, turns) * each * 2.0 / peak
        far, whole = self._outside(kernel, tiles)
        volumes = tuple(near), far, whole
        levels = tuple(
            LevelPrice(
                view.server,
                view.name,
                volume,
                volume,
                (0.0, 0.0),
                view.seconds(volume) * slower * (uneven if view.server != "memory" else 1.0),
            )
            for view, volume in zip(view_levels(device), volumes, strict=True)
        )
        rounds = ceil(busiest / held.blocks)
        pause = sum(kernel.waits) * BARRIER_CYCLES / device.frequency + device.latency_seconds
        waiting = device.launch_seconds + rounds * pause
        cost = Price(levels, compute * slower * uneven, float(kernel.blocks), ())
        once = sum(self.regions.points(step.name, {}) for step in kernel.steps)
        score = score_price(cost, device.overlap, waiting)
        return Tiled(kernel, registers, held, cost, waiting, score, points / max(once, 1))

    def _outside(
        self, kernel: StageKernel, tiles: Tiles
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return bytes of arrays that are written and read: by all tiles, and once."""
        computation = self.computation
        written = float(computation.output.bytes)
        far = once = 0.0
        for array in self.arrays[:-1]:
            own = 0.0
            for work, step in zip(self._works, kernel.steps, strict=True):
                box = {side.letter: (0, side.room - 1) for side in step.sides}
                box |= {x: (0, computation.sizes[x] - 1) for x in work.stage.summed}
                reads = [one.subscripts for one in work.stage.term.reads if one.array == array.name]
                if reads:
                    sides = map(_hull, zip(*reads, strict=True), array.shape, [box] * len(reads[0]))
                    own += prod(sides) * np.dtype(array.dtype).itemsize
            far += own * kernel.blocks
            once += min(own * kernel.blocks, float(array.bytes))
        return (written, far), (written, once)

    def best(self) -> list[Tiled]:
        """Return kernels by their scores, the best one first; none if the device holds none."""
        found = dict[tuple[object, int], Tiled]()
        for tiles in self.list_tiles():
            whole = self.tile(tiles)
            if whole.shared_bytes > self.device.shared_block:
                continue
            for share in POINT_SHARES:
                threads = ceil(whole.threads / share / WARP) * WARP
                key = whole.tiles, threads
                if threads > self.device.block_threads or key in found:
                    continue
                one = self.price(replace(whole, threads=threads))
                if one is not None:
                    found[key] = one
        return sorted(found.values(), key=lambda one: one.score)


def _hull(subscripts: Sequence[Affine | Term], extent: int, box: Box) -> int:
    """Return how many values along an axis reads reach together, in a box of about such a size."""
    ends = [subscript_ends(one, box) for one in subscripts]
    known = [(one.low, one.high) for one in ends if one.low is not None and one.high is not None]
    if len(known) < len(ends):
        return extent
    low = min(one.interval(box)[0] for one, _ in known)
    high = max(one.interval(box)[1] for _, one in known)
    return min(high - low + 1, extent)
