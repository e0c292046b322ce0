"""The network as the outermost level: how workers divide a contraction, and in which blocks.

Workers divide the classes into shares, as threads divide a letter. A share is a nest of one level
more: its tile stays in a worker's memory, and what comes in crosses the network. The program, the
integer repair and the price are those of all other levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, prod, sqrt

from tilesolve.constants.network import (
    BLOCK_INSTANCES,
    MOST_GRIDS,
    MOST_WORKER_TASKS,
    ROOM_SHARES,
    WORKERS_LEFT_SHARE,
)
from tilesolve.constants.policy import TIME_TOLERANCE
from tilesolve.contractions.errors import MemoryLimitError, SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.cluster import Cluster
from tilesolve.machine.level import HIGHEST_RATE
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.fused import Fused, fuse_share
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import tree_of
from tilesolve.model.nest import REGISTER
from tilesolve.model.price import LevelPrice, price_levels
from tilesolve.model.score import score_times
from tilesolve.model.traffic import count_traffic
from tilesolve.planning.geometric.integers import repair, single_tile
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.optima import optimum
from tilesolve.planning.geometric.program import formulate
from tilesolve.planning.geometric.tilings import nest_of
from tilesolve.planning.setting import Choice, Setting
from tilesolve.planning.worker_cuts import (
    Cut,
    Keeps,
    comes_back,
    fit_cuts,
    held_parts,
    largest_parts,
    list_factorings,
    loop_letters,
    split_class,
)
from tilesolve.system.units import format_size


@dataclass(frozen=True, slots=True)
class Division:
    """How workers divide a contraction, and what crosses the network for it.

    Parameters
    ----------
    problem, machine, cluster
        What is computed, by what workers.
    cuts
        Of each letter.
    order
        The classes of the loops over tiles in a worker, innermost first.
    keeps
        Whether a worker keeps blocks of operands that its loops come back to, and results.
    price
        Bytes of each tensor that cross the network in all, and the time of a worker's part.
    compute
        Seconds of a worker's arithmetic.
    """

    problem: Problem
    machine: Machine
    cluster: Cluster
    cuts: tuple[tuple[str, Cut], ...]
    order: str
    keeps: Keeps
    price: LevelPrice
    compute: float

    @property
    def cut(self) -> Mapping[str, Cut]:
        """The cut of each letter."""
        return dict(self.cuts)

    @property
    def workers(self) -> int:
        """Workers that have a share."""
        return prod(cut.workers for _, cut in self.cuts)

    @property
    def summed(self) -> int:
        """Workers among which sums are split."""
        output = self.problem.spec.output.letters
        return prod(cut.workers for i, cut in self.cuts if i not in output)

    @property
    def moves_once(self) -> bool:
        """Whether no block comes to a worker twice."""
        operands = self.problem.spec.operands
        return self.keeps.blocks or not any(
            comes_back(self.problem, self.cut, self.order, one.letters) for one in operands
        )

    @property
    def tasks(self) -> int:
        """Tasks of one worker."""
        return prod(cut.tiles * cut.chunks for _, cut in self.cuts)

    @property
    def seconds(self) -> float:
        """The predicted time of a worker: what all plans are compared by."""
        return float(
            score_times([self.price.seconds, self.compute], self.machine.costs.level_overlap)
        )

    @property
    def binds(self) -> str:
        """What takes longest: the network, or the arithmetic."""
        return "network" if self.price.seconds > self.compute else "compute"

    @property
    def chunk(self) -> dict[str, int]:
        """The largest chunk of each letter: what one task covers."""
        return largest_parts(self.problem, self.cut, chunks=True)

    @property
    def peak(self) -> int:
        """Bytes of blocks on one worker at any time; finished ones of C count if they are kept."""
        return sum(self.parts)

    @property
    def parts(self) -> list[int]:
        """Those bytes of C, A and B."""
        threads = self.cluster.threads
        return held_parts(self.problem, self.cut, self.order, threads, self.keeps)

    @property
    def loops(self) -> tuple[str, ...]:
        """The letters of the loops over tiles in a worker, innermost first."""
        return loop_letters(self.problem, self.order)

    @property
    def least(self) -> float:
        """Bytes over the network that no division among these workers goes below."""
        return least_bytes(self.problem, self.workers, self.cluster.memory)


def least_bytes(problem: Problem, workers: int, memory: float) -> float:
    """Return bytes that must cross a network in all, whoever computes what.

    Of products: the bound of Al Daas et al. (2022), which holds for any memory, and that of
    2.5-dimensional algorithms, for this much of it. Operands are taken to lie on the workers once;
    those that are made again, where loops come back to them, are not moved.

    Examples
    --------
    >>> [round(least_bytes(Problem.of("mn-mk-kn", 8), workers, 1e9)) for workers in (1, 8)]
    [0, 1536]
    """
    sizes = {one.name: prod(problem.sizes[i] for i in one.letters) for one in problem.classes}
    if not sizes.keys() <= {"M", "N", "K"}:
        return 0.0
    k, n, m = sorted(max(1, sizes.get(name, 1)) for name in "MNK")
    own = (m * n + m * k + n * k) / workers
    if workers * n <= m:
        touched = (m * n + m * k) / workers + n * k
    elif workers * k * k <= m * n:
        touched = 2 * sqrt(m * n * k * k / workers) + m * n / workers
    else:
        touched = 3 * (m * n * k / workers) ** (2 / 3)
    held = memory / problem.itemsize
    limited = 2 * m * n * k / workers / sqrt(held) - 3 * held
    return max(0.0, touched - own, limited) * workers * problem.itemsize


def divide(problem: Problem, machine: Machine, cluster: Cluster) -> Division:
    """Return the division of least score; see `list_divisions`.

    Examples
    --------
    >>> cluster = Cluster(workers=4, memory=10**9, bandwidth=1e9)
    >>> found = divide(Problem.of("ij-ik-kj", 4096), Machine.load("i7-6700k"), cluster)
    >>> {letter: cut.workers for letter, cut in found.cuts}, found.price.volume / 4096**2 / 8
    ({'i': 2, 'j': 2, 'k': 1}, 2.0)
    """
    return list_divisions(problem, machine, cluster)[0]


@lru_cache(maxsize=256)
def list_divisions(problem: Problem, machine: Machine, cluster: Cluster) -> tuple[Division, ...]:
    """Return the division of least score, and others that score about as well.

    Finished chunks of C stay on the workers if there is room for them.

    Raises
    ------
    MemoryLimitError
        If the smallest blocks do not fit beside each other in a worker's memory.
    """
    try:
        found = _list_divisions(problem, machine, cluster, results=True)
    except MemoryLimitError:
        return _list_divisions(problem, machine, cluster, results=False)
    if found[0].moves_once:
        return found
    others = _list_divisions(problem, machine, cluster, results=False)
    return others if others[0].seconds < found[0].seconds else found


def _list_divisions(
    problem: Problem, machine: Machine, cluster: Cluster, *, results: bool
) -> tuple[Division, ...]:
    """Return divisions where results stay, or leave: grids are tried, the best bound first."""
    fused = fuse_share(problem)
    overlap = machine.costs.level_overlap
    # Of grids that move as much, those that split no sums come first.
    grids = sorted(
        _grids(fused, cluster.workers), key=lambda grid: prod(grid[i] for i in fused.reduced)
    )
    waiting = sorted(
        (float(score_times(_least_times(fused, grid, machine, cluster), overlap)), at, grid)
        for at, grid in enumerate(grids)
    )
    found: list[Division] = []
    failed: MemoryLimitError | None = None
    tried = 0
    for least, _, grid in waiting:
        best = min((one.seconds for one in found), default=inf)
        if least >= best * (1 + TIME_TOLERANCE) or (least >= best and tried >= MOST_GRIDS):
            break
        pieces = _split_grid(fused, grid, problem)
        if pieces is None:
            continue
        tried += 1
        try:
            found += _divide_by(problem, fused, pieces, machine, cluster, results=results)
        except MemoryLimitError as error:
            failed = failed or error
    if not found:
        raise failed or MemoryLimitError(f"no workers can divide {problem}")
    found.sort(key=lambda one: (one.seconds, one.summed, one.peak))
    best = found[0].seconds * (1 + TIME_TOLERANCE)
    able = tuple(one for one in found if one.seconds <= best and one.tasks <= MOST_WORKER_TASKS)
    if not able:
        raise MemoryLimitError(
            f"blocks that fit {format_size(cluster.room)} of a worker cut {problem} into "
            f"{found[0].tasks} tasks a worker, {MOST_WORKER_TASKS} at most are made"
        )
    return able


def _grids(fused: Fused, workers: int) -> Iterator[dict[str, int]]:
    """Yield counts of workers along each class, which use all workers or nearly all."""
    sizes = fused.problem.sizes
    for count in range(workers - max(1, int(WORKERS_LEFT_SHARE * workers)), workers + 1):
        for parts in list_factorings(count, len(sizes)) if count else ():
            if all(part <= extent for part, extent in zip(parts, sizes.values(), strict=True)):
                yield dict(zip(sizes, parts, strict=True))


def _least_times(
    fused: Fused, grid: Mapping[str, int], machine: Machine, cluster: Cluster
) -> tuple[float, float]:
    """Return what a grid takes at least: each worker's part of all tensors once, but its own."""
    problem, workers = fused.problem, prod(grid.values())
    moved = sum(
        size * (workers / prod(grid[i] for i in tensor.letters) - 1)
        for size, tensor in zip(problem.bytes, problem.spec.tensors, strict=True)
    )
    return moved / workers / cluster.bandwidth, _arithmetic(problem, workers, machine, cluster)


