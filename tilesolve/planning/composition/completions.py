"""Completions: schemes around a microkernel, with divisors as tile sizes (section 5.3 of TTile)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import LONG_SUMS_SHARE, MOST_COMPLETIONS
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS, SUMS, Roles
from tilesolve.machine.microkernel import Microkernel as Costs
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_order import innermost_first
from tilesolve.model.loop_tree import tree_of_bands
from tilesolve.model.nest import REGISTER, CopyKind
from tilesolve.model.price import arithmetic
from tilesolve.model.score import score_times
from tilesolve.model.traffic import count_traffic
from tilesolve.packing.cover import Combination
from tilesolve.planning.composition import scheme as loops
from tilesolve.planning.composition.scheme import Scheme, Specifier

COPIED = ("micro-panels", "windows")
"""Kinds of copies that calls make."""

BANDS = ("nearest tile", "farther tile", "whole")
"""The bands of loops around a call, innermost first."""

ROTATIONS = ((ROWS, COLUMNS, SUMS), (COLUMNS, ROWS, SUMS), (SUMS, ROWS, COLUMNS))
"""Orders of the roles' loops in a band, innermost first: the first one decides what stays."""

Permutation = tuple[tuple[int, ...], ...]
"""For each band the order of its roles, innermost first."""


@dataclass(frozen=True, slots=True)
class Microkernel:
    """What a scheme is completed around.

    Parameters
    ----------
    vector
        The letter that vectors lie along; None for none.
    vectors
        How many lie side by side.
    lanes
        Elements of one.
    letter
        The letter of columns; None for none.
    cells
        Columns that cover the letter's extent.
    """

    vector: str | None
    vectors: int
    lanes: int
    letter: str | None
    cells: Combination

    def tile(self, letter: str) -> int:
        """Return the largest side of a letter in registers."""
        if letter == self.vector:
            return self.vectors * self.lanes
        return max(self.cells.cells) if letter == self.letter else 1

    @property
    def specifiers(self) -> tuple[Specifier, ...]:
        """The unrolled loops and the vector, outermost first."""
        found: list[Specifier] = []
        if self.letter is not None:
            two = self.cells.second > 0
            if two or self.cells.size > 1:
                found.append(loops.Unrolled("α" if two else self.cells.size, self.letter))
        if self.vector is not None:
            if self.vectors > 1:
                found.append(loops.Unrolled(self.vectors, self.vector))
            found.append(loops.Vector(self.vector))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Chain:
    """One letter's tiles in a call and in each band, and the loops that make them.

    Parameters
    ----------
    sides
        Of the call, then of each band.
    specifiers
        The loops over the letter in each band, outermost first.
    """

    sides: tuple[int, ...]
    specifiers: tuple[tuple[Specifier, ...], ...]


