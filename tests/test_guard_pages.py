"""Nothing is read or written beyond an array: pages around each one end the process that does."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run_python
from guard_pages import allocate
from patience import PATIENCE

SCRIPT = Path(__file__).parent / "support" / "guard_pages.py"
PARTS, CALLS = 20, 5000


def make_calls(seed, calls, dtypes, tmp_path):
    """Make calls in a process of their own, which has to end well."""
    notes = tmp_path / "notes"
    done = run_python(
        str(SCRIPT),
        str(seed),
        str(calls),
        str(notes),
        *dtypes,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    last = notes.read_text("utf-8").strip() if notes.exists() else "none"
    assert done.returncode == 0, (f"seed {seed}, call {last}", done.returncode, done.stderr[-2000:])
    assert int(last) == calls - 1


def test_calls_stay_within_their_arrays(tmp_path):
    """A few of the calls that the slow test makes."""
    make_calls(int(np.random.default_rng().integers(10**6, 10**9)), 150, ["f4", "f8"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_calls_stay_within_their_arrays(part, tmp_path):
    """A hundred thousand, in parts."""
    make_calls(part, CALLS, ["f4", "f8", "c8", "c16"], tmp_path)


@pytest.mark.parametrize("beyond", [-1, 0])
def test_guards_are_there(beyond, tmp_path):
    """A process that reads one byte beyond an array ends, at one of its two ends at least."""
    text = (
        "import numpy as np, ctypes; from guard_pages import allocate\n"
        "rng = np.random.default_rng(0)\n"
        "for _ in range(20):\n"
        "    found = allocate(100, rng)\n"
        f"    ctypes.string_at(found.ctypes.data + ({beyond} if {beyond} < 0 else 100), 1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=SCRIPT.parent, check=False, timeout=PATIENCE
    )
    assert done.returncode < 0
    assert allocate(100, np.random.default_rng(0)).sum() == 0
