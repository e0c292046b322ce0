"""Groups of stages on a GPU: tiles of the last one, what they take, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import ceil, inf, prod

import numpy as np

from tilesolve.constants import gpu as limits
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.gpu.occupancy import Occupancy, find_occupancy
from tilesolve.gpu.tilings import price_levels, view_levels
from tilesolve.kernels.gpu.forms import WARP
from tilesolve.kernels.gpu.stages import Side, StageKernel, Step
from tilesolve.machine.device import Device
from tilesolve.model.access import Access
from tilesolve.model.price import Price
from tilesolve.model.score import score_price
from tilesolve.nests.cuts import largest_part
from tilesolve.nests.operations import count_operations
from tilesolve.nests.references import find_references
from tilesolve.nests.regions import Regions, find_regions
from tilesolve.nests.spans import Span

Tiles = Mapping[str, int]
"""Of each letter of a group's last stage."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """A group with tiles, their price, and a score of it and of what is waited for besides.

    Registers are of a thread, counted or estimated; work is how many points are computed for each
    that the stages have; `thesis` is what chapter 6 compares groups by, in operations.
    """

    kernel: StageKernel
    registers: int
    occupancy: Occupancy
    cost: Price
    score: float
    work: float
    thesis: float

    @property
    def names(self) -> tuple[str, ...]:
        """Its stages."""
        return tuple(step.name for step in self.kernel.steps)


@dataclass(frozen=True, slots=True)
class _Work:
    """What a point of a stage does: operations, loads and their bytes, its element's, and sums.

    Outside are what it reads of arrays that no stage of the group computes.
    """

    operations: float
    loads: int
    loaded: float
    size: int
    summed: Mapping[str, int]
    outside: tuple[Access, ...]

    @property
    def steps(self) -> int:
        """Steps of its sums."""
        return prod(self.summed.values())


@dataclass(frozen=True, slots=True)
class _Moves:
    """What all tiles compute, and what they move: bytes that are written, and that are read."""

    points: tuple[float, ...]
    near: tuple[float, float]
    far: tuple[float, float]
    once: tuple[float, float]


@dataclass(frozen=True, eq=False)
class DeviceGroup:
    """Stages that run in one kernel, of which others need the last one; its tiles are sought."""

    device: Device
    computation: Computation
    _known: dict[tuple[object, ...], tuple[int, float]] = field(default_factory=dict)
    _moved: dict[tuple[tuple[str, int], ...], _Moves] = field(default_factory=dict)

    @cached_property
    def regions(self) -> Regions:
        """What tiles need of each stage."""
        return find_regions(self.computation)

    @cached_property
    def _works(self) -> tuple[_Work, ...]:
        computation = self.computation
        return tuple(self._work(largest_part(computation, stage)) for stage in computation.stages)

    def _work(self, stage: Stage) -> _Work:
        computation, dtypes = self.computation, self.computation.dtypes
        reads, made = stage.term.reads, {one.name for one in computation.stages}
        return _Work(
            count_operations(stage.term, dtypes),
            len(reads),
            sum(np.dtype(dtypes[one.array]).itemsize for one in reads),
            np.dtype(dtypes[stage.name]).itemsize,
            {x: computation.sizes[x] for x in stage.summed},
            tuple(x for x in find_references(computation, stage) if x.array not in made),
        )

    @cached_property
    def _once(self) -> int:
        """Points of all stages, each computed once."""
        return max(sum(self.regions.points(one.name, {}) for one in self.computation.stages), 1)

    @cached_property
    def _waits(self) -> int:
        """Barriers of a kernel."""
        return sum(self.tile(self.regions.extents).waits)

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
        wide = [letter for letter, extent in extents.items() if extent > limits.CHANNELS]
        sides = (*reversed((limits.TILE_WIDTHS, limits.TILE_HEIGHTS)[: len(wide)]),)
        choices = [
            sorted({min(side, extents[x]) for side in own})
            for x, own in zip(wide[-len(sides) :], sides, strict=False)
        ]
        ones = {x: 1 if x in wide else extent for x, extent in extents.items()}
        for chosen in product(*choices):
            yield {**ones, **dict(zip(wide[-len(sides) :], chosen, strict=False))}

    def tile(self, tiles: Tiles) -> StageKernel:
        """Return the kernel for tiles, with a thread for each point of the largest stage."""
        steps = tuple(self._step(stage, tiles) for stage in self.computation.stages)
        items = max(prod(x.room for x in one.sides if x.extent > limits.CHANNELS) for one in steps)
        threads = ceil(items / WARP) * WARP
        sides = tuple(tiles.items()), tuple(self.computation.sizes.items())
        return StageKernel(steps[-1].name, steps, *sides, self.arrays, threads)

    def _step(self, stage: Stage, tiles: Tiles) -> Step:
        sides = tuple(
            Side(x, span.extent, span.low, span.high, self._reach(span, tiles)[0])
            for x, span in self.regions.spans[stage.name].items()
        )
        return Step(stage.name, sides, stage.term, self.computation.dtypes[stage.name])

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

    def price(self, kernel: StageKernel, registers: int = limits.STAGE_REGISTERS) -> Tiled | None:
        """Return a kernel with its price; None if the device does not hold enough of its blocks.

        Each multiprocessor feeds itself from L1 and L2: the busiest one's time counts. All take
        longer where too few warps run at once.
        """
        device = self.device
        held = find_occupancy(device, kernel.threads, registers, kernel.shared_bytes)
        if held.share < limits.LEAST_OCCUPANCY or not held.blocks:
            return None
        busiest = ceil(kernel.blocks / device.multiprocessors)
        uneven = busiest * device.multiprocessors / kernel.blocks
        warps = kernel.threads / WARP * min(held.blocks, busiest)
        slower = max(1.0, limits.BUSY_WARPS / warps)
        moves, compute = self._moves(kernel), 0.0
        for work, step, own in zip(self._works, kernel.steps, moves.points, strict=True):
            turns = ceil(step.points / kernel.threads) * kernel.threads * kernel.blocks
            each = work.operations * work.steps + limits.POINT_OPERATIONS
            peak = device.peak("fma64" if step.dtype == "float64" else "fma32") or 1.0
            compute += max(own, turns) * each * 2.0 / peak
        volumes, longer = (moves.near, moves.far, moves.once), (slower * uneven,) * 2 + (slower,)
        views = zip(view_levels(device), volumes, longer, strict=True)
        seconds = [view.seconds(volume) * own for view, volume, own in views]
        levels = price_levels(device, volumes, volumes, seconds)
        rounds = ceil(busiest / held.blocks)
        pause = self._waits * limits.BARRIER_CYCLES / device.frequency + device.latency_seconds
        waiting = device.launch_seconds + rounds * pause
        cost = Price(levels, compute * slower * uneven, float(kernel.blocks), ())
        score = score_price(cost, device.overlap, waiting)
        work_again = sum(moves.points) / self._once
        thesis = self._thesis_cost(kernel, held, moves)
        return Tiled(kernel, registers, held, cost, score, work_again, thesis)

    def _thesis_cost(self, kernel: StageKernel, held: Occupancy, moves: _Moves) -> float:
        """Return the cost of listing 6.1, of all tiles: operations and loads, by the occupancy.

        Loads from outside cost more the larger the array is, and less the more lie side by side.
        """
        few = len(kernel.steps) < limits.THESIS_STAGES
        least = limits.THESIS_OCCUPANCY if few else limits.LEAST_OCCUPANCY
        if held.share < least:
            return inf
        beside, total = kernel.tiles[-1][1], 0.0
        for work, own in zip(self._works, moves.points, strict=True):
            each, near = work.operations, float(work.loads)
            for one in work.outside:
                dearer = 1 + one.whole * limits.THESIS_L2_COST / limits.THESIS_FOOTPRINT
                loads = (one.loaded or one.element) / one.element
                once = loads * min(dearer, limits.THESIS_L2_COST)
                each += once / min(beside, limits.THESIS_TRANSACTION / one.element)
                near -= loads
            total += own * work.steps * (each + near)
        return total / (held.share * min(held.blocks * kernel.threads, self.device.block_threads))

    def _moves(self, kernel: StageKernel) -> _Moves:
        """Return what all tiles compute and move."""
        if kernel.tiles in self._moved:
            return self._moved[kernel.tiles]
        tiles, blocks = dict(kernel.tiles), kernel.blocks
        points, near, outside = list[float](), [0.0, 0.0], dict[str, float]()
        for work, step in zip(self._works, kernel.steps, strict=True):
            spans = self.regions.spans[step.name].values()
            points.append(blocks * prod(self._reach(span, tiles)[1] for span in spans))
            near[0] += points[-1] * work.size
            near[1] += points[-1] * work.steps * work.loaded
            box = {side.letter: side.room for side in step.sides} | dict(work.summed)
            for one in work.outside:
                sides = zip(one.reaches(box), one.shape, strict=True)
                needed = one.element * prod(min(float(reach), most) for reach, most in sides)
                outside[one.array] = outside.get(one.array, 0.0) + blocks * needed
        written = float(self.computation.output.bytes)
        once = sum(min(outside.get(x.name, 0.0), float(x.bytes)) for x in self.arrays[:-1])
        far = sum(outside.values())
        found = _Moves(tuple(points), (near[0], near[1]), (written, far), (written, once))
        self._moved[kernel.tiles] = found
        return found

    def list_tiled(self) -> list[Tiled]:
        """Return kernels that the device holds enough blocks of, for all tiles and threads."""
        found = dict[tuple[object, int], Tiled]()
        for tiles in self.list_tiles():
            whole = self.tile(tiles)
            if whole.shared_bytes > self.device.shared_block:
                continue
            for share in limits.POINT_SHARES:
                threads = ceil(whole.threads / share / WARP) * WARP
                key = whole.tiles, threads
                if threads > self.device.block_threads or key in found:
                    continue
                one = self.price(replace(whole, threads=threads))
                if one is not None:
                    found[key] = one
        return list(found.values())
