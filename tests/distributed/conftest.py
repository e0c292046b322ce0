"""Two workers of one thread in processes of their own, started once for all tests of the folder.

Their scheduler is in this process, where other tests count bytes: it goes with the folder.
"""

import pytest

pytest.importorskip("distributed", reason="the extra dask is missing")

import dask
from distributed import Client, LocalCluster
from patience import PATIENCE

LIMIT = 1_000_000_000
"""Bytes of memory of a worker."""


@pytest.fixture(scope="package")
def cluster():
    with (
        # A busy computer takes long to start a worker again.
        dask.config.set({"distributed.deploy.lost-worker-timeout": PATIENCE}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=":0"
        ) as found,
    ):
        yield found


@pytest.fixture
def client(cluster):
    with Client(cluster) as found:
        found.wait_for_workers(2)
        yield found
