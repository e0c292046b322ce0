"""What a study of the price comes to: how well it orders and predicts, and factors of its terms."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, log, nan

import numpy as np
from numpy.typing import NDArray

from tilesolve.bench.results.report import Report, format_figure, geometric_mean, list_facts
from tilesolve.ranking.order import spearman
from tilesolve.studies.method import Method, list_reasons
from tilesolve.studies.priced_plans import (
    CALIBRATED,
    DETECTED,
    PricedCase,
    PricedCases,
    Trial,
    find_priced,
    study_price,
)
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count

VARIANTS = 6
"""Plan and variants of a problem for each machine, unless another number is asked for."""

VARIANT_SECONDS = 0.3
"""Estimated seconds to make and check a variant."""

NEAR_RATIO = 1.25
"""Most that a prediction and a time differ by where they count as near."""

LOSS_SCALE = 0.15
"""Logarithm of a ratio from which on it counts less than its square in a fit."""

PRIOR = 0.3
"""Weight of the guess that a factor is 1, in logarithms of ratios: what does not matter stays."""

FAR_PLANS = 5
"""Plans of each machine that are named because they are furthest off."""

PRICE_UNITS = (
    "of variants: rank correlation of scores and times within a problem, median; of problems: of "
    "plans; regret: by how much the plan is slower than the fastest of all variants of both "
    "machines; factors are fitted to the first suite, and judged on the others by the score"
)
"""What stands below the tables."""


def fit_factors(trials: Sequence[Trial]) -> dict[str, float]:
    """Return the factor of each term by which scores are closest to times, none negative.

    Logarithms of their ratios are compared, and large ones count less than their squares.
    """
    from scipy.optimize import least_squares

    names = list(dict.fromkeys(name for one in trials for name in one.terms))
    times = np.log([one.median for one in trials])

    def differ(factors: NDArray[np.float64]) -> NDArray[np.float64]:
        own = dict(zip(names, factors.tolist(), strict=True))
        found = np.log([one.score(own) for one in trials]) - times
        return np.concatenate([found, PRIOR * (factors - 1)])

    found = least_squares(
        differ, np.ones(len(names)), bounds=(0, np.inf), loss="soft_l1", f_scale=LOSS_SCALE
    )
    return dict(zip(names, found.x.tolist(), strict=True))


def share_near(ratios: Iterable[float]) -> float:
    """Return the share of ratios that are near 1; NaN if there are none.

    Examples
    --------
    >>> share_near([0.7, 0.9, 1.2, 1.3])
    0.5
    """
    every = list(ratios)
    near = sum(1 / NEAR_RATIO <= ratio <= NEAR_RATIO for ratio in every)
    return near / len(every) if every else nan


def _share_of(trials: Sequence[Trial], factors: Mapping[str, float]) -> str:
    return format_figure(share_near(one.score(factors) / one.median for one in trials), "{:.0%}")


def list_machines(found: PricedCases) -> list[str]:
    """Return the machines that plans were made for."""
    return list(dict.fromkeys(name for case in found.done for name in case.machines))


def group_suites(found: PricedCases) -> dict[str, list[PricedCase]]:
    """Return the cases by suite, in the order of the command."""
    groups: dict[str, list[PricedCase]] = {}
    for name in found.conditions.suite.split(","):
        if own := [case for case in found.done if case.suite == name]:
            groups[name] = own
    return groups


def list_price_rows(found: PricedCases) -> list[tuple[str, ...]]:
    """Return for each suite and machine how well the price orders and predicts."""
    rows: list[tuple[str, ...]] = []
    for suite, cases in group_suites(found).items():
        for machine in list_machines(found):
            own = [(case, plan) for case in cases if (plan := case.plan(machine))]
            if not own:
                continue
            known = [value for case, _ in own if isfinite(value := _correlate(case.of(machine)))]
            regrets = [plan.median / min(t.median for t in case.trials) for case, plan in own]
            plans = [plan for _, plan in own]
            ratios = [plan.predicted / plan.median for plan in plans]
            rows.append(
                (
                    *(suite, machine, str(len(plans))),
                    format_figure(statistics.median(known) if known else nan),
                    format_figure(_correlate(plans)),
                    f"{geometric_mean(regrets):.3f}, {max(regrets):.2f}",
                    f"{statistics.median(ratios):.2f}",
                    f"{share_near(ratios):.0%}",
                )
            )
    return rows


def _correlate(trials: Sequence[Trial]) -> float:
    return spearman([one.score() for one in trials], [one.median for one in trials])


def fit_machines(found: PricedCases) -> dict[str, dict[str, float]]:
    """Return the factors of each machine, fitted to the first suite."""
    fitted = next(iter(group_suites(found).values()), [])
    return {
        name: fit_factors(own)
        for name in list_machines(found)
        if (own := [one for case in fitted for one in case.of(name)])
    }


def list_factor_rows(
    found: PricedCases, factors: Mapping[str, Mapping[str, float]]
) -> list[tuple[str, ...]]:
    """Return the factor of each term, and what it alone and all together do to predictions."""
    if not factors:
        return []
    fitted, *others = group_suites(found).values()
    judged, machines = [case for cases in others for case in cases] or fitted, list(factors)
    trials = {name: [one for case in judged for one in case.of(name)] for name in machines}
    terms = dict.fromkeys(term for own in factors.values() for term in own)
    rows = [("none", *(c for name in machines for c in ("", _share_of(trials[name], {}))))]
    for term in terms:
        cells = [term]
        for name in machines:
            value = factors[name].get(term, 1.0)
            cells += [f"{value:.2f}", _share_of(trials[name], {term: value})]
        rows.append(tuple(cells))
    together = (c for name in machines for c in ("", _share_of(trials[name], factors[name])))
    return [*rows, ("all", *together)]


def list_far_plans(found: PricedCases, factors: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a line for each machine: the plans whose times no factors explain, the worst first."""
    lines = []
    for name, own in factors.items():
        plans = [(case.name, plan) for case in found.done if (plan := case.plan(name))]
        ratios = [(plan.score(own) / plan.median, case) for case, plan in plans]
        far = sorted(ratios, key=lambda pair: -abs(log(pair[0])))[:FAR_PLANS]
        listed = ", ".join(f"{ratio:.2f} ({case})" for ratio, case in far)
        lines.append(f"{name}, furthest off with all factors, predicted over measured: {listed}")
    return lines


