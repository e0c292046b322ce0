"""What a computer's CPU reports, and what is assumed where it reports nothing.

The ``ASSUMED_`` constants are all there is of assumed figures; a figure that takes one has the
source ``"assumed"``. See ``docs/decisions/031-calibration.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tilesolve.contractions.errors import SettingError
from tilesolve.machine.cpu import PROC, SYS, DetectedCache, DetectedCpu, detect_cpu
from tilesolve.machine.level import Level, Peak, Source
from tilesolve.system.files import read_setting

ASSUMED_LINE_BYTES = 64
"""Bytes of a cache line whose length is unknown."""

ASSUMED_HZ = 3.0e9
"""Hz of a clock that is unknown."""

ASSUMED_L1_BYTES = 32 * 1024
"""Bytes of an L1 of unknown size, the smallest of current servers."""

ASSUMED_CAPACITY_RATIO = 8
"""Capacity of a farther cache of unknown size to that of the nearer one."""

ASSUMED_CACHES = 3
"""Caches of a computer that names none."""

ASSUMED_NEAR_RATES = (0.7, 0.6)
"""Bytes that L1 and L2 move per cycle and per byte of vector width (Table 3 of the paper)."""

ASSUMED_CACHE_RATE = 12.0
"""Bytes per cycle of the farther caches, from the same table."""

ASSUMED_MEMORY_RATE = 6.0
"""Bytes per cycle of memory, from the same table."""

ASSUMED_FMA_CYCLES = 4
"""Cycles from an FMA to the use of its result."""


def default_threads() -> int:
    """Return how many threads share work where none are named: ``TILESOLVE_NUM_THREADS``, or one.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_NUM_THREADS="2"):
    ...     default_threads()
    2
    """
    wanted = read_setting("TILESOLVE_NUM_THREADS")
    if wanted is None:
        return 1
    if not re.fullmatch(r"\s*0*[1-9][0-9]{0,5}\s*", wanted):
        raise SettingError(f"TILESOLVE_NUM_THREADS must be a positive integer, got {wanted!r}")
    return int(wanted)


def detect(root: Path = SYS, proc: Path = PROC) -> dict[str, Any]:
    """Return the arguments of `Machine` that describe this computer.

    Bandwidths, the inclusion of caches, and arithmetic rates are reported nowhere, so they are
    assumed. AMD's cores since family 17h, and Hygon's, have a victim L3; every other cache counts
    as inclusive.

    `root` and `proc` are where sysfs and procfs are mounted.

    Examples
    --------
    >>> dict(detect()["sources"])["L1.bandwidth"]
    'assumed'
    """
    here = detect_cpu(root, proc)
    frequency = here.frequency or ASSUMED_HZ
    vectors = _vectors(here.features)
    bits, registers, rate = vectors or (128, 16, 1.0)
    levels, sources = _levels(here, frequency, bits)
    lanes = {"float64": bits // 64, "float32": bits // 32}
    return {
        "name": here.name,
        "levels": levels,
        "cores": here.cores,
        "threads_per_core": here.threads_per_core or 1,
        "frequency": frequency,
        "vector_bits": bits,
        "vector_registers": registers,
        "fma_latency": ASSUMED_FMA_CYCLES,
        "fma_rate": rate,
        "peaks": tuple(
            Peak(dtype, bits, 2 * rate * width * frequency) for dtype, width in lanes.items()
        ),
        "fingerprint": here.fingerprint,
        "sources": (
            *sources,
            ("cores", "detected"),
            ("threads_per_core", _source(here.threads_per_core)),
            ("frequency", _source(here.frequency)),
            ("vector_bits", _source(vectors)),
            ("vector_registers", _source(vectors)),
            ("fma_latency", "assumed"),
            ("fma_rate", "assumed"),
            ("peak", "assumed"),
        ),
    }


def _source(reported: object) -> Source:
    return "assumed" if reported is None else "detected"


def _vectors(features: Iterable[str]) -> tuple[int, int, float] | None:
    """Return bits, registers and FMAs per cycle of the widest vectors; None if unknown.

    Two FMAs start per cycle; without FMA instructions a multiply and an add make one.
    """
    has = set(features)
    if "avx512f" in has:
        return 512, 32, 2.0
    if {"avx2", "fma"} <= has:
        return 256, 16, 2.0
    if "sse2" in has:
        return 128, 16, 1.0
    if "asimd" in has:
        return 128, 32, 2.0
    return None


def _levels(
    here: DetectedCpu, frequency: float, bits: int
) -> tuple[tuple[Level, ...], list[tuple[str, Source]]]:
    """Return the levels outwards, unknown figures filled in, and the source of each figure."""
    reported = {cache.level: cache for cache in reversed(here.caches)}
    levels: list[Level] = []
    sources: list[tuple[str, Source]] = []
    capacity, speed = 0, float("inf")
    for number in range(1, max(reported, default=ASSUMED_CACHES) + 1):
        cache = reported.get(number, DetectedCache(number))
        capacity = cache.size or max(
            ASSUMED_L1_BYTES * ASSUMED_CAPACITY_RATIO ** (number - 1), 2 * capacity
        )
        near = number <= len(ASSUMED_NEAR_RATES)
        speed = min(
            speed, ASSUMED_NEAR_RATES[number - 1] * bits / 8 if near else ASSUMED_CACHE_RATE
        )
        name = f"L{number}"
        levels.append(
            Level(
                name,
                capacity,
                speed * frequency,
                line=cache.line or ASSUMED_LINE_BYTES,
                ways=cache.ways,
                shared_by=cache.shared_by or (1 if near else here.cores),
                inclusive=not (number == 3 and _has_victim_l3(here)),
            )
        )
        sources += [
            (f"{name}.capacity", _source(cache.size)),
            (f"{name}.line", _source(cache.line)),
            *([(f"{name}.ways", _source(cache.ways))] if cache.ways else []),
            (f"{name}.shared_by", _source(cache.shared_by)),
            (f"{name}.inclusive", "assumed"),
            (f"{name}.bandwidth", "assumed"),
        ]
    memory = Level(
        "memory",
        None,
        min(speed, ASSUMED_MEMORY_RATE) * frequency,
        line=levels[-1].line,
        shared_by=here.package_cores or here.cores,
    )
    sources += [
        ("memory.line", dict(sources)[f"{levels[-1].name}.line"]),
        ("memory.shared_by", _source(here.package_cores)),
        ("memory.bandwidth", "assumed"),
    ]
    return (*levels, memory), sources


def _has_victim_l3(here: DetectedCpu) -> bool:
    return here.vendor in ("AuthenticAMD", "HygonGenuine") and here.family >= 0x17
