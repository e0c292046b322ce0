"""From the continuous optimum to integer tiles: rounding, limits, and a search nearby.

Tiles of one index form a chain: the nearest level's is a multiple of the register tile's side,
each further one a multiple of the one before, or the whole extent. All chains near the
continuous tiles are combined and priced exactly, many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import ceil, floor, prod

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.errors import SolverError
from tilesolve.expressions import tile
from tilesolve.movement import arithmetic
from tilesolve.nest import Band, Nest
from tilesolve.program import TIE, Choice, Setting
from tilesolve.traffic import Tiling, footprint, traffic

MOST = 3_000
"""Tilings that are priced at once; with more, the indices take turns."""

SHRINK = (1.0, 0.95, 0.9, 0.8, 0.65, 0.5, 0.3)
"""Shares of the continuous tiles that are tried: whole ways and lines may need less."""

BETTER = 1e-4
"""Relative gain of one round over all indices for which another round is taken."""

GROW = (1.25, 1.7, 2.5)
"""Multiples that are tried as well: the limits keep room that an exact price may not need."""

EVEN = (0.75, 1.5)
"""Shares of the best tile of an index between which tiles are tried that cut its letters evenly."""

RAGGED = 0.005
"""Relative loss at which they are taken all the same: a tile is a box of letters in the end, and
sums in ragged ones of 16×32 go over C fifteen times, in even ones of 24×24 nine times (measured:
1 to 3 % faster, where rounds differ by 5)."""

Chain = tuple[int, ...]
"""Tile sizes of one index, nearest level first."""


LARGER = 4
"""Times that the outermost tile is larger in tilings that have longer runs."""


@dataclass(frozen=True, slots=True)
class Integral:
    """An integer tiling of the fused problem.

    Parameters
    ----------
    nest
        The bands, ready to be priced.
    chains
        For each index its tile sizes, nearest level first.
    seconds
        The exact predicted time.
    score
        That time with a small weight on all others, by which tilings are compared.
    priced
        Number of tilings that were compared.

    Examples
    --------
    >>> from tilesolve.planning import plan
    >>> setting = plan("ik-ij-jk", 512, "i7-6700k", cache=False).setting
    >>> from tilesolve.relaxation import relax
    >>> best = relax(setting).best
    >>> found = repair(setting, best.choice, best.tiles)
    >>> isinstance(found, Integral), found.seconds < 1.05 * best.seconds
    (True, True)
    """

    nest: Nest
    chains: tuple[tuple[str, Chain], ...]
    seconds: float
    score: float
    priced: int


def repair(setting: Setting, choice: Choice, tiles: Mapping[str, float]) -> Integral:
    """Return the best integer tiling near continuous tile sizes.

    Parameters
    ----------
    setting
        The problem and the machine.
    choice
        The loops around each tile.
    tiles
        Tile sizes by symbol, as `relax` returns them.

    Raises
    ------
    SolverError
        If not even the smallest tiles keep all limits.

    Examples
    --------
    >>> from tilesolve.planning import plan
    >>> setting = plan("ik-ij-jk", 512, "i7-6700k", cache=False).setting
    >>> tiles = {f"T{level}_{i}": 48.0 * level for level in (1, 2, 3) for i in "MNK"}
    >>> sorted(index for index, _ in repair(setting, ("M", "N", "M"), tiles).chains)
    ['K', 'M', 'N']
    """
    indices = setting.fused.problem.spec.letters
    levels = range(1, setting.levels + 1)
    smallest = {
        i: _rounded(setting, i, [setting.smallest(i, at) for at in levels]) for i in indices
    }
    whole = {i: (setting.fused.problem.sizes[i],) * setting.levels for i in indices}
    best, best_score, priced = _best(setting, choice, [smallest, whole])
    for share in SHRINK:
        near = {i: _chains(setting, choice, tiles, i, [share]) for i in indices}
        for group in _groups(near):
            found, score, count = _best(setting, choice, _combined(best, near, group))
            priced += count
            if score < best_score:
                best, best_score = found, score
        if best not in (smallest, whole):
            break
    wide = {i: _chains(setting, choice, tiles, i, (*SHRINK, *GROW)) for i in indices}
    before = float("inf")
    while best_score < before * (1 - BETTER):
        before = best_score
        for group in _groups(wide):
            found, score, count = _best(setting, choice, _combined(best, wide, group))
            priced += count
            if score < best_score:
                best, best_score = found, score
    for index, _ in setting.even:
        found, score, count = _evened(setting, choice, best, wide, index)
        priced += count
        if score <= best_score * (1 + RAGGED):
            best, best_score = found, score
    if not np.isfinite(best_score):
        raise SolverError(
            "not even the smallest tiles fit the machine's levels: "
            + "; ".join(f"{place.name} holds {place.capacity:g} bytes" for place in setting.places)
        )
    return _made(setting, choice, best, best_score, priced)


def _evened(
    setting: Setting,
    choice: Choice,
    base: Mapping[str, Chain],
    options: Mapping[str, Sequence[Chain]],
    index: str,
) -> tuple[dict[str, Chain], float, int]:
    """Return the best tiling with tiles of an index that cut its letters evenly, near a given one.

    The others' options are tried around them. Also returned are its score, infinity if there is
    none, and how many were compared.
    """
    chain = base[index]
    best, best_score, priced = dict(base), float("inf"), 0
    low, high = (share * chain[0] for share in EVEN)
    for size in dict(setting.even)[index]:
        if not low <= size <= high:
            continue
        extent = setting.fused.problem.sizes[index]
        even = tuple(min(extent, size * max(1, round(tile / chain[0]))) for tile in chain)
        if any(tile < setting.smallest(index, at) for at, tile in enumerate(even, start=1)):
            continue
        others = {**options, index: [even]}
        for group in _groups(others):
            combined = _combined({**base, index: even}, others, group)
            found, score, count = _best(setting, choice, combined)
            priced += count
            if score < best_score:
                best, best_score = found, score
    return best, best_score, priced


def grown(setting: Setting, choice: Choice, found: Integral) -> list[Integral]:
    """Return tilings like another one whose outermost tile is larger along one index.

    They are for tilings that are as fast by the model, but have longer runs in memory.

    Parameters
    ----------
    setting
        The problem and the machine.
    choice
        The loops around each tile.
    found
        What `repair` returned for them.

    Examples
    --------
    >>> from tilesolve.planning import plan
    >>> best = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
    >>> found = repair(best.setting, best.choice, {f"T{at}_{i}": 24 for at in "123" for i in "MNK"})
    >>> all(larger.chains != found.chains for larger in grown(best.setting, best.choice, found))
    True
    """
    if not choice or choice[-1] is None:
        return []
    chains, extents = dict(found.chains), setting.fused.problem.sizes
    larger = []
    for index, chain in chains.items():
        outermost = min(extents[index], LARGER * chain[-1])
        if outermost == chain[-1]:
            continue
        wanted, score, count = _best(setting, choice, [chains | {index: (*chain[:-1], outermost)}])
        if np.isfinite(score):
            larger.append(_made(setting, choice, wanted, score, found.priced + count))
    return larger


def closer(setting: Setting, choice: Choice, found: Integral) -> list[Integral]:
    """Return the best of the tilings like another one whose outermost tile is smaller, if better.

    Copies of a small outermost tile may stay in a nearer cache than the last one, which programs
    do not know: they have no reason to make it small where an operand passes it once.

    Parameters
    ----------
    setting
        The problem and the machine.
    choice
        The loops around each tile.
    found
        What `repair` returned for them.

    Examples
    --------
    >>> from tilesolve.planning import plan
    >>> best = plan("abcd-ec-abed", 72, "i7-6700k", cache=False)
    >>> found = repair(best.setting, best.choice, dict(best.search.tiles))
    >>> all(better.score < found.score for better in closer(best.setting, best.choice, found))
    True
    """
    if setting.levels < 2 or choice[-1] is None:
        return []
    options = {}
    for index, chain in found.chains:
        sizes, size = [chain[-1]], chain[-2]
        while size < chain[-1]:
            if size >= setting.smallest(index, setting.levels):
                sizes.append(size)
            size *= 2
        options[index] = [(*chain[:-1], size) for size in sizes]
    best, score, priced = dict(found.chains), found.score, found.priced
    for group in _groups(options):
        chains, value, count = _best(setting, choice, _combined(best, options, group))
        priced += count
        if value < score:
            best, score = chains, value
    return [_made(setting, choice, best, score, priced)] if score < found.score else []


def _made(
    setting: Setting, choice: Choice, chains: Mapping[str, Chain], score: float, priced: int
) -> Integral:
    indices = setting.fused.problem.spec.letters
    seconds = float(_times(setting, choice, _columns([chains], indices)).max())
    return Integral(nest_of(setting, choice, chains), tuple(chains.items()), seconds, score, priced)


def _combined(
    base: Mapping[str, Chain], options: Mapping[str, Sequence[Chain]], group: Sequence[str]
) -> list[dict[str, Chain]]:
    """Return a tiling for each combination of the options of some indices."""
    return [
        {**base, **dict(zip(group, chains, strict=True))}
        for chains in product(*(options[i] for i in group))
    ]


def _best(
    setting: Setting, choice: Choice, combined: Sequence[Mapping[str, Chain]]
) -> tuple[dict[str, Chain], float, int]:
    """Return the best of some tilings, its score, and how many they were."""
    scores = _scores(setting, choice, _columns(combined, setting.fused.problem.spec.letters))
    at = int(np.argmin(scores))
    return dict(combined[at]), float(scores[at]), len(combined)


def _groups(options: Mapping[str, Sequence[Chain]]) -> list[tuple[str, ...]]:
    """Return which indices are combined at once: all, or as many as `MOST` allows, in turn."""
    free = [i for i in options if len(options[i]) > 1]
    for together in range(len(free), 1, -1):
        groups: list[tuple[str, ...]] = [
            group
            for group in combinations(free, together)
            if prod(len(options[i]) for i in group) <= MOST
        ]
        if groups:
            return [*groups, *((i,) for i in free if not any(i in group for group in groups))]
    return [(i,) for i in free]


def _chains(
    setting: Setting,
    choice: Choice,
    tiles: Mapping[str, float],
    index: str,
    shares: Sequence[float],
) -> list[Chain]:
    """Return the chains of one index near some shares of its continuous tiles."""
    extent, unit = setting.fused.problem.sizes[index], setting.smallest(index)
    wanted = [tiles[tile(level, index, setting.levels)] for level in range(1, setting.levels + 1)]
    own = [level == 0 or choice[level - 1] is not None for level in range(setting.levels)]

    def grow(chain: Chain) -> Iterator[Chain]:
        level = len(chain)
        if level == setting.levels:
            yield chain
            return
        inner = chain[-1] if chain else unit
        sizes = {inner}
        if own[level]:
            sizes = {s for share in shares for s in _near(share * wanted[level], inner, extent)}
        least = setting.smallest(index, level + 1)
        for size in sorted({_up(size, inner, least, extent) for size in sizes}):
            yield from grow((*chain, size))

    return list(dict.fromkeys(grow(())))


def _up(size: int, inner: int, least: int, extent: int) -> int:
    """Return a size that is no less than the least one, as a multiple of the inner tile."""
    return size if size >= least else min(extent, inner * ceil(least / inner))


def _rounded(setting: Setting, index: str, sizes: Sequence[int]) -> Chain:
    """Return the smallest chain whose tiles are no less than some sizes."""
    extent = setting.fused.problem.sizes[index]
    chain: Chain = (setting.smallest(index),)
    for size in sizes:
        chain = (*chain, _up(chain[-1], chain[-1], size, extent))
    return chain[1:]


def _near(wanted: float, inner: int, extent: int) -> set[int]:
    """Return multiples of the inner tile near a size: below, above, and one of equal parts."""
    if inner >= extent:
        return {extent}
    times = wanted / inner
    counts = {max(1, floor(times + 1e-6)), max(1, ceil(times - 1e-6))}
    parts = max(1, round(extent / wanted))
    counts |= {max(1, ceil(extent / (parts + more) / inner)) for more in (0, 1)}
    sizes = {min(extent, inner * count) for count in counts}
    return sizes | {extent} if extent < 1.5 * wanted else sizes


def _columns(
    combined: Sequence[Mapping[str, Chain]], indices: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Return for each index an array: level by tiling."""
    tilings = len(combined)
    return {
        i: np.array([chains[i] for chains in combined], dtype=float).reshape(tilings, -1).T
        for i in indices
    }


