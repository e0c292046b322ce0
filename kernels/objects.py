"""Objects: machine code that is made once, kept on disk and loaded, whatever makes it.

An object's name tells all that its code depends on, so that no other is taken for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import llvmlite

from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu
from tilesolve.kernels.sources import LAYOUT
from tilesolve.system.first_use import tell_of_compiling
from tilesolve.system.kept_objects import make_alone, write_object
from tilesolve.system.trust import kept_folder


def object_path(folder: str, title: str, *parts: object) -> Path:
    """Return where an object is kept.

    Parameters
    ----------
    folder
        Of `kept_folder`.
    title
        What its name begins with.
    parts
        What the code depends on, beside this CPU, the version of LLVM and all sources.

    Examples
    --------
    >>> object_path("code", "a", 1).name != object_path("code", "a", 2).name
    True
    """
    known = (LAYOUT, llvmlite.__version__, TargetCpu.here(), *parts)
    digest = hashlib.sha256(repr(known).encode()).hexdigest()[:24]
    return kept_folder(folder) / f"{title}-{digest}.o"


def make_object(path: Path, build: Callable[[], bytes]) -> bytes:
    """Return an object: from disk, or made now and kept there.

    One that is damaged, or that somebody else could have written, is reported once and made again.
    Processes that begin at once make it only once.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [make_object(Path(folder) / "a.o", build) for build in (lambda: b"first", bytes)]
    [b'first', b'first']
    """
    with tell_of_compiling(), make_alone(path) as code:
        if code is None:
            code = build()
            write_object(path, code)
        return code


def load_object(path: Path, build: Callable[[], bytes]) -> LoadedCode:
    """Return an object file in memory: from disk, or made now and kept there, see `make_object`."""
    return LoadedCode(make_object(path, build))
