"""The loop trees that tiles become: loops over tiles, within them, and over what registers hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tilesolve.constants.nests import (
    FOLLOWED_ROWS,
    NEST_HELD_ROWS,
    NEST_HELD_VECTORS,
    NEST_LONE_VECTORS,
    NEST_SHARED_ROWS,
    NEST_SUMMED_VECTORS,
)
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.kernels.programs.nodes import Kind
from tilesolve.kernels.programs.range_checks import updates_rows
from tilesolve.model.loop_tree import Buffer, Call, Do, Loop, LoopTree, Work, nest_loops
from tilesolve.model.nest import Output
from tilesolve.nests.classify import find_channels
from tilesolve.nests.divided_letter import find_divided_letter
from tilesolve.nests.loads import as_loaded
from tilesolve.nests.references import find_references
from tilesolve.nests.request import NestRequest
from tilesolve.nests.spatial import SpatialTiles
from tilesolve.nests.temporal import TemporalTiles


def over(letter: str, step: int = 1, kind: Kind = "serial") -> Loop:
    """Return a loop that has no body yet."""
    return Loop(letter, step, (), kind)


def make_tree(
    request: NestRequest,
    loops: Sequence[Loop],
    held: int = 0,
    *,
    streamed: bool = False,
    rows: Mapping[str, int] = MappingProxyType({}),
) -> LoopTree:
    """Return the tree of a statement.

    What registers hold, or else the vector loop and those written out around it, is one call.

    Parameters
    ----------
    request
        The statement, and who computes it.
    loops
        Outermost first.
    held
        How many of the innermost loops run while elements of a sum stay in registers: those over
        letters of the sum, and those over elements of the output within them.
    streamed
        Whether the output goes past the caches.
    rows
        How many rows of each letter are written out around each vector: they share what they load.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> found = bind_stages(parse_stages("C[i] += A[i,k]"), 8)
    >>> request = NestRequest(found, Machine.load("i7-6700k"))
    >>> print(make_tree(request, [over("k"), over("i", 1, "vector")], held=2))
    call:
      C~[i] = registers of C:
        for k step 1
          for i step 1 [vector]
            C[i] <- A[i,k]
    """
    computation, stage = request.computation, request.statement
    accesses = find_references(computation, stage)
    extents = tuple((x, computation.sizes[x]) for x in stage.letters)
    loaded = tuple(as_loaded(request, stage, one, loops, rows) for one in accesses)
    inside = held or max(sum(one.kind in ("vector", "unrolled") for one in loops), 1)
    body = nest_loops(loops[-inside:], (Do(),))
    if loops:
        body = (Call((Buffer(0, accesses[0], "registers", "register", body),)),)
    output: Output = "stream" if streamed else "store"
    if stage.reduction is not None:
        output = "accumulate"
    return LoopTree(
        (Work(loaded, extents, accesses[0].element),),
        nest_loops(loops[:-inside], body),
        output,
        request.threads,
        aligned=False,
    )


def plain_tree(request: NestRequest, *, streamed: bool = False) -> LoopTree:
    """Return the loops of a statement without tiles: threads outermost, a vector innermost.

    Threads divide its first letter, another one if that gives each about as much, or lines of its
    last one.
    """
    stage, extents, threads = request.statement, request.computation.sizes, request.threads
    letters = list(stage.output)
    alone = stage.reduction is None and stage.update is None
    summed = () if alone else stage.summed  # sums within a term are no loops
    if not letters or (stage.update is not None and not updates_rows(stage, letters[-1])):
        return make_tree(request, [over(x) for x in (*letters, *summed)], streamed=streamed)
    column = letters.pop()
    loops = [over(x) for x in (*letters, *summed)]
    if threads > 1 and stage.update is None:
        line = request.line
        if letters and (extents[letters[0]] >= threads or extents[column] < threads * line):
            divided = find_divided_letter(request, letters)
            if divided == letters[0]:
                loops[0] = over(divided, 1, "threads")
            else:
                loops.insert(0, over(divided, -(-extents[divided] // threads), "threads"))
        elif (share := -(-extents[column] // threads)) > 1:
            loops.insert(0, over(column, -(-share // line) * line, "threads"))
    return make_tree(request, [*loops, over(column, 1, "vector")], streamed=streamed)


def rows_tree(request: NestRequest, row: str, count: int, *, streamed: bool = False) -> LoopTree:
    """Return the loops of `plain_tree` with some rows written out around each vector.

    What several of them read is loaded once.
    """
    stage, plain = request.statement, plain_tree(request, streamed=streamed)
    column = stage.output[-1]
    loops = [one for one in plain.loops if one.kind != "vector"]
    if any(one.letter == column for one in loops):  # threads divide lines
        return plain
    loops = [replace(x, step=count) if (x.letter, x.step) == (row, 1) else x for x in loops]
    widest = max(one.element for one in find_references(request.computation, stage))
    walk = over(column, _vector_bytes(request) // widest)
    inner = over(row, 1, "unrolled"), over(column, 1, "vector")
    around = [replace(x, body=()) for x in loops]
    return make_tree(request, [*around, walk, *inner], streamed=streamed, rows={row: count})


def find_shared_row(request: NestRequest) -> str | None:
    """Return the letter of the rows of a stencil, where neighbours read the same elements.

    It is the one along which most reads have others beside them; None if no read has, or if the
    region bounds letters by one another.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> stages = parse_stages("o[z,y,x] = A[z,y,x] + A[z,y+1,x] + A[z,y+2,x] + A[z+1,y,x]")
    >>> find_shared_row(NestRequest(bind_stages(stages, 8), Machine.load("i7-6700k")))
    'y'
    """
    stage, extents = request.statement, request.computation.sizes
    column = stage.output[-1] if stage.output else ""
    if stage.reduction is not None or any(read.plain is None for read in stage.reads):
        return None
    if any(len(one.letters) > 1 for one in stage.where):
        return None
    reads = {read for read in stage.reads if column in read.letters}
    saved = {
        x: _count_shared(reads, x) for x in stage.output[:-1] if extents[x] >= NEST_SHARED_ROWS
    }
    best = max(saved, key=lambda x: saved[x], default="")
    return best if saved.get(best) else None


def _count_shared(reads: Collection[Read], letter: str) -> int:
    """Return how many reads another one is, a step further along a letter."""
    found = 0
    for read in reads:
        moved = tuple(
            one + 1 if one.factor(letter) == one.divisor == 1 else one for one in read.plain or ()
        )
        found += moved != read.plain and replace(read, subscripts=moved) in reads
    return found


def tiled_tree(request: NestRequest, found: TemporalTiles) -> LoopTree:
    """Return the loops of temporal tiles.

    Elements of a sum stay in registers while tiles are run through; in the thesis's mode each is
    loaded and stored each time.
    """
    stage, extents, tiles = request.statement, request.computation.sizes, found.tiles
    inter = [over(x, tiles[x]) for x in found.inter if tiles[x] < extents[x]]
    running = {loop.letter for loop in inter if loop.single}
    intra = [x for x in found.intra if x not in running]
    intra += [x for x in extents if x not in running and x not in intra]
    intra.sort(key=lambda x: x == stage.output[-1])
    if request.threads > 1 and inter and inter[0].letter in stage.output:
        inter[0] = replace(inter[0], kind="threads")
    return _with_intra(request, inter, intra, tiles)


def untiled_tree(request: NestRequest) -> LoopTree:
    """Return the loops of a sum without tiles for caches, held in registers.

    Threads divide the first letter of its output that has as many values, else lines of the last.
    """
    stage, extents = request.statement, request.computation.sizes
    threads, line = request.threads, request.line
    *others, column = stage.output
    inter = []
    divided = next((x for x in others if extents[x] >= threads), column)
    tiles = dict(extents)
    if threads > 1:
        share = -(-extents[divided] // threads)
        share = max(-(-share // line) * line if divided == column else share, 1)
        tiles[divided] = min(share, extents[divided])
        if share < extents[divided]:
            inter = [over(divided, share, "threads")]
    running = {loop.letter for loop in inter if loop.single}
    intra = [x for x in (*others, *stage.summed) if x not in running]
    return _with_intra(request, inter, [*intra, *({column} - running)], tiles)


def followed_tree(request: NestRequest, rows: int = FOLLOWED_ROWS) -> LoopTree | None:
    """Return the loops of `untiled_tree` that walk few rows at once, as many as hardware follows.

    None for sums whose vectors do not walk rows, or over few of them.
    """
    stage, tree = request.statement, untiled_tree(request)
    column, loops = stage.output[-1], [replace(one, body=()) for one in tree.loops]
    letters = [(one.letter, one.kind) for one in loops]
    if len(stage.summed) != 1 or letters[-1] != (column, "vector"):
        return None
    (row,) = stage.summed
    few = request.computation.sizes[row] <= FOLLOWED_ROWS
    if few or (column, "serial") not in letters or _coupled(stage, row, stage.letters):
        return None
    at, held = letters.index((column, "serial")), len(loops) - letters.index((row, "serial"))
    return make_tree(request, [*loops[:at], over(row, rows), *loops[at:]], held)


def lone_rows_tree(request: NestRequest) -> LoopTree | None:
    """Return the loops of `untiled_tree` that add up one row after another, as they lie in memory.

    Several vectors of a row have sums of their own. None where vectors lie along no summed letter.
    """
    stage, tree = request.statement, untiled_tree(request)
    across = tree.letter_of("vector")
    if across not in stage.summed:
        return None
    divided = [replace(one, body=()) for one in tree.loops if one.kind == "threads"]
    running = {one.letter for one in divided if one.single}
    rows = [over(x) for x in stage.output if x not in running]
    held = [*(over(x) for x in stage.summed if x != across), over(across, 1, "vector")]
    return make_tree(request, [*divided, *rows, *held], len(held))


def pixel_tree(request: NestRequest) -> LoopTree | None:
    """Return loops that put pixels together or take them apart; None if there are none.

    Channels are written out around vectors of pixels: all of a pixel is loaded, and stored, at
    once.
    """
    stage, extents = request.statement, request.computation.sizes
    found = find_channels(stage, request.computation)
    if found is None:
        return None
    channel, along = found
    others = [x for x in stage.output if x not in found]
    kinds: list[Kind] = ["threads" if request.threads > 1 and others else "serial"]
    kinds += ["serial"] * len(others)
    loops = [over(x, 1, kind) for x, kind in zip(others, kinds, strict=False)]
    share = -(-extents[along] // request.threads)
    if not others and request.threads > 1 and share > 1:
        loops = [over(along, -(-share // request.line) * request.line, "threads")]
    return make_tree(request, [*loops, over(channel, 1, "unrolled"), over(along, 1, "vector")])


def single_tree(request: NestRequest) -> LoopTree:
    """Return the loops of a sum to a single element: each lane of a vector has a sum of its own.

    Vectors lie along a letter that a read has side by side, if there is one.
    """
    stage, lanes = request.statement, _lanes(request)
    lasts = [one.subscripts[-1] for one in stage.reads if one.subscripts]
    plain = [one.plain for one in lasts if isinstance(one, Affine) and one.plain in stage.summed]
    across = next((x for x in plain if x and not _coupled(stage, x, stage.summed)), None)
    if across is None or lanes <= 1:
        return plain_tree(request)
    loops = [*(over(x) for x in stage.summed if x != across), over(across, 1, "vector")]
    if request.computation.sizes[across] > lanes:
        loops.insert(-1, over(across, lanes))
    return make_tree(request, loops, len(loops))


def sequential_tree(request: NestRequest) -> LoopTree:
    """Return the loops of a statement that reads elements that it computed before.

    The letter along which it does runs in order: threads and vectors divide others.
    """
    stage, extents, threads = request.statement, request.computation.sizes, request.threads
    order = stage.sequence or ""
    others = [x for x in stage.output if x != order]
    column = others.pop() if others and stage.output[-1] != order else None
    loops = [over(x) for x in (*others, order)]
    if others and threads > 1:
        loops[0] = over(others[0], 1, "threads")
    if column is None:
        return make_tree(request, loops)
    share = -(-extents[column] // threads)
    if not others and 1 < share < extents[column]:
        loops.insert(0, over(column, -(-share // request.line) * request.line, "threads"))
    return make_tree(request, [*loops, over(column, 1, "vector")])


def spatial_tree(request: NestRequest, found: SpatialTiles, *, streamed: bool = False) -> LoopTree:
    """Return the loops of spatial tiles: threads divide what the crossed array has side by side.

    Rows are written out around each vector, so that a block is transposed in registers: as many as
    lanes, or as a line that goes past the caches has elements. In the thesis's mode rows run one
    after another.
    """
    stage, extents, lanes = request.statement, request.computation.sizes, _lanes(request)
    if streamed:
        lanes = max(lanes, request.line) if lanes else 0
    others = [x for x in stage.output if x not in (found.row, found.column)]
    loops = []
    if found.height < extents[found.row]:
        kind: Kind = "threads" if request.threads > 1 else "serial"
        loops.append(over(found.row, found.height, kind))
    loops += [over(x) for x in others]
    if 1 < found.width < extents[found.column]:
        loops.append(over(found.column, found.width))
    widest = max(one.element for one in find_references(request.computation, stage))
    vector = _vector_bytes(request) // widest
    written_out = found.height >= lanes > 1 and vector > 1
    if written_out:
        if found.height > lanes:
            loops.append(over(found.row, lanes))
        loops.append(over(found.column, vector))
    if found.height > 1 or found.height == extents[found.row]:
        loops.append(over(found.row, 1, "unrolled" if written_out else "serial"))
    return make_tree(request, [*loops, over(found.column, 1, "vector")], streamed=streamed)


def _lanes(request: NestRequest) -> int:
    """Return the elements of the vectors that registers hold; none in the thesis's mode."""
    return 0 if request.mode == "thesis" else request.lanes


