"""The loops that tiles become: over tiles, within them, and those that registers are held over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesolve.constants.policy import NEST_HELD_ROWS, NEST_HELD_VECTORS
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.kernels.programs.program import Kind
from tilesolve.nests.loops import LoopItem
from tilesolve.nests.programs import LoopNest
from tilesolve.nests.spatial import SpatialTiles
from tilesolve.nests.temporal import TemporalTiles


def tiled_nest(
    stage: Stage,
    extents: Mapping[str, int],
    found: TemporalTiles,
    *,
    threads: int = 1,
    lanes: int | None = None,
) -> LoopNest:
    """Return the loops of temporal tiles.

    Parameters
    ----------
    stage, extents
        The statement.
    found
        Its tiles and orders.
    threads
        Those that divide the outermost loop.
    lanes
        Elements of a vector: elements of a sum stay in registers while tiles are run through;
        None: each is loaded and stored each time, as in the thesis.
    """
    tiles = found.tiles
    inter = [LoopItem(x, tiles[x]) for x in found.inter if tiles[x] < extents[x]]
    running = {item.letter for item in inter if item.step == 1}
    intra = [x for x in found.intra if x not in running]
    intra += [x for x in extents if x not in running and x not in intra]
    intra.sort(key=lambda x: x == stage.output[-1])
    if threads > 1 and inter and inter[0].letter in stage.output:
        inter[0] = LoopItem(inter[0].letter, inter[0].step, "threads")
    return _with_intra(stage, inter, intra, tiles, lanes)


def untiled_nest(
    stage: Stage, extents: Mapping[str, int], threads: int, line: int, lanes: int
) -> LoopNest:
    """Return the loops of a sum without tiles for caches, held in registers.

    Parameters
    ----------
    stage, extents
        The statement.
    threads
        Those that divide the first letter of its output that has as many values, else the last.
    line
        Elements of a line: what the last letter is divided in.
    lanes
        Elements of a vector.
    """
    *others, column = stage.output
    inter = []
    divided = next((x for x in others if extents[x] >= threads), column)
    tiles = dict(extents)
    if threads > 1:
        share = -(-extents[divided] // threads)
        share = max(-(-share // line) * line if divided == column else share, 1)
        tiles[divided] = min(share, extents[divided])
        if share < extents[divided]:
            inter = [LoopItem(divided, share, "threads")]
    running = {item.letter for item in inter if item.step == 1}
    intra = [x for x in (*others, *stage.summed) if x not in running]
    return _with_intra(stage, inter, [*intra, *({column} - running)], tiles, lanes)


def spatial_nest(
    stage: Stage,
    extents: Mapping[str, int],
    found: SpatialTiles,
    *,
    threads: int = 1,
    lanes: int | None = None,
) -> LoopNest:
    """Return the loops of spatial tiles: threads divide what the crossed array has side by side.

    Parameters
    ----------
    stage, extents, found
        The statement and its tiles.
    threads
        Those that divide the outermost loop.
    lanes
        Rows that are written out around a vector, so that a block is transposed in registers;
        None: rows one after another, as in the thesis.
    """
    others = [x for x in stage.output if x not in (found.row, found.column)]
    items = []
    if found.height < extents[found.row]:
        items.append(LoopItem(found.row, found.height, "threads" if threads > 1 else "serial"))
    items += [LoopItem(x) for x in others]
    if 1 < found.width < extents[found.column]:
        items.append(LoopItem(found.column, found.width))
    kind: Kind = "serial"
    if lanes is not None and found.height >= lanes > 1:
        kind = "unrolled"
        if found.height > lanes:
            items.append(LoopItem(found.row, lanes))
    if found.height > 1 or found.height == extents[found.row]:
        items.append(LoopItem(found.row, 1, kind))
    return LoopNest((*items, LoopItem(found.column, 1, "vector")))


def _with_intra(
    stage: Stage,
    inter: Sequence[LoopItem],
    intra: Sequence[str],
    tiles: Mapping[str, int],
    lanes: int | None,
) -> LoopNest:
    """Return loops over tiles with those within them, the vector loop last."""
    if not intra:
        return LoopNest(tuple(inter))
    *inner, column = intra
    sums = [x for x in inner if x in stage.summed]
    if column in {item.letter for item in inter if item.step == 1} or column != stage.output[-1]:
        return LoopNest((*inter, *(LoopItem(x) for x in intra)))
    vector = LoopItem(column, 1, "vector")
    plain = LoopNest((*inter, *(LoopItem(x) for x in inner), vector))
    if lanes is None or not sums or _coupled(stage, column, stage.summed):
        return plain
    outputs = [x for x in inner if x not in sums]
    rows = [x for x in outputs if tiles[x] > 1 and not _coupled(stage, x, stage.summed)]
    row = rows[0] if rows else None
    across = _summed_vector(stage, sums)
    if across is not None:
        return _across_sum(inter, outputs, sums, (row, column, across), tiles, lanes)
    vectors = NEST_HELD_VECTORS * (1 if row else NEST_HELD_ROWS)
    items = [*inter, *(LoopItem(x) for x in outputs if x != row)]
    if tiles[column] > lanes * vectors:
        items.append(LoopItem(column, lanes * vectors))
    held = [LoopItem(x) for x in sums]
    if row is not None:
        items += _blocks(row, tiles[row], NEST_HELD_ROWS)
        held.append(LoopItem(row, 1, "unrolled"))
    held.append(vector)
    return LoopNest((*items, *held), len(held))


def _across_sum(
    inter: Sequence[LoopItem],
    outputs: Sequence[str],
    sums: Sequence[str],
    letters: tuple[str | None, str, str],
    tiles: Mapping[str, int],
    lanes: int,
) -> LoopNest:
    """Return loops whose vectors lie along a letter of the sum, each lane with a sum of its own."""
    row, column, across = letters
    items = [*inter, *(LoopItem(x) for x in outputs if x != row)]
    items += _blocks(column, tiles[column], NEST_HELD_VECTORS if row else NEST_HELD_ROWS)
    held = [LoopItem(x) for x in sums if x != across]
    if tiles[across] > lanes > 1:
        held.append(LoopItem(across, lanes))
    if row is not None:
        items += _blocks(row, tiles[row], NEST_HELD_ROWS)
        held.append(LoopItem(row, 1, "unrolled"))
    held += [LoopItem(column, 1, "unrolled"), LoopItem(across, 1, "vector")]
    return LoopNest((*items, *held), len(held))


def _blocks(letter: str, tile: int, most: int) -> list[LoopItem]:
    """Return the loop over near-equal blocks of a tile; none if it is one block."""
    count = -(-tile // most)
    return [LoopItem(letter, -(-tile // count))] if count > 1 and most > 1 else []


def _summed_vector(stage: Stage, sums: Sequence[str]) -> str | None:
    """Return the letter of a sum along which vectors lie better than along the column letter.

    It is one that is side by side in a read that is crossed, where no read has the column letter
    so.
    """
    column = stage.output[-1]
    found = None
    for read in stage.term.reads:
        last = read.subscripts[-1] if read.subscripts else None
        if not isinstance(last, Affine):
            continue
        if column in last.letters:
            return None
        if column in read.letters and last.plain in sums:
            found = last.plain
    return None if found is None or _coupled(stage, found, stage.output) else found


def _coupled(stage: Stage, letter: str, others: Sequence[str]) -> bool:
    """Return whether a condition bounds a letter by others."""
    return any(
        letter in one.letters and any(x in one.letters for x in others if x != letter)
        for one in stage.where
    )
