"""A ranking as text: a row for each variant, and how rankers agree."""

from __future__ import annotations

from collections.abc import Iterator

from tilesolve.model.set_costs import knows_latencies
from tilesolve.plans.plan import Plan
from tilesolve.ranking.rankers import SETS
from tilesolve.ranking.standings import MEASURED, Standings
from tilesolve.ranking.variants import SOLVER, Variant
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_count, format_duration

MOST_ROWS = 20
"""Variants that a table shows, the best ones; the solver's plan comes beside them."""


def write_ranking(found: Standings) -> str:
    """Return a ranking's table, with a line of what it is of before and what it says after."""
    return "\n".join((*_head(found), "", *align_columns(list(_rows(found))), "", *_notes(found)))


def describe_around(plan: Plan) -> str:
    """Return the loops around a plan's tiles, nearest cache first; a dash for no tile."""
    return " ".join(first or "-" for first in plan.choice)


def describe_tiles(plan: Plan) -> str:
    """Return a plan's tiles of classes, nearest cache first."""
    return " ".join(f"{i}:{','.join(map(str, chain))}" for i, chain in plan.classes)


def describe_copies(plan: Plan) -> str:
    """Return for each operand the level that its copy stays in; a dash for no copy."""
    return " ".join(level or "-" for level in plan.nest.packed)


def describe_variant(variant: Variant) -> tuple[str, str, str, str, str, bool]:
    """Return kind, loops, tiles, divided letter and copies of a variant, and whether it fits."""
    plan = variant.plan
    return (
        *(variant.kind, describe_around(plan), describe_tiles(plan), plan.split or ""),
        *(describe_copies(plan), variant.fits),
    )


def _head(found: Standings) -> Iterator[str]:
    solver = found.solver
    threads = format_count(solver.threads, "thread")
    yield f"{found.problem} on {solver.machine.name}, {threads}"
    yield f"{format_count(len(found), 'variant')} by {found.by}, the best first"


def _rows(found: Standings) -> Iterator[tuple[str, ...]]:
    others = [name for name in found.rankers if name != found.by]
    timed = any(taken is not None for taken in found.measured)
    yield (
        *("rank", "variant", "around", "tiles", "split", "packed", "fits", "predicted"),
        *(found.by, *others),
        *([MEASURED] if timed else []),
    )
    ranks = {name: found.ranks(name) for name in found.rankers}
    for at, variant in enumerate(found.variants):
        if at >= MOST_ROWS and variant.kind != SOLVER and found.measured[at] is None:
            continue
        taken, (*cells, fits) = found.measured[at], describe_variant(variant)
        yield (
            f"{ranks[found.by][at]:g}",
            *(str(cell) or "-" for cell in cells),
            "yes" if fits else "no",
            format_duration(variant.plan.seconds),
            f"{found.scores_by(found.by)[at]:.4g}",
            *(f"{ranks[name][at]:g}" for name in others),
            *([format_duration(taken) if taken is not None else "-"] if timed else []),
        )


def _notes(found: Standings) -> Iterator[str]:
    for name in found.rankers:
        tied = found.ties(name)
        agrees = "" if name == found.by else f", agreement {found.agreement(found.by, name):.2f}"
        place = found.ranks(name)[found.plans.index(found.solver)]
        yield f"{name}: the solver's plan is number {place:g}, {tied} are tied{agrees}"
    if SETS in found.rankers and not knows_latencies(found.solver.machine):
        yield "sets: the machine does not have all latencies, so each counts as 1"
    for name, why in found.lacking:
        yield f"{name}: {why}"
    count = sum(taken is not None for taken in found.measured)
    if count:
        yield (
            f"{format_count(count, 'variant')} measured: the solver's plan is "
            f"{100 * found.excess:.1f} % slower than the fastest"
        )
        for name in found.rankers:
            yield (
                f"{name}: its first is {100 * found.regret(1, name):.1f} % slower than the "
                f"fastest, the best of its first {min(5, count)} "
                f"{100 * found.regret(min(5, count), name):.1f} %; rank correlation "
                f"{found.correlation(name):.2f}"
            )
