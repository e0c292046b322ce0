"""The results of studies of tilings of nests, as values, and how they are shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from types import MappingProxyType

from tilesolve.bench.nests import NestCase
from tilesolve.bench.results.record import Outcome, Record
from tilesolve.bench.results.report import Report, format_figure, geometric_mean, list_facts
from tilesolve.machine.model import Machine
from tilesolve.model.price import list_levels
from tilesolve.model.runs import later_share
from tilesolve.ranking.order import best_of_first, spearman
from tilesolve.studies.method import list_reasons
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration

SHARES: Mapping[str, float] = MappingProxyType({"runs": 0.0, "lines": 1.0})
"""What alone may count when tiles are planned, and the share of a run's first line that each
further one costs then."""

PLANNED, DRAWN = "planned", "drawn"
"""Kinds of tilings: the plan's own, and those that are drawn. A kind with a name of `SHARES` is
what is planned where runs, or lines, are all that counts."""

TILING_UNITS = (
    "Spearman's correlation of the times predicted for drawn tilings and those measured; rank of "
    "the planned tiles among them; speeds as shares of the fastest's: of the planned tiles, and of "
    "the drawn ones that the price likes best; how many times as long as the plan tiles take that "
    "are planned where runs alone count (the thesis), or all lines alike (no prefetching)"
)
"""What the columns are."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles of a nest that were run.

    `loops` has those of each statement, `score` the predicted seconds, `seconds` those of
    each round.
    """

    kind: str
    loops: str
    score: float
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median round."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class TiledNest(Outcome):
    """What a study of one nest found.

    The planned tiling comes first.

    Examples
    --------
    >>> from tilesolve.bench.nests import find_nests
    >>> own = Tiling(PLANNED, "i j k", 1.0, (2.0,))
    >>> drawn = [Tiling(DRAWN, "k j i", 1.0 + n, (4.0 + n, 1.0 + n)) for n in range(3)]
    >>> found = TiledNest(find_nests("nests")["matmul"], (own, *drawn))
    >>> found.correlation, found.rank, found.share
    (1.0, 1, 1.0)
    """

    tilings: tuple[Tiling, ...] = ()

    @property
    def drawn(self) -> list[Tiling]:
        """The tilings that were drawn."""
        return [one for one in self.tilings if one.kind == DRAWN]

    @property
    def correlation(self) -> float:
        """Spearman's correlation of predicted and measured times of what was drawn."""
        return spearman([one.score for one in self.drawn], [one.median for one in self.drawn])

    @property
    def fastest(self) -> float:
        """The least median of all."""
        return min(one.median for one in self.tilings)

    @property
    def rank(self) -> int:
        """The rank of the planned tiles among those drawn, 1 for the fastest."""
        own = self.tilings[0].median
        return 1 + sum(one.median < own for one in self.drawn)

    @property
    def share(self) -> float:
        """The speed of the planned tiles as a share of the fastest's."""
        return self.fastest / self.tilings[0].median

    @property
    def first(self) -> float:
        """The speed of what the price likes best of those drawn, as a share of the fastest's."""
        drawn = self.drawn
        if not drawn:
            return nan
        scores, seconds = [one.score for one in drawn], [one.median for one in drawn]
        return self.fastest / best_of_first(scores, seconds, 1)

    def ratio(self, kind: str) -> float:
        """Return how many times as long as the plan what is planned otherwise takes."""
        found = [one.median for one in self.tilings if one.kind == kind]
        return found[0] / self.tilings[0].median if found else nan


class TiledNests(Record[TiledNest]):
    """All studies of tilings so far."""

    HOLDS = "a study of tilings of nests"
    CASE = NestCase
    OUTCOME = TiledNest
    COLUMNS = (
        *("kind", "loops", "predicted_s"),
        *("median_s", "least_s", "most_s", "rounds", "reason"),
    )

    @classmethod
    def case_rows(cls, case: TiledNest) -> Iterator[tuple[object, ...]]:
        """Yield a line for each tiling, the planned one first."""
        for one in case.tilings:
            yield (
                *(one.kind, one.loops, one.score),
                *(one.median, min(one.seconds), max(one.seconds), len(one.seconds), ""),
            )


