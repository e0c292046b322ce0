"""Five contractions on two workers of one core: bytes over the network and time, beside Dask's own.

    $ python examples/distributed_speed.py

Operands are made where they are first needed, in Dask's automatic chunks of 16 MiB; results stay on
the workers. Contenders run in turns on the same cluster: `dask.array.einsum` (``optimize=True``),
`dask.array.tensordot`, and `cubed` where it is installed. The tensors of each contraction together
exceed one worker's limit. Dask makes chunks of operands again for each task that uses them where it
fuses these: what is made again counts as moved, as if it were read.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, Worker, get_worker, wait

import tilesolve.distributed as td

LIMIT = 900_000_000
"""Bytes of memory of a worker."""

CHUNK = "16MiB"
"""Dask's automatic chunks, which have 128 MiB, made smaller as these workers are."""

CASES = {
    "square": ("ij,jk->ik", "i=6144 j=6144 k=6144"),
    "tall and skinny": ("ki,kj->ij", "i=400 j=400 k=150000"),
    "dask#2225": ("ijk,jkl->il", "i=6000 j=90 k=70 l=6000"),
    "abcd-aebf-dfce": ("aebf,dfce->abcd", "a=80 b=80 c=80 d=80 e=80 f=80"),
    "abcdef-degb-gfac": ("degb,gfac->abcdef", "a=24 b=22 c=22 d=24 e=16 f=16 g=22"),
}
"""Contractions and extents."""

SMALL = {2: 256, 3: 48, 4: 14}
"""By axes of operands, extents for which blocks are planned, which takes code."""


@dataclass(frozen=True)
class Measured:
    """What one run took: seconds, bytes that workers sent and made, and the largest worker."""

    seconds: float
    sent: int
    made: int
    peak: int


def pattern(shape: tuple[int, ...], chunks: str | int, seed: int) -> da.Array:
    """Return an array whose elements follow from their place, quickly made."""

    def fill(block_info: dict[Any, Any] | None = None) -> np.ndarray:
        spans = (block_info or {})[None]["array-location"]
        found = np.full((1,) * len(spans), float(seed))
        for axis, (begin, end) in enumerate(spans):
            own = np.arange(begin, end) * (2 * axis + 3) % 17 - 8.0
            found = found + own.reshape([-1 if at == axis else 1 for at in range(len(spans))])
        with contextlib.suppress(ValueError):  # not on a worker
            worker = get_worker()
            worker.made_bytes = getattr(worker, "made_bytes", 0) + found.nbytes
        return found

    made = da.core.normalize_chunks(chunks, shape, dtype=float)
    return da.map_blocks(fill, chunks=made, dtype=float, meta=np.empty((0,) * len(shape)))


def count_bytes(client: Client) -> np.ndarray:
    """Return the bytes that workers have sent to others so far, and those of operands made."""

    def read(dask_worker: Worker) -> tuple[int, int]:
        made = getattr(dask_worker, "made_bytes", 0)
        return dask_worker.transfer_outgoing_bytes_total, made

    return np.sum([*client.run(read).values()], axis=0)


def reset_peak() -> None:
    """Let the system count a process's largest memory anew."""
    Path("/proc/self/clear_refs").write_text("5")


