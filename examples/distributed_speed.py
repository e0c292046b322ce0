"""Five contractions on two workers of one core: bytes over the network and time, beside others.

    $ python examples/distributed_speed.py

Operands are made where they are first needed, in Dask's automatic chunks of 16 MiB; results are
summed up, and sampled elements of them checked. Contenders run in turns on the same cluster:
`dask.array.einsum` (``optimize=True``), `dask.array.tensordot`, and `cubed.tensordot`, which moves
through files, where it is installed. The tensors of each contraction together exceed one worker's
limit. Dask makes chunks of operands again for each task that uses them where it fuses these: what
is made again counts as moved, as if it were read.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import dask
import dask.array as da
import numpy as np
from distributed import Client, KilledWorker, LocalCluster, Worker, get_worker, wait

import tilesolve.distributed as td

try:
    import cubed
    import cubed.array_api as xp
    from cubed.runtime.executors import dask as cubed_on_dask

    # It asks for the cluster's workers in a way that later versions of Dask do not answer.
    cubed_on_dask.check_runtime_memory = lambda *_: None
except ImportError:
    cubed = None

LIMIT = 900_000_000
"""Bytes of memory of a worker."""

CHUNK = "16MiB"
"""Dask's automatic chunks, which have 128 MiB, made smaller as these workers are."""

PATIENCE = 120
"""Seconds after which a contender is stopped."""

CASES = {
    "square": ("ij,jk->ik", "i=6144 j=6144 k=6144"),
    "tall and skinny": ("ki,kj->ij", "i=400 j=400 k=400000"),
    "dask#2225": ("ijk,jkl->il", "i=6000 j=90 k=70 l=6000"),
    "abcd-aebf-dfce": ("aebf,dfce->abcd", "a=80 b=80 c=80 d=80 e=80 f=80"),
    "abcdef-degb-gfac": ("degb,gfac->abcdef", "a=28 b=22 c=24 d=24 e=18 f=18 g=22"),
}
"""Contractions and extents."""

SMALL = 2e8
"""Products of a contraction for which blocks are planned, which loads code."""

T = TypeVar("T")

CONTENDERS = ["tilesolve", "dask einsum", "dask tensordot", "cubed"]

HEAD = (
    "contraction",
    "by",
    "seconds",
    "CPU seconds",
    "sent",
    "predicted",
    "by files",
    "made again",
    "largest worker",
)


@dataclass(frozen=True)
class Measured:
    """What a run took: seconds, processors' seconds, bytes, and the largest worker."""

    seconds: float
    cpu: float
    sent: int
    filed: int
    made: int
    peak: int


def elements(spans: Sequence[tuple[int, int]], seed: int) -> np.ndarray:
    """Return elements that follow from their place, quickly made."""
    found = np.full((1,) * len(spans), float(seed))
    for axis, (begin, end) in enumerate(spans):
        own = np.arange(begin, end) * (2 * axis + 3) % 17 - 8.0
        found = found + own.reshape([-1 if at == axis else 1 for at in range(len(spans))])
    with contextlib.suppress(ValueError):  # not on a worker
        worker = get_worker()
        worker.made_bytes = getattr(worker, "made_bytes", 0) + found.nbytes
    return found


def pattern(shape: tuple[int, ...], chunks: str | int, seed: int) -> da.Array:
    """Return an array of such elements."""

    def fill(block_info: dict[Any, Any] | None = None) -> np.ndarray:
        return elements((block_info or {})[None]["array-location"], seed)

    made = da.core.normalize_chunks(chunks, shape, dtype=float)
    return da.map_blocks(fill, chunks=made, dtype=float, meta=np.empty((0,) * len(shape)))


def count_bytes(client: Client) -> np.ndarray:
    """Return the bytes that workers sent to others, made of operands, and moved by files so far."""

    def read(dask_worker: Worker) -> tuple[int, int, int]:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        made = getattr(dask_worker, "made_bytes", 0)
        files = int(lines["rchar"]) + int(lines["wchar"])
        return dask_worker.transfer_outgoing_bytes_total, made, files

    return np.sum([*client.run(read).values()], axis=0)


def reset_peak() -> None:
    """Let the system count a process's largest memory anew."""
    Path("/proc/self/clear_refs").write_text("5")


