"""Scaled-down problems, nests and machines on which the model meets the simulated caches."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.machine.level import Level, Peak
from tilesolve.machine.model import Machine
from tilesolve.model.nest import Nest
from tilesolve.simulation.cache_simulator import Caches, access, lean

CAPACITIES = (4096, 16384, 131072)
"""Bytes of the toy caches, an eighth of usual ones or less."""


def make_machine(
    capacities: tuple[int, ...] = CAPACITIES,
    line: int = 64,
    ways: tuple[int | None, ...] = (),
    inclusive: tuple[bool, ...] = (),
) -> Machine:
    """Return a machine with caches of these capacities; its bandwidths play no part here."""
    count = len(capacities)
    caches = [
        Level(f"L{at}", capacity, 1e12 / at, line=line, ways=way, inclusive=kept)
        for at, capacity, way, kept in zip(
            range(1, count + 1),
            capacities,
            ways or (None,) * count,
            inclusive or (True,) * count,
            strict=True,
        )
    ]
    memory = Level("memory", None, 1e10, line=line)
    peaks = Peak("float64", 256, 1e10), Peak("float32", 256, 2e10)
    return Machine("toy", (*caches, memory), 1, 1e9, 256, 16, 4, 2.0, peaks)


@dataclass(frozen=True, slots=True)
class Case:
    """A problem and a nest for it.

    Parameters
    ----------
    title
        What the table calls it.
    spec, sizes
        The problem.
    call
        Order and box of a microkernel call.
    tiles
        What the tile of each cache adds to the nearer one's.
    around
        Letters whose loops are innermost around each of the tiles.
    packed
        Where each operand's packed copy lives.
    """

    title: str
    spec: str
    sizes: Mapping[str, int]
    call: tuple[str, Mapping[str, int]]
    tiles: Mapping[str, Mapping[str, int]]
    around: tuple[str, ...]
    packed: tuple[str | None, ...] = ("L3", "L3")

    @property
    def problem(self) -> Problem:
        return Problem.of(self.spec, self.sizes)

    @property
    def nest(self) -> Nest:
        letters = self.problem.spec.letters
        orders = [
            "".join((*first, *(i for i in letters if i not in first))) for first in self.around
        ]
        box = {**dict.fromkeys(self.sizes, 1), **self.call[1]}
        bands = [("register", self.call[0], dict(box))]
        levels = {**self.tiles, "memory": self.sizes}
        for (level, tile), order in zip(levels.items(), (orders[0], *orders), strict=True):
            box.update(tile)
            bands.append((level, order, dict(box)))
        return Nest.of(self.problem, bands, self.packed)


def _family(
    title: str,
    spec: str,
    sizes: Mapping[str, int],
    call: tuple[str, Mapping[str, int]],
    nests: Sequence[tuple[str | Mapping[str, int], ...]],
    packed: tuple[str | None, ...] = ("L3", "L3"),
) -> tuple[Case, ...]:
    """Return a case for each nest: what is innermost around its tiles, and L2, L3 and L1."""
    return tuple(
        Case(
            title,
            spec,
            sizes,
            call,
            {"L1": first[0] if first else {}, "L2": second, "L3": third},
            tuple(around.split()),
            packed,
        )
        for around, second, third, *first in nests
    )


MATRICES = _family(
    "mn-mk-kn",
    "mn-mk-kn",
    {"m": 119, "n": 123, "k": 125},
    ("mnk", {"m": 8, "n": 4, "k": 24}),
    [
        ("k m n", {"n": 8, "k": 72}, {"m": 48, "n": 32}),
        ("m m n", {"m": 16, "k": 72}, {"m": 64, "n": 24}),
        ("n k m", {"m": 16, "n": 16}, {"n": 48, "k": 125}),
        ("m n m", {"k": 125}, {"m": 48, "n": 16}),
    ],
)

CONTRACTIONS = (
    *_family(
        "abcdef-degb-gfac",
        "abcdef-degb-gfac",
        {"a": 3, "b": 6, "c": 5, "d": 5, "e": 8, "f": 15, "g": 47},
        ("feg", {"f": 8, "e": 4, "g": 24}),
        [
            ("g g bde", {"d": 3, "f": 15, "g": 47}, {"a": 3, "b": 6, "d": 5}),
            ("g acf bde", {"b": 3, "c": 2}, {"a": 3, "c": 5, "g": 47}),
            ("bde acf acf", {"a": 2, "c": 3}, {"a": 3, "c": 5, "d": 2, "f": 15}),
        ],
    ),
    *_family(
        "abcd-aebf-dfce",
        "abcd-aebf-dfce",
        {"a": 7, "b": 16, "c": 6, "d": 15, "e": 12, "f": 11},
        ("dbf", {"d": 8, "b": 4, "f": 11}),
        [
            ("ef cd ab", {"b": 8, "e": 4}, {"b": 16, "e": 12}, {"a": 3}),
            ("ef ef ef", {"b": 8, "c": 2, "e": 4}, {"a": 3, "d": 15, "e": 12}, {"e": 2}),
            ("cd ab cd", {"a": 6}, {"a": 7, "b": 16, "e": 3}, {"d": 15}),
            ("ab ab cd", {"a": 7, "e": 3}, {"b": 16, "d": 15}, {"a": 2}),
        ],
    ),
    *_family(
        "abcde-efbca-fd",
        "abcde-efbca-fd",
        {"a": 5, "b": 4, "c": 4, "d": 23, "e": 15, "f": 23},
        ("edf", {"e": 8, "d": 4, "f": 23}),
        [
            ("d abce abce", {"b": 2, "c": 2, "d": 12}, {"a": 5, "d": 23}),
            ("f abce abce", {"a": 2, "c": 4}, {"a": 5, "d": 12}),
            ("d abce f", {"a": 2, "d": 12, "e": 15}, {"a": 5, "c": 2, "d": 23}),
        ],
    ),
    *_family(
        "abcd-ea-ebcd",
        "abcd-ea-ebcd",
        {"a": 23, "b": 7, "c": 7, "d": 31, "e": 23},
        ("dae", {"d": 8, "a": 4, "e": 23}),
        [
            ("bcd bcd e", {"b": 2, "d": 16}, {"a": 23, "b": 4, "c": 4}),
            ("a e a", {"c": 2, "d": 31}, {"a": 23, "b": 4}),
            ("a bcd e", {"c": 2, "d": 24}, {"b": 2, "c": 4, "d": 31}),
        ],
    ),
)

CONVOLUTIONS = (
    *_family(
        "3×3 convolution, stride 1",
        "nkhw-nc[h+r][w+s]-kcrs",
        {"n": 1, "k": 24, "c": 24, "h": 21, "w": 21, "r": 3, "s": 3},
        ("wksrc", {"w": 7, "k": 4, "c": 4, "r": 3, "s": 3}),
        [
            ("crs crs k", {"k": 8, "c": 8}, {"k": 24, "c": 24, "h": 4, "w": 21}),
            ("wh wh crs", {"k": 12, "c": 8}, {"k": 24, "c": 24, "h": 3, "w": 21}),
            ("crs wh k", {"c": 16, "w": 21}, {"k": 12, "h": 21}),
            ("wh crs crs", {"k": 16, "c": 8}, {"k": 24, "c": 24, "h": 6}),
        ],
        (None, "L3"),
    ),
    *_family(
        "3×3 convolution, stride 2",
        "nkhw-nc[2h+r][2w+s]-kcrs",
        {"n": 1, "k": 24, "c": 24, "h": 15, "w": 15, "r": 3, "s": 3},
        ("wksrc", {"w": 5, "k": 4, "c": 4, "r": 3, "s": 3}),
        [
            ("wh crs crs", {"k": 24}, {"c": 16, "h": 3, "w": 10}),
            ("crs wh wh", {"k": 8, "c": 8, "w": 15}, {"c": 24, "h": 3}),
            ("k crs wh", {"h": 4}, {"k": 8, "c": 24, "h": 8, "w": 15}),
            ("k wh wh", {"c": 8, "w": 10}, {"k": 24, "c": 24}),
        ],
        (None, "L3"),
    ),
)

CASES = (*MATRICES, *CONTRACTIONS, *CONVOLUTIONS)


def draw_nests(count: int, seed: int = 1) -> list[tuple[Problem, Nest]]:
    """Return matrix products with random tiles that fill their caches by a third or more.

    Nothing else is asked of them: orders and packed copies are whatever the draw gives.
    """
    draw = random.Random(seed)
    found: list[tuple[Problem, Nest]] = []
    while len(found) < count:
        sizes = {i: draw.choice([48, 64, 96, 120, 160]) for i in "mnk"}
        tile = {"m": draw.choice([2, 4]), "n": draw.choice([4, 8]), "k": draw.choice([8, 16, 32])}
        bands = [("register", "nmk", dict(tile))]
        around = ("mn", *(draw.choice("mnk") for _ in range(3)))
        filled = []
        for level, order, room in zip(("L1", "L2", "L3"), around, CAPACITIES, strict=False):
            grown = {i: side * draw.choice([1, 1, 2, 3, 4]) for i, side in tile.items()}
            if level == "L1":
                grown["k"] = tile["k"]
            tile = {i: min(sizes[i], side) for i, side in grown.items()}
            bands.append((level, order, dict(tile)))
            m, n, k = tile["m"], tile["n"], tile["k"]
            filled.append(8 * (m * n + m * k + k * n) / room)
        if all(0.3 <= share <= 1 for share in filled):
            problem = Problem.of("mn-mk-kn", sizes)
            nest = Nest.of(problem, [*bands, ("memory", around[-1], sizes)], ("L3", "L3"))
            found.append((problem, nest))
    return found


@lean
def access_all(state: Caches, addresses: np.ndarray, owners: np.ndarray) -> None:
    """Touch addresses one after another."""
    for at in range(addresses.size):
        access(state, addresses[at], owners[at])
