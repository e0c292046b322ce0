"""Sums that neighbouring points compute in step: what several of them read is loaded once.

The taps of a window read pixels that those of the next window read, too. Where the sums of several
points are computed one after another, each pixel is loaded for each of them, or all stay in
registers. Computed in step, from pixel to pixel, each is loaded once and used at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.scans import Scan
from tilesolve.contractions.statements.terms import Apply, Read, Reduce, Term

Point = Mapping[str, int]
"""How far a point stands from the first one of a block, by letter."""


@dataclass(frozen=True, slots=True)
class SteppedSum:
    """A sum of addends, each of which reads one array where other points read it.

    Parameters
    ----------
    begin
        What is added before; None if there is nothing.
    addends, sums
        What is added, and the sum with each of them.
    reads
        The read of each addend.
    """

    begin: Term | None
    addends: tuple[Term, ...]
    sums: tuple[Term, ...]
    reads: tuple[Read, ...]

    def order(self, points: Sequence[Mapping[str, int]]) -> list[tuple[int, int]] | None:
        """Return the points and addends in the order of what is read; None if there is none.

        Each point adds its addends in their own order.

        Parameters
        ----------
        points
            How far each stands from the first one, by letter.

        Examples
        --------
        >>> from tilesolve.contractions.statements.parse import parse_stages
        >>> (stage,) = parse_stages("o[x] = A[x] * w[0] + A[x+1] * w[1] + A[x+2] * w[2]")
        >>> find_stepped_sum(stage.term, "x").order([{"x": 0}, {"x": 1}])
        [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)]
        """
        for begin in (_is_fixed, _stays):
            found = list(self._list_places(points, begin))
            if all(sorted(places) == places for places in found):
                steps = [
                    (place, at, number)
                    for at, places in enumerate(found)
                    for number, place in enumerate(places)
                ]
                return [(at, number) for _, at, number in sorted(steps)]
        return None

    def _list_places(
        self, points: Sequence[Mapping[str, int]], begin: Callable[[Affine, Point], bool]
    ) -> Iterator[list[tuple[int, ...]]]:
        """Yield where each point reads, with some axes first."""
        for point in points:
            yield [tuple(moved(read, point, begin)) for read in self.reads]

    def places(self, point: Mapping[str, int]) -> frozenset[tuple[int, ...]]:
        """Return which elements a point reads.

        Examples
        --------
        >>> from tilesolve.contractions.statements.parse import parse_stages
        >>> (stage,) = parse_stages("o[x] = A[2*x] * w[0] + A[2*x+1] * w[1] + A[2*x+2] * w[2]")
        >>> found = find_stepped_sum(stage.term, "x")
        >>> found.places({}) & found.places({"x": 1})
        frozenset({(2,)})
        """
        return frozenset(tuple(moved(read, point)) for read in self.reads)


def find_stepped_sum(term: Term, letters: Collection[str]) -> SteppedSum | None:
    """Return the sum within a term whose addends read what those of other points along letters do.

    It ends where an addend reads something else along them, or more than one point. None if there
    is no such sum.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> (stage,) = parse_stages("o[x] = max(b[0] + A[x] * w[0] + A[x+1] * w[1] + R[x], 0)")
    >>> found = find_stepped_sum(stage.term, "x")
    >>> print(found.begin, "and", *found.addends)
    b[0] and A[x] * w[0] A[x+1] * w[1]
    """
    chains = [list(_chain(one)) for one in term.all if _is_sum(one)]
    chain = max(chains, key=len, default=[])
    begin: Term | None = None
    addends, sums, reads = list[Term](), list[Term](), list[Read]()
    for whole, addend in reversed(chain):
        moving = [one for one in addend.reads if any(x in one.letters for x in letters)]
        if not moving and not addends:
            begin = whole
            continue
        loops = any(isinstance(one, Reduce | Scan) for one in addend.all)
        if loops or len(moving) != 1 or (reads and not _alike(moving[0], reads[0])):
            break
        addends.append(addend)
        sums.append(whole)
        reads.append(moving[0])
    if len(addends) < 2 or any(not _alike(one, one) for one in reads):
        return None
    return SteppedSum(begin, tuple(addends), tuple(sums), tuple(reads))


def _is_sum(term: Term) -> bool:
    return isinstance(term, Apply) and term.name == "add"


def _chain(term: Term) -> Iterator[tuple[Term, Term]]:
    """Yield the sums within a sum that its first argument is, with what each adds last."""
    while isinstance(term, Apply) and _is_sum(term):
        yield term, term.arguments[1]
        term = term.arguments[0]
    yield term, term


def read_key(read: Read, point: Mapping[str, int]) -> Hashable:
    """Return what reads at points have in common that are of one element; None if not known."""
    plain = read.plain
    if plain is None or any(one.divisor > 1 for one in plain):
        return None
    return read.array, tuple(one.terms for one in plain), tuple(moved(read, point))


def _alike(one: Read, other: Read) -> bool:
    """Return whether reads of an array differ in offsets alone, all of them known beforehand."""
    if one.array != other.array or one.plain is None or other.plain is None:
        return False
    pairs = zip(one.plain, other.plain, strict=True)
    return all(a.terms == b.terms and a.divisor == b.divisor == 1 for a, b in pairs)


def moved(
    read: Read, point: Point, begin: Callable[[Affine, Point], bool] | None = None
) -> Iterator[int]:
    """Yield how far a read at a point lies from where letters stand, along each axis.

    Some axes begin: what lies along them has weights of its own.
    """
    begin = begin or _is_fixed
    for one in sorted(read.plain or (), key=lambda one: not begin(one, point)):
        yield one.offset + sum(factor * point.get(x, 0) for factor, x in one.terms)


def _is_fixed(position: Affine, _: Point) -> bool:
    """Return whether an axis has no letters."""
    return not position.letters


def _stays(position: Affine, point: Point) -> bool:
    """Return whether an axis is the same for all points of a block."""
    return not any(x in point for x in position.letters)
