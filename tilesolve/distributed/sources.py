"""Where blocks of operands come from: chunks of Dask arrays, in whatever boxes they come."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Alias, DataNode, convert_legacy_graph
from dask.array import Array, from_array
from dask.array.optimization import optimize
from dask.core import flatten
from dask.utils import ensure_dict

from tilesolve.contractions.errors import DtypeError, SizeError
from tilesolve.distributed.schedule import Chunk

Span = tuple[int, int]


class Piece(NamedTuple):
    """What a block is of a chunk of a source."""

    chunk: Chunk
    box: tuple[slice, ...]
    whole: bool


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

    def key(self, chunk: Chunk) -> tuple[Any, ...]:
        """Return the key of a chunk."""
        return (self.array.name, *chunk)

    def size(self, chunk: Chunk) -> int:
        """Return the bytes of a chunk."""
        sizes = (own[at] for own, at in zip(self.array.chunks, chunk, strict=True))
        return int(prod(sizes) * self.array.dtype.itemsize)

    @property
    def sizes(self) -> list[int]:
        """The bytes of all chunks."""
        return [self.size(chunk) for chunk in product(*map(range, self.array.numblocks))]

    def edges(self, letters: str) -> dict[str, frozenset[int]]:
        """Return where chunks begin along each letter."""
        return {
            letter: frozenset(accumulate(sizes[:-1]))
            for letter, sizes in zip(letters, self.array.chunks, strict=True)
        }

    def piece(self, box: tuple[Span, ...]) -> Piece:
        """Return the piece that a box is, which lies in one chunk."""
        chunk, part, whole = [], [], True
        for sizes, (begin, end) in zip(self.array.chunks, box, strict=True):
            ends = list(accumulate(sizes))
            number = bisect_right(ends, begin)
            start = ends[number] - sizes[number]
            chunk.append(number)
            part.append(slice(begin - start, end - start))
            whole &= end - begin == sizes[number]
        return Piece(tuple(chunk), tuple(part), whole)


def open_source(array: Array, held: Mapping[Any, str]) -> Source:
    """Return what is known of an array's chunks, given where computed ones are held."""
    chunks = list(product(*(range(count) for count in array.numblocks)))
    keys = {chunk: (array.name, *chunk) for chunk in chunks}
    places = {chunk: held[key] for chunk, key in keys.items() if key in held}
    placed = getattr(array.dask.layers.get(array.name), "places", None)
    if held or placed:
        found = placed or {}
        return Source(
            array, {}, places | {chunk: found[chunk] for chunk in chunks if chunk in found}
        )
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
    found = array if isinstance(array, Array) else np.asarray(array)
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
