"""Tiles as the thesis chooses them: by its printed costs, among powers of two (mode="thesis")."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import ceil, prod

from tilesolve.constants.nests import (
    PIPELINE_BALANCE,
    PIPELINE_HALVINGS,
    PIPELINE_LEAST_COLUMNS,
    PIPELINE_LOAD_WEIGHTS,
)
from tilesolve.machine.model import Machine
from tilesolve.model.access import Size
from tilesolve.nests.references import find_references
from tilesolve.pipelines.footprints import GroupTiles


def thesis_tiles(group: GroupTiles) -> dict[str, int] | None:
    """Return the tiles of least cost whose buffers fit; None where none do.

    Tiles are parts of extents, halved a few times, and no less than overlaps. Buffers that are no
    rings fit the second cache.
    """
    found: dict[str, int] | None = None
    least = float("inf")
    letters = group.tiled
    for sizes in product(*(_sizes(group, letter) for letter in letters)):
        tiles = dict(zip(letters, sizes, strict=True))
        if not _fits(group, tiles):
            continue
        cost = thesis_cost(group, tiles)
        if cost < least:
            least, found = cost, tiles
    return found


def thesis_cost(group: GroupTiles, tiles: Mapping[str, int], *, innermost: str = "") -> float:
    """Return what a group costs: loads by their weight, and points that are computed again.

    That is the sum over stages of ``w Cl + Cp - Croot``; the root counts for what it reads from
    outside the group.

    Parameters
    ----------
    group, tiles
        What is tiled, and how.
    innermost
        The letter of the innermost loop; the column's if empty. Loads are not side by side along
        another one.
    """
    regions, machine = group.regions, group.request.machine
    count = prod(regions.extents[x] / tiles[x] for x in group.tiled)
    sides: dict[str, Size] = {**regions.extents, **tiles}
    found = 0.0
    for stage in regions.stages:
        spans = regions.spans[stage].values()
        points = prod(float(one.size(sides)) for one in spans) * count
        if stage != regions.root:
            found += points - regions.points(stage, {})
        for source, loads in _loads(group, stage, sides, innermost or group.column).items():
            if stage == regions.root and source in regions.spans:
                continue
            if source in regions.spans:
                held = float(group.kept_bytes(source, group.kept[source], sides))
            else:
                held = float(group.request.computation.array(source).bytes)
            found += load_weight(held, machine) * loads * count
    return found


def load_weight(held: float, machine: Machine) -> int:
    """Return what a load costs beside an operation, by the bytes of what holds its elements.

    Examples
    --------
    >>> [load_weight(2.0**k, Machine.load("i7-6700k")) for k in (14, 17, 22, 26)]
    [1, 10, 25, 40]
    """
    for most, weight in PIPELINE_LOAD_WEIGHTS:
        if most is None:
            most = machine.last_cache_bytes
        if held <= most:
            return weight
    return PIPELINE_BALANCE


def _loads(
    group: GroupTiles, stage: str, sides: Mapping[str, Size], innermost: str
) -> dict[str, float]:
    """Return how many runs a tile loads of each array; elements if they are not side by side."""
    computation = group.request.computation
    (one,) = (x for x in computation.stages if x.name == stage)
    spans = group.regions.spans[stage]
    box: dict[str, Size] = {x: span.size(sides) for x, span in spans.items()}
    box |= {x: float(computation.sizes[x]) for x in one.summed}
    found: dict[str, float] = {}
    for access in find_references(computation, one):
        if access.mode == "write" or access.gathered:
            continue
        *rows, last = map(float, access.reaches(box) or [1.0])
        runs = prod(rows)
        if innermost != group.column:
            own = float(prod(float(box[x]) for x in access.contiguous))
            runs *= (1 + last - own) * own
        found[access.array] = found.get(access.array, 0.0) + runs
    return found


def _sizes(group: GroupTiles, letter: str) -> list[int]:
    """Return the tiles of a letter that are tried, the largest first."""
    extent, threads = group.regions.extents[letter], group.request.threads
    overlaps = [
        span.overlap
        for stage in group.regions.stages
        for span in group.regions.spans[stage].values()
        if span.letter == letter
    ]
    least = max([1, *overlaps])
    if letter == group.column and extent >= 2 * PIPELINE_LEAST_COLUMNS:
        least = max(least, PIPELINE_LEAST_COLUMNS + 1)
    halves = [max(ceil(extent / 2**k), least) for k in range(PIPELINE_HALVINGS)]
    most = extent // threads if letter == group.strip else extent
    return list(dict.fromkeys(min(one, extent) for one in halves if one <= max(most, 1)))


def _fits(group: GroupTiles, tiles: Mapping[str, int]) -> bool:
    """Return whether buffers that are no rings fit the second cache."""
    cache = group.request.machine.second_cache or group.request.machine.first_cache
    room = sum(
        float(group.kept_bytes(stage, kind, tiles))
        for stage, kind in group.kept.items()
        if kind != "ring"
    )
    return cache is None or room <= (cache.capacity or room)
