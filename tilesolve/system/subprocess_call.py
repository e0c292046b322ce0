"""A function in a process of its own, which may hang or die without harm to this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

_CHILD = """
import importlib, os, sys
sys.path[:] = sys.argv[3:]
answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # libraries may print, and that is no answer
function = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
answer.write(function(sys.stdin.buffer.read().decode()))
answer.close()
"""


def run_in_process(
    function: Callable[[str], str],
    text: str,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return ``function(text)``, computed in a new process.

    The process gets the text alone and does not import the script that this one runs, which thus
    needs no guard.

    The function is one that can be imported by its name. The process is ended after `seconds`,
    its start included. It has this one's environment, with what `environment` says besides.

    Raises
    ------
    TimeoutError
        If it had to be.
    ChildProcessError
        If it ended without an answer; the message says how, and has its last line.

    Examples
    --------
    >>> from textwrap import dedent
    >>> run_in_process(dedent, "  text", seconds=60)
    'text'
    """
    command = [sys.executable, "-c", _CHILD, function.__module__, function.__name__, *sys.path]
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            capture_output=True,
            timeout=seconds,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"ended after {seconds:g} s") from error
    if done.returncode:
        code = done.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        printed = done.stderr.decode(errors="replace").strip().splitlines()
        raise ChildProcessError(": ".join([how, *printed[-1:]]))
    return done.stdout.decode()
