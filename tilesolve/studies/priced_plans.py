"""A study of the price: plans and variants of two machines, timed, with what the price is made of.

The machines are this computer as it is detected, and the calibrated one: that in force, or the one
that is asked for.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilesolve.bench.case import Case, match_any
from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.nests import NestCase, has_nests
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.fields import Share
from tilesolve.bench.results.outputs import Job
from tilesolve.bench.results.record import Outcome, Record
from tilesolve.bench.run.sweep import count_steps
from tilesolve.bench.run.timed_plans import time_plans
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.kernels.progress import Progress
from tilesolve.machine.model import Machine
from tilesolve.model.price import core_rates, packing_seconds
from tilesolve.model.score import begin_seconds, score_times
from tilesolve.nests.draws import draw_tilings
from tilesolve.nests.planning import plan_loops
from tilesolve.nests.request import NestRequest
from tilesolve.planning.solution import Solution
from tilesolve.planning.waiting import store_seconds, waiting_seconds
from tilesolve.ranking.variants import GRID, SOLVER, list_variants
from tilesolve.studies.method import find_problems
from tilesolve.studies.nest_tiles import find_temporal, time_choices

DETECTED, CALIBRATED = "detected", "calibrated"
"""The machines that plans are made for."""

SUITES = "random:16:58,random:8:59,tccg,resnet18,nests"
"""What is studied unless suites are named: factors are fitted to the first one."""

MOST_FLOPS = 1e10
"""Larger cases are left out: each would take a minute."""

COMPUTE = ("arithmetic", "calls", "packing", "in place")
"""Terms that add up to the price's arithmetic."""

