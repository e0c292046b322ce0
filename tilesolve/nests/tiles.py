"""Which search finds temporal tiles: trying all of them, or a geometric program."""

from __future__ import annotations

from tilesolve.nests.relaxed import solve_tiles
from tilesolve.nests.setting import Setting
from tilesolve.nests.temporal import TemporalTiles, enumerate_tiles
from tilesolve.planning.policy import NEST_ENUMERATED_LETTERS


def temporal_tiles(setting: Setting) -> TemporalTiles | None:
    """Return the tiles and the order that cost least; None if no tile fits the caches."""
    if len(setting.tiled) <= NEST_ENUMERATED_LETTERS:
        return enumerate_tiles(setting)
    return solve_tiles(setting)
