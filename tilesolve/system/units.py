"""Numbers as people read them: counts, bytes, times and bandwidths with their units."""

from __future__ import annotations

import re


def format_count(count: int, what: str) -> str:
    """Return how many there are of something.

    Examples
    --------
    >>> format_count(1, "case"), format_count(0, "case")
    ('1 case', '0 cases')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def format_volume(count: float) -> str:
    """Return bytes in three digits and a unit.

    Examples
    --------
    >>> format_volume(0), format_volume(1234), format_volume(2.5e9)
    ('0 B', '1.23 kB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_size(count: int | None) -> str:
    """Return bytes with a binary unit, in four digits or exactly.

    Examples
    --------
    >>> [format_size(count) for count in (32768, 36700160, 1000, 214990848, None)]
    ['32 KiB', '35 MiB', '1000 B', '205 MiB', 'all']
    """
    if count is None:
        return "all"
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    step = min(max(count.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{count / 1024**step:.4g} {units[step]}"


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?B)?|B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return how many bytes a text says; letters alone are binary units.

    Raises
    ------
    ValueError
        If it says none.

    Examples
    --------
    >>> parse_size("512 MiB"), parse_size("2G"), parse_size("1.5 kB"), parse_size("100")
    (536870912, 2147483648, 1500, 100)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"a size such as 512 MiB, got {text!r}")
    number, prefix, unit = found.groups()
    base = 1000 if unit and unit.upper() == "B" else 1024
    return int(float(number) * base ** (" KMGT".index(prefix.upper()) if prefix else 0))


def format_duration(seconds: float) -> str:
    """Return a time in three digits and a unit.

    Examples
    --------
    >>> format_duration(0.0123), format_duration(2), format_duration(0)
    ('12.3 ms', '2 s', '0 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9), ("ps", 1e-12)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0 s"


def format_rate(bytes_per_second: float | None, frequency: float) -> str:
    """Return a bandwidth per second and per cycle; a dash if there is none.

    Examples
    --------
    >>> format_rate(81.312e9, 4.2e9)
    '81.31 GB/s (19.36 B/cycle)'
    """
    if bytes_per_second is None:
        return "-"
    return f"{bytes_per_second / 1e9:.4g} GB/s ({bytes_per_second / frequency:.4g} B/cycle)"
