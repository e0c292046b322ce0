"""What tiles of a nest are chosen by: references, caches, costs of misses, threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tilesolve.constants.nests import NEST_ENUMERATED_LETTERS, NEST_WHOLE_EXTENT, THESIS_MISS_COSTS
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.machine.model import Machine
from tilesolve.model.access import Access
from tilesolve.model.price import list_levels
from tilesolve.model.runs import later_share
from tilesolve.nests.interference import CacheSets, SetRule, largest_height
from tilesolve.nests.references import find_references
from tilesolve.nests.reuse import Weights, first_working_set, second_working_set

Mode = Literal["default", "thesis"]
"""Whether costs of misses are the machine's, or those that the thesis prints."""


@dataclass(frozen=True, slots=True)
class Setting:
    """All that the search for tiles needs to know.

    Parameters
    ----------
    references
        What the statement touches, its output first.
    extents
        Of each letter.
    output
        The letters of the output, in the order of its axes.
    tiled
        The letters that get tiles, the column letter first; the others are run through as a whole.
    capacities
        Bytes that a working set may take in the first and in the second cache.
    lines
        Bytes of their lines.
    weights
        What their misses cost.
    trips
        Trips that the loop of threads needs (4.13).
    sets
        For each reference where its lines go in both caches.
    """

    references: tuple[Access, ...]
    extents: Mapping[str, int]
    output: tuple[str, ...]
    tiled: tuple[str, ...]
    capacities: tuple[int, int]
    lines: tuple[int, int]
    weights: Weights
    trips: int
    sets: tuple[tuple[CacheSets, CacheSets], ...]

    @property
    def column(self) -> str:
        """The letter of the output's last axis: vectors lie along it."""
        return self.output[-1]

    @property
    def step(self) -> int:
        """What tiles of the column letter are multiples of: the elements of a line."""
        return max(self.lines[0] // self.references[0].element, 1)

    @property
    def least(self) -> dict[str, int]:
        """The smallest tiles: a line of the column letter, one of each other, wholes."""
        found = {x: 1 if x in self.tiled else extent for x, extent in self.extents.items()}
        found[self.column] = min(self.step, self.extents[self.column])
        return found

    def most(self, letter: str, threads: str | None) -> int:
        """Return the largest tile that the extent and the number of threads allow (4.13)."""
        extent = self.extents[letter]
        return max(extent // self.trips, 1) if letter == threads else extent

    def height_limits(self, reference: int, level: int, width: Any) -> Any:  # noqa: ANN401
        """Return how many rows of a reference, so wide, stay in a cache; one at least."""
        one, cache = self.references[reference], self.sets[reference][level]
        lines = np.maximum(np.ceil(np.asarray(width)), 1).astype(np.int64)
        lines = np.maximum(lines, cache.line) + (cache.line if cache.next_line else 0)
        different, where = np.unique(-(-lines // cache.line), return_inverse=True)
        most = cache.sets * cache.ways
        found = [
            largest_height(cache, int(n), one.shape[-1], one.shape[-2]) if n <= most else 0
            for n in different
        ]
        return np.maximum(np.array(found, dtype=np.int64), 1)[where].reshape(lines.shape)

    def conflicts(self, tiles: Mapping[str, Any], o: str) -> dict[str, Any]:
        """Return for each array and cache by how much its rows pass their limit; see `fits`."""
        found = {}
        shapes = ({**tiles, o: 1}, tiles)
        for number, reference in enumerate(self.references):
            if len(reference.axes) < 2 or reference.gathered:
                continue
            least = reference.reaches(self.least)[-2]
            for level, shape in enumerate(shapes):
                *_, height, width = reference.reaches(shape)
                limit = np.maximum(self.height_limits(number, level, width), least)
                found[f"{reference.array} in L{level + 1}"] = height - limit
        return found

    def fits(self, tiles: Mapping[str, Any], o: str, threads: str | None) -> Any:  # noqa: ANN401
        """Return whether tiles fit both caches, do not evict themselves, and serve all threads."""
        near = first_working_set(self.references, tiles, o, self.lines[0]) <= self.capacities[0]
        far = second_working_set(self.references, tiles) <= self.capacities[1]
        found = near & far
        for letter in self.tiled:
            found = found & (tiles[letter] <= self.most(letter, threads))
        for excess in self.conflicts(tiles, o).values():
            found = found & (excess <= 0)
        return found


def make_setting(
    computation: Computation,
    stage: Stage,
    machine: Machine,
    threads: int = 1,
    mode: Mode = "default",
    *,
    threads_per_core: int | None = None,
    sets: SetRule = "cache",
    ahead: int | None = None,
    later: tuple[float, float] | None = None,
) -> Setting:
    """Return what tiles of a statement are chosen by.

    Parameters
    ----------
    computation, stage
        The statement, and its extents.
    machine
        With two caches at least.
    threads
        Those that share the work.
    mode
        ``"thesis"`` takes the costs that are printed, and the first cache as a whole.
    threads_per_core
        Those that share a core's caches; see `sharers` if None.
    sets
        How the number of sets is read, see `SetRule`.
    ahead
        Lines that the second cache fetches ahead; the machine's if None.
    later
        For both caches the share of a miss that each further line of a run costs; the machine's
        starts and bandwidths say it if None.
    """
    references = find_references(computation, stage)
    near, far = machine.caches[0], machine.caches[1]
    extents = {letter: computation.sizes[letter] for letter in stage.letters}
    column = stage.output[-1]
    others = [x for x, extent in extents.items() if extent > 1 and x != column]
    if len(others) >= NEST_ENUMERATED_LETTERS:
        others = [x for x in others if extents[x] > NEST_WHOLE_EXTENT]
    together = threads_per_core or sharers(machine, threads, mode)
    ahead = min(far.fetched, far.ahead) if ahead is None else ahead
    shared = far is machine.last_cache and far.shared_by > 1
    first = (near.capacity or 0) // (1 if mode == "thesis" else together)
    second = (far.capacity or 0) // (far.shared_by if shared and mode != "thesis" else 1) // 2
    users = far.shared_by if shared else together
    caches = tuple(
        (
            CacheSets.first(near, one.element, together, sets),
            CacheSets.second(far, one.element, users, ahead, sets),
        )
        for one in references
    )
    weights = Weights(*THESIS_MISS_COSTS) if mode == "thesis" else _weights(machine, threads, later)
    return Setting(
        references,
        extents,
        stage.output,
        (column, *others),
        (first, second),
        (near.line, far.line),
        weights,
        threads,
        caches,
    )


def _weights(machine: Machine, threads: int, later: tuple[float, float] | None) -> Weights:
    """Return the seconds of misses in both caches, by the levels that serve them."""
    found = []
    for number, place in enumerate(list_levels(machine, threads)[1:3]):
        line = place.line / (place.read or place.bandwidth)
        share = later[number] if later else later_share(machine.level(place.server), line)
        found.append((line / share if share else line, share))
    (first, later_first), (second, later_second) = found
    return Weights(first, second, later_first, later_second)


def sharers(machine: Machine, threads: int, mode: Mode = "default") -> int:
    """Return how many threads share a core's caches: one each as long as there are cores.

    The thesis has all hardware threads run.

    Examples
    --------
    >>> machine = Machine.load("i7-5930k")
    >>> [sharers(machine, threads) for threads in (6, 12)], sharers(machine, 6, "thesis")
    ([1, 2], 2)
    """
    most = machine.threads_per_core
    return most if mode == "thesis" else min(most, -(-threads // machine.cores))
