"""Tiles for statements that read across lines: Algorithm 3 of the thesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesolve.constants.tuning import TRANSPOSED_PREFETCH_BYTES
from tilesolve.model.access import Access
from tilesolve.nests.setting import Setting
from tilesolve.packing.sizes import PAGE_BYTES


@dataclass(frozen=True, slots=True)
class SpatialTiles:
    """Tiles of two letters: of the output's last axis, and of the last axis of what it crosses.

    Parameters
    ----------
    column, row
        The letters.
    width, height
        Their tiles.
    cost
        Of lines, as (4.15) and (4.17) count it.
    """

    column: str
    row: str
    width: int
    height: int
    cost: float


def crossed(setting: Setting) -> list[Access]:
    """Return the reads that have the column letter on another axis than their last."""
    return [
        one
        for one in setting.references[1:]
        if setting.column in one.letters and setting.column not in one.contiguous
    ]


def spatial_tiles(setting: Setting) -> SpatialTiles | None:
    """Return the best tiles, all of them tried; None if none fits.

    Each tile is a line wide and a line high at least. The output is not counted: it goes past
    the caches.
    """
    column = setting.column
    row = _find_row(setting)
    if row is None:
        return None
    most = [setting.extents[column], setting.most(row, row)]
    least = [min(setting.step, extent) for extent in most]
    found = np.meshgrid(
        *(
            np.unique(np.append(np.arange(a, b, setting.step), b)) if a else np.array([1])
            for a, b in zip(least, most, strict=True)
        ),
        indexing="ij",
    )
    width, height = (one.ravel().astype(np.int64) for one in found)
    kept = _fits(setting, width, height, row)
    if not kept.any():
        return None
    width, height = width[kept], height[kept]
    prices = spatial_cost(setting, width, height, row)
    at = int(np.argmin(prices))
    return SpatialTiles(column, row, int(width[at]), int(height[at]), float(prices[at]))


def block_tiles(setting: Setting) -> SpatialTiles | None:
    """Return tiles for blocks that are transposed in registers; None if none fits.

    Such a block uses lines as a whole, so that none has to stay. So a tile is as high as a
    thread's share, that what is crossed is read along its runs to their ends: a line of each, and
    what is prefetched behind it, fits the second cache. Rows of the others are no longer than a
    page, with which hardware prefetchers end.
    """
    column, step = setting.column, setting.step
    row = _find_row(setting)
    if row is None:
        return None
    ahead = (setting.lines[1] + TRANSPOSED_PREFETCH_BYTES) * len(crossed(setting))
    widest = max(one.element for one in setting.references)
    most = min(setting.capacities[1] // ahead, PAGE_BYTES // widest) // step * step
    if not most or not setting.extents[column] or not setting.extents[row]:
        return None
    pieces = -(-setting.extents[column] // most)
    width = min(-(-setting.extents[column] // (pieces * step)) * step, setting.extents[column])
    height = -(-setting.extents[row] // setting.trips)
    if height < setting.extents[row] and height > step:
        height -= height % step
    cost = float(spatial_cost(setting, width, height, row))
    return SpatialTiles(column, row, width, height, cost)


def _find_row(setting: Setting) -> str | None:
    """Return the letter that the crossed reads have side by side."""
    return next(
        (x for one in crossed(setting) for x in one.contiguous if x in setting.output), None
    )


def spatial_cost(setting: Setting, width: Any, height: Any, row: str) -> Any:  # noqa: ANN401
    """Return the cost of lines of all inputs: (4.15) for those that are crossed, else (4.17).

    A read across lines costs less the higher tiles are and the narrower; another one always the
    same.
    """
    area = setting.extents[setting.column] * setting.extents[row]
    inefficiency = width / setting.step
    across = crossed(setting)
    total: Any = 0.0
    for one in setting.references[1:]:
        total = total + area / (height if one in across else width) * inefficiency
    return total


def _fits(setting: Setting, width: Any, height: Any, row: str) -> Any:  # noqa: ANN401
    """Return whether tiles fit both caches (4.18), (4.19), and do not evict themselves."""
    near, far = 0, 0
    across: Sequence[Access] = crossed(setting)
    found = np.ones(width.shape, dtype=bool)
    for number, one in enumerate(setting.references):
        if number == 0:
            continue
        near = near + width * one.element * (setting.step if one in across else 1)
        far = far + width * height * one.element
        if len(one.axes) < 2:
            continue
        across_run, rows = (height, width) if one in across else (width, height)
        limit = np.maximum(setting.height_limits(number, 1, across_run), setting.step)
        found = found & (rows <= limit)
    return found & (near <= setting.capacities[0]) & (far <= setting.capacities[1])
