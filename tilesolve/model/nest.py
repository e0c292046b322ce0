"""Loop nests as values: bands of tiling loops around a register tile.

Any strategy may build a `Nest`, and the movement model prices any. Bands stand innermost first;
each has the order of its loops and the box of iterations that they complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.packing.cover import CellSequence

REGISTER = "register"
"""Name of the innermost band: the box that one microkernel call covers."""

Output = Literal["accumulate", "store", "stream"]
"""How C is written: added to what is there, overwritten, or overwritten by non-temporal stores."""


CopyKind = Literal["in place", "micro-panels", "windows", "prepared"]
"""How a call reads an operand: as it lies; from micro-panels that hold each sum of each row; from a
window copy, which holds each element of the tile once; or from micro-panels made before all calls.
"""


@dataclass(frozen=True, slots=True)
class Band:
    """The tiling loops that complete the tile of one level.

    Parameters
    ----------
    level
        The level whose tile is complete after these loops; empty if others of it follow.
    order
        The loops' letters, innermost first.
    box
        The tile: iterations of each letter, as pairs.

    Examples
    --------
    >>> Band("L1", ("k", "m"), (("m", 24), ("k", 256)))["k"]
    256
    """

    level: str
    order: tuple[str, ...]
    box: tuple[tuple[str, int], ...]

    def __getitem__(self, letter: str) -> int:
        return dict(self.box)[letter]


@dataclass(frozen=True, slots=True)
class Nest:
    """Bands of loops from the register tile out to the whole problem.

    Parameters
    ----------
    bands
        Innermost first; the last one's box is the whole problem.
    packed
        For each operand the level in which its copy lives, None if calls make none.
    output
        How C is written.
    kinds
        For each operand the kind of its copy; if empty, all copies are micro-panels.
    scattered
        Whether C is written across the rows of register tiles, which do not lie side by side in it.
    cells
        For letters whose register tiles have chosen sizes, these in order, again and again along
        the extent; the tiles of all bands are whole register tiles then, see `CellSequence`.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> problem = Problem.of("mn-mk-kn", 96)
    >>> nest = Nest.of(problem, [("register", "nmk", 8), ("L1", "kmn", 48), ("memory", "kmn", 96)])
    >>> [band["m"] for band in nest.bands]
    [8, 48, 96]
    """

    bands: tuple[Band, ...]
    packed: tuple[str | None, ...] = ()
    output: Output = "accumulate"
    kinds: tuple[CopyKind, ...] = ()
    scattered: bool = False
    cells: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __repr__(self) -> str:
        bands = (
            f"{band.level} {''.join(band.order)} {' '.join(f'{i}:{n}' for i, n in band.box)}"
            for band in self.bands
        )
        copies = ", ".join(f"{kind} {level or ''}".strip() for kind, level in self._copies())
        return f"<Nest {'; '.join(bands)}; {copies or 'no copies'}; {self.output}>"

    def _copies(self) -> Iterator[tuple[CopyKind, str | None]]:
        """Yield the kind and the level of each operand's copy."""
        for at, level in enumerate(self.packed):
            yield self.kind(at), level

    @classmethod
    def of(
        cls,
        problem: Problem,
        bands: list[tuple[str, str, Mapping[str, int] | int]],
        packed: tuple[str | None, ...] = (),
        output: Output = "accumulate",
    ) -> Nest:
        """Build a nest from (level, order, box) triples; an int is the box's side.

        A box is cut to the extents; letters that an order leaves out come last in it.
        """
        sizes = problem.sizes
        made = []
        for level, order, box in bands:
            letters = (*order, *(letter for letter in sizes if letter not in order))
            side = dict.fromkeys(sizes, box) if isinstance(box, int) else box
            cut = tuple((i, max(1, min(side[i], n))) for i, n in sizes.items())
            made.append(Band(level, letters, cut))
        return cls(tuple(made), packed, output)

    def kind(self, operand: int) -> CopyKind:
        """Return the kind of an operand's copy, given its number from 0 on.

        Examples
        --------
        >>> nest = Nest((), packed=("L2", None))
        >>> nest.kind(0), nest.kind(1)
        ('micro-panels', 'in place')
        """
        if self.kinds:
            return self.kinds[operand]
        return "micro-panels" if self.packed and self.packed[operand] else "in place"

    @property
    def names(self) -> tuple[str, ...]:
        """What the tile of each band is called: parts of a level's tile have numbers.

        Examples
        --------
        >>> bands = [Band(level, (), ()) for level in ("register", "", "", "L1")]
        >>> Nest(tuple(bands)).names
        ('register', 'L1, part 1', 'L1, part 2', 'L1')
        """
        levels = [band.level for band in self.bands]
        found: list[str] = []
        for at, level in enumerate(levels):
            part = next((n for n, before in enumerate(reversed(levels[:at])) if before), at)
            whole = next((later for later in levels[at:] if later), "")
            found.append(level or f"{whole}, part {1 + part}")
        return tuple(found)

    @property
    def sequences(self) -> dict[str, CellSequence]:
        """The cells of letters whose register tiles have chosen sizes."""
        return {
            letter: CellSequence(sizes, tuple(band[letter] for band in self.bands))
            for letter, sizes in self.cells
        }

    def check(self, problem: Problem) -> None:
        """Raise an error unless the bands nest up to the whole problem, and C can be written so.

        Raises
        ------
        SizeError
            If a band has other letters or is smaller than a nearer one, the last one is not the
            whole problem, or tiles are no whole cells.
        PlanError
            If there is no such way of writing C.
        """
        if self.output not in get_args(Output):
            raise PlanError(
                f"the output must be one of {', '.join(get_args(Output))}, got {self.output!r}"
            )
        inner = dict.fromkeys(problem.sizes, 1)
        for band in self.bands:
            if sorted(band.order) != sorted(problem.sizes):
                raise SizeError(
                    f"band {band.level}: its loops are {''.join(band.order)}, the spec's letters "
                    f"{''.join(problem.sizes)}"
                )
            for letter, size in band.box:
                if size < inner[letter]:
                    raise SizeError(
                        f"band {band.level}: the tile of {letter!r} is {size}, less than the "
                        f"nearer level's {inner[letter]}"
                    )
            inner = dict(band.box)
        for letter, extent in problem.sizes.items():
            if inner[letter] != max(1, extent):
                raise SizeError(
                    f"the outermost tile of {letter!r} is {inner[letter]}, its extent {extent}"
                )
        for sequence in self.sequences.values():
            sequence.check()


def tile_counts(sizes: Sequence[Any]) -> list[Any]:
    """Return how many tiles of each size cover a range, each tile cut from the next larger.

    Parameters
    ----------
    sizes
        Tile sizes from the smallest to the whole range; arrays count many nests at once.

    Examples
    --------
    A range of 10 is cut into 6 and 4, these into 4 and 2, and 4:

    >>> tile_counts([4, 6, 10])
    [3, 2, 1]
    """
    segments = [(sizes[-1], 1)]
    counts = [sizes[-1] * 0 + 1]
    for size in reversed(sizes[:-1]):
        parts = [(*divmod(length, size), times) for length, times in segments]
        whole = sum([times * tiles for tiles, _, times in parts])
        segments = [(size, whole), *((rest, times) for _, rest, times in parts)]
        counts.append(sum([times * (length > 0) for length, times in segments]))
    return counts[::-1]
