"""The bound of what is kept on disk: what has not been used for longest goes first.

A file's time of modification is when it was last used: readers set it, as many file systems do not
note when a file is read.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tilesolve.contractions.errors import SettingError
from tilesolve.system.files import read_setting, remove_leftovers
from tilesolve.system.units import parse_size

DEFAULT_LIMIT_BYTES = 512 * 1024**2
"""Bytes that may be kept unless ``TILESOLVE_CACHE_LIMIT`` says otherwise."""

KEPT = {"plans": "*.json", "code": "*.o", "functions": "*.o"}
"""Folders of what is kept, and the files in each that count and may go."""

UNSEEN_SHARE = 1 / 64
"""Share of the limit that a process may write until it looks at the folders again."""

_unseen: dict[Path, int] = {}
"""Bytes that this process wrote into a folder since it last looked at all of it."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that is kept.

    `used` is when it was last read or written, in nanoseconds; `size` is in bytes.
    """

    used: int
    path: Path
    size: int


def cache_limit() -> int:
    """Return how many bytes may be kept.

    Raises
    ------
    SettingError
        If ``TILESOLVE_CACHE_LIMIT`` is no size.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_CACHE_LIMIT="2 GiB"):
    ...     cache_limit()
    2147483648
    """
    wanted = read_setting("TILESOLVE_CACHE_LIMIT")
    if wanted is None:
        return DEFAULT_LIMIT_BYTES
    try:
        return parse_size(wanted)
    except ValueError as error:
        raise SettingError(f"TILESOLVE_CACHE_LIMIT must be {error}") from None


def list_kept(root: Path, name: str) -> list[KeptFile]:
    """Return the files of one of the folders of what is kept; a folder that is missing has none."""
    found = []
    for path in (root / name).glob(KEPT[name]):
        with contextlib.suppress(OSError):  # another process has removed it
            status = path.stat()
            found.append(KeptFile(status.st_mtime_ns, path, status.st_size))
    return found


def note_use(path: Path) -> None:
    """Note that a file was used now, so that others go before it."""
    with contextlib.suppress(OSError):  # in a folder that cannot be written nothing goes
        os.utime(path)


def bound_cache(written: Path) -> None:
    """Remove the files that were not used for longest, if a new one makes them too many.

    All folders beside that of the file count; files that killed writers left there are removed. A
    process looks at them when it has written its first file, and then whenever it has written so
    much that it may matter.

    Raises
    ------
    SettingError
        If ``TILESOLVE_CACHE_LIMIT`` is no size.
    """
    root, limit = written.parent.parent, cache_limit()
    slack = int(limit * UNSEEN_SHARE)
    try:
        size = written.stat().st_size
    except OSError:
        return  # another process has removed it
    _unseen[root] = _unseen.get(root, slack) + size
    if _unseen[root] <= slack:
        return
    _unseen[root] = 0
    for name in KEPT:
        remove_leftovers(root / name)
    files = [file for name in KEPT for file in list_kept(root, name)]
    total = sum(file.size for file in files)
    if total <= limit:
        return
    for file in sorted(files, key=lambda file: file.used):
        if total <= limit - slack:
            return
        with contextlib.suppress(OSError):  # another process has removed it
            file.path.unlink()
        total -= file.size