def read_peak() -> int:
    """Return the largest memory of a process since then."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure(
    client: Client, make: Callable[[], da.Array], look: Callable[[da.Array], None]
) -> Measured:
    """Run a contraction, leave its result on the workers, look at it, and drop it."""
    client.run(reset_peak)
    before, begin = count_bytes(client), time.perf_counter()
    result = client.persist(make())
    wait(result)
    taken = time.perf_counter() - begin
    failed = [future for future in client.futures_of(result) if future.status == "error"]
    if failed:
        failed[0].result()
    sent, made = (int(one) for one in count_bytes(client) - before)
    peak = max(client.run(read_peak).values())
    look(result)
    return Measured(taken, sent, made, peak)


def by_tensordot(text: str, one: da.Array, other: da.Array) -> da.Array:
    """Return a contraction by `dask.array.tensordot` and a transpose."""
    first, second, output = text.replace("->", ",").split(",")
    summed = [letter for letter in first if letter in second]
    axes = [first.index(i) for i in summed], [second.index(i) for i in summed]
    left = [i for i in first + second if i not in summed]
    return da.tensordot(one, other, axes).transpose([left.index(i) for i in output])


def check(text: str, arrays: Sequence[da.Array], result: da.Array) -> None:
    """Compare sampled elements with sums over the operands' elements."""
    first, second, output = text.replace("->", ",").split(",")
    rng = np.random.default_rng(3)
    for _ in range(2):
        at = dict(zip(output, (int(rng.integers(n)) for n in result.shape), strict=True))
        parts = [
            array[tuple(at.get(i, slice(None)) for i in letters)].compute(scheduler="sync")
            for letters, array in zip((first, second), arrays, strict=True)
        ]
        left = ["".join(i for i in letters if i not in at) for letters in (first, second)]
        wanted = np.einsum(f"{left[0]},{left[1]}->", *parts)
        found = result[tuple(at[i] for i in output)].compute()
        assert math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-6), (text, at, found, wanted)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on extents")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    asked = parser.parse_args(arguments)
    with (
        dask.config.set({"array.chunk-size": CHUNK}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=asked.limit,
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        print("| contraction | by | seconds | sent | predicted | made again | largest worker |")
        print("| --- | --- | --: | --: | --: | --: | --: |")
        ratios = [run(client, name, asked.scale, asked.rounds) for name in asked.cases]
    speed = math.prod(one for one, _ in ratios) ** (1 / len(ratios))
    share = max(other for _, other in ratios)
    print(f"\n{speed:.2f} × as fast as the faster of Dask's own, in the geometric mean;")
    print(f"{min(one for one, _ in ratios):.2f} × at least; {share:.0%} of its bytes at most")


def run(client: Client, name: str, scale: float, rounds: int) -> tuple[float, float]:
    """Run all contenders of a contraction; return the ratios of times and bytes."""
    text, extents = CASES[name]
    sizes = {i: max(2, int(int(n) * scale)) for i, n in (one.split("=") for one in extents.split())}
    first, second, _ = text.replace("->", ",").split(",")
    shapes = [tuple(sizes[i] for i in letters) for letters in (first, second)]
    arrays = [pattern(shape, "auto", seed) for seed, shape in enumerate(shapes)]
    contenders: dict[str, Callable[[], da.Array]] = {
        "tilesolve": lambda: td.einsum(text, *arrays, client=client),
        "dask einsum": lambda: da.einsum(text, *arrays, optimize=True),
        "dask tensordot": lambda: by_tensordot(text, *arrays),
    }
    # Whoever is first loads code and makes connections: a small one of each is not counted.
    small = [pattern((SMALL[array.ndim],) * array.ndim, 300, 1) for array in arrays]
    wait(client.persist(td.einsum(text, *small, client=client)))
    wait(client.persist(by_tensordot(text, *small)))
    look, found = partial(check, text, arrays), dict[str, list[Measured]]()
    for _ in range(rounds):
        for who, make in contenders.items():
            found.setdefault(who, []).append(measure(client, make, look))
    best = {who: min(runs, key=lambda one: one.seconds) for who, runs in found.items()}
    planned = td.promises(contenders["tilesolve"]())[-1]
    once = sum(array.nbytes for array in arrays)
    for who, one in best.items():
        predicted = f"{sum(planned.sent) / 1e6:.0f} MB" if who == "tilesolve" else "-"
        print(
            f"| {name} | {who} | {one.seconds:.2f} | {one.sent / 1e6:.0f} MB | {predicted} "
            f"| {(one.made - once) / 1e6:.0f} MB | {one.peak / 1e6:.0f} MB |",
            flush=True,
        )
    ours, others = best.pop("tilesolve"), list(best.values())
    fastest = min(others, key=lambda one: one.seconds)
    ours_moved, *moved = (one.sent + one.made - once for one in (ours, *others))
    return fastest.seconds / ours.seconds, ours_moved / max(1, min(moved))


if __name__ == "__main__":
    main()