def _arithmetic(problem: Problem, workers: float, machine: Machine, cluster: Cluster) -> float:
    """Return the seconds of a worker's arithmetic at the peak."""
    return problem.flops / workers / machine.peak(problem.dtype, cluster.threads)


def _split_grid(fused: Fused, grid: Mapping[str, int], problem: Problem) -> dict[str, int] | None:
    """Return how many workers cut each letter; None if letters are too short for that."""
    found: dict[str, int] = {}
    for index, letters in fused.groups:
        parts = split_class(tuple(problem.sizes[i] for i in letters), grid[index], exact=True)
        if parts is None:
            return None
        found |= zip(letters, parts, strict=True)
    return found


def _divide_by(
    problem: Problem,
    fused: Fused,
    pieces: Mapping[str, int],
    machine: Machine,
    cluster: Cluster,
    *,
    results: bool,
) -> list[Division]:
    """Return divisions by a grid of workers, one for each class that may run innermost.

    Tiles are solved for, then cut into chunks.
    """
    share = problem.part({i: max(1, ceil(n / pieces[i])) for i, n in problem.sizes.items()})
    if cluster.room < BLOCK_INSTANCES * len(problem.bytes) * problem.itemsize:
        raise _no_room(problem, share, cluster)
    for share_of_room in ROOM_SHARES:
        setting = _setting(share, machine, cluster, share_of_room * cluster.room)
        found = []
        for choice in list_choices(setting):
            cut, keeps = _cut_for(problem, setting, choice, pieces, cluster, results=results)
            if cut:
                found.append(_priced(problem, setting, choice, cut, machine, cluster, keeps))
        if found:
            return found
    raise _no_room(problem, share, cluster)


