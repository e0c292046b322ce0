"""What tasks compute. An expression is made once for each form and shapes in a worker's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.half_precision import is_half, summed_dtype
from tilesolve.contractions.subscripts import read
from tilesolve.expressions.compile import compile_expression
from tilesolve.expressions.dispatch import Options
from tilesolve.expressions.expression import Expression
from tilesolve.expressions.planned import Planned
from tilesolve.packing.buffers import empty
from tilesolve.planning.worker_schedule import Box
from tilesolve.system.checks import as_dtype

Array = npt.NDArray[Any]

_expressions: dict[tuple[Any, ...], Expression] = {}
_lock = Lock()


class Sum:
    """A chunk of the result that steps add to: each takes it from the one before.

    Dask counts the bytes of a finished chunk only, and no step leaves a copy behind.
    """

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array: Array | None = array

    def take(self) -> Array:
        """Return the array, to add to it: nobody else can then."""
        found, self.array = self.array, None
        if found is None:
            raise RuntimeError("a step was run again after it had added: compute the result again")
        return found


def contract(
    text: str,
    dtype: str,
    box: Box,
    bounds: Mapping[str, Sequence[int]],
    given: tuple[Sequence[Box], Sequence[Box]],
    before: Sum | None,
    *arrays: Array,
) -> Sum:
    """Return a chunk of a contraction, in a box of C, added to what an earlier step has of it.

    Letters are cut at `bounds`, so that blocks are read in place; `given` has where those of A lie,
    which come first, and those of B.

    Examples
    --------
    >>> box, bounds = ((0, 2), (0, 2)), {"i": (0, 2), "j": (0, 1, 2), "k": (0, 2)}
    >>> given = "ij,jk->ik", "float64", box, bounds, ([box], [box])
    >>> found = contract(*given, None, np.eye(2), np.ones((2, 2)))
    >>> contract(*given, found, np.eye(2), np.ones((2, 2))).array.tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """
    name = summed_dtype(dtype) if is_half(dtype) else dtype
    *operands, output = text.replace("->", ",").split(",")
    sides = arrays[: len(given[0])], arrays[len(given[0]) :]
    summed = set(operands[0]) - set(output)
    # Not of the pages that results leave: a process keeps these, beside what is promised.
    found = before.take() if before else empty(_shape(box), np.dtype(name))
    for spans in product(*map(pairwise, bounds.values())):
        own = dict(zip(bounds, spans, strict=True))
        parts = [
            gather(tuple(own[i] for i in letters), places, those).astype(name, copy=False)
            for letters, places, those in zip(operands, given, sides, strict=True)
        ]
        out = found[slices([own[i] for i in output], box)]
        adds = before is not None or any(own[i][0] > bounds[i][0] for i in summed)
        _add_product(_expression(text, name, *(part.shape for part in parts)), parts, out, adds)
    return Sum(found)


def _add_product(made: Expression, parts: Sequence[Array], out: Array, adds: bool) -> None:
    """Write a product, or add it to what there is: in place where a plan computes it alone."""
    step, *more = made.steps
    kernel, target = step.kernel, None
    if not adds:
        made(*parts, out=out)
    elif isinstance(kernel, Planned) and not more and not any(made.prepare) and made.index is None:
        target = kernel.find_target(out)
        if target is not None:
            first, second = (kernel.lay_out(side, part) for side, part in enumerate(parts))
            kernel.plan_for(target)(first, second, target, beta=1.0)
    if adds and target is None:
        np.add(out, made(*parts), out=out)


def _expression(text: str, dtype: str, *shapes: tuple[int, ...]) -> Expression:
    """Return what contracts blocks of some shapes: all threads of a process share it."""
    key = (text, dtype, shapes)
    with _lock:
        if key not in _expressions:
            # Many blocks are as large as few others: planning has to pay in a single call.
            form, options = read(text, list(map(len, shapes))), Options(threads=1, called_once=True)
            kinds = [as_dtype(dtype, "dtype")] * len(shapes)
            _expressions[key] = compile_expression(form, shapes, kinds, None, options)
        return _expressions[key]


def gather(box: Box, given: Sequence[Box], arrays: Sequence[Array]) -> Array:
    """Return what lies in a box: a part of one array, or several put together.

    Examples
    --------
    >>> gather(((1, 3),), [((0, 2),), ((2, 4),)], [np.array([5, 6]), np.array([7, 8])]).tolist()
    [6, 7]
    """
    met: list[tuple[Any, Array]] = []
    for own, array in zip(given, arrays, strict=True):
        common = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(box, own, strict=True)]
        if all(begin < end for begin, end in common):
            met.append((slices(common, box), array[slices(common, own)]))
    if len(met) == 1:
        return met[0][1]
    found = empty(_shape(box), met[0][1].dtype)
    for place, part in met:
        found[place] = part
    return found


def slices(box: Sequence[tuple[int, int]], whole: Box) -> tuple[Any, ...]:
    """Return where a box lies in an array, given where that lies."""
    pairs = zip(box, whole, strict=True)
    return (*(slice(begin - at, end - at) for (begin, end), (at, _) in pairs), ...)


def _shape(box: Box) -> tuple[int, ...]:
    """Return the shape of what lies in a box."""
    return tuple(end - begin for begin, end in box)


def add(first: Sum, second: Array) -> Sum:
    """Return the sum of two parts of a chunk."""
    found = first.take()
    return Sum(np.add(found, second, out=found))


def finish(dtype: Any, found: Sum, *control: None) -> Array:
    """Return a finished chunk in the result's dtype, or a part that is sent as it is for None."""
    del control
    assert found.array is not None
    return found.array if dtype is None else found.array.astype(dtype, copy=False)


def done(*found: Any) -> None:
    """Return nothing: that something is there is what others wait for."""
    del found


def load(nodes: Mapping[Any, Any], key: Any, *control: None) -> Array:
    """Return a chunk of a source, whose own tasks are run here, one after the other."""
    import dask

    del control
    return np.asarray(dask.get(dict(nodes), key))


def take(source: Array, box: tuple[Any, ...], *control: None) -> Array:
    """Return a part of a source by itself, which leaves the rest behind."""
    del control
    return source[box].copy() if box else source
