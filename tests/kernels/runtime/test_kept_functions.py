"""Compiled functions on disk: compiled once, kept beside the kernels, not beside the sources."""

import os

import pytest

from tilesolve.contractions.errors import TilesolveWarning
from tilesolve.kernels.runtime import kept_functions
from tilesolve.kernels.runtime.compiled import INT, compiled
from tilesolve.system import trust


def add(first, second):
    return first + second


def subtract(first, second):
    return first - second


@pytest.fixture
def own(home, monkeypatch):
    """A cache folder of this test's own, and a private one in its place."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "cache"))
    monkeypatch.setattr(trust, "private_folder", lambda: home / "private")
    return home / "cache" / "functions"


def make(function):
    """Return a compiled function, and whether it was found on disk."""
    found = compiled(INT, INT, returns=INT)(function)
    return found, sum(found._cache_hits.values()) == 1


def test_a_function_is_compiled_once(own):
    """The second time it is loaded, and does the same."""
    for hit in (False, True):
        found, was_kept = make(add)
        assert was_kept == hit
        assert found(3, 4) == 7
    (path,) = own.glob("*.o")
    assert path.name.startswith("test_kept_functions.add-")


@pytest.mark.parametrize("what", ["LAYOUT", "numba"])
def test_code_of_other_sources_or_tools_is_not_used(own, monkeypatch, what):
    """All that code depends on is in the name."""
    make(add)
    other = type("numba", (), {"__version__": "0"}) if what == "numba" else 1
    monkeypatch.setattr(kept_functions, what, other)
    assert not make(add)[1]
    assert len(list(own.glob("*.o"))) == 2


def test_a_damaged_function_is_compiled_again(own):
    """It is reported; what numba would have executed is never unpickled."""
    make(add)
    (path,) = own.glob("*.o")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(TilesolveWarning, match="is damaged; compiling again"):
        found, was_kept = make(add)
    assert (found(3, 4), was_kept) == (7, False)
    assert make(add)[1]


@pytest.mark.parametrize("place", ["private", "nowhere", "full"])
def test_where_nothing_can_be_kept_there_is_one_warning(own, home, monkeypatch, place):
    """However many functions; a private folder serves as well as any."""
    if place == "full":

        def fail(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        said = f"nothing can be kept in {own}: No space left on device; each process compiles"
    else:
        (home / "file").touch()
        monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(home / "file"))
        said = f"{home / 'file'} cannot be written; plans and compiled code are kept in {home}"
    if place == "nowhere":
        monkeypatch.setattr(trust, "private_folder", lambda: trust.NOWHERE)
        said = f"{home / 'file'} cannot be written; and there is no place for temporary files"

    with pytest.warns(TilesolveWarning) as caught:
        results = [make(function)[0](3, 4) for function in (add, subtract, add)]
    assert results == [7, -1, 7]
    assert [str(one.message)[: len(said)] for one in caught] == [said]
