"""Loads: what registers take in of an array for each point of a statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.promotion import widest_bytes
from tilesolve.contractions.statements.stage import Stage
from tilesolve.model.access import Access
from tilesolve.model.loop_tree import Loop
from tilesolve.nests.request import NestRequest


def _share_loads(stage: Stage, array: str, letter: str, count: int) -> float:
    """Return the share of an array's elements that are loaded anew in each of some rows.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> (stage,) = parse_stages("o[y,x] = A[y,x] + A[y+1,x] + A[y+2,x] + A[y,x+1]")
    >>> _share_loads(stage, "A", "y", 4) == (6 + 4) / 16
    True
    """
    reads = [one.plain for one in stage.reads if one.array == array and one.plain]
    rows: dict[tuple[Affine, ...], set[int]] = {}
    for places in reads:
        along = [one for one in places if letter in one.letters]
        if not along:
            rows[places] = {0}
            continue
        step = along[0].factor(letter)
        if len(along) > 1 or step < 1 or along[0].divisor > 1:
            return 1.0
        form = tuple(one - one.offset if one is along[0] else one for one in places)
        begin = along[0].offset
        rows.setdefault(form, set()).update(range(begin, begin + step * count, step))
    return sum(map(len, rows.values())) / (count * len(reads)) if reads else 1.0


def as_loaded(
    request: NestRequest,
    stage: Stage,
    access: Access,
    loops: Sequence[Loop],
    rows: Mapping[str, int] = MappingProxyType({}),
) -> Access:
    """Return an access of a stage with what registers take in for each point.

    A load takes as long however many bytes of a vector it fills, and longer across the end of a
    line. Lanes that lie apart are loaded one by one, unless rows that lie side by side are
    written out around: then blocks are transposed. Those a few elements apart, such as channels of
    pixels, are found in as many vectors. Sums are not loaded.

    Parameters
    ----------
    request, stage, access
        Who computes what, and an array that it touches.
    loops
        Those around a point.
    rows
        How many rows of a letter are written out: they share what they read.
    """
    vector = next((loop.letter for loop in loops if loop.kind == "vector"), None)
    sums = access.mode != "read" and stage.reduction is not None
    if vector is None or vector not in access.letters or sums:
        return access
    size, line = request.machine.vector_bits // 8, request.machine.levels[0].line
    each = max(access.loaded or access.element, access.element) / access.element
    for letter, count in rows.items():
        each *= _share_loads(stage, access.array, letter, count)
    if vector not in access.contiguous:
        written_out = {loop.letter for loop in loops if loop.kind == "unrolled"}
        if written_out.intersection(access.contiguous):
            return access
        channels = access.pixels(vector)
        if channels:
            widest = widest_bytes(stage, request.computation.dtypes, vector)
            return replace(access, loaded=float(channels * widest))
        return replace(access, loaded=each * size)
    apart = max(step for step, letter in access.axes[-1].terms if letter == vector)
    widest = widest_bytes(stage, request.computation.dtypes, vector)
    ends = min(size // widest * access.element / line, 1.0)
    slower = 1 + (request.machine.costs.split_slowdown - 1) * ends
    return replace(access, loaded=each * min(widest * slower * apart, float(size)))
