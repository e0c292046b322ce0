"""Numbers as people read them: counts, bytes, times and bandwidths with their units."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """Return how many there are of something.

    Examples
    --------
    >>> counted(1, "case"), counted(0, "case")
    ('1 case', '0 cases')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def volume(count: float) -> str:
    """Return bytes in three digits and a unit.

    Examples
    --------
    >>> volume(0), volume(1234), volume(2.5e9)
    ('0 B', '1.23 kB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def size(count: int | None) -> str:
    """Return bytes with a binary unit, in four digits or exactly.

    Examples
    --------
    >>> size(32768), size(36700160), size(1000), size(214990848), size(None)
    ('32 KiB', '35 MiB', '1000 B', '205 MiB', 'all')
    """
    if count is None:
        return "all"
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    step = min(max(count.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{count / 1024**step:.4g} {units[step]}"


def duration(seconds: float) -> str:
    """Return a time in three digits and a unit.

    Examples
    --------
    >>> duration(0.0123), duration(2), duration(0)
    ('12.3 ms', '2 s', '0 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0 s"


def rate(bytes_per_second: float | None, frequency: float) -> str:
    """Return a bandwidth per second and per cycle; a dash if there is none.

    Examples
    --------
    >>> rate(81.312e9, 4.2e9)
    '81.31 GB/s (19.36 B/cycle)'
    """
    if bytes_per_second is None:
        return "-"
    return f"{bytes_per_second / 1e9:.4g} GB/s ({bytes_per_second / frequency:.4g} B/cycle)"
