"""Statements of many kinds with drawn dtypes and extents: the rows of a suite."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import exp, log, prod
from typing import Any

from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply

TOTAL_BYTES = (2**14, 2**27)
"""Bounds of the bytes of all arrays: half a first cache to several last ones."""

MOST_WORK = 2**28
"""Most operations of a statement, so that its slowest contender runs for half a second."""

FUNCTION_WORK = 8
"""Operations that an exponential and the like count as."""

ASPECT = 4.0
"""Extents differ by up to the square of this, where nothing bounds them."""

ROUND_EXTENT = 16
"""Half the extents are multiples of this."""

PARAMETER = 1 / 64
"""The value of parameters."""

FIT_STEPS = 24
"""Halvings of the range in which extents are sought."""

_FUNCTIONS = {"exp", "log", "tanh", "sqrt"}
_FLOATS = ("float32", "float64")
_BYTES = ("uint8",)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of statements.

    Parameters
    ----------
    family, name
        What it belongs to, and its own name.
    texts, dtypes
        One of each is drawn. A dtype is as a `NestCase` has it.
    bounds
        The least and the most extent of some letters and lengths; others are free.
    shapes
        The letters or lengths of the axes of some arrays.
    where
        The region.
    """

    family: str
    name: str
    texts: Sequence[str]
    dtypes: Sequence[str] = _FLOATS
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)
    where: str = ""


def _pairs(name: str, term: str, *dtypes: str) -> Kind:
    """Return a kind of products of rows, or of a matrix in its usual order, over some pair."""
    other = term.replace("Y[j,k]", "Y[k,j]")
    texts = tuple(f"d[i,j] = {one}" for one in (term, other))
    return Kind("product", name, texts, dtypes or _FLOATS, {"k": (3, 300)})


_INDEXED = ("float32 v=int64", "float64 v=int32", "float32 v=int32", "float64 v=int64")
_CHANNELS = {"c": (3, 4)}
_GREY = (
    "g[y,x] = uint8((77 * uint16(I[y,x,0]) + 150 * uint16(I[y,x,1]) + 29 * uint16(I[y,x,2])) >> 8)",
    "g[y,x] = 0.299 * float32(I[y,x,0]) + 0.587 * float32(I[y,x,1]) + 0.114 * float32(I[y,x,2])",
)
_SOFTMAX = (
    "m[i] = max(A[i,k], k); e[i,k] = exp(A[i,k] - m[i]); s[i] = sum(e[i,k], k); "
    "o[i,k] = e[i,k] / s[i]",
    "m[i] = max(A[i,k], k); l[i] = log(sum(exp(A[i,k] - m[i]), k)); o[i,k] = A[i,k] - m[i] - l[i]",
    "s[i] = sum(A[i,k] * A[i,k], k); o[i,k] = A[i,k] / sqrt(s[i] + 0.001) * w[k]",
)

