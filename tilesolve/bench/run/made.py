"""What a maker returns that has more to say than its run: what is predicted of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilesolve.bench.results.sweeps import Figures

Run = Callable[[], Any]
"""Computes what was made ready, and returns the result."""

Timer = Callable[[], float]
"""Runs once and returns the seconds."""


@dataclass(frozen=True, slots=True)
class Made:
    """What was made ready.

    `describe` returns what is predicted of a plan of ours, given what times a run; others have
    none.
    """

    run: Run
    describe: Callable[[Timer], Figures] | None = None
