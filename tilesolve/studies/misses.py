"""The counterpart of the paper's Table 2: lines that each level misses, predicted and simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.model.nest import Nest
from tilesolve.model.price import compute_price
from tilesolve.model.walk import Rule
from tilesolve.plans.plan import plan
from tilesolve.simulation.cache_simulator import CacheShape
from tilesolve.simulation.nest_trace import COMPUTE, SOURCE, simulate

PAPER_MACHINE = "e5-2680v4"
"""The machine of the paper's Table 2."""


@dataclass(frozen=True, slots=True)
class Published:
    """A row of the paper's Table 2.

    Parameters
    ----------
    spec, sizes
        The contraction. Table 4 lists the sizes of the others, those of the third are its
        neighbours'.
    misses
        Of the computation with the paper's own tiles: measured and predicted, for each level.
    """

    spec: str
    sizes: str
    misses: tuple[tuple[float, float], ...]


TABLE_2 = (
    Published(
        "abcdef-degb-gfac",
        "a=24 b=16 c=16 d=24 e=16 f=16 g=24",
        ((8.06e6, 7.84e6), (6.96e6, 6.51e6), (4.78e6, 4.76e6)),
    ),
    Published(
        "abcd-aebf-dfce",
        "a=72 b=72 c=72 d=72 e=72 f=72",
        ((2.50e9, 2.44e9), (2.94e8, 2.68e8), (1.04e8, 1.01e8)),
    ),
    Published(
        "abcde-efbca-fd",
        "a=48 b=32 c=32 d=24 e=48 f=48",
        ((2.35e7, 2.36e7), (2.17e7, 2.16e7), (2.15e7, 2.12e7)),
    ),
    Published(
        "abcd-ea-ebcd",
        "a=72 b=72 c=72 d=72 e=72",
        ((3.49e7, 1.34e7), (7.06e6, 6.83e6), (6.77e6, 6.72e6)),
    ),
)
"""The contractions of Table 2 of the paper."""

SIMULATED_ELEMENTS = 1e9
"""Elements that the simulation of one contraction touches, about: a minute of work. Three
contractions of Table 2 have no more."""

RULES: tuple[Rule, ...] = ("distance", "listing3")


@dataclass(frozen=True, slots=True)
class Row:
    """Lines of each tensor that one level missed: simulated, and predicted by both rules.

    Counts are of each tensor, output first; `share` is the part of the nest that was simulated.
    """

    level: str
    simulated: tuple[int, ...]
    distance: tuple[float, ...]
    listing3: tuple[float, ...]
    share: float = 1.0

    @property
    def ratio(self) -> float:
        """What the reuse-distance rule predicts for all tensors over what the caches missed."""
        return sum(self.distance) / sum(self.simulated)

    @property
    def ratio3(self) -> float:
        """The same by Listing 3."""
        return sum(self.listing3) / sum(self.simulated)


def describe_caches(machine: Machine) -> list[CacheShape]:
    """Return a machine's caches as the simulator takes them.

    A cache whose sets are no power of two, which no plain bits of an address can number, is
    taken as fully associative.
    """
    found = []
    for level in machine.caches:
        capacity = level.capacity or 0
        sets = capacity / level.line / (level.ways or 1)
        plain = sets == int(sets) and int(sets) & (int(sets) - 1) == 0
        ways = level.ways if plain else None
        found.append(CacheShape(capacity, level.line, ways, level.inclusive))
    return found


def compare_misses(
    problem: Problem, nest: Nest, machine: Machine, budget: float | None = None
) -> list[Row]:
    """Return a row for each cache.

    Nearer than its copy an operand is missed by the calls; at the copy's level and beyond by
    the packing that reads the source, and by calls whose copy has been thrown out.

    `budget` is as `simulate` takes it.
    """
    simulated = simulate(problem, nest, describe_caches(machine), budget)
    lines = simulated.lines
    names = [level.name for level in machine.caches]
    homes = [None, *(nest.packed or (None,) * len(problem.spec.operands))]
    costs = [compute_price(problem, nest, machine, rule=rule) for rule in RULES]
    rows = []
    for at, level in enumerate(machine.caches):
        missed = [
            int(lines[at, COMPUTE, t])
            + (int(lines[at, SOURCE, t]) if home and at >= names.index(home) else 0)
            for t, home in enumerate(homes)
        ]
        distance, listing3 = (
            tuple(size / level.line for size in cost.levels[at + 1].moved) for cost in costs
        )
        rows.append(Row(level.name, tuple(missed), distance, listing3, simulated.share))
    return rows


def list_paper_problems() -> dict[str, Problem]:
    """Return the four contractions of Table 2 at full size, by spec."""
    return {row.spec: Problem.of(row.spec, row.sizes) for row in TABLE_2}


MISS_COLUMNS = {
    "contraction": "left",
    "level": "left",
    "simulated": "right",
    "predicted": "right",
    "ratio": "right",
    "Listing 3": "right",
    "simulated part": "right",
    "paper measured": "right",
    "paper predicted": "right",
}
"""Headers of the table, and the side on which cells stand."""


def list_miss_rows(
    name: str, problem: Problem, machine: Machine, budget: float = SIMULATED_ELEMENTS
) -> Iterator[tuple[str, ...]]:
    """Yield the cells of one contraction's rows, for the plan that the solver makes."""
    found = plan(problem, machine=machine)
    published = {row.spec: row.misses for row in TABLE_2}
    paper = published.get(name, ()) if machine.name == PAPER_MACHINE else ()
    for at, row in enumerate(compare_misses(problem, found.nest, machine, budget)):
        known = [f"{figure:.2e}" for figure in paper[at]] if at < len(paper) else ["-", "-"]
        yield (
            name,
            row.level,
            f"{sum(row.simulated):.3e}",
            f"{sum(row.distance):.3e}",
            f"{row.ratio:.2f}",
            f"{row.ratio3:.2f}",
            f"{row.share:.2g}" if row.share < 0.01 else f"{row.share:.0%}",
            *known,
        )
