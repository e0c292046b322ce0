"""Work that needs no other worker's blocks: layers, batches and networks over images, and tiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import count, islice
from math import ceil, prod
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt

from tilesolve.constants.network import BLOCK_INSTANCES, CHUNKS_PER_THREAD
from tilesolve.contractions.errors import MemoryLimitError, PlanError, SizeError
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.distributed.clients import Team, find_team
from tilesolve.distributed.sources import check_array
from tilesolve.machine.model import Machine
from tilesolve.networks.model import Model, load
from tilesolve.planning.solve import solve
from tilesolve.plans.plan import Plan
from tilesolve.system.units import format_size

Array = npt.NDArray[Any]


def map_batch(
    work: Callable[..., Any] | Plan | str | os.PathLike[str],
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
        blocks of all arrays. Workers of another CPU plan for themselves.
    *arrays
        Arrays with the batch in front; other axes are not cut.
    images
        How many elements of the batch one call takes; if None, as many as a layer or a model of
        fixed shapes takes, else as many as keep all workers busy and fit their memory.
    client, memory_limit
        As in `einsum`.

    Raises
    ------
    SizeError
        If the batches differ, or `images` does not divide them.
    PlanError
        If the work is none of these, or its result has no batch in front.
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
    batches = {one.shape[:1] for one in operands}
    if len(batches) != 1 or batches <= {(), (0,)}:
        shapes = ", ".join(f"operand {number} {one.shape}" for number, one in enumerate(operands))
        raise SizeError(
            f"axis 0 of all arrays must be one batch, not empty, got {shapes or 'none'}"
        )
    ((total,),) = batches
    function, fixed = _read_work(work, len(operands))
    images = fixed if images is None else images
    if images is not None and (images not in range(1, total + 1) or total % images):
        raise SizeError(f"images={images} does not divide the batch of {total}")
    team, probe = find_team(client, memory_limit), images or 1
    blocks = [np.zeros((probe, *one.shape[1:]), one.dtype) for one in operands]
    sample = _run(function, *blocks)
    if sample.shape[:1] != (probe,):
        raise PlanError(f"a batch of {probe} has a result of shape {sample.shape}, not of {probe}")
    most = probe * _count_that_fit([*blocks, sample], team)
    threads = team.cluster.workers * team.cluster.threads
    size = images or min(most, ceil(total / (CHUNKS_PER_THREAD * threads)))
    letters, pairs = count(1), list[Any]()
    for one in operands:
        cut = one.rechunk((size, *(-1 for _ in one.shape[1:])))
        pairs += [cut, (0, *islice(letters, one.ndim - 1))]
    made = dict(zip(letters, sample.shape[1:], strict=False))
    given = {"dtype": sample.dtype, "meta": sample[:0], "new_axes": made, "concatenate": True}
    return da.blockwise(_run, (0, *made), _send(function), None, *pairs, **given)


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
    SizeError
        If the halo is of an axis that the array lacks, or is too long for it.
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
    for axis, depth in halo.items():
        if axis not in range(source.ndim) or depth not in range((source.shape[axis] + 1) // 2):
            raise SizeError(
                f"a halo of {depth} on each side of axis {axis} does not fit shape {source.shape}"
            )
    depths = [halo.get(axis, 0) for axis in range(source.ndim)]
    # The smallest tile that has more than its halo, and what it has.
    least = [min(n, 4 * halo[i] + 1) if i in halo else n for i, n in enumerate(source.shape)]
    inner = tuple(n - 2 * depth for n, depth in zip(least, depths, strict=True))
    block = np.zeros(least, source.dtype)
    sample = _run(work, block)
    same = sample.shape == block.shape
    if not same and sample.shape != inner:
        raise PlanError(
            f"a tile of shape {block.shape} has a result of shape {sample.shape}: it must be as "
            f"large, or smaller by the halo {halo} on each side"
        )
    most = _count_that_fit([block, sample], team)
    threads = team.cluster.workers * team.cluster.threads
    size = max(prod(inner), min(most * prod(inner), ceil(source.size / (2 * threads))))
    cut = tuple("auto" if axis in halo else -1 for axis in range(source.ndim))
    tiles = source.rechunk(cut, block_size_limit=size * source.dtype.itemsize)
    parts = da.overlap.overlap(tiles, halo, "none")
    taken = [0 if same else 2 * depth for depth in depths]
    chunks = tuple(tuple(n - m for n in own) for own, m in zip(parts.chunks, taken, strict=True))
    given = {"dtype": sample.dtype, "meta": sample[:0], "chunks": chunks}
    found = da.map_blocks(_run, _send(work), parts, **given)
    return da.overlap.trim_internal(found, halo, "none") if same else found


def _run(function: Callable[..., Any], *blocks: Array) -> Array:
    """Return what a function makes of blocks; of several named results the first one."""
    found = function(*blocks)
    return np.asarray(next(iter(found.values())) if isinstance(found, dict) else found)


def _send(function: Callable[..., Any]) -> Any:
    """Return a function as a task of its own, which Dask moves to each worker once."""
    return dask.delayed(function, pure=True, traverse=False)


def _read_work(
    work: Callable[..., Any] | Plan | str | os.PathLike[str], given: int
) -> tuple[Callable[..., Any], int | None]:
    """Return a function of so many blocks, and what batch it takes at once; None for any."""
    function, batch, takes = work, None, given
    if isinstance(work, Plan):
        function, takes = partial(_run_batch, work), 2
    elif isinstance(work, ConvLayer):
        function, takes = partial(_run_layer, work), 1 + work.has_residual
        batch = work.convolution.x_shape[0]
    elif isinstance(work, str | os.PathLike):
        file = str(Path(work).resolve())
        inputs = _load_model(file).inputs
        known = [dims[0] for dims, _ in inputs.values() if dims and isinstance(dims[0], int)]
        function, takes, batch = partial(_run_model, file), len(inputs), next(iter(known), None)
    if not callable(function):
        raise PlanError(f"work must be a plan, a layer, a file or a function, got {work!r:.60}")
    if takes != given:
        raise PlanError(f"{work!r:.80} takes {takes} arrays, got {given}")
    return function, batch


def _run_batch(plan: Plan, first: Array, second: Array) -> Any:
    """Return a plan's contractions for blocks of a batch."""
    return own_plan(plan).batch(first, second)


