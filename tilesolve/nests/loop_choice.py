"""Which generated loops compute a statement: strategies yield them, the price decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tilesolve.constants.nests import (
    FOLLOWED_ROWS,
    NEST_ENUMERATED_LETTERS,
    NEST_LONE_ROWS_GAIN,
    NEST_SHARED_ROWS,
    NEST_WRITTEN_PARTS,
    PIPELINE_INLINED_OPERATIONS,
)
from tilesolve.model.loop_tree import LoopTree
from tilesolve.model.price import Price
from tilesolve.nests.classify import NestClass, is_written_once, tile_class
from tilesolve.nests.operations import count_operations
from tilesolve.nests.price import has_whole_lines, price_nest
from tilesolve.nests.request import NestRequest
from tilesolve.nests.setting import Setting, make_setting
from tilesolve.nests.shapes import (
    find_shared_row,
    followed_tree,
    lone_rows_tree,
    make_tree,
    pixel_tree,
    plain_tree,
    rows_tree,
    sequential_tree,
    single_tree,
    spatial_tree,
    tiled_tree,
    untiled_tree,
)
from tilesolve.nests.solutions import LoopSolution
from tilesolve.nests.spatial import block_tiles, spatial_tiles
from tilesolve.nests.temporal import TemporalTiles, enumerate_tiles
from tilesolve.nests.windows import choose_block, windows_tree
from tilesolve.transposes.limits import Limits


@dataclass(frozen=True, slots=True)
class LoopCandidate:
    """Loops of a statement, and why they are so.

    Parameters
    ----------
    tree
        The loops.
    why
        The reason for their tiles, or for none.
    tiles
        The tile of each letter; empty where there are none.
    name_limit
        Returns the array and the cache that keep tiles from being larger, or nothing.
    """

    tree: LoopTree
    why: str
    tiles: Mapping[str, int] = field(default_factory=dict)
    name_limit: Callable[[], str] = str


def choose_loops(request: NestRequest) -> LoopSolution:
    """Return the loops of the least price for a statement; of the least misses in the thesis.

    Its output goes past the caches where that costs less.
    """

    def score(priced: tuple[Price, LoopCandidate]) -> float:
        return request.score(priced[0])

    if request.statement.sequence is not None:
        tree, why = sequential_tree(request), "elements follow from those before them"
        return LoopSolution(request, why, price_loops(request, tree), tree)
    if request.mode in ("default", "untiled") and (pixels := pixel_tree(request)):
        why = "channels of pixels are put together or taken apart in registers"
        return LoopSolution(request, why, price_loops(request, pixels), pixels)
    kind, thesis = tile_class(request.statement), request.mode == "thesis"
    reason, streamed = _untiled_reason(request, kind), _streams(request, kind)
    tiled = [] if reason else list(STRATEGIES[kind](request, streamed))
    why = reason or "no tile fits the caches"
    untiled = [LoopCandidate(one, why) for one in _untiled_trees(request, streamed)]
    found = tiled or untiled
    priced = [(price_loops(request, one.tree), one) for one in found[: 1 if thesis else None]]
    best = min(priced, key=score)
    if best[1].tree.output == "stream" and not thesis:
        cached = replace(best[1], tree=replace(best[1].tree, output="store"))
        best = min((price_loops(request, cached.tree), cached), best, key=score)
    if tiled and kind is NestClass.TEMPORAL and request.mode == "default":
        others = [replace(one, why="tiles would cost more than they save") for one in untiled]
        for count in (FOLLOWED_ROWS, 1) if _keeps_sums(request) else (FOLLOWED_ROWS,):
            if rows := followed_tree(request, count):
                others.append(LoopCandidate(rows, "few rows of a sum are read at once"))
        best = min(best, *((price_loops(request, one.tree), one) for one in others), key=score)
        if rows := lone_rows_tree(request):
            lone = price_loops(request, rows), LoopCandidate(rows, "rows are added up one by one")
            best = lone if score(lone) <= NEST_LONE_ROWS_GAIN * score(best) else best
    cost, one = best
    return LoopSolution(request, one.why, cost, one.tree, one.tiles, one.name_limit())


def price_loops(request: NestRequest, tree: LoopTree) -> Price:
    """Return what loops cost on the machine that they are for."""
    return price_nest(request.computation, tree, request.machine)


def yield_temporal(request: NestRequest, _: bool) -> Iterator[LoopCandidate]:
    """Yield loops whose tiles keep elements near that come back, the fewest misses first."""
    setting = _make_setting(request)
    for one in _find_tiles(setting):
        why = "elements come back: tiles keep them near"
        limit = partial(name_limit, setting, one.tiles, one.ends.outermost_point, one.ends.threads)
        yield LoopCandidate(tiled_tree(request, one), why, dict(one.tiles), limit)


def _find_tiles(setting: Setting) -> list[TemporalTiles]:
    """Return tiles for choices of loops, the least cost first: few letters' are all tried."""
    if len(setting.tiled) <= NEST_ENUMERATED_LETTERS:
        return enumerate_tiles(setting)
    from tilesolve.nests.relaxed import solve_tiles  # loading the solver takes a second

    return solve_tiles(setting)


def yield_spatial(request: NestRequest, streamed: bool) -> Iterator[LoopCandidate]:
    """Yield loops whose tiles keep lines that are read across."""
    setting = _make_setting(request)
    found = spatial_tiles(setting) if request.mode == "thesis" else block_tiles(setting)
    if found is None:
        return
    tree = spatial_tree(request, found, streamed=streamed)
    why = "it reads across lines: tiles keep each line until all of it was used"
    yield LoopCandidate(tree, why, {found.column: found.width, found.row: found.height})


