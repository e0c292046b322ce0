"""Where blocks of operands come from: chunks of Dask arrays, in whatever boxes they come."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from typing import Any

import numpy as np
from dask._task_spec import Alias, DataNode, convert_legacy_graph
from dask.array import Array, from_array
from dask.array.optimization import optimize
from dask.core import flatten
from dask.utils import ensure_dict

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DtypeError, SizeError
from tilesolve.planning.worker_schedule import Box

Chunk = tuple[int, ...]
"""Numbers of a chunk along each axis."""


@dataclass(frozen=True)
class Source:
    """A Dask array that blocks are taken from.

    Parameters
    ----------
    array
        The array.
    nodes
        For each chunk the tasks that make it, where it can be made anywhere; none of a source whose
        chunks are there, or share tasks.
    places
        The worker that holds each chunk, as far as that is known.
    """

    array: Array
    nodes: Mapping[Chunk, Mapping[Any, Any]]
    places: Mapping[Chunk, str]

    @cached_property
    def bounds(self) -> list[list[int]]:
        """Where chunks begin and end along each axis."""
        return [[0, *accumulate(sizes)] for sizes in self.array.chunks]

    @property
    def most(self) -> int:
        """The bytes of the largest chunk."""
        return int(np.prod([max(sizes) for sizes in self.array.chunks]) * self.array.dtype.itemsize)

    def box(self, chunk: Chunk) -> Box:
        """Return where a chunk lies."""
        return tuple((own[at], own[at + 1]) for own, at in zip(self.bounds, chunk, strict=True))

    def pieces(self, box: Box) -> Iterator[tuple[Chunk, Box]]:
        """Yield the chunks that a box reaches into, and the part of it in each."""
        axes = []
        for own, (begin, end) in zip(self.bounds, box, strict=True):
            numbers = range(bisect_right(own, begin) - 1, bisect_left(own, end))
            met = ((n, (max(begin, own[n]), min(end, own[n + 1]))) for n in numbers)
            axes.append([(n, span) for n, span in met if span[0] < span[1]])
        for one in product(*axes):
            yield tuple(number for number, _ in one), tuple(span for _, span in one)


def open_source(array: Array, held: Mapping[Any, str]) -> Source:
    """Return what is known of an array's chunks, given where computed ones are held."""
    keys = {chunk: (array.name, *chunk) for chunk in product(*map(range, array.numblocks))}
    places = {chunk: held[key] for chunk, key in keys.items() if key in held}
    placed = getattr(array.dask.layers.get(array.name), "places", None)
    if held or placed:
        return Source(array, {}, {**(placed or {}), **places})
    graph = convert_legacy_graph(
        ensure_dict(optimize(array.dask, list(flatten(array.__dask_keys__()))))
    )
    nodes = {chunk: _ancestors(graph, key) for chunk, key in keys.items()}
    seen: dict[Any, int] = {}
    for own in nodes.values():
        for key in own:
            seen[key] = seen.get(key, 0) + 1
    shared = any(
        count > 1 and not isinstance(graph.get(key), DataNode | Alias)
        for key, count in seen.items()
    )
    return Source(array, {} if shared else nodes, {})


def _ancestors(graph: Mapping[Any, Any], key: Any) -> dict[Any, Any]:
    """Return the tasks that a key depends on, itself included; what is no task is left out."""
    found: dict[Any, Any] = {}
    waiting = [key]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = graph.get(one)
            waiting += graph[one].dependencies if one in graph else ()
    return found


def check_array(array: Any, number: int) -> Array:
    """Return a Dask array of numbers whose chunks are known."""
    found = array if isinstance(array, Array) else read_array(array, f"operand {number}")
    if found.dtype.kind not in "biufc" and found.dtype.name != "bfloat16":
        raise DtypeError(f"operand {number} has dtype {found.dtype}: its elements are no numbers")
    if not isinstance(found, Array):
        found = from_array(found, chunks="auto", name=False)
    for axis, sizes in enumerate(found.chunks):
        if any(size != size for size in sizes):  # NaN
            raise SizeError(
                f"operand {number} has chunks of unknown size along axis {axis}: call "
                "compute_chunk_sizes() first"
            )
    return found
