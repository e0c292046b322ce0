"""Whom files belong to: what is executed or believed has to be the user's own.

Nobody but the user and root may be able to write a file that is read here, or the folder that it is
in. Folders further up are not looked at: somebody who exchanges a folder there can only put another
one of the user's in its place. See docs/security.md.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from errno import EINVAL
from functools import cache
from pathlib import Path

from tilesolve.contractions.errors import FileAccessError
from tilesolve.system.files import (
    IRREGULAR,
    cache_dir,
    describe_error,
    nearest_existing,
    takes_files,
    warn_once,
)

NOWHERE = Path(os.devnull)
"""Stands for a folder where there is none: nothing is ever in it."""


def find_fault(path: Path, status: os.stat_result) -> str:
    """Return why somebody else could change a file or folder; an empty text if nobody could."""
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user (number {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written by others; 'chmod go-w {path}' mends that"
    return ""


def check_folder(folder: Path) -> None:
    """Refuse a folder that somebody else could change; one that is missing is fine.

    Raises
    ------
    FileAccessError
        If somebody else owns it or may write in it, or it cannot be looked at.
    """
    try:
        fault = find_fault(folder, folder.stat())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        fault = describe_error(error)
    if fault:
        raise FileAccessError(fault)


def read_trusted(path: Path) -> bytes:
    """Return the content of a file that nobody else could have written.

    It checks the file that it has opened, so that nobody gains by exchanging it meanwhile.

    Raises
    ------
    FileAccessError
        If somebody else owns the file or its folder, or may write there.
    OSError
        If it is no file, or cannot be read.

    Examples
    --------
    >>> read_trusted(Path(__file__)).startswith(b'"'*3)
    True
    """
    check_folder(path.parent)
    # A pipe would wait for a writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(EINVAL, IRREGULAR)
        if fault := find_fault(path, status):
            raise FileAccessError(fault)
        return file.read()


def kept_folder(name: str) -> Path:
    """Return a folder of what is kept, such as compiled code, which need not exist yet.

    It is in `cache_dir`, unless somebody else could change it there, or nothing can be written
    there and nothing has been: then a warning says why, and it is in `private_folder`. If there is
    none either, the warning says so, and it is in `NOWHERE`.
    """
    wanted = cache_dir()
    fault = _fault_of(wanted, name)
    if not fault:
        return wanted / name
    private = private_folder()
    if private == NOWHERE:
        then = "and there is no place for temporary files: each process plans and compiles again"
    else:
        then = f"plans and compiled code are kept in {private} instead"
    warn_once(f"{fault}; {then} (TILESOLVE_CACHE_DIR names another folder)")
    return private / name


def _fault_of(wanted: Path, name: str) -> str:
    """Return why nothing can be kept in a folder by this name; an empty text if it can."""
    folder = wanted / name
    try:
        check_folder(wanted)
        check_folder(folder)
        there = nearest_existing(folder)
        if takes_files(there) or (there == folder and any(folder.iterdir())):
            return ""
    except OSError as error:
        return str(error)
    return f"{there} cannot be written"


@cache
def private_folder() -> Path:
    """Return a folder for temporary files that only this user may use.

    It serves all of the user's processes; where somebody else has taken its name, each process has
    one of its own, which goes with it. Where no place for temporary files is, it is `NOWHERE`.

    Examples
    --------
    >>> oct(private_folder().stat().st_mode & 0o77)
    '0o0'
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"tilesolve-{os.geteuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            folder.chmod(0o700)
            return folder
    except OSError:
        pass  # the name is taken by something else
    try:
        own = tempfile.mkdtemp(prefix="tilesolve-")
    except OSError:
        return NOWHERE
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)
