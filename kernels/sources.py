"""Sources: the files that compiled code is made of, so that it is known when it is out of date.

Compiled functions are linked into each other, and constants of any module end up in them. So code
belongs to all of the files, whichever of them it was made by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tilesolve.packing import buffers


def sources() -> list[Path]:
    """Return the files: all of the kernels' and packing's.

    Examples
    --------
    >>> sorted({path.parent.name for path in sources()})
    ['codegen', 'kernels', 'packing', 'probes', 'runtime']
    """
    folders = (Path(__file__).parent, Path(buffers.__file__).parent)
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def checksum(files: Iterable[Path]) -> int:
    """Return a number of 63 bits that changes with what is in some files.

    Examples
    --------
    >>> checksum(sources()) == LAYOUT
    True
    """
    found = hashlib.sha256()
    for path in files:
        found.update(path.read_bytes())
    return int.from_bytes(found.digest()[:8], "little") >> 1


LAYOUT = checksum(sources())
"""What code has to be compiled for."""
