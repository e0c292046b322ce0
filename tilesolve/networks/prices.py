"""What works are predicted to take where they run: in a network, which leaves arrays in caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

import numpy as np

from tilesolve.machine.costs import Costs
from tilesolve.networks.places import Blocks, Place
from tilesolve.networks.works import LayerWork, Since, WinogradWork, Work
from tilesolve.packing.memory_overlap import Array


def predict_works(works: Sequence[Work], blocks: Blocks, costs: Costs) -> list[float | None]:
    """Return the predicted seconds of each work, None if nothing predicts them.

    Works run again and again, each on what earlier ones left in caches. Weights, and code, come
    back once a call, after all else was touched.
    """
    weights = [
        work.weight_bytes if isinstance(work, LayerWork | WinogradWork) else 0 for work in works
    ]
    arena = _Arena.of(works, blocks)
    whole = float(arena.touched.max(0, initial=0.0).sum()) + sum(weights)
    found = [work.predict(Since(whole, arena.since(at, weights))) for at, work in enumerate(works)]
    return [None if one is None else costs.cold_work_seconds + one for one in found]


@dataclass(frozen=True, slots=True, eq=False)
class _Arena:
    """The parts of an arena, and how much of each works touch.

    Parameters
    ----------
    parts
        Of each place the first part, and the one behind its last.
    touched
        Bytes of each part, for each work.
    places
        Those of each work.
    """

    parts: dict[Place, tuple[int, int]]
    touched: Array
    places: list[list[Place]]

    @classmethod
    def of(cls, works: Sequence[Work], blocks: Blocks) -> Self:
        """Cut the arena where some place begins or ends."""
        begins, _ = blocks.arrange()
        places = [work.places for work in works]
        spans = {one: _span(one, begins[one.block]) for several in places for one in several}
        cuts = sorted({end for span in spans.values() for end in span})
        numbers = {cut: at for at, cut in enumerate(cuts)}
        sizes = np.diff(cuts).astype(np.float64)
        parts = {one: (numbers[low], numbers[high]) for one, (low, high) in spans.items()}
        touched = np.zeros((len(works), len(sizes)))
        for row, several in zip(touched, places, strict=True):
            for one in several:
                cut, (low, high) = slice(*parts[one]), spans[one]
                share = min(1.0, prod(one.shape) * one.dtype.itemsize / (high - low))
                row[cut] = np.maximum(row[cut], share * sizes[cut])
        return cls(parts, touched, places)

    def since(self, at: int, weights: Sequence[int]) -> dict[Place, float]:
        """Return for each place of a work how many bytes were touched since it was, in the mean."""
        own, count = self.touched[at] > 0, len(self.touched)
        seen, other, found = np.zeros(len(own)), 0, np.zeros(len(own))
        for before in range(at - 1, at - 1 - count, -1):
            seen = np.maximum(seen, self.touched[before])
            other += weights[before]
            reached = own & (self.touched[before] > 0)
            found[reached] = seen.sum() + other
            own &= ~reached
            if not own.any():
                break
        return {one: float(np.average(found[slice(*self.parts[one])])) for one in self.places[at]}


def _span(place: Place, begin: int) -> tuple[int, int]:
    """Return where the first byte of a place lies in the arena, and the one behind its last."""
    ends = [max(n - 1, 0) * step for n, step in zip(place.shape, place.strides, strict=True)]
    low = begin + place.offset + sum(min(one, 0) for one in ends)
    return low, begin + place.offset + sum(max(one, 0) for one in ends) + place.dtype.itemsize
