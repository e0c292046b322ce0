"""GPUs that plans are made for: levels that move bytes, multiprocessors and what these hold."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import tomli_w

from tilesolve.contractions.argument_kinds import check_factor
from tilesolve.contractions.device_problem import DeviceProblem
from tilesolve.contractions.errors import MachineError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.level import (
    Level,
    check_count,
    check_levels,
    check_name,
    check_positive,
    check_rate,
)
from tilesolve.machine.places import file_text
from tilesolve.system.files import read_regular

SHIPPED = Path(__file__).parent / "devices"
"""The folder of the devices that come with the package."""

COUNTS = (
    *("capability", "multiprocessors", "warps", "blocks", "registers", "thread_registers"),
    *("block_threads", "shared_block", "register_unit", "warp_unit", "shared_unit"),
)
"""Figures that are positive integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU.

    Parameters
    ----------
    name
        A short name.
    capability, multiprocessors, frequency
        NVIDIA's compute capability, 90 for 9.0; how many there are; Hz.
    levels
        ``shared``, with what one multiprocessor holds, ``L2`` and ``memory``. Bandwidths are of
        the whole device.
    peaks
        Flop/s of the whole device, by arithmetic: a dtype, ``tf32``, or ``fma32`` and ``fma64``
        without tensor cores; ``wgmma_float16`` and so on where four warps multiply together.
    warps, blocks, registers
        That a multiprocessor holds at once.
    thread_registers, block_threads, shared_block, shared_reserved
        What a thread or a block may have at most, and bytes that each block has besides.
    register_unit, warp_unit, shared_unit
        What a warp's registers, a block's warps and its shared memory are rounded up to.
    launch_seconds, latency_seconds
        What starting a kernel takes, and the first load of a block.
    overlap, peak_share
        Share of the time of other levels that shows beside the slowest one's, and what kernels
        reach of the peaks at best.
    host_bandwidth
        Bytes a second between the computer's memory and the device's.
    measured
        Whose bandwidths were measured: names of levels, and ``host``.

    Examples
    --------
    >>> device = Device.load("h100")
    >>> device.multiprocessors, device.level("shared").capacity
    (132, 233472)
    """

    name: str
    capability: int
    multiprocessors: int
    frequency: float
    levels: tuple[Level, ...]
    peaks: tuple[tuple[str, float], ...]
    warps: int
    blocks: int
    registers: int = 65536
    thread_registers: int = 255
    block_threads: int = 1024
    shared_block: int
    shared_reserved: int = 0
    register_unit: int = 256
    warp_unit: int = 4
    shared_unit: int = 128
    launch_seconds: float = 4e-6
    latency_seconds: float = 0.2e-6
    overlap: float = 0.5
    peak_share: float = 0.7
    host_bandwidth: float = 2.5e10
    measured: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"device {self.name!r}"
        check_name(where, "name", self.name)
        for field in COUNTS:
            check_count(where, field, getattr(self, field))
        check_levels(where, self.levels)
        if [level.name for level in self.levels] != ["shared", "L2", "memory"]:
            raise MachineError(f"{where}: the levels are shared, L2 and memory")
        for field in ("frequency", "host_bandwidth"):
            check_rate(where, field, getattr(self, field))
        for kind, rate in self.peaks:
            check_rate(where, f"peak of {kind}", rate)
        for field in ("launch_seconds", "latency_seconds"):
            check_positive(where, field, getattr(self, field))

    def level(self, name: str) -> Level:
        """Return the level of that name."""
        return next(level for level in self.levels if level.name == name)

    def peak(self, arithmetic: str) -> float | None:
        """Return the flop/s that kernels reach of an arithmetic; None where the device has none.

        Examples
        --------
        >>> Device.load("rtx2080ti").peak("bfloat16") is None
        True
        """
        found = dict(self.peaks).get(arithmetic)
        return None if found is None else found * self.peak_share

    @property
    def source(self) -> str:
        """Where its figures come from, as reports say it.

        Examples
        --------
        >>> Device.load("h100").source
        'figures of the device are published or assumed, not measured'
        """
        if not self.measured:
            return "figures of the device are published or assumed, not measured"
        return f"bandwidths of {', '.join(self.measured)} are measured, others published or assumed"

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Self:
        """Return a device that comes with the package, or one of a file.

        Raises
        ------
        MachineError
            If there is no such device, or its file is none.

        Examples
        --------
        >>> Device.load("h300")
        Traceback (most recent call last):
        tilesolve.contractions.errors.MachineError: there is no device 'h300'; there are a100, \
