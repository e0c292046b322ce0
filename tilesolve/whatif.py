"""Machines that are like another one but for some figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tilesolve.contractions.errors import MachineError
from tilesolve.machine import Machine


def changed(machine: Machine, factors: Mapping[str, float]) -> Machine:
    """Return a machine with some figures multiplied; see `Plan.whatif` for their names.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> changed(machine, {"l3_capacity": 2.0}).level("L3").capacity
    16777216
    """
    levels = {level.name.lower(): level for level in machine.levels}
    peaks = machine.peaks
    for name, factor in factors.items():
        match = re.fullmatch(r"(\w+)_(bandwidth|capacity)", name)
        if name == "compute":
            peaks = tuple(replace(peak, flops=peak.flops * factor) for peak in peaks)
        elif match and match[1] in levels and (match[2], match[1]) != ("capacity", "memory"):
            level = levels[match[1]]
            if match[2] == "bandwidth":
                all_of_it = level.bandwidth_all
                grown = all_of_it * factor if all_of_it is not None else None
                read = None if level.read is None else level.read * factor
                level = replace(
                    level, bandwidth=level.bandwidth * factor, bandwidth_all=grown, read=read
                )
            else:
                level = replace(level, capacity=int((level.capacity or 0) * factor))
            levels[match[1]] = level
        else:
            known = [f"{n}_bandwidth" for n in levels] + [f"{n}_capacity" for n in levels]
            known.remove("memory_capacity")
            raise MachineError(f"unknown figure {name!r}; known are compute, {', '.join(known)}")
    return machine.replace(levels=tuple(levels.values()), peaks=peaks, fingerprint="")
