"""Tiles that were solved before: another process reads them, and damage is told and mended."""

import pytest

from tilesolve.contractions.errors import TilesolveWarning
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine
from tilesolve.nests import relaxed
from tilesolve.nests.kept_tiles import temporal_tiles
from tilesolve.nests.setting import make_setting
from tilesolve.system import files


@pytest.fixture
def setting(tmp_path, monkeypatch):
    """A statement of four letters, and an empty cache."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(files, "_warned", set())
    found = bind_stages(parse_stages("C[i,j] += A[i,k,l] * B[k,j,l]"), 30, "int32")
    return make_setting(found, found.stages[0], Machine.load("i7-6700k"))


def test_tiles_are_solved_once(setting, monkeypatch):
    """The second time no solver is asked."""
    solved = temporal_tiles(setting)
    monkeypatch.setattr(relaxed, "solve_tiles", None)
    assert temporal_tiles(setting) == solved


def test_nothing_is_kept_where_caches_are_off(setting, monkeypatch, tmp_path):
    monkeypatch.setenv("TILESOLVE_CACHE", "off")
    assert temporal_tiles(setting)
    assert not list(tmp_path.rglob("tiles-*"))


@pytest.mark.parametrize("damage", ["half", "flipped", "others", "list"])
def test_damaged_tiles_are_told_and_solved_again(setting, tmp_path, monkeypatch, damage):
    """Whatever the file holds."""
    solved = temporal_tiles(setting)
    (path,) = tmp_path.rglob("tiles-*.json")
    text = path.read_text()
    path.write_text(
        {
            "half": text[: len(text) // 2],
            "flipped": text.replace("1", "2"),
            "others": text.replace('"l"', '"m"'),
            "list": "[]",
        }[damage]
    )
    monkeypatch.setattr(relaxed, "solve_tiles", lambda _setting: solved)
    with pytest.warns(TilesolveWarning, match=r"the list of tiles in .* is ignored"):
        assert temporal_tiles(setting) == solved
    assert temporal_tiles(setting) == solved
    assert path.read_text() == text
