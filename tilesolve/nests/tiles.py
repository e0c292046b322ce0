"""Which search finds temporal tiles: trying all of them, or a geometric program."""

from __future__ import annotations

from tilesolve.constants.policy import NEST_ENUMERATED_LETTERS
from tilesolve.nests.kept_tiles import kept_tiles
from tilesolve.nests.setting import Setting
from tilesolve.nests.temporal import TemporalTiles, enumerate_tiles


def temporal_tiles(setting: Setting) -> list[TemporalTiles]:
    """Return tiles and orders for choices of loops, the least cost first; none if nothing fits."""
    if len(setting.tiled) <= NEST_ENUMERATED_LETTERS:
        return enumerate_tiles(setting)
    return kept_tiles(setting, _solve)


def _solve(setting: Setting) -> list[TemporalTiles]:
    from tilesolve.nests.relaxed import solve_tiles  # loading the solver takes a second

    return solve_tiles(setting)
