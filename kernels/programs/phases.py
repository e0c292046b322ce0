"""Phases: the parts of a program between barriers, and what the words of a call begin with.

What runs programs that are compiled needs no more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from tilesolve.kernels.programs.nodes import list_nodes
from tilesolve.kernels.programs.program import Barrier, Buffer, Loop, Node
from tilesolve.kernels.programs.skeleton import ArrayForm, Skeleton
from tilesolve.packing.sizes import LINE_BYTES

STOP, FAILURE, BUFFERS, FIRST_ARRAY = range(4)
"""What the first words of a call are."""


def buffer_strides(buffer: Buffer, itemsize: int) -> tuple[int, ...]:
    """Return the bytes between neighbours along each axis of a buffer.

    Rows begin on a line, and an odd number of lines apart: rows at the same place of different
    ones fall into different sets of a cache.
    """
    if not buffer.shape:
        return ()
    strides = [itemsize]
    for axis in range(len(buffer.shape) - 1, 0, -1):
        size = strides[0] * max(1, buffer.shape[axis])
        if axis == len(buffer.shape) - 1:
            lines = -(-size // LINE_BYTES)
            size = (lines + 1 - lines % 2) * LINE_BYTES
        strides.insert(0, size)
    return tuple(strides)


def buffer_bytes(buffer: Buffer, itemsize: int) -> int:
    """Return the bytes of a buffer's memory, whole lines."""
    strides = buffer_strides(buffer, itemsize)
    size = strides[0] * max(1, buffer.shape[0]) if buffer.shape else itemsize
    return (-(-size // LINE_BYTES) + 1) * LINE_BYTES


def split_phases(body: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Return the parts of a program between barriers.

    Examples
    --------
    >>> from tilesolve.kernels.programs.program import Compute, Start
    >>> [len(part) for part in split_phases((Start(0), Barrier(), Compute(0), Compute(1)))]
    [1, 2]
    """
    found: list[list[Node]] = [[]]
    for node in body:
        if isinstance(node, Barrier):
            found.append([])
        else:
            found[-1].append(node)
    return [tuple(part) for part in found if part]


def external_arrays(skeleton: Skeleton) -> tuple[ArrayForm, ...]:
    """Return the arrays that lie in memory of the call: all that are kept in no room."""
    kept = {node.name for node in list_nodes(skeleton.body) if isinstance(node, Buffer)}
    return tuple(array for array in skeleton.arrays if array.name not in kept)


def place_buffers(skeleton: Skeleton) -> Mapping[int, tuple[int, int]]:
    """Return where the memory of each buffer begins, and its bytes, by its identity."""
    buffers = [node for node in list_nodes(skeleton.body) if isinstance(node, Buffer)]
    once = {id(buffer): buffer for buffer in buffers}
    dtypes = skeleton.dtypes
    sizes = [
        buffer_bytes(buffer, np.dtype(dtypes[buffer.name]).itemsize) for buffer in once.values()
    ]
    begins = [0, *accumulate(sizes)]
    return {key: (begin, size) for key, begin, size in zip(once, begins, sizes, strict=False)}


def arena_bytes(skeleton: Skeleton) -> int:
    """Return the bytes of a thread's buffers."""
    return sum(size for _, size in place_buffers(skeleton).values())


def has_threads(body: Sequence[Node]) -> bool:
    """Return whether a loop of threads is among some parts."""
    return any(isinstance(node, Loop) and node.kind == "threads" for node in list_nodes(body))