KINDS = (
    _pairs("city-block", "sum(abs(X[i,k] - Y[j,k]), k)", "float32", "float64", "int32"),
    _pairs("squared", "sum((X[i,k] - Y[j,k]) * (X[i,k] - Y[j,k]), k)"),
    _pairs("chebyshev", "max(abs(X[i,k] - Y[j,k]), k)"),
    _pairs("hamming", "sum(X[i,k] != Y[j,k], k)", "uint8", "int32"),
    _pairs("equal", "sum(X[i,k] == Y[j,k], k)", "uint8", "int32"),
    _pairs("max-plus", "max(X[i,k] + Y[j,k], k)"),
    _pairs("min-plus", "min(X[i,k] + Y[j,k], k)", "float32", "float64", "int32"),
    _pairs("relu", "sum(max(X[i,k] + Y[j,k], 0), k)"),
    Kind(
        *("product", "two"),
        ("C[i,j] += A[i,k] * B[k,j]", "C[i,j] += A[k,i] * B[j,k]", "C[b,i,j] += A[b,i,k] * B[j,k]"),
    ),
    Kind(
        *("product", "three"),
        (
            "C[i,j] += A[i,k] * B[k,j] * w[k]",
            "C[i,j] += A[i,k] * B[j,k] * D[i,j]",
            "C[i,r] += A[i,j,k] * B[j,r] * D[k,r]",
        ),
        bounds={"r": (3, 40), "k": (3, 300)},
    ),
    Kind(
        *("gather", "rows"),
        ("o[i,k] = T[v[i],k] * w[i]", "o[i,k] = T[v[i],k] * 0.5", "o[i,k] = T[v[i],k] + b[k]"),
        *(_INDEXED, {"k": (3, 300)}, {"T": "t k"}),
    ),
    Kind(
        *("gather", "elements"),
        ("o[i] = T[v[i]]", "o[i] = T[v[i]] * w[i]", "o[i] = T[v[i]] + T[v[i+1]]"),
        *(_INDEXED, {"t": (100, 1_000_000)}, {"T": "t"}),
    ),
    Kind(
        *("gather", "table", ("o[y,x] = T[I[y,x]]",), ("float32 I=uint8", "uint8")),
        *({"t": (256, 256)}, {"T": "t"}),
    ),
    Kind(
        *("histogram", "weighted", ("h[v[i]] += w[i]",), _INDEXED),
        *({"b": (4, 50_000)}, {"h": "b"}),
    ),
    Kind(
        *("histogram", "plain", ("h[v[i]] += 1",), ("int64", "int32")),
        *({"b": (4, 50_000)}, {"h": "b"}),
    ),
    Kind("histogram", "bytes", ("h[I[y,x]] += 1",), _BYTES, {"b": (256, 256)}, {"h": "b"}),
    Kind(
        *("histogram", "rows", ("h[v[i],k] += A[i,k]",), _INDEXED),
        *({"k": (3, 100), "b": (4, 1000)}, {"h": "b k"}),
    ),
    Kind("channels", "grey", _GREY, _BYTES, shapes={"I": "y x c"}, bounds={"c": (3, 4)}),
    Kind(
        *("channels", "planes"),
        ("P[c,y,x] = I[y,x,c]", "P[c,y,x] = float32(I[y,x,c]) / 255", "I[y,x,c] = P[c,y,x]"),
        *(_BYTES, _CHANNELS),
    ),
    Kind(
        *("axes", "masked"),
        ("o[y,x] = A[x,y] & B[y,x]", "o[y,x] = where(B[y,x] > 50, A[x,y], 0)"),
        ("uint8", "int32", "int16"),
    ),
    Kind(
        *("axes", "rotated"),
        ("o[x,y,z] = A[y,z,x] * 2 + B[x,y,z]", "o[z,x,y] = A[x,y,z]", "o[z,y,x] = A[x,y,z] + b[x]"),
    ),
    Kind("axes", "transposed", ("o[y,x] = A[x,y] * 2 + B[y,x]", "o[y,x] = A[x,y] - A[y,x]")),
    Kind("reduction", "rows", ("s[y] = sum(A[y,x], x)", "s[y] = max(A[y,x], x)")),
    Kind("reduction", "columns", ("s[x] = sum(A[y,x], y)", "s[x] = min(A[y,x], y)")),
    Kind(
        *("reduction", "all"),
        ("s[u] = sum(A[u,y,x])", "s[u] = max(A[u,y,x])", "s[u] = sum(A[u,y,x] * B[u,y,x])"),
        *(("float32", "float64", "int32"), {"u": (1, 1)}),
    ),
    Kind(
        *("reduction", "variance"),
        (
            "m[y] = sum(A[y,x], x) * w; s[y] = sum((A[y,x] - m[y]) * (A[y,x] - m[y]), x) * w",
            "m[x] = sum(A[y,x], y) * w; s[x] = sum((A[y,x] - m[x]) * (A[y,x] - m[x]), y) * w",
        ),
    ),
    Kind("several", "softmax", _SOFTMAX),
    Kind(
        *("bytes", "blend"),
        ("o[y,x] = uint8((uint16(A[y,x]) * 3 + uint16(B[y,x]) * 5) >> 3)", "o[y,x] = A[y,x] ^ 255"),
        _BYTES,
    ),
    Kind(
        *("bytes", "threshold"),
        (
            "o[y,x] = where(A[y,x] > 50, A[y,x], B[y,x])",
            "o[y,x] = where(A[y,x] > 50, 255, 0)",
            "o[y,x] = max(A[y,x], B[y,x]) - min(A[y,x], B[y,x])",
        ),
        _BYTES,
    ),
    Kind(
        *("triangle", "elements"),
        ("o[i,j] = A[i,j] * B[i,j]", "o[i,j] = A[i,j] + A[j,i]", "o[i,j] = x[i] - x[j]"),
        where="j <= i",
    ),
    Kind("triangle", "rows", ("y[i] += A[i,k] * x[k]", "y[i] = max(A[i,k], k)"), where="k <= i"),
    Kind("outer", "sums", ("o[i,j] = x[i] + y[j]", "o[i,j] = A[i,j] + x[i] * y[j]")),
)
"""All kinds but those that are written anew each time."""


