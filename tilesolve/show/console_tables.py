"""What the command line prints with: a console that suits pipes, a progress bar, tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from rich.console import Console

from tilesolve.kernels.progress import Progress
from tilesolve.system.interrupts import keep_interrupts
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_size

if TYPE_CHECKING:
    from tilesolve.contractions.layer_suites import SuiteLayer
    from tilesolve.contractions.problem import Problem

PIPE_COLUMNS = 10_000
"""Columns of a console that is no terminal, so that nothing is cut off."""


def console(file: IO[str] | None = None) -> Console:
    """Return a console that prints text as it is, and uncut where no terminal is in the way.

    Specs such as ``nkhw-nc[h+r][w+s]-kcrs`` would otherwise be taken for markup.

    Examples
    --------
    >>> console().print("nkh-nc[h+r]-kcr")
    nkh-nc[h+r]-kcr
    """
    found = Console(file=file, markup=False, highlight=False, emoji=False)
    if not found.is_terminal:
        found.width = PIPE_COLUMNS
    return found


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Show a bar on standard error, and give the function that moves it and says what is done.

    The function also raises an interrupt that got lost before.

    Examples
    --------
    >>> with progress_bar("brewing") as show_progress:
    ...     show_progress(0.5, "halfway")
    """
    with keep_interrupts() as heed:
        from rich import progress

        columns = (
            progress.TextColumn(title),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left:"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.description}"),
        )
        with progress.Progress(*columns, console=console(sys.stderr)) as bar:
            task = bar.add_task("", total=1.0)

            def show_progress(fraction: float, what: str) -> None:
                heed()
                bar.update(task, completed=fraction, description=what)

            yield show_progress


def suite_table(name: str, problems: Mapping[str, Problem]) -> Table:
    """Return a suite's problems: sizes, work, bytes of all tensors, and their ratio."""
    return Table(
        f"Suite {name}",
        {
            "name": "left",
            "spec": "left",
            "sizes": "left",
            "dtype": "left",
            "GFLOP": "right",
            "bytes": "right",
            "flop/byte": "right",
        },
        [
            (
                key,
                str(problem.spec),
                " ".join(f"{letter}={extent}" for letter, extent in problem.sizes.items()),
                problem.dtype,
                f"{problem.flops / 1e9:.4g}",
                format_size(sum(problem.bytes)),
                f"{problem.intensity:.4g}",
            )
            for key, problem in problems.items()
        ],
        caption=format_count(len(problems), "problem"),
    )


def layer_table(name: str, layers: Sequence[SuiteLayer]) -> Table:
    """Return a suite's layers: how often networks have them, and their work.

    Examples
    --------
    >>> from tilesolve.contractions.layer_suites import layer_suite
    >>> len(layer_table("resnet18", layer_suite("resnet18")).rows)
    12
    """
    count = sum(row.times for row in layers)
    pointwise = sum(row.times for row in layers if row.pointwise)
    return Table(
        f"Layers of {name}",
        {"network": "left", "times": "right", "layer": "left", "result": "left", "GFLOP": "right"},
        [
            (
                row.model,
                str(row.times),
                str(row.convolution),
                "x".join(map(str, row.convolution.out_size)),
                f"{row.convolution.flops / 1e9:.4g}",
            )
            for row in layers
        ],
        caption=f"{format_count(count, 'layer')}, {pointwise} of them products",
    )
