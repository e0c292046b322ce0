"""Clusters: workers that hold blocks in memory, and the network between them, as a value."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Self

import tomli_w

from tilesolve.constants.network import (
    ASSUMED_NETWORK_RATE,
    ASSUMED_WORKER_BYTES,
    WORKER_MEMORY_SHARE,
)
from tilesolve.contractions.errors import MachineError
from tilesolve.machine.level import check_count, check_rate
from tilesolve.machine.places import file_text
from tilesolve.system.files import config_dir, warn_once, write_atomically
from tilesolve.system.trust import read_trusted

FORMAT = 1
"""Version of the cluster file."""


def cluster_file() -> Path:
    """Return the path of the cluster file, which need not exist yet."""
    return config_dir() / "cluster.toml"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Workers and the network between them: one more level of the memory hierarchy.

    Parameters
    ----------
    workers
        Processes that compute.
    memory
        Bytes of memory that one worker may take in all.
    bandwidth
        Bytes per second that one worker takes in from others.
    threads
        Tasks that one worker runs at once.

    Examples
    --------
    >>> Cluster(workers=2, memory=10**9, bandwidth=1.2e9).room
    600000000
    """

    workers: int
    memory: int
    bandwidth: float
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("workers", "memory", "threads"):
            check_count("cluster", name, getattr(self, name))
        check_rate("cluster", "bandwidth", self.bandwidth)

    @property
    def room(self) -> int:
        """Bytes that blocks may take on one worker: what is left beside code and messages."""
        return int(self.memory * WORKER_MEMORY_SHARE)

    def save(self, path: Path) -> None:
        """Write the cluster file."""
        write_atomically(path, tomli_w.dumps({"format": FORMAT, **asdict(self)}), mode=0o644)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read a cluster file; None if it is not there.

        Raises
        ------
        MachineError
            If it is damaged, a figure in it is impossible, or somebody else could have written it.
        """
        text = file_text(path, lambda file: read_trusted(file).decode("utf-8"))
        if text is None:
            return None
        names = {field.name for field in fields(cls)}
        try:
            found = tomllib.loads(text)
            if found.pop("format", None) != FORMAT or found.keys() != names:
                wanted = ", ".join(sorted(names))
                raise MachineError(f"a cluster file has format = {FORMAT} and {wanted}")
            return cls(**found)
        except ValueError as error:  # a MachineError is one
            raise MachineError(f"{path}: {error}") from None


def read_cluster(workers: int | Cluster) -> Cluster:
    """Return so many workers as the cluster file describes them, or as they are assumed to be.

    A file that is damaged, or that somebody else could have written, is warned of once and ignored.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", TILESOLVE_CONFIG_DIR="/nonexistent"):
    ...     read_cluster(8)
    Cluster(workers=8, memory=17179869184, bandwidth=1200000000.0, threads=1)
    """
    if isinstance(workers, Cluster):
        return workers
    check_count("cluster", "workers", workers)
    try:
        found = Cluster.load(cluster_file())
    except MachineError as error:
        warn_once(f"ignored until 'tilesolve calibrate --cluster' has run: {error}")
        found = None
    found = found or Cluster(workers, ASSUMED_WORKER_BYTES, ASSUMED_NETWORK_RATE)
    return replace(found, workers=workers)
