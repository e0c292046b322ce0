"""Parts of programs that tests write, and arrays that they run on."""

import numpy as np

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import identity

ZERO = Affine.number(0)


def number(value):
    """A bound that is the same everywhere."""
    return Affine.number(value)


def draw_values(shape, dtype, rng):
    """Values of a dtype: small integers and some extremes, or normal numbers."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    ends = np.iinfo(dtype)
    found = rng.integers(max(ends.min, -9), 10, shape).astype(dtype)
    wild = rng.random(shape) < 0.1
    found[wild] = rng.choice([ends.min, ends.max], int(wild.sum()))
    return found


def lay(values, rng):
    """The same values elsewhere in memory: reordered axes, steps, directions; poison between."""
    order = rng.permutation(values.ndim) if rng.random() < 0.4 else np.arange(values.ndim)
    steps = [int(rng.choice([1, 1, 1, 2, -1])) if rng.random() < 0.5 else 1 for _ in order]
    shape = [
        max(1, values.shape[axis]) * abs(step) + 3 for axis, step in zip(order, steps, strict=True)
    ]
    room = np.empty(shape, values.dtype)
    room.view(np.uint8 if values.dtype != bool else bool)[...] = 1
    parts = []
    for axis, step in zip(order, steps, strict=True):
        extent = values.shape[axis]
        begin = 1 if step > 0 else 1 + (extent - 1) * abs(step)
        stop = begin + extent * step
        parts.append(slice(begin, stop if stop >= 0 else None, step))
    found = room[(*parts, ...)].transpose(np.argsort(order))
    found[...] = values
    return found, room


def poison(dtype):
    """A value that no result has."""
    return np.nan if np.dtype(dtype).kind == "f" else identity("maximum", dtype)
