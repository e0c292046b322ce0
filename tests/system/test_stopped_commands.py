"""Commands that are stopped or killed at drawn moments: what they keep is whole, and they go on."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from patience import PATIENCE

from tilesolve.machine.model import Machine
from tilesolve.system.files import hold_lock

SAYS = {signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}
"""The status of a command that a signal ends."""

COMMANDS = {
    "calibrate": ["calibrate", "--quick", "--output", "kept.toml"],
    "kernels": ["kernels", "--dtype", "f32", "--output", "kept.toml"],
    "plan": ["plan", "mn-mk-kn", "300", "--machine", "e5-2680v4"],
    "bench": ["bench", "random:3:5", "--seconds", "0.3", "--json", "kept.json"],
}


def start(folder, command, **settings):
    """Start a command in a folder, with caches of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tilesolve", *COMMANDS[command]],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TILESOLVE_CACHE_DIR": str(folder / "cache"), **settings},
    )


def stop(folder, command, kind, seconds):
    """Send a signal to a command after some seconds; return whether it had ended before."""
    process = start(folder, command)
    with process:
        time.sleep(seconds)
        ended = process.poll() is not None
        process.send_signal(kind)
        _, said = process.communicate(timeout=PATIENCE)
    assert ended or process.returncode in (0, SAYS[kind]), (process.returncode, said)
    assert "Traceback" not in said
    return ended


def check_kept(folder):
    """What is there is whole, and nobody holds it."""
    machine, sweep = folder / "kept.toml", folder / "kept.json"
    if machine.exists():
        assert Machine.load(machine).levels
        with hold_lock(machine, wait_seconds=PATIENCE):
            pass
    if sweep.exists():
        json.loads(sweep.read_text())
    assert [path.name for path in folder.glob("*.tmp")] == []


@pytest.mark.parametrize("command", ["kernels", "bench"])
def test_interrupted_early(tmp_path, command):
    """An interrupt in the first second ends a command by its status, in one line at most."""
    if command == "kernels":
        (tmp_path / "kept.toml").write_text(Machine.detect().to_toml())
    stop(tmp_path, command, signal.SIGINT, 0.8)
    check_kept(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAYS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("command", COMMANDS)
def test_stopped_at_drawn_moments(tmp_path, command, kind):
    """Whenever that is, files are whole or absent, and the same command then runs to its end."""
    draw = random.Random(f"{command} {kind.name}")
    if command == "kernels":
        (tmp_path / "kept.toml").write_text(Machine.detect().to_toml())
    for _ in range(5):
        stop(tmp_path, command, kind, 12 * draw.random())
        check_kept(tmp_path)
    process = start(tmp_path, command)
    with process:
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    check_kept(tmp_path)
