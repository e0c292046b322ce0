"""A network as text: its works, and what each is predicted and measured to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tilesolve.networks.build import Program
from tilesolve.networks.works import Work
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration, format_volume


def write_report(program: Program, measured: Sequence[float] | None = None) -> Iterator[str]:
    """Yield the lines of a program's works, and of the memory of its arrays.

    Parameters
    ----------
    measured
        Seconds of each work.
    """
    times = measured or [one or 0.0 for one in program.predicted]
    whole = sum(times) or 1.0
    rows: list[tuple[str, ...]] = []
    for work, price, seconds in zip(program.works, program.predicted, times, strict=True):
        predicted = "-" if price is None else format_duration(price)
        taken = [format_duration(seconds)] if measured else []
        rows.append((str(work), predicted, *taken, f"{seconds / whole:.1%}", _volume(work)))
    head = ("work", "predicted", *(["measured"] if measured else []), "share", "bytes")
    if rows:
        yield from align_columns([head, *rows])
        predicted = format_duration(sum(one or 0.0 for one in program.predicted))
        told = f", measured {format_duration(whole)}" if measured else ""
        yield f"all works: predicted {predicted}{told}"
    size, least = program.blocks.arrange()[1], program.blocks.least_bytes
    yield f"arrays take {format_volume(size)}, at least {format_volume(least)}"


def _volume(work: Work) -> str:
    """Return the bytes of all that a work reads and writes, weights left out."""
    return format_volume(sum(prod(one.shape) * one.dtype.itemsize for one in work.places))
