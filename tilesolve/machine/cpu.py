"""What the kernel and cpuid report about this computer's processor.

sysfs and procfs are read first, cpuid (through py-cpuinfo, which takes a second) only where one of
them says nothing. A figure that is 0, absent or no number is unknown, as on many virtual machines,
and is None here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

SYS = Path("/sys")
PROC = Path("/proc")

# Flags that decide which code can run. Others come and go with the version of the operating system,
# whose update must not make a calibrated file foreign.
_INSTRUCTIONS = re.compile(r"s?sse|avx|fma|f16c|amx|asimd|neon|sve|vsx")

# Features of every CPU of an architecture, listed or not.
_BASELINE = {"x86_64": "sse2", "amd64": "sse2", "aarch64": "asimd", "arm64": "asimd"}


@dataclass(frozen=True, slots=True)
class DetectedCache:
    """A data cache as reported; None is unknown."""

    level: int
    size: int | None = None
    line: int | None = None
    ways: int | None = None
    shared_by: int | None = None


@dataclass(frozen=True, slots=True)
class DetectedCpu:
    """A CPU as reported.

    Parameters
    ----------
    model, vendor, family
        Its name, its maker, and the maker's number of the design (0 if there is none).
    features
        Instruction-set flags, sorted.
    caches
        Data and unified caches of one core, nearest first.
    cores
        Cores in force: those this process may run on, two hardware threads of one core counted
        once, and no more than a control group's share of time pays for.
    package_cores
        Cores that share the memory controller; None if unknown.
    frequency
        Hz; None if unknown.
    threads_per_core
        Hardware threads of a core; None if unknown.

    Examples
    --------
    >>> model = "Maker(R) Quick 7 CPU @ 3.00GHz"
    >>> here = DetectedCpu(model, "Maker", 6, ("sse2",), (), 1, None, None)
    >>> here.name, len(here.fingerprint)
    ('maker-quick-7', 12)
    """

    model: str
    vendor: str
    family: int
    features: tuple[str, ...]
    caches: tuple[DetectedCache, ...]
    cores: int
    package_cores: int | None
    frequency: float | None
    threads_per_core: int | None = None

    @property
    def name(self) -> str:
        """The model's name, fit for a file name."""
        plain = re.sub(r"\((r|tm)\)|\bcpu\b|@.*", " ", self.model.lower())
        return "-".join(re.findall(r"[a-z0-9]+", plain)) or "cpu"

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digits that tell this kind of CPU from others, and never vary on one."""
        sizes = [f"L{cache.level}={cache.size}" for cache in self.caches]
        instructions = sorted(filter(_INSTRUCTIONS.match, self.features))
        text = "\n".join([self.model, *instructions, *sizes])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def detect_cpu(root: Path = SYS, proc: Path = PROC) -> DetectedCpu:
    """Return the figures that are known of this CPU.

    `root` and `proc` are where sysfs and procfs are mounted. What a process may use of this
    computer's CPU changes while it runs; the CPU does not, and is read once.
    """
    if (root, proc) != (SYS, PROC):
        return _read_cpu(root, proc)
    return replace(_read_own_cpu(), cores=_cores(root, proc))


@cache
def _read_own_cpu() -> DetectedCpu:
    """Return what is known of this computer's CPU."""
    return _read_cpu(SYS, PROC)


def _read_cpu(root: Path, proc: Path) -> DetectedCpu:
    """Return what is known of a CPU."""
    said = _first_block(proc / "cpuinfo")
    folder = _core_folder(root)
    caches = _caches(folder) if folder else ()
    cpuid = {} if said and caches else _cpuid()
    architecture = platform.machine().lower()
    flags = said.get("flags") or said.get("Features") or " ".join(cpuid.get("flags", ()))
    arm = " ".join(said[key] for key in ("CPU implementer", "CPU part") if key in said)
    model = said.get("model name") or said.get("cpu") or cpuid.get("brand_raw")
    return DetectedCpu(
        model=model or (f"ARM {arm}" if arm else architecture or "unknown"),
        vendor=said.get("vendor_id") or str(cpuid.get("vendor_id_raw", "")),
        family=_number(said.get("cpu family")) or int(cpuid.get("family") or 0),
        features=tuple(sorted((flags or _BASELINE.get(architecture, "")).split())),
        caches=caches or _cpuid_caches(cpuid),
        cores=_cores(root, proc),
        package_cores=_distinct_cores(root, _cpu_list(folder, "core_siblings_list")),
        frequency=_frequency(folder, said, cpuid),
        threads_per_core=len(_cpu_list(folder, "thread_siblings_list")) or None,
    )


def _first_block(path: Path) -> dict[str, str]:
    """Return the fields of the first processor; the others take long to read on a large host."""
    fields: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, colon, value = line.partition(":")
                if not colon:
                    break
                fields[key.strip()] = value.strip()
    except OSError:
        return {}
    return fields