def _cut_for(
    problem: Problem,
    setting: Setting,
    choice: Choice,
    pieces: Mapping[str, int],
    cluster: Cluster,
    *,
    results: bool,
) -> tuple[dict[str, Cut], Keeps]:
    """Return the cuts for some loops around tiles, none if none fit, and what is kept.

    If the innermost loop alone is enough, nothing moves twice; else tiles are solved for.
    """
    fused, order = setting.fused, _order(setting.fused, choice)
    given = problem, pieces, fused.problem.sizes, fused, order, cluster
    found, keeps = fit_cuts(*given, results=results)
    if found:
        return found, keeps
    try:
        tiles = _solve_tile(setting, choice)
    except SolverError:
        return {}, keeps
    return fit_cuts(problem, pieces, tiles, fused, order, cluster, results=results)


def _setting(share: Problem, machine: Machine, cluster: Cluster, room: float) -> Setting:
    """Return what tiles of a share are searched for: those that stay in a worker's memory."""
    bare = LevelView(REGISTER, room, 1, "memory", HIGHEST_RATE)
    memory = LevelView("memory", room, 1, "network", cluster.bandwidth)
    rate, none = machine.peak(share.dtype, cluster.threads), (None,) * len(share.spec.operands)
    return Setting(
        fuse_share(share),
        (bare, memory),
        Microkernel(1, 1),
        rate,
        machine.frequency,
        none,
        "stream",
    )


