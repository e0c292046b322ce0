"""Where blocks of operands come from: chunks of Dask arrays, in whatever boxes they come."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Alias, DataNode, convert_legacy_graph
from dask.array import Array, from_array
from dask.array.optimization import optimize
from dask.core import flatten
from dask.utils import ensure_dict

from tilesolve.constants.network import SLIVER_SHARE
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
    chunks
        Their lengths along each axis. Those that can be made anywhere may be several of the
        array's, made one by one.
    """

    array: Array
    nodes: Mapping[Chunk, Mapping[Any, Any]]
    places: Mapping[Chunk, str]
    chunks: tuple[tuple[int, ...], ...]

    def size(self, chunk: Chunk) -> int:
        """Return the bytes of a chunk."""
        sizes = (own[at] for own, at in zip(self.chunks, chunk, strict=True))
        return int(prod(sizes) * self.array.dtype.itemsize)

    def passing(self, chunk: Chunk) -> int:
        """Return the bytes that are there besides while a chunk is put together."""
        parts = self.boxes(chunk).values()
        sizes = [prod(own.stop - own.start for own in box) for box in parts]
        return max(sizes) * self.array.dtype.itemsize if len(sizes) > 1 else 0

    def boxes(self, chunk: Chunk) -> dict[tuple[Any, ...], tuple[slice, ...]]:
        """Return where each of the array's chunks, by its key, lies in one of these."""
        return _boxes(self.array, self.chunks, chunk)

    @property
    def most(self) -> int:
        """The bytes of the largest chunk."""
        return int(prod(map(max, self.chunks)) * self.array.dtype.itemsize)

    def edges(self, letters: str) -> dict[str, frozenset[int]]:
        """Return where chunks begin along each letter."""
        return {
            letter: frozenset(accumulate(sizes[:-1]))
            for letter, sizes in zip(letters, self.chunks, strict=True)
        }

    def piece(self, box: tuple[Span, ...]) -> Piece:
        """Return the piece that a box is, which lies in one chunk."""
        chunk, part, whole = [], [], True
        for sizes, (begin, end) in zip(self.chunks, box, strict=True):
            ends = list(accumulate(sizes))
            number = bisect_right(ends, begin)
            start = ends[number] - sizes[number]
            chunk.append(number)
            part.append(slice(begin - start, end - start))
            whole &= end - begin == sizes[number]
        return Piece(tuple(chunk), tuple(part), whole)


def open_source(array: Array, held: Mapping[Any, str]) -> Source:
    """Return what is known of an array's chunks, given where computed ones are held."""
    keys = {chunk: (array.name, *chunk) for chunk in product(*map(range, array.numblocks))}
    places = {chunk: held[key] for chunk, key in keys.items() if key in held}
    placed = getattr(array.dask.layers.get(array.name), "places", None)
    if held or placed:
        found = placed or {}
        places |= {chunk: found[chunk] for chunk in keys if chunk in found}
        return Source(array, {}, places, array.chunks)
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
    return Source(array, {} if shared else nodes, {}, array.chunks)


def join_chunks(source: Source, least: int) -> Source:
    """Return a source of longer chunks, if they can be made anywhere: slivers join neighbours.

    Chunks of fewer bytes than asked for are joined along all axes.
    """
    if not source.nodes or not source.most:
        return source
    growth = (least / source.most) ** (1 / max(1, source.array.ndim))
    chunks = tuple(_join_lengths(own, growth) for own in source.array.chunks)
    found: dict[Chunk, dict[Any, Any]] = {}
    for chunk in product(*(range(len(own)) for own in chunks)):
        found[chunk] = {}
        for _, *at in _boxes(source.array, chunks, chunk):
            found[chunk] |= source.nodes[tuple(at)]
    return replace(source, nodes=found, chunks=chunks)


def _join_lengths(lengths: tuple[int, ...], growth: float) -> tuple[int, ...]:
    """Return lengths of chunks after those that are much shorter than the longest have joined.

    Examples
    --------
    >>> _join_lengths((10, 10, 10, 2), 0), _join_lengths((10,) * 5, 2)
    ((10, 10, 12), (20, 30))
    """
    sliver = SLIVER_SHARE * max(lengths)
    least, found = max(sliver, growth * max(lengths)), [lengths[0]]
    for length in lengths[1:]:
        if found[-1] < least or length < sliver:
            found[-1] += length
        else:
            found.append(length)
    if len(found) > 1 and found[-1] < least:
        found[-2:] = [sum(found[-2:])]
    return tuple(found)


def _boxes(
    array: Array, chunks: tuple[tuple[int, ...], ...], chunk: Chunk
) -> dict[tuple[Any, ...], tuple[slice, ...]]:
    """Return where each of an array's chunks, by its key, lies in one that several make."""
    axes = []
    for own, longer, at in zip(array.chunks, chunks, chunk, strict=True):
        ends, begin = [0, *accumulate(own)], sum(longer[:at])
        numbers = range(bisect_right(ends, begin) - 1, bisect_left(ends, begin + longer[at]))
        axes.append([(n, slice(ends[n] - begin, ends[n + 1] - begin)) for n in numbers])
    return {
        (array.name, *(number for number, _ in one)): tuple(part for _, part in one)
        for one in product(*axes)
    }


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