def _read(path: Path) -> str:
    """Return the content of a small kernel file; nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str | None) -> int | None:
    """Return a positive integer; None for 0 and for what is none, which mean unknown."""
    return (int(text) or None) if text and re.fullmatch(r"[0-9]{1,18}", text) else None


def _size(text: str) -> int | None:
    """Return the bytes of a size such as ``32K`` or ``1M``; None if unknown."""
    match = re.fullmatch(r"([0-9]{1,12})\s*([KMG]?)i?B?", text, re.IGNORECASE)
    if match is None:
        return None
    return int(match[1]) * 1024 ** " KMG".index(match[2].upper() or " ") or None


def _cpu_list(folder: Path | None, name: str) -> frozenset[int]:
    """Return the logical CPUs in a list such as ``0-3,8`` beside a core's topology."""
    return _parse_list(_read(folder / "topology" / name)) if folder else frozenset()


def _parse_list(text: str) -> frozenset[int]:
    if not re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", text):
        return frozenset()
    ranges = [part.split("-") for part in text.split(",")]
    return frozenset(n for ends in ranges for n in range(int(ends[0]), int(ends[-1]) + 1))


def _core_folder(root: Path) -> Path | None:
    """Return sysfs's folder of the first core that lists caches: the same one in every run."""
    folders = (root / "devices/system/cpu").glob("cpu[0-9]*/cache")
    return min((f.parent for f in folders), key=lambda f: int(f.name[3:]), default=None)


def _caches(folder: Path) -> tuple[DetectedCache, ...]:
    """Return the data and unified caches that sysfs lists for a core, nearest first."""
    found = {}
    root = folder.parents[3]
    for index in sorted((folder / "cache").glob("index[0-9]*")):
        level = _number(_read(index / "level"))
        if level is None or level > 9 or _read(index / "type") not in ("Data", "Unified"):
            continue
        sharing = _parse_list(_read(index / "shared_cpu_list"))
        found[level] = DetectedCache(
            level,
            _size(_read(index / "size")),
            _number(_read(index / "coherency_line_size")),
            _number(_read(index / "ways_of_associativity")),
            _distinct_cores(root, sharing),
        )
    return tuple(found[level] for level in sorted(found))


def _distinct_cores(root: Path, cpus: Iterable[int]) -> int | None:
    """Count cores among logical CPUs: those that are threads of one core count once."""
    cores = set()
    for number in cpus:
        folder = root / f"devices/system/cpu/cpu{number}"
        cores.add(min(_cpu_list(folder, "thread_siblings_list"), default=number))
    return len(cores) or None


def _frequency(folder: Path | None, said: dict[str, str], cpuid: dict[str, Any]) -> float | None:
    """Return the highest clock in Hz, or the current one where that is all that is known."""
    highest = _number(_read(folder / "cpufreq/cpuinfo_max_freq")) if folder else None
    if highest:
        return highest * 1e3
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", said.get("cpu MHz", "")):
        return float(said["cpu MHz"]) * 1e6 or None
    return float(cpuid.get("hz_advertised", (0,))[0]) or None


def _cores(root: Path, proc: Path) -> int:
    """Return the cores in force."""
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    else:
        allowed = set(range(os.cpu_count() or 1))
    cores = _distinct_cores(root, allowed) or 1
    return max(1, min(cores, int(_quota(root, proc))))


def _quota(root: Path, proc: Path) -> float:
    """Return how many CPUs' worth of time the control groups allow; a huge number if no limit."""
    limits = [1e6]
    for line in _read(proc / "self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "fs/cgroup" / ("cpu" if controllers else "")
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            limits.append(_group_quota(folder))
            if folder == base:
                break
    return min(limits)


def _group_quota(folder: Path) -> float:
    """Return one control group's limit: a file of version 2, or two of version 1."""
    files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    words = _read(folder / "cpu.max").split() or [_read(folder / name) for name in files]
    quota, period = (*map(_number, words), None, None)[:2]  # "max" and -1 are no limit
    return quota / period if quota and period else 1e6


@cache
def _cpuid() -> dict[str, Any]:
    """Ask py-cpuinfo, once per process; nothing where it does not know this platform."""
    import cpuinfo

    try:
        return dict(cpuinfo.get_cpu_info())
    except Exception:  # it raises plain Exception on platforms that it does not know
        return {}


def _cpuid_caches(cpuid: dict[str, Any]) -> tuple[DetectedCache, ...]:
    """Return the caches that py-cpuinfo knows, in bytes or as text."""
    names = ("l1_data_cache_size", "l2_cache_size", "l3_cache_size")
    sizes = [_size(str(cpuid.get(name, "")).replace(" ", "")) for name in names]
    return tuple(DetectedCache(level, size) for level, size in enumerate(sizes, 1) if size)