def _boxes(
    setting: Setting, columns: Mapping[str, NDArray[np.float64]]
) -> list[dict[str, NDArray[np.float64]]]:
    """Return the boxes of all bands: a call's, each level's, and the whole problem."""
    fused, sizes = setting.fused, setting.fused.problem.sizes
    one = np.ones(_width(columns))
    whole = {i: one * sizes[i] for i in columns}
    nearest = {i: columns[i][0] for i in columns} if setting.levels else whole
    call = {i: nearest[i] if i in fused.reduced else one * setting.smallest(i) for i in columns}
    tiles = [{i: columns[i][level] for i in columns} for level in range(setting.levels)]
    return [call, *tiles, whole]


def _width(columns: Mapping[str, NDArray[np.float64]]) -> int:
    """Return how many tilings the columns hold; one if there is no index at all."""
    return next((column.shape[1] for column in columns.values()), 1)


def bands(setting: Setting, choice: Choice) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the level and the loop order, innermost first, of each band of a choice's nest.

    Inside a call the register tile's sides come before the summed indices, so that it stays
    in registers; inside the nearest tile the rows come first, so that a panel of the columns
    stays while those of the rows pass by.

    Examples
    --------
    >>> from tilesolve.planning import plan
    >>> setting = plan("ik-ij-jk", 512, "i7-6700k", cache=False).setting
    >>> bands(setting, ("M", "N", "M"))[2]
    ('L2', ('M', 'N', 'K'))
    """
    fused = setting.fused
    indices = fused.problem.spec.letters
    sides = [i for i in (fused.columns, fused.rows) if i is not None]
    free = [i for i in indices if i not in fused.reduced and i not in sides]
    inner = [i for i in (fused.rows, fused.columns) if i is not None]
    orders = [
        (*sides, *free, *fused.reduced),
        (*inner, *fused.reduced, *free),
        *((*(first or ""), *(i for i in indices if i not in (first or ""))) for first in choice),
    ]
    names = [place.name for place in setting.places] + [setting.places[-1].server]
    return tuple((name, tuple(order)) for name, order in zip(names, orders, strict=True))


def _tiling(setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]) -> Tiling:
    return Tiling(
        bands(setting, choice),
        tuple(_boxes(setting, columns)),
        setting.packed,
        setting.output,
    )


def _times(
    setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the exact seconds of every server and of the arithmetic: time by tiling."""
    problem = setting.fused.problem
    found = traffic(problem, _tiling(setting, choice, columns), setting.places)
    width = _width(columns)
    rows = [
        np.broadcast_to(sum(volumes) / place.bandwidth, width)
        for place, volumes in zip(setting.places, found.volumes, strict=True)
    ]
    seconds = arithmetic(problem, setting.microkernel, setting.rate, setting.frequency, found)
    rows.append(np.broadcast_to(seconds, width))
    return np.array(rows)


