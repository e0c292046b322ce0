"""Bounds of loops: which of them matter, how many trips they leave, and which are always whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.kernels.programs.program import Compute, Guard, Hold, Loop, Node, Start

Ranges = Mapping[str, tuple[int, int]]
"""The first and the last value of each name of a loop around."""


@dataclass(frozen=True, slots=True)
class Trips:
    """How many trips a loop has.

    Parameters
    ----------
    most
        No more than these.
    exact
        Whether it always has as many.
    """

    most: int
    exact: bool


def without_needless_bounds(loop: Loop, ranges: Ranges) -> Loop:
    """Return a loop without bounds that others imply.

    Examples
    --------
    >>> tile, x = Affine.letter("tile"), Affine.letter("x")
    >>> loop = Loop("x", (tile,), (tile + 16, Affine.number(64)), (None,))
    >>> [str(one) for one in without_needless_bounds(loop, {"tile": (0, 48)}).high]
    ['tile+16']
    """
    low, high = list(dict.fromkeys(loop.low)), list(dict.fromkeys(loop.high))
    for one in tuple(low):
        if any(_least_difference(other, one, ranges) >= 0 for other in low if other != one):
            low.remove(one)
    for one in tuple(high):
        if any(_least_difference(one, other, ranges) >= 0 for other in high if other != one):
            high.remove(one)
    return replace(loop, low=tuple(low), high=tuple(high))


def _least_difference(one: Affine, other: Affine, ranges: Ranges) -> int:
    """Return a bound from below of a difference."""
    if one.divisor == 1 and other.divisor == 1:
        return (one - other).interval(ranges)[0]
    if one.terms == other.terms and one.divisor == other.divisor:
        return (one.offset - other.offset) // one.divisor
    return one.interval(ranges)[0] - other.interval(ranges)[1]


def count_trips(loop: Loop, ranges: Ranges) -> Trips:
    """Return how many trips a loop has at most, and whether always.

    Examples
    --------
    >>> tile = Affine.letter("tile")
    >>> loop = Loop("x", (tile,), (tile + 16, Affine.number(50)), (None,))
    >>> count_trips(loop, {"tile": (0, 48)})
    Trips(most=16, exact=False)
    """
    lengths = [-_least_difference(low, high, ranges) for low in loop.low for high in loop.high]
    most = max(0, -(-min(lengths) // loop.step))
    if len(lengths) > 1:
        return Trips(most, exact=False)
    least = _least_difference(loop.high[0], loop.low[0], ranges)
    exact = max(0, -(-least // loop.step)) == most and not loop.pace.letters
    return Trips(most, exact)


def range_of(loop: Loop, ranges: Ranges) -> tuple[int, int]:
    """Return the first and the last value that the name of a loop takes anywhere.

    Examples
    --------
    >>> range_of(Loop("tile", (Affine.number(0),), (Affine.number(50),), (None,), step=16), {})
    (0, 48)
    """
    lows = [low.interval(ranges) for low in loop.low]
    first, latest = max(low for low, _ in lows), max(high for _, high in lows)
    last = min(high.interval(ranges)[1] for high in loop.high) - 1
    if first == latest and last >= first and not loop.pace.letters:
        last -= (last - first) % loop.step
    return first, max(first, last)


def tiles_within(loop: Loop, tiles: Mapping[str, Loop]) -> Mapping[str, Loop]:
    """Return `Scope.tiles` within a loop, given those around it.

    Examples
    --------
    >>> tile, zero, end = Affine.letter("tile"), Affine.number(0), Affine.number(50)
    >>> inner = Loop("x", (tile,), (tile + 16, end), (None,))
    >>> list(tiles_within(Loop("tile", (zero,), (end,), (inner,), step=16), {}))
    ['tile']
    """
    if len(loop.body) != 1 or not isinstance(loop.body[0], Loop):
        return {}
    bounds = {letter for one in (*loop.low, *loop.high) for letter in one.letters}
    found = {name: one for name, one in tiles.items() if name not in bounds}
    return {**found, loop.name: loop} if loop.step > 1 else found


def block_of(loop: Loop, ranges: Ranges) -> tuple[list[Loop], Loop | None]:
    """Return loops that are written out one within another, and the vector loop within them.

    There is none unless the bounds of those written out depend on what is around all of them alone.
    """
    chain, ranges = [loop], dict(ranges)
    ranges[loop.name] = range_of(loop, ranges)
    node: Any = loop
    while len(node.body) == 1 and isinstance(node.body[0], Loop):
        node = without_needless_bounds(node.body[0], ranges)
        names = {one.name for one in chain}
        if node.kind == "vector":
            plain = all(isinstance(part, Compute | Start) for part in node.body)
            return chain, node if plain else None
        if any(letter in names for one in (*node.low, *node.high) for letter in one.letters):
            return chain, None
        if node.kind != "unrolled":
            return chain, None
        ranges[node.name] = range_of(node, ranges)
        chain.append(node)
    return chain, None


def summed_names(stage: Stage, hold: Hold) -> frozenset[str]:
    """Return the names of loops of a hold that no letter of the output depends on.

    Loops over tiles of a letter belong to the letter: its first bound is where they stand. What
    bounds it further, such as tiles of another letter in a triangle, is no tile of its own.
    """
    loops = list(_loops(hold.body))
    names = set(stage.output)
    while True:
        begins = {loop.low[0].plain for loop in loops if loop.name in names}
        tiles = begins.difference(stage.letters)  # a letter bounds another one in a triangle
        more = {loop.name for loop in loops if loop.name in tiles} - names
        if not more:
            return frozenset(loop.name for loop in loops) - names
        names |= more


def _loops(body: Sequence[Node]) -> Iterator[Loop]:
    for node in body:
        if isinstance(node, Loop):
            yield node
        if isinstance(node, Loop | Guard):
            yield from _loops(node.body)


def outer_bounds(loop: Loop, inner: frozenset[str]) -> Loop:
    """Return a loop of a hold with those bounds alone that depend on no loop within the hold.

    Raises
    ------
    SpecError
        If none are left.
    """
    low = tuple(one for one in loop.low if not inner.intersection(one.letters))
    high = tuple(one for one in loop.high if not inner.intersection(one.letters))
    if not low or not high:
        raise SpecError(
            f"the loop {loop.name} of a Hold needs bounds that do not depend on "
            f"{', '.join(sorted(inner))}"
        )
    return replace(loop, low=low, high=high)


def check_written_out(loop: Loop, ranges: Ranges, most: int) -> int:
    """Return how many trips of a loop are written out.

    Raises
    ------
    SpecError
        If it may have more than so many.
    """
    found = count_trips(loop, ranges).most
    if found > most:
        raise SpecError(
            f"the loop {loop.name} is written out, but has up to {found} trips; {most} at most are"
        )
    return found
