"""How each statement of a computation is run, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from tilesolve.constants.policy import NEST_BLOCK_KINDS, NEST_CONTRACTION_FLOPS
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.contraction import find_contraction
from tilesolve.contractions.statements.stage import Stage
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine
from tilesolve.model.price import Price
from tilesolve.model.score import score
from tilesolve.nests.blocks import make_blocks
from tilesolve.nests.choices import NestChoice, NestMode, Route
from tilesolve.nests.classify import NestClass, classify, find_move, is_written_once, tile_class
from tilesolve.nests.interference import Sets
from tilesolve.nests.price import has_whole_lines, price_nest, region_share
from tilesolve.nests.product_plans import score_choice
from tilesolve.nests.programs import LoopNest, plain_nest, write_program
from tilesolve.nests.setting import Setting, make_setting
from tilesolve.nests.shapes import spatial_nest, tiled_nest, untiled_nest
from tilesolve.nests.spatial import block_tiles, spatial_tiles
from tilesolve.nests.split import single, split_sums
from tilesolve.nests.steps import lanes_of
from tilesolve.nests.temporal import TemporalTiles
from tilesolve.nests.tiles import temporal_tiles
from tilesolve.system.checks import check_threads
from tilesolve.transposes.limits import Limits


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a caller asks for beside the computation."""

    machine: Machine
    threads: int
    mode: NestMode
    route: Route | None
    threads_per_core: int | None
    sets: Sets
    later: float | None

    def lanes(self, dtype: str) -> int:
        """Return the elements of a vector."""
        return lanes_of(dtype, self.machine)

    def score(self, cost: Price) -> float:
        """Return what loops are compared by."""
        return score(cost, self.machine.costs.level_overlap)


def plan_nest(
    computation: Computation,
    machine: Machine,
    threads: int = 1,
    mode: NestMode = "default",
    route: Route | None = None,
    *,
    threads_per_core: int | None = None,
    sets: Sets = "cache",
    later: float | None = None,
) -> tuple[NestChoice, ...]:
    """Decide how each statement of a computation is run.

    Statements with sums inside larger terms become several, unless they are contractions as a
    whole.

    Parameters
    ----------
    computation
        The statements and their extents.
    machine
        Whose caches and costs count.
    threads
        Those that share the work.
    mode
        ``"thesis"`` decides by the printed formulas and costs, and holds no registers;
        ``"untiled"`` takes no tiles; ``"plain"`` holds no registers either: threads outside,
        vectors inside, and nothing else.
    route
        What is to run it; the best if None, which is a nest in all modes but the default.
    threads_per_core
        Those that share a core's caches; if None as many as the machine has, in the thesis's mode
        or where there are more threads than cores.
    sets
        How the number of sets of a cache is read, see `Sets`.
    later
        The share of a run's first line that each further one costs, at all levels; the machine's
        if None.

    Raises
    ------
    PlanError
        If a statement cannot take the route.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("m[y,x] = A[x,y] & B[y,x]"), 512, "int32")
    >>> (choice,) = plan_nest(found, Machine.load("i7-6700k"))
    >>> choice.kind.name, choice.route, choice.tiles
    ('SPATIAL', 'nest', {'x': 256, 'y': 512})
    """
    for name, value, known in (
        ("mode", mode, get_args(NestMode)),
        ("route", route, (*get_args(Route), None)),
        ("sets", sets, get_args(Sets)),
    ):
        if value not in known:
            raise PlanError(f"{name} is one of {', '.join(map(str, known))}, not {value!r:.60}")
    check_threads(threads)
    if mode != "default" and route not in (None, "nest"):
        raise PlanError(f"mode {mode!r} has generated loops, not the route {route!r}")
    if mode != "default":
        route = "nest"
    wish = _Wish(machine, threads, mode, route, threads_per_core, sets, later)
    found: list[NestChoice] = []
    for position, stage in enumerate(computation.stages):
        own = single(computation, stage)
        whole = _other_route(position, own, wish)
        if whole is not None:
            found.append(whole)
            continue
        parts = split_sums(own)
        for part in parts.stages:
            one = single(parts, part)
            elsewhere = _other_route(position, one, wish) if len(parts.stages) > 1 else None
            found.append(elsewhere or _nest(position, one, wish))
    return tuple(found)


