"""What a client knows of its workers: how many, their memory, and where chunks are held."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import dask.array as da
from distributed import Client, default_client
from distributed.client import futures_of

from tilesolve.constants.network import (
    ASSUMED_NETWORK_RATE,
    SPILL_SHARE,
    WORKER_CODE_BYTES,
    WORKER_MEMORY_SHARE,
)
from tilesolve.contractions.errors import MachineError, MemoryLimitError
from tilesolve.distributed.placement import Placement
from tilesolve.machine.cluster import Cluster, cluster_file
from tilesolve.system.free_memory import read_free_memory


@dataclass(frozen=True)
class Team:
    """The workers that compute: of a client, or the threads of this process.

    Parameters
    ----------
    cluster
        How many, with what memory and network.
    addresses
        Of the workers; none in this process.
    client
        None in this process.
    """

    cluster: Cluster
    addresses: tuple[str, ...] = ()
    client: Client | None = None

    def held(self, array: da.Array) -> Mapping[Any, str]:
        """Return the worker that holds each chunk of an array which has been computed."""
        futures = futures_of(array) if self.client is not None else ()
        if not futures or self.client is None:
            return {}
        found = self.client.who_has(futures)
        return {key: workers[0] for key, workers in found.items() if workers}


def find_team(client: Client | None, memory_limit: int | None = None) -> Team:
    """Return the workers of a client, or of the one in force; this process if there is none.

    Raises
    ------
    MachineError
        If the client is closed, or has no workers.
    MemoryLimitError
        If the limit is no positive number.
    """
    if memory_limit is not None and not memory_limit > 0:
        raise MemoryLimitError(
            f"memory_limit must be a positive number of bytes, got {memory_limit!r}"
        )
    if client is None:
        try:
            client = default_client()
        except ValueError:
            return Team(_limited(_this_process(), memory_limit))
    if client.status != "running":
        raise MachineError(f"the client is {client.status}: connect a new one")
    found = describe_workers(client)
    if not found:
        raise MachineError(f"the cluster of {client!r} has no workers")
    client.register_plugin(Placement())
    least = min(found.values(), key=lambda one: one.memory)
    rate = _network_rate()
    threads = min(one.threads for one in found.values())
    # Code takes much of a small worker, and Dask writes data to files where a process takes more.
    free = max(1, int(SPILL_SHARE * least.memory) - WORKER_CODE_BYTES)
    memory = min(least.memory, ceil(free / WORKER_MEMORY_SHARE))
    cluster = Cluster(len(found), memory, rate, threads)
    return Team(_limited(cluster, memory_limit), tuple(sorted(found)), client)


def describe_workers(client: Client) -> dict[str, Cluster]:
    """Return each worker by its address, as a cluster of one."""
    free = read_free_memory()
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {
        address: Cluster(
            1,
            int(one["memory_limit"] or free // len(workers)),
            ASSUMED_NETWORK_RATE,
            int(one["nthreads"]),
        )
        for address, one in workers.items()
    }


def _network_rate() -> float:
    """Return the bandwidth of the cluster file, or what is assumed without one."""
    path = cluster_file()
    return Cluster.load(path).bandwidth if path.is_file() else ASSUMED_NETWORK_RATE


def _this_process() -> Cluster:
    """Return the threads of this process, which share its memory, as one worker."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return Cluster(1, read_free_memory(), ASSUMED_NETWORK_RATE, threads)


def _limited(cluster: Cluster, memory_limit: int | None) -> Cluster:
    """Return a cluster whose blocks may take so much memory on a worker."""
    if memory_limit is None:
        return cluster
    return replace(cluster, memory=ceil(memory_limit / WORKER_MEMORY_SHARE))
