"""Contractions on Dask arrays: right whatever the chunks, within the bytes that are promised."""

import os
import signal
import time

import dask.array as da
import numpy as np
import pytest
from distributed import Client, WorkerPlugin, wait
from patience import PATIENCE

from tilesolve.contractions.errors import (
    DtypeError,
    MachineError,
    MemoryLimitError,
    SizeError,
    SpecError,
)
from tilesolve.distributed import contract, einsum, map_batch, promises, tensordot
from tilesolve.distributed.clients import Team
from tilesolve.machine.cluster import Cluster
from tilesolve.system.units import format_duration, format_volume

CASES = [
    ("ij,jk->ik", [(130, 170), (170, 90)], [37, 50]),
    ("ij,kj", [(200, 60), (90, 60)], [64, 7]),
    ("abef,dfce->abcd", [(7, 6, 5, 8), (4, 8, 6, 5)], [3, 4]),
    ("degb,gfac->abcdef", [(5, 6, 7, 4), (7, 3, 6, 4)], [4, 3]),
    ("bij,bjk->bik", [(6, 40, 30), (6, 30, 20)], [(2, 20, 30), 25]),
    ("ij,jk,kl->il", [(60, 80), (80, 50), (50, 30)], [33, 40, 20]),
    ("ij,k->ik", [(30, 20), (40,)], [7, 9]),
    ("...ij->...ji", [(3, 8, 9)], [4]),
    ("i,i->", [(500,), (500,)], [99, 100]),
]


def moved_bytes(client):
    """What workers have sent to others so far."""

    def read(dask_worker):
        return dask_worker.transfer_outgoing_bytes_total

    return sum(client.run(read).values())


@pytest.mark.parametrize(("text", "shapes", "chunks"), CASES)
def test_results_are_numpys(text, shapes, chunks, client):
    """For all kinds of contractions and chunks, of Dask's and of NumPy's arrays."""
    rng = np.random.default_rng(5)
    arrays = [rng.random(shape) for shape in shapes]
    lazy = [da.from_array(x, chunks=n) for x, n in zip(arrays, chunks, strict=True)]
    wanted = np.einsum(text, *arrays)
    found = einsum(text, lazy[0], *arrays[1:], client=client, memory_limit=400_000)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.compute(), wanted, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "float16", "bool"])
def test_dtypes_are_numpys(dtype, client):
    """Integers stay exact, and halves are rounded once."""
    rng = np.random.default_rng(6)
    x, y = ((4 * rng.random(shape)).astype(dtype) for shape in ((90, 80), (80, 70)))
    found = einsum("ij,jk->ik", da.from_array(x, 33), da.from_array(y, 40), memory_limit=400_000)
    assert found.dtype == x.dtype
    wanted = np.einsum("ij,jk->ik", *(one.astype("complex128") for one in (x, y)))
    wanted = wanted.real if dtype != "complex64" else wanted
    rtol = {"float16": 1e-3, "float32": 1e-5, "complex64": 1e-5}.get(dtype, 0)
    np.testing.assert_allclose(found.compute(), wanted.astype(dtype), rtol=rtol)


@pytest.mark.parametrize("workers", [3, 7, 13])
@pytest.mark.parametrize(("text", "sizes"), [("ij,jk->ik", {}), ("aib,bka->ik", {"a": 3, "b": 7})])
def test_any_number_of_workers_shares_a_product(workers, text, sizes, monkeypatch):
    """Parts that are not as many everywhere give NumPy's result, and move what the model says."""
    sizes = {"i": 120, "j": 90, "k": 100} | sizes
    rng = np.random.default_rng(workers)
    arrays = [rng.random([sizes[i] for i in own]) for own in text.split("->")[0].split(",")]
    addresses = tuple(map(str, range(workers)))
    team = Team(Cluster(workers, 10**9, 1e6), addresses)
    monkeypatch.setattr(contract, "find_team", lambda *_: team)
    found = einsum(text, *(da.from_array(array, 37) for array in arrays))
    (promise,) = promises(found)
    used = {key[1] for key in found.dask if "step" in str(key[0])}
    assert used == set(addresses[: promise.division.workers])
    assert promise.division.least <= sum(promise.sent) <= 1.3 * promise.division.price.volume
    np.testing.assert_allclose(found.compute(scheduler="sync"), np.einsum(text, *arrays))


def test_tensordot_is_numpys(client):
    """Axes are a number or two lists."""
    x, y = np.random.default_rng(7).random((2, 6, 6, 6))
    for axes in (2, ([0, 2], [1, 2]), ([1], [-2]), 3):
        found = tensordot(da.from_array(x, 3), y, axes, client=client).compute()
        np.testing.assert_allclose(found, np.tensordot(x, y, axes), rtol=1e-12)


