"""Makers: other processes that compile ahead of this one, and for later ones."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys

_makers: list[subprocess.Popen[bytes]] = []


def start_maker(order: str) -> subprocess.Popen[bytes] | None:
    """Have another process run some Python, if a core is free; return it, or None.

    It ends with this process at the latest.

    Examples
    --------
    >>> maker = start_maker("pass")
    >>> maker is None or maker.wait() == 0
    True
    """
    if not sys.executable or len(os.sched_getaffinity(0)) < 2:
        return None
    nothing, command = subprocess.DEVNULL, [sys.executable, "-P", "-c", order]
    try:
        maker = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    except OSError:
        return None  # no process can be had
    _makers.append(maker)
    return maker


@atexit.register
def _end_makers() -> None:
    """End processes that still compile for later runs: none outlives this one."""
    for maker in _makers:
        if maker.poll() is None:
            maker.terminate()
            maker.wait()
