"""Work that needs no other worker's blocks: layers, batches and networks over images, and tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import count as count_up
from itertools import islice
from math import ceil, prod
from pathlib import Path
from typing import Any

import cloudpickle
import dask.array as da
import numpy as np
import numpy.typing as npt

from tilesolve.constants.network import BLOCK_INSTANCES, CHUNKS_PER_THREAD
from tilesolve.contractions.errors import MemoryLimitError, PlanError, SizeError
from tilesolve.distributed.clients import Team, find_team
from tilesolve.distributed.sources import check_array
from tilesolve.plans.plan import Plan
from tilesolve.system.loading import load_module
from tilesolve.system.units import format_size

Array = npt.NDArray[Any]


class Work:
    """A function that each worker's process opens once, for all of its threads."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.text = cloudpickle.dumps(function)

    def __call__(self, *blocks: Array, block_info: Any = None) -> Array:
        """Run the function; Dask's description of a block is left out."""
        del block_info
        found = _open(self.text)(*blocks)
        return np.asarray(next(iter(found.values())) if isinstance(found, dict) else found)


@lru_cache(maxsize=16)
def _open(text: bytes) -> Callable[..., Any]:
    """Return the function of a text."""
    function: Callable[..., Any] = cloudpickle.loads(text)
    return function


def map_batch(
    work: Callable[..., Any] | Plan | str,
    *arrays: Any,
    images: int | None = None,
    client: Any = None,
    memory_limit: int | None = None,
) -> da.Array:
    """Run something over the first axis of arrays: a layer, a network, or a plan's batch.

    Parameters
    ----------
    work
        A `Plan`, which computes a contraction for each element of a batch; a `ConvLayer`; the path
        of an ONNX file that workers can read, whose first output is taken; or a function that takes
        blocks of all arrays.
    *arrays
        Arrays with the batch in front; other axes are not cut.
    images
        How many elements of the batch one call takes, as a layer of fixed shape does; if None, as
        many as keep all workers busy and fit their memory.
    client, memory_limit
        As in `einsum`.

    Raises
    ------
    SizeError
        If the batches differ, or `images` does not divide them.
    MemoryLimitError
        If what one call takes does not fit a worker's memory.

    Examples
    --------
    >>> import dask.array as da
    >>> from tilesolve.plans.plan import plan
    >>> matmul = plan("ik-ij-jk", 4, "i7-6700k", cache=False)
    >>> found = map_batch(matmul, da.ones((6, 4, 4)), da.ones((6, 4, 4)))
    >>> found.shape, float(found.sum().compute(scheduler="sync"))
    ((6, 4, 4), 384.0)
    """
    operands = [check_array(array, number) for number, array in enumerate(arrays)]
    counts = {array.shape[0] if array.ndim else 0 for array in operands}
    if len(counts) != 1 or 0 in counts:
        raise SizeError(f"batches must be as long as each other, got {sorted(counts)}")
    (count,) = counts
    if images is not None and (images < 1 or count % images):
        raise SizeError(f"images={images} does not divide the batch of {count}")
    function: Callable[..., Any] = work.batch if isinstance(work, Plan) else work  # type: ignore[assignment]
    if isinstance(work, str):
        function = partial(_run_model, str(Path(work).resolve()))
    team, probe = find_team(client, memory_limit), images or 1
    sample = _try(function, [np.zeros((probe, *one.shape[1:]), one.dtype) for one in operands])
    taken = sum(prod(one.shape[1:]) * one.dtype.itemsize for one in operands)
    most = _count_that_fit(taken * probe + sample.nbytes, team) * probe
    threads = team.cluster.workers * team.cluster.threads
    size = images or min(most, ceil(count / (CHUNKS_PER_THREAD * threads)))
    numbers = count_up(1)
    pairs: list[Any] = []
    for one in operands:
        cut = one.rechunk({0: size, **dict.fromkeys(range(1, one.ndim), -1)})
        pairs += [cut, (0, *islice(numbers, one.ndim - 1))]
    made = dict(zip(islice(numbers, sample.ndim - 1), sample.shape[1:], strict=False))
    return da.blockwise(
        Work(function),
        (0, *made),
        *pairs,
        dtype=sample.dtype,
        concatenate=True,
        new_axes=made,
        meta=sample[:0],
    )


