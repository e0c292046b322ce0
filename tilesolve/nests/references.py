"""What a statement touches: one access for the elements of an array that lie together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.model.access import Access, Axis, Mode


def find_references(computation: Computation, *stages: Stage) -> tuple[Access, ...]:
    """Return what stages touch at once, the output of the first one first.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("out[y,x] = A[y,x] + A[y,x+2]"), 8, "float32")
    >>> [(one.array, one.axes[1].spread) for one in find_references(found, found.stages[0])]
    [('out', 0), ('A', 2)]
    """
    groups: dict[Any, list[Read]] = {}
    targets = [one.target for one in stages]
    for read in dict.fromkeys((*targets, *(read for one in stages for read in one.reads))):
        plain = tuple(
            (one.terms, one.divisor) if isinstance(one, Affine) else str(one)
            for one in read.subscripts
        )
        groups.setdefault((read.array, plain), []).append(read)
    return tuple(_reference(computation, targets, reads) for reads in groups.values())


def _reference(computation: Computation, targets: Sequence[Read], reads: Sequence[Read]) -> Access:
    info, first = computation.array(reads[0].array), reads[0]
    axes = []
    for axis, subscript in enumerate(first.subscripts):
        if isinstance(subscript, Affine):
            offsets = [_offset(read, axis) for read in reads]
            terms = tuple((abs(factor), letter) for factor, letter in subscript.terms)
            axes.append(Axis(terms, max(offsets) - min(offsets), subscript.divisor))
        else:
            axes.append(Axis(tuple((1, letter) for letter in subscript.letters), computed=True))
    size = np.dtype(info.dtype).itemsize
    mode: Mode = "write" if first in targets else "read"
    loaded = float(size * len(reads)) if len(reads) > 1 and mode == "read" else None
    return Access(info.name, tuple(axes), info.shape, size, mode, loaded)


def _offset(read: Read, axis: int) -> int:
    subscript = read.subscripts[axis]
    assert isinstance(subscript, Affine)
    return subscript.offset
