"""Rankings: the variants of a problem by a ranker's scores, beside other rankers and the clock."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields, replace
from math import ceil, isnan
from typing import Self

import numpy as np
import numpy.typing as npt

from tilesolve.bench.procedure import Procedure
from tilesolve.bench.run.sweep import (
    SPARE_BYTES,
    count_steps,
    describe_lack,
)
from tilesolve.bench.run.timed_plans import time_plans
from tilesolve.contractions.errors import MemoryLimitError, ModelError, PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.kernels.progress import Progress, silent
from tilesolve.machine.detect import default_threads
from tilesolve.machine.model import Machine
from tilesolve.plans.arguments import Sizes, Tensors, problem_of, read_sizes
from tilesolve.plans.plan import Plan
from tilesolve.plans.tries import count_flush_bytes
from tilesolve.ranking.files import dump, load, to_csv
from tilesolve.ranking.rankers import RANKERS, Ranker, find_ranker
from tilesolve.ranking.standings import Clock, Standings
from tilesolve.ranking.table import write_ranking
from tilesolve.ranking.variants import list_variants
from tilesolve.system.checks import check_threads
from tilesolve.system.html_report import write_html_report

Top = int | str | None
"""How many of the first variants: a number, a share such as ``"5%"``, or None for all."""

LEAST_ROUNDS = 4
"""Rounds, unless fewer are asked for: two by which the fastest is picked, two that judge it."""


@dataclass(frozen=True, slots=True)
class Ranking(Standings):
    """Variants of a plan in the order of a ranker, the best first.

    Parameters
    ----------
    by
        The ranker whose order it is.
    variants
        In that order; of equal scores the solver's plan, then runners-up.
    scores
        For each ranker its scores of the variants, as pairs; the less, the better.
    rounds
        Seconds of each variant in each round; none for those that were not run.
    lacking
        Rankers that could not say anything, and why, as pairs.
    clock
        Where they were measured; None where none was, or an older file does not say so.

    Examples
    --------
    >>> found = rank("ik-ij-jk", 64, "i7-6700k", variants=20)
    >>> len(found), found.solver in found.plans
    (20, True)
    >>> Ranking.from_json(found.to_json()) == found
    True
    """

    def run(
        self,
        top: Top = 5,
        *,
        repeat: int = 5,
        seconds: float = 30.0,
        progress: Progress = silent,
    ) -> Self:
        """Return the ranking with the times of its first variants, and of the solver's plan.

        They run in turns on this computer, caches flushed, every other round in reverse; before
        that each runs once, and its result is checked.

        Parameters
        ----------
        top
            How many: a number, a share such as ``"5%"``, or None for all.
        repeat, seconds
            Rounds at most, and seconds of runs after which no further round begins, beyond four.
        progress
            Told how far it is.

        Raises
        ------
        PlanError
            If `top` is none of these.
        MemoryLimitError
            If the problem does not fit into memory.
        BenchmarkError
            If a variant gives a wrong result.
        """
        first = self.plans.index(self.solver)
        others = [at for at in range(count_top(top, len(self))) if at != first]
        numbers = [first, *others]
        plans = [self.plans[at] for at in numbers]
        machine, threads = plans[0].machine, plans[0].threads
        procedure = Procedure(threads, repeat=repeat, seconds=seconds, least=LEAST_ROUNDS)
        needed = sum(self.problem.bytes) + count_flush_bytes(machine) + SPARE_BYTES
        if lack := describe_lack(needed):
            raise MemoryLimitError(f"{self.problem} {lack}")
        rounds = procedure.estimate_rounds(self.problem, machine, len(plans))
        step = count_steps(progress, len(plans) * (1 + rounds))
        times, _ = time_plans(self.problem, plans, procedure, step)
        found = list(self.rounds)
        for at, taken in zip(numbers, times, strict=True):
            found[at] = tuple(taken)
        return replace(self, rounds=tuple(found), clock=Clock.here())

    def __str__(self) -> str:
        return write_ranking(self)

    def _repr_html_(self) -> str:
        return write_html_report(str(self))

    def to_json(self) -> str:
        """Return the ranking as JSON; `from_json` reads it back to an equal value."""
        return dump(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a ranking from JSON.

        Raises
        ------
        PlanError
            If the text is damaged or of another version.
        """
        found = load(text)
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    def to_csv(self) -> str:
        """Return the ranking as CSV, a line for each variant."""
        return to_csv(self)

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw what each ranker's first variants reach of the fastest one, if any were measured.

        Needs the extra ``plot``.
        """
        from tilesolve.ranking.picture import draw_ranking

        draw_ranking(self, path)


def rank(
    spec: Spec | str | Problem,
    sizes: Sizes | Tensors | None = None,
    machine: Machine | str | None = None,
    *,
    dtype: npt.DTypeLike | None = None,
    threads: int | None = None,
    by: str | Ranker = "price",
    variants: int = 500,
    seed: int = 1,
    like: str | None = None,
) -> Ranking:
    """Rank variants of a plan: other loops, other tiles, other letters that threads divide.

    Parameters
    ----------
    spec, sizes, machine, dtype, threads
        As in `plan`.
    by
        The ranker: ``"price"``, the score that the solver compares its candidates by; ``"reuses"``,
        working sets as often as they are used again; ``"sets"``, PolyDL's sizes of working sets;
        or a value with a ``name`` and a method ``score``, which takes a plan and returns a number,
        the less the better.
    variants
        How many at most: the solver's plan, runners-up, and a draw from a grid of tile sizes and
        loops, whether they fit the caches or not.
    seed
        Of that draw: the same one gives the same variants.
    like
        ``"polydl"`` for the variants of matrix products and of convolutions that PolyDL generates,
        in place of runners-up and the grid.

    Raises
    ------
    PlanError
        If there is no such ranker, or there are no such variants.
    ModelError
        If the ranker needs islpy, which is missing.

    Examples
    --------
    >>> found = rank("ik-ij-jk", 64, "i7-6700k", variants=20)
    >>> found.agreement("price", "price")
    1.0
    """
    ranker = find_ranker(by)
    for what, value, least in (("variants", variants, 1), ("seed", seed, 0)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < least:
            raise PlanError(f"{what} must be an integer of {least} or more, got {value!r}")
    found = list_variants(
        problem_of(spec, *read_sizes(spec, sizes, dtype)),
        Machine.load(machine),
        default_threads() if threads is None else check_threads(threads),
        count=int(variants),
        seed=int(seed),
        like=like,
    )
    rankers = {one.name: one for one in (*RANKERS.values(), ranker)}
    others = [one for name, one in rankers.items() if name != ranker.name]
    scores: dict[str, list[float]] = {name: [] for name in rankers}
    lacking: dict[str, str] = {}
    for variant in found:
        scores[ranker.name].append(_score(ranker, variant.plan))
        for one in others:
            try:
                scores[one.name].append(_score(one, variant.plan))
            except ModelError as error:  # what it needs is not installed
                lacking[one.name] = str(error)
    kept = tuple((name, tuple(each)) for name, each in scores.items() if name not in lacking)
    unordered = Ranking(ranker.name, tuple(found), kept, ((),) * len(found), tuple(lacking.items()))
    return unordered.sorted_by(ranker.name)


def _score(ranker: Ranker, plan: Plan) -> float:
    """Return the score of a plan, if that is a number that can be ordered."""
    found = float(ranker.score(plan))
    if isnan(found):
        raise PlanError(f"ranker {ranker.name!r} gives a plan the score {found}")
    return found


def count_top(top: Top, count: int) -> int:
    """Return how many of some variants are meant, at least one.

    Raises
    ------
    PlanError
        If it is neither a positive number nor a share.

    Examples
    --------
    >>> [count_top(top, 30) for top in (5, "5%", None, 50)]
    [5, 2, 30, 30]
    """
    if top is None:
        return count
    if isinstance(top, str):
        share = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)%", top)
        if share and 0 < float(share[1]) <= 100:
            return max(1, ceil(float(share[1]) / 100 * count))
    elif isinstance(top, int | np.integer) and not isinstance(top, bool) and top >= 1:
        return min(int(top), count)
    raise PlanError(f"top must be a number from 1 on, a share such as '5%', or None, got {top!r}")
