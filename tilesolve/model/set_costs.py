"""Costs of a nest by its working sets: by how often they are used again, or by their size alone.

They order variants beside the price, from figures that are found in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilesolve.machine.model import Machine
from tilesolve.model.price import Price, list_levels
from tilesolve.model.working_sets import THREADS, Reuse


def cost_of_reuses(
    reuses: Iterable[Reuse], cost: Price, machine: Machine, threads: int = 1
) -> float:
    """Return seconds: each working set as often as it is used again, and the arithmetic.

    A set crosses at the bandwidth of the level that holds it. Loops over single iterations are a
    call's, which the arithmetic has; threads do not wait for what they share.

    Parameters
    ----------
    reuses
        What `find_reuses` returns.
    cost
        The price of the same nest: its arithmetic, calls and packing.
    machine, threads
        Where, and how many work at once.

    Examples
    --------
    >>> cost = Price((), compute=1e-3, calls=8.0, packed=())
    >>> again = Reuse(1, "n", "L1", count=1000, least=26880, most=26880, level="memory")
    >>> round(cost_of_reuses([again], cost, Machine.load("i7-6700k")), 4)
    0.002
    """
    bandwidths = {place.server: place.bandwidth for place in list_levels(machine, threads)}
    return cost.compute + sum(
        one.count * one.least / bandwidths[one.level]
        for one in reuses
        if one.over not in ("", THREADS)
    )


def fill_levels(
    sets: Iterable[tuple[int, int]], capacities: Sequence[float]
) -> tuple[tuple[int, ...], int]:
    """Return the bytes of working sets that each cache is to hold, and of those that none can.

    Algorithm 2 of PolyDL as its authors run it: least sets first, level by level, the larger one
    of a reuse where it fits beside what is there, else the smaller one. A larger one that fits
    nowhere is memory's; a smaller one that does counts for nothing.

    Parameters
    ----------
    sets
        The least and the most of each reuse; equal pairs count once.
    capacities
        Bytes of each cache, nearest first.

    Examples
    --------
    >>> fill_levels([(20, 260), (40, 900), (50, 5000)], [300, 1000])
    ((300, 950), 5000)
    """
    filled, beyond = [0] * len(capacities), 0
    for least, most in sorted(set(sets)):
        needs_least, needs_most = True, True
        for at, capacity in enumerate(capacities):
            if needs_most and filled[at] + most <= capacity:
                filled[at] += most
                needs_least = needs_most = False
            elif needs_least and filled[at] + least <= capacity:
                filled[at] += least
                needs_least = False
        if needs_most:
            beyond += most
    return tuple(filled), beyond


def cost_of_sets(reuses: Iterable[Reuse], machine: Machine, threads: int = 1) -> float:
    """Return the cost of Eq. 1 of PolyDL: the bytes that levels hold, by latency over bandwidth.

    It has no unit, and is good for an order only. Where `knows_latencies` denies it, the
    latency of every level counts as 1.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> small = Reuse(1, "n", "L1", 31, least=2048, most=4096, level="L1")
    >>> large = Reuse(1, "n", "L1", 31, least=2**26, most=2**27, level="memory")
    >>> cost_of_sets([small], machine) < cost_of_sets([large], machine)
    True
    """
    places = list_levels(machine, threads)
    sets = [(one.least, one.most) for one in reuses]
    filled, beyond = fill_levels(sets, [place.capacity for place in places[1:]])
    known = knows_latencies(machine)
    latencies = [(level.latency or 1.0) if known else 1.0 for level in machine.levels]
    return sum(
        size * latency / place.bandwidth
        for size, latency, place in zip((*filled, beyond), latencies, places, strict=True)
    )


def knows_latencies(machine: Machine) -> bool:
    """Return whether each level of a machine has a latency.

    Examples
    --------
    >>> knows_latencies(Machine.load("i7-6700k"))
    False
    """
    return all(level.latency is not None for level in machine.levels)
