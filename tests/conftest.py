"""What every test starts from."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tilesolve.plans import cache as plan_cache
from tilesolve.system import files
from tilesolve.system.trust import kept_folder

# On a busy machine an example may take any time. Whoever sees a failure can repeat it.
settings.register_profile(
    "anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("anywhere")

# Started in the background, by `nohup` or a job runner, this process and all those that tests start
# would inherit that interrupts are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)


KEPT_FUNCTIONS = kept_folder("functions")
"""What was compiled, in this run and in earlier ones: it takes seconds to make again."""


@pytest.fixture(scope="session")
def kept_functions():
    """The folder of compiled functions, for folders of a test's own."""
    files.make_folder(KEPT_FUNCTIONS)
    return KEPT_FUNCTIONS


@pytest.fixture(scope="session")
def kept_code(tmp_path_factory):
    """A folder of compiled kernels, empty at first, that all processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "code"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path, tmp_path_factory, monkeypatch, kept_code, kept_functions):
    """Folders of this test's own, no other setting, no plan in memory, no warning issued yet.

    Only kernels that another test compiled are there: making them takes seconds each time. A test
    of their making sets a cache folder of its own.
    """
    for name in [name for name in os.environ if name.startswith("TILESOLVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path / "config"))
    cache = tmp_path_factory.mktemp("cache")
    (cache / "code").symlink_to(kept_code)
    (cache / "functions").symlink_to(kept_functions)
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(cache))
    monkeypatch.setattr(files, "_warned", set())
    plan_cache._memory.clear()
    return tmp_path
