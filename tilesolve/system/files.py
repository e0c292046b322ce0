"""Where tilesolve keeps its files, how it writes them, and the settings that override it."""

from __future__ import annotations

import os
import re
import secrets
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL
from pathlib import Path

from tilesolve.contractions.errors import FileAccessError, SettingError, TilesolveWarning

SETTINGS = {
    "TILESOLVE_MACHINE": "the machine to plan for: a shipped name, or the path of a machine file",
    "TILESOLVE_CONFIG_DIR": "folder of the calibrated machine files",
    "TILESOLVE_CACHE_DIR": "folder of saved plans and compiled code, safe to delete",
    "TILESOLVE_CACHE_LIMIT": "size of that folder, such as 1 GiB; else 512 MiB",
    "TILESOLVE_CACHE": "off keeps no plans, neither in memory nor on disk",
    "TILESOLVE_RESULT_BUFFERS": "size of freed results whose memory is kept; else 256 MiB",
    "TILESOLVE_PROGRESS": "whether a line tells of long waits; else on terminals and in notebooks",
    "TILESOLVE_NUM_THREADS": "threads that plans share their work among, where none are named",
}
"""Every environment variable that tilesolve reads, and what it sets."""

ON, OFF = ("on", "1", "yes", "true", ""), ("off", "0", "no", "false")
"""What a variable that switches something may say, in any case."""

IRREGULAR = "not a regular file"
"""What an error says of a pipe, a device or the like."""

PROBE_BYTES = 65536
"""Bytes of a file that shows whether a folder takes one, as large as most that are kept."""

LOCK_MODE = 0o644
"""Of files that are locked: nobody else writes to what lies among a user's own."""

POLL_SECONDS = 0.02
"""Seconds between two looks at a lock that another process holds."""

LEFTOVER_SECONDS = 3600.0
"""Age from which a temporary file is what a writer left that was killed."""

_LEFTOVER = re.compile(r"\..*\.[0-9a-f]{8}\.tmp", re.DOTALL)

_warned: set[str] = set()


def read_setting(name: str) -> str | None:
    """Return the value of a ``TILESOLVE_*`` variable; None where it is unset or empty.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_NUM_THREADS="2"):
    ...     read_setting("TILESOLVE_NUM_THREADS")
    '2'
    """
    if name not in SETTINGS:
        raise KeyError(f"{name} is not declared in SETTINGS")
    return os.environ.get(name) or None


def is_switched_on(name: str) -> bool:
    """Return whether a ``TILESOLVE_*`` variable says on, as it does where it is not set.

    Raises
    ------
    SettingError
        If it says neither on nor off.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_CACHE="No"):
    ...     is_switched_on("TILESOLVE_CACHE")
    False
    """
    wanted = read_setting(name) or ""
    word = wanted.strip().lower()
    if word not in (*ON, *OFF):
        raise SettingError(f"{name} must be on or off, got {wanted!r}")
    return word in ON


def config_dir() -> Path:
    """Return the folder of settings and machine files, which need not exist yet."""
    import platformdirs

    given = read_setting("TILESOLVE_CONFIG_DIR")
    return Path(given or platformdirs.user_config_dir("tilesolve", appauthor=False)).absolute()


def cache_dir() -> Path:
    """Return the folder of plans and compiled code, which need not exist yet."""
    import platformdirs

    given = read_setting("TILESOLVE_CACHE_DIR")
    return Path(given or platformdirs.user_cache_dir("tilesolve", appauthor=False)).absolute()


