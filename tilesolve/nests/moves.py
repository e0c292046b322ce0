"""Statements that move an array as it is, and the transposes that do."""

from __future__ import annotations

from math import prod

import numpy as np

from tilesolve.contractions.errors import PlanError
from tilesolve.nests.classify import find_move
from tilesolve.nests.request import NestRequest
from tilesolve.transposes.limits import Limits
from tilesolve.transposes.solution import TransposeSolution, choose_stores, solve_transpose


def read_move(request: NestRequest) -> tuple[int, ...]:
    """Return the axes of the input in the output's order.

    Raises
    ------
    PlanError
        If the statement does not move an array as it is.
    """
    stage = request.statement
    axes = find_move(stage, request.computation)
    if axes is None:
        raise PlanError(f"{stage} is no transpose: {stage.name} is not one array, moved as it is")
    return axes


def transpose_of(request: NestRequest) -> TransposeSolution:
    """Return how a statement's transpose is done, for arrays in C order that begin with a line.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> found = bind_stages(parse_stages("B[x,y] = A[y,x]"), 800)
    >>> print(transpose_of(NestRequest(found, Machine.load("i7-6700k"))))
    tiles 800 x 128 of 8 bytes, past the caches
    """
    axes, computation = read_move(request), request.computation
    (name,), output = computation.inputs, computation.output
    itemsize = np.dtype(output.dtype).itemsize
    source = _strides(computation.array(name).shape, itemsize)
    shape = tuple(max(computation.sizes[letter], 1) for letter in request.statement.output)
    limits = Limits.of(request.machine)
    streamed, held = choose_stores(itemsize * prod(shape), limits)
    return solve_transpose(
        shape,
        _strides(output.shape, itemsize),
        tuple(source[axis] for axis in axes),
        itemsize,
        request.threads,
        limits,
        streamed=streamed,
        aligned=streamed,
        held=held,
    )


def _strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the bytes between neighbours along each axis of an array in C order."""
    return tuple(itemsize * prod(map(_at_least_one, shape[at + 1 :])) for at in range(len(shape)))


def _at_least_one(extent: int) -> int:
    return max(extent, 1)