STRATEGIES: Mapping[NestClass, Callable[[NestRequest, bool], Iterator[LoopCandidate]]] = {
    NestClass.TEMPORAL: yield_temporal,
    NestClass.SPATIAL: yield_spatial,
}
"""What finds tiles for a class of statements, given whether the output may go past the caches."""


def name_limit(setting: Setting, tiles: Mapping[str, int], o: str, threads: str | None) -> str:
    """Return the array and the cache that keep a tile from growing; empty if other limits do."""
    for letter in setting.tiled:
        step = setting.step if letter == setting.column else 1
        larger = {**tiles, letter: tiles[letter] + step}
        if larger[letter] > setting.most(letter, threads):
            continue
        for name, excess in setting.conflicts(larger, o).items():
            if excess > 0:
                return name
    return ""


def _untiled_reason(request: NestRequest, kind: NestClass) -> str:
    """Return why a statement gets no tiles; empty if it may get some."""
    stage = request.statement
    if stage.update is not None or any(read.plain is None for read in stage.reads):
        return "positions are computed"
    if not request.computation.points(stage):
        return "there is nothing to compute"
    if kind not in STRATEGIES:
        return "its runs are contiguous: tiles would cut them"
    if request.mode in ("untiled", "plain"):
        return "tiles are not wished"
    if not stage.output:
        return "its output is a single element"
    if request.machine.second_cache is None:
        return f"{request.machine.name} has no second cache"
    if kind is NestClass.TEMPORAL and stage.reduction is None:
        return "nothing is summed"
    return ""


def _make_setting(request: NestRequest) -> Setting:
    return make_setting(
        request.computation,
        request.statement,
        request.machine,
        request.threads,
        "thesis" if request.mode == "thesis" else "default",
        threads_per_core=request.threads_per_core,
        sets=request.sets,
        later=None if request.later is None else (request.later, request.later),
    )


def choose_rows(request: NestRequest, count: int) -> LoopSolution | None:
    """Return the loops of a stencil with so many rows written out; None if a point takes long."""
    row, stage = find_shared_row(request), request.statement
    brief = len(stage.term.all) * count <= NEST_WRITTEN_PARTS
    if row is None or not brief or request.computation.sizes[row] < count:
        return None
    dtypes, column = request.computation.dtypes, stage.output[-1]
    if count_operations(stage.term, dtypes, column, {row: count}) > PIPELINE_INLINED_OPERATIONS:
        return None
    whole = has_whole_lines(request.computation.output, request.machine.levels[0].line)
    past = (False, True) if whole and _streams(request, tile_class(stage)) else (False,)
    trees = [rows_tree(request, row, count, streamed=one) for one in past]
    why = f"{count} rows share what they read and compute"
    found = [LoopSolution(request, why, price_loops(request, one), one) for one in trees]
    return min(found, key=lambda one: one.score)


def _untiled_trees(request: NestRequest, streamed: bool) -> Iterator[LoopTree]:
    """Yield the loops of a statement without tiles, as good as they get."""
    stage = request.statement
    sums = stage.reduction is not None and request.computation.points(stage)
    if sums and request.mode not in ("thesis", "plain"):
        yield untiled_tree(request) if stage.output else single_tree(request)
        if request.mode == "default" and (rows := row_by_row_tree(request)):
            yield rows
        return
    if request.mode == "default" and (block := choose_block(request)):
        yield windows_tree(request, block)
        return
    row = find_shared_row(request) if request.mode == "default" else None
    if row is None or streamed:
        yield plain_tree(request, streamed=streamed)
    if row is not None:
        yield rows_tree(request, row, NEST_SHARED_ROWS)
        if streamed and has_whole_lines(request.computation.output, request.machine.levels[0].line):
            yield rows_tree(request, row, NEST_SHARED_ROWS, streamed=True)


def row_by_row_tree(request: NestRequest) -> LoopTree | None:
    """Return the loops of `untiled_tree` whose tiles follow one another along a row of the output.

    Lines that two of them share are near then. None if they do anyway, or where letters bound one
    another.
    """
    stage = request.statement
    if not stage.output or any(len(one.letters) > 1 for one in stage.where):
        return None
    loops = [replace(one, body=()) for one in untiled_tree(request).loops]
    begin = next((at for at, one in enumerate(loops) if one.letter in stage.summed), 0)
    column = stage.output[-1]
    outer = sorted(loops[:begin], key=lambda x: (x.letter, x.kind) == (column, "serial"))
    if outer == loops[:begin]:
        return None
    return make_tree(request, [*outer, *loops[begin:]], len(loops) - begin)


def _keeps_sums(request: NestRequest) -> bool:
    """Return whether the first cache keeps a row of the output while another one is added to it."""
    output, near = request.computation.output, request.machine.first_cache
    row = output.shape[-1] * np.dtype(output.dtype).itemsize
    return near is not None and 2 * row <= (near.capacity or 0)


def _streams(request: NestRequest, kind: NestClass) -> bool:
    """Return whether the output may go past the caches.

    It may if it is written once, and the last cache does not hold all arrays; in the thesis it does
    always then. Blocks write a line of each of their rows at once: these have to be whole lines,
    and rows of a block that end apart go through the caches.
    """
    stage, computation, machine = request.statement, request.computation, request.machine
    if not is_written_once(stage) or not stage.output or request.mode == "plain":
        return False
    if request.mode == "thesis":
        return True
    in_blocks = request.mode == "default" and kind is NestClass.SPATIAL
    ragged = any(len(one.letters) > 1 for one in stage.where)
    if in_blocks and (ragged or not has_whole_lines(computation.output, machine.levels[0].line)):
        return False
    limit = Limits.of(machine).last_cache_bytes
    return sum(one.bytes for one in computation.arrays) > limit
