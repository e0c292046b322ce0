"""How often something is run: in rounds, fewer of them where runs are long."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine

LEAST_ROUNDS = 2
"""Rounds that everyone runs, however long they take."""

LONG_SECONDS = 1.0
"""Seconds from which on the run that is checked counts as the first round: what only a first run
does, such as taking memory for copies, is no part of it worth speaking of."""

RUN_PER_ARITHMETIC = 2.0
"""Times its arithmetic that a run takes, about."""

Who = TypeVar("Who")


@dataclass(frozen=True, slots=True)
class Procedure:
    """How a sweep measures.

    Parameters
    ----------
    threads
        Of each process.
    batch
        Processes of each contender that compute side by side, each the whole problem on data of
        its own.
    repeat
        Rounds at most.
    limit
        Seconds that making ready, or a run, may take.
    seconds
        Of all runs of a case that are timed: no round begins that would take more, but for the
        first two.

    Examples
    --------
    >>> Effort(repeat=3).limit
    120.0
    """

    threads: int = 1
    batch: int = 1
    repeat: int = 5
    limit: float = 120.0
    seconds: float = 30.0

    def __post_init__(self) -> None:
        for what in ("threads", "batch", "repeat"):
            if getattr(self, what) < 1:
                raise BenchmarkError(f"{what} must be 1 or more, got {getattr(self, what)}")
        for what in ("limit", "seconds"):
            if not getattr(self, what) > 0:
                raise BenchmarkError(f"{what} must be more than 0, got {getattr(self, what)}")
        cores = len(os.sched_getaffinity(0))
        if self.batch * self.threads > cores:
            raise BenchmarkError(
                f"a batch of {self.batch} processes with {self.threads} threads each needs more "
                f"than the {cores} cores that this process may use"
            )

    @property
    def least_rounds(self) -> int:
        """Rounds that everyone runs."""
        return min(LEAST_ROUNDS, self.repeat)

    def first_rounds(self, seconds: float) -> list[float]:
        """Return the rounds that the run which was checked counts as: itself if it was long.

        Those of a batch are checked one after the other, so that none of them counts.

        Examples
        --------
        >>> Effort().first_rounds(4.0), Effort().first_rounds(0.1)
        ([4.0], [])
        """
        return [seconds] if seconds >= LONG_SECONDS and self.batch == 1 else []

    def pick_due(self, times: Mapping[Who, Sequence[float]]) -> list[Who]:
        """Return who runs in the next round, by the seconds of their rounds so far.

        Examples
        --------
        >>> procedure = Effort(repeat=3, seconds=10.0)
        >>> procedure.pick_due({"a": [1.0, 1.0], "b": [2.0, 2.0]})
        ['a', 'b']
        >>> procedure.pick_due({"a": [1.0], "b": [6.0, 6.0]})
        ['a']
        """
        spent = sum(sum(rounds) for rounds in times.values())
        coming = sum(max(rounds) for rounds in times.values() if rounds)
        most = self.repeat if spent + coming <= self.seconds else self.least_rounds
        return [who for who, rounds in times.items() if len(rounds) < most]

    def estimate_rounds(self, problem: Problem, machine: Machine, runners: int) -> int:
        """Return how many rounds a case takes beside the run that is checked, about.

        Examples
        --------
        >>> machine, matmul = Machine.load("i7-6700k"), Problem.of("ik-ij-jk", 2000)
        >>> [Effort(repeat=5).estimate_rounds(matmul, machine, runners) for runners in (2, 20)]
        [5, 3]
        """
        run = self._estimate_run(problem, machine)
        fit = int(self.seconds / (runners * run)) if run else self.repeat
        return min(self.repeat, max(self.least_rounds, fit)) - len(self.first_rounds(run))

    def estimate_seconds(
        self, problem: Problem, machine: Machine, runners: int, preparation: float
    ) -> float:
        """Return the seconds that a case takes, about: what the time left is reckoned with.

        Parameters
        ----------
        problem, machine
            What is run where.
        runners
            How many take turns.
        preparation
            Seconds of each before its first run.

        Examples
        --------
        >>> machine, matmul = Machine.load("i7-6700k"), Problem.of("ik-ij-jk", 2000)
        >>> round(Effort(repeat=5).estimate_seconds(matmul, machine, 10, 1.0), 1)
        38.6
        """
        runs = 1 + self.estimate_rounds(problem, machine, runners)
        return runners * (preparation + runs * self._estimate_run(problem, machine))

    def _estimate_run(self, problem: Problem, machine: Machine) -> float:
        return RUN_PER_ARITHMETIC * problem.flops / machine.peak(problem.dtype, self.threads)
