"""What a client knows of its workers: how many, their memory, and where chunks are held."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
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
from tilesolve.machine.cluster import Cluster, read_cluster
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


def find_team(client: Client | None, memory_limit: float | None = None) -> Team:
    """Return the workers of a client, or of the one in force; this process if there is none.

    Raises
    ------
    MachineError
        If the client is none, is closed, or has no workers.
    MemoryLimitError
        If the limit is no positive number.
    """
    number = isinstance(memory_limit, int | float) and 0 < memory_limit < inf
    if memory_limit is not None and not number:
        raise MemoryLimitError(
            f"memory_limit must be a positive number of bytes, got {memory_limit!r:.60}"
        )
    if client is None:
        try:
            client = default_client()
        except ValueError:
            threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            own = Cluster(1, read_free_memory(), ASSUMED_NETWORK_RATE, threads)
            return _limit_blocks(Team(own), memory_limit or own.room)
    if not isinstance(client, Client):
        raise MachineError(f"client must be one of distributed's, got {client!r:.60}")
    if client.status != "running":
        raise MachineError(f"the client is {client.status}: connect a new one")
    team = read_workers(client)
    client.register_plugin(Placement())
    # Code takes much of a small worker, and Dask writes data to files where a process takes more.
    free = max(1, int(SPILL_SHARE * team.cluster.memory) - WORKER_CODE_BYTES)
    return _limit_blocks(team, memory_limit or min(team.cluster.room, free))


def read_workers(client: Client) -> Team:
    """Return a client's workers as plans count with them: the least memory, the fewest threads.

    Raises
    ------
    MachineError
        If it has none.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise MachineError(f"the cluster of {client!r} has no workers")
    free = read_free_memory() // len(workers)
    memory = min(int(one["memory_limit"] or free) for one in workers.values())
    threads = min(int(one["nthreads"]) for one in workers.values())
    cluster = Cluster(len(workers), memory, ASSUMED_NETWORK_RATE, threads)
    return Team(cluster, tuple(sorted(workers)), client)


def _limit_blocks(team: Team, room: float) -> Team:
    """Return workers on each of which blocks may take so many bytes, on the network in force."""
    memory, rate = ceil(room / WORKER_MEMORY_SHARE), read_cluster(1).bandwidth
    return replace(team, cluster=replace(team.cluster, memory=memory, bandwidth=rate))
