"""The bound of what is kept on disk: what has not been used for longest goes first.

A file's time of modification is when it was last used: readers set it, as many file systems do not
note when a file is read.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilesolve.contractions.errors import SettingError
from tilesolve.system.files import list_entries, read_setting, remove_leftovers
from tilesolve.system.units import parse_size

DEFAULT_LIMIT_BYTES = 512 * 1024**2
"""Bytes that may be kept unless ``TILESOLVE_CACHE_LIMIT`` says otherwise."""

KEPT = {"plans": "*.json", "code": "*.o", "functions": "*.o"}
"""Folders of what is kept, and the files in each that count and may go."""

UNSEEN_SHARE = 1 / 64
"""Share of the limit that processes may write until one of them looks at the folders again."""

JOURNAL = "written"
"""File beside the folders: the size of each file that was written since somebody looked at all."""

_SIZE = struct.Struct("<q")


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
    found, ending = [], KEPT[name].removeprefix("*")
    for entry in list_entries(root / name):
        if entry.name.endswith(ending):
            with contextlib.suppress(OSError):  # another process has removed it
                status = entry.stat()
                found.append(KeptFile(status.st_mtime_ns, Path(entry.path), status.st_size))
    return found


def note_use(path: Path) -> None:
    """Note that a file was used now, so that others go before it."""
    with contextlib.suppress(OSError):  # in a folder that cannot be written nothing goes
        os.utime(path)


def bound_cache(written: Path) -> None:
    """Remove the files that were not used for longest, if a new one makes them too many.

    All folders beside that of the file count; files that killed writers left there are removed, and
    old locks. Somebody looks at them when nobody has yet, and then whenever all processes together
    have written so much that it may matter: there may be many thousands.

    Raises
    ------
    SettingError
        If ``TILESOLVE_CACHE_LIMIT`` is no size.
    """
    root, limit = written.parent.parent, cache_limit()
    slack = int(limit * UNSEEN_SHARE)
    try:
        unseen = _note_written(root / JOURNAL, written.stat().st_size)
    except OSError:
        return  # another process has removed it, or nobody may write
    if unseen is not None and unseen <= slack:
        return
    with contextlib.suppress(OSError):
        os.truncate(root / JOURNAL, 0)
    for name in KEPT:
        remove_leftovers(root / name, locks=True)
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


def _note_written(journal: Path, size: int) -> int | None:
    """Note that a file was written; return the bytes since somebody looked; None if nobody has."""
    is_new = not journal.exists()
    with open(journal, "ab+", opener=partial(os.open, mode=0o600)) as file:
        file.write(_SIZE.pack(size))
        file.seek(0)
        content = file.read()
    whole = content[: len(content) // _SIZE.size * _SIZE.size]
    return None if is_new else sum(size for (size,) in _SIZE.iter_unpack(whole))
