"""Trees of loops over classes: what tiles cost, whether they are numbers, arrays or symbols."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.policy import EXACT_ROUNDING
from tilesolve.model.access import Box, Size
from tilesolve.model.compiled_traffic import Form, find_form, is_counting
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import LoopTree, tree_of_bands
from tilesolve.model.price import arithmetic
from tilesolve.model.traffic import Traffic, count_traffic
from tilesolve.model.walk import Rule
from tilesolve.planning.setting import Choice, Setting


def list_bands(setting: Setting, choice: Choice) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the level and the loop order, innermost first, of each band of a choice's nest.

    Inside a call the register tile's sides come before the summed indices, so that it stays
    in registers; inside the nearest tile the rows come first, so that a panel of the columns
    stays while those of the rows pass by.
    """
    fused = setting.fused
    indices = fused.problem.spec.letters
    sides = [i for i in (fused.columns, fused.rows) if i is not None]
    free = [i for i in indices if i not in fused.reduced and i not in sides]
    inner = [i for i in (fused.rows, fused.columns) if i is not None]
    orders = [
        (*sides, *fused.reduced, *free),
        (*inner, *fused.reduced, *free),
        *((*(first or ""), *(i for i in indices if i not in (first or ""))) for first in choice),
    ]
    names = [place.name for place in setting.places] + [setting.places[-1].server]
    return tuple((name, tuple(order)) for name, order in zip(names, orders, strict=True))


def list_boxes(setting: Setting, tiles: Sequence[Box]) -> list[dict[str, Size]]:
    """Return the boxes of all bands: a call's, each level's tile, and the whole problem."""
    sizes = setting.fused.problem.sizes
    nearest = tiles[0] if tiles else sizes
    call = {i: nearest[i] if i in setting.fused.reduced else setting.smallest(i) for i in sizes}
    return [call, *map(dict, tiles), dict(sizes)]


def price_boxes(
    setting: Setting,
    choice: Choice,
    boxes: Sequence[Box],
    rule: Rule = "distance",
    only: Collection[str] | None = None,
) -> dict[str, Size]:
    """Return the seconds of each server and of the arithmetic.

    Parameters
    ----------
    setting, choice
        The problem, the machine, and the loops around each tile.
    boxes
        Those of all bands.
    rule
        When arrays outlive loops: in symbols, by tiles, whose elements are counted, not lines.
    only
        The servers that are asked for, if not all.
    """
    places, found = setting.places, None
    if rule == "distance" and only is None:
        found = _count_compiled(setting, choice, boxes)
    if found is None:
        if rule == "tiles":
            places = tuple(p if p.line == 1 else replace(p, line=1) for p in places)
        found = count_traffic(_tree_of(setting, choice, boxes), places, rule, only=only)
    return _seconds(setting, places, found)


def price_some(
    setting: Setting,
    choice: Choice,
    boxes: Sequence[Box],
    keep: NDArray[np.bool_],
    limit: float,
    overlap: float,
) -> NDArray[np.float64] | None:
    """Return the times of some tilings, one after another; None where Python counts what moves.

    Some that score more than a limit may be left out: they are taken out of `keep`.

    Parameters
    ----------
    setting, choice, boxes
        See `price_boxes`.
    keep
        Which tilings they are.
    limit, overlap
        Seconds, and the share of the time of other levels that counts beside the longest one.
    """
    limits = None
    if limit < np.inf:
        kernel, frequency = setting.microkernel, setting.frequency
        kinds = (None, *(setting.kinds or (None,) * len(setting.packed)))
        cycles = (
            kernel.window_cycles if kind == "windows" else kernel.pack_cycles for kind in kinds
        )
        places = [(one, min(one.bandwidth, one.read or one.bandwidth)) for one in setting.places]
        limits = [
            limit * (1 + EXACT_ROUNDING),
            overlap,
            setting.fused.problem.flops / setting.rate,
            kernel.call_cycles / frequency,
            *(each / frequency for each in cycles),
            *(1 / rate for one, read in places for rate in (one.bandwidth, read)),
        ]
    found = _count_compiled(setting, choice, boxes, keep, limits)
    if found is None:
        return None
    times = np.empty((len(setting.places) + 1, np.count_nonzero(keep)))
    for at, seconds in enumerate(_seconds(setting, setting.places, found).values()):
        times[at] = seconds
    return times


def _seconds(setting: Setting, places: Sequence[LevelView], found: Traffic) -> dict[str, Size]:
    """Return how long what moves takes each server, and the arithmetic."""
    times: dict[str, Size] = {
        place.server: place.seconds(volumes)
        for place, volumes in zip(places, found.volumes, strict=True)
        if volumes
    }
    problem, kernel = setting.fused.problem, setting.microkernel
    return times | {"compute": arithmetic(problem, kernel, setting.rate, setting.frequency, found)}


def _tree_of(setting: Setting, choice: Choice, boxes: Sequence[Box]) -> LoopTree:
    """Return the loops of tilings."""
    bands = list_bands(setting, choice)
    given = setting.packed, setting.output, setting.kinds
    return tree_of_bands(setting.fused.problem, bands, boxes, *given)


def _count_compiled(
    setting: Setting,
    choice: Choice,
    boxes: Sequence[Box],
    keep: NDArray[np.bool_] | None = None,
    limits: Sequence[float] | None = None,
) -> Traffic | None:
    """Return what `count_traffic` does where compiled code counts it, without a tree; else None."""
    if not is_counting() or (form := _form_of(setting, choice)) is None:
        return None
    steps = {i: [1, *(box[i] for box in boxes[:-1])] for i in setting.fused.problem.sizes}
    counted = form.count(steps, keep, limits)
    return counted and Traffic(*counted)


@lru_cache(maxsize=64)
def _form_of(setting: Setting, choice: Choice) -> Form | None:
    """Return what all tilings with some loops have in common; None where Python counts them."""
    boxes = [dict.fromkeys(setting.fused.problem.sizes, 1)] * (setting.levels + 2)
    found = find_form(_tree_of(setting, choice, boxes), setting.places)
    return found and found[0]


def held_bytes(setting: Setting, box: Mapping[str, Size], level: int) -> list[Size]:
    """Return the bytes of each tensor that a level's tile holds, output first."""
    return [one.touched(box, 1) for one in setting.accesses_at(level)]
