"""The movement model in symbols: conditional expressions in extents and tile sizes.

For tiles that fill their levels, what a level takes in is a product of extents and tile sizes,
and which one depends only on which tiles reach across their index (Table 1 of the paper).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from tilesolve.contractions.spec import Spec
from tilesolve.model.access import Access, Axis
from tilesolve.model.walk import walk_loops
from tilesolve.solver.signomials import Signomial


def name_tile(level: int, letter: str, levels: int) -> str:
    """Return the symbol of a tile size; the tile beyond the last level is the extent.

    Examples
    --------
    >>> name_tile(1, "k", 3), name_tile(4, "k", 3)
    ('T1_k', 'N_k')
    """
    return f"T{level}_{letter}" if level <= levels else f"N_{letter}"


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition: a tile reaches across the next one (`whole`), or is less than it.

    Examples
    --------
    >>> print(Guard("T1_k", "N_k", whole=True))
    T1_k = N_k
    """

    inner: str
    outer: str
    whole: bool

    def holds(self, values: Mapping[str, float]) -> bool:
        """Return whether the condition holds for these tile sizes.

        Examples
        --------
        >>> Guard("T1_k", "N_k", whole=False).holds({"T1_k": 4, "N_k": 9})
        True
        """
        return (values[self.inner] >= values[self.outer]) == self.whole

    def __str__(self) -> str:
        return f"{self.inner} {'=' if self.whole else '<'} {self.outer}"


@dataclass(frozen=True, slots=True)
class Formula:
    """Elements of one tensor that one level takes in, case by case.

    Parameters
    ----------
    level
        Number of the level, 1 the nearest.
    tensor
        The tensor's name.
    cases
        Guards and the amount where they all hold; just one case holds for any tiles.

    Examples
    --------
    >>> print(write_formulas("mn-mk-kn", ["k"])[0])
    L1 C: N_m·N_n  if T1_m < N_m
          N_n·T1_m  if T1_m = N_m, T1_n < N_n
          T1_m·T1_n  if T1_m = N_m, T1_n = N_n
    """

    level: int
    tensor: str
    cases: tuple[tuple[tuple[Guard, ...], Signomial], ...]

    def at(self, values: Mapping[str, float]) -> float:
        """Return the amount for tile sizes and extents that fill the levels.

        Examples
        --------
        >>> moved = write_formulas("mn-mk-kn", ["k"])[1]
        >>> sizes = dict.fromkeys(["N_m", "N_n", "N_k"], 100)
        >>> moved.at({**sizes, "T1_m": 10, "T1_n": 10, "T1_k": 10})
        100000.0
        """
        return self.case(values).at(values)

    def case(self, values: Mapping[str, float]) -> Signomial:
        """Return the amount, in symbols, of the case that holds.

        Examples
        --------
        >>> moved = write_formulas("mn-mk-kn", ["k"])[1]
        >>> tiles = {"T1_m": 100, "T1_n": 10, "T1_k": 100}
        >>> print(moved.case({**tiles, "N_m": 100, "N_n": 100, "N_k": 100}))
        T1_k·T1_m
        """
        return next(amount for guards, amount in self.cases if all(g.holds(values) for g in guards))

    def __str__(self) -> str:
        lines = [
            f"{amount}" + (f"  if {', '.join(map(str, guards))}" if guards else "")
            for guards, amount in self.cases
        ]
        return f"L{self.level} {self.tensor}: " + "\n      ".join(lines)


@lru_cache(maxsize=512)
def symbolic_accesses(spec: Spec) -> tuple[Access, ...]:
    """Return what a spec touches, whatever the extents are."""
    return tuple(
        Access(name, tuple(Axis(one.terms) for one in tensor.subscripts), (), 1)
        for name, tensor in zip(spec.names, spec.tensors, strict=True)
    )


@dataclass(frozen=True, slots=True)
class SymbolicLoop:
    """A tiling loop over a letter, from one level's tile to the next.

    Examples
    --------
    >>> print(SymbolicLoop("k", 1, 3).trips)
    T2_k/T1_k
    """

    letter: str
    level: int
    levels: int

    @property
    def inner(self) -> str:
        """Symbol of the tile that each trip covers."""
        return name_tile(self.level, self.letter, self.levels)

    @property
    def outer(self) -> str:
        """Symbol of what all trips cover."""
        return name_tile(self.level + 1, self.letter, self.levels)

    @property
    def trips(self) -> Signomial:
        """The trip count."""
        return Signomial.symbol(self.outer) / Signomial.symbol(self.inner)


def complete_orders(spec: Spec, innermost: Sequence[str]) -> list[str]:
    """Complete each level's loop order (innermost first) with the letters it leaves out.

    Examples
    --------
    >>> complete_orders(Spec.parse("mn-mk-kn"), ["k", "nm"])
    ['kmn', 'nmk']
    """
    return [first + "".join(i for i in spec.letters if i not in first) for first in innermost]


def loops_above(spec: Spec, innermost: Sequence[str], level: int) -> list[SymbolicLoop]:
    """Return the tiling loops outside a level's tile, innermost first.

    Examples
    --------
    >>> [loop.inner for loop in loops_above(Spec.parse("mn-mk-kn"), ["k", "n"], 2)]
    ['T2_n', 'T2_m', 'T2_k']
    """
    full = complete_orders(spec, innermost)
    return [
        SymbolicLoop(letter, at, len(full))
        for at in range(level, len(full) + 1)
        for letter in full[at - 1]
    ]


