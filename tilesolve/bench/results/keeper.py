"""Results in the making: written to a file as they come, and told of where work is broken off."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from tilesolve.bench.results.record import Record
from tilesolve.system.units import format_count

Some = TypeVar("Some", bound=Record[Any])


class Keeper(Generic[Some]):
    """The latest results, written to a file as they come.

    Without a path nothing is written.
    """

    def __init__(self, found: Some, path: Path | None) -> None:
        self.found, self.path = found, path

    def update(self, found: Some) -> None:
        """Put newer results in the place of the older ones."""
        self.found = found
        if self.path is not None:
            found.save(self.path)


@contextmanager
def keep_results(start: Some, path: Path | None) -> Iterator[Keeper[Some]]:
    """Give a keeper; say on standard error what is kept if the work is interrupted."""
    keeper = Keeper(start, path)
    try:
        yield keeper
    except KeyboardInterrupt:
        where = f"kept in {path}" if path else "lost, as --json names no file"
        print(
            f"interrupted: {format_count(len(keeper.found.cases), 'case')} {where}; "
            "with the same --json the command goes on from there",
            file=sys.stderr,
        )
        raise


def print_estimate(seconds: Iterable[float]) -> None:
    """Say on standard error how many cases there are to measure, and about how long they take."""
    each = list(seconds)
    print(f"{format_count(len(each), 'case')}, about {sum(each) / 60:.0f} min", file=sys.stderr)
