"""Parts of a machine: levels of its memory hierarchy, arithmetic peaks, and checks of both."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Literal, Self

from tilesolve.contractions.argument_kinds import check_factor, check_kinds
from tilesolve.contractions.errors import MachineError

Source = Literal["measured", "detected", "published", "assumed", "given", "refused"]
"""Where a figure comes from, as ``tilesolve doctor`` shows it. What is refused was measured, but no
measurement: its default holds."""

LOWEST_RATE, HIGHEST_RATE = 1.0, 1e18
"""Bounds of bytes, flops or cycles in a second: beyond them, no solver can take the numbers."""

MAX_CACHES = 6
"""Caches at most: each multiplies the choices of planning."""

_RATES = ("bandwidth", "read", "stream", "bandwidth_all")
"""Fields of a level in bytes per second."""

ASSUMED = ("ahead", "fetched")
"""Fields of a level that nothing measures."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the memory hierarchy, as one core sees it.

    Parameters
    ----------
    name
        ``"L1"``, ``"L2"``, …; the last one is ``"memory"``.
    capacity
        Bytes it holds; None for memory, which holds everything.
    bandwidth
        Bytes per second that one core moves between this level and the nearer one,
        loads and stores counted alike (section 6.2 of the paper).
    line
        Bytes of a cache line.
    ways
        Associativity; None where it is unknown or full.
    shared_by
        Cores that share it.
    inclusive
        False for a victim cache, whose capacity adds to the nearer level's (section 5.5).
    effective
        Fraction of the capacity up to which the level still serves at its bandwidth.
    read, stream
        Bytes per second of a read-only sweep, and of non-temporal stores; None if not measured.
    bandwidth_all
        Bytes per second that all cores together move; None if not measured.
    latency
        Seconds that a load waits for a line of this level; None if not known. It orders variants by
        their working sets, and is no part of a plan's price.
    start
        Seconds that a run of lines side by side takes beyond the time of its lines; None if
        not known. Where hardware prefetches, its first line waits.
    part
        Seconds that a run of C takes beyond its bytes at `stream`, where it begins and ends amid
        lines and its end lines are completed later; None if not measured.
    ahead, fetched
        Lines up to which hardware prefetches ahead, and lines that it fetches for an access.

    Examples
    --------
    >>> Level("L1", 32768, 1e11, ways=8).usable
    32768
    """

    name: str
    capacity: int | None
    bandwidth: float
    line: int = 64
    ways: int | None = None
    shared_by: int = 1
    inclusive: bool = True
    effective: float = 1.0
    read: float | None = None
    stream: float | None = None
    bandwidth_all: float | None = None
    latency: float | None = None
    start: float | None = None
    part: float | None = None
    ahead: int = 20
    fetched: int = 2

    def __post_init__(self) -> None:
        where = f"level {self.name!r}"
        check_name(where, "name", self.name)
        check_rate(where, "bandwidth", self.bandwidth)
        for field in _RATES[1:]:
            if getattr(self, field) is not None:
                check_rate(where, field, getattr(self, field))
        for field in ("capacity", "ways"):
            if getattr(self, field) is not None:
                check_count(where, field, getattr(self, field))
        for field in ("latency", "start", "part"):
            if getattr(self, field) is not None:
                check_positive(where, field, getattr(self, field))
        for field in ("line", "shared_by", "ahead", "fetched"):
            check_count(where, field, getattr(self, field))
        if type(self.inclusive) is not bool:
            raise MachineError(f"{where}: inclusive must be true or false, got {self.inclusive!r}")
        check_positive(where, "effective", self.effective)
        if self.effective > 1:
            raise MachineError(f"{where}: effective must lie in (0, 1], got {self.effective!r}")
        if self.usable is not None and self.usable < self.line:
            raise MachineError(
                f"{where}: the part of the capacity that serves must hold a line of {self.line} "
                f"bytes, got {self.usable}"
            )

    @property
    def usable(self) -> int | None:
        """Bytes that a working set may take here: the effective share of the capacity."""
        return None if self.capacity is None else int(self.capacity * self.effective)

    def scale_rates(self, factor: float) -> Self:
        """Return the level with all its bandwidths multiplied, and what a part of a line costs.

        Examples
        --------
        >>> level = Level("L1", 32768, 1e11, read=2e11).scale_rates(0.5)
        >>> level.bandwidth, level.read, level.stream
        (50000000000.0, 100000000000.0, None)
        """
        check_factor(factor, f"factor of level {self.name!r}", MachineError)
        rates = {name: getattr(self, name) for name in _RATES}
        scaled = {name: rate and rate * factor for name, rate in rates.items()}
        return replace(self, **scaled, part=self.part and self.part / factor)


def assumed_figures(levels: Sequence[Level]) -> frozenset[str]:
    """Return the names of what nothing measures, where it has the default.

    Examples
    --------
    >>> sorted(assumed_figures((Level("L1", 32768, 1e11, ahead=8),)))
    ['L1.fetched']
    """
    usual = {field.name: field.default for field in fields(Level) if field.name in ASSUMED}
    return frozenset(
        f"{level.name}.{name}"
        for level in levels
        for name, default in usual.items()
        if getattr(level, name) == default
    )


@dataclass(frozen=True, slots=True)
class Peak:
    """Arithmetic rate of one dtype at one vector width, in flop/s (an FMA is two).

    Parameters
    ----------
    dtype
        A real dtype such as ``"float64"``.
    bits
        The vector width.
    flops, flops_all
        The rate of one core, and of all of them together; None if not measured.

    Examples
    --------
    >>> Peak("float64", 256, 67.2e9).flops
    67200000000.0
    """

    dtype: str
    bits: int
    flops: float
    flops_all: float | None = None

    def __post_init__(self) -> None:
        where = f"peak of {self.dtype!r} at {self.bits!r} bits"
        check_name(where, "dtype", self.dtype)
        check_count(where, "bits", self.bits)
        check_rate(where, "flops", self.flops)
        if self.flops_all is not None:
            check_rate(where, "flops_all", self.flops_all)


def check_name(where: str, field: str, value: object, *, empty: bool = False) -> None:
    """Refuse what is no text, or has characters that would steer a terminal.

    Examples
    --------
    >>> check_name("level 5", "name", 5)
    Traceback (most recent call last):
    tilesolve.contractions.errors.MachineError: level 5: name must be text to be printed, got 5
    """
    if not (isinstance(value, str) and value.isprintable() and (value or empty)):
        raise MachineError(f"{where}: {field} must be text to be printed, got {value!r}")


def check_positive(where: str, field: str, value: object) -> None:
    """Refuse what is not a finite number above zero.

    Examples
    --------
    >>> check_positive("level 'L1'", "bandwidth", 0.0)
    Traceback (most recent call last):
    tilesolve.contractions.errors.MachineError: level 'L1': bandwidth must be positive, got 0.0
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value <= sys.float_info.max):  # type: ignore[operator]
        raise MachineError(f"{where}: {field} must be positive, got {value!r}")


