"""Plans for several workers: how they divide a problem, and the plan of what one task computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Self

from tilesolve.contractions.argument_kinds import check_factor
from tilesolve.contractions.errors import MachineError, PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.cluster import Cluster, read_cluster
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import scale_figures
from tilesolve.model.price import LevelPrice
from tilesolve.planning.network import Division, divide
from tilesolve.planning.solution import Solution
from tilesolve.plans.files import FORMAT, refuse_damage, seal, unseal
from tilesolve.plans.plan import Plan, plan
from tilesolve.plans.report import least_volumes, level_row, write_report
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration, format_size

HOLDS = "a plan for workers"
"""What such JSON says that it holds."""


class ClusterPlan(Plan):
    """The plan of the largest chunk that a task computes, and the network around it.

    Parameters
    ----------
    division
        How workers divide the whole problem.
    solution
        Of a chunk.

    Examples
    --------
    >>> found = plan("ij-ik-kj", 4096, "i7-6700k", workers=Cluster(4, 10**9, 1e9), cache=False)
    >>> found.division.workers, found.problem.sizes["k"]
    (4, 4096)
    >>> ClusterPlan.from_json(found.to_json()) == found
    True
    """

    __slots__ = ("division",)

    division: Division

    def __init__(self, division: Division, solution: Solution) -> None:
        super().__init__(solution)
        object.__setattr__(self, "division", division)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.division, self._solution)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterPlan):
            return NotImplemented
        return (self.division, self._solution) == (other.division, other._solution)

    def __hash__(self) -> int:
        return hash((self.division.problem, self.division.cluster, self._solution))

    def __repr__(self) -> str:
        found = self.division
        return f"<ClusterPlan {found.problem.spec} on {found.workers} workers, {found.binds} binds>"

    def __str__(self) -> str:
        return "\n".join((*_list_network(self), "", write_report(self._solution)))

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value."""
        problem, cluster = self.division.problem, asdict(self.division.cluster)
        whole = {"spec": str(problem.spec), "sizes": dict(problem.sizes), "dtype": problem.dtype}
        data = {"problem": whole, "cluster": cluster, "chunk": super().to_json()}
        return seal(HOLDS, FORMAT, data)

    @classmethod
    def from_json(cls, text: str) -> ClusterPlan:
        """Read a plan from JSON.

        Raises
        ------
        PlanError
            If it is no such plan, or workers would now divide the problem otherwise.
        """
        data = unseal(text, HOLDS, FORMAT)
        with refuse_damage():
            problem, chunk = Problem.of(**data["problem"]), Plan.from_json(data["chunk"])
            division = divide(problem, chunk.machine, Cluster(**data["cluster"]))
        if problem.part(division.chunk) != chunk.problem:
            raise PlanError("workers divide the problem otherwise now: make the plan again")
        return cls(division, chunk.solution)

    def whatif(self, **factors: float) -> Self:
        """Return the plan for workers and a network with some figures multiplied.

        Parameters
        ----------
        **factors
            As `Plan.whatif` has them, of each worker; or ``network_bandwidth``.

        Examples
        --------
        >>> found = plan("ij-ik-kj", 4096, "i7-6700k", workers=Cluster(4, 10**9, 1e9), cache=False)
        >>> found.whatif(network_bandwidth=0.01).division.binds
        'network'
        """
        division, factor = self.division, factors.pop("network_bandwidth", 1.0)
        check_factor(factor, "network_bandwidth", MachineError)
        cluster = replace(division.cluster, bandwidth=factor * division.cluster.bandwidth)
        machine = scale_figures(self.machine, factors)
        found = plan_for_workers(division.problem, machine, cluster, cache=False)
        return type(self)(found.division, found.solution)


def plan_for_workers(
    problem: Problem, machine: Machine, workers: int | Cluster, *, cache: bool
) -> ClusterPlan:
    """Return the plan of a problem for workers that are such machines."""
    division = divide(problem, machine, read_cluster(workers))
    chunk = plan(problem.part(division.chunk), None, machine, threads=1, cache=cache)
    return ClusterPlan(division, chunk.solution)


def _list_network(found: ClusterPlan) -> Iterator[str]:
    """Yield the lines of a report about workers: shares, chunks, and all levels of one of them."""
    division, problem = found.division, found.division.problem
    cluster = division.cluster
    yield (
        f"{problem} on {division.workers} workers of {found.machine.name}, "
        f"{cluster.threads} thread{'s' if cluster.threads > 1 else ''} each"
    )
    rows = [["letter", "workers", "tiles of a share", "chunks of a tile", "chunk"]]
    for letter, cut in division.cuts:
        counts = (cut.workers, cut.tiles, cut.chunks, division.chunk[letter])
        rows.append([letter, *map(str, counts)])
    yield from align_columns(rows)
    yield f"workers share: {division.sharing}"
    yield (
        f"predicted: {format_duration(division.seconds)} besides what chunks lose, "
        f"bound by {division.binds}"
    )
    kept = (
        "keeps blocks that loops come back to"
        if division.keeps.blocks
        else "lets blocks come again"
    )
    yield (
        f"a worker {kept}: blocks take {format_size(division.peak)} at most, of "
        f"{format_size(cluster.room)} that they may"
    )
    yield "a worker's levels:"
    yield from align_columns(list(_rows(found)))


def _rows(found: ClusterPlan) -> Iterator[list[str]]:
    """Yield the table of all levels: what one worker moves, the network last."""
    division, price = found.division, found.price
    tasks = division.tasks
    levels = [_times(level, tasks) for level in price.levels]
    levels.append(
        replace(_times(division.price, 1 / division.workers), seconds=division.price.seconds)
    )
    least = [tasks * one for one in least_volumes(found.solution)]
    least.append(division.least / division.workers)
    compute = tasks * price.compute
    longest = max(compute, *(level.seconds for level in levels)) or 1.0
    yield [
        "level",
        *division.problem.spec.names,
        "packing",
        "together",
        "at least",
        "time",
        "of longest",
    ]
    for level, bound in zip(levels, least, strict=True):
        yield level_row(level, bound, longest)
    filler = ["-"] * (len(division.problem.spec.names) + 3)
    yield ["compute", *filler, format_duration(compute), f"{compute / longest:.0%}"]


def _times(level: LevelPrice, factor: float) -> LevelPrice:
    """Return a level's price so many times."""
    volumes, packing = (tuple(factor * n for n in part) for part in (level.volumes, level.packing))
    moved = tuple(factor * n for n in level.moved)
    return replace(
        level, moved=moved, volumes=volumes, packing=packing, seconds=factor * level.seconds
    )
