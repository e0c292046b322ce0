"""Runs of calls: register tiles alike that the macrokernel prepares at once, and then computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, product
from math import prod

from tilesolve.constants import tuning
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import BATCHES, COLUMNS, ROWS, SUMS, Roles
from tilesolve.model.nest import Nest
from tilesolve.packing.offsets import register_cells


@dataclass(frozen=True, slots=True)
class _Part:
    """The register tiles that a nearest tile has of one role, in order.

    Parameters
    ----------
    alike
        How many follow each other that are alike, again and again.
    passes
        How often.
    """

    alike: tuple[int, ...]
    passes: int

    @property
    def tiles(self) -> int:
        return self.passes * sum(self.alike)

    @property
    def runs(self) -> int:
        return self.passes * len(self.alike)

    @property
    def turns(self) -> int:
        """Runs of so few tiles as single ones of the other role are computed with."""
        return self.passes * sum(-(-n // tuning.TURNS_OF_SINGLE_TILES) for n in self.alike)


def count_runs(share: Problem, nest: Nest, vector: int, halves: int = 1, lead: int = 0) -> int:
    """Return how many runs of calls a nest of two operands has, in the form in which it runs.

    A run is of register tiles alike along the first loop. It takes in all turns of the second loop
    where all of the first loop's tiles are alike, and a few where the first one is alone.

    Parameters
    ----------
    share, nest
        What one thread computes, and how.
    vector, halves, lead
        Elements of a vector, the parts that kernels can take of it, and those before C's first
        whole line, if tiles begin there; see `register_cells`.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 96)
    >>> def count(side, **options):
    ...     sides = {"m": 12, "n": 4, "k": 96}, {"m": 96, "n": side, "k": 96}, 96
    ...     boxes = zip(("register", "L1", "memory"), ("mnk", "mnk", "nmk"), sides)
    ...     return count_runs(problem, Nest.of(problem, list(boxes)), 4, **options)
    >>> count(96), count(8), count(90), count(96, lead=2)
    (1, 12, 4, 3)
    """
    if len(share.spec.operands) != 2 or len(nest.bands) < 2 or 0 in share.sizes.values():
        return 0
    roles = Roles.of_problem(share)
    call, *tiles = (dict(band.box) for band in nest.bands)
    first, second, *_ = [*dict.fromkeys(map(roles.number, nest.bands[1].order)), SUMS, SUMS]

    sequences = nest.sequences

    def cut(letter: str) -> list[tuple[tuple[int, ...], int]]:
        """Return into what cells nearest tiles are cut along a letter, and how many are."""
        sides = [tile[letter] for tile in tiles]
        if (sequence := sequences.get(letter)) is not None:
            found = _cut(sides, sequence.cut)
            return [(sequence.cut(1, side), n) for side, n in found]
        given = (vector, halves, lead) if letter == share.lane else (1,)
        return [(_register_cells(side, max(1, call[letter]), *given), n) for side, n in _cut(sides)]

    def parts(role: int) -> list[tuple[_Part, int]]:
        """Return what nearest tiles have of a role, and how many have it."""
        letters = [letter for letter in nest.bands[1].order if letter in roles[role]]
        choices = product(*map(cut, letters))
        return [(_join(*(x for x, _ in one)), prod(n for _, n in one)) for one in choices]

    around = prod(share.sizes[letter] for letter in roles[BATCHES])
    around *= sum(part.tiles * count for part, count in parts(SUMS))
    inner, outer = (COLUMNS, ROWS) if first == COLUMNS else (ROWS, COLUMNS)
    found = 0
    for (one, count), (other, times) in product(parts(inner), parts(outer)):
        runs = one.runs * other.tiles
        if first not in (ROWS, COLUMNS):
            runs = one.tiles * other.tiles
        elif second == outer and one.runs == 1:
            runs = other.runs
        elif second == outer and one.alike[0] == 1:
            runs = one.runs * other.turns
        found += count * times * runs
    return around * found


def even_tiles(nest: Nest) -> Nest | None:
    """Return a nest whose nearest tile is whole register tiles, which are alike; None if it is.

    What is left of a letter has nearest tiles of its own.
    """
    call, near, *farther = nest.bands
    box = tuple((i, side - side % call[i] if side > call[i] else side) for i, side in near.box)
    if not farther or box == near.box:
        return None
    return replace(nest, bands=(call, replace(near, box=box), *farther))


@lru_cache(maxsize=1024)
def _register_cells(
    extent: int, most: int, vector: int, halves: int = 1, lead: int = 0
) -> tuple[int, ...]:
    """Return what `register_cells` does, of extents that came before at once."""
    return register_cells(extent, most, vector, halves, lead)


@lru_cache(maxsize=1024)
def _join(*cells: tuple[int, ...]) -> _Part:
    """Return the register tiles of letters that are cut into cells, the innermost letter first."""
    within = 1
    for at, sides in enumerate(cells):
        alike = tuple(within * len(list(same)) for _, same in groupby(sides))
        if len(alike) > 1:
            return _Part(alike, prod(map(len, cells[at + 1 :])))
        within *= len(sides)
    return _Part((within,), 1)


def _cut(
    sides: Sequence[int], split: Callable[[int, int], Sequence[int]] | None = None
) -> list[tuple[int, int]]:
    """Return what sides the nearest of some tiles have, and how many of it have each.

    A band's tile is split into those of the nearer band, as large as these are if not told how.
    """
    *tiles, whole = sides
    found = {whole: 1}
    for band, most in reversed(list(enumerate(tiles, start=2))):
        finer: dict[int, int] = {}
        for side, count in found.items():
            many, rest = divmod(side, most)
            parts = [(most, many), (rest, 1)]
            if split is not None:
                parts = [(part, 1) for part in split(band, side)]
            for part, times in parts:
                if part and times:
                    finer[part] = finer.get(part, 0) + count * times
        found = finer
    return list(found.items())
