"""Bytes that every level moves, for one nest or for many of the same loop order at once.

Sizes are numbers, arrays of them, or symbols: the integer repair prices thousands of tilings with
the very code that prices one, and that writes the terms of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilesolve.constants.policy import PACK_CROSSINGS
from tilesolve.model.access import Access, Box, Shared, Size
from tilesolve.model.chain import Chain
from tilesolve.model.compiled_traffic import count_compiled
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import LoopTree
from tilesolve.model.residency import (
    RESIDENCIES,
    AnyResidency,
    Between,
    footprints_at,
    is_filled,
    level_of,
)
from tilesolve.model.walk import Position, Rule, Truth, choose, walk_loops

Evicts = Callable[[Access, Box, LevelView], float]
"""The share of what a box touches of an access that evicts itself from a place."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What a tiling moves.

    Parameters
    ----------
    moved
        For each store the bytes of each tensor that come in: its misses.
    volumes
        The same both ways and with packing.
    packing
        The part of the volumes that packing causes.
    packed
        Elements of each tensor that are copied, repetitions counted.
    relaid
        Those of them that window copies have.
    calls
        Boxes of the first band: calls of the microkernel.
    arrays
        The names of the tensors, in order.

    Examples
    --------
    >>> Traffic(((8.0,),), ((16.0,),), ((0.0,),), (0.0,), 0.0, 1).volumes[0][0]
    16.0
    """

    moved: tuple[tuple[Size, ...], ...]
    volumes: tuple[tuple[Size, ...], ...]
    packing: tuple[tuple[Size, ...], ...]
    packed: tuple[Size, ...]
    relaid: Size
    calls: Size
    arrays: tuple[str, ...] = ()


def count_traffic(
    tree: LoopTree,
    places: Sequence[LevelView],
    rule: Rule = "distance",
    evicts: Evicts | None = None,
    only: Collection[str] | None = None,
) -> Traffic:
    """Return the bytes that a tree moves into each of the stores.

    A packed operand is read from its copy in all stores nearer than the copy's; its own store
    and those beyond see the source, line by line.

    Parameters
    ----------
    tree
        One nest, or many of the same loops.
    places
        The register file and the caches, nearest first.
    rule
        When an array outlives a loop that does not move it: by ``"distance"``, if what comes
        between its uses fits beside it, by ``"listing3"`` of the paper, if everything
        inside the loop fits, or by ``"tiles"``, if it is in the level's tile.
    evicts
        The share of what a box touches of an access that evicts itself from a place; None: nothing
        does.
    only
        The servers of the places that are asked for; the others move nothing.

    Examples
    --------
    Two tilings at once, of 8 and of 16 columns for a call:

    >>> from tilesolve.contractions.problem import Problem
    >>> from tilesolve.model.loop_tree import tree_of_bands
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> boxes = ({"m": 8, "n": np.array([8, 16]), "k": 64}, dict.fromkeys("mnk", 64))
    >>> bands = (("register", ("m", "n", "k")), ("memory", ("m", "n", "k")))
    >>> tree = tree_of_bands(problem, bands, boxes, (None, None), "store")
    >>> found = count_traffic(tree, [LevelView("register", 2048.0, 1, "L1", 1e10)])
    >>> found.moved[0][1].tolist()
    [262144.0, 131072.0]
    """
    if rule == "distance" and evicts is None and only is None:
        counted = count_compiled(tree, places)
        if counted is not None:
            names = tuple(one.array for one in tree.works[0].accesses)
            return Traffic(*counted, names)
    chain = Chain(tree)
    copied = {t: chain.copied(t) for t, (_, one) in chain.buffers.items() if is_filled(one)}
    sizes = {t: n * chain.buffers[t][1].holds.element for t, n in copied.items()}
    moved, volumes, packing = [], [], []
    between: dict[tuple[Any, ...], Between] = {}
    for at, place in enumerate(places):
        if only is not None and place.server not in only:
            moved.append(())
            packing.append(())
            volumes.append(())
            continue
        residency = RESIDENCIES[rule](chain, places, at, between)
        came, written = _come(chain, places, at, residency, rule, evicts)
        extra: list[Size] = [0.0] * len(came)
        for t, size in sizes.items():
            level = level_of(chain, t, places)
            if at == level:
                came[t] = came[t] + choose(residency.holds(t), 0.0, size)
            if at >= level:
                continue
            # The source comes in as it is, the copy goes out and comes in.
            crossings: Size = (2.0 if at == 0 else PACK_CROSSINGS) - 1
            wide = chain.buffers[t][1].holds.element / chain.accesses[t].element
            crossings = 1 + wide * crossings
            if at and (kept := residency.keeps(t)) is not False:
                came[t] = choose(kept, np.maximum(came[t] - size, 0.0), came[t])
                crossings = choose(kept, 1.0, crossings)
            extra[t] = crossings * (size / wide)
        both = list(came)
        for t in (t for t, one in enumerate(chain.accesses) if one.mode != "read"):
            whole = _mean_bytes(chain, t, place.line, near=False)[-1]
            if chain.width > 1 and at:  # sums that come once are halves by then
                once = residency.comes_once(came[t], whole)
                came[t], whole = (choose(once, n / chain.width, n) for n in (came[t], whole))
            # A first write needs no read in registers; past them it does unless it is streamed.
            unread = tree.output == "stream" or (tree.output == "store" and at == 0)
            if not chain.children:
                both[t] = 2 * came[t] - (whole if unread else 0.0)
            elif not (unread and at == 0):
                left = np.minimum(np.maximum(written[t], whole), came[t])
                both[t] = came[t] + left - (whole if unread else 0.0)
        moved.append(tuple(came))
        packing.append(tuple(extra))
        volumes.append(tuple(a + b for a, b in zip(both, extra, strict=True)))
    count = tuple(copied.get(t, 0.0) for t in range(len(chain.accesses)))
    relaid: Size = sum(n for t, n in copied.items() if chain.buffers[t][1].layout == "windows")
    arrays = tuple(one.array for one in chain.accesses)
    sizes_moved = tuple(moved), tuple(volumes), tuple(packing)
    return Traffic(*sizes_moved, count, relaid, chain.calls, arrays)


def _come(
    chain: Chain,
    places: Sequence[LevelView],
    at: int,
    residency: AnyResidency,
    rule: Rule,
    evicts: Evicts | None,
) -> tuple[list[Size], list[Size]]:
    """Return the bytes of each access that a place takes in, and those of them that are written.

    Copies made there are left out. The working set of a copy's own store holds the copy; what comes
    in is the source. One that was prepared is read everywhere.
    """
    if chain.children:
        return _come_in_turn(chain, places, at, residency, rule, evicts)
    came = _come_alone(chain, places, at, residency, evicts)
    pairs = zip(chain.accesses, came, strict=True)
    return came, [0.0 if one.mode == "read" else size for one, size in pairs]


def _come_in_turn(
    chain: Chain,
    places: Sequence[LevelView],
    at: int,
    residency: AnyResidency,
    rule: Rule,
    evicts: Evicts | None,
) -> tuple[list[Size], list[Size]]:
    """Return what `_come` does for works that run one after another."""
    accesses, line = chain.accesses, places[at].line
    mean = [_mean_bytes(chain, t, line, near=False) for t in range(len(accesses))]
    start, written = _start(chain, places, at, residency, rule, evicts)
    came = _walk(chain, accesses, mean, residency.stays if at else _never, start)
    parts = zip(came, written, start, strict=True)
    return came, [size * (part / whole) if part else 0.0 for size, part, whole in parts]


def _come_alone(
    chain: Chain,
    places: Sequence[LevelView],
    at: int,
    residency: AnyResidency,
    evicts: Evicts | None,
) -> list[Size]:
    """Return the bytes of each access that a place takes in for a single work."""
    line, reads, mean = places[at].line, [], []
    for t, access in enumerate(chain.accesses):
        near = at < level_of(chain, t, places)
        reads.append(chain.buffers[t][1].holds if near else access)
        mean.append(_mean_bytes(chain, t, line, near=near))
    stays = residency.stays
    if at:
        if evicts is None:
            came = _walk(chain, reads, mean, stays)
        else:
            alone = [_unless(stays, chain, one, places[at], evicts) for one in reads]
            each = zip(reads, mean, alone, strict=True)
            came = [_walk(chain, [one], [n], own)[0] for one, n, own in each]
        for t, access in enumerate(chain.accesses):
            if isinstance(access, Access) and access.gathered:
                came[t] = _gather(chain, access, places[at])
        return came
    came = _walk(chain, reads[:1], mean[:1], stays)
    came += _walk(chain, reads[1:], mean[1:], residency.passes)
    return came if chain.share == 1 else [size * chain.share for size in came]


def _gather(chain: Chain, access: Access, place: LevelView) -> Size:
    """Return the bytes that come in of what is read at computed positions, in any order.

    A place that holds all of it takes each line in once; another one misses as often as it lacks
    what is asked for next.
    """
    box = chain.mean_box(len(chain.loops))
    asked, once = access.scattered(box, place.line), access.touched(box, place.line)
    again = [trips for letter, trips in chain.loops if letter not in access.letters]
    misses = asked * prod(again) * np.maximum(1 - place.capacity / once, 0.0)
    found: Size = np.maximum(once, misses)
    return found


def _walk(
    chain: Chain,
    reads: Sequence[Access | Shared],
    mean: Sequence[Sequence[Size]],
    stays: Callable[[Position, int], Truth | float],
    start: Sequence[Size] | None = None,
) -> list[Size]:
    """Return the bytes of some accesses that come in over the loops of a chain."""
    return walk_loops(reads, chain.loops, mean, stays, chain.runs, start, chain.last)


def _never(inner: Position, outer: int) -> Truth:
    """Return that no register holds anything from one work to the next."""
    del inner, outer
    return False


def _start(
    chain: Chain,
    places: Sequence[LevelView],
    at: int,
    around: AnyResidency,
    rule: Rule,
    evicts: Evicts | None,
) -> tuple[list[Size], list[Size]]:
    """Return the bytes of each array that works take in which run one after another, and write.

    What an earlier one touched is there for a later one if all that both touch, and those between
    them, fits.
    """
    came: dict[str, Size] = {}
    wrote: dict[str, Size] = {}
    touched: dict[str, Size] = {}
    first: dict[str, int] = {}
    lumps: list[Size] = []
    for number, child in enumerate(chain.children):
        residency = RESIDENCIES[rule](child, places, at)
        lumps.append(residency.touched)
        moved, written = _come(child, places, at, residency, rule, evicts)
        for t, (one, size) in enumerate(zip(child.accesses, moved, strict=True)):
            wrote[one.array] = wrote.get(one.array, 0.0) + written[t]
            own = _mean_bytes(child, t, places[at].line, near=False)[-1]
            if one.array not in came:
                came[one.array], touched[one.array], first[one.array] = size, own, number
                continue
            between = sum(lumps[first[one.array] :])
            there = around.covers(between) if at else False
            more = choose(there, np.maximum(size - touched[one.array], 0.0), size)
            came[one.array] = came[one.array] + more
            touched[one.array] = np.maximum(touched[one.array], own)
    arrays = [one.array for one in chain.accesses]
    return [came[array] for array in arrays], [wrote[array] for array in arrays]


def _unless(
    stays: Callable[[Position, int], Truth],
    chain: Chain,
    access: Access | Shared,
    place: LevelView,
    evicts: Evicts | None,
) -> Callable[[Position, int], Truth | float]:
    """Return what stays of one access although it evicts itself, outside of calls."""
    if evicts is None or isinstance(access, Shared):
        return stays

    def found(inner: Position, outer: int) -> Truth | float:
        if outer < chain.sides:
            return True
        return stays(inner, outer) and 1 - evicts(access, chain.largest_box(int(inner)), place)

    return found


def _mean_bytes(chain: Chain, t: int, line: int, *, near: bool) -> list[Size]:
    return footprints_at(chain, t, line, near=near, largest=False)
