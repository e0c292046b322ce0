"""How runs are timed: in rounds, fewer of them where runs are long."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tilesolve.contractions.errors import BenchmarkError
from tilesolve.machine.model import Machine

LEAST_ROUNDS = 2
"""Rounds of each contender, however long they take; fewer only where fewer are asked for."""

LONG_SECONDS = 1.0
"""A checked run of at least so many seconds counts as the first round: what only a first run does,
such as allocating copies, is negligible then."""

RUN_PER_ARITHMETIC = 2.0
"""Estimated time of a run over that of its arithmetic at the peak."""

Who = TypeVar("Who")


class Estimated(Protocol):
    """What runs: its time is estimated from its arithmetic."""

    @property
    def flops(self) -> float:
        """Operations; 0 if they say nothing of the time."""

    @property
    def dtype(self) -> str:
        """Of its arrays."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """How a sweep measures.

    Parameters
    ----------
    threads
        Of each process.
    batch
        Processes of each contender that run side by side, each with the whole problem.
    repeat
        Rounds at most.
    limit
        Seconds that a contender may take until it is planned and compiled, and then for each run.
    seconds
        Budget of all timed runs of a case. After the first rounds, none begins that would exceed
        it.
    least
        How many rounds are run whatever the budget, unless `repeat` is less.
    """

    threads: int = 1
    batch: int = 1
    repeat: int = 5
    limit: float = 120.0
    seconds: float = 30.0
    least: int = LEAST_ROUNDS

    def __post_init__(self) -> None:
        for what in ("threads", "batch", "repeat", "least"):
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
        """Rounds of each contender, whatever the budget."""
        return min(self.least, self.repeat)

    def first_rounds(self, seconds: float) -> list[float]:
        """Return the seconds of the rounds that a checked run counts as: one if it was long.

        The processes of a batch are checked one after the other, so their runs never count.

        Examples
        --------
        >>> Procedure().first_rounds(4.0), Procedure().first_rounds(0.1)
        ([4.0], [])
        """
        return [seconds] if seconds >= LONG_SECONDS and self.batch == 1 else []

    def pick_due(self, times: Mapping[Who, Sequence[float]]) -> list[Who]:
        """Return who runs in the next round, given the seconds of the rounds of each so far.

        Examples
        --------
        >>> procedure = Procedure(repeat=3, seconds=10.0)
        >>> procedure.pick_due({"a": [1.0, 1.0], "b": [2.0, 2.0]})
        ['a', 'b']
        >>> procedure.pick_due({"a": [1.0], "b": [6.0, 6.0]})
        ['a']
        """
        spent = sum(sum(rounds) for rounds in times.values())
        coming = sum(max(rounds) for rounds in times.values() if rounds)
        most = self.repeat if spent + coming <= self.seconds else self.least_rounds
        return [who for who, rounds in times.items() if len(rounds) < most]

    def estimate_rounds(self, work: Estimated, machine: Machine, runners: int) -> int:
        """Estimate how many rounds a case takes after the checked run."""
        run = self._estimate_run(work, machine)
        fit = int(self.seconds / (runners * run)) if run else self.repeat
        return min(self.repeat, max(self.least_rounds, fit)) - len(self.first_rounds(run))

    def estimate_seconds(
        self, work: Estimated, machine: Machine, runners: int, preparation: float
    ) -> float:
        """Estimate the seconds that a case takes, for the progress bar.

        `preparation` is the seconds of each contender before its first run.
        """
        runs = 1 + self.estimate_rounds(work, machine, runners)
        return runners * (preparation + runs * self._estimate_run(work, machine))

    def _estimate_run(self, work: Estimated, machine: Machine) -> float:
        if not work.flops:
            return 0.0
        return RUN_PER_ARITHMETIC * work.flops / machine.peak(work.dtype, self.threads)
