"""A contraction of tensors that together exceed the memory of its workers, on any computer.

    $ python examples/larger_than_memory.py

Two workers have a limit each; operands are made chunk by chunk where they are needed, and finished
chunks of the result go to a file. What a worker is to hold is known before anything runs.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from distributed.diagnostics.progressbar import progress

import tilesolve.distributed as td
from tilesolve.system.units import format_size


def elements(shape: tuple[int, int], chunk: int, factor: int) -> da.Array:
    """Return a matrix whose elements follow from their place."""

    def fill(block_info: dict[Any, Any] | None = None) -> np.ndarray:
        rows, columns = ((block_info or {})[None])["array-location"]
        i, j = np.arange(*rows)[:, None], np.arange(*columns)
        return (i * factor + j * 7) % 31 / 16.0 - 0.9

    chunks = da.core.normalize_chunks(chunk, shape, dtype=float)
    return da.map_blocks(fill, chunks=chunks, dtype=float, meta=np.empty((0, 0)))


class File:
    """An array in a file, which each worker opens by itself."""

    def __init__(self, path: Path, shape: tuple[int, int]) -> None:
        self.path, self.shape = path, shape
        np.lib.format.open_memmap(path, "w+", float, shape)

    def __setitem__(self, box: tuple[slice, ...], block: np.ndarray) -> None:
        np.load(self.path, mmap_mode="r+")[box] = block

    def __getitem__(self, place: tuple[int, int]) -> float:
        return float(np.load(self.path, mmap_mode="r")[place])


def read_peak() -> int:
    """Return the largest memory that a process has had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=600_000_000, help="bytes of each worker")
    parser.add_argument("--side", type=int, default=7200, help="of the matrices")
    asked = parser.parse_args(arguments)
    shape = (asked.side, asked.side)
    a, b = elements(shape, 720, 3), elements(shape, 720, 5)
    together = 3 * a.nbytes
    print(f"three matrices of {format_size(a.nbytes)}: {format_size(together)} together,")
    print(f"two workers of {format_size(asked.limit)} each")
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set({"optimization.fuse.active": False}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=asked.limit, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        c = td.einsum("ij,jk->ik", a, b, client=client)
        (promise,) = td.promises(c)
        print(f"a worker's blocks take {format_size(promise.peak)} at most")
        file = File(Path(folder) / "c.npy", shape)
        stored = da.store(c, file, compute=False, lock=False)
        future = client.compute(stored)
        progress(future)
        future.result()
        most = max(client.run(read_peak).values())
        rng = np.random.default_rng(0)
        for i, j in rng.integers(asked.side, size=(8, 2)):
            row, column = a[i].compute(scheduler="sync"), b[:, j].compute(scheduler="sync")
            assert math.isclose(file[i, j], row @ column, rel_tol=1e-9), (i, j)
    print(f"\na worker's process took {format_size(most)} at most")
    print("8 sampled elements are right")


if __name__ == "__main__":
    main()
