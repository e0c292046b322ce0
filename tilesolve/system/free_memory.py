"""The memory that a process may still take."""

from __future__ import annotations

import os
import re
from pathlib import Path


def read_free_memory() -> int:
    """Return the bytes that this process may still take: the system's, or its control group's."""
    return min([_system_memory(), *_group_memory()])


def _system_memory() -> int:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return int(re.findall(r"MemAvailable: +([0-9]+) kB", text)[0]) * 1024
    except (OSError, IndexError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_memory() -> list[int]:
    """Return what the control group leaves, by the files of version 2 and of version 1."""
    root = Path("/sys/fs/cgroup")
    files = (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    )
    left = []
    for limit, usage in files:
        try:
            left.append(int((root / limit).read_text()) - int((root / usage).read_text()))
        except (OSError, ValueError):  # no such version, or no limit
            continue
    return [max(0, size) for size in left]
