"""The network as the outermost level: how workers divide a contraction, and in which blocks.

Workers divide the classes into shares, as threads divide a letter. A share is a nest of one level
more: its tile stays in a worker's memory, and what comes in crosses the network. The program, the
integer repair and the price are those of all other levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, prod, sqrt

from tilesolve.constants.network import (
    BLOCK_INSTANCES,
    MOST_GRIDS,
    MOST_WORKER_TASKS,
    ROOM_SHARES,
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
    loop_letters,
)
from tilesolve.planning.worker_shares import Sharing, list_sharings
from tilesolve.system.units import format_size


@dataclass(frozen=True, slots=True)
class Division:
    """How workers divide a contraction, and what crosses the network for it.

    Parameters
    ----------
    problem, machine, cluster
        What is computed, by what workers.
    sharing
        How workers share the letters.
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
    sharing: Sharing
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
        return self.sharing.workers

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
        return largest_parts(self.cut, chunks=True)

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
    output = problem.spec.output.letters
    # Of those that move as much, the ones that split no sums come first.
    sharings = sorted(
        list_sharings(problem, fused, cluster.workers),
        key=lambda one: prod(number for i, number in one.parts if i not in output),
    )
    waiting = sorted(
        (float(score_times(_least_times(problem, one, machine, cluster), overlap)), at, one)
        for at, one in enumerate(sharings)
    )
    found: list[Division] = []
    failed: MemoryLimitError | None = None
    tried = 0
    for least, _, sharing in waiting:
        best = min((one.seconds for one in found), default=inf)
        if least >= best * (1 + TIME_TOLERANCE) or (least >= best and tried >= MOST_GRIDS):
            break
        # Parts of sums that end at different times stay until they are added.
        if not (results or sharing.even or all(i in output for i, _ in sharing.parts)):
            continue
        tried += 1
        try:
            found += _divide_by(problem, sharing, machine, cluster, results=results)
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


def _least_times(
    problem: Problem, sharing: Sharing, machine: Machine, cluster: Cluster
) -> tuple[float, float]:
    """Return what shares take at least: each worker's part of all tensors once, but its own."""
    moved = sum(
        size * (sharing.copies(tensor.letters) - 1)
        for size, tensor in zip(problem.bytes, problem.spec.tensors, strict=True)
    )
    compute = _arithmetic(problem, sharing.workers, machine, cluster)
    return moved / sharing.workers / cluster.bandwidth, compute


def _arithmetic(problem: Problem, workers: float, machine: Machine, cluster: Cluster) -> float:
    """Return the seconds of a worker's arithmetic at the peak."""
    return problem.flops / workers / machine.peak(problem.dtype, cluster.threads)


def _divide_by(
    problem: Problem,
    sharing: Sharing,
    machine: Machine,
    cluster: Cluster,
    *,
    results: bool,
) -> list[Division]:
    """Return divisions by a way to share, one for each class that may run innermost.

    Tiles are solved for, then cut into chunks.
    """
    share = problem.part({i: max(1, n) for i, n in sharing.longest(problem.sizes).items()})
    if cluster.room < BLOCK_INSTANCES * len(problem.bytes) * problem.itemsize:
        raise _no_room(problem, share, cluster)
    for share_of_room in ROOM_SHARES:
        setting = _setting(share, machine, cluster, share_of_room * cluster.room)
        found = []
        for choice in list_choices(setting):
            cut, keeps = _cut_for(share, setting, choice, sharing, cluster, results=results)
            if cut:
                found.append(
                    _priced(problem, setting, choice, sharing, cut, machine, cluster, keeps)
                )
        if found:
            return found
    raise _no_room(problem, share, cluster)


def _cut_for(
    share: Problem,
    setting: Setting,
    choice: Choice,
    sharing: Sharing,
    cluster: Cluster,
    *,
    results: bool,
) -> tuple[dict[str, Cut], Keeps]:
    """Return the cuts for some loops around tiles, none if none fit, and what is kept.

    If the innermost loop alone is enough, nothing moves twice; else tiles are solved for.
    """
    fused, order = setting.fused, _order(setting.fused, choice)
    sizes = fused.problem.sizes
    found, keeps = fit_cuts(share, sharing, sizes, fused, order, cluster, results=results)
    if found:
        return found, keeps
    try:
        tiles = _solve_tile(setting, choice)
    except SolverError:
        return {}, keeps
    return fit_cuts(share, sharing, tiles, fused, order, cluster, results=results)


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
    sharing: Sharing,
    cut: Mapping[str, Cut],
    machine: Machine,
    cluster: Cluster,
    keeps: Keeps,
) -> Division:
    """Return a division with its price: that of one share's nest, for all workers.

    What is kept comes once; if operands are not, memory has what a tile touches, and no more.
    """
    fused = setting.fused
    chains = {
        index: (
            min(fused.problem.sizes[index], prod(ceil(cut[i].share / cut[i].tiles) for i in group)),
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
        sharing,
        tuple(cut.items()),
        _order(fused, choice),
        keeps,
        _of_all(problem, fused.problem, sharing, own, cluster),
        _arithmetic(problem, sharing.workers, machine, cluster),
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
    problem: Problem, share: Problem, sharing: Sharing, own: LevelPrice, cluster: Cluster
) -> LevelPrice:
    """Return what all workers take in over the network, given what one share does.

    Each block of an operand lies on a worker that uses it, so that one copy of it does not move;
    nor does one part of C's sums.
    """
    found = tuple(
        size * moved / part * (sharing.copies(tensor.letters) - 1)
        for size, part, moved, tensor in zip(
            problem.bytes, share.bytes, own.volumes, problem.spec.tensors, strict=True
        )
    )
    seconds = sum(found) / sharing.workers / cluster.bandwidth
    return LevelPrice("network", "memory", found, found, (0.0,) * len(found), seconds)