def _scores(
    setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return what tilings are compared by; infinity for one that breaks a limit."""
    times = _times(setting, choice, columns)
    scores = times.max(axis=0) + TIE * times.mean(axis=0)
    return np.where(_within(setting, choice, columns), scores, np.inf)


def _within(
    setting: Setting, choice: Choice, columns: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.bool_]:
    """Return whether tilings keep the capacities and, in whole ways, Eq. 9."""
    problem = setting.fused.problem
    boxes = _boxes(setting, columns)
    good = np.ones(_width(columns), dtype=bool)
    for level, place in enumerate(setting.places[1:], start=1):
        if level > 1 and choice[level - 2] is None:
            continue
        held = [footprint(problem, tensor, boxes[level], 1) for tensor in problem.spec.tensors]
        good &= sum(held) <= place.capacity
        if place.ways is not None:
            way = place.capacity / place.ways
            good &= sum(np.ceil(size / way) for size in held) <= place.ways
    return good


def feasible(setting: Setting, choice: Choice, chains: Mapping[str, Chain]) -> bool:
    """Return whether an integer tiling keeps all limits.

    Examples
    --------
    >>> from tilesolve.planning import plan
    >>> setting = plan("ik-ij-jk", 512, "i7-6700k", cache=False).setting
    >>> choice = ("M", "N", "M")
    >>> feasible(setting, choice, {"M": (6, 6, 6), "N": (8, 8, 8), "K": (64, 64, 64)})
    True
    >>> feasible(setting, choice, dict.fromkeys("MNK", (512, 512, 512)))
    False
    """
    columns = _columns([chains], setting.fused.problem.spec.letters)
    return bool(_within(setting, choice, columns)[0])


def nest_of(setting: Setting, choice: Choice, chains: Mapping[str, Chain]) -> Nest:
    """Return the nest of one integer tiling.

    Examples
    --------
    >>> from tilesolve.planning import plan
    >>> setting = plan("ik-ij-jk", 512, "i7-6700k", cache=False).setting
    >>> chains = {"M": (6, 96, 96), "N": (8, 8, 512), "K": (256, 256, 512)}
    >>> nest_of(setting, ("M", "N", "M"), chains).bands[1].box
    (('M', 6), ('N', 8), ('K', 256))
    """
    indices = setting.fused.problem.spec.letters
    boxes = _boxes(setting, _columns([chains], indices))
    return Nest(
        tuple(
            Band(level, order, tuple((i, int(box[i][0])) for i in indices))
            for (level, order), box in zip(bands(setting, choice), boxes, strict=True)
        ),
        setting.packed,
        setting.output,
    )