def _solve_tile(setting: Setting, choice: Choice) -> dict[str, int]:
    """Return the tile of each class with some loops around it."""
    found = single_tile(setting, choice)
    if found is None:
        best = optimum(formulate(setting, choice), choice)
        found = repair(setting, choice, best.tiles)[1]
    return {index: chain[-1] for index, chain in found.chains}


def _order(fused: Fused, choice: Choice) -> str:
    """Return the classes of all loops around a tile, innermost first."""
    first = choice[-1] or ""
    return first + "".join(i for i in fused.problem.sizes if i not in first)


def _priced(
    problem: Problem,
    setting: Setting,
    choice: Choice,
    cut: Mapping[str, Cut],
    machine: Machine,
    cluster: Cluster,
    keeps: Keeps,
) -> Division:
    """Return a division with its price: that of one share's nest, for all workers.

    What is kept comes once; if operands are not, memory has what a tile touches, and no more.
    """
    fused, workers = setting.fused, prod(one.workers for one in cut.values())
    share = {i: ceil(n / cut[i].workers) for i, n in problem.sizes.items()}
    chains = {
        index: (
            min(fused.problem.sizes[index], prod(ceil(share[i] / cut[i].tiles) for i in group)),
        )
        for index, group in fused.groups
    }
    places = tuple(replace(place, capacity=inf) for place in setting.places)
    tree = tree_of(fused.problem, nest_of(setting, choice, chains))
    own = price_levels(
        places, count_traffic(tree, places, "distance" if keeps.blocks else "tiles")
    )[-1]
    return Division(
        problem,
        machine,
        cluster,
        tuple(cut.items()),
        _order(fused, choice),
        keeps,
        _of_all(problem, fused.problem, cut, own, cluster),
        _arithmetic(problem, workers, machine, cluster),
    )


def _no_room(problem: Problem, share: Problem, cluster: Cluster) -> MemoryLimitError:
    """Return an error that says what does not fit where."""
    sizes = ", ".join(
        f"{name} {format_size(size)}"
        for name, size in zip(problem.spec.names, share.bytes, strict=True)
    )
    return MemoryLimitError(
        f"no blocks of {problem} fit beside each other in the {format_size(cluster.room)} that "
        f"blocks may take of a worker's {format_size(cluster.memory)}; a share has {sizes}"
    )


def _of_all(
    problem: Problem, share: Problem, cut: Mapping[str, Cut], own: LevelPrice, cluster: Cluster
) -> LevelPrice:
    """Return what all workers take in over the network, given what one share does.

    Each block of an operand lies on a worker that uses it, so that one copy of it does not move;
    nor does one part of C's sums.
    """
    workers = prod(one.workers for one in cut.values())
    found = tuple(
        size * moved / part * (workers / prod(cut[i].workers for i in tensor.letters) - 1)
        for size, part, moved, tensor in zip(
            problem.bytes, share.bytes, own.volumes, problem.spec.tensors, strict=True
        )
    )
    seconds = sum(found) / workers / cluster.bandwidth
    return LevelPrice("network", "memory", found, found, (0.0,) * len(found), seconds)
