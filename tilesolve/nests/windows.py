"""Windows with weights: blocks of points whose sums are computed in step.

The sums of all points of a block stay in registers, weights as long as the points need them, and
pixels are loaded once (`kernels/programs/points_in_step.py`).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from math import prod
from operator import or_

from tilesolve.constants.nests import (
    NEST_BLOCK_TAPS,
    NEST_LONE_POINT,
    NEST_ROWS_GAIN,
    NEST_SPARE_REGISTERS,
)
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.stepped_sums import SteppedSum, find_stepped_sum
from tilesolve.contractions.statements.terms import Read
from tilesolve.model.loop_tree import LoopTree
from tilesolve.nests.references import find_references
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import make_tree, over

Rows = Mapping[str, int]
"""How many rows of each letter are written out around each vector."""


def windows_tree(request: NestRequest, rows: Rows) -> LoopTree:
    """Return loops over pixels and channels, with blocks of points written out around each vector.

    Threads divide rows of blocks, as products before and behind do, unless shares along another
    letter, or of vectors, are so much more even.
    """
    stage, extents, threads = request.statement, request.computation.sizes, request.threads
    *letters, column = stage.output
    references = find_references(request.computation, stage)
    widest = max(one.element for one in references)
    steps = {x: rows.get(x, 1) for x in letters}
    steps[column] = request.machine.vector_bits // (8 * widest)
    loops = [over(x, steps[x]) for x in letters]
    if threads > 1:
        shares = {x: -(-extents[x] // (step * threads)) * step for x, step in steps.items()}
        parts = {x: share / max(extents[x], 1) for x, share in shares.items()}
        most = next(x for x, part in parts.items() if part <= NEST_ROWS_GAIN * min(parts.values()))
        if most == column:
            loops.insert(0, over(column, shares[column], "threads"))
        else:
            loops.sort(key=lambda one: one.letter != most)
            loops[0] = replace(loops[0], kind="threads")
    inner = [over(row, 1, "unrolled") for row in rows]
    loops += [over(column, steps[column]), *inner, over(column, 1, "vector")]
    # Vectors follow one another: of lines that two of them share, both take a part at once.
    follow = extents[column] * widest >= request.machine.levels[0].line
    return replace(make_tree(request, loops, rows=rows), aligned=follow)


def choose_block(request: NestRequest) -> Rows:
    """Return the block of the fewest loads, of those whose vectors fit the registers.

    There is none without windows whose taps have weights: along the vectors, or numbers.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> stages = parse_stages("o[y,x,c] = A[y,x,c] * w[0,c] + A[y,x+1,c] * w[1,c]")
    >>> choose_block(NestRequest(bind_stages(stages, 6), Machine.load("i7-6700k")))
    {'x': 6}
    """
    stage, extents = request.statement, request.computation.sizes
    if stage.reduction is not None or any(read.plain is None for read in stage.reads):
        return {}
    windows = None if any(len(one.letters) > 1 for one in stage.where) else _find_windows(request)
    if windows is None:
        return {}
    sides = [range(1, len(found) + 1) for found in windows.places.values()]
    most = request.machine.vector_registers - NEST_SPARE_REGISTERS
    taps, column = len(windows.taps.addends), extents[stage.output[-1]]
    is_ragged = column > request.lanes and column % request.lanes != 0
    written = NEST_BLOCK_TAPS // (taps * (1 + is_ragged))  # once more for the last vector
    blocks = [
        {x: n for x, n in zip(windows.places, side, strict=True) if n > 1}
        for side in product(*sides)
        if 1 < prod(side) < most and prod(side) <= written
    ]

    def loads(rows: Rows) -> tuple[float, int]:
        """Return the loads of all points: of whole blocks, and of those that are left over."""
        sides = {x: rows.get(x, 1) for x in windows.places}
        whole = prod(extents[x] // n for x, n in sides.items())
        left = prod(extents[x] for x in sides) - whole * prod(sides.values())
        alone = NEST_LONE_POINT * 2 * taps
        return whole * windows.count_loads(rows) + left * alone, prod(rows.values())

    for rows in sorted(blocks, key=loads):
        held = windows.count_registers(rows)
        if held is not None and held <= most:
            return rows
    return {}


def is_in_step(stage: Stage, tree: LoopTree) -> bool:
    """Return whether loops compute windows with weights, the sums of several points in step."""
    rows = {one.letter for one in tree.loops if one.kind == "unrolled"}
    if not rows or stage.reduction is not None:
        return False
    taps = find_stepped_sum(stage.term, rows)
    return taps is not None and all(len(one.reads) > 1 for one in taps.addends)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows over an array, each tap of which has a weight.

    Parameters
    ----------
    taps
        Their sum.
    places
        By each letter along which windows share elements, how many different ones so many of them
        read, from one window on.
    """

    taps: SteppedSum
    places: Mapping[str, Sequence[int]]

    def count_loads(self, rows: Rows) -> float:
        """Return how many vectors a block of rows loads, each weight once."""
        along = [found[rows.get(x, 1) - 1] for x, found in self.places.items()]
        alone = next(iter(self.places.values()))[0]
        together: float = prod(along) / alone ** (len(along) - 1)
        return together + len(self.taps.addends)

    def count_registers(self, rows: Rows) -> int | None:
        """Return how many vectors a block holds at once; None if it is not computed in step."""
        sides = product(*map(range, rows.values()))
        order = self.taps.order([dict(zip(rows, point, strict=True)) for point in sides])
        if order is None:
            return None
        first, last = dict[int, int](), dict[int, int]()
        for time, (_, number) in enumerate(order):
            first.setdefault(number, time)
            last[number] = time
        begins, ends = sorted(first.values()), sorted(last.values())
        weights = max(at + 1 - bisect(ends, time - 1) for at, time in enumerate(begins))
        return prod(rows.values()) + weights + 1


def _find_windows(request: NestRequest) -> _Windows | None:
    """Return the windows of a statement; None if it has none."""
    stage, most = request.statement, request.machine.vector_registers
    *letters, column = stage.output or ("",)
    pixels = {x for one in _list_shifted(stage) for x in one.letters}
    lacking = {x for x in letters if any(x not in one.letters for one in stage.reads)}
    letters = [x for x in letters if x in pixels & lacking]
    taps = find_stepped_sum(stage.term, letters)
    if taps is None or any(len(one.reads) < 2 for one in taps.addends):
        return None
    if all(column not in one.letters for addend in taps.addends for one in addend.reads):
        return None
    places = dict[str, list[int]]()
    for x in letters:
        windows = [taps.places({x: at}) for at in range(min(request.computation.sizes[x], most))]
        if any(windows[0] & one for one in windows[1:]):
            places[x] = [len(found) for found in accumulate(windows, or_)]
    return _Windows(taps, places) if places else None


def _list_shifted(stage: Stage) -> Iterator[Read]:
    """Yield the reads of arrays of which a point reads neighbours along its letters."""
    places: dict[str, set[tuple[int, ...]]] = {}
    for read in stage.reads:
        offsets = tuple(one.offset for one in read.plain or () if one.letters)
        places.setdefault(read.array, set()).add(offsets)
    return (one for one in stage.reads if len(places[one.array]) > 1)
