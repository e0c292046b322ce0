"""A plan of a nest as text: what runs each statement and why, what it moves, and its loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesolve.contractions.statements.computation import Computation
from tilesolve.kernels.programs.printer import print_program
from tilesolve.nests.choices import NestChoice
from tilesolve.nests.files import Asked
from tilesolve.system.units import format_count, format_duration, format_volume


def write_nest_report(asked: Asked, choices: Sequence[NestChoice], seconds: float) -> str:
    """Return the report of a plan, given its predicted time."""
    return "\n".join(_lines(asked, choices, seconds))


def _lines(asked: Asked, choices: Sequence[NestChoice], seconds: float) -> Iterator[str]:
    computation, threads = asked.computation, format_count(asked.threads, "thread")
    sizes = " ".join(f"{letter}={extent}" for letter, extent in computation.extents)
    yield "; ".join(map(str, computation.stages))
    yield _takes(computation)
    yield f"{sizes} on {asked.machine.name}, {threads}; predicted {format_duration(seconds)}"
    for choice in choices:
        yield ""
        yield from choice.lines()
        yield from _levels(choice)
        if choice.program is not None:
            yield "loops as they run, outermost first:"
            yield from (f"  {line}" for line in print_program(choice.program).splitlines())


def _takes(computation: Computation) -> str:
    """Return what a call takes, in order."""
    params = [f"{name}=…" for name, _ in computation.params]
    return f"takes {', '.join((*computation.inputs, *params)) or 'no arrays'}"


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
