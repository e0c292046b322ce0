"""Steps of a program: those that compiled code makes one after another are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from tilesolve.networks.works import Held, Step
from tilesolve.running.call_list import CallList, FixedCall
from tilesolve.system.cancellation import is_stopped

Run = Callable[[Held], object]


def join_steps(steps: Sequence[Step]) -> list[Run]:
    """Return what computes steps that have all run before, in fewer calls of compiled code."""
    found: list[Run] = []
    calls = [(step, step.fixed_call()) for step in steps]
    for is_fixed, group in groupby(calls, lambda one: one[1] is not None):
        several = list(group)
        if is_fixed:
            fixed = [call for _, call in several if call is not None]
            found.append(_join([step for step, _ in several], fixed))
        else:
            found += [step.run for step, _ in several]
    return found


def _join(steps: Sequence[Step], calls: Sequence[FixedCall]) -> Run:
    """Return what makes some calls; a call that fails is made again for its error."""
    together = CallList(calls)

    def run(held: Held) -> None:
        for step in steps[together.run() :]:
            if is_stopped():
                return
            step.run(held)

    return run
