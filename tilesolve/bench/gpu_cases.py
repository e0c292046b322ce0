"""Cases of the benchmark of a GPU: who computes each, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

OURS = "tilesolve"
"""What the names of our own kernels begin with, and that of those which are compared with others.
"""

WARPS = f"{OURS} without wgmma"
"""Our kernels by `mma.sync`, where those which are compared are by `wgmma`."""


class Contest(NamedTuple):
    """What computes a case: functions by name, each of which leaves its result.

    `error` returns by how much ours differs from another, of the largest element; `predicted` are
    our seconds by the model.
    """

    runs: Mapping[str, Callable[[], object]]
    error: Callable[[], float]
    predicted: float


class Case(NamedTuple):
    """One case; `set_up` makes its contest on a card."""

    group: str
    name: str
    dtype: str
    flops: float
    set_up: Callable[[], Contest]

    def __str__(self) -> str:
        return f"{self.group} {self.name} {self.dtype}"


class Outcome(NamedTuple):
    """What was found: seconds by contender, or why there are none."""

    case: Case
    predicted: float = 0.0
    seconds: Mapping[str, float] = MappingProxyType({})
    fault: str = ""

    @property
    def best(self) -> str | None:
        """The fastest of the others; None if there is none."""
        others = [name for name in self.seconds if not name.startswith(OURS)]
        return min(others, key=self.seconds.__getitem__, default=None)

    @property
    def ratio(self) -> float:
        """Our speed over that of the fastest of the others; infinite where there is none."""
        return self.find_ratio(OURS)

    def find_ratio(self, name: str) -> float:
        """Return the ratio of one of our kernels."""
        return self.seconds[self.best] / self.seconds[name] if self.best else float("inf")
