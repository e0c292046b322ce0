"""Temporal tiles: all are tried, or a geometric program finds them, which is kept on disk."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilesolve.constants.policy import NEST_ENUMERATED_LETTERS
from tilesolve.contractions.errors import FileAccessError, PlanError
from tilesolve.nests.setting import Setting
from tilesolve.nests.temporal import Ends, TemporalTiles, enumerate_tiles
from tilesolve.plans.cache import code_digest, is_enabled, plan_folder
from tilesolve.system.cache_bound import bound_cache, note_use
from tilesolve.system.checksums import checksum_of
from tilesolve.system.files import warn_once, write_atomically
from tilesolve.system.trust import NOWHERE, read_trusted

Tiles = list[TemporalTiles]


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
    found = _read(path, setting)
    if found is None:
        found = _solve(setting)
        _keep(path, found)
    return found


def _solve(setting: Setting) -> Tiles:
    from tilesolve.nests.relaxed import solve_tiles  # loading the solver takes a second

    return solve_tiles(setting)


def _read(path: Path, setting: Setting) -> Tiles | None:
    """Return the tiles in a file; one that is damaged, or not ours, is reported and not used."""
    try:
        found = _load(read_trusted(path).decode("utf-8"), setting)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError, PlanError) as error:
        warn_once(f"the tiles in {path} are ignored: {error}")
        return None
    note_use(path)
    return found


def _load(text: str, setting: Setting) -> Tiles:
    """Return tiles from JSON; raise `PlanError` where it is not what was written."""
    try:
        data = json.loads(text)
        given = data.pop("checksum")
        tiles = [_tiles_of(one) for one in data["tiles"]]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"these are no tiles: {type(error).__name__}: {error}") from None
    if given != checksum_of(data):
        raise PlanError("their checksum is not that of their content")
    if any(set(one.tiles) != set(setting.extents) for one in tiles):
        raise PlanError("they are those of another statement")
    return tiles


def _tiles_of(row: dict[str, Any]) -> TemporalTiles:
    names = ("ends", "inter", "intra")
    rest = {name: value for name, value in row.items() if name not in names}
    return TemporalTiles(
        Ends(**row["ends"]), inter=tuple(row["inter"]), intra=tuple(row["intra"]), **rest
    )


def _keep(path: Path, tiles: Tiles) -> None:
    """Write tiles to disk; where that is not possible, warn once."""
    if NOWHERE in path.parents:  # a warning has said so
        return
    rows = [asdict(one) for one in tiles]
    data = {
        "tiles": [{**row, "tiles": {x: int(n) for x, n in row["tiles"].items()}} for row in rows]
    }
    try:
        write_atomically(path, json.dumps({**data, "checksum": checksum_of(data)}), mode=0o600)
    except FileAccessError as error:
        warn_once(f"tiles of nests are not kept on disk: {error}")
        return
    bound_cache(path)