def write_amounts(
    accesses: Sequence[Access], level: int, loops: Sequence[SymbolicLoop], levels: int
) -> list[Signomial]:
    """Return what a level takes in of each tensor when just these loops run more than once.

    The level's tile fits it and nothing larger does: the walk starts at the tile.

    Examples
    --------
    >>> spec = Spec.parse("mn-mk-kn")
    >>> loops = loops_above(spec, ["k"], 1)
    >>> [str(amount) for amount in write_amounts(symbolic_accesses(spec), 1, loops, 1)]
    ['N_m·N_n', 'N_k·N_m·N_n/T1_n', 'N_k·N_m·N_n/T1_m']
    """
    letters = dict.fromkeys(i for access in accesses for i in access.letters)
    boxes = [{i: Signomial.symbol(name_tile(level, i, levels)) for i in letters}]
    for loop in loops:
        boxes.append({**boxes[-1], loop.letter: Signomial.symbol(loop.outer)})
    sizes = [[access.symbols(box) for box in boxes] for access in accesses]
    steps_of = [(loop.letter, loop.trips) for loop in loops]
    return walk_loops(accesses, steps_of, sizes, lambda inner, _: inner == 0)


def write_formulas(spec: Spec | str, innermost: Sequence[str]) -> tuple[Formula, ...]:
    """Return the conditional expressions of every level and tensor.

    Parameters
    ----------
    spec
        The contraction or convolution.
    innermost
        For each level, nearest first, the order of the tiling loops around its tile, innermost
        first; letters left out follow in the spec's order.

    Examples
    --------
    >>> for expression in write_formulas("mn-mk-kn", ["k"]):
    ...     print(expression)
    L1 C: N_m·N_n  if T1_m < N_m
          N_n·T1_m  if T1_m = N_m, T1_n < N_n
          T1_m·T1_n  if T1_m = N_m, T1_n = N_n
    L1 A: N_k·N_m·N_n/T1_n  if T1_k < N_k
          N_m·N_n·T1_k/T1_n  if T1_k = N_k, T1_m < N_m
          T1_k·T1_m  if T1_k = N_k, T1_m = N_m
    L1 B: N_k·N_m·N_n/T1_m  if T1_k < N_k
          N_n·T1_k  if T1_k = N_k, T1_n < N_n
          T1_k·T1_n  if T1_k = N_k, T1_n = N_n
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    return tuple(
        Formula(level, name, tuple(_cases(spec, t, level, innermost)))
        for level in range(1, len(innermost) + 1)
        for t, name in enumerate(spec.names)
    )


def _cases(
    spec: Spec, t: int, level: int, innermost: Sequence[str]
) -> Iterator[tuple[tuple[Guard, ...], Signomial]]:
    """Yield a tensor's cases: which loop that indexes it is the first to run more than once.

    Loops inside that one which do not index the tensor leave it in place. For an affine
    subscript it also matters whether any of those runs: only a first loop of all finds what
    neighbouring tiles share still there.
    """
    tensor, accesses = spec.tensors[t], symbolic_accesses(spec)
    loops = loops_above(spec, innermost, level)
    levels = len(innermost)
    affine = {i for s in tensor.subscripts if len(s.terms) > 1 for i in s.letters}
    indexing = [at for at, loop in enumerate(loops) if loop.letter in tensor.letters]
    for first in [*indexing, len(loops)]:
        whole = [Guard(loops[at].inner, loops[at].outer, True) for at in indexing if at < first]
        others = [at for at in range(first) if at not in indexing]
        running = loops[first:]
        guards = [*whole, *(Guard(loop.inner, loop.outer, False) for loop in running[:1])]
        if not running or running[0].letter not in affine or not others:
            inner = [loops[at] for at in others]
            yield tuple(guards), write_amounts(accesses, level, (*inner, *running), levels)[t]
            continue
        for still in product([True, False], repeat=len(others)):
            moving = [
                loops[at] for at, whole_one in zip(others, still, strict=True) if not whole_one
            ]
            extra = [
                Guard(loops[at].inner, loops[at].outer, whole_one)
                for at, whole_one in zip(others, still, strict=True)
            ]
            yield (*guards, *extra), write_amounts(accesses, level, (*moving, *running), levels)[t]


def output_stationary_order(spec: Spec) -> str:
    """Return the order of loops, innermost first, that keeps the output in place.

    Summed letters stand innermost, then the output's from last to first: the nest of the
    paper's Table 1.

    Examples
    --------
    >>> output_stationary_order(Spec.parse("ij-ik-kj"))
    'kji'
    """
    kept = spec.output.letters
    return "".join([*(i for i in spec.letters if i not in kept), *reversed(kept)])


def listing(spec: Spec | str, innermost: Sequence[str]) -> str:
    """Return the conditional expressions as text.

    For one level a table with a row for each way in which tiles may reach across their index
    (Table 1 of the paper); for more, the cases of each level and tensor.

    Examples
    --------
    >>> print(listing("ij-ik-kj", ["kji"]).splitlines()[1].split("  ")[0])
    T1_i < N_i, T1_j < N_j, T1_k < N_k
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    found = write_formulas(spec, innermost)
    if len(innermost) > 1:
        return "\n".join(map(str, found))
    order = complete_orders(spec, innermost)[0][::-1]
    rows = [["tiles", *(f"{e.tensor} (elements moved)" for e in found)]]
    for whole in product([False, True], repeat=len(order)):
        guards = [Guard(f"T1_{i}", f"N_{i}", w) for i, w in zip(order, whole, strict=True)]
        sizes = {f"N_{i}": 2.0 for i in order}
        sizes |= {f"T1_{i}": 2.0 if w else 1.0 for i, w in zip(order, whole, strict=True)}
        rows.append([", ".join(map(str, guards)), *(str(e.case(sizes)) for e in found)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
