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
        if len(plan.choices) > 1:
            yield f"{choice.stage}"
        yield f"{choice.kind.value}, by {_ROUTES[choice.route]}: {choice.why}"
        yield from _tiles(choice)
        yield from _levels(choice)
        if choice.program is not None:
            yield from print_program(choice.program).splitlines()


_ROUTES = {"nest": "generated loops", "contraction": "a plan", "transpose": "a transpose"}


def _tiles(choice: NestChoice) -> Iterator[str]:
    """Yield lines about tiles, threads, vectors and stores."""
    parts = []
    if choice.tiles:
        parts.append("tiles " + " ".join(f"{letter}={tile}" for letter, tile in choice.tiles))
    if choice.capped_by:
        parts.append(f"rows of {choice.capped_by} that stay keep them from being larger")
    if choice.threads_letter:
        parts.append(f"threads divide {choice.threads_letter}")
    if choice.vector_letter:
        parts.append(f"vectors along {choice.vector_letter}")
    if choice.non_temporal:
        parts.append(f"{', '.join(sorted(choice.non_temporal))} goes past the caches")
    if parts:
        yield "; ".join(parts)


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
