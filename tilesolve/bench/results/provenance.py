"""Where figures come from: conditions that have to agree, and facts that a reader wants to know."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tilesolve.bench.case import NUMPY_OFFSET_BYTES
from tilesolve.bench.contenders import Contender
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.record import Conditions
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.model import Machine
from tilesolve.plans.cache import code_digest


def digest_machine(machine: Machine) -> str:
    """Return a few characters that tell a machine's figures from others."""
    return hashlib.sha256(machine.to_toml().encode()).hexdigest()[:12]


def collect_conditions(
    suite: str,
    dtype: str | None,
    contenders: Sequence[Contender],
    machine: Machine,
    procedure: Procedure,
    plans: int | None = None,
) -> Conditions:
    """Return what has to be equal for results to stand together."""
    return Conditions(
        suite,
        dtype,
        procedure.threads,
        procedure.batch,
        procedure.repeat,
        {contender.name: contender.label for contender in contenders},
        f"{machine.name} {digest_machine(machine)}",
        procedure.seconds,
        plans,
        code_digest(),
        NUMPY_OFFSET_BYTES,
    )


def collect_provenance(machine: Machine, command: str = "") -> dict[str, str]:
    """Return where, when and by which command something is measured: what and its value."""
    found = {
        "CPU": detect_cpu().model,
        "cores": str(detect_cpu().cores),
        "machine": f"{machine.name} ({digest_machine(machine)}), {machine.source('peak')} peak, "
        f"{machine.source('memory.bandwidth')} memory bandwidth",
        "system": f"{platform.system()} {platform.release()}",
        "versions": f"Python {platform.python_version()}, "
        + ", ".join(f"{p} {version(p)}" for p in ("tilesolve", "numpy", "numba")),
        "commit": find_commit(),
        "command": command,
        "begun": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return {what: value for what, value in found.items() if value}


def find_commit() -> str:
    """Return the commit that this code was checked out from; nothing for an installed package."""
    here = Path(__file__)

    def ask_git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:  # there is no git
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    if not ask_git("ls-files", here.name):
        return ""
    changed = "-dirty" if ask_git("status", "--porcelain", "--", ":/*.py") else ""
    return ask_git("rev-parse", "--short=12", "HEAD") + changed
