"""The variants of matrix products that PolyDL generates (Fig. 17 of the paper).

Loops go over tiles of 16, 32, 64 and so on that divide the extents, and in these over equal ones of
16, 32 or 64 that a microkernel takes. The outermost loop that is divided among threads runs a
multiple of their number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.microkernel import Microkernel
from tilesolve.model.nest import Band, Nest
from tilesolve.planning.geometric.strategy import setting_for, with_nest
from tilesolve.planning.geometric.tilings import Chain, feasible, nest_of
from tilesolve.planning.register_tile import microkernel_of
from tilesolve.planning.setting import Choice
from tilesolve.planning.solution import Solution

Some = TypeVar("Some")

SMALLEST_TILE = 16
"""Iterations of the smallest tile; others are doubles of it."""

INNER_TILES = (16, 32, 64)
"""Iterations of the tile that a microkernel takes, of each letter."""

ORDER = ("K", "N", "M")
"""Classes of the loops over tiles, innermost first."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a variant.

    `outer` and `inner` are iterations, `outer` of M, N and K, `inner` of each of them in the
    tile inside. Threads divide the outermost loop of the letter `divided`; None for one thread.
    """

    outer: tuple[int, ...]
    inner: int
    divided: str | None


def polydl_tiles(problem: Problem, threads: int = 1) -> list[Tiles]:
    """Return the tiles that PolyDL's rule gives for a matrix product, in its order.

    Raises
    ------
    PlanError
        If the problem is no product of two matrices.

    Examples
    --------
    >>> len(polydl_tiles(Problem.of("mn-mk-kn", "m=1024 n=16 k=500000"), 32))
    4
    """
    letters = _letters(problem)
    extents = [problem.sizes[letter] for letter in letters.values()]
    found = []
    for m, n, k in product(*map(_doubles, extents)):
        outer = m, n, k
        divided: list[str | None] = [None]
        if threads > 1:
            trips = [extent // tile for extent, tile in zip(extents, outer, strict=True)]
            divided = [
                letters[name]
                for name, trip in zip("MN", trips[:2], strict=True)
                if trip % threads == 0
            ]
        inner = [side for side in INNER_TILES if all(tile % side == 0 for tile in outer)]
        found += [Tiles(outer, side, letter) for side, letter in product(inner, divided)]
    return found


def vary_like_polydl(best: Solution, count: int, seed: int) -> Iterator[tuple[Solution, bool]]:
    """Yield PolyDL's variants as solutions, and whether their tiles keep all limits.

    Operands are packed where that repays it: the paper's lie in blocks before.

    There are `count` variants at most; `seed` draws them where there are more.

    Raises
    ------
    PlanError
        If the problem is no product of two matrices, or only one cache has a tile.
    """
    every = polydl_tiles(best.problem, best.threads)
    for tiles in pick_some(every, count, seed):
        base = replace(
            best,
            split=tiles.divided,
            output="accumulate" if best.output == "accumulate" else "store",
            microkernel=smaller_microkernel(best, tiles.inner, tiles.inner),
        )
        setting = setting_for(base)
        if setting.levels < len(("inner", "outer")):
            raise PlanError(
                f"PolyDL's variants have two tiles, machine {best.machine.name!r} has "
                f"{setting.levels} for {best.problem}"
            )
        outer = dict(zip("MNK", tiles.outer, strict=True))
        chains: dict[str, Chain] = {
            index: (tiles.inner, *[outer[index]] * (setting.levels - 1))
            for index in setting.fused.problem.spec.letters
        }
        choice: Choice = (ORDER[0], *[None] * (setting.levels - 2), ORDER[0])
        nest = _in_order(nest_of(setting, choice, chains))
        yield (
            with_nest(base, setting, choice, chains, nest),
            feasible(setting, choice, chains),
        )


def pick_some(every: Sequence[Some], count: int, seed: int) -> list[Some]:
    """Return so many of several variants in their order, drawn where there are more.

    Examples
    --------
    >>> pick_some("abc", 5, 1)
    ['a', 'b', 'c']
    """
    if len(every) <= count:
        return list(every)
    numbers = sorted(random.Random(seed).sample(range(len(every)), count))
    return [every[number] for number in numbers]


def smaller_microkernel(best: Solution, rows: int, columns: int) -> Microkernel:
    """Return the solver's register tile, or as much of it as a tile of rows and columns has."""
    usual, share = best.microkernel, best.share
    if usual.rows <= rows and usual.columns <= columns:
        return usual
    group = lanes(share.dtype, best.machine.vector_bits)
    vectors = max(1, min(usual.rows, rows) // group)
    return microkernel_of(share, best.machine, {(vectors, min(usual.columns, columns)): 1})


def _letters(problem: Problem) -> dict[str, str]:
    """Return the letters of a matrix product by their classes."""
    found = {group.name: group.letters[0] for group in problem.classes}
    if sorted(found) != sorted(ORDER) or len(problem.sizes) != len(ORDER):
        raise PlanError(
            "PolyDL's rule gives variants of products of two matrices, such as 'mn-mk-kn', "
            f"got {str(problem.spec)!r}"
        )
    return {name: found[name] for name in "MNK"}


def _doubles(extent: int) -> list[int]:
    """Return the tiles that divide an extent."""
    found, tile = [], SMALLEST_TILE
    while tile <= extent:
        if extent % tile == 0:
            found.append(tile)
        tile *= 2
    return found


def _in_order(nest: Nest) -> Nest:
    """Return a nest whose loops over tiles are in PolyDL's order."""
    register, nearest, *others = nest.bands
    ordered = (Band(band.level, ORDER, band.box) for band in others)
    return replace(nest, bands=(register, nearest, *ordered))
