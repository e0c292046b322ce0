"""Tiling: sizes of tiles by geometric programs, and groupings near them for the price to judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import ceil

from tilesolve.constants.nests import PIPELINE_LAST_CACHES, PIPELINE_ROWS
from tilesolve.model.access import Size
from tilesolve.model.loop_tree import Loop
from tilesolve.nests.group_trees import Grouping
from tilesolve.nests.regions import Regions
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import over
from tilesolve.pipelines.footprints import GroupTiles, list_planes, list_slides
from tilesolve.pipelines.thesis import thesis_tiles
from tilesolve.solver.interior import find_least
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial


def list_groupings(request: NestRequest, regions: Regions) -> list[Grouping]:
    """Return groupings worth a look: for each loop that may slide and each cache, the best tiles.

    With ``fusion="overlap"`` nothing slides.
    """
    slides: tuple[str | None, ...] = list_slides(regions)
    if request.fusion == "overlap" or not slides:
        slides = (None,)
    thesis = request.mode == "thesis"
    found: list[Grouping] = []
    walks = dict.fromkeys([(), _planes(request, regions)])
    for slide, rows, planes in product(slides, (1,) if thesis else PIPELINE_ROWS, walks):
        most = rows if slide is None else min(rows, regions.extents[slide])
        group = GroupTiles(request, regions, slide, most, planes)
        if not group.tiled:
            continue
        for tiles in _thesis_tiles(group) if thesis else find_tiles(group):
            one = make_grouping(group, tiles)
            if one not in found:
                found.append(one)
    return found


def _planes(request: NestRequest, regions: Regions) -> tuple[str, ...]:
    """Return the letters that may be walked one by one; the thesis permutes no short ones."""
    return () if request.mode == "thesis" else list_planes(regions)


def _thesis_tiles(group: GroupTiles) -> list[dict[str, int]]:
    found = thesis_tiles(group)
    return [] if found is None else [found]


def find_tiles(group: GroupTiles) -> Iterator[dict[str, int]]:
    """Yield whole tiles near the optimum for each cache that may hold the buffers of a thread."""
    seen = []
    for limit in list_rooms(group.request):
        relaxed = relax_tiles(group, limit)
        if relaxed is not None:
            tiles = whole_tiles(group, relaxed)
            if tiles not in seen:
                seen.append(tiles)
                yield tiles


def list_rooms(request: NestRequest) -> list[float]:
    """Return the bytes that caches have for a thread's buffers: all but the first, and what may be.

    The last is what buffers may take before stages are divided into more groups.
    """
    machine, threads = request.machine, request.threads
    found = [
        (one.capacity or 0) / min(threads, one.shared_by)
        for one in machine.caches[1:-1] or machine.caches[:-1]
    ]
    last = machine.last_cache_bytes / threads
    return [*found, last, PIPELINE_LAST_CACHES * last]


def fits(request: NestRequest, regions: Regions, caches: float) -> bool:
    """Return whether some tiles have buffers that so many last caches hold.

    A root without tiles has buffers for nothing, and fits.
    """
    limit = caches * request.machine.last_cache_bytes / request.threads
    for slide in list_slides(regions) or (None,):
        group = GroupTiles(request, regions, slide, 1, _planes(request, regions))
        least = {x: low for x, (low, _) in tile_bounds(group).items()}
        if not group.tiled or float(group.room(least)) <= limit:
            return True
    return False


def relax_tiles(group: GroupTiles, limit: float) -> dict[str, float] | None:
    """Return the tiles that take least time, whole or not, whose buffers a cache holds."""
    bounds = tile_bounds(group)
    symbols: dict[str, Size] = {x: Signomial.symbol(x) for x in bounds}
    cost, room = group.seconds(symbols), group.room(symbols)
    assert isinstance(cost, Signomial)
    least = {x: low for x, (low, _) in bounds.items()}
    limits = {}
    if isinstance(room, Signomial) and room.symbols:
        if room.at(least) > limit:
            return None
        limits = {"room": room * (1 / limit)}
    elif float(room.at(least) if isinstance(room, Signomial) else room) > limit:
        return None
    free = {x: ends for x, ends in bounds.items() if ends[0] < ends[1]}
    if not free:
        return least
    held = {x: low for x, low in least.items() if x not in free}
    program = Posynomials(
        variables=free,
        times={"tiles": cost.substitute(held)},
        limits={name: one.substitute(held) for name, one in limits.items()},
        unit=cost.at(least),
        weight=None,
    )
    found = find_least(program, start={x: low for x, (low, _) in free.items()})
    return None if found is None else {**least, **found.sizes}


def tile_bounds(group: GroupTiles) -> dict[str, tuple[float, float]]:
    """Return the least and the largest tile of each letter that has tiles."""
    extents, threads = group.regions.extents, group.request.threads
    found = {}
    for letter in group.tiled:
        most = float(extents[letter])
        if letter == group.strip:
            most = max(most / threads, 1.0)
        step = _step(group, letter)
        found[letter] = (min(float(step), most), most)
    return found


def whole_tiles(group: GroupTiles, relaxed: Mapping[str, float]) -> dict[str, int]:
    """Return tiles of whole steps, all about as large, as many as near-optimal ones are.

    Threads have the same number of strips each; what slides in a strip takes two steps at least.
    """
    found = {}
    for letter, size in relaxed.items():
        extent, step = group.regions.extents[letter], _step(group, letter)
        count = max(round(extent / size), 1)
        if letter == group.strip:
            count = -(-count // group.request.threads) * group.request.threads
        steps = max(ceil(ceil(extent / count) / step), 2 if letter == group.slide else 1)
        found[letter] = min(steps * step, extent)
    return found


def make_grouping(group: GroupTiles, tiles: Mapping[str, int]) -> Grouping:
    """Return a grouping with tiles: strips that threads divide outermost, what slides innermost.

    Planes follow one another in a strip, so that rings have one of them.
    """
    shared, strip = group.request.threads > 1, tiles[group.strip]
    loops: list[Loop] = [over(group.strip, strip, "threads" if shared else "serial")]
    loops += map(over, group.planes)
    for letter in group.tiled:
        if letter != group.strip and tiles[letter] < group.regions.extents[letter]:
            loops.append(over(letter, tiles[letter]))
    if group.slide is not None and tiles[group.slide] != group.rows:
        loops.append(over(group.slide, group.rows))
    return Grouping(tuple(loops), group.levels(len(loops)), group.rows)


def _step(group: GroupTiles, letter: str) -> int:
    """Return what tiles of a letter are multiples of: whole lines, or rows written out."""
    extent = group.regions.extents[letter]
    if letter == group.column:
        return min(max(group.request.line, group.request.lanes), extent)
    return min(group.rows if letter == group.slide else 1, extent)
