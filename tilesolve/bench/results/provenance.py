"""Where figures come from: settings that have to agree, and facts that a reader wants to know."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from tilesolve.bench.contenders import Contender
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.record import Conditions
from tilesolve.machine.model import Machine
from tilesolve.plans.cache import code_digest


def digest_machine(machine: Machine) -> str:
    """Return a few characters that tell a machine's figures from others.

    Examples
    --------
    >>> len(digest(Machine.load("i7-6700k")))
    12
    """
    return hashlib.sha256(machine.to_toml().encode()).hexdigest()[:12]


def collect_conditions(
    suite: str,
    dtype: str | None,
    contenders: Sequence[Contender],
    machine: Machine,
    procedure: Procedure,
    plans: int | None = None,
) -> Conditions:
    """Return what has to be equal for results to stand together.

    Examples
    --------
    >>> found = settings("tccg", None, (), Machine.load("i7-6700k"), Procedure(repeat=3))
    >>> found.repeat, found.machine[:8], len(found.code)
    (3, 'i7-6700k', 12)
    """
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
    )


def collect_provenance(machine: Machine) -> dict[str, str]:
    """Return where and when something is measured: what and its value.

    Examples
    --------
    >>> list(provenance(Machine.load("i7-6700k")))
    ['CPU', 'machine', 'system', 'versions', 'begun']
    """
    from tilesolve.machine.cpu import detect_cpu

    return {
        "CPU": f"{detect_cpu().name}, {detect_cpu().cores} cores",
        "machine": f"{machine.name} ({digest_machine(machine)}), {machine.source('peak')} peak, "
        f"{machine.source('memory.bandwidth')} memory bandwidth",
        "system": f"{platform.system()} {platform.release()}",
        "versions": f"Python {platform.python_version()}, "
        + ", ".join(f"{p} {version(p)}" for p in ("tilesolve", "numpy", "numba")),
        "begun": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
