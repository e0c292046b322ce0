"""Which rows of a table are alike."""

from __future__ import annotations

import numpy as np

from tilesolve.packing.offsets import Integers


def number_rows(rows: Integers) -> tuple[Integers, Integers]:
    """Return where each different row comes first, lesser ones before, and each row's number.

    `numpy.unique` along an axis makes a `TypeError` of an interrupt that comes meanwhile.

    Examples
    --------
    >>> [found.tolist() for found in number_rows(np.array([[1, 2], [0, 5], [1, 2]]))]
    [[1, 0], [1, 0, 1]]
    """
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(len(rows))
    begins = np.ones(len(rows), bool)
    begins[1:] = np.any(rows[order[1:]] != rows[order[:-1]], axis=1)
    numbers = np.empty(len(rows), np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return order[begins], numbers
