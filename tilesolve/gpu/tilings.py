"""Tilings of a product on a device: what they move and take, as numbers or as symbols.

Nothing of a sum but C stays from step to step, neither in registers nor in shared memory; blocks of
threads that run at once share what L2 holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants import gpu as limits
from tilesolve.contractions.device_problem import DeviceProblem
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.occupancy import Occupancy, find_occupancy
from tilesolve.gpu.product import Product
from tilesolve.kernels.gpu.forms import WARP, Form
from tilesolve.machine.device import Device
from tilesolve.model.access import Box
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import tree_of_bands
from tilesolve.model.price import LevelPrice, Price
from tilesolve.model.score import score_times
from tilesolve.model.traffic import Traffic, count_traffic

Vector = NDArray[np.float64]
"""A number for each of some tilings."""

ORDERS = (("register", "MNKB"), ("shared", "KMNB"), ("L2", "KMNB"), ("memory", "KNMB"))
"""Bands of loops, innermost first: of warps, of blocks at once, of all blocks."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut on a device: the kernel, and parts of the sum, for blocks of their own.

    Blocks go down `group` rows of tiles before they go on to the next columns.
    """

    form: Form
    parts: int = 1
    group: int = 8


def view_levels(device: Device) -> tuple[LevelView, ...]:
    """Return registers, shared memory and L2, and what refills them.

    Examples
    --------
    >>> [(one.name, one.server) for one in view_levels(Device.load("a100"))]
    [('register', 'shared'), ('shared', 'L2'), ('L2', 'memory')]
    """
    names = ("register", *(level.name for level in device.levels))
    sizes = (4 * device.registers, *(level.capacity or 0 for level in device.levels))
    return tuple(
        LevelView(name, float(size), 1, level.name, level.bandwidth, read=level.read)
        for name, size, level in zip(names, sizes, device.levels, strict=False)
    )


def matrix_problem(product: Product) -> Problem:
    """Return a product as a problem over rows M, columns N, sums K and batches B."""
    sizes = dict(zip("MNKB", product.extents, strict=True))
    return DeviceProblem.of("BMN-BMK-BKN", sizes, product.problem.dtype)


def count_bytes(product: Product, device: Device, boxes: Mapping[str, Box]) -> Traffic:
    """Return what tiles of warps, blocks and of all blocks at once move; sizes may be symbols.

    Boxes are the sides of tiles of ``register``, ``shared`` and ``L2``.
    """
    problem = matrix_problem(product)
    whole: Box = dict(problem.sizes)
    bands = [(level, tuple(order)) for level, order in ORDERS]
    found = [{**boxes[level], "B": 1} for level, _ in ORDERS[:-1]]
    tree = tree_of_bands(problem, bands, [*found, whole], (None, None), "stream")
    traffic = count_traffic(tree, view_levels(device), "tiles")
    # Sums of all warps and blocks stay in registers at once: a tree has one after another.
    moved, volumes = (
        tuple((float(product.output_bytes), *operands) for _, *operands in own)
        for own in (traffic.moved, traffic.volumes)
    )
    return replace(traffic, moved=moved, volumes=volumes)


def estimate_registers(form: Form) -> int:
    """Return about how many registers a thread takes; the assembler says how many it does.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.forms import Ending, Operand
    >>> operands = Operand(True, 8), Operand(False, 8)
    >>> form = Form(Ending("float16"), 128, 128, 32, (2, 4), 3, *operands)
    >>> estimate_registers(form) < 168
    True
    """
    down, across = form.side
    first, second, sums = form.fragment.registers
    held = down * across * sums + down * first + across * second
    ahead = 0 if form.fragment.instructions else limits.FMA_REGISTERS
    return held + limits.OTHER_REGISTERS + ahead + limits.CHUNK_REGISTERS * sum(form.chunks)


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What tilings move and take, all at once: arrays have an entry for each.

    Bytes are of C, A and B that each level serves, with parts of sums. Times are seconds of each
    server, of the arithmetic, and of what is waited for besides.
    """

    moved: tuple[tuple[Vector, ...], ...]
    volumes: tuple[tuple[Vector, ...], ...]
    levels: tuple[Vector, ...]
    compute: Vector
    waiting: Vector
    blocks: Vector


