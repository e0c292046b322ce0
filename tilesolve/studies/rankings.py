"""A study of how well rankers order the variants of a problem, all of which are run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from tilesolve.bench.case import Case
from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.fields import Data, read_value
from tilesolve.bench.results.record import Outcome, Record
from tilesolve.bench.results.report import Report, geometric_mean, list_facts
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.ranking.rankers import RANKERS
from tilesolve.ranking.ranking import Ranking, rank
from tilesolve.ranking.table import describe_variant
from tilesolve.studies.method import Method, list_reasons
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration

VARIANTS = 60
"""Variants of a problem, unless another number is asked for."""

VARIANT_SECONDS = 0.2
"""Estimated seconds to make, score and check a variant."""

FIRST_FEW = 5
"""Variants of each ranker that are run in the hope that one is fast."""

RANKING_UNITS = (
    "speeds as shares of the fastest variant's, which half of the rounds pick and the other "
    "half judge, both ways: of the solver's plan, of the first by each ranker, and of the best "
    f"of its first {FIRST_FEW}, where ties count as their mean; Spearman's correlation of "
    "scores and times"
)
"""What the columns are."""


@dataclass(frozen=True, slots=True)
class RankedCase(Outcome):
    """The ranking of one problem, all variants measured."""

    ranking: Ranking | None = None


class RankedCases(Record[RankedCase]):
    """All rankings of a suite so far."""

    HOLDS = "a study of rankings"
    CASE = ContractionCase
    OUTCOME = RankedCase
    COLUMNS = (
        *("variant", "around", "tiles", "split", "packed", "fits", "predicted_s"),
        *(*RANKERS, "median_s", "reason"),
    )

    @property
    def rankings(self) -> dict[str, Ranking]:
        """The rankings by case."""
        return {case.name: case.ranking for case in self.cases if case.ranking is not None}

    @classmethod
    def keep(cls, found: RankedCase) -> dict[str, Any]:
        """Return what is kept of a ranking beside its problem."""
        return {"ranking": json.loads(found.ranking.to_json())} if found.ranking else {}

    @classmethod
    def restore(cls, case: Case[Any], data: Data) -> RankedCase:
        """Return the ranking that was kept as such data."""
        found = Ranking.from_json(json.dumps(read_value(data, "ranking")))
        if not all(found.rounds):
            raise BenchmarkError(f"the ranking of {case.name} has a variant without a time")
        return RankedCase(case, found)

    @classmethod
    def case_rows(cls, case: RankedCase) -> Iterator[tuple[object, ...]]:
        """Yield a line for each variant, in the order of its ranking."""
        assert case.ranking is not None
        found = case.ranking
        scores = dict(found.scores)
        for at, variant in enumerate(found.variants):
            yield (
                *(*describe_variant(variant), variant.plan.seconds),
                *(scores[name][at] if name in scores else "" for name in RANKERS),
                *(found.measured[at], ""),
            )


def study_ranking(
    case: ContractionCase, machine: Machine, procedure: Procedure, count: int, tell: Progress
) -> RankedCase:
    """Rank and run the variants of one problem."""
    ranked = rank(case.work, machine=machine, threads=procedure.threads, variants=count)
    repeat, seconds = procedure.repeat, procedure.seconds
    return RankedCase(case, ranked.run(None, repeat=repeat, seconds=seconds, progress=tell))


def list_rank_columns() -> dict[str, str]:
    """Return the headers of the table of cases, each with the side that its cells stand on."""
    figures = [
        f"{name}: {what}"
        for name in RANKERS
        for what in ("first", f"best of {FIRST_FEW}", "correlation")
    ]
    return {"case": "left"} | dict.fromkeys(
        ("variants", "fastest", "solver's plan", *figures), "right"
    )


def list_rank_rows(found: RankedCases) -> list[tuple[str, ...]]:
    """Return the cells of the table of cases, those first whose solver's plan is furthest off."""
    rankings = sorted(found.rankings.items(), key=lambda item: -item[1].excess)
    return [
        (
            name,
            str(len(one)),
            format_duration(one.fastest),
            f"{1 / (1 + one.excess):.3f}",
            *(cell for ranker in RANKERS for cell in _cells(one, ranker)),
        )
        for name, one in rankings
    ]


def _cells(found: Ranking, ranker: str) -> tuple[str, str, str]:
    if ranker not in found.rankers:
        return "-", "-", "-"
    few = min(FIRST_FEW, len(found))
    shares = (1 / (1 + found.regret(count, ranker)) for count in (1, few))
    first, best = (f"{share:.3f}" for share in shares)
    return first, best, f"{found.correlation(ranker):.2f}"


def summarize_rankings(rankings: Sequence[Ranking]) -> dict[str, str]:
    """Return what the rankings of many problems come to."""
    if not rankings:
        return {}
    shares = [1 / (1 + one.excess) for one in rankings]
    least = geometric_mean([1 / (1 + one.excess_over_least) for one in rankings])
    found = {
        "the solver's plan": f"{geometric_mean(shares):.3f} of the fastest variant's speed in the "
        f"geometric mean, {min(shares):.3f} at worst; {least:.3f} by the least median, luck "
        "included"
    }
    for ranker in RANKERS:
        ranked = [one for one in rankings if ranker in one.rankers]
        if not ranked:
            continue
        first = [1 / (1 + one.regret(1, ranker)) for one in ranked]
        best = [1 / (1 + one.regret(min(FIRST_FEW, len(one)), ranker)) for one in ranked]
        known = [value for one in ranked if not isnan(value := one.correlation(ranker))]
        found[ranker] = (
            f"its first {geometric_mean(first):.3f} in the geometric mean, {min(first):.3f} at "
            f"worst; the best of its first {FIRST_FEW} {geometric_mean(best):.3f} and "
            f"{min(best):.3f}; median rank correlation "
            f"{statistics.median(known) if known else nan:.2f}"
        )
    return found


def list_rank_notes(found: RankedCases) -> list[str]:
    """Return a line for each case without a ranking, and for what rankers lack."""
    lacking: Mapping[str, str] = {
        name: why for one in found.rankings.values() for name, why in one.lacking
    }
    return [*list_reasons(found), *(f"{name}: {why}" for name, why in lacking.items())]


def report_rankings(found: RankedCases) -> Report:
    """Return what there is to show of a study."""
    made = found.conditions
    title = "shares of the fastest variant's speed"
    return Report(
        f"ranking of variants, {made.suite}, {format_count(made.threads, 'thread')}",
        list_facts(found),
        RANKING_UNITS,
        summarize_rankings(list(found.rankings.values())),
        [Table(title, list_rank_columns(), list_rank_rows(found))],
        list_rank_notes(found),
    )


METHOD = Method(
    RankedCases,
    study_ranking,
    report_rankings,
    VARIANTS,
    lambda count: count,
    VARIANT_SECONDS,
    "ranking ",
)
