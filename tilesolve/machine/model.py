"""The machine that plans are made for: levels that hold and move bytes, vector units, costs.

A `Machine` is a value. It is measured by ``tilesolve calibrate``, detected, written by hand
as TOML, or shipped with the package; `Machine.load` finds the one in force.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self

from tilesolve.constants import policy
from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import MachineError
from tilesolve.contractions.half_precision import summed_dtype
from tilesolve.kernels.dtypes import real_of
from tilesolve.kernels.microkernel_costs import Catalogue
from tilesolve.machine.costs import COST_NAMES, DEFAULT_COSTS, Costs, measured_costs
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.detect import detect
from tilesolve.machine.fields import check_fields
from tilesolve.machine.file import known_figures, read_toml, write_toml
from tilesolve.machine.level import Level, Peak, Source, assumed_figures
from tilesolve.machine.places import calibrated_text, check_machine, machine_file, named_text
from tilesolve.machine.summary import list_figures
from tilesolve.system.checks import check_threads
from tilesolve.system.files import read_setting, warn_once


@dataclass(frozen=True, slots=True)
class Machine:
    """A memory hierarchy and the vector units it feeds.

    Parameters
    ----------
    name
        A short name; `Machine.load` finds shipped machines by it.
    levels
        Nearest first, memory last.
    cores
        Cores that threads may use.
    threads_per_core
        Hardware threads of a core.
    frequency
        Hz, which turns costs in cycles into seconds.
    vector_bits, vector_registers
        Widest vector and how many such registers there are.
    fma_latency, fma_rate
        Cycles until an FMA's result can be used, and FMAs started per cycle.
    peaks
        Measured or published arithmetic rates.
    fingerprint
        Of the CPU that the figures belong to; empty for a machine written by hand.
    sources
        Where each figure comes from: pairs such as ``("L1.bandwidth", "measured")``.
    catalogues
        Measured microkernels, by dtype; the register tiles of the others are documented defaults.
    costs
        Of packing, reading in place, page visits and the like. Figures of a catalogue count before
        them.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> [level.name for level in machine.levels]
    ['L1', 'L2', 'L3', 'memory']
    >>> machine.peak("float64")
    67200000000.0
    """

    name: str
    levels: tuple[Level, ...]
    cores: int
    frequency: float
    vector_bits: int
    vector_registers: int
    fma_latency: int
    fma_rate: float
    peaks: tuple[Peak, ...]
    fingerprint: str = ""
    sources: tuple[tuple[str, Source], ...] = ()
    catalogues: tuple[Catalogue, ...] = ()
    costs: Costs = DEFAULT_COSTS
    threads_per_core: int = 1

    def __post_init__(self) -> None:
        check_fields({field.name: getattr(self, field.name) for field in fields(self)})
        known = known_figures(self.levels)  # none of levels that are gone
        sources = tuple(one for one in self.sources if one[0] in known)
        object.__setattr__(self, "sources", sources)

    def __repr__(self) -> str:
        return f"<Machine {str(self).splitlines()[0]}>"

    def __str__(self) -> str:
        cores = (self.cores, self.frequency, self.vector_bits)
        return "\n".join(list_figures(self.name, cores, self.levels, self.source))

    @property
    def caches(self) -> tuple[Level, ...]:
        """The levels that can be full: all but memory."""
        return self.levels[:-1]

    @property
    def memory(self) -> Level:
        """The last level."""
        return self.levels[-1]

    @property
    def first_cache(self) -> Level | None:
        """The cache that microkernels read from; None where there is none."""
        return self.caches[0] if self.caches else None

    @property
    def second_cache(self) -> Level | None:
        """The cache that packed copies are streamed from; None where there is none."""
        return self.caches[1] if len(self.caches) > 1 else None

    @property
    def third_cache(self) -> Level | None:
        """The cache behind the second one; None where there is none."""
        return self.caches[2] if len(self.caches) > 2 else None

    @property
    def last_cache(self) -> Level | None:
        """The cache before memory; None where there is none."""
        return self.caches[-1] if self.caches else None

    @property
    def last_cache_bytes(self) -> int:
        """Bytes of the last cache that plans may count on.

        A virtual machine may name all of a large cache and have few of its cores, so each core
        counts for `Costs.last_cache_bytes_per_core` at most.
        """
        if not self.caches:
            return 0
        last = self.caches[-1]
        return min(last.capacity or 0, int(self.costs.last_cache_bytes_per_core) * last.shared_by)

    def level(self, name: str) -> Level:
        """Return the level of that name; a `MachineError` lists the names there are.

        Examples
        --------
        >>> Machine.load("i7-6700k").level("L2").capacity
        262144
        """
        for level in self.levels:
            if isinstance(name, str) and level.name == name:
                return level
        raise MachineError(
            f"machine {self.name!r} has no level {name!r}; it has "
            + ", ".join(level.name for level in self.levels)
        )

    def busy_cores(self, threads: int) -> int:
        """Return how many cores so many threads keep busy: those beyond the cores take turns.

        Examples
        --------
        >>> [Machine.load("i7-6700k").busy_cores(threads) for threads in (1, 4, 64)]
        [1, 4, 4]
        """
        return min(check_threads(threads), self.cores)

    def bandwidth(self, level: Level, threads: int) -> float:
        """Return the bytes per second that so many threads together move at a level.

        Where that was not measured, each core has at a cache the rate of one alone, and all of them
        together have at memory the rate of one.

        Examples
        --------
        >>> machine = Machine.load("i7-6700k")
        >>> [machine.bandwidth(machine.level(name), 4) / 1e9 for name in ("L3", "memory")]
        [215.04, 26.88]
        """
        check_kind(level, Level, "level", "a Level", MachineError)
        busy, most = self.busy_cores(threads), level.bandwidth_all
        if most is None and level.capacity is None:
            most = level.bandwidth
        each = busy * level.bandwidth
        return each if busy == 1 or most is None else min(each, most)

    def peak(self, dtype: str, threads: int = 1) -> float:
        """Return the best measured flop/s of a dtype over all vector widths.

        A complex multiply-add is four real ones, so a complex dtype runs at its part's rate. Halves
        are multiplied as float32.

        Parameters
        ----------
        dtype
            Of all tensors.
        threads
            Those that compute together, each on a core as long as there are any.

        Examples
        --------
        >>> Machine.load("i7-6700k").peak("complex64")
        134400000000.0
        """
        real = real_of(summed_dtype(str(dtype)))
        rates = [peak.flops for peak in self.peaks if peak.dtype == real]
        if not rates:
            raise MachineError(
                f"machine {self.name!r} has no arithmetic peak for dtype {dtype!s:.80}"
            )
        return max(rates) * self.busy_cores(threads)

    def avoids_aliased_stores(self, dtype: str) -> bool:
        """Return whether C had better go through the caches where its lines have 4 KiB aliasing.

        Examples
        --------
        >>> Machine.load("i7-6700k").avoids_aliased_stores("float64")
        False
        """
        return self.cost("aliased_store_slowdown", dtype) >= policy.ALIASED_STORE_LIMIT

    def prefetches_next_rows(self, dtype: str) -> bool:
        """Return whether tiles prefetch C's next rows before non-temporal stores of their own.

        Examples
        --------
        >>> Machine.load("i7-6700k").prefetches_next_rows("float64")
        True
        """
        return self.cost("prefetch_gain_ratio", dtype) <= policy.PREFETCH_GAIN_LIMIT

    def cost(self, name: str, dtype: str) -> float:
        """Return a cost as it was measured for a dtype, or else what `costs` says.

        Examples
        --------
        >>> Machine.load("i7-6700k").cost("aliased_store_slowdown", "float64")
        1.0
        """
        if not isinstance(name, str) or name not in COST_NAMES:
            raise MachineError(f"there is no cost of the name {name!r:.80}")
        found = self.catalogue(dtype)
        usual: float = getattr(self.costs, name)
        known = measured_costs((found,), name) if found else {}
        return known.get(summed_dtype(str(dtype)), usual)

    def catalogue(self, dtype: str) -> Catalogue | None:
        """Return the measured microkernels of a dtype; None if ``tilesolve kernels`` has not run.

        Examples
        --------
        >>> Machine.load("i7-6700k").catalogue("float64") is None
        True
        """
        wanted = (summed_dtype(str(dtype)), self.vector_bits, self.vector_registers)
        for found in self.catalogues:
            if (found.dtype, found.bits, found.registers) == wanted:
                return found
        return None

    def source(self, figure: str) -> Source:
        """Return where a figure comes from.

        That is what `sources` says; else ``"given"``, but for a cost ``"measured"`` if a
        catalogue has it and ``"assumed"`` if it is the default.

        Examples
        --------
        >>> machine = Machine.load("i7-6700k")
        >>> machine.source("L1.bandwidth"), machine.source("costs.pack_cycles")
        ('published', 'assumed')
        """
        check_kind(figure, str, "figure", "text", MachineError)
        kind, _, name = figure.partition(".")
        if kind == "costs" and name in COST_NAMES:
            if measured_costs(self.catalogues, name):
                return "measured"
            usual = getattr(self.costs, name) == getattr(DEFAULT_COSTS, name)
            return dict(self.sources).get(figure, "assumed" if usual else "given")
        usual_source: Source = "assumed" if figure in assumed_figures(self.levels) else "given"
        return dict(self.sources).get(figure, usual_source)

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401 - the fields' own types
        """Return a copy with some fields changed.

        Examples
        --------
        >>> Machine.load("i7-6700k").replace(cores=2).cores
        2
        """
        if unknown := changes.keys() - type(self).__dataclass_fields__:
            raise MachineError(f"nothing of a machine is called {', '.join(sorted(unknown))}")
        return replace(self, **changes)

    def to_toml(self) -> str:
        """Return the machine as TOML; `from_toml` reads it back to an equal value.

        Examples
        --------
        >>> machine = Machine.load("e5-2680v4")
        >>> Machine.from_toml(machine.to_toml()) == machine
        True
        """
        return write_toml({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_toml(cls, text: str, *, origin: str = "machine file") -> Self:
        """Read a machine from TOML.

        Parameters
        ----------
        text
            The TOML document.
        origin
            The name of the document in errors, such as its path.

        Raises
        ------
        MachineError
            If the text is no TOML, an entry is missing or unknown, or a figure is impossible.

        Examples
        --------
        >>> Machine.from_toml("format = 2", origin="mine.toml")
        Traceback (most recent call last):
        tilesolve.contractions.errors.MachineError: mine.toml: format is 2, this version reads 1
        """
        check_kind(text, str, "text", "a TOML document", MachineError)
        check_kind(origin, str, "origin", "text", MachineError)
        values = read_toml(text, origin)
        try:
            return cls(**values)
        except MachineError as error:
            raise MachineError(f"{origin}: {error}") from None

    @classmethod
    def detect(cls) -> Self:
        """Return this computer as sysfs and cpuid describe it; bandwidths are assumed.

        A figure that is reported as 0 or not at all is unknown and takes a documented default,
        which `source` then calls ``"assumed"``.

        Examples
        --------
        >>> Machine.detect().source("memory.bandwidth")
        'assumed'
        """
        return cls(**detect())

    @classmethod
    def load(cls, machine: Machine | str | os.PathLike[str] | None = None) -> Machine:
        """Find a machine: the argument, ``TILESOLVE_MACHINE``, this CPU's file, detection.

        A calibrated file that is damaged, or of another CPU, is warned of once and not used.

        Parameters
        ----------
        machine
            A machine (returned as it is), a shipped name, a path, or None. A text that is a
            shipped name means that machine; write ``./name`` for a file called so.

        Examples
        --------
        >>> Machine.load("e5-2680v4").vector_bits
        256
        """
        found = cls.find(machine)
        if found.problem:
            warn_once(f"ignored until 'tilesolve calibrate' has run: {found.problem}")
        return found.machine

    @classmethod
    def find(cls, machine: Machine | str | os.PathLike[str] | None = None) -> Found:
        """Find a machine as `load` does and say why it is in force, without that warning.

        Examples
        --------
        >>> Machine.find("e5-2680v4").why
        'argument'
        """
        if isinstance(machine, Machine):
            return Found(machine, "argument")
        if machine is not None:
            check_machine(machine)
            return Found(_read_machine(*named_text(machine)), "argument")
        if wanted := read_setting("TILESOLVE_MACHINE"):
            return Found(_read_machine(*named_text(wanted)), "TILESOLVE_MACHINE")
        try:
            calibrated = cls.calibrated()
        except MachineError as error:
            return Found(cls.detect(), "detection", str(error))
        if calibrated is None:
            return Found(cls.detect(), "detection")
        return Found(calibrated, "calibrated file")

    @classmethod
    def calibrated(cls) -> Machine | None:
        """Return the machine that ``tilesolve calibrate`` wrote for this CPU; None if it did not.

        Raises
        ------
        MachineError
            If the file is damaged, was measured on another CPU, or somebody else could have
            written it.

        Examples
        --------
        >>> from unittest.mock import patch
        >>> with patch.dict("os.environ", TILESOLVE_CONFIG_DIR="/nonexistent"):
        ...     print(Machine.calibrated())
        None
        """
        text = calibrated_text()
        if text is None:
            return None
        path = machine_file()
        found = _read_machine(text, str(path))
        if found.fingerprint != detect_cpu().fingerprint:
            raise MachineError(f"{path}: measured on another CPU")
        return found


class Found(NamedTuple):
    """A machine, why it is in force, and what is wrong with a file that is not used for it."""

    machine: Machine
    why: Literal["argument", "TILESOLVE_MACHINE", "calibrated file", "detection"]
    problem: str = ""


@lru_cache(maxsize=16)
def _read_machine(text: str, origin: str) -> Machine:
    """Return the machine of a file's text, which is read once."""
    return Machine.from_toml(text, origin=origin)
