"""Calibration of a cluster: memory and threads of its workers, and transfers between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, permutations
from statistics import median
from time import perf_counter

import numpy as np
from distributed import Client, LocalCluster, wait

from tilesolve.constants.network import NETWORK_PROBE_BYTES, NETWORK_PROBE_PAIRS
from tilesolve.contractions.errors import CalibrationError
from tilesolve.distributed.clients import read_workers
from tilesolve.machine.cluster import Cluster

LOCAL = "local"
"""Stands for two workers of this computer in the place of an address."""


def measure_cluster(address: str = LOCAL) -> Cluster:
    """Return the workers of a cluster as plans count with them: the least memory, the usual rate.

    Raises
    ------
    CalibrationError
        If nothing answers at the address, or there are no two workers.
    """
    if address == LOCAL:
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
            return measure_cluster(cluster.scheduler_address)
    try:
        client = Client(address, timeout="10s", set_as_default=False)  # one that fails stays
    except (OSError, ValueError) as error:
        raise CalibrationError(f"no scheduler of Dask answers at {address!r}: {error}") from None
    with client, client.as_current():
        team = read_workers(client)
        if len(team.addresses) < 2:
            raise CalibrationError("a cluster needs two workers to measure transfers, has one")
        seconds = median(_list_transfers(client, team.addresses))
        return replace(team.cluster, bandwidth=NETWORK_PROBE_BYTES / seconds)


def _list_transfers(client: Client, addresses: Sequence[str]) -> Iterator[float]:
    """Yield the seconds of moving a block between pairs of workers; a first one is not counted."""
    pairs = [*permutations(addresses, 2)]
    for number, (source, target) in enumerate(islice([pairs[0], *pairs], NETWORK_PROBE_PAIRS)):
        block = client.submit(np.ones, NETWORK_PROBE_BYTES, np.uint8, workers=[source], pure=False)
        wait(block)
        begin = perf_counter()
        wait(client.submit(len, block, workers=[target], pure=False))
        if number:
            yield perf_counter() - begin