def _other_route(position: int, computation: Computation, wish: _Wish) -> NestChoice | None:
    """Return a statement as a contraction or a transpose, where that is wished or better."""
    (stage,) = computation.stages
    if wish.route == "nest":
        return None
    kind = classify(computation, stage)
    contraction, reason = find_contraction(stage, computation.dtypes)
    if stage.where and not computation.points(stage):
        contraction, reason = None, "there is nothing to compute"
    if contraction is not None and wish.route != "transpose":
        flops = contraction.flops(computation) * region_share(stage, computation.sizes)
        if wish.route == "contraction" or flops >= NEST_CONTRACTION_FLOPS:
            why = f"it is the contraction {contraction} of {int(flops):,} operations"
            found = NestChoice(
                position, computation, kind, "contraction", why, contraction=contraction
            )
            if not stage.where:
                return found
            if (in_region := _region(found, wish)) is not None:
                return in_region
    if wish.route == "contraction":
        raise PlanError(f"{stage} is no contraction: {reason}")
    axes = find_move(stage, computation)
    if axes is not None:
        why = f"it moves {stage.reads[0].array} as it is"
        return NestChoice(position, computation, kind, "transpose", why, axes=axes)
    if wish.route == "transpose":
        raise PlanError(f"{stage} is no transpose: {stage.name} is not one array, moved as it is")
    return None


def _region(found: NestChoice, wish: _Wish) -> NestChoice | None:
    """Return a contraction in a region as blocks; None where loops are better and not refused."""
    alone = replace(wish, machine=divide_machine(wish.machine, wish.threads), threads=1)

    def plan_loops(computation: Computation, apart: bool) -> tuple[NestChoice, ...]:
        parts = split_sums(computation)
        own = alone if apart else wish
        return tuple(_nest(found.stage, single(parts, one), own) for one in parts.stages)

    blocks = make_blocks(found, wish.threads, plan_loops)
    made = replace(found, blocks=blocks, why=f"{found.why} in {len(blocks.places)} blocks")
    if wish.route == "contraction":
        return made
    if len(blocks.kinds) > NEST_BLOCK_KINDS:
        return None
    loops = plan_loops(found.computation, False)
    limit = sum(score_choice(one, wish.machine, wish.threads) for one in loops)
    return made if score_choice(made, wish.machine, wish.threads) <= limit else None


def _nest(position: int, computation: Computation, wish: _Wish) -> NestChoice:
    """Return a statement as generated loops."""
    (stage,) = computation.stages
    kind = tile_class(stage)
    streamed = _streams(computation, stage, wish)
    plain = _untransformed(computation, wish)
    found = _tiled(computation, kind, wish)
    if isinstance(found, str):
        found = _Tiled(plain, {}, "", found)
    cost = _price(computation, found.nest, wish, streamed)
    if streamed and wish.mode != "thesis":
        cached = _price(computation, found.nest, wish, False)
        if wish.score(cached) <= wish.score(cost):
            streamed, cost = False, cached
    if wish.mode == "default" and kind is NestClass.TEMPORAL and found.nest is not plain:
        untiled = _price(computation, plain, wish, streamed)
        if wish.score(untiled) < wish.score(cost):
            found = _Tiled(plain, {}, "", "tiles would cost more than they save")
            cost = untiled
    past = frozenset([stage.name] if streamed else [])
    return NestChoice(
        position,
        computation,
        kind,
        "nest",
        found.why,
        found.tiles,
        found.nest,
        found.capped_by,
        cost,
        write_program(computation, found.nest, past),
    )


@dataclass(frozen=True, slots=True)
class _Tiled:
    """Loops, their tiles, what keeps these from being larger, and why they are so."""

    nest: LoopNest
    tiles: Mapping[str, int]
    capped_by: str
    why: str


def _tiled(computation: Computation, kind: NestClass, wish: _Wish) -> _Tiled | str:
    """Return loops with the tiles of a class; or why there are none."""
    (stage,) = computation.stages
    if reason := _untiled_reason(computation, kind, wish):
        return reason
    extents = dict(computation.sizes)
    setting = _setting(computation, wish)
    lanes = wish.lanes(computation.output.dtype) if wish.mode == "default" else None
    if kind is NestClass.SPATIAL:
        across = spatial_tiles(setting) if lanes is None else block_tiles(setting)
        if across is None:
            return "no tile fits the caches"
        if lanes is not None and _streams(computation, stage, wish):
            lanes = max(lanes, _line(computation, wish.machine))
        return _Tiled(
            spatial_nest(stage, extents, across, threads=wish.threads, lanes=lanes),
            {across.column: across.width, across.row: across.height},
            "",
            "it reads across lines: tiles keep each line until all of it was used",
        )
    several = temporal_tiles(setting)
    if not several:
        return "no tile fits the caches"
    found, nest = _pick(computation, several, lanes, wish)
    return _Tiled(
        nest,
        dict(found.tiles),
        capping(setting, found.tiles, found.ends.o, found.ends.threads),
        "elements come back: tiles keep them near",
    )


