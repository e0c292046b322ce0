"""Nests of arrays and what they have to give, in the way of `array_cases`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from array_cases import F4, F8, I8, Case, K, M, N, Shape, tiny_machine

from tilesolve import nest


def nest_case(
    text: str,
    arrays: dict[str, tuple[Shape, str]],
    result: tuple[Shape, str],
    right: Callable[..., np.ndarray],
    **options: object,
) -> Case:
    """Return a nest of arrays by name; what is right is computed of them, and of `out`."""
    params = options.pop("params", {})
    shapes = {name: shape for name, (shape, _) in arrays.items()}
    dtypes = {name: dtype for name, (_, dtype) in arrays.items()}
    given = shapes | options.pop("sizes", {}), dtypes | dict.fromkeys(params, F8)
    found = nest(text, *given, **options)

    def call(*operands: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        named = dict(zip(shapes, operands, strict=True))
        return found(*(named[name] for name in found.computation.inputs), out=out, **params)

    return Case(call, right, tuple(shapes.values()), tuple(dtypes.values()), *result)


def _lower(A: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    return np.where(np.tri(23, dtype=bool), 2 * A, 0 if out is None else out)


NEST_CASES: dict[str, Callable[[], Case]] = {
    "stencil": partial(
        nest_case,
        "o[x,y] = A[x,y] + 2 * A[x,y+2] - A[x+1,y]",
        {"A": ((9, 45), F4)},
        ((8, 43), F4),
        lambda A, out: A[:-1, :-2] + 2 * A[:-1, 2:] - A[1:, :-2],
    ),
    "stencil of small caches": partial(
        nest_case,
        "o[x,y] = A[x,y] + A[x,y+2]",
        {"A": ((90, 118), F4)},
        ((90, 116), F4),
        lambda A, out: A[:, :-2] + A[:, 2:],
        machine=tiny_machine(),
    ),
    "nest of two threads": partial(
        nest_case,
        "o[x,y] = A[y,x] & B[x,y]",
        {"A": ((31, 24), "int32"), "B": ((24, 31), "int32")},
        ((24, 31), "int32"),
        lambda A, B, out: A.astype(int).T & B.astype(int),
        threads=2,
    ),
    "region": partial(
        nest_case,
        "o[i,j] = 2 * A[i,j]",
        {"A": ((23, 23), F8)},
        ((23, 23), F8),
        _lower,
        where="j <= i",
    ),
    "sum of a nest": partial(
        nest_case,
        "o[i] = sum(A[i,k] * x[k], k)",
        {"A": ((20, 33), F4), "x": ((33,), F4)},
        ((20,), F4),
        lambda A, x, out: A @ x,
    ),
    "own array": partial(
        nest_case,
        "C[i,j] = beta * C[i,j] + A[j,i]",
        {"C": ((20, 21), F8), "A": ((21, 20), F8)},
        ((20, 21), F8),
        lambda C, A, out: 3 * C + A.T,
        params={"beta": 3.0},
    ),
    "gather": partial(
        nest_case,
        "o[i] = T[v[i]]",
        {"T": ((5,), F4), "v": ((40,), I8)},
        ((40,), F4),
        lambda T, v, out: T[v.astype(int)],
    ),
    "histogram": partial(
        nest_case,
        "h[v[i]] += w[i]",
        {"v": ((40,), "int32"), "w": ((40,), F8)},
        ((5,), F8),
        lambda v, w, out: np.bincount(v.astype(int), w, 5),
        sizes={"h": (5,)},
    ),
    "contraction of a nest": partial(
        nest_case,
        "C[i,j] += A[i,k] * B[k,j]",
        {"A": ((M, K), F8), "B": ((K, N), F8)},
        ((M, N), F8),
        lambda A, B, out: A @ B,
        route="contraction",
    ),
    "several statements": partial(
        nest_case,
        "t[i] = A[i] * B[i]; o[i] = beta * t[i] + A[i]",
        {"A": ((40,), F8), "B": ((40,), F8)},
        ((40,), F8),
        lambda A, B, out: 3 * A * B + A,
        params={"beta": 3.0},
    ),
    "blocks of a region": partial(
        nest_case,
        "C[i,j] += A[i,k] * A[j,k]",
        {"A": ((23, 9), F8)},
        ((23, 23), F8),
        lambda A, out: np.where(np.tri(23, dtype=bool), A @ A.T, 0 if out is None else out),
        where="j <= i",
        route="contraction",
        sizes={"C": (23, 23)},
    ),
    "blocks of two threads": partial(
        nest_case,
        "C[i,j] += A[i,k] * B[k,j]",
        {"A": ((23, 23), F8), "B": ((23, 9), F8)},
        ((23, 9), F8),
        lambda A, B, out: np.tril(A) @ B,
        where="k <= i",
        route="contraction",
        threads=2,
    ),
    "move": partial(
        nest_case,
        "o[x,y] = A[y,x]",
        {"A": ((31, 24), F8)},
        ((24, 31), F8),
        lambda A, out: A.T,
        route="transpose",
    ),
}
"""What makes a case, by name."""