def map_tiles(
    work: Callable[[Array], Any],
    image: Any,
    halo: dict[int, int],
    *,
    client: Any = None,
    memory_limit: int | None = None,
) -> da.Array:
    """Run a pipeline over tiles of an image that overlap by a halo, which its windows reach into.

    Parameters
    ----------
    work
        A function of one array, such as a `pipeline`: its result is as large as the array, or
        smaller by the halo on each side.
    image
        An array; axes of a halo are cut into tiles.
    halo
        By axis, how many elements the result depends on to each side.
    client, memory_limit
        As in `einsum`.

    Raises
    ------
    PlanError
        If the result is neither as large as the array nor smaller by the halo.
    MemoryLimitError
        If a tile of the halo's size does not fit a worker's memory.

    Examples
    --------
    >>> import numpy as np
    >>> found = map_tiles(lambda x: x[:-2] + x[1:-1] + x[2:], np.arange(8.0), {0: 1})
    >>> found.compute(scheduler="sync").tolist()
    [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]
    """
    source, team = check_array(image, 0), find_team(client, memory_limit)
    depth = {axis: int(halo.get(axis, 0)) for axis in range(source.ndim)}
    # The smallest tile that has more than its halo.
    least = [min(n, 4 * depth[i] + 1) if depth[i] else n for i, n in enumerate(source.shape)]
    sample = _try(work, [np.zeros(least, source.dtype)])
    same = list(sample.shape) == least
    if not same and list(sample.shape) != [n - 2 * depth[i] for i, n in enumerate(least)]:
        raise PlanError(
            f"a tile of shape {tuple(least)} has a result of shape {sample.shape}: it must be as "
            f"large, or smaller by the halo {halo} on each side"
        )
    room = _count_that_fit(prod(least) * (source.dtype.itemsize + sample.dtype.itemsize), team)
    threads = team.cluster.workers * team.cluster.threads
    size = min(room * prod(least) * source.dtype.itemsize, ceil(source.nbytes / (2 * threads)))
    cut = {i: "auto" if depth[i] else -1 for i in depth}
    tiles = source.rechunk(cut, block_size_limit=max(size, prod(least) * source.dtype.itemsize))
    none = dict.fromkeys(depth, "none")
    parts = da.overlap.overlap(tiles, depth, none)
    if same:
        found = parts.map_blocks(Work(work), dtype=sample.dtype, meta=sample[:0])
        return da.overlap.trim_internal(found, depth, none)
    chunks = tuple(tuple(n - 2 * depth[i] for n in one) for i, one in enumerate(parts.chunks))
    return parts.map_blocks(Work(work), dtype=sample.dtype, chunks=chunks, meta=sample[:0])


def _run_model(file: str, block: Array) -> Any:
    """Return the outputs of a model, which a process loads once."""
    return _load_model(file)(block)


@lru_cache(maxsize=4)
def _load_model(file: str) -> Callable[[Array], Any]:
    """Return the model of a file."""
    found: Callable[[Array], Any] = load_module("tilesolve.networks.onnx").load(file)
    return found


def _try(function: Callable[..., Any], blocks: list[Array]) -> Array:
    """Return what a function makes of small blocks of zeros: shape and dtype count."""
    return Work(function)(*blocks)


def _count_that_fit(size: int, team: Team) -> int:
    """Return how many blocks of a size a thread may have of a worker's memory at once."""
    room = team.cluster.room // (BLOCK_INSTANCES * team.cluster.threads)
    if size > room:
        raise MemoryLimitError(
            f"{BLOCK_INSTANCES} blocks of {format_size(size)} at once do not fit into "
            f"{format_size(team.cluster.room)} of a worker with {team.cluster.threads} threads"
        )
    return max(1, room // max(1, size))
