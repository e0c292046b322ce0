"""Runs: pieces of lines side by side, whose first line is what hardware prefetching does not hide.

Were a level to serve runs and lines in ``runs · start + lines · line`` seconds, then with ρ =
line / (start + line), the share that a further line of a run costs of the first one, that is as
much as ``runs · (1 - ρ) + lines · ρ`` first lines. ρ = 0 counts runs alone, as chapter 4 of the
thesis on pipelines does; ρ = 1 lines alone, as where nothing prefetches. By these shares tiles of
nests are found; the price, which decides among them, counts lines.
"""

from __future__ import annotations

from tilesolve.constants.policy import LATER_LINE_SHARE
from tilesolve.machine.level import Level


def later_share(level: Level, line_seconds: float) -> float:
    """Return the share ρ of a run's first line that each further one costs at a level.

    Where the level's start is not known, the share is a default.

    Examples
    --------
    >>> later_share(Level("L2", 2**18, 6.4e10, start=3e-9), 1e-9)
    0.25
    """
    if level.start is None:
        return LATER_LINE_SHARE
    return line_seconds / (level.start + line_seconds)
