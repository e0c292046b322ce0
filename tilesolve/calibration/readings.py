"""Readings of a figure: what repeats of its probe found, and whether that is a measurement.

What is zero, below it, beyond the bounds of the figure or spread over its repeats is none: it is
measured again, and refused if it stays so. Then the default holds, and the machine says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import inf, isfinite, nan
from statistics import median
from typing import Any

from tilesolve.kernels.progress import Progress
from tilesolve.machine.costs import Costs
from tilesolve.machine.level import Source
from tilesolve.machine.model import Machine

MOST_SPREAD = 0.2
"""How far the repeats of a figure may lie apart, as a share of it; one that spreads by more is no
measurement. See ``docs/decisions/031-calibration.md``."""

RETRIES = 2
"""Times that a figure is measured again that was refused."""

LEAST_VALUES = 5
"""Values at least that have to agree."""

QUIET_SHARE = 0.92
"""Share of its best pace that a core has while nobody disturbs it."""

VALUES_PER_OUTLIER = 9
"""Of so many values one may be too low."""

_BOUNDS = {known.name: (known.metadata["least"], known.metadata["most"]) for known in fields(Costs)}


@dataclass(frozen=True, slots=True)
class Reading:
    """What repeats of a probe found.

    Parameters
    ----------
    figure
        A figure of `[sources]`, such as ``"costs.pack_cycles"`` or ``"memory.part"``.
    values
        One of each repeat.

    Examples
    --------
    >>> found = Reading("costs.pack_cycles", (2.0, 2.1, 9.0, 2.1, 2.2, 7.0, 2.1))
    >>> found.value, round(found.spread, 2), found.fault
    (2.1, 0.1, '')
    """

    figure: str
    values: tuple[float, ...]

    @property
    def agreeing(self) -> tuple[float, ...]:
        """The fastest third of the values: what else runs makes others larger.

        What is the difference of two times can be disturbed to be too low: of nine values one may
        be left out for others that lie closer together.
        """
        found = sorted(self.values)
        count = min(len(found), max(LEAST_VALUES, len(found) // 3))
        begins = range(min(len(found) // VALUES_PER_OUTLIER, len(found) - count) + 1)
        choices = (tuple(found[first : first + count]) for first in begins)
        return min(choices, key=lambda some: some[-1] - some[0] if some else 0.0)

    @property
    def value(self) -> float:
        """The median of those that agree; not a number without any."""
        return median(self.agreeing) if self.values else nan

    @property
    def spread(self) -> float:
        """How far these lie apart, as a share of the value."""
        found = self.agreeing or (0.0,)
        return (found[-1] - found[0]) / self.value if self.value > 0 else 0.0

    @property
    def fault(self) -> str:
        """Why it is no measurement; empty if it is one."""
        name = self.figure.removeprefix("costs.")
        least, most = _BOUNDS.get(name, (0.0, float("inf")))
        if len(self.values) < LEAST_VALUES:
            return "was disturbed all the time"
        if not all(map(isfinite, self.values)) or self.value <= 0:
            return f"was {self.value:.3g}"
        if not least <= self.value <= most:
            return f"was {self.value:.3g}, which cannot be"
        if self.spread > MOST_SPREAD:
            return f"spread by {self.spread:.0%}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, with what is wrong with it."""
        names = ("figure", "value", "spread", "fault")
        return {name: getattr(self, name) for name in names} | {"values": list(self.values)}


def take_readings(
    probes: Mapping[str, Callable[[], float]],
    repeats: int,
    pace: Callable[[], float],
    progress: Progress,
    seconds: float = inf,
) -> tuple[Reading, ...]:
    """Return a reading of every figure; those that are no measurement are repeated again.

    Repeats go over all probes in turn, so that a disturbance does not fall on one of them alone.

    Parameters
    ----------
    probes
        What measures each figure.
    repeats
        Of each probe.
    pace
        Returns how fast something else is that never changes but for disturbances. It is called
        around each measurement; one beside which it was slower than at its best does not count.
    progress
        Called before each measurement.
    seconds
        After these no repeat begins, but for the fewest that can agree.

    Examples
    --------
    >>> steady, silent = (lambda: 1.0), (lambda share, what: None)
    >>> [found] = take_readings({"memory.part": lambda: 8e-9}, 5, steady, silent)
    >>> found.value
    8e-09
    """
    taken: dict[str, list[tuple[float, float]]] = {figure: [] for figure in probes}
    best = before = pace()
    readings: dict[str, Reading] = {}
    end = time.monotonic() + seconds
    for turn in range(RETRIES + 1):
        missing = [figure for figure in probes if figure not in readings or readings[figure].fault]
        for repeat in range(repeats):
            if time.monotonic() > end and (turn or repeat >= LEAST_VALUES):
                break
            for figure in missing:
                progress(1.0, figure.replace("costs.", "").replace("_", " "))
                value, after = probes[figure](), pace()
                taken[figure].append((min(before, after), value))
                best, before = max(best, after), after
        for figure, found in taken.items():
            quiet = tuple(value for speed, value in found if speed >= QUIET_SHARE * best)
            readings[figure] = Reading(figure, quiet)
    return tuple(readings[figure] for figure in probes)


def keep_readings(machine: Machine, readings: Iterable[Reading]) -> tuple[Machine, tuple[str, ...]]:
    """Return a machine with the figures that were measured, and notes on the others.

    Examples
    --------
    >>> base = Machine.load("i7-6700k")
    >>> machine, notes = keep_readings(base, [Reading("costs.pack_cycles", (2.1,) * 5)])
    >>> machine.costs.pack_cycles, machine.source("costs.pack_cycles"), notes
    (2.1, 'measured', ())
    """
    costs, levels = machine.costs, list(machine.levels)
    sources: dict[str, Source] = {}
    notes = []
    for one in readings:
        owner, _, name = one.figure.partition(".")
        sources[one.figure] = "refused" if one.fault else "measured"
        if one.fault:
            what = one.figure.removeprefix("costs.").replace("_", " ")
            notes.append(f"{what} {one.fault}: it is not kept.")
        elif owner == "costs":
            costs = replace(costs, **{name: one.value})
        else:
            known: dict[str, Any] = {name: one.value}
            levels = [replace(x, **known) if x.name == owner else x for x in levels]
    kept = machine.replace(
        costs=costs,
        levels=tuple(levels),
        sources=tuple((dict(machine.sources) | sources).items()),
    )
    return kept, tuple(notes)
