"""Processes that are killed at drawn moments, or begin at once: files are whole, or not there."""

import os
import random
import subprocess
import sys
import time

import pytest
from commands import FIRST_USE
from patience import PATIENCE

from tilesolve.contractions.errors import FileAccessError
from tilesolve.machine.file import save_machine
from tilesolve.machine.model import Machine
from tilesolve.machine.places import machine_file
from tilesolve.plans.plan import Plan
from tilesolve.system.files import LEFTOVER_SECONDS, hold_lock
from tilesolve.system.kept_objects import read_object, write_object

WRITES = """
import sys
from itertools import count
from pathlib import Path
from tilesolve.system.kept_objects import make_alone, write_object

folder = Path(sys.argv[1])
print("ready", flush=True)
for number in count():
    path = folder / f"{number % 5}.o"
    with make_alone(path):
        write_object(path, bytes([number % 256]) * 100_000)
"""


def start(text, *arguments, **settings):
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    )


def finish(process):
    """Wait for a process; return its status and all that it printed."""
    with process:
        out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out + err


def check_folder(folder):
    """Refuse a file that is not whole, and a lock that is held for good."""
    for path in folder.rglob("*.o"):
        assert read_object(path) is not None
    for path in folder.rglob("*.json"):
        Plan.from_json(path.read_text())
    for path in folder.rglob("*.lock"):
        try:
            with hold_lock(path.with_suffix(""), wait_seconds=PATIENCE):  # a maker may go on
                pass
        except FileAccessError as error:
            raise AssertionError(path) from error


def test_killed_amid_writing(tmp_path):
    """Whatever it was writing is whole, or was before; the next process goes on."""
    draw = random.Random(1)
    for _ in range(6):
        process = start(WRITES, tmp_path / "code")
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.03 * draw.random())
        process.kill()
        finish(process)
        check_folder(tmp_path)
        for path in (tmp_path / "code").glob("*.o"):
            code = read_object(path)
            assert code == code[:1] * 100_000


@pytest.mark.parametrize("place", ["cache", "machines"])
def test_what_killed_writers_left_goes(tmp_path, place):
    """After an hour; what is being written stays, and so do files of others."""
    folder = machine_file().parent if place == "machines" else tmp_path / "code"
    folder.mkdir(parents=True, exist_ok=True)
    old, new = folder / ".a.o.12.0123abcd.tmp", folder / ".a.o.13.0123abcd.tmp"
    others = folder / ".mine.tmp"
    for path in (old, new, others):
        path.touch()
    for path in (old, others):
        os.utime(path, times=(time.time() - 2 * LEFTOVER_SECONDS,) * 2)
    if place == "machines":
        save_machine(machine_file(), Machine.load("i7-6700k").to_toml())
    else:
        write_object(folder / "a.o", b"code")
    assert [path.exists() for path in (old, new, others)] == [False, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_amid_first_use(tmp_path, seed):
    """Whatever it compiled or planned, the next process is right, and prints nothing."""
    settings = {"TILESOLVE_CACHE_DIR": str(tmp_path / "cache")}
    began = time.monotonic()
    assert finish(start(FIRST_USE, **settings)) == (0, "")
    span = time.monotonic() - began
    draw = random.Random(seed)
    for number in range(4):
        settings = {"TILESOLVE_CACHE_DIR": str(tmp_path / f"cache{number % 2}")}
        process = start(FIRST_USE, **settings)
        time.sleep(span * draw.random())
        process.kill()
        finish(process)
        check_folder(tmp_path)
        assert finish(start(FIRST_USE, **settings)) == (0, "")


@pytest.mark.slow
def test_two_first_uses_at_once(tmp_path):
    """Both are right, and print nothing."""
    settings = {"TILESOLVE_CACHE_DIR": str(tmp_path / "cache")}
    processes = [start(FIRST_USE, **settings) for _ in range(3)]
    assert [finish(process) for process in processes] == [(0, "")] * 3
    check_folder(tmp_path)
