"""What a tiling is searched for: the problem over classes, the stores, and least tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilesolve.machine.costs import DEFAULT_COSTS
from tilesolve.machine.microkernel import Microkernel
from tilesolve.model.access import Access, accesses_of
from tilesolve.model.fused import Fused
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import copies_of
from tilesolve.model.nest import CopyKind, Output

Choice = tuple[str | None, ...]
"""For each cache the loops around its tile, innermost first; None: no tile of its own there."""


@dataclass(frozen=True, slots=True)
class RuledOut:
    """Choices that were not solved, and what shows that they take too long.

    Parameters
    ----------
    choices
        Which they are.
    seconds
        What none of their tiles take less than.
    level
        The number of the cache around whose tile all have the same loops: a program of what these
        loops decide takes so long. 0 for the program of one choice. None where all choices take as
        long: no loop runs.
    loops
        Those loops, or the choice whose program it is.
    sizes, multipliers
        Of the program, as pairs: by weak duality they prove the seconds. None where the program is
        not convex, so that a solver is to be believed.
    """

    choices: tuple[Choice, ...]
    seconds: float
    level: int | None
    loops: Choice
    sizes: tuple[tuple[str, float], ...] = ()
    multipliers: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """All that a program depends on but its choice of innermost loops.

    Parameters
    ----------
    fused
        The problem over classes.
    places
        The register file and the caches.
    microkernel
        MR, NR and the costs of calls and packing.
    rate
        Flop/s of the arithmetic.
    frequency
        Hz, which turns the microkernel's cycles into seconds.
    packed
        For each operand the cache that its packed copy lives in; None: read in place.
    output
        How C is written.
    lines
        Least iterations of each index in the outermost tile, so that a box of letters can cover
        whole lines of every tensor (section 5.4).
    runs
        Least iterations in every tile, so that it writes long runs of C.
    even
        For indices that stand for several letters, tiles that cut all of them into equal boxes.
    kinds
        For each operand the kind of its copy; if empty, all copies are micro-panels.
    scattered
        Whether C is written across rows, which do not lie side by side in it.
    overlap
        Share of the time of other levels that shows beside the slowest one's.
    """

    fused: Fused
    places: tuple[LevelView, ...]
    microkernel: Microkernel
    rate: float
    frequency: float
    packed: tuple[str | None, ...]
    output: Output
    lines: tuple[tuple[str, int], ...] = ()
    runs: tuple[tuple[str, int], ...] = ()
    even: tuple[tuple[str, tuple[int, ...]], ...] = ()
    kinds: tuple[CopyKind, ...] = ()
    scattered: bool = False
    overlap: float = DEFAULT_COSTS.level_overlap
    levels: int = field(init=False, repr=False, compare=False)
    """Number of caches, which is the number of tiles to solve for."""
    _least: tuple[Mapping[str, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", len(self.places) - 1)
        sizes, kernel = self.fused.problem.sizes, self.microkernel
        sides = {self.fused.rows: kernel.rows, self.fused.columns: kernel.columns}
        runs, lines = dict(self.runs), dict(self.lines)
        found = [{i: sides.get(i, 1) for i in sizes}]
        found += [{i: max(n, runs.get(i, 1)) for i, n in found[0].items()}] * self.levels
        found[-1] = {i: max(n, lines.get(i, 1)) for i, n in found[-1].items()}
        least = tuple({i: min(n, sizes[i]) for i, n in one.items()} for one in found)
        object.__setattr__(self, "_least", least)

    def accesses_at(self, level: int) -> tuple[Access, ...]:
        """Return what a level's tile holds, output first: micro-panels, or arrays as they lie.

        Level 0 is the register file, 1 the nearest cache. Sums of halves, and their micro-panels,
        are float32.
        """
        problem = self.fused.problem
        found = list(accesses_of(problem))
        if found[0].element != problem.sum_itemsize:
            found[0] = replace(found[0], element=problem.sum_itemsize)
        names = [place.name for place in self.places]
        for number, holds, layout, place in copies_of(problem, self.packed, self.kinds):
            near = place is not None and level <= names.index(place)
            if layout == "prepared" or (layout == "panels" and near):
                found[number] = holds
        return tuple(found)

    def smallest(self, index: str, level: int = 0) -> int:
        """Return the least tile of an index: the register tile's side, or that of a level."""
        return self._least[level][index]