def _pick(
    computation: Computation, several: Sequence[TemporalTiles], lanes: int | None, wish: _Wish
) -> tuple[TemporalTiles, LoopNest]:
    """Return tiles and their loops: those of the least price; in the thesis of the least misses."""
    (stage,), extents = computation.stages, dict(computation.sizes)
    nests = [
        (one, tiled_nest(stage, extents, one, threads=wish.threads, lanes=lanes)) for one in several
    ]
    if wish.mode == "thesis":
        return nests[0]
    streamed = _streams(computation, stage, wish)
    return min(
        nests,
        key=lambda pair: wish.score(_price(computation, pair[1], wish, streamed)),
    )


def _untiled_reason(computation: Computation, kind: NestClass, wish: _Wish) -> str:
    """Return why a statement gets no tiles; empty if it may get some."""
    (stage,) = computation.stages
    if stage.update is not None or any(read.plain is None for read in stage.reads):
        return "positions are computed"
    if not computation.points(stage):
        return "there is nothing to compute"
    if kind is NestClass.NO_TRANSFORM:
        return "its runs are contiguous: tiles would cut them"
    if wish.mode in ("untiled", "plain"):
        return "tiles are not wished"
    if not stage.output:
        return "its output is a single element"
    if wish.machine.second_cache is None:
        return f"{wish.machine.name} has no second cache"
    if kind is NestClass.TEMPORAL and stage.reduction is None:
        return "nothing is summed"
    return ""


def _setting(computation: Computation, wish: _Wish) -> Setting:
    return make_setting(
        computation,
        computation.stages[0],
        wish.machine,
        wish.threads,
        "thesis" if wish.mode == "thesis" else "default",
        threads_per_core=wish.threads_per_core,
        sets=wish.sets,
        later=None if wish.later is None else (wish.later, wish.later),
    )


def _untransformed(computation: Computation, wish: _Wish) -> LoopNest:
    """Return the loops of a statement without tiles, as good as they get."""
    (stage,) = computation.stages
    extents = dict(computation.sizes)
    sums = stage.reduction is not None and bool(stage.output) and bool(computation.points(stage))
    if sums and wish.mode not in ("thesis", "plain"):
        lanes = wish.lanes(computation.output.dtype)
        return untiled_nest(stage, extents, wish.threads, _line(computation, wish.machine), lanes)
    return plain_nest(stage, extents, wish.threads, _line(computation, wish.machine))


def _line(computation: Computation, machine: Machine) -> int:
    """Return the elements of a line of the output."""
    size = np.dtype(computation.output.dtype).itemsize
    return max(machine.levels[0].line // size, 1)


def _streams(computation: Computation, stage: Stage, wish: _Wish) -> bool:
    """Return whether the output may go past the caches.

    It may if it is written once, and the last cache does not hold all arrays; in the thesis it does
    always then. Blocks write a line of each of their rows at once: these have to be whole lines.
    """
    if not is_written_once(stage) or not stage.output or wish.mode == "plain":
        return False
    if wish.mode == "thesis":
        return True
    in_blocks = wish.mode == "default" and tile_class(stage) is NestClass.SPATIAL
    if in_blocks and not has_whole_lines(computation.output, wish.machine.levels[0].line):
        return False
    limit = Limits.of(wish.machine).last_cache_bytes
    return sum(one.bytes for one in computation.arrays) > limit


def _price(computation: Computation, nest: LoopNest, wish: _Wish, streamed: bool) -> Price:
    return price_nest(computation, nest, wish.machine, wish.threads, streamed=streamed)


def capping(setting: Setting, tiles: Mapping[str, int], o: str, threads: str | None) -> str:
    """Return the array and the cache that keep a tile from growing; empty if other limits do."""
    for letter in setting.tiled:
        step = setting.step if letter == setting.column else 1
        larger = {**tiles, letter: tiles[letter] + step}
        if larger[letter] > setting.most(letter, threads):
            continue
        for name, excess in setting.crowded(larger, o).items():
            if excess > 0:
                return name
    return ""
