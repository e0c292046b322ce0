"""Cache folders that are full, or cannot be made: results are right, and a line or two says so."""

import os
import random
import resource

import pytest
from commands import FIRST_USE, run_python

PLANS = """
import tilesolve
for size in range(40, 42):
    print(tilesolve.plan("i-ij-j", size, "i7-6700k").seconds > 0)
"""


def run(text, folder, most=None):
    """Run a process whose files may have so many bytes; return what it printed, errors last."""

    def limit():
        if most is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    done = run_python(
        "-c", text, preexec_fn=limit, env={**os.environ, "TILESOLVE_CACHE_DIR": str(folder)}
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("most", [0, 700])
def test_plans_where_files_cannot_grow(tmp_path, most):
    """Plans are made all the same, nothing that is not whole stays, and it is told of."""
    out, err = run(PLANS, tmp_path / "cache", most)
    assert out == "True\n" * 2
    assert "File too large" in err
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not [path for path in kept if path.suffix in (".json", ".tmp") and path.stat().st_size]
    assert run(PLANS, tmp_path / "cache") == ("True\n" * 2, "")


def test_plans_where_no_folder_can_be_made(tmp_path):
    """A file is in the place of the cache folder: nobody, root included, makes one below it."""
    (tmp_path / "file").touch()
    out, err = run(PLANS, tmp_path / "file" / "cache")
    assert out == "True\n" * 2
    assert err.count("Warning") <= 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_results_where_files_cannot_grow(tmp_path, seed):
    """What cannot be kept is compiled by each process; what is kept serves the next one."""
    most = int(10 ** random.Random(seed).uniform(2, 6))
    run(FIRST_USE, tmp_path / "cache", most)
    run(FIRST_USE, tmp_path / "cache")
    assert run(FIRST_USE, tmp_path / "cache") == ("", "")
