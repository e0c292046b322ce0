"""Shares of workers: letters are cut one within the other, so that any number shares evenly."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise, permutations
from math import ceil, prod

from tilesolve.constants.network import MOST_OBLONG
from tilesolve.contractions.problem import Problem
from tilesolve.model.fused import Fused

Span = tuple[int, int]
"""Where a part of a letter begins and ends."""

Parts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Sharing:
    """How workers share letters: each is cut within the parts of those before it.

    A part is as long as it has workers, so that all shares have about as much to compute.

    Parameters
    ----------
    workers
        How many have a share.
    parts
        Letters and into how many parts they are cut, outermost first. The last one is cut into as
        many as a part has workers: at most so many.

    Examples
    --------
    >>> Sharing(3, (("i", 2), ("j", 2))).shares({"i": 9, "j": 8})
    ({'i': (0, 3), 'j': (0, 8)}, {'i': (3, 9), 'j': (0, 4)}, {'i': (3, 9), 'j': (4, 8)})
    """

    workers: int
    parts: Parts = ()

    def __str__(self) -> str:
        if self.even:
            return ", ".join(f"{i} in {number}" for i, number in self.parts) or "one worker"
        *outer, (last, number) = self.parts
        return "".join(f"{i} in {n}, in each " for i, n in outer) + f"{last} in up to {number}"

    @property
    def even(self) -> bool:
        """Whether every letter is cut the same everywhere: a grid."""
        return prod(number for _, number in self.parts) == self.workers

    def shares(self, sizes: Mapping[str, int]) -> tuple[dict[str, Span], ...]:
        """Return where each worker's share begins and ends along each letter."""
        whole = {i: (0, n) for i, n in sizes.items()}
        return tuple(whole | own for own in _share(sizes, self.parts, self.workers))

    def longest(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the extent of each letter in the longest of its parts."""
        if self.even:
            return {i: ceil(n / dict(self.parts).get(i, 1)) for i, n in sizes.items()}
        shares = self.shares(sizes)
        return {i: max(own[i][1] - own[i][0] for own in shares) for i in sizes}

    def copies(self, letters: Collection[str]) -> float:
        """Return how many times all shares together have a tensor of some letters.

        Examples
        --------
        >>> [Sharing(3, (("i", 2), ("j", 2))).copies(own) for own in ("ij", "j", "k")]
        [1.0, 2.0, 3.0]
        """
        return _count_copies(self.parts, self.workers, frozenset(letters))


def list_sharings(problem: Problem, fused: Fused, workers: int) -> list[Sharing]:
    """Return the ways to share letters: among fewer workers where these are too short for all."""
    found: list[Sharing] = []
    while not found:
        classes = _share_classes(fused.problem.sizes, workers)
        found = [one for one in (_share_letters(problem, fused, own) for own in classes) if one]
        workers -= 1
    return found


@lru_cache(maxsize=4096)
def split_class(extents: tuple[int, ...], count: int, *, exact: bool) -> tuple[int, ...] | None:
    """Return a number of parts for each letter of a class, as many in all as are wanted, or more.

    Of those the ones of the smallest largest part, and of letters far apart in memory.
    """
    most = prod(max(1, extent) for extent in extents)
    for total in range(count, count + 1 if exact else most + 1):
        able = [
            parts
            for parts in _list_factorings(total, len(extents))
            if all(part <= max(1, extent) for part, extent in zip(parts, extents, strict=True))
        ]
        if able:
            return min(
                able,
                key=lambda parts: (
                    prod(ceil(n / part) for n, part in zip(extents, parts, strict=True)),
                    [-part for part in parts],
                ),
            )
    return None


def _share_classes(sizes: Mapping[str, int], workers: int) -> Iterator[Sharing]:
    """Yield ways in which workers can share classes: grids, and parts that are cut differently.

    Examples
    --------
    >>> [str(one) for one in _share_classes({"M": 8, "N": 8}, 3)]
    ['N in 3', 'M in 3', 'M in 2, in each N in up to 2', 'N in 2, in each M in up to 2']
    """
    for numbers in _list_factorings(workers, len(sizes)):
        if all(number <= n for number, n in zip(numbers, sizes.values(), strict=True)):
            yield Sharing(workers, _drop_whole(zip(sizes, numbers, strict=True)))
    able = [i for i, n in sizes.items() if n > 1]
    side = (prod(sizes.values()) / workers) ** (1 / max(1, len(able)))
    most = {i: min(n, int(MOST_OBLONG * n / side)) for i, n in sizes.items()}
    found = dict[Parts, None]()
    for order in permutations(able, min(len(able), 3)):
        for numbers in _list_numbers([most[i] for i in order], workers):
            parts = _drop_whole(zip(order, numbers, strict=True))
            lengths = [n / dict(parts).get(i, 1) for i, n in sizes.items()]
            if all(max(lengths) <= MOST_OBLONG * sizes[i] / number for i, number in parts):
                found[parts] = None
    yield from (Sharing(workers, parts) for parts in found)


def _share_letters(problem: Problem, fused: Fused, sharing: Sharing) -> Sharing | None:
    """Return how letters are shared where classes are so; None if they are too short for that."""
    parts: list[tuple[str, int]] = []
    for index, number in sharing.parts:
        letters = fused.letters(index)
        if not sharing.even and index == sharing.parts[-1][0]:
            letters = (max(letters, key=problem.sizes.__getitem__),)
        split = split_class(tuple(problem.sizes[i] for i in letters), number, exact=True)
        if split is None:
            return None
        parts += ((i, n) for i, n in zip(letters, split, strict=True) if n > 1)
    return Sharing(sharing.workers, tuple(parts))


@lru_cache(maxsize=4096)
def _list_factorings(count: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """Return the ways to write a count as a product of so many numbers."""
    if parts == 1:
        return ((count,),)
    return tuple(
        (first, *others)
        for first in range(1, count + 1)
        if count % first == 0
        for others in _list_factorings(count // first, parts - 1)
    )


def _list_numbers(
    most: Sequence[int], workers: int, outer: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Yield into how many parts letters may be cut, that make no grid of all workers."""
    left = workers // prod(outer)
    if len(outer) < len(most) - 1:
        for number in range(1, min(most[len(outer)], left) + 1):
            yield from _list_numbers(most, workers, (*outer, number))
    elif workers % prod(outer) and left < most[-1]:
        yield (*outer, left + 1)


def _drop_whole(parts: Iterator[tuple[str, int]]) -> Parts:
    """Return cuts without those into one part."""
    return tuple((letter, number) for letter, number in parts if number > 1)


def _deal(workers: int, number: int) -> Sequence[int]:
    """Return how many workers each of some parts has."""
    return [b - a for a, b in pairwise(workers * at // number for at in range(number + 1))]


def _share(sizes: Mapping[str, int], parts: Parts, workers: int) -> Iterator[dict[str, Span]]:
    """Yield the shares of workers within a part, by cut letter."""
    if not parts:
        yield {}
        return
    (letter, number), *rest = parts
    counts = _deal(workers, number if rest else workers)
    ends = [(sizes[letter] * at + workers // 2) // workers for at in (0, *accumulate(counts))]
    for count, span in zip(counts, pairwise(ends), strict=True):
        yield from ({letter: span} | own for own in _share(sizes, tuple(rest), count))


@lru_cache(maxsize=1 << 16)
def _count_copies(parts: Parts, workers: int, letters: frozenset[str]) -> float:
    """Return how many times shares within a part together have what it has of a tensor."""
    if not parts:
        return 1.0
    (letter, number), *rest = parts
    own, inner, number = letter in letters, tuple(rest), number if rest else workers
    if workers % number == 0:
        return (1 if own else number) * _count_copies(inner, workers // number, letters)
    return sum(
        (count / workers if own else 1) * _count_copies(inner, count, letters)
        for count in _deal(workers, number)
    )