h100, h200, rtx2080ti, xavier
        """
        known = list_devices()
        path = SHIPPED / f"{name}.toml" if name in known else Path(name)
        text = file_text(path, read_regular)
        if text is None:
            raise MachineError(f"there is no device {name!r}; there are {', '.join(known)}")
        return cls.from_toml(text)

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a device from TOML.

        Raises
        ------
        MachineError
            If the text is no such TOML, or a figure is impossible.
        """
        try:
            found = tomllib.loads(text)
            levels = tuple(Level(**{"capacity": None, **one}) for one in found.pop("level"))
            peaks = tuple(found.pop("peak").items())
            measured = tuple(map(str, found.pop("measured", ())))
            return cls(levels=levels, peaks=peaks, measured=measured, **found)
        except (KeyError, TypeError, AttributeError, tomllib.TOMLDecodeError) as error:
            raise MachineError(f"no device file: {error}") from None

    def to_toml(self) -> str:
        """Return the device as TOML; `from_toml` reads it back to an equal value.

        Examples
        --------
        >>> device = Device.load("a100")
        >>> Device.from_toml(device.to_toml()) == device
        True
        """
        found = asdict(self)
        levels = [
            {name: value for name, value in one.items() if value is not None}
            for one in found.pop("levels")
        ]
        peaks = dict(found.pop("peaks"))
        return tomli_w.dumps({**found, "peak": peaks, "level": levels})

    def scale(self, factors: Mapping[str, float]) -> Self:
        """Return the device with some figures multiplied; see `Plan.whatif` for their names.

        Examples
        --------
        >>> Device.load("h100").scale({"l2_capacity": 2}).level("L2").capacity
        104857600
        """
        levels = {level.name.lower(): level for level in self.levels}
        peaks = self.peaks
        known = {f"{name}_bandwidth" for name in levels} | {"l2_capacity", "shared_capacity"}
        for name, factor in factors.items():
            check_factor(factor, name, MachineError)
            level, _, figure = name.partition("_")
            if name == "compute":
                peaks = tuple((kind, rate * factor) for kind, rate in peaks)
            elif name not in known:
                told = ", ".join(sorted(known))
                raise MachineError(f"unknown figure {name!r}; known are compute, {told}")
            elif figure == "bandwidth":
                levels[level] = levels[level].scale_rates(factor)
            else:
                capacity = int((levels[level].capacity or 0) * factor)
                levels[level] = replace(levels[level], capacity=capacity)
        shared = min(self.shared_block, levels["shared"].capacity or 0)
        return replace(self, levels=tuple(levels.values()), peaks=peaks, shared_block=shared)


def list_devices() -> list[str]:
    """Return the names of the devices that come with the package.

    Examples
    --------
    >>> list_devices()
    ['a100', 'h100', 'h200', 'rtx2080ti', 'xavier']
    """
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def find_kind(machine: object, schedule: object, tf32: object) -> type[Problem]:
    """Return what arguments of `plan` pose: a GPU's problem for a device, or what only it takes.

    Examples
    --------
    >>> find_kind("h100", "solved", False).__name__, find_kind(None, "solved", False).__name__
    ('DeviceProblem', 'Problem')
    """
    usual = isinstance(schedule, str) and schedule == "solved" and tf32 is False
    return Problem if usual and find_device(machine) is None else DeviceProblem


def find_device(machine: object) -> Device | None:
    """Return the device that something is or names; None if it is none.

    A file is one of a device if it says a compute capability.

    Examples
    --------
    >>> find_device("h100").name, find_device("i7-6700k")
    ('h100', None)
    """
    if isinstance(machine, Device) or not isinstance(machine, str | os.PathLike):
        return machine if isinstance(machine, Device) else None
    if machine in list_devices():
        return Device.load(machine)
    path = Path(machine)
    text = file_text(path, read_regular) if path.suffix == ".toml" else None
    return Device.from_toml(text) if text and re.search("(?m)^capability *=", text) else None
