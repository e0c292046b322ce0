"""What every test starts from."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tilesolve import files, plan_cache

# On a busy machine an example may take any time. Whoever sees a failure can repeat it.
settings.register_profile(
    "anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("anywhere")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Folders of this test's own, no other setting, no plan in memory, no warning issued yet."""
    for name in [name for name in os.environ if name.startswith("TILESOLVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TILESOLVE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_warned", set())
    plan_cache._memory.clear()
    return tmp_path
