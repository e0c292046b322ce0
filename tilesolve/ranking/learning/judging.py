"""How well rankers do on problems that they have not seen: one is left out, the others teach."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan

import numpy as np

from tilesolve.contractions.errors import BenchmarkError, ModelError
from tilesolve.kernels.progress import Progress
from tilesolve.plans.plan import Plan
from tilesolve.ranking.learning.features import list_sets, list_times, name_times
from tilesolve.ranking.learning.learned import LEARNED, LOGISTIC, NETWORK
from tilesolve.ranking.learning.logistic import Numbers, fit_logistic
from tilesolve.ranking.learning.network import count_defeats, train_network
from tilesolve.ranking.order import best_of_first, spearman
from tilesolve.ranking.standings import Standings

FIRST_FEW = 5
"""Variants of each ranker that are run in the hope that one is fast."""

LEAST_PROBLEMS = 3
"""Problems that are needed: one is left out, and the others have to differ."""

LEAST_GAIN = 0.01
"""By how much a learned ranker's mean regret has to be less than the price's to be kept."""

PRICE = "price"
"""The ranker that a learned one has to beat."""


@dataclass(frozen=True, slots=True)
class Trials:
    """The measured variants of one problem.

    Parameters
    ----------
    name
        The problem.
    names
        What the times are of.
    seconds
        What each variant took.
    times, sets
        A row for each of them; no sets where they cannot be counted.
    lacking
        Why there are no sets; empty otherwise.
    scores
        What rankers say of them, by the ranker's name.
    """

    name: str
    names: tuple[str, ...]
    seconds: Numbers
    times: Numbers
    sets: Numbers | None
    lacking: str
    scores: Mapping[str, tuple[float, ...]]


def collect_trials(name: str, found: Standings) -> Trials:
    """Return the variants of a ranking that were measured.

    Raises
    ------
    BenchmarkError
        If fewer than two were, a time is impossible, or there is no score by price.
    """
    timed = [(at, taken) for at, taken in enumerate(found.measured) if taken is not None]
    if len(timed) < 2:
        raise BenchmarkError(f"{name}: two variants or more have to be measured: rank with --run")
    if not all(0 < taken < inf for _, taken in timed):
        raise BenchmarkError(f"{name}: each time must be a positive number")
    if PRICE not in found.rankers:
        raise BenchmarkError(f"{name}: its variants have no scores by price")
    plans = [found.plans[at] for at, _ in timed]
    sets, lacking = _count_sets(plans)
    return Trials(
        name,
        name_times(plans[0]),
        np.array([taken for _, taken in timed]),
        np.array([list_times(plan) for plan in plans]),
        sets,
        lacking,
        {ranker: tuple(values[at] for at, _ in timed) for ranker, values in found.scores},
    )


def _count_sets(plans: Sequence[Plan]) -> tuple[Numbers | None, str]:
    try:
        return np.array([list_sets(plan) for plan in plans]), ""
    except ModelError as error:
        return None, str(error)


@dataclass(frozen=True, slots=True)
class Figures:
    """How well a ranker did on a problem.

    Parameters
    ----------
    first, few
        By which share its first variant, and the best of its first few, are slower than the
        fastest.
    correlation
        Spearman's, of its scores and the seconds.
    """

    first: float
    few: float
    correlation: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """How well rankers did on each problem, learned ones without having seen it.

    Parameters
    ----------
    problems
        Their names.
    figures
        For each ranker those of the problems; None for one without sets.
    """

    problems: tuple[str, ...]
    figures: Mapping[str, tuple[Figures | None, ...]]

    def median(self, ranker: str) -> Figures:
        """Return the medians of a ranker's figures."""
        known = [one for one in self.figures[ranker] if one is not None]
        told = [one.correlation for one in known if not isnan(one.correlation)]
        return Figures(
            statistics.median(one.first for one in known),
            statistics.median(one.few for one in known),
            statistics.median(told) if told else nan,
        )

    def regret(self, ranker: str) -> float:
        """Return the mean of a ranker's regrets of its first variant."""
        return statistics.fmean(one.first for one in self.figures[ranker] if one is not None)

    @property
    def learned(self) -> str:
        """The learned ranker of less regret."""
        known = [name for name in (LOGISTIC, NETWORK) if name in self.figures]
        return min(known, key=self.regret)

    @property
    def gains(self) -> bool:
        """Whether that has clearly less regret than the price, and no more in the median.

        A mean alone may be that of one problem.
        """
        best = self.learned
        less = self.regret(best) < self.regret(PRICE) - LEAST_GAIN
        return less and self.median(best).first <= self.median(PRICE).first


def judge(trials: Sequence[Trials], seed: int, progress: Progress) -> Judgement:
    """Leave out each problem once, learn from the others, and rank its variants.

    Parameters
    ----------
    trials
        Of different problems.
    seed
        Of the network.
    progress
        Told how far it is.

    Raises
    ------
    BenchmarkError
        If there are too few problems.
    """
    if len(trials) < LEAST_PROBLEMS:
        raise BenchmarkError(
            f"{LEAST_PROBLEMS} different problems or more are needed, each left out once, got "
            f"{len(trials)}"
        )
    given = [name for name in dict.fromkeys(n for t in trials for n in t.scores) if name != LEARNED]
    counted = all(one.sets is not None for one in trials)
    found: dict[str, list[Figures | None]] = {name: [] for name in (*given, LOGISTIC)}
    if counted:
        found[NETWORK] = []
    for at, left in enumerate(trials):
        progress(at / len(trials), left.name)
        others = [*trials[:at], *trials[at + 1 :]]
        for name in given:
            scores = left.scores.get(name)
            found[name].append(None if scores is None else _measure(scores, left.seconds))
        weights = fit_logistic([(one.times, one.seconds) for one in others])
        found[LOGISTIC].append(_measure((left.times @ weights).tolist(), left.seconds))
        if left.sets is not None and counted:
            network = train_network(pick_sets(others), seed)
            found[NETWORK].append(_measure(count_defeats(network, left.sets), left.seconds))
    progress(1.0, "")
    return Judgement(
        tuple(one.name for one in trials), {name: tuple(rows) for name, rows in found.items()}
    )


def pick_sets(trials: Sequence[Trials]) -> list[tuple[Numbers, Numbers]]:
    """Return the sets and the seconds of those trials that have sets."""
    return [(one.sets, one.seconds) for one in trials if one.sets is not None]


def _measure(scores: Sequence[float], seconds: Numbers) -> Figures:
    taken = seconds.tolist()
    fastest, few = min(taken), min(FIRST_FEW, len(taken))
    return Figures(
        best_of_first(scores, taken, 1) / fastest - 1,
        best_of_first(scores, taken, few) / fastest - 1,
        spearman(scores, taken),
    )
