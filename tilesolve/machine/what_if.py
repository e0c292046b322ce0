"""Machines derived from another one: with other figures, or one core's part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from tilesolve.contractions.argument_kinds import check_factor
from tilesolve.contractions.errors import MachineError
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine


def scale_figures(machine: Machine, factors: Mapping[str, float]) -> Machine:
    """Return a machine with some figures multiplied; see `Plan.whatif` for their names.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> scale_figures(machine, {"l3_capacity": 2.0}).level("L3").capacity
    16777216
    """
    levels = {level.name.lower(): level for level in machine.levels}
    peaks, catalogues = machine.peaks, machine.catalogues
    for name, factor in factors.items():
        check_factor(factor, name, MachineError)
        match = re.fullmatch(r"(\w+)_(bandwidth|capacity)", name)
        if name == "compute":
            peaks = tuple(replace(peak, flops=peak.flops * factor) for peak in peaks)
            catalogues = tuple(catalogue.faster(factor) for catalogue in catalogues)
        elif match and match[1] in levels and (match[2], match[1]) != ("capacity", "memory"):
            level = levels[match[1]]
            if match[2] == "bandwidth":
                level = level.scale_rates(factor)
            else:
                level = replace(level, capacity=int((level.capacity or 0) * factor))
            levels[match[1]] = level
        else:
            known = [f"{n}_bandwidth" for n in levels] + [f"{n}_capacity" for n in levels]
            known.remove("memory_capacity")
            raise MachineError(f"unknown figure {name!r}; known are compute, {', '.join(known)}")
    return machine.replace(
        levels=tuple(levels.values()), peaks=peaks, catalogues=catalogues, fingerprint=""
    )


def divide_machine(machine: Machine, cores: int) -> Machine:
    """Return the part of a machine that one of several cores has, each with data of its own.

    Caches and bandwidths that cores share are divided evenly, as the paper does for batched
    contractions (section 6). Noise of measurements makes no farther level faster than a nearer one.
    If the machine has fewer cores, each of the several has its part of one.

    Examples
    --------
    >>> own = divide_machine(Machine.load("i7-6700k"), 4)
    >>> own.level("L2").capacity, own.level("L3").capacity, own.level("L3").shared_by
    (262144, 2097152, 1)
    """
    if cores == 1:
        return machine
    levels: list[Level] = []
    for level in machine.levels:
        capacity = level.capacity
        if capacity is not None:
            least = ceil(level.line / level.effective) + (level.effective < 1)  # against rounding
            capacity = max(least, capacity // min(cores, level.shared_by))
        # A third of three times a rate may be rounded to more than it.
        rates = [level.bandwidth, machine.bandwidth(level, cores) / cores]
        rates += [nearer.bandwidth for nearer in levels[-1:]]
        own = replace(level.scale_rates(min(rates) / level.bandwidth), bandwidth=min(rates))
        levels.append(replace(own, capacity=capacity, shared_by=1, bandwidth_all=None))
    part = machine.busy_cores(cores) / cores
    return machine.replace(
        levels=tuple(levels),
        cores=1,
        frequency=machine.frequency * part,
        peaks=tuple(replace(peak, flops=peak.flops * part) for peak in machine.peaks),
        fingerprint="",
    )