def draw_rows(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield statements as rows of a suite; all kinds come in turn, in a drawn order.

    Examples
    --------
    >>> [row["name"] for row in draw_rows(2, 7)] == [row["name"] for row in draw_rows(3, 7)][:2]
    True
    """
    draw = random.Random(seed)
    waiting: list[Kind] = []
    for number in range(1, count + 1):
        if not waiting:
            waiting = [*KINDS, *_write_kinds(draw)]
            draw.shuffle(waiting)
        kind = waiting.pop()
        yield {"name": f"{seed}-{number} {kind.family} {kind.name}"} | _draw_row(kind, draw)


def _draw_row(kind: Kind, draw: random.Random) -> dict[str, Any]:
    """Return a statement with extents, such that its arrays have a drawn size."""
    text, dtype = draw.choice(kind.texts), draw.choice(kind.dtypes)
    stages = parse_stages(text, kind.where)
    letters = dict.fromkeys(x for one in stages for x in one.letters)
    used = {one.array for stage in stages for one in (stage.target, *stage.reads)}
    shapes = {name: axes.split() for name, axes in kind.shapes.items() if name in used}
    lengths = [*dict.fromkeys((*letters, *(x for axes in shapes.values() for x in axes)))]
    fixed = {x: round(_draw_log(draw, *kind.bounds[x])) for x in lengths if x in kind.bounds}
    base = {x: _draw_log(draw, 1 / ASPECT, ASPECT) for x in lengths if x not in fixed}
    rounded = {x for x in base if draw.random() < 1 / 2}
    target = _draw_log(draw, *TOTAL_BYTES)

    def bind(scale: float) -> dict[str, Any]:
        free = {x: max(1, round(scale * one)) for x, one in base.items()}
        free |= {x: -(-free[x] // ROUND_EXTENT) * ROUND_EXTENT for x in rounded}
        if kind.where:  # both letters of a triangle run as far
            free = dict.fromkeys(free, min(free.values()))
        every = free | fixed
        return {
            "sizes": {x: every[x] for x in letters},
            "shapes": {name: tuple(every[x] for x in axes) for name, axes in shapes.items()},
        }

    low, high = 1.0, float(TOTAL_BYTES[1])
    for _ in range(FIT_STEPS):
        middle = (low * high) ** (1 / 2)
        found = bind(middle)
        made = bind_typed(stages, found["sizes"], dtype, found["shapes"])
        fits = count_bytes(made) <= target and count_work(made) <= MOST_WORK
        low, high = (middle, high) if fits else (low, middle)
    params = {name: PARAMETER for one in stages for name in one.params}
    return {"text": text, "dtype": dtype, "where": kind.where, "params": params} | bind(low)


def bind_typed(
    stages: Sequence[Stage],
    sizes: Mapping[str, int],
    dtype: str,
    shapes: Mapping[str, tuple[int, ...]],
) -> Computation:
    """Give stages their extents and dtypes.

    A `dtype` such as ``"float32 v=int64"`` is of all inputs and parameters but those that it names.

    Examples
    --------
    >>> stages = parse_stages("h[v[i]] += w[i]")
    >>> dict(bind_typed(stages, {"i": 9}, "float32 v=int64", {"h": (3,)}).dtypes)
    {'v': 'int64', 'w': 'float32', 'h': 'float32'}
    """
    common, *others = dtype.split()
    given = dict(one.split("=") for one in others)
    made = {stage.name for stage in stages}
    read = (name for stage in stages for name in (*(x.array for x in stage.reads), *stage.params))
    dtypes = {name: given.get(name, common) for name in read if name not in made}
    return bind_stages(stages, sizes, dtypes, shapes)


def count_bytes(computation: Computation) -> int:
    """Return the bytes of all arrays."""
    return sum(array.bytes for array in computation.arrays)


def count_work(computation: Computation) -> int:
    """Return the operations of all statements; exponentials and the like count as several."""
    total = 0
    for stage in computation.stages:
        calls = {one for one in stage.term.all if isinstance(one, Apply) and one.name in _FUNCTIONS}
        work = max(1, stage.term.work + (FUNCTION_WORK - 1) * len(calls))
        total += computation.points(stage) * work
    return total


def _draw_log(draw: random.Random, low: float, high: float) -> float:
    return exp(draw.uniform(log(low), log(high)))


def _write_kinds(draw: random.Random) -> list[Kind]:
    """Return kinds whose texts are drawn: stencils and chains of functions."""
    return [
        Kind("stencil", "box", (_write_stencil(draw, box=True),)),
        Kind("stencil", "star", (_write_stencil(draw, box=False),)),
        Kind("stencil", "bytes", (_write_stencil(draw, box=True, cast="int16"),), _BYTES),
        Kind("chain", "functions", (_write_chain(draw),)),
    ]


def _write_stencil(draw: random.Random, *, box: bool, cast: str = "") -> str:
    """Return a sum of 3 to 27 neighbours with weights: a box's are separable."""
    axes = "zyx"[-draw.randint(1, 3) :]
    side = draw.choice([(1, 2, 1), (1, 4, 1), (1, 1, 1), (-1, 3, -1)])
    parts = []
    for place in product(range(len(side)), repeat=len(axes)):
        if not box and place.count(1) < len(axes) - 1:
            continue
        weight = prod(side[step] for step in place)
        steps = (f"{x}+{step}" if step else x for x, step in zip(axes, place, strict=True))
        read = f"A[{','.join(steps)}]"
        parts.append(f"{weight} * {cast}({read})" if cast else f"{weight / 4} * {read}")
    return f"o[{','.join(axes)}] = {' + '.join(parts)}"


def _write_chain(draw: random.Random) -> str:
    """Return functions of functions of an element."""
    term = "A[i]"
    for _ in range(draw.randint(2, 4)):
        step = draw.choice(
            [
                *("exp(min({}, 2.0))", "log(abs({}) + 1.0)", "sqrt(abs({}))", "tanh({})"),
                *("({} * B[i] + 0.5)", "abs({} - B[i])"),
            ]
        )
        term = step.format(term)
    return f"o[i] = {term}"