def _run_layer(layer: ConvLayer, images: Array, residual: Array | None = None) -> Array:
    """Return a layer's result for images."""
    return layer(images, residual=residual)


@lru_cache(maxsize=16)
def own_plan(plan: Plan) -> Plan:
    """Return a plan for this process's CPU: the same, or another one if it is for another CPU."""
    machine = Machine.load()
    if plan.machine.fingerprint == machine.fingerprint:
        return plan
    return Plan(solve(plan.problem, machine, plan.threads, plan.demand))


def _run_model(file: str, *blocks: Array) -> Any:
    """Return the outputs of a model for its inputs, which come in its order."""
    model = _load_model(file)
    return model(dict(zip(model.inputs, blocks, strict=True)))


@lru_cache(maxsize=4)
def _load_model(file: str) -> Model:
    """Return the model of a file, which a process loads once."""
    return load(file)


def _count_that_fit(blocks: Sequence[Array], team: Team) -> int:
    """Return how many times such blocks fit what a thread has of a worker's memory."""
    copies = BLOCK_INSTANCES * team.cluster.threads
    size = copies * sum(one.nbytes for one in blocks)
    if size > team.cluster.room:
        raise MemoryLimitError(
            f"blocks of shapes {' and '.join(str(one.shape) for one in blocks)}, {copies} of each "
            f"at once, take {format_size(size)}: more than the {format_size(team.cluster.room)} "
            "that they may on a worker"
        )
    return team.cluster.room // max(1, size)
