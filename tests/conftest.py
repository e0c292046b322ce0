"""What every test starts from."""

import gc
import hashlib
import itertools
import os
import signal
import sys
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import pytest
import turns
from guessed_tiles import guessed_tiles
from hypothesis import HealthCheck, settings
from turns import choose_cover

from tilesolve import caches
from tilesolve.machine import kernel_cache
from tilesolve.planning.geometric import relaxation, strategy
from tilesolve.plans import cache as plan_cache
from tilesolve.system import cache_bound, files
from tilesolve.system.trust import kept_folder

ROOT = Path(__file__).parent.parent

# On a busy machine an example may take any time. Whoever sees a failure can repeat it.
settings.register_profile(
    "anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("anywhere")

# Started in the background, by `nohup` or a job runner, this process and all those that tests start
# would inherit that interrupts are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Processes that tests start would compile each module that they import, again and again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The simulator of caches takes three seconds to compile, in each process. Compiled functions hold
# those that they call: all are made again when one of them has changed.
SIMULATOR = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(ROOT.glob("tilesolve/simulation/*.py")))
)
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / "build" / "simulator" / SIMULATOR.hexdigest()[:16])

gc.disable()  # until all tests are collected, of which nothing is garbage


def pytest_configure(config):
    """Tell tests which runs have all of their examples."""
    turns.slow_runs = config.option.markexpr == "slow"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of grids, all cases but those that have each value, or each pair of values, are slow."""
    grids = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("grid") and not item.get_closest_marker("slow"):
            grids[item.parent, item.originalname][tuple(item.callspec._idlist)] = item
    for cases in grids.values():
        for ids in cases.keys() - choose_cover(list(cases)):
            cases[ids].add_marker("slow")


def pytest_collection_finish():
    """Leave what all tests have in common out of collections, and collect what caches hold."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 40, 40)
    gc.enable()


@lru_cache(maxsize=256)
def relax_once(setting, starts, convex, thorough):
    """Return the optima of a setting, which are the same for all tests that plan with it."""
    return relaxation.relax(setting, starts=starts, convex=convex, thorough=thorough)


strategy.relax = lambda setting, *, starts=1, convex=True, thorough=False: relax_once(
    setting, starts, convex, thorough
)
"""What plans call. A test that changes the solver puts `relaxation.relax` in this place."""


KEPT = {name: kept_folder(name).resolve() for name in ("code", "functions")}
"""What was compiled, in this run and in earlier ones: it takes minutes to make again.

Its files' names tell what they were made from, so that none is used after a change of that.
"""


@pytest.fixture(scope="session")
def kept_functions():
    """The folder of compiled functions, for folders of a test's own."""
    files.make_folder(KEPT["functions"])
    return KEPT["functions"]


@pytest.fixture(scope="session")
def kept_code():
    """The folder of compiled kernels, for folders of a test's own."""
    files.make_folder(KEPT["code"])
    return KEPT["code"]


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """New folders, one a test: those of pytest take longer the more there are."""
    base = tmp_path_factory.mktemp("folders")
    return (base / str(number) for number in itertools.count())


def remove_own_files(folder, pattern):
    """Remove files of a test's own: what was compiled serves all tests, also of other runs."""
    assert folder.resolve() not in KEPT.values(), "the test needs a cache folder of its own"
    return files.remove_files(folder, pattern)


@pytest.fixture(autouse=True)
def own_settings(folders, monkeypatch, kept_code, kept_functions):
    """Folders of this test's own, no other setting, no plan in memory, no warning issued yet.

    Only what was compiled before is there. A test of its making sets a cache folder of its own.
    """
    own = next(folders)
    for name in [name for name in os.environ if name.startswith("TILESOLVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(own / "config"))
    cache = own / "cache"
    cache.mkdir(parents=True)
    (cache / "code").symlink_to(kept_code)
    (cache / "functions").symlink_to(kept_functions)
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(cache))
    (cache / cache_bound.JOURNAL).touch()  # thousands of files to look at else
    for module in (caches, kernel_cache):
        monkeypatch.setattr(module, "remove_files", remove_own_files)
    monkeypatch.setattr(files, "_warned", set())
    plan_cache._memory.clear()


@pytest.fixture(scope="module")
def any_tiles():
    """Let all plans of a module have drawn loops and tiles, which are found much faster."""
    with guessed_tiles(0):
        yield


@pytest.fixture
def home(own_settings, tmp_path, monkeypatch):
    """A folder for what a test makes, with the folder of settings in it."""
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path
