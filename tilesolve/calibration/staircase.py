"""The staircase in a bandwidth curve: how fast each level is, and where it stops serving.

A sweep over a block runs at the bandwidth of the level that holds the block (section 6.2 of the
paper), so bandwidth against block size is a staircase with a step for each level. Pure functions:
samples in, levels out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, zip_longest
from statistics import harmonic_mean, median

from tilesolve.contractions.errors import CalibrationError
from tilesolve.machine.level import Level

BEYOND_RATIO = 2.0
"""The smallest block that a level, or memory, is judged by, to the nearer cache, which serves too
much of smaller ones."""

LARGEST_RATIO = 1.6
"""The largest block to the smallest that memory is judged by: a last cache that does not evict in
order still serves part of a block of twice its size."""

DISTINCT_RATIO = 1.1
"""Bandwidths of two levels from which on their step can be told from noise."""

NOISE_RATIO = 1.05
"""A farther level to a nearer one: up to this they count as equally fast, beyond it the measurement
contradicts itself."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of a curve: a block swept again and again.

    `block` is the bytes that each core sweeps; `rates` has what each round measured, in bytes/s
    over all cores, loads and stores counted alike.

    Examples
    --------
    >>> sample = Sample(4096, (8e9, 10e9, 9e9))
    >>> sample.best, round(sample.spread, 2)
    (10000000000.0, 0.1)
    """

    block: int
    rates: tuple[float, ...]

    @property
    def best(self) -> float:
        """The fastest round: other programs can only slow a sweep down."""
        return max(self.rates)

    @property
    def usual(self) -> float:
        """The rate of all rounds together, unless they differ by noise alone: then the best."""
        noisy = self.best <= NOISE_RATIO * min(self.rates)
        return self.best if noisy else harmonic_mean(self.rates)

    @property
    def spread(self) -> float:
        """How far the median round stays behind the best, as a fraction of it."""
        return 1 - median(self.rates) / self.best


@dataclass(frozen=True, slots=True)
class Curve:
    """Bandwidth against block size, of one kernel on a number of cores at once.

    `kernel` is ``"sweep"`` (load, FMA, store), ``"read"`` or ``"stream"`` (non-temporal stores).
    Each of the `cores` works on a block of its own; `samples` are by growing block.
    """

    kernel: str
    cores: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Plateau:
    """What the curve shows of one level.

    The level's bandwidth is judged by `samples`; there are none if no block came to lie in it.
    `edge` is the bytes of the largest block that it still serves, None where the curve does not
    tell.

    Examples
    --------
    >>> Plateau("L1", (Sample(4096, (8e9,)), Sample(8192, (9e9,))), None).bandwidth
    8500000000.0
    """

    name: str
    samples: tuple[Sample, ...]
    edge: int | None

    @property
    def bandwidth(self) -> float:
        """The median of its samples, each the best of its rounds, in bytes/s."""
        return _height(self.samples)

    @property
    def spread(self) -> float:
        """The median of its samples' spreads."""
        return median(sample.spread for sample in self.samples)


def capacity_of(level: Level) -> int:
    """Return the bytes of a level that has a capacity."""
    if level.capacity is None:
        raise CalibrationError(f"{level.name} has no capacity, so it cannot be measured")
    return level.capacity


def find_plateaus(
    samples: Sequence[Sample], caches: Sequence[Level], guessed: Collection[str] = ()
) -> tuple[Plateau, ...]:
    """Find each level's stretch of a curve.

    The staircase that lies closest to the curve (least sum of absolute differences of logarithms)
    is chosen among those whose steps can be: a cache serves at least `BEYOND_RATIO` times the
    nearer one's capacity, and no more than its own. The edge is where the curve crosses the
    geometric mean of the two bandwidths. Where these are not `DISTINCT_RATIO`, the cache is taken
    to serve all of its capacity, but no edge is given.

    `samples` are by growing block. Caches are nearest first; memory follows the last. `guessed`
    names those whose capacity is a guess, so that their step can be anywhere.

    Returns
    -------
    tuple
        One plateau for each cache, and memory's. A level has no samples unless the blocks reach
        `BEYOND_RATIO` times the nearer cache.

    Examples
    --------
    >>> curve = [Sample(2**n, (8e9 if n < 15 else 1e9,)) for n in range(12, 18)]
    >>> near, far = find_plateaus(curve, [Level("L1", 2**15, 1e9)])
    >>> near.bandwidth, near.edge, far.bandwidth
    (8000000000.0, 23170, 1000000000.0)
    """
    top = samples[-1].block
    ends = [
        level
        for level in caches
        if level.name not in guessed and BEYOND_RATIO * capacity_of(level) > top
    ]
    if ends:  # nothing lies well beyond this cache, so it is the last one to be judged
        samples = [sample for sample in samples if sample.block <= capacity_of(ends[0])]
    places = [
        [len(samples)] if level in ends else _places(samples, caches, guessed, n)
        for n, level in enumerate(caches)
    ]
    steps = _steps(samples, places)
    judged = _judged(samples, steps, caches, guessed)
    # A step that does not show was put where noise would have it; then the level's capacity holds.
    for n, level in enumerate(caches):
        if level.name not in guessed and not _distinct(judged[n], judged[n + 1]):
            steps[n] = places[n][-1]
    judged = _judged(samples, steps, caches, guessed)
    edges: list[int | None] = [None] * len(judged)
    for n, level in enumerate(caches):
        if _distinct(judged[n], judged[n + 1]):
            limit = math.inf if level.name in guessed else capacity_of(level)
            edges[n] = _edge(samples, steps[n], _height(judged[n]), _height(judged[n + 1]), limit)
    names = [*(level.name for level in caches), "memory"]
    return tuple(
        Plateau(name, tuple(part), edge)
        for name, part, edge in zip(names, judged, edges, strict=True)
    )


