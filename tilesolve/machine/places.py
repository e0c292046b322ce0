"""Where machine files lie, and the texts of those that are named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tilesolve.contractions.errors import MachineError
from tilesolve.machine.cpu import detect_cpu
from tilesolve.system.files import (
    check_writable,
    config_dir,
    read_regular,
)
from tilesolve.system.trust import check_folder, read_trusted

SHIPPED = Path(__file__).parent / "data"
"""Folder of the machine files that come with the package."""


def machine_file() -> Path:
    """Return the path of this CPU's calibrated machine file, which need not exist yet.

    The name carries the CPU's fingerprint, so that a home directory shared by different
    computers keeps one file for each.
    """
    here = detect_cpu()
    return config_dir() / "machines" / f"{here.name}-{here.fingerprint}.toml"


def named_text(wanted: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the text of a shipped machine, which only text can name, or of a file; and its path.

    Raises
    ------
    MachineError
        If there is none, or it cannot be read.

    Examples
    --------
    >>> named_text("i7-6700k")[0].splitlines()[3]
    'name = "i7-6700k"'
    """
    names = sorted(file.stem for file in SHIPPED.glob("*.toml"))
    path = SHIPPED / f"{wanted}.toml" if wanted in names else Path(wanted)  # no path equals a text
    text = file_text(path, read_regular)
    if text is None:
        raise MachineError(
            f"no machine {os.fspath(wanted)!r}: give the path of a machine file or one of "
            f"the shipped names: {', '.join(names)}"
        )
    return text, str(path)


def check_machine(wanted: object) -> None:
    """Raise `MachineError` unless something may name a machine: text that is not empty, or a path.

    Examples
    --------
    >>> check_machine(7)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.MachineError: machine must be a Machine, a name or a path, got 7
    """
    if not isinstance(wanted, str | os.PathLike) or not str(wanted):
        raise MachineError(f"machine must be a Machine, a name or a path, got {wanted!r:.80}")
    try:
        named = os.fsencode(wanted)
    except UnicodeError as error:
        raise MachineError(f"machine {wanted!r:.80} is no path: {error}") from None
    if 0 in named:
        raise MachineError(f"machine {wanted!r:.80} is no path: it has a null character")


def calibrated_text() -> str | None:
    """Return the text of this CPU's calibrated file; None if it is not there.

    Raises
    ------
    MachineError
        If it cannot be read, or somebody else could have written it.
    """
    return file_text(machine_file(), lambda path: read_trusted(path).decode("utf-8"))


def file_text(path: Path, read: Callable[[Path], str]) -> str | None:
    """Return the text of a machine file; None if it is not there.

    Raises
    ------
    MachineError
        If it cannot be read.
    """
    try:
        return read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise MachineError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise MachineError(f"{path}: not UTF-8 text: {error}") from None


def check_place(path: Path) -> None:
    """Refuse the place of a machine file, before anyone measures for it.

    Raises
    ------
    FileAccessError
        If it cannot be written; or if it is where plans look for it, and somebody else could
        change it there, so that it would not be read.

    Examples
    --------
    >>> check_place(Path("/"))
    Traceback (most recent call last):
    tilesolve.contractions.errors.FileAccessError: cannot write /: it is a folder
    """
    check_writable(path)
    if path == machine_file():
        check_folder(path.parent)
