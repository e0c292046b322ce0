"""Compiled functions on disk: compiled once, kept beside the kernels, not beside the sources."""

import os

import pytest

from tilesolve.contractions.errors import TilesolveWarning
from tilesolve.kernels import objects
from tilesolve.kernels.runtime import compiled as compiled_functions
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


@pytest.fixture
def make(monkeypatch):
    """Return what returns a compiled function, and whether its code was found on disk."""
    build = compiled_functions.build_functions

    def make(function):
        built = []
        monkeypatch.setattr(
            compiled_functions, "build_functions", lambda name: built.append(name) or build(name)
        )
        monkeypatch.setattr(compiled_functions, "_functions", {})
        monkeypatch.setattr(compiled_functions, "_loaded", {})
        found = compiled(INT, INT, returns=INT)(function)
        assert found(1, 1) == function(1, 1)
        return found, not built

    return make


def test_a_function_is_compiled_once(own, make):
    """The second time it is loaded, and does the same."""
    for hit in (False, True):
        found, was_kept = make(add)
        assert was_kept == hit
        assert found(3, 4) == 7
    (path,) = own.glob("*.o")
    assert path.name.startswith("test_kept_functions-")


@pytest.mark.parametrize("what", ["LAYOUT", "llvmlite.__version__"])
def test_code_of_other_sources_or_tools_is_not_used(own, make, monkeypatch, what):
    """All that code depends on is in the name."""
    make(add)
    monkeypatch.setattr(f"{objects.__name__}.{what}", "0")
    assert not make(add)[1]
    assert len(list(own.glob("*.o"))) == 2


def test_a_damaged_function_is_compiled_again(own, make):
    """It is reported; its code is never run."""
    make(add)
    (path,) = own.glob("*.o")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(TilesolveWarning, match="is damaged; compiling again"):
        found, was_kept = make(add)
    assert (found(3, 4), was_kept) == (7, False)
    assert make(add)[1]


@pytest.mark.parametrize("place", ["private", "nowhere", "full"])
def test_where_nothing_can_be_kept_there_is_one_warning(own, make, home, monkeypatch, place):
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