def order_bandwidths(found: Sequence[Plateau]) -> tuple[float | None, ...]:
    """Return the plateaus' bandwidths, none faster than a nearer one; None where not reached.

    Neighbours out of order by no more than `NOISE_RATIO` are one plateau as far as the curve can
    tell, and get the median of their samples together.

    Raises
    ------
    CalibrationError
        If a farther level is faster than a nearer one by more than that.

    Examples
    --------
    >>> fast, slow = Sample(1024, (3e9,)), Sample(4096, (1e9,))
    >>> order_bandwidths([Plateau("L1", (fast,), 2048), Plateau("memory", (slow,), None)])
    (3000000000.0, 1000000000.0)
    """
    reached = [plateau for plateau in found if plateau.samples]
    for index, far in enumerate(reached):
        for near in reached[:index]:
            if far.bandwidth > NOISE_RATIO * near.bandwidth:
                raise CalibrationError(
                    f"{far.name} seems faster ({far.bandwidth / 1e9:.4g} GB/s) than the nearer "
                    f"{near.name} ({near.bandwidth / 1e9:.4g} GB/s), which cannot be"
                )
    pools: list[list[Plateau]] = []  # neighbours that count as one plateau
    for plateau in reached:
        pools.append([plateau])
        while len(pools) > 1 and _pooled(pools[-1]) > _pooled(pools[-2]):
            last = pools.pop()
            pools[-1] += last
    values = {plateau.name: _pooled(pool) for pool in pools for plateau in pool}
    return tuple(values.get(plateau.name) for plateau in found)


def median_within(
    samples: Sequence[Sample], low: float, high: float, *, usual: bool = False
) -> float | None:
    """Return the median bandwidth of the blocks from `low` to `high` bytes; None without any.

    The best round of each counts, or else all of them together: the `usual` rate.

    Examples
    --------
    >>> median_within([Sample(2**n, (n * 1e9,)) for n in range(10, 20)], 2**12, 2**14)
    13000000000.0
    """
    found = [sample for sample in samples if low <= sample.block <= high]
    rates = [one.usual if usual else one.best for one in found]
    return median(rates) if rates else None


def _pooled(pool: Sequence[Plateau]) -> float:
    return _height([sample for plateau in pool for sample in plateau.samples])


def _places(
    samples: Sequence[Sample], caches: Sequence[Level], guessed: Collection[str], index: int
) -> list[int]:
    """Return where the step of a cache can be, as counts of the samples before it."""
    nearer = [capacity_of(c) for c in caches[:index] if c.name not in guessed]
    farther = [capacity_of(c) for c in caches[index:] if c.name not in guessed]
    high = min(farther, default=math.inf)
    low = min(BEYOND_RATIO * max(nearer, default=0), high)
    first = 1 + sum(sample.block <= low for sample in samples)
    last = sum(sample.block <= high for sample in samples)
    return list(range(min(first, last), last + 1))


def _steps(samples: Sequence[Sample], places: Sequence[Sequence[int]]) -> list[int]:
    """Return the place of each step in the staircase that lies closest to the curve."""
    logs = [math.log(sample.best) for sample in samples]

    @cache
    def misfit(start: int, stop: int) -> float:
        part = logs[start:stop]
        middle = median(part) if part else 0.0
        return sum(abs(value - middle) for value in part)

    # The best staircase for the first `stop` samples, for each place where a level can end.
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for stops in [*places, [len(samples)]]:
        best = {
            stop: min(
                (cost + misfit(start, stop), (*path, stop))
                for start, (cost, path) in best.items()
                if start <= stop
            )
            for stop in stops
            if stop >= min(best)
        }
    return list(best[len(samples)][1][:-1])


def _judged(
    samples: Sequence[Sample],
    steps: Sequence[int],
    caches: Sequence[Level],
    guessed: Collection[str],
) -> list[list[Sample]]:
    """Return the samples by which each level is judged: of its stretch, the ones well inside."""
    found = []
    nearer = 0  # bytes of the cache before
    for level, (start, stop) in zip_longest(caches, pairwise((0, *steps, len(samples)))):
        part = samples[start:stop]
        found.append([s for s in part if s.block >= BEYOND_RATIO * nearer] or list(part))
        if level is not None and level.name not in guessed:
            nearer = capacity_of(level)
        elif part:
            nearer = part[-1].block
    found[-1] = [s for s in found[-1] if s.block > samples[-1].block / LARGEST_RATIO]
    return found


def _height(part: Sequence[Sample]) -> float:
    return median(sample.best for sample in part)


def _distinct(near: Sequence[Sample], far: Sequence[Sample]) -> bool:
    """Say whether two levels differ by a step that noise does not make."""
    return bool(near) and bool(far) and _height(near) >= DISTINCT_RATIO * _height(far)


def _edge(samples: Sequence[Sample], step: int, upper: float, lower: float, limit: float) -> int:
    """Return the bytes at which a curve goes down from one level's bandwidth to the next's."""
    middle = math.sqrt(upper * lower)
    # A cache can serve more than it should: then the curve falls behind the last place allowed.
    while step + 1 < len(samples) and samples[step].best > middle:
        step += 1
    last, first = samples[step - 1], samples[step]
    edge = float(last.block)
    if last.best > middle >= first.best:
        share = math.log(last.best / middle) / math.log(last.best / first.best)
        edge *= (first.block / last.block) ** share
    return int(min(edge, limit))
