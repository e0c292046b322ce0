"""Compiled kernels, kept in memory and on disk: made once per CPU, dtype and vector width."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

from tilesolve.contractions.errors import FileAccessError
from tilesolve.files import cache_dir, warn_once, write_atomically
from tilesolve.kernels.code import Family, Loaded, build, fingerprint

_MAGIC = b"tilesolve kernels 1\n"
_lock = threading.Lock()
_loaded: dict[Family, Loaded] = {}


def folder() -> Path:
    """Return where object files are kept.

    Examples
    --------
    >>> folder().name
    'code'
    """
    return cache_dir() / "code"


def kernels(family: Family) -> Loaded:
    """Return a family's kernels: from memory, from disk, or compiled now and kept in both.

    A file that is damaged is reported once and made again; it never runs.

    Examples
    --------
    >>> family = Family("float64", 128, 4, 4)
    >>> kernels(family) is kernels(family)
    True
    """
    with _lock:
        if family not in _loaded:
            _loaded[family] = Loaded(_code(family))
        return _loaded[family]


def _code(family: Family) -> bytes:
    path = folder() / f"{family.dtype}-{family.bits}-{fingerprint(family)}.o"
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    except OSError as error:
        warn_once(f"cannot read {path}: {error.strerror}; compiling the kernels again")
        found = b""
    code = _checked(found)
    if code is not None:
        return code
    if found:
        warn_once(f"{path} is damaged; compiling the kernels again")
    code = build(family)
    try:
        write_atomically(path, _MAGIC + hashlib.sha256(code).digest() + code)
    except FileAccessError as error:
        warn_once(f"{error}; the kernels will be compiled again in the next process")
    return code


def _checked(found: bytes) -> bytes | None:
    """Return the code of a file, None if it is not whole."""
    start = len(_MAGIC) + 32
    digest, code = found[len(_MAGIC) : start], found[start:]
    whole = found.startswith(_MAGIC) and hashlib.sha256(code).digest() == digest
    return code if whole else None
