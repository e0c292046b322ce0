"""Tilings of a product on a device: what they move and take, as numbers or as symbols.

Nothing of a sum but C stays from step to step, neither in registers nor in shared memory; blocks of
threads that run at once share what L2 holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from tilesolve.constants.gpu import (
    BUSY_FRAGMENTS,
    CHUNK_REGISTERS,
    OTHER_REGISTERS,
    QUARTERS,
)
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.occupancy import Occupancy, find_occupancy
from tilesolve.gpu.product import Product
from tilesolve.kernels.gpu.forms import WARP, Arithmetic, Form
from tilesolve.machine.device import Device
from tilesolve.model.access import Box
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import tree_of_bands
from tilesolve.model.price import Price, price_levels
from tilesolve.model.score import score_price
from tilesolve.model.traffic import Traffic, count_traffic

ORDERS = (("register", "MNKB"), ("shared", "KMNB"), ("L2", "KMNB"), ("memory", "KNMB"))
"""Bands of loops, innermost first: of warps, of blocks at once, of all blocks."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut on a device.

    Parameters
    ----------
    form
        The kernel.
    parts
        Of the sum, which blocks of their own compute.
    group
        Rows of tiles that blocks go down before they go on to the next columns.
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
    return Problem.of("BMN-BMK-BKN", sizes, product.problem.dtype)


def count_bytes(product: Product, device: Device, boxes: Mapping[str, Box]) -> Traffic:
    """Return what tiles of warps, blocks and of all blocks at once move; sizes may be symbols.

    Parameters
    ----------
    product, device
        What is computed, where.
    boxes
        Sides of the tiles of ``register``, ``shared`` and ``L2``.
    """
    problem = matrix_problem(product)
    whole: Box = dict(problem.sizes)
    bands = [(level, tuple(order)) for level, order in ORDERS]
    found = [{**boxes[level], "B": 1} for level, _ in ORDERS[:-1]]
    tree = tree_of_bands(problem, bands, [*found, whole], (None, None), "stream")
    traffic = count_traffic(tree, view_levels(device), "tiles")
    # Sums of all warps and blocks stay in registers at once: a tree has one after another.
    moved, volumes = (
        tuple((float(problem.bytes[0]), *operands) for _, *operands in own)
        for own in (traffic.moved, traffic.volumes)
    )
    return replace(traffic, moved=moved, volumes=volumes)


def estimate_registers(form: Form) -> int:
    """Return about how many registers a thread takes; the assembler says how many it does.

    Examples
    --------
    >>> from tilesolve.kernels.gpu.forms import Operand
    >>> form = Form("float16", 128, 128, 32, (2, 4), 3, Operand(True, 8), Operand(False, 8))
    >>> estimate_registers(form) < 168
    True
    """
    down, across = form.side
    first, second, sums = form.fragment.registers
    chunks = sum(
        ceil(side * form.depth / own.width / form.threads)
        for side, own in ((form.rows, form.first), (form.columns, form.second))
    )
    held = down * across * sums + down * first + across * second
    return held + OTHER_REGISTERS + CHUNK_REGISTERS * chunks


@dataclass(frozen=True, slots=True)
class Waves:
    """How blocks of threads fill a device.

    Parameters
    ----------
    blocks
        All of them.
    busiest
        That the busiest multiprocessor computes.
    rounds
        That it does one after another.
    uneven
        How much longer the busiest one takes than all would if they shared the work evenly.
    """

    blocks: int
    busiest: int
    rounds: int
    uneven: float

    @classmethod
    def of(cls, product: Product, device: Device, tiling: Tiling, held: int) -> Waves:
        """Return the waves of a tiling, of which a multiprocessor holds so many blocks."""
        rows, columns, _, batches = product.extents
        form = tiling.form
        blocks = ceil(rows / form.rows) * ceil(columns / form.columns) * batches * tiling.parts
        busiest = ceil(blocks / device.multiprocessors)
        rounds = ceil(busiest / held)
        return cls(blocks, busiest, rounds, busiest * device.multiprocessors / blocks)


def price_tiling(
    product: Product, device: Device, tiling: Tiling, occupancy: Occupancy
) -> tuple[Price, float]:
    """Return what a tiling costs, and the seconds that are waited for besides.

    Shared memory and L2 feed each multiprocessor by itself, so that the busiest one's time counts.
    """
    form, (rows, columns, steps, batches) = tiling.form, product.extents
    waves = Waves.of(product, device, tiling, occupancy.blocks)
    part = ceil(ceil(steps / tiling.parts) / form.depth) * form.depth
    down = min(tiling.group, ceil(rows / form.rows))
    at_once = min(waves.blocks, occupancy.blocks * device.multiprocessors)
    across = max(1, min(at_once // down, ceil(columns / form.columns)))
    high, wide = form.rows * down, form.columns * across
    held = (high + 2 * wide) * part * product.problem.itemsize
    far = part if held <= (device.level("L2").capacity or 0) else form.depth
    sides = (
        (*form.warp_tile, form.fragment.depth),
        (form.rows, form.columns, form.depth),
        (high, wide, far),
    )
    boxes: dict[str, Box] = {
        level: {"M": min(m, rows), "N": min(n, columns), "K": min(k, steps)}
        for (level, _), (m, n, k) in zip(ORDERS, sides, strict=False)
    }
    levels = price_levels(view_levels(device), count_bytes(product, device, boxes))
    sums = 0.0 if tiling.parts == 1 else 2.0 * tiling.parts * rows * columns * batches * form.fragment.summed
    levels = tuple(
        replace(
            level,
            volumes=(level.volumes[0] + more, *level.volumes[1:]),
            seconds=level.seconds * by + more / device.level(level.level).bandwidth,
        )
        for level, by, more in zip(
            levels, (waves.uneven, waves.uneven, 1.0), (0.0, sums, sums), strict=True
        )
    )
    compute = waves.busiest * _block_seconds(device, form, part, occupancy, waves)
    ahead = max(1, form.stages - 1)
    fetched = waves.rounds * (part / form.depth) * device.latency_seconds / ahead
    waiting = device.launch_seconds * (1 + (tiling.parts > 1))
    waiting += waves.rounds * device.latency_seconds
    return Price(levels, max(compute, fetched), float(waves.blocks), (0.0, 0.0)), waiting


def _block_seconds(
    device: Device, form: Form, part: int, occupancy: Occupancy, waves: Waves
) -> float:
    """Return the seconds of arithmetic that a multiprocessor takes for each of its blocks."""
    rate = (device.peak(form.arithmetic) or 0.0) / device.multiprocessors
    warps = min(occupancy.blocks, waves.busiest) * form.threads / WARP
    at_once = min(form.side[0] * form.side[1], BUSY_FRAGMENTS) * warps
    busy = min(1.0, at_once / (BUSY_FRAGMENTS * QUARTERS), warps / QUARTERS)
    return 2.0 * form.rows * form.columns * part / (rate * busy)


def score_tiling(
    product: Product, device: Device, tiling: Tiling, registers: int | None = None
) -> float:
    """Return the seconds that tilings are compared by; infinite where a block does not fit."""
    form = tiling.form
    needed = registers or estimate_registers(form)
    occupancy = find_occupancy(device, form.threads, needed, form.shared_bytes)
    if not occupancy.blocks:
        return float(np.inf)
    price, waiting = price_tiling(product, device, tiling, occupancy)
    return score_price(price, device.overlap, waiting)