def check_rate(where: str, field: str, value: float) -> None:
    """Refuse a rate that nothing has.

    Examples
    --------
    >>> check_rate("level 'L1'", "bandwidth", 1e-9)
    Traceback (most recent call last):
    tilesolve.contractions.errors.MachineError: level 'L1': bandwidth must lie within 1 and 1e+18 \
a second, got 1e-09
    """
    check_positive(where, field, value)
    if not LOWEST_RATE <= value <= HIGHEST_RATE:
        raise MachineError(
            f"{where}: {field} must lie within {LOWEST_RATE:g} and {HIGHEST_RATE:g} a second, "
            f"got {value!r}"
        )


def check_count(where: str, field: str, value: object) -> None:
    """Refuse what is no integer of at least 1 that 64 bits hold."""
    if type(value) is not int or value < 1:
        raise MachineError(f"{where}: {field} must be a positive integer, got {value!r}")
    if value >= 2**63:
        raise MachineError(f"{where}: {field} must be less than 2**63")


def check_levels(where: str, levels: tuple[Level, ...]) -> None:
    """Refuse levels out of order, or too many; an L2 smaller than L1 is possible (section 5.5).

    Examples
    --------
    >>> check_levels("machine 'm'", (Level("L1", 32768, 1e11),))
    Traceback (most recent call last):
    tilesolve.contractions.errors.MachineError: machine 'm': the last level must be 'memory', \
without a capacity
    """
    check_kinds(levels, Level, f"{where}: levels", "levels", MachineError)
    names = [level.name for level in levels]
    if not levels or names[-1] != "memory" or levels[-1].capacity is not None:
        raise MachineError(f"{where}: the last level must be 'memory', without a capacity")
    if len(levels) > MAX_CACHES + 1:
        raise MachineError(
            f"{where}: there may be {MAX_CACHES} caches at most, got {len(levels) - 1}"
        )
    if len(set(names)) < len(names):
        raise MachineError(f"{where}: two levels have the same name in {names}")
    for near, far in pairwise(levels):
        if near.capacity is None:
            raise MachineError(f"{where}: {near.name} has no capacity but is not the last")
        if far.bandwidth > near.bandwidth:
            raise MachineError(
                f"{where}: {far.name} ({far.bandwidth:.4g} bytes/s) is faster than the "
                f"nearer {near.name} ({near.bandwidth:.4g} bytes/s)"
            )
    numbers = [int(found[1]) for name in names if (found := re.fullmatch(r"L(\d{1,3})", name))]
    if numbers != sorted(numbers):
        raise MachineError(f"{where}: the levels must go outwards, got {', '.join(names)}")