def read_peak() -> int:
    """Return the largest memory of a process since then."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@dataclass(frozen=True)
class Contraction:
    """A contraction of two patterns, whose chunks Dask chooses."""

    text: str
    sizes: dict[str, int]

    @property
    def letters(self) -> list[str]:
        """The letters of A, B and C."""
        return self.text.replace("->", ",").split(",")

    def arrays(self, chunks: str | int = "auto") -> list[da.Array]:
        """Return the operands."""
        shapes = [tuple(self.sizes[i] for i in letters) for letters in self.letters[:2]]
        return [pattern(shape, chunks, seed) for seed, shape in enumerate(shapes)]

    def by_tensordot(self, tensordot: Callable[..., T], *arrays: T) -> T:
        """Return the contraction by some `tensordot`, with axes as they come."""
        first, second, _ = self.letters
        summed = [letter for letter in first if letter in second]
        axes = [first.index(i) for i in summed], [second.index(i) for i in summed]
        return tensordot(*arrays, axes=axes)

    def in_order(self, found: da.Array) -> da.Array:
        """Return such a result with the axes of C."""
        first, second, output = self.letters
        left = [i for i in first + second if i in output]
        return found.transpose([left.index(i) for i in output])

    def largest_product(self, arrays: Sequence[da.Array]) -> int:
        """Return the bytes of the largest chunk of C, where chunks of operands are as they are."""
        longest = [max(sizes) for array in arrays for sizes in array.chunks]
        free = zip("".join(self.letters[:2]), longest, strict=True)
        return 8 * math.prod(length for i, length in free if i in self.letters[2])

    def samples(self) -> Iterator[tuple[tuple[int, ...], float]]:
        """Yield places in C, and what is there."""
        first, second, output = self.letters
        rng = np.random.default_rng(3)
        for _ in range(3):
            at = {i: int(rng.integers(self.sizes[i])) for i in output}
            spans = {i: (at[i], at[i] + 1) if i in at else (0, n) for i, n in self.sizes.items()}
            parts = [
                elements([spans[i] for i in own], seed) for seed, own in enumerate((first, second))
            ]
            yield tuple(at[i] for i in output), float(np.einsum(f"{first},{second}->", *parts))


def count_cpu(client: Client) -> float:
    """Return the seconds that workers, scheduler and client have computed so far."""
    return sum(client.run(time.process_time).values()) + time.process_time()


def measure(client: Client, run: Callable[[], None]) -> Measured:
    """Return what a run takes."""
    client.run(reset_peak)
    before, cpu, begin = count_bytes(client), count_cpu(client), time.perf_counter()
    run()
    taken, cpu = time.perf_counter() - begin, count_cpu(client) - cpu
    sent, made, files = (int(one) for one in count_bytes(client) - before)
    peak = max(client.run(read_peak).values())
    return Measured(taken, cpu, sent, files, made, peak)


def consume(client: Client, contraction: Contraction, make: Callable[[], da.Array]) -> None:
    """Sum up a result, and compare sampled elements with sums over the operands' elements."""
    samples, result = list(contraction.samples()), make()
    futures = client.compute([result.sum(), *(result[at] for at, _ in samples)])
    try:
        wait(futures, timeout=PATIENCE)
        found = client.gather(futures)
    finally:
        client.cancel(futures)
    for (at, wanted), own in zip(samples, found[1:], strict=True):
        assert math.isclose(own, wanted, rel_tol=1e-9, abs_tol=1e-6), (at, own, wanted)


