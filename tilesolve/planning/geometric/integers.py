"""From the continuous optimum to integer tiles: rounding, limits, and a search around it.

Tiles of one index form a chain: the nearest level's is a multiple of the register tile's side,
each further one a multiple of the one before, or the whole extent. All chains near the
continuous tiles are combined and priced exactly, many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, floor
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import (
    EVEN_RANGE,
    EXACT_ROUNDING,
    GROWTH_FACTORS,
    LEAST_CALL_PRODUCTS,
    RAGGED_CONCESSION,
    ROUND_GAIN,
    ROUNDING,
    SHORT_RUN_LIMIT,
    SHRINK_FACTORS,
    SOLVER_TOLERANCE,
    TIE_WEIGHT,
    WHOLE_EXTENT_RATIO,
)
from tilesolve.contractions.errors import SolverError
from tilesolve.model.formulas import name_tile
from tilesolve.model.score import score_times
from tilesolve.planning.geometric.tilings import (
    Best,
    Chain,
    Integral,
    Prices,
    Product,
    feasible,
    groups_of,
    integral_of,
    times_of,
)
from tilesolve.planning.setting import Choice, Setting


def repair(
    setting: Setting, choice: Choice, tiles: Mapping[str, float]
) -> tuple[Integral, Integral]:
    """Return integer tilings near continuous tile sizes: the one of least time, and of least score.

    The first is the best by what the program minimises, the longest time with a small weight on the
    others. From there the other one is searched for.

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
    """
    prices, wide = Prices(setting, choice), _wide_options(setting, choice, tiles)
    trivial = trivial_tilings(setting)
    alone = times_of(setting, choice, trivial)
    nearest = _search(prices, tiles, wide, _best_of(trivial, alone, TIE_WEIGHT))
    if not np.isfinite(nearest.times).all():
        raise SolverError(
            "not even the smallest tiles fit the machine's levels: "
            + "; ".join(f"{place.name} holds {place.capacity:g} bytes" for place in setting.places)
        )
    best = _find_least_score(prices, wide, nearest, _best_of(trivial, alone, setting.overlap))
    priced = prices.count + len(trivial)
    fastest, least = (
        integral_of(setting, one.tiling, one.times, priced) for one in (nearest, best)
    )
    return fastest, least


def _search(
    prices: Prices,
    tiles: Mapping[str, float],
    wide: Mapping[str, Sequence[Chain]],
    trivial: Best,
) -> Best:
    """Return the best tiling near continuous tile sizes; its times are infinite if none fits.

    It is no worse than a trivial one. Wide options are chains around these sizes, see
    `_wide_options`.
    """
    setting, choice = prices.setting, prices.choice
    indices = setting.fused.problem.spec.letters
    best = trivial
    # All wide options at once hold all that are looked at first.
    shares = SHRINK_FACTORS if len(groups_of(wide)) > 1 else ()
    for share in shares:
        near = {i: _chains_near(setting, choice, tiles, i, [share]) for i in indices}
        best = _improve(prices, best, near, TIE_WEIGHT)
        if best is not trivial:
            break
    before = float("inf")
    while best.score < before * (1 - ROUND_GAIN):
        before = best.score
        best = _improve(prices, best, wide, TIE_WEIGHT)
    for index in (i for i, _ in setting.even if i in setting.fused.reduced):
        even = _best_even(prices, best, wide, index)
        best = even if even.score <= best.score * (1 + RAGGED_CONCESSION) else best
    return best


def _find_least_score(
    prices: Prices, wide: Mapping[str, Sequence[Chain]], nearest: Best, trivial: Best
) -> Best:
    """Return the tiling of least score around one of least time, whose sums are cut as evenly.

    Shorter sums leave room for wider tiles, which move less.
    """
    setting = prices.setting
    options, even = dict(wide), dict(setting.even)
    for index in setting.fused.reduced:
        chain = nearest.tiling[index]
        if index in even:
            options[index] = [chain, *_even_chains(setting, index, chain, even[index])]
        else:
            options[index] = [*options[index], *_shorter_chains(setting, index, chain)]
    again = Best(nearest.tiling, nearest.times, score_times(nearest.times, setting.overlap))
    found = min(again, trivial, key=lambda one: one.score)
    return _improve(prices, found, options, setting.overlap)


def _wide_options(
    setting: Setting, choice: Choice, tiles: Mapping[str, float]
) -> dict[str, list[Chain]]:
    """Return for each index chains around its continuous tiles, smaller and larger ones."""
    factors = (*SHRINK_FACTORS, *GROWTH_FACTORS)
    letters = setting.fused.problem.spec.letters
    return {i: _chains_near(setting, choice, tiles, i, factors) for i in letters}


def _best_of(
    tilings: Sequence[dict[str, Chain]], times: NDArray[np.float64], overlap: float
) -> Best:
    """Return the best of a few tilings with some times."""
    scores = score_times(times, overlap)
    at = int(np.argmin(scores))
    return Best(tilings[at], times[:, at], float(scores[at]))


def _improve(
    prices: Prices, best: Best, options: Mapping[str, Sequence[Chain]], overlap: float
) -> Best:
    """Return the best tiling among options for each group of indices in turn.

    The other indices have the chains of the best tiling so far.
    """
    for group in groups_of(options):
        found = prices.least(Product.of(best.tiling, options, group), overlap, best.score)
        best = found if found.score < best.score else best
    return best


def trivial_tilings(setting: Setting) -> list[dict[str, Chain]]:
    """Return the smallest tiles at every level, and one tile for the whole problem."""
    indices, levels = setting.fused.problem.spec.letters, range(1, setting.levels + 1)
    return [
        {
            i: _smallest_chain(setting, i, [setting.smallest(i, at) for at in levels])
            for i in indices
        },
        {i: (setting.fused.problem.sizes[i],) * setting.levels for i in indices},
    ]


def single_tile(setting: Setting, choice: Choice) -> Integral | None:
    """Return one tile for the whole problem if no tiling can take less time, else None.

    No tiling can if endless caches would save nothing: everything moves just once.
    """
    _, tiling = trivial_tilings(setting)
    if not feasible(setting, choice, tiling):
        return None
    registers, *caches = setting.places
    endless = [replace(place, capacity=np.inf, ways=None) for place in caches]
    times, least = (
        times_of(replace(setting, places=(registers, *places)), choice, [tiling])
        for places in (caches, endless)
    )
    if not np.allclose(times, least, rtol=EXACT_ROUNDING, atol=0):
        return None
    return integral_of(setting, tiling, times[:, 0], 1)


def _best_even(
    prices: Prices, best: Best, options: Mapping[str, Sequence[Chain]], index: str
) -> Best:
    """Return the best tiling near a given one whose tiles cut the letters of an index evenly.

    The others' options are tried around it. Its times are infinite if there is none.
    """
    setting, chain = prices.setting, best.tiling[index]
    low, high = (share * chain[0] for share in EVEN_RANGE)
    near = [size for size in dict(setting.even)[index] if low <= size <= high]
    even = list(_even_chains(setting, index, chain, near))
    groups = groups_of({i: chains for i, chains in options.items() if i != index})
    limit = best.score * (1 + RAGGED_CONCESSION)
    products = (
        Product.of(best.tiling, {**options, index: even}, (*group, index))
        for group in groups
        if even
    )
    found = [prices.least(one, TIE_WEIGHT, limit) for one in products]
    nothing = Best(best.tiling, np.array([np.inf]), np.inf)
    return min(found, key=lambda one: one.score, default=nothing)


def _even_chains(
    setting: Setting, index: str, chain: Chain, sizes: Sequence[int]
) -> Iterator[Chain]:
    """Yield chains of some nearest tiles whose further tiles are about those of another one."""
    extent = setting.fused.problem.sizes[index]
    for size in sizes:
        even = tuple(min(extent, size * max(1, round(tile / chain[0]))) for tile in chain)
        if all(tile >= setting.smallest(index, at) for at, tile in enumerate(even, start=1)):
            yield even


def _shorter_chains(setting: Setting, index: str, chain: Chain) -> list[Chain]:
    """Return chains of halves, quarters and so on of a nearest tile, as large at all levels."""
    size, found = chain[0] if chain else 0, []
    least = max(LEAST_CALL_PRODUCTS, setting.smallest(index, setting.levels))
    while (size := ceil(size / 2)) >= least:
        found.append((size,) * setting.levels)
    return found


def resize_outermost(setting: Setting, choice: Choice, found: Integral) -> list[Integral]:
    """Return tilings like another one whose outermost tile is smaller or larger along one index.

    Two reasons for that are not in the programs: larger tiles have longer runs in memory, and
    copies of smaller ones may stay in a nearer cache than the last. A tiling is left out if a
    larger one along the same index scores no more. Where reading an operand takes
    long, tiles of half the size and less that take about as long stay in, up to where a smaller
    tile pays: their runs may be long enough.

    Parameters
    ----------
    setting
        The problem and the machine.
    choice
        The loops around each tile.
    found
        What `repair` returned for them.
    """
    if not choice or choice[-1] is None:
        return []
    families = [
        (index, [{**dict(found.chains), index: other} for other in family])
        for index, chain in found.chains
        for family in _families(setting, index, chain)
    ]
    together = times_of(setting, choice, [tiling for _, family in families for tiling in family])
    priced, others, begin = found.priced + together.shape[1], [], 0
    problem, memory = setting.fused.problem, setting.places[-1]
    read = memory.seconds([0.0, max(problem.bytes[1:], default=0)])
    long = read > SHORT_RUN_LIMIT * problem.flops / setting.rate
    for index, family in families:
        times = together[:, begin : begin + len(family)]
        begin += len(family)
        sizes = [tiling[index][-1] for tiling in family]
        scores = score_times(times, setting.overlap)
        others += [
            integral_of(setting, family[at], times[:, at], priced)
            for at in _unbeaten(sizes, scores.tolist(), halves=long)
        ]
    return [other for other in others if other.chains != found.chains]


def _unbeaten(sizes: Sequence[int], totals: Sequence[float], *, halves: bool) -> list[int]:
    """Return the numbers of tiles, the largest first, that take less than all larger ones.

    If halves count, also those of at most half the size of the last one that take about as long,
    as long as none has taken less by more than that.
    """
    found, least, last, pays = [], float("inf"), float("inf"), False
    for at, (size, total) in enumerate(zip(sizes, totals, strict=True)):
        pays |= total < least * (1 - SOLVER_TOLERANCE) < float("inf")
        alike = halves and not pays and total < least * (1 + SOLVER_TOLERANCE)
        if total < least * (1 - ROUND_GAIN) or (alike and size <= last / 2):
            least, last = min(total, least), float(size)
            found.append(at)
    return found


def _families(setting: Setting, index: str, chain: Chain) -> list[list[Chain]]:
    """Return chains with other outermost tiles, and the given one, the largest first.

    Outermost tiles cut the letters of the index evenly, or are doublings of nearer ones. In the
    first family nearer tiles are about as they were, in the other one they are as large: their
    boxes are what those of the outermost ones would be if there were none inside.
    """
    extent = setting.fused.problem.sizes[index]
    inner = chain[:-1] or chain
    doublings = {
        size << times
        for size, outer in zip(inner, (*inner[1:], extent), strict=True)
        for times in range((outer // size).bit_length())
    }
    sizes = {extent, *doublings, *dict(setting.even).get(index, ())} - {chain[-1]}
    around, alone = [chain], []

    # Where C goes past the caches, its sums stay whole.
    least = dict(setting.runs).get(index, 1) if index in setting.fused.reduced else 1

    def filled(tile: int) -> bool:
        return tile == extent or (tile >= least and tile % setting.smallest(index) == 0)

    for size in sizes:
        other: Chain = (size,)
        for wanted in reversed(chain[:-1]):
            other = (_divisor_near(other[0], wanted, setting.smallest(index), extent), *other)
        around.append(other)
        alone.append((size,) * setting.levels)
    families = [
        sorted((other for other in family if filled(other[0])), key=lambda other: -other[-1])
        for family in (around, alone)
    ]
    return [family for family in families if family]


def _divisor_near(size: int, wanted: int, unit: int, extent: int) -> int:
    """Return the tile nearest to the wanted one that divides one of some size; 0 if none is near.

    It is a multiple of the unit. The whole extent need not be divided.
    """
    if wanted >= size or size == extent or size % wanted == 0:
        return min(size, wanted)
    near = range(unit * ceil(wanted / (2 * unit)), min(size, 2 * wanted) + 1, unit)
    tiles = [tile for tile in near if size % tile == 0]
    return min(tiles, key=lambda tile: max(tile / wanted, wanted / tile), default=0)


def _chains_near(
    setting: Setting,
    choice: Choice,
    tiles: Mapping[str, float],
    index: str,
    shares: Sequence[float],
) -> list[Chain]:
    """Return the chains of one index near some shares of its continuous tiles."""
    extent, unit = setting.fused.problem.sizes[index], setting.smallest(index)
    depth = setting.levels
    levels = range(1, depth + 1)
    wanted = [tiles[name_tile(level, index, depth)] for level in levels]
    near = [_Near.of([share * size for share in shares], extent) for size in wanted]
    own = [level == 1 or choice[level - 2] is not None for level in levels]
    least = [setting.smallest(index, level) for level in levels]

    @cache
    def list_sizes(level: int, inner: int) -> list[int]:
        sizes = near[level].sizes(inner, extent) if own[level] else {inner}
        if least[level] > inner:
            sizes = {_round_up(size, inner, least[level], extent) for size in sizes}
        return sorted(sizes)

    chains: list[Chain] = [()]
    for level in range(depth):
        chains = [
            (*chain, size)
            for chain in chains
            for size in list_sizes(level, chain[-1] if chain else unit)
        ]
    return list(dict.fromkeys(chains))


def _round_up(size: int, inner: int, least: int, extent: int) -> int:
    """Return a size that is no less than the least one, as a multiple of the inner tile."""
    return size if size >= least else min(extent, inner * ceil(least / inner))


def _smallest_chain(setting: Setting, index: str, sizes: Sequence[int]) -> Chain:
    """Return the smallest chain whose tiles are no less than some sizes."""
    extent = setting.fused.problem.sizes[index]
    chain: Chain = (setting.smallest(index),)
    for size in sizes:
        chain = (*chain, _round_up(chain[-1], chain[-1], size, extent))
    return chain[1:]


@dataclass(frozen=True, slots=True)
class _Near:
    """Tiles near some sizes: below them, above them, and equal parts of an extent.

    Parameters
    ----------
    wanted
        The sizes.
    parts
        Equal parts of the extent, about as large.
    whole
        Whether the whole extent is near as well.
    """

    wanted: tuple[float, ...]
    parts: tuple[float, ...]
    whole: bool

    @classmethod
    def of(cls, wanted: Sequence[float], extent: int) -> Self:
        """Return what is near some sizes."""
        counts = {max(1, round(extent / size)) + more for size in wanted for more in (0, 1)}
        whole = extent < WHOLE_EXTENT_RATIO * max(wanted)
        return cls(tuple(wanted), tuple(extent / count for count in counts), whole)

    def sizes(self, inner: int, extent: int) -> set[int]:
        """Return the multiples of an inner tile that are near."""
        if inner >= extent:
            return {extent}
        counts = {ceil(part / inner) for part in self.parts}
        for wanted in self.wanted:
            times = wanted / inner
            counts.add(floor(times + ROUNDING))
            counts.add(ceil(times - ROUNDING))
        found = {min(extent, inner * max(1, count)) for count in counts}
        return found | {extent} if self.whole else found
