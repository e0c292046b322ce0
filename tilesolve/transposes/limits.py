"""What moves need to know of a machine: how much its registers and its caches hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Self

from tilesolve.machine.model import Machine
from tilesolve.packing.sizes import LINE_BYTES
from tilesolve.planning.prefetch import near_third
from tilesolve.system.files import read_setting

SHARED = 0.25
"""Share of a third cache that is near that source and target may take together."""

LASTING = 0.5
"""The same of a last cache that is not, or not known to be."""


@dataclass(frozen=True, slots=True, eq=False)  # as part of a key, looked up by identity
class Limits:
    """What a machine holds of the arrays that are moved.

    Parameters
    ----------
    registers
        Bytes of all vector registers.
    at_once
        Whether a vector is a line.
    near
        Bytes that source and target may have together to be near. A third cache that is much
        faster than memory is near, too; most of it is left to others (measured on a Zen 3 with
        32 MiB, where arrays of 1 to 4 MiB are moved 1.1 to 1.9 times as fast without a buffer,
        those of 8 MiB not).
    last
        Bytes that source and target may have together to stay in the last cache. Beyond a share of
        a third cache that is near, writing past it is faster (measured on a Zen 4 with 32 MiB: 1.1
        to 1.4 times from 5 MiB an array on, with what reads the target afterwards).
    way, ways
        Bytes of a way of the cache that lines are asked to, and how many it has. Lines that are
        whole ways apart share a set. Where ways are unknown, no lines are too many.

    Examples
    --------
    >>> found = Limits.of(Machine.load("i7-6700k"))
    >>> found.registers, found.at_once, found.near, found.way, found.ways
    (512, False, 262144, 65536, 4)
    """

    registers: int
    at_once: bool
    near: int
    last: int
    way: int
    ways: float

    @classmethod
    def of(cls, machine: Machine) -> Self:
        """Return those of a machine, which need not have caches."""
        third = near_third(machine)
        last = int((SHARED if third else LASTING) * machine.last_cache_bytes)
        nearest = machine.caches[:2]
        way, ways = LINE_BYTES, inf
        if nearest and nearest[-1].capacity and nearest[-1].ways:
            way, ways = nearest[-1].capacity // nearest[-1].ways, nearest[-1].ways
        return cls(
            registers=machine.vector_registers * machine.vector_bits // 8,
            at_once=machine.vector_bits == 8 * LINE_BYTES,
            near=max(last if third else 0, *(level.usable or 0 for level in nearest), 0),
            last=last,
            way=way,
            ways=ways,
        )


def in_force() -> Limits:
    """Return those of the machine in force, which is read once for each ``TILESOLVE_MACHINE``.

    Small arrays are moved in less time than it takes to see whether its file has changed.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_MACHINE="i7-6700k"):
    ...     in_force().registers
    512
    """
    return _limits(read_setting("TILESOLVE_MACHINE"))


@cache
def _limits(machine: str | None) -> Limits:
    return Limits.of(Machine.load(machine))