def consume_cubed(client: Client, contraction: Contraction, limit: int) -> None:
    """Sum up what cubed computes on the same workers."""
    executor = cubed_on_dask.DaskExecutor(compute_kwargs={"address": client.scheduler.address})

    def fill(
        block: np.ndarray, *, seed: int, sizes: list[int], block_id: tuple[int, ...]
    ) -> np.ndarray:
        spans = zip(block_id, sizes, block.shape, strict=True)
        return elements([(at * size, at * size + n) for at, size, n in spans], seed)

    with tempfile.TemporaryDirectory() as folder:
        spec = cubed.Spec(folder, allowed_mem=limit, reserved_mem="200MB", executor=executor)
        operands = []
        for seed, array in enumerate(contraction.arrays()):
            sizes = tuple(own[0] for own in array.chunks)
            empty = xp.empty(array.shape, dtype=float, chunks=sizes, spec=spec)
            own = partial(fill, seed=seed, sizes=sizes)
            operands.append(cubed.map_blocks(own, empty, dtype=float))
        float(xp.sum(contraction.by_tensordot(xp.tensordot, *operands)).compute())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="of which the fastest counts")
    parser.add_argument("--limit", type=int, default=LIMIT, help="bytes of each worker")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on extents")
    parser.add_argument("--by", nargs="+", default=CONTENDERS, choices=CONTENDERS)
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
        if cubed is None:
            print("cubed is not installed\n")
        print(f"two workers of one thread and {asked.limit / 1e6:.0f} MB each\n")
        print(f"| {' | '.join(HEAD)} |\n| --- | --- |{' --: |' * 7}")
        ratios = [run(client, name, asked) for name in asked.cases]
    for peer in CONTENDERS[1:]:
        own = [one[peer] for one in ratios if peer in one]
        if own:
            speed = math.prod(one for one, _ in own) ** (1 / len(own))
            share = max(other for _, other in own)
            print(
                f"\n{speed:.2f} × as fast as {peer} in the geometric mean of {len(own)}, "
                f"{min(one for one, _ in own):.2f} × at least; {share:.0%} of its bytes at most"
            )


def run(client: Client, name: str, asked: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Run all contenders of a contraction; return the ratios of their times and bytes to ours."""
    text, extents = CASES[name]
    sizes = {i: int(n) for i, n in (one.split("=") for one in extents.split())}
    contraction = Contraction(text, {i: max(2, int(n * asked.scale)) for i, n in sizes.items()})
    arrays = contraction.arrays()
    by_tensordot = partial(contraction.by_tensordot, da.tensordot)
    made: dict[str, Callable[[], da.Array]] = {
        "tilesolve": lambda: td.einsum(text, *arrays, client=client),
        "dask einsum": lambda: da.einsum(text, *arrays, optimize=True),
        "dask tensordot": lambda: contraction.in_order(by_tensordot(*arrays)),
    }
    contenders = {who: partial(consume, client, contraction, make) for who, make in made.items()}
    if cubed is not None:
        contenders["cubed"] = partial(consume_cubed, client, contraction, asked.limit)
    # Whoever is first loads code and makes connections: a small one of each is not counted.
    small = Contraction(text, dict.fromkeys(sizes, round(SMALL ** (1 / len(sizes)))))
    wait(client.persist(td.einsum(text, *small.arrays(400), client=client)))
    wait(client.persist(small.by_tensordot(da.tensordot, *small.arrays(400))))
    once, runs = sum(array.nbytes for array in arrays), dict[str, list[Measured]]()
    waiting = [who for who in contenders if who in asked.by]
    for _ in range(asked.rounds):
        for who in tuple(waiting):
            try:
                if (
                    who == "dask tensordot"
                    and contraction.largest_product(arrays) > asked.limit / 4
                ):
                    raise MemoryError("a chunk of the result is too large for a worker")
                runs.setdefault(who, []).append(measure(client, contenders[who]))
            except (TimeoutError, KilledWorker, MemoryError, ValueError) as error:
                print(f"| {name} | {who} | {str(error) or type(error).__name__:.90} |", flush=True)
                waiting.remove(who)
    planned = td.einsum(text, *arrays, client=client)
    best = {who: min(runs[who], key=lambda one: one.seconds) for who in waiting}
    for who, one in best.items():
        predicted = sum(td.promises(planned)[-1].sent) if who == "tilesolve" else None
        cells = (one.sent, predicted, one.filed, one.made - once, one.peak)
        shown = " | ".join("-" if n is None else f"{n / 1e6:.0f} MB" for n in cells)
        print(f"| {name} | {who} | {one.seconds:.2f} | {one.cpu:.2f} | {shown} |", flush=True)
    if "tilesolve" not in best:
        return {}
    ours = best["tilesolve"]
    moved = {who: one.sent + one.filed + one.made - once for who, one in best.items()}
    return {
        who: (one.seconds / ours.seconds, moved["tilesolve"] / max(1, moved[who]))
        for who, one in best.items()
    }


if __name__ == "__main__":
    main()
