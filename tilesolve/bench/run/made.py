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
    """A case that was made ready.

    `describe` returns the figures predicted for a plan of ours, given a function that times a run;
    others have none. `load` compiles what only this case needs, so that no run that counts does.
    """

    run: Run
    describe: Callable[[Timer], Figures] | None = None
    load: Callable[[], object] | None = None