def compare_machines(found: PricedCases) -> dict[str, str]:
    """Return for each suite how fast calibrated plans are beside detected ones."""
    lines = {}
    for suite, cases in group_suites(found).items():
        ratios = [
            (detected.median / calibrated.median, case.name.rpartition(": ")[2])
            for case in cases
            if (detected := case.plan(DETECTED)) and (calibrated := case.plan(CALIBRATED))
        ]
        if ratios:
            worst, name = min(ratios)
            mean = geometric_mean([ratio for ratio, _ in ratios])
            lines[suite] = (
                f"{mean:.3f} times as fast in the geometric mean, {worst:.2f} at worst ({name})"
            )
    return lines


PRICE_COLUMNS = {"suite": "left", "machine": "left"} | dict.fromkeys(
    ("cases", "of variants", "of problems", "regret, worst", "predicted", "within 25 %"), "right"
)
"""Headers of the table of suites, and the side on which cells stand."""


def report_price(found: PricedCases) -> Report:
    """Return what there is to show of a study."""
    made, factors = found.conditions, fit_machines(found)
    columns = {"factor of": "left"} | dict.fromkeys(
        (head for name in factors for head in (name, f"{name}, within 25 %")), "right"
    )
    return Report(
        f"price, {made.suite}, {format_count(made.threads, 'thread')}",
        list_facts(found),
        PRICE_UNITS,
        compare_machines(found),
        [
            Table("how well the price orders and predicts", PRICE_COLUMNS, list_price_rows(found)),
            Table("terms of the price, fitted", columns, list_factor_rows(found, factors)),
        ],
        [*list_far_plans(found, factors), *list_reasons(found)],
        summed="calibrated beside detected",
    )


METHOD = Method(
    PricedCases,
    study_price,
    report_price,
    VARIANTS,
    lambda count: 2 * count,
    VARIANT_SECONDS,
    "price ",
    find_priced,
)
