"""Runs: pieces of lines side by side, whose first line is what hardware prefetching does not hide.

Were a level to serve runs and lines in ``runs · start + lines · line`` seconds, then with ρ =
line / (start + line), the share that a further line of a run costs of the first one, that is as
much as ``runs · (1 - ρ) + lines · ρ`` first lines. ρ = 0 counts runs alone, as chapter 4 of the
thesis on pipelines does; ρ = 1 lines alone, as where nothing prefetches. By these shares tiles of
nests are found; the price, which decides among them, counts lines, and first ones of far levels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from tilesolve.constants.nests import (
    FAR_LEVELS,
    FOLLOWED_ROWS,
    LATER_CACHED_LINE_SHARE,
    LATER_LINE_SHARE,
)
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.model.access import Axis, Box, Shared, Size
from tilesolve.model.chain import Chain
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import LoopTree
from tilesolve.model.price import LevelPrice
from tilesolve.packing.sizes import PAGE_BYTES


def later_share(level: Level, line_seconds: float) -> float:
    """Return the share ρ of a run's first line that each further one costs at a level.

    Where the level's start is not known, the share is a default.

    Examples
    --------
    >>> later_share(Level("L2", 2**18, 6.4e10, start=3e-9), 1e-9)
    0.25
    """
    if level.start is None:
        return LATER_LINE_SHARE
    return line_seconds / (level.start + line_seconds)


def charge_runs(
    levels: Sequence[LevelPrice], tree: LoopTree, places: Sequence[LevelView], machine: Machine
) -> tuple[LevelPrice, ...]:
    """Return what levels take, with the first lines of runs, which nothing prefetches.

    Those that near caches serve are waited for while others are computed with. Rows of memory that
    a sum walks in turn are followed from their second page on; lines of the first come late.
    """
    chain, found, costs = Chain(tree), list(levels), machine.costs
    if len(levels) < 2 or chain.children:
        return tuple(levels)
    for at in range(max(len(levels) - FAR_LEVELS, 1), len(levels)):
        level, place = levels[at], places[at]
        line = place.line / (place.read or place.bandwidth)
        server = machine.level(level.level)
        share, first_page = later_share(server, line), 0
        if server.usable is not None:
            share = min(share, LATER_CACHED_LINE_SHARE) if server.start else LATER_CACHED_LINE_SHARE
        else:
            first_page = PAGE_BYTES
        late, seconds = costs.late_line_cycles / machine.frequency, level.seconds
        for t, moved in enumerate(level.moved):
            run, several = _run_bytes(chain, t, place.line)
            each = line / share - line
            if several:
                each = max(each, min(float(run), first_page) / place.line * late)
            seconds += float(moved / run) * each
        found[at] = replace(level, seconds=seconds)
    return tuple(found)


def _run_bytes(chain: Chain, number: int, line: int) -> tuple[Size, bool]:
    """Return how long runs of an access are, in whole lines, and whether a sum walks several.

    A run goes on while loops outside of calls move the last axis alone, or the one before where
    all of the last has been walked. Rows that a call of a sum walks in turn are runs of their own,
    and parts of them where they are more than hardware follows.
    """
    access, at = chain.accesses[number], chain.call
    if isinstance(access, Shared) or not access.axes:
        return line, False
    run, element, box, moving = 0.0, access.element, chain.mean_box(at), chain.accesses[0].letters
    summed = {**box, **dict.fromkeys(moving, 1)}  # rows of a sum alone
    steps = [pitch * element for pitch in access.pitches]

    def count_rows(sides: Box) -> float:
        """Return how many rows a box reaches. Elements of a window within a page are one."""
        pairs = zip(access.axes, steps, strict=True)
        return prod(
            float(one.reach(sides))
            for one, step in pairs
            if step >= (PAGE_BYTES if _is_window(one, moving) else line) and not one.computed
        )

    several = summed != dict.fromkeys(box, 1) and count_rows(box) > 1
    if count_rows(summed) > FOLLOWED_ROWS:
        near = (
            float(one.reach(box)) * step
            for one, step in zip(access.axes, steps, strict=True)
            if step < line and not one.computed
        )
        return max((line, *near)), several
    for axis, extent in zip(access.axes[::-1], access.shape[::-1], strict=True):
        along = [letter for _, letter in axis.terms]
        while at < len(chain.loops):
            letter = chain.loops[at][0]
            if letter in access.letters and letter not in along:
                break
            at += 1
        reach = 1.0 if axis.computed else float(axis.reach(chain.mean_box(at)))
        run = reach * element
        # Channels of pixels leave out less than a line.
        if several or (extent - reach) * element >= line:
            break
        element *= extent
    return max(run, line), several


def _is_window(axis: Axis, moving: Collection[str]) -> bool:
    """Return whether elements of the output read several along an axis, most of them again."""
    kinds = {letter in moving for _, letter in axis.terms}
    return kinds == {True, False} or (kinds == {True} and axis.spread > 0)