def list_tiling_columns() -> dict[str, str]:
    """Return the headers of the table of nests, each with the side that its cells stand on."""
    figures = [
        *("tilings", "fastest", "slowest", "correlation"),
        *("rank of the plan", "its speed", "speed of the price's first"),
        *(f"planned by {name}" for name in SHARES),
    ]
    return {"nest": "left", "sizes": "left"} | dict.fromkeys(figures, "right")


def list_tiling_rows(found: TiledNests) -> list[tuple[str, ...]]:
    """Return the cells of the table of nests, those first that the price orders worst."""
    return [
        (
            case.name,
            " ".join(f"{letter}={extent}" for letter, extent in case.work.sizes),
            str(len(case.drawn)),
            format_duration(case.fastest),
            format_duration(max(one.median for one in case.tilings)),
            format_figure(case.correlation),
            f"{case.rank} of {1 + len(case.drawn)}",
            *(format_figure(value) for value in (case.share, case.first)),
            *(format_figure(case.ratio(name)) for name in SHARES),
        )
        for case in sorted(found.done, key=lambda case: case.correlation)
    ]


def summarize_tilings(found: TiledNests) -> dict[str, str]:
    """Return what the studies of many nests come to.

    Nothing where there are none.
    """
    cases = found.done
    if not cases:
        return {}
    shares = [case.share for case in cases]
    summed = {"correlation": _describe(cases)}
    summed["speed of the plan"] = (
        f"{geometric_mean(shares):.2f} of the fastest in the geometric mean, "
        f"{min(shares):.2f} at worst"
    )
    for name in SHARES:
        ratios = [value for case in cases if isfinite(value := case.ratio(name))]
        summed[f"planned by {name}"] = (
            f"{geometric_mean(ratios):.2f} times as long in the geometric mean; slower for "
            f"{sum(value > 1 for value in ratios)} of {len(ratios)} nests, the same tiles for "
            f"{sum(value == 1 for value in ratios)}"
        )
    return summed


def _describe(cases: Sequence[TiledNest]) -> str:
    """Return the median correlation, and the worst nest by it."""
    known = [(value, case.name) for case in cases if isfinite(value := case.correlation)]
    if not known:
        return "-"
    worst, name = min(known)
    middle = statistics.median(value for value, _ in known)
    return f"median {middle:.2f}, worst {worst:.2f} ({name})"


def describe_shares(machine: Machine, threads: int) -> str:
    """Return what each further line of a run costs at each level, as a share of its first one.

    Examples
    --------
    >>> describe_shares(Machine.load("i7-6700k"), 1)
    'L2 0.25 (assumed), L3 0.25 (assumed), memory 0.25 (assumed)'
    """
    found = []
    for place in list_levels(machine, threads)[1:]:
        level = machine.level(place.server)
        share = later_share(level, place.line / (place.read or place.bandwidth))
        known = "" if level.start is not None else " (assumed)"
        found.append(f"{level.name} {share:.2f}{known}")
    return ", ".join(found)


def list_tiling_facts(found: TiledNests) -> dict[str, str]:
    """Return what a reader has to know of a study."""
    machine = Machine.from_toml(found.machine)
    return {
        **list_facts(found),
        "share of a run's first line": describe_shares(machine, found.conditions.threads),
    }


def report_tilings(found: TiledNests) -> Report:
    """Return what there is to show of a study."""
    made = found.conditions
    return Report(
        f"tilings of {made.suite}, {format_count(made.threads, 'thread')}",
        list_tiling_facts(found),
        TILING_UNITS,
        summarize_tilings(found),
        [Table("", list_tiling_columns(), list_tiling_rows(found))],
        list_reasons(found),
        summed="all nests",
    )