def _vector_bytes(request: NestRequest) -> int:
    return request.machine.vector_bits // 8


def _with_intra(
    request: NestRequest, inter: Sequence[Loop], intra: Sequence[str], tiles: Mapping[str, int]
) -> LoopTree:
    """Return loops over tiles with those within them, the vector loop last."""
    stage, extents, lanes = request.statement, request.computation.sizes, _lanes(request)
    *inner, column = intra or [""]
    sums = [x for x in inner if x in stage.summed]
    if column in {loop.letter for loop in inter if loop.single} or column != stage.output[-1]:
        return make_tree(request, [*inter, *(over(x) for x in intra)])
    vector = over(column, 1, "vector")
    across = _summed_vector(stage, sums) if lanes else None
    outputs = [x for x in inner if x not in sums]
    rows = [x for x in outputs if tiles[x] > 1 and not _coupled(stage, x, stage.summed)]
    if across is not None and sums == [across] and rows:
        short = extents[across] < NEST_SUMMED_VECTORS * lanes
        if short and not _coupled(stage, across, stage.output):
            across = None  # rows share what is loaded for a column
    if not lanes or not sums or (across is None and _coupled(stage, column, stage.summed)):
        return make_tree(request, [*inter, *(over(x) for x in inner), vector])
    if across is not None and _coupled(stage, across, stage.output):
        around = [*inter, *(over(x) for x in (*outputs, column))]
        held = [*(over(x) for x in sums if x != across), over(across, 1, "vector")]
        return make_tree(request, [*around, *held], len(held))
    row = rows[0] if rows else None
    loops = [*inter, *(over(x) for x in outputs if x != row)]
    if across is not None:
        return _across_sum(request, loops, sums, (row, column, across), tiles)
    vectors = -(-tiles[column] // lanes)
    if row or vectors > request.machine.vector_registers - NEST_LONE_VECTORS:
        most = NEST_HELD_VECTORS if row else NEST_LONE_VECTORS
        loops += [over(column, lanes * one.step) for one in _blocks(column, vectors, most)]
    held = [over(x) for x in sums]
    if row is not None:
        loops += _blocks(row, tiles[row], NEST_HELD_ROWS)
        held.append(over(row, 1, "unrolled"))
    held.append(vector)
    return make_tree(request, [*loops, *held], len(held))


def _across_sum(
    request: NestRequest,
    around: Sequence[Loop],
    sums: Sequence[str],
    letters: tuple[str | None, str, str],
    tiles: Mapping[str, int],
) -> LoopTree:
    """Return loops whose vectors lie along a letter of the sum, each lane with a sum of its own."""
    (row, column, across), lanes = letters, _lanes(request)
    loops = [*around, *_blocks(column, tiles[column], NEST_HELD_VECTORS if row else NEST_HELD_ROWS)]
    held = [over(x) for x in sums if x != across]
    if tiles[across] > lanes > 1 and (row is not None or tiles[column] > 1):
        held.append(over(across, lanes))
    if row is not None:
        loops += _blocks(row, tiles[row], NEST_HELD_ROWS)
        held.append(over(row, 1, "unrolled"))
    held += [over(column, 1, "unrolled"), over(across, 1, "vector")]
    return make_tree(request, [*loops, *held], len(held))


def _blocks(letter: str, tile: int, most: int) -> list[Loop]:
    """Return the loop over near-equal blocks of a tile; none if it is one block."""
    count = -(-tile // most)
    return [over(letter, -(-tile // count))] if count > 1 and most > 1 else []


def _summed_vector(stage: Stage, sums: Sequence[str]) -> str | None:
    """Return the letter of a sum along which vectors lie better than along the column letter.

    It is one that is side by side in a read that is crossed, where no read that the sum walks has
    the column letter so.
    """
    column = stage.output[-1]
    found = None
    for read in stage.term.reads:
        last = read.subscripts[-1] if read.subscripts else None
        if not isinstance(last, Affine) or not set(read.letters) & set(sums):
            continue
        if column in last.letters:
            return None
        if column in read.letters and last.plain in sums:
            found = last.plain
    return found


def _coupled(stage: Stage, letter: str, others: Sequence[str]) -> bool:
    """Return whether a condition bounds a letter by others."""
    return any(
        letter in one.letters and any(x in one.letters for x in others if x != letter)
        for one in stage.where
    )