WAITING, STORES = "waiting", "stores"
"""The terms that are added to all others."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan that was timed.

    Parameters
    ----------
    machine
        Which one it was made for.
    kind
        ``solver``, ``runner-up`` or ``grid``.
    predicted
        Seconds.
    terms
        Seconds of what the price is made of; of several statements those of all.
    overlap
        Share of the time of other levels that shows beside the slowest one's.
    seconds
        Of each round.
    """

    machine: str
    kind: str
    predicted: float
    terms: Mapping[str, Share]
    overlap: Share
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median round."""
        return statistics.median(self.seconds)

    def score(self, factors: Mapping[str, float] | None = None) -> float:
        """Return the seconds that it is compared by, with factors of its terms if there are any.

        Examples
        --------
        >>> terms = {"arithmetic": 2.0, "memory": 1.0, "waiting": 0.5}
        >>> trial = Trial("detected", "solver", 2.0, terms, 0.5, (1.0,))
        >>> trial.score(), trial.score({"memory": 4.0})
        (3.0, 5.5)
        """
        own = {name: (factors or {}).get(name, 1.0) * value for name, value in self.terms.items()}
        compute = sum(own.pop(name, 0.0) for name in COMPUTE)
        waiting = own.pop(WAITING, 0.0) + own.pop(STORES, 0.0)
        return waiting + float(score_times([compute, *own.values()], self.overlap))


@dataclass(frozen=True, slots=True)
class PricedCase(Outcome):
    """The trials of one problem: of each machine the plan, and variants of it."""

    trials: tuple[Trial, ...] = ()

    def check(self) -> None:
        """Refuse a case without the plan of a machine, or with a trial that has no time."""
        planned = self.machines and all(self.plan(machine) for machine in self.machines)
        if not planned or not all(one.seconds for one in self.trials):
            raise BenchmarkError(f"the study of {self.name} lacks a time, or a plan")

    @property
    def suite(self) -> str:
        """The suite that the case is of."""
        return self.name.rpartition(": ")[0]

    @property
    def machines(self) -> list[str]:
        """The machines, in order."""
        return list(dict.fromkeys(one.machine for one in self.trials))

    def of(self, machine: str) -> list[Trial]:
        """Return the trials of a machine."""
        return [one for one in self.trials if one.machine == machine]

    def plan(self, machine: str) -> Trial | None:
        """Return the plan of a machine; None if there is none."""
        return next((one for one in self.of(machine) if one.kind == SOLVER), None)


class _PricedWork(Case[Any]):
    """A contraction or a nest."""

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Any:  # noqa: ANN401 - either of the two
        """Return the case that JSON fields describe."""
        return (NestCase if "statement" in entry else ContractionCase).read(entry)


class PricedCases(Record[PricedCase]):
    """All cases so far."""

    HOLDS = "a study of the price"
    CASE = _PricedWork
    OUTCOME = PricedCase
    COLUMNS = ("machine", "kind", "predicted_s", "score_s", "median_s", "terms", "reason")

    @classmethod
    def case_rows(cls, case: PricedCase) -> Iterator[tuple[object, ...]]:
        """Yield a line for each trial."""
        for one in case.trials:
            terms = " ".join(f"{name}={value:.4g}" for name, value in one.terms.items())
            yield one.machine, one.kind, one.predicted, one.score(), one.median, terms, ""


def find_priced(job: Job) -> dict[str, Case[Any]]:
    """Return the cases of several suites with commas between, but for large contractions.

    Of nests these are the ones that use elements again, with the extents of other studies.

    Raises
    ------
    BenchmarkError
        If none is left.

    Examples
    --------
    >>> from tilesolve.bench.results.outputs import Outputs
    >>> job = Job("random:2:7,tccg", ("7-1 *", "abc-b*"), None, None, Procedure(), Outputs())
    >>> list(find_priced(job))
    ['random:2:7: 7-1 adcb-ea-cdbe', 'tccg: abc-bda-dc']
    """
    found: dict[str, Case[Any]] = {}
    for suite in job.suite.split(","):
        own = replace(job, suite=suite, chosen=())
        cases = find_temporal(own) if has_nests(suite) else find_problems(own)
        for name, case in cases.items():
            wanted = not job.chosen or match_any([name], job.chosen)
            if wanted and case.flops <= MOST_FLOPS:
                full, nest = f"{suite}: {name}", isinstance(case, NestCase)
                work = replace(case.work, name=full) if nest else case.work
                found[full] = replace(case, name=full, work=work)
    if not found:
        raise BenchmarkError(f"no case of {job.suite!r} is meant that takes {MOST_FLOPS:g} flops")
    return found


def split_price(solution: Solution) -> dict[str, float]:
    """Return the seconds of what a solution's price is made of: levels, arithmetic and waiting.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> found = plan("ik-ij-jk", 64, "i7-6700k", cache=False)
    >>> terms = split_price(found.solution)
    >>> abs(sum(terms[name] for name in COMPUTE) - found.price.compute) < 1e-12
    True
    """
    price, kernel, share = solution.cost, solution.microkernel, solution.share
    machine, threads = solution.machine, solution.threads
    rate, frequency = core_rates(machine, share.dtype, kernel, threads)
    arithmetic, calls = share.flops / rate, price.calls * kernel.call_cycles / frequency
    packing = packing_seconds(price, solution.nest, machine, kernel, share.dtype, threads)
    rest = max(0.0, price.compute - arithmetic - calls - packing)
    waiting = waiting_seconds(share, solution.nest, price, machine, dict(solution.nearest))
    return {
        **dict(zip(COMPUTE, (arithmetic, calls, packing, rest), strict=True)),
        **{level.level: level.seconds for level in price.levels},
        WAITING: begin_seconds(price, machine.costs) + max(0.0, waiting),
        STORES: store_seconds(share, solution.nest, price, machine),
    }


def study_price(
    case: Case[Any], machine: Machine, procedure: Procedure, count: int, tell: Progress
) -> PricedCase:
    """Time the plans and variants of both machines in turns; of one if they are the same."""
    machines = {DETECTED: Machine.detect(), CALIBRATED: machine}
    if machines[DETECTED].to_toml() == machine.to_toml():
        del machines[CALIBRATED]
    many = _vary_nest if isinstance(case, NestCase) else _vary_plan
    made = [one for name in machines for one in many(case, name, machines[name], procedure, count)]
    rounds = procedure.estimate_rounds(case, machine, len(made))
    step = count_steps(tell, len(made) * (1 + rounds))
    several = [work for _, work in made]
    if isinstance(case, NestCase):
        times = time_choices(case, several, machine, procedure, step)
    else:
        times, _ = time_plans(case.work, several, procedure, step)
    trials = (
        replace(one, seconds=tuple(taken)) for (one, _), taken in zip(made, times, strict=True)
    )
    return PricedCase(case, tuple(trials))


def _vary_plan(
    case: Case[Any], name: str, machine: Machine, procedure: Procedure, count: int
) -> Iterator[tuple[Trial, Any]]:
    """Yield the plan of a contraction and variants of it."""
    overlap = machine.costs.level_overlap
    for variant in list_variants(case.work, machine, procedure.threads, count=count):
        found = variant.plan.solution
        figures = found.seconds, split_price(found), overlap
        yield Trial(name, variant.kind, *figures, ()), variant.plan


def _vary_nest(
    case: Case[Any], name: str, machine: Machine, procedure: Procedure, count: int
) -> Iterator[tuple[Trial, Any]]:
    """Yield the loops of a nest and others with tiles that are drawn."""
    request = NestRequest(case.work.computation, machine, procedure.threads, start="cold")
    several = [plan_loops(request), *draw_tilings(request, count=count - 1)]
    for number, made in enumerate(several):
        terms: defaultdict[str, float] = defaultdict(float)
        for one in made:
            cost = request.charge(one.cost)
            terms["arithmetic"] += cost.compute
            for level in cost.levels:
                terms[level.level] += level.seconds
        figures = sum(one.seconds for one in made), dict(terms), machine.costs.level_overlap
        yield Trial(name, GRID if number else SOLVER, *figures, ()), made
