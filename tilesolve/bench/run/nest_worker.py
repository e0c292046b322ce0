"""What the process of a contender does for a nest: prepares, is checked, and times runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesolve.bench.nests import NestCase
from tilesolve.bench.run.nest_oracle import (
    draw_nest,
    draw_output,
    find_nest_fault,
    shrink_nest,
)
from tilesolve.bench.run.nest_peers import NestWork
from tilesolve.bench.run.oracle import Array, sum_parts
from tilesolve.bench.run.turn import Turn
from tilesolve.bench.run.worker import CHANGED, Ready, Run, hold_trash, make_timer, run_first
from tilesolve.contractions.statements.computation import Computation
from tilesolve.machine.model import Machine


@dataclass(frozen=True, slots=True)
class NestReady(Ready):
    """What a worker found in preparation and in its first run.

    Parameters
    ----------
    predicted
        Seconds of a plan; NaN for others.
    how
        The class and the route of a plan; empty for others.
    """

    predicted: float = float("nan")
    how: str = ""


@dataclass(frozen=True, slots=True)
class NestOrder:
    """A nest that a worker is to compute.

    Parameters
    ----------
    case
        What is computed.
    machine, threads
        What the maker is given.
    maker
        ``module:function``.
    flush
        Bytes that are written before each timed run.
    """

    case: NestCase
    machine: Machine
    threads: int
    maker: str
    flush: int

    def get_ready(self) -> tuple[NestReady, Callable[[], Turn]]:
        """Compute the nest once, and return what was found and how to time a run.

        All of a small version is checked; of the whole one, the sums of parts are compared among
        contenders.
        """
        small = shrink_nest(self.case.computation)
        arrays = draw_nest(small)
        run, _ = self._make(small, arrays, draw_output(small))
        fault = find_nest_fault(small, arrays, dict(self.case.params), np.asarray(run()))
        whole = self.case.computation
        given, out = draw_nest(whole), draw_output(whole)
        before = {name: sum_parts(array) for name, array in given.items()}
        trash = hold_trash(self.flush)
        predicted: list[tuple[float, str]] = []

        def prepare() -> Run:
            made, plan = self._make(whole, given, out)
            if plan is not None:  # which makes the plans of its statements, too
                predicted.append((plan.seconds, plan.how))
            return made

        first = run_first(prepare, trash)
        after = (sum_parts(array) for array in given.values())
        if not all(map(np.array_equal, before.values(), after)):
            fault = fault or CHANGED
        found = NestReady(
            *(first.preparation, first.seconds, sum_parts(np.asarray(first.result)), fault),
            first.memory,
            *(predicted[0] if predicted else ()),
        )
        timed = make_timer(first.run, trash)
        return found, lambda: Turn(timed())

    def _make(
        self, computation: Computation, arrays: dict[str, Array], out: Array
    ) -> tuple[Run, Any]:
        """Return a run, and the plan if it is ours."""
        module, _, function = self.maker.partition(":")
        make = getattr(importlib.import_module(module), function)
        made = make(
            NestWork(
                self.case,
                computation,
                self.machine,
                self.threads,
                arrays,
                dict(self.case.params),
                out,
            )
        )
        return made if isinstance(made, tuple) else (made, None)
