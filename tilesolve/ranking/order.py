"""Orders with ties: ranks, how far two orders agree, and what the first few of one are worth.

Tied variants take the mean of the places that they share, never the best of them. A variant that is
picked by some rounds is judged by others: the least of many medians is partly luck.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import comb, inf, nan


def mean_ranks(scores: Sequence[float]) -> list[float]:
    """Return the place of each score, from 1 on; tied ones share the mean of their places.

    Examples
    --------
    >>> mean_ranks([0.2, 0.1, 0.2])
    [2.5, 1.0, 2.5]
    """
    from scipy.stats import rankdata

    return [float(rank) for rank in rankdata(scores)]


def count_ties(scores: Sequence[float]) -> int:
    """Return how many have the score of another one."""
    return sum(scores.count(one) > 1 for one in list(scores))


def kendall(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau of two orders, 1 for the same and -1 for the reverse; NaN for none.

    Examples
    --------
    >>> kendall([1, 2, 3], [10, 20, 30])
    1.0
    """
    from scipy.stats import kendalltau

    if min(len(set(first)), len(set(second))) < 2:
        return nan
    return round(float(kendalltau(first, second).statistic), 12)


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's correlation of two orders; NaN where one has a single score.

    Examples
    --------
    >>> spearman([1, 2, 3], [30, 20, 10])
    -1.0
    """
    from scipy.stats import spearmanr

    if min(len(set(first)), len(set(second))) < 2:
        return nan
    return round(float(spearmanr(first, second).statistic), 12)


def best_of_first(
    scores: Sequence[float],
    seconds: Sequence[float],
    count: int,
    judged: Sequence[float] | None = None,
) -> float:
    """Return the seconds of the fastest of the first few by some scores.

    Where a tie leaves open which are among them, it is the mean over all possible ones.

    The fastest of the first `count` is picked by its seconds. `judged` are other seconds of the
    same variants, by which the picked one is judged.

    Examples
    --------
    A rule that tells nothing apart is worth the mean:

    >>> best_of_first([1.0, 1.0, 1.0], [2.0, 3.0, 4.0], 1)
    3.0
    """
    worth = seconds if judged is None else judged
    ranked = sorted(zip(scores, seconds, worth, strict=True))
    border = ranked[count - 1][0]
    none = (inf, inf)
    sure = min(((taken, value) for score, taken, value in ranked if score < border), default=none)
    tied = sorted((taken, value) for score, taken, value in ranked if score == border)
    drawn = count - sum(score < border for score, *_ in ranked)
    # The fastest of those drawn is number `at` where all others drawn come after it.
    ways = [comb(len(tied) - at - 1, drawn - 1) for at in range(len(tied))]
    found = (way * min(sure, one)[1] for way, one in zip(ways, tied, strict=True))
    return sum(found) / comb(len(tied), drawn)


def halve_rounds(rounds: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Return median seconds by each half of the rounds; who has too few counts with all of them.

    Rounds 1, 4, 5, 8 and so on are a half, 2, 3, 6, 7 the other one: variants that run in turns,
    every other time in reverse, run as often early as late in both.

    Examples
    --------
    >>> halve_rounds([[1.0, 2.0, 2.5, 3.0], [4.0]])
    ([2.0, 4.0], [2.25, 4.0])
    """
    first, second = (
        [
            statistics.median(each[half::4] + each[3 - half :: 4] or each)
            for each in map(list, rounds)
        ]
        for half in range(2)
    )
    return first, second
