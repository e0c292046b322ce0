"""Sources: the files that compiled code is made of, whose checksum tells when it is out of date.

Compiled functions are linked into each other, and constants of any module end up in them. So all
compiled code depends on all of the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tilesolve.constants import tuning
from tilesolve.packing import buffers


def list_sources() -> list[Path]:
    """Return all modules of kernels and packing, and the constants of these.

    Examples
    --------
    >>> sorted({path.parent.name for path in list_sources()})
    ['codegen', 'constants', 'gpu', 'ir', 'kernels', 'packing', 'probes', 'programs', 'runtime']
    """
    folders = (Path(__file__).parent, Path(buffers.__file__).parent)
    found = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [*found, Path(tuning.__file__)]


def checksum(files: Iterable[Path]) -> int:
    """Return a number of 63 bits that changes with the content of some files.

    Examples
    --------
    >>> checksum(list_sources()) == LAYOUT
    True
    """
    found = hashlib.sha256()
    for path in files:
        found.update(path.read_bytes())
    return int.from_bytes(found.digest()[:8], "little") >> 1


LAYOUT = checksum(list_sources())
"""Checksum of the sources that compiled code must come from."""
