"""The score: the seconds by which ways to run one problem are compared.

Levels work at once only in part. So the score is the longest time, a share of all others, and what
is waited for besides. Every comparison of solutions is made by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tilesolve.machine.costs import Costs
from tilesolve.model.price import Price


def score_price(price: Price, overlap: float, waiting: float = 0.0) -> float:
    """Return the seconds that a price is compared by.

    They are what it is predicted to take, and no less than the slowest level takes alone.

    Parameters
    ----------
    price
        What the levels and the arithmetic take.
    overlap
        Share of the time of other levels that shows beside the slowest one's.
    waiting
        Seconds that are lost besides.

    Examples
    --------
    >>> from tilesolve.model.price import LevelPrice
    >>> level = LevelPrice("L1", "register", (8.0,), (8.0,), (0.0,), 3.0)
    >>> score_price(Price((level,), 1.0, 1.0, ()), 0.5, 0.25)
    3.75
    """
    return waiting + float(score_times(price.ranking, overlap))


def begin_seconds(price: Price, costs: Costs) -> float:
    """Return what a contraction's run takes besides its calls and packing; without calls none."""
    return min(price.calls, 1) * costs.contraction_seconds


def score_times(times: ArrayLike, overlap: float) -> Any:  # noqa: ANN401 - a number or an array
    """Return the score of the seconds of all levels and of the arithmetic: of one way, or of many.

    Examples
    --------
    >>> float(score_times([3.0, 1.0], 0.5))
    3.5
    >>> score_times([[3.0, 1.0], [1.0, 1.0]], 0.5)
    array([3.5, 1.5])
    """
    taken = np.asarray(times, dtype=np.float64)
    # Infinite where a way breaks a limit: no times are subtracted.
    return (1 - overlap) * taken.max(axis=0) + overlap * taken.sum(axis=0)