def read_regular(path: str | os.PathLike[str]) -> str:
    """Return the text of a file; refuse a pipe or a device, which might never end.

    Raises
    ------
    OSError, ValueError
        If it is no file, cannot be read, or is no UTF-8 text.

    Examples
    --------
    >>> read_regular("/")
    Traceback (most recent call last):
    OSError: [Errno 22] not a regular file
    """
    file = Path(path)
    if file.exists() and not file.is_file():
        raise OSError(EINVAL, IRREGULAR)
    return file.read_text(encoding="utf-8")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a file that `write_atomically` could not write, before anyone works for it.

    Raises
    ------
    FileAccessError
        If the path is a folder, a pipe or a device, or its folder, or the nearest one that exists
        above it, takes no files or has no room for one.

    Examples
    --------
    >>> check_writable("/")
    Traceback (most recent call last):
    tilesolve.contractions.errors.FileAccessError: cannot write /: it is a folder
    """
    file = Path(path)
    try:
        if file.is_dir():
            why = "it is a folder"
        elif _special(file):
            why = IRREGULAR
        else:
            why = find_obstacle(Path(os.path.realpath(file)).parent)
            if not why:
                return
    except OSError as error:
        why = describe_error(error)
    raise FileAccessError(f"cannot write {file}: {why}")


def _special(file: Path) -> bool:
    """Return whether a path is a pipe, a device or the like, whose place no file may take."""
    return file.exists() and not (file.is_file() or file.is_dir())


def find_obstacle(folder: Path) -> str:
    """Return why no file can be written into a folder; an empty text if one can.

    Where the folder does not exist, the nearest one above it counts. Only writing shows whether
    there is room: a file without a name is written, which is gone at once.

    Examples
    --------
    >>> find_obstacle(Path(__file__) / "folder").endswith("files.py cannot be written")
    True
    """
    there = nearest_existing(folder)
    if not takes_files(there):
        return f"{there} cannot be written"
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"{there} cannot be written: {error.strerror}"
    return ""


def nearest_existing(folder: Path) -> Path:
    """Return a folder, or what is first found above it where it does not exist.

    Examples
    --------
    >>> nearest_existing(Path("/no/such/folder"))
    PosixPath('/')
    """
    return next(there for there in (folder, *folder.parents) if there.exists())


def takes_files(folder: Path) -> bool:
    """Return whether this process may make files in what exists at a path.

    Examples
    --------
    >>> takes_files(Path(__file__))
    False
    """
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, that only the user can write in.

    Raises
    ------
    OSError
        If that is not possible.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o755, exist_ok=True)


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes, *, mode: int = 0o666
) -> None:
    """Write a file so that a reader, at any moment, finds the old content or the new one.

    The content goes to a new file beside `path`, which then takes its place in one step. If
    anything stops it in between, the old file is as it was. Missing folders are made.

    Parameters
    ----------
    path
        The file; a symbolic link stays one, and the file it points to is replaced.
    content
        Its new content; text is written as UTF-8.
    mode
        The permissions of the file, without those that the process takes away from all files.

    Raises
    ------
    FileAccessError
        If the folder cannot be written, a folder, a pipe or a device stands in the way, or no
        space is left.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "new" / "note", "text")
    ...     (Path(folder) / "new" / "note").read_text()
    'text'
    """
    data = content.encode() if isinstance(content, str) else content
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        if _special(Path(path)):
            raise OSError(EINVAL, IRREGULAR)
        make_folder(target.parent)
        try:
            new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, new, mode), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileAccessError(f"cannot write {Path(path)}: {describe_error(error)}") from error


def list_entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder; one that is missing has nothing."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def remove_leftovers(folder: Path, *, locks: bool = False) -> None:
    """Remove the temporary files that killed writers left in a folder of tilesolve's own.

    `locks` says whether to remove old locks, too: where files are written as a whole, two processes
    that lock different files of one name do no harm.
    """
    for entry in list_entries(folder):
        if _LEFTOVER.fullmatch(entry.name) or (locks and entry.name.endswith(".lock")):
            with suppress(OSError):  # its writer has removed it, or nobody may
                if time.time() - entry.stat().st_mtime > LEFTOVER_SECONDS:
                    Path(entry.path).unlink()


def remove_files(folder: Path, pattern: str) -> int:
    """Remove the files of a folder that a pattern fits, and return how many there were.

    Raises
    ------
    FileAccessError
        If one of them cannot be removed.
    """
    removed = 0
    for path in folder.glob(pattern):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FileAccessError(f"cannot remove {path}: {error.strerror}") from None
        removed += 1
    return removed


@contextmanager
def hold_lock(path: str | os.PathLike[str], *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the exclusive right to write a file; fail if another holds it.

    The lock is on a file beside `path` and is advisory. The operating system releases it when
    the process ends, however it ends; the empty lock file stays, as removing it would let two
    processes lock different files of one name.

    `wait_seconds` is how long to wait for another process to release it.

    Raises
    ------
    FileAccessError
        If another process, or another thread, holds the lock, or none can be made.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, hold_lock(Path(folder) / "machine.toml"):
    ...     print("nobody else measures")
    nobody else measures
    """
    import fcntl  # not on every platform, and needed only here

    target = Path(os.path.realpath(path))
    lock = target.with_name(target.name + ".lock")
    try:
        make_folder(lock.parent)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.fdopen(os.open(lock, flags, LOCK_MODE), "ab")
    except OSError as error:
        raise FileAccessError(f"cannot lock {lock}: {describe_error(error)}") from error
    end = time.monotonic() + wait_seconds
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise FileAccessError(
                        f"another process is measuring (it holds {lock}); wait until it ends"
                    ) from None
                time.sleep(POLL_SECONDS)
            except OSError as error:
                raise FileAccessError(f"cannot lock {lock}: {describe_error(error)}") from error
        yield


def describe_error(error: OSError) -> str:
    """Say what went wrong and with which path, which may be a folder above the one wanted.

    Examples
    --------
    >>> describe_error(FileNotFoundError(2, "No such file or directory", "cup"))
    'No such file or directory (cup)'
    """
    return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")


def warn_once(message: str, category: type[TilesolveWarning] = TilesolveWarning) -> None:
    """Issue a `TilesolveWarning`, but only once per message and process.

    It names the line that called the package.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_once("the cup is empty")
    ...     warn_once("the cup is empty")
    >>> len(caught)
    1
    """
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, category, stacklevel=_level_outside())


def _level_outside() -> int:
    """Return how far up from who calls this the first function outside of the package is."""
    frame, level = sys._getframe(1), 1
    package = __name__.partition(".")[0]
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level