@pytest.mark.parametrize(
    ("sizes", "limit", "dtype"),
    [
        ((900, 800, 1000), 25, "float64"),
        ((300, 4000, 300), 99, "float64"),
        ((600, 800, 700), 25, "complex128"),
        ((600, 2000, 600), 25, "float16"),
    ],
)
def test_bytes_are_those_of_the_model(sizes, limit, dtype, client):
    """What Dask's workers send is what was predicted, whether letters of C are cut or sums."""
    m, k, n = sizes
    x = da.random.default_rng(8).random((m, k), chunks=(m // 3, k // 2)).astype(dtype)
    y = da.random.default_rng(9).random((k, n), chunks=(k // 4, n)).astype(dtype)
    found = einsum("ij,jk->ik", x, y, client=client, memory_limit=limit * 1_000_000)
    (promise,) = promises(found)
    before = moved_bytes(client)
    result = client.persist(found)
    wait(result)
    sent = moved_bytes(client) - before
    assert sent == pytest.approx(sum(promise.sent), rel=0.1)
    assert promise.rechunked >= 0
    told = str(promise)
    seconds = promise.rechunked / promise.division.workers / promise.division.cluster.bandwidth
    assert f"{format_volume(promise.rechunked)}, {format_duration(seconds)}" in told
    assert f"sent: {format_volume(sum(promise.sent))}, " in told
    assert promise.peak <= limit * 1_000_000
    one, other = (array.astype(np.result_type(dtype, "float64")).compute() for array in (x, y))
    rtol = 1e-3 if dtype == "float16" else 1e-11
    np.testing.assert_allclose(result.compute(), one @ other, rtol=rtol)


class Held(WorkerPlugin):
    """Keeps the most bytes of arrays that a worker has had at once, shared ones counted once.

    What steps add to counts, too.
    """

    name = "held"

    def setup(self, worker):
        self.worker, self.most = worker, 0

    def transition(self, key, start, finish, **more):
        if finish == "memory":
            owners = {}
            for value in list(getattr(self.worker.data, "fast", self.worker.data).values()):
                owner = array = getattr(value, "array", value)
                while isinstance(getattr(owner, "base", None), np.ndarray):
                    owner = owner.base
                size = getattr(array, "nbytes", 0)
                owners[id(owner)] = max(owners.get(id(owner), 0), size)
            self.most = max(self.most, sum(owners.values()))


@pytest.mark.parametrize(
    ("side", "chunk", "limit"), [(1200, 400, 28), (1200, 360, 28), (2400, 400, 20)]
)
def test_workers_hold_what_is_promised(side, chunk, limit, client):
    """Whether blocks are chunks as they come, or parts of them, and whether results stay."""
    x = da.random.default_rng(8).random((side, side), chunks=chunk)
    y = da.random.default_rng(9).random((side, side), chunks=chunk)
    found = einsum("ij,jk->ik", x, y, client=client, memory_limit=limit * 1_000_000)
    (promise,) = promises(found)
    client.register_plugin(Held())
    stays = promise.division.keeps.results
    assert stays == (side == 1200)
    result = client.persist(found) if stays else client.compute(found.sum())
    wait(result)
    most = client.run(lambda dask_worker: dask_worker.plugins["held"].most)
    client.unregister_worker_plugin("held")
    assert promise.peak <= limit * 1_000_000
    assert 0.3 * promise.peak <= max(most.values()) <= promise.peak


def test_held_chunks_stay_where_they_are(client):
    """Of two arrays that lie as the plan wants them nothing moves but what it says."""
    x = da.random.default_rng(8).random((900, 800), chunks=(300, 800))
    first = client.persist(einsum("ij,jk->ik", x, x.T, client=client))
    wait(first)
    before = moved_bytes(client)
    second = einsum("ij,jk->ik", first, da.ones((900, 40), chunks=900), client=client)
    result = client.persist(second)
    wait(result)
    sent = moved_bytes(client) - before
    assert sent <= 1.1 * sum(promises(second)[-1].sent) + 50_000
    np.testing.assert_allclose(result.compute()[:, 0], first.sum(axis=1).compute(), rtol=1e-11)


@pytest.mark.parametrize("kind", ["contraction", "batch"])
def test_a_worker_that_is_killed(kind, client, cluster):
    """Amid the work: its tasks run again elsewhere, and nothing hangs."""

    def slow(block):
        time.sleep(0.02)
        return 2 * block

    x = da.random.default_rng(1).random((1200, 1200), chunks=300).map_blocks(slow)
    wanted = x.compute(scheduler="sync")
    if kind == "contraction":
        found = einsum("ij,jk->ik", x, x, client=client, memory_limit=16_000_000)
        wanted = wanted @ wanted
    else:
        found, wanted = map_batch(slow, x, images=100, client=client), 2 * wanted
    victim, *_ = client.run(os.getpid).values()
    future = client.compute(found)
    while sum(one.state == "memory" for one in list(cluster.scheduler.tasks.values())) < 3:
        time.sleep(0.01)
    os.kill(victim, signal.SIGKILL)
    assert not future.done()
    np.testing.assert_allclose(future.result(timeout=PATIENCE), wanted, rtol=1e-10)
    client.wait_for_workers(2, timeout=PATIENCE)


def test_what_cannot_be_is_refused_at_once(client):
    """Each error says which operand, which letter, and which sizes."""
    x = da.ones((40, 50), chunks=20)
    with pytest.raises(SizeError, match=r"'j' .*50 on axis 1 of operand 0 .*40"):
        einsum("ij,jk->ik", x, x)
    with pytest.raises(SizeError, match="operand 1 has chunks of unknown size along axis 0"):
        einsum("ij,jk->ik", x, x.T[x.T[:, 0] > 0])
    with pytest.raises(DtypeError, match="operand 0 has dtype object"):
        einsum("ij,jk->ik", x.astype(object), x.T)
    for axes in (3, ([0], [2]), ([0, 0], [0, 1]), ([0], [0, 1])):
        with pytest.raises(SpecError, match="axes must be a number"):
            tensordot(x, x, axes)
    with pytest.raises(SpecError, match="twice"):
        einsum("ii->i", x[:40, :40])
    with pytest.raises(MemoryLimitError, match=r"A .*, B .*"):
        einsum("ij,jk->ik", x, x.T, memory_limit=16)
    with pytest.raises(MemoryLimitError, match="memory_limit must be"):
        einsum("ij,jk->ik", x, x.T, memory_limit=0)
    other = Client(client.scheduler.address)
    other.close()
    with pytest.raises(MachineError, match="the client is closed"):
        einsum("ij,jk->ik", x, x.T, client=other)
