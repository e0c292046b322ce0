"""Readings of a figure: what repeats of its probe found, and whether that is a measurement.

What is zero, below it, beyond the bounds of the figure or spread over its repeats is none: it is
measured again, and refused if it stays so. Then the default holds, and the machine says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
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

LEAST_VALUES = 3
"""Repeats at least that have to agree."""

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
    >>> found = Reading("costs.pack_cycles", (2.0, 2.1, 9.0, 2.2, 7.0))
    >>> found.value, round(found.spread, 2), found.fault
    (2.1, 0.1, '')
    """

    figure: str
    values: tuple[float, ...]

    @property
    def fastest(self) -> tuple[float, ...]:
        """The least values, a third of all or three: what else runs makes others larger."""
        return tuple(sorted(self.values)[: max(LEAST_VALUES, len(self.values) // 3)])

    @property
    def value(self) -> float:
        """The median of the fastest ones."""
        return median(self.fastest)

    @property
    def spread(self) -> float:
        """How far the fastest ones lie apart, as a share of the value."""
        found = self.fastest
        return (found[-1] - found[0]) / self.value if self.value > 0 else 0.0

    @property
    def fault(self) -> str:
        """Why it is no measurement; empty if it is one."""
        name = self.figure.removeprefix("costs.")
        least, most = _BOUNDS.get(name, (0.0, float("inf")))
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
    probes: Mapping[str, Callable[[], float]], repeats: int, progress: Progress
) -> tuple[Reading, ...]:
    """Return a reading of every figure; those that are no measurement are repeated again.

    Repeats go over all probes in turn, so that a disturbance does not fall on one of them alone.

    Examples
    --------
    >>> [found] = take_readings({"memory.part": lambda: 8e-9}, 3, lambda share, what: None)
    >>> found.value
    8e-09
    """
    found = {figure: Reading(figure, ()) for figure in probes}
    for turn in range(RETRIES + 1):
        missing = [figure for figure, one in found.items() if not turn or one.fault]
        for _repeat in range(repeats):
            for figure in missing:
                progress(1.0, figure.replace("costs.", "").replace("_", " "))
                values = (*found[figure].values, probes[figure]())
                found[figure] = Reading(figure, values)
    return tuple(found.values())


def keep_readings(machine: Machine, readings: Iterable[Reading]) -> tuple[Machine, tuple[str, ...]]:
    """Return a machine with the figures that were measured, and notes on the others.

    Examples
    --------
    >>> base = Machine.load("i7-6700k")
    >>> machine, notes = keep_readings(base, [Reading("costs.pack_cycles", (2.0, 2.1, 2.2))])
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
            levels = [
                replace(level, **{name: one.value}) if level.name == owner else level
                for level in levels
            ]
    kept = machine.replace(
        costs=costs,
        levels=tuple(levels),
        sources=tuple((dict(machine.sources) | sources).items()),
    )
    return kept, tuple(notes)
