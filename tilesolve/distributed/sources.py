"""Where blocks of operands come from: chunks of Dask arrays, in whatever boxes they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
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
    """What a block takes of one chunk of a source, and where it goes."""

    chunk: Chunk
    source: tuple[slice, ...]
    target: tuple[slice, ...]
    whole: bool

    @property
    def elements(self) -> int:
        """How many it has."""
        return prod(one.stop - one.start for one in self.source)


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
        return prod(sizes) * self.array.dtype.itemsize

    @property
    def sizes(self) -> list[int]:
        """The bytes of all chunks."""
        return [self.size(chunk) for chunk in product(*map(range, self.array.numblocks))]

    def pieces(self, box: tuple[Span, ...]) -> Iterator[Piece]:
        """Yield the pieces of a box, chunk by chunk."""
        axes = [
            list(_overlaps(sizes, span)) for sizes, span in zip(self.array.chunks, box, strict=True)
        ]
        for found in product(*axes):
            yield Piece(
                tuple(one[0] for one in found),
                tuple(one[1] for one in found),
                tuple(one[2] for one in found),
                all(one[3] for one in found),
            )


def _overlaps(sizes: tuple[int, ...], span: Span) -> Iterator[tuple[int, slice, slice, bool]]:
    """Yield the chunks of an axis that a span meets: number, part of it, place in the span."""
    begin = 0
    for number, size in enumerate(sizes):
        low, high = max(begin, span[0]), min(begin + size, span[1])
        if low < high:
            yield (
                number,
                slice(low - begin, high - begin),
                slice(low - span[0], high - span[0]),
                high - low == size,
            )
        begin += size


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
