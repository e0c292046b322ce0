"""Temporal tiles: all are tried, or a geometric program finds them, which is kept on disk."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import partial
from typing import Any

from tilesolve.constants.policy import NEST_ENUMERATED_LETTERS
from tilesolve.contractions.errors import PlanError
from tilesolve.nests.setting import Setting
from tilesolve.nests.temporal import BoundaryLoops, TemporalTiles, enumerate_tiles
from tilesolve.plans.cache import code_digest, is_enabled, keep, plan_folder, read_kept
from tilesolve.plans.files import refuse_damage, seal, unseal

Tiles = list[TemporalTiles]

HOLDS = "tiles of a nest"
"""What such JSON says that it holds."""

TILES_FORMAT = 1
"""Version of the JSON."""


def temporal_tiles(setting: Setting) -> Tiles:
    """Return tiles and orders for choices of loops, the least cost first; none if nothing fits.

    Those that are solved, which takes a second, are kept beside the plans. Other code, another
    machine or another statement has a file of its own. With ``TILESOLVE_CACHE=off`` nothing is
    kept.
    """
    if len(setting.tiled) <= NEST_ENUMERATED_LETTERS:
        return enumerate_tiles(setting)
    if not is_enabled():
        return _solve(setting)
    text = repr((code_digest(), setting))
    path = plan_folder() / f"tiles-{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    found = read_kept(path, partial(_load, setting=setting), "the list of tiles")
    if found is None:
        found = _solve(setting)
        keep(path, seal(HOLDS, TILES_FORMAT, {"tiles": [_row_of(one) for one in found]}))
    return found


def _solve(setting: Setting) -> Tiles:
    from tilesolve.nests.relaxed import solve_tiles  # loading the solver takes a second

    return solve_tiles(setting)


def _load(text: str, setting: Setting) -> Tiles:
    """Return tiles from JSON; raise `PlanError` where it is not what was written."""
    data = unseal(text, HOLDS, TILES_FORMAT)
    with refuse_damage():
        tiles = [_tiles_of(one) for one in data["tiles"]]
    if any(set(one.tiles) != set(setting.extents) for one in tiles):
        raise PlanError("they are those of another statement")
    return tiles


def _row_of(one: TemporalTiles) -> dict[str, Any]:
    return {**asdict(one), "tiles": {x: int(n) for x, n in one.tiles.items()}}


def _tiles_of(row: dict[str, Any]) -> TemporalTiles:
    tuples = {name: tuple(row[name]) for name in ("inter", "intra")}
    return TemporalTiles(**{**row, **tuples, "ends": BoundaryLoops(**row["ends"])})
