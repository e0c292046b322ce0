"""Objects: files of machine code, kept with a digest that only this user's processes can make.

A file begins with a line that tells the format. Then comes the SHA-256 of the code, which tells
whether the file is whole, and one of name and code with a key, which tells whether it was made
here and for that name. The key is a file beside the objects that only the user can read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tilesolve.contractions.errors import FileAccessError
from tilesolve.system.cache_bound import bound_cache, note_use
from tilesolve.system.files import describe_error, hold_lock, warn_once, write_atomically
from tilesolve.system.trust import NOWHERE, check_folder, read_trusted

KEY = "key"
"""Name of the file with the key."""

KEY_SECONDS = 10.0
"""Seconds to wait for another process that makes the key."""

MAKING_SECONDS = 60.0
"""Seconds to wait for another process that makes the same object."""

_MAGIC = b"tilesolve object 2\n"
_DIGEST_BYTES = hashlib.sha256().digest_size


def read_object(path: Path) -> bytes | None:
    """Return an object's code; None if there is none, or none that may be executed.

    A file that is damaged, or that somebody else made or could have changed, is warned of once.
    """
    try:
        found = read_trusted(path)
        key = _read_key(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        warn_once(f"cannot use {path}: {describe_error(error)}; compiling again")
        return None
    head, code = len(_MAGIC), found[len(_MAGIC) + 2 * _DIGEST_BYTES :]
    whole, made = found[head : head + _DIGEST_BYTES], found[head + _DIGEST_BYTES :][:_DIGEST_BYTES]
    if not found.startswith(_MAGIC) or whole != hashlib.sha256(code).digest():
        warn_once(f"{path} is damaged; compiling again")
        return None
    if key is None or not hmac.compare_digest(made, _sign(key, path.name, code)):
        warn_once(f"{path} was not made here, or has another name; compiling again")
        return None
    note_use(path)
    return code


@contextmanager
def make_alone(path: Path) -> Iterator[bytes | None]:
    """Give an object's code, or None to the one process that is to make it.

    Others that want it wait until that process leaves the block, and read its file. If
    that takes too long, or nothing can be locked, they make it, too.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, make_alone(Path(folder) / "a.o") as code:
    ...     print(code)
    None
    """
    code = read_object(path)
    with ExitStack() as held:
        if code is None and NOWHERE not in path.parents:
            with suppress(FileAccessError):
                held.enter_context(hold_lock(path, wait_seconds=MAKING_SECONDS))
            code = read_object(path)
        yield code


def write_object(path: Path, code: bytes) -> None:
    """Keep an object's code, and remove others if all is too much; if it cannot, warn once.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_object(Path(folder) / "ours" / "a.o", b"code")
    ...     read_object(Path(folder) / "ours" / "a.o")
    b'code'
    """
    folder = path.parent
    if NOWHERE in path.parents:  # a warning has said so
        return
    try:
        check_folder(folder)
        key = _read_key(folder) or _make_key(folder)
        signs = hashlib.sha256(code).digest() + _sign(key, path.name, code)
        write_atomically(path, _MAGIC + signs + code, mode=0o600)
    except OSError as error:
        why = getattr(error.__cause__, "strerror", None) or describe_error(error)
        warn_once(f"nothing can be kept in {folder}: {why}; each process compiles again")
        return
    bound_cache(path)


def _sign(key: bytes, name: str, code: bytes) -> bytes:
    return hmac.digest(key, name.encode() + b"\0" + code, "sha256")


def _read_key(folder: Path) -> bytes | None:
    """Return the key of a folder's objects; None if there is none that nobody else knows."""
    path = folder / KEY
    try:
        key = read_trusted(path)
        secret = not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except FileNotFoundError:
        return None
    return key if secret and len(key) == _DIGEST_BYTES else None


def _make_key(folder: Path) -> bytes:
    """Make a key; if another process does so at the same time, both get the same one."""
    path = folder / KEY
    with hold_lock(path, wait_seconds=KEY_SECONDS):
        key = _read_key(folder)
        if key is None:  # others could read it, or it is cut short
            key = secrets.token_bytes(_DIGEST_BYTES)
            write_atomically(path, key, mode=0o600)
        return key
