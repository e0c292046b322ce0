"""A plan of a nest as text: what runs each statement and why, what it moves, and its loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilesolve.kernels.programs.printer import print_program
from tilesolve.nests.planning import NestChoice
from tilesolve.system.units import format_count, format_duration, format_volume

if TYPE_CHECKING:
    from tilesolve.nests.plan import NestPlan


def write_nest_report(plan: NestPlan) -> str:
    """Return the report of a plan."""
    return "\n".join(_lines(plan))


def _lines(plan: NestPlan) -> Iterator[str]:
    sizes = " ".join(f"{letter}={extent}" for letter, extent in plan.computation.extents)
    threads = format_count(plan.threads, "thread")
    yield "; ".join(map(str, plan.computation.stages))
    yield f"{sizes} on {plan.machine.name}, {threads}; predicted {format_duration(plan.seconds)}"
    for choice in plan.choices:
        yield ""
        yield from choice.lines()
        yield from _levels(choice)
        if choice.program is not None:
            yield from print_program(choice.program).splitlines()


def _levels(choice: NestChoice) -> Iterator[str]:
    """Yield a line for what each level moves, and for the arithmetic."""
    cost = choice.cost
    if cost is None:
        return
    for level in cost.levels:
        moved, seconds = format_volume(level.volume), format_duration(level.seconds)
        yield f"  {level.level:<8} {moved:>10} {seconds:>10}"
    yield f"  {'compute':<8} {'':>10} {format_duration(cost.compute):>10}"
    yield f"  bound by {cost.bottleneck}"