def chains(letter: str, extent: int, microkernel: Microkernel, role: int) -> list[Chain]:
    """Return all chains of tiles of a letter that divide each other.

    Sums are part of a call as far as they are in its tile. A λ stands in any band, its numbers
    divided by what other bands have of them.

    Examples
    --------
    >>> kernel = Microkernel("j", 2, 4, "i", Combination(1, 6, 2, 5))
    >>> [chain.sides for chain in chains("j", 16, kernel, ROWS)]
    [(8, 8, 8, 16), (8, 8, 16, 16), (8, 16, 16, 16)]
    >>> [chain.sides for chain in chains("i", 16, kernel, COLUMNS)]
    [(6, 16, 16, 16), (6, 6, 16, 16), (6, 6, 6, 16)]
    """
    tile = microkernel.tile(letter)
    if letter == microkernel.letter and microkernel.cells.second:
        return list(_sequences(letter, extent, microkernel.cells))
    found = []
    own = 1 if role == SUMS else 0
    for trips in _factorizations(extent // tile, len(BANDS) + own):
        inside = tile * prod(trips[:own])
        sides = tuple(inside * prod(trips[own : own + at]) for at in range(len(BANDS) + 1))
        loop = tuple((loops.Tile(count, letter),) if count > 1 else () for count in trips[own:])
        found.append(Chain(sides, loop))
    return found


def _sequences(letter: str, extent: int, cells: Combination) -> Iterator[Chain]:
    """Yield the chains of a letter under a λ."""
    common = gcd(cells.first, cells.second)
    for band in range(len(BANDS)):
        for repeats in _divisors(common):
            for trips in _factorizations(repeats, len(BANDS)):
                counts = [
                    (count // repeats, size)
                    for count, size in ((cells.first, cells.size), (cells.second, cells.other))
                ]
                sequence = loops.Sequence(letter, "α", tuple(counts))
                sides, specifiers = [max(cells.cells)], []
                for at, count in enumerate(trips):
                    # Around the λ in its own band.
                    own: tuple[Specifier, ...] = (loops.Tile(count, letter),) if count > 1 else ()
                    side = sides[-1] * count
                    if at == band:
                        own = (*own, sequence)
                        side = extent // prod(trips[at + 1 :])
                    sides.append(side)
                    specifiers.append(own)
                yield Chain(tuple(sides), tuple(specifiers))


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def _factorizations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a number as a product of so many factors."""
    if parts == 1:
        yield (number,)
        return
    for first in _divisors(number):
        for others in _factorizations(number // first, parts - 1):
            yield (first, *others)


@dataclass(frozen=True, slots=True)
class Place:
    """Where completions run, and how they read.

    Parameters
    ----------
    stores
        The register file and the caches.
    costs
        Of the microkernel.
    rate, frequency
        Flop/s and cycles per second of one thread's core.
    overlap
        Share of the time of other levels that shows beside the slowest one's.
    kinds
        How each operand is read; copies live in the farther tile.
    """

    stores: Sequence[LevelView]
    costs: Costs
    rate: float
    frequency: float
    overlap: float
    kinds: tuple[CopyKind, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """All completions of a permutation around a microkernel.

    Parameters
    ----------
    problem
        One thread's share.
    roles
        Of its letters.
    microkernel
        What is completed.
    options
        For each letter its chains.
    """

    problem: Problem
    roles: Roles
    microkernel: Microkernel
    options: Mapping[str, Sequence[Chain]]

    @classmethod
    def of(
        cls, problem: Problem, roles: Roles, microkernel: Microkernel, most: int = MOST_COMPLETIONS
    ) -> Space:
        """Return the space; where it has more completions than `most`, chains are left out evenly.

        Examples
        --------
        >>> problem = Problem.of("ij-ik-kj", 16)
        >>> kernel = Microkernel("j", 2, 4, None, Combination(1, 1, 0, 1))
        >>> space = Space.of(problem, Roles.of_spec(problem.spec, rows=1), kernel)
        >>> len(space), {letter: len(found) for letter, found in space.options.items()}
        (450, {'i': 15, 'j': 3, 'k': 10})
        """
        found = {
            letter: chains(letter, extent, microkernel, roles.number(letter))
            for letter, extent in problem.sizes.items()
        }
        while prod(map(len, found.values())) > most:
            longest = max(found, key=lambda letter: len(found[letter]))
            if len(found[longest]) < 3:
                break
            found[longest] = _thin(found[longest])
        return cls(problem, roles, microkernel, found)

    def __len__(self) -> int:
        return prod(map(len, self.options.values()))

    def boxes(self) -> list[dict[str, NDArray[np.int64]]]:
        """Return the boxes of the call and of all bands, as arrays over all completions."""
        grids = np.indices([len(found) for found in self.options.values()]).reshape(
            len(self.options), -1
        )
        return [
            {
                letter: np.array([chain.sides[at] for chain in found], np.int64)[grid]
                for (letter, found), grid in zip(self.options.items(), grids, strict=True)
            }
            for at in range(len(BANDS) + 1)
        ]

    def order(self, permutation: Permutation) -> list[tuple[str, ...]]:
        """Return the letters of each band, innermost first; those of batches are outermost."""
        letters = [
            innermost_first(self.problem, members) if members else () for members in self.roles
        ]
        return [
            tuple(i for role in (*roles, BATCHES) for i in letters[role]) for roles in permutation
        ]

    def scores(self, permutation: Permutation, place: Place) -> NDArray[np.float64]:
        """Return the score of each completion by its volumes, its calls and its packing."""
        names = [store.name for store in place.stores]
        levels = names[1 : len(BANDS)] + [""] * (len(BANDS) - len(names))
        levels[len(BANDS) - 2] = names[-1]
        call = tuple(i for roles in (ROWS, COLUMNS, SUMS, BATCHES) for i in self.roles[roles])
        bands = ((REGISTER, call), *zip((*levels, "whole"), self.order(permutation), strict=True))
        tree = tree_of_bands(
            self.problem,
            bands,
            self.boxes(),
            tuple(names[-1] if kind in COPIED else None for kind in place.kinds),
            "store",
            place.kinds,
        )
        found = count_traffic(tree, place.stores)
        pairs = zip(place.stores, found.volumes, strict=True)
        times = [store.seconds(volumes) for store, volumes in pairs]
        times.append(arithmetic(self.problem, place.costs, place.rate, place.frequency, found))
        all_times = np.stack([np.broadcast_to(np.asarray(time), (len(self),)) for time in times])
        scores: NDArray[np.float64] = score_times(all_times, place.overlap)
        return scores

    def calls_sums(self) -> NDArray[np.int64]:
        """Return how many products a call sums, for each completion."""
        call = self.boxes()[0]
        found = np.ones(len(self), np.int64)
        for letter in self.roles.sums:
            found *= call[letter]
        return found

    def scheme(self, number: int, permutation: Permutation) -> Scheme:
        """Return a completion as a scheme."""
        lengths = [len(found) for found in self.options.values()]
        places = np.unravel_index(number, lengths)
        chosen = {
            letter: found[int(place)]
            for (letter, found), place in zip(self.options.items(), places, strict=True)
        }
        found: list[Specifier] = []
        for band, order in reversed(list(enumerate(self.order(permutation)))):
            for letter in reversed(order):
                found += chosen[letter].specifiers[band]
        sums = innermost_first(self.problem, self.roles.sums) if self.roles.sums else ()
        for letter in reversed(sums):
            if (side := chosen[letter].sides[0]) > 1:
                found.append(loops.Tile(side, letter))
        return Scheme((*found, *self.microkernel.specifiers))


def permutations() -> list[Permutation]:
    """Return the permutations that differ in what stays around a tile."""
    return list(product(ROTATIONS, repeat=len(BANDS)))


def best_permutation(space: Space, place: Place) -> Permutation:
    """Return the permutation some completion of which scores least."""
    return min(permutations(), key=lambda one: float(space.scores(one, place).min()))


def select(sums: NDArray[np.int64], seconds: NDArray[np.float64], most: int) -> list[int]:
    """Return the completions to price: of those with the longest sums the fastest ones.

    Section 5.4 of TTile: a share with the largest reduction above the microkernel, then sorted by
    what moves.

    Examples
    --------
    >>> select(np.array([4, 4, 2, 8, 1]), np.array([9.0, 5.0, 1.0, 7.0, 1.0]), 2)
    [3, 0]
    """
    kept = max(1, int(LONG_SUMS_SHARE * len(sums)))
    longest = np.argsort(-sums, kind="stable")[:kept]
    return [int(at) for at in longest[np.argsort(seconds[longest], kind="stable")][:most]]


def _thin(found: Sequence[Chain]) -> list[Chain]:
    """Return every other chain, the first and the last ones among them."""
    return [*found[:-1:2], found[-1]]