def estimate(
    product: Product, device: Device, tilings: Sequence[Tiling], held: Sequence[Occupancy]
) -> Estimate:
    """Return what tilings move and take, given how many blocks a multiprocessor holds of each.

    Shared memory and L2 feed each multiprocessor by itself, so that the busiest one's time counts.
    Where a kernel's rows, and twice its columns, of all steps of a sum do not fit L2, blocks share
    there what they read in the same step. A block's tile is of half the steps at most, so that none
    stays in shared memory for the next block.
    """
    rows, columns, steps, batches = product.extents
    form = {
        name: np.array([getattr(one.form, name) for one in tilings])
        for name in ("rows", "columns", "depth", "ahead")
    }
    warps = np.array([one.form.read_tile for one in tilings]).T
    deep = np.array([one.form.fragment.depth for one in tilings])
    parts, group = (
        np.array([getattr(one, name) for one in tilings]) for name in ("parts", "group")
    )
    resident = np.array([one.blocks for one in held])
    tiles = np.ceil(rows / form["rows"]), np.ceil(columns / form["columns"])
    blocks = tiles[0] * tiles[1] * batches * parts
    busiest = np.ceil(blocks / device.multiprocessors)
    rounds = np.ceil(busiest / resident)
    part = np.ceil(np.ceil(steps / parts) / form["depth"]) * form["depth"]
    down = np.minimum(group, tiles[0])
    at_once = np.minimum(blocks, resident * device.multiprocessors)
    across = np.clip(at_once // down, 1, tiles[1])
    high, wide = form["rows"] * down, form["columns"] * across
    shared = (high + 2 * wide) * part * product.problem.itemsize
    fits = shared <= (device.level("L2").capacity or 0)
    far = np.minimum(steps, np.where(fits, part, 2 * form["depth"]))
    boxes = _boxes(
        product,
        (*warps, np.minimum(deep, np.maximum(1, far // 2))),
        (form["rows"], form["columns"], np.minimum(form["depth"], np.maximum(1, far // 2))),
        (high, wide, far),
    )
    traffic = count_bytes(product, device, boxes)
    sums = np.where(
        parts > 1, 2.0 * parts * rows * columns * batches * tilings[0].form.fragment.summed, 0.0
    )
    uneven = busiest * device.multiprocessors / blocks
    seconds, volumes = [], []
    for at, view in enumerate(view_levels(device)):
        own = traffic.volumes[at]
        more = sums if at else 0.0 * sums
        volumes.append((own[0] + more, *(one + 0.0 * sums for one in own[1:])))
        longer = uneven if at < 2 else 1.0
        seconds.append(view.seconds(own) * longer + more / view.bandwidth)
    work = busiest * (2.0 * form["rows"] * form["columns"] * part)
    busy = _busy_seconds(device, tilings, np.minimum(resident, busiest), work)
    trips = part / form["depth"]
    busy = busy + rounds * trips * limits.STEP_CYCLES / device.frequency
    fetch_seconds = limits.FETCH_SHARE * device.latency_seconds
    fetched = rounds * trips * fetch_seconds / np.maximum(1, form["ahead"])
    copies = np.array([_copy_instructions(one.form) for one in tilings])
    copying = busiest * trips * copies / (limits.QUARTERS * device.frequency)
    waiting = device.launch_seconds * (1 + limits.PART_LAUNCHES * (parts > 1))
    waiting = waiting + rounds * device.latency_seconds
    compute = np.maximum(np.maximum(busy, fetched), copying)
    return Estimate(traffic.moved, tuple(volumes), tuple(seconds), compute, waiting, blocks)


def _busy_seconds(
    device: Device, tilings: Sequence[Tiling], active: Vector, work: Vector
) -> Vector:
    """Return how long a multiprocessor's arithmetic takes, with so many blocks at once."""
    sides = np.array([one.form.side for one in tilings]).prod(axis=1)
    grouped = np.array([one.form.grouped for one in tilings])
    fragments = np.where(grouped, limits.BUSY_FRAGMENTS, sides)
    quarters = active * np.array([one.form.threads for one in tilings]) / WARP / limits.QUARTERS
    busy = np.minimum(fragments, limits.BUSY_FRAGMENTS) / limits.BUSY_FRAGMENTS * quarters
    rates = {name: device.peak(name) or 0.0 for name in {one.form.engine for one in tilings}}
    rate = np.array([rates[one.form.engine] for one in tilings]) / device.multiprocessors
    seconds: Vector = work / (rate * np.minimum(1.0, np.minimum(busy, quarters)))
    return seconds


def _copy_instructions(form: Form) -> float:
    """Return the instructions of a block's warps that copies of one stage take."""
    boxes = sum(map(form.pieces, form.boxed))
    chunks = sum(form.chunks) * form.threads / WARP
    return limits.CHUNK_INSTRUCTIONS * chunks + limits.BOX_INSTRUCTIONS * boxes


def _boxes(product: Product, *sides: Sequence[Vector]) -> dict[str, Box]:
    """Return the boxes of tiles, no larger than the product."""
    extents = product.extents
    return {
        level: {
            letter: np.minimum(side, extent)
            for letter, side, extent in zip("MNK", own, extents, strict=False)
        }
        for (level, _), own in zip(ORDERS, sides, strict=False)
    }


def price_levels(
    device: Device,
    moved: Sequence[Sequence[Vector | float]],
    volumes: Sequence[Sequence[Vector | float]],
    seconds: Sequence[Vector | float],
) -> tuple[LevelPrice, ...]:
    """Return the prices of levels, of one tiling: nothing is packed."""
    return tuple(
        LevelPrice(
            view.server,
            view.name,
            tuple(float(np.max(one)) for one in near),
            tuple(float(np.max(one)) for one in far),
            (0.0,) * len(far),
            float(np.max(time)),
        )
        for view, near, far, time in zip(view_levels(device), moved, volumes, seconds, strict=True)
    )


def price_tiling(
    product: Product, device: Device, tiling: Tiling, occupancy: Occupancy
) -> tuple[Price, float]:
    """Return what one tiling costs, and the seconds that are waited for besides."""
    found = estimate(product, device, [tiling], [occupancy])
    levels = price_levels(device, found.moved, found.volumes, found.levels)
    price = Price(levels, float(found.compute[0]), float(found.blocks[0]), (0.0, 0.0))
    return price, float(found.waiting[0])


def score_tilings(product: Product, device: Device, tilings: Sequence[Tiling]) -> Vector:
    """Return the seconds that tilings are compared by, which all fit the device."""
    held = [occupy(device, one.form) for one in tilings]
    found = estimate(product, device, tilings, held)
    times = np.array([*found.levels, found.compute])
    scores: Vector = score_times(times, device.overlap) + found.waiting
    return scores


@lru_cache(maxsize=16384)
def occupy(device: Device, form: Form) -> Occupancy:
    """Return how many blocks of a kernel a multiprocessor holds, by estimated registers."""
    return find_occupancy(device, form.threads, estimate_registers(form), form.shared_bytes)
