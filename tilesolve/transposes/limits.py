"""What transposes need to know of a machine: what its registers and caches hold, and its costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Self

from tilesolve.constants import policy
from tilesolve.machine.costs import DEFAULT_COSTS, Costs
from tilesolve.machine.model import Machine
from tilesolve.packing.sizes import LINE_BYTES
from tilesolve.planning.prefetch import third_cache_feeds
from tilesolve.system.files import read_setting


@dataclass(frozen=True, slots=True, eq=False)  # as part of a key, looked up by identity
class Limits:
    """What a machine holds of the arrays that are transposed.

    Parameters
    ----------
    register_bytes
        Bytes of all vector registers.
    stores_whole_lines
        Whether a vector is a line, so that one instruction stores it.
    near_bytes
        Bytes that source and target may have together to stay in a near cache. An L3 that is much
        faster than memory is near, too; most of it is left to others.
    last_cache_bytes
        Bytes that source and target may have together to stay in the last cache. Beyond, the target
        is written by non-temporal stores.
    way_bytes, ways
        Bytes of a way of the cache that lines are prefetched to, and how many it has. Lines that
        are a multiple of a way apart share a set. Where ways are unknown, no lines are too many.
    costs
        Of the machine.

    Examples
    --------
    >>> found = Limits.of(Machine.load("i7-6700k"))
    >>> found.register_bytes, found.stores_whole_lines, found.near_bytes
    (512, False, 262144)
    >>> found.way_bytes, found.ways
    (65536, 4)
    """

    register_bytes: int
    stores_whole_lines: bool
    near_bytes: int
    last_cache_bytes: int
    way_bytes: int
    ways: float
    costs: Costs = DEFAULT_COSTS

    @classmethod
    def of(cls, machine: Machine) -> Self:
        """Return those of a machine, which need not have caches."""
        near_l3 = third_cache_feeds(machine)
        share = policy.TRANSPOSE_NEAR_SHARE if near_l3 else policy.TRANSPOSE_LAST_SHARE
        last_cache_bytes = int(share * machine.last_cache_bytes)
        private = [cache for cache in (machine.first_cache, machine.second_cache) if cache]
        way_bytes, ways = LINE_BYTES, inf
        if private and private[-1].capacity and private[-1].ways:
            way_bytes, ways = private[-1].capacity // private[-1].ways, private[-1].ways
        near_bytes = max((cache.usable or 0 for cache in private), default=0)
        return cls(
            register_bytes=machine.vector_registers * machine.vector_bits // 8,
            stores_whole_lines=machine.vector_bits == 8 * LINE_BYTES,
            near_bytes=max(near_bytes, last_cache_bytes if near_l3 else 0),
            last_cache_bytes=last_cache_bytes,
            way_bytes=way_bytes,
            ways=ways,
            costs=machine.costs,
        )


def limits_in_force() -> Limits:
    """Return those of the machine in force, read once for each ``TILESOLVE_MACHINE``.

    Whether its file has changed is not looked at: that takes longer than a small transpose.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_MACHINE="i7-6700k"):
    ...     limits_in_force().register_bytes
    512
    """
    return _limits(read_setting("TILESOLVE_MACHINE"))


@cache
def _limits(machine: str | None) -> Limits:
    return Limits.of(Machine.load(machine))
