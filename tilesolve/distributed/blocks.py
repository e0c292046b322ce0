"""What tasks compute. An expression is made once for each form and shapes in a worker's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.half_precision import is_half, summed_dtype
from tilesolve.contractions.subscripts import read
from tilesolve.expressions.compile import compile_expression
from tilesolve.expressions.dispatch import Options
from tilesolve.packing.buffers import empty
from tilesolve.system.checks import as_dtype

Array = npt.NDArray[Any]

_expressions: dict[tuple[Any, ...], Callable[..., Array]] = {}
_lock = Lock()


def contract(
    text: str,
    dtype: str,
    boxes: Sequence[tuple[slice, ...] | None],
    first: Array,
    second: Array,
    before: Array | None,
) -> Array:
    """Return the contraction of parts of two arrays, added to what an earlier step has.

    Examples
    --------
    >>> whole = (None, None)
    >>> contract("ij,jk->ik", "float64", whole, np.eye(2), np.ones((2, 2)), np.eye(2)).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    name = summed_dtype(dtype) if is_half(dtype) else dtype
    parts = [
        np.asarray(array if box is None else array[box]).astype(name, copy=False)
        for array, box in zip((first, second), boxes, strict=True)
    ]
    letters = text.replace("->", ",").split(",")
    sizes = dict(zip(letters[0] + letters[1], parts[0].shape + parts[1].shape, strict=True))
    # Not of the pages that results leave: a process keeps these, beside what is promised.
    found = empty(tuple(sizes[i] for i in letters[2]), np.dtype(name))
    _expression(text, name, *(part.shape for part in parts))(*parts, out=found)
    if before is not None:
        np.add(found, before, out=found)
    return found


def _expression(text: str, dtype: str, *shapes: tuple[int, ...]) -> Callable[..., Array]:
    """Return what contracts blocks of some shapes: all threads of a process share it."""
    key = (text, dtype, shapes)
    with _lock:
        if key not in _expressions:
            # Many blocks are as large as few others: planning has to pay in a single call.
            form, kinds = (
                read(text, list(map(len, shapes))),
                [as_dtype(dtype, "dtype")] * len(shapes),
            )
            options = Options(threads=1, called_once=True)
            _expressions[key] = compile_expression(form, shapes, kinds, None, options)
        return _expressions[key]


def add(first: Array, second: Array) -> Array:
    """Return the sum of two parts of a chunk."""
    return np.add(first, second)


def finish(dtype: Any, found: Array, *control: None) -> Array:
    """Return a finished chunk in the result's dtype."""
    del control
    return found.astype(dtype, copy=False)


def done(*found: Array) -> None:
    """Return nothing: that something is there is what others wait for."""
    del found


def load(nodes: Mapping[Any, Any], boxes: Mapping[Any, tuple[slice, ...]], *control: None) -> Array:
    """Return a block of chunks of a source, whose own tasks are run here, one after the other."""
    import dask

    del control
    parts = ((box, np.asarray(dask.get(dict(nodes), key))) for key, box in boxes.items())
    box, found = next(parts)
    if len(boxes) > 1:
        ends = [max(own[axis].stop for own in boxes.values()) for axis in range(found.ndim)]
        whole = np.empty(ends, found.dtype)
        whole[box] = found
        for box, part in parts:
            whole[box] = part
        found = whole
    return found


def cut(source: Array, box: tuple[slice, ...], *control: None) -> Array:
    """Return a part of a source by itself, which leaves the rest behind."""
    del control
    return source[box].copy() if box else source
