"""The counterpart of the paper's Table 2: lines that each level misses, predicted and simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.model.nest import Nest
from tilesolve.model.price import price
from tilesolve.model.walk import Rule
from tilesolve.plans.plan import plan
from tilesolve.simulation.cache_simulator import CacheShape
from tilesolve.simulation.nest_trace import COMPUTE, SOURCE, simulate

PAPER_MACHINE = "e5-2680v4"
"""The machine of the paper's Table 2."""

PAPER: dict[str, tuple[tuple[float, float], ...]] = {
    "abcdef-degb-gfac": ((8.06e6, 7.84e6), (6.96e6, 6.51e6), (4.78e6, 4.76e6)),
    "abcd-aebf-dfce": ((2.50e9, 2.44e9), (2.94e8, 2.68e8), (1.04e8, 1.01e8)),
    "abcde-efbca-fd": ((2.35e7, 2.36e7), (2.17e7, 2.16e7), (2.15e7, 2.12e7)),
    "abcd-ea-ebcd": ((3.49e7, 1.34e7), (7.06e6, 6.83e6), (6.77e6, 6.72e6)),
}
"""Table 2: misses of the computation, measured and predicted, by level. Of the paper's tiles."""

SIZES = {"abcde-efbca-fd": "a=48 b=32 c=32 d=24 e=48 f=48"}
"""Sizes of the contraction of Table 2 that Table 4 does not list: those of its neighbours."""

SIMULATED_ELEMENTS = 1e9
"""Elements that are touched in the simulation of one contraction, about: a minute of work. Three
contractions of Table 2 have no more."""

RULES: tuple[Rule, ...] = ("distance", "listing3")


@dataclass(frozen=True, slots=True)
class Row:
    """Lines of each tensor that one level missed: simulated, and predicted by both rules.

    Parameters
    ----------
    level
        Which missed them.
    simulated, distance, listing3
        Lines of each tensor, output first.
    share
        The part of the nest that was simulated.

    Examples
    --------
    >>> Row("L1", (100, 50), (110.0, 55.0), (150.0, 75.0)).ratio
    1.1
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

    Examples
    --------
    >>> [shape.ways for shape in shapes(Machine.load("e5-2680v4"))]
    [8, 8, None]
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

    Parameters
    ----------
    problem, nest, machine
        What is run where.
    budget
        As `simulate` takes it.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> found = plan(problem, machine="i7-6700k", cache=False)
    >>> [row.level for row in compare(problem, found.nest, found.machine)]
    ['L1', 'L2', 'L3']
    """
    simulated = simulate(problem, nest, describe_caches(machine), budget)
    lines = simulated.lines
    names = [level.name for level in machine.caches]
    homes = [None, *(nest.packed or (None,) * len(problem.spec.operands))]
    costs = [price(problem, nest, machine, rule=rule) for rule in RULES]
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
    """Return the four contractions of Table 2 at full size.

    Examples
    --------
    >>> list(problems()) == list(PAPER)
    True
    """
    from tilesolve.contractions.suites import suite

    tccg = suite("tccg")
    return {name: Problem.of(name, SIZES[name]) if name in SIZES else tccg[name] for name in PAPER}


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
    """Yield the cells of one contraction's rows, for the plan that the solver makes.

    Examples
    --------
    >>> found = list(rows("small", Problem.of("ik-ij-jk", 64), Machine.load("i7-6700k")))
    >>> [row[1] for row in found], found[0][6]
    (['L1', 'L2', 'L3'], '100%')
    """
    found = plan(problem, machine=machine)
    paper = PAPER.get(name, ()) if machine.name == PAPER_MACHINE else ()
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
