"""The machine at hand: what its CPU reports, and what must be assumed where it says nothing.

What is unknown takes the default that the constants below document; its source is then
``"assumed"``, which ``tilesolve doctor`` shows.
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

LINE = 64
"""Bytes of a cache line whose length is unknown."""

FREQUENCY = 3.0e9
"""Hz of a clock that is unknown."""

L1_CAPACITY = 32 * 1024
"""Bytes of an L1 of unknown size; a farther level has `CAPACITY_RATIO` times more each. These are
the smallest found in current servers: a tile for too small a cache costs less than for too
large a one."""

CAPACITY_RATIO = 8

LEVELS = 3
"""Caches of a computer that names none."""

NEAR_BYTES = (0.7, 0.6)
"""Bytes that L1 and L2 move per cycle and per byte of vector width: Table 3 of the paper, the two
machines' mean."""

CACHE_BYTES = 12.0
"""Bytes per cycle of the farther caches, from the same table."""

MEMORY_BYTES = 6.0
"""Bytes per cycle of memory, from the same table."""

FMA_LATENCY = 4
"""Cycles of an FMA: 4 on most current cores."""


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

    Bandwidths, the inclusion of caches, and arithmetic rates cannot be read anywhere: they are
    assumed. AMD's cores since family 17h, and Hygon's, have a victim L3; every other cache is
    taken as inclusive.

    Parameters
    ----------
    root, proc
        Where sysfs and procfs are mounted.

    Examples
    --------
    >>> dict(detect()["sources"])["L1.bandwidth"]
    'assumed'
    """
    here = detect_cpu(root, proc)
    frequency = here.frequency or FREQUENCY
    vectors = _vectors(here.features)
    bits, registers, rate = vectors or (128, 16, 1.0)
    levels, sources = _levels(here, frequency, bits)
    lanes = {"float64": bits // 64, "float32": bits // 32}
    return {
        "name": here.name,
        "levels": levels,
        "cores": here.cores,
        "frequency": frequency,
        "vector_bits": bits,
        "vector_registers": registers,
        "fma_latency": FMA_LATENCY,
        "fma_rate": rate,
        "peaks": tuple(
            Peak(dtype, bits, 2 * rate * width * frequency) for dtype, width in lanes.items()
        ),
        "fingerprint": here.fingerprint,
        "sources": (
            *sources,
            ("cores", "detected"),
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
    for number in range(1, max(reported, default=LEVELS) + 1):
        cache = reported.get(number, DetectedCache(number))
        capacity = cache.size or max(L1_CAPACITY * CAPACITY_RATIO ** (number - 1), 2 * capacity)
        near = number <= len(NEAR_BYTES)
        speed = min(speed, NEAR_BYTES[number - 1] * bits / 8 if near else CACHE_BYTES)
        name = f"L{number}"
        levels.append(
            Level(
                name,
                capacity,
                speed * frequency,
                line=cache.line or LINE,
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
        min(speed, MEMORY_BYTES) * frequency,
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
