"""Statements of many kinds with drawn dtypes and extents: the rows of a suite."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import product
from math import exp, log, prod
from typing import Any

from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.extents import Shape
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
"""Extents that nothing bounds differ by the square of this at most."""

ROUND_EXTENT = 16
"""Half the extents are multiples of this."""

PARAMETER = 1 / 64
"""The value of parameters."""

FIT_STEPS = 12
"""Halvings of the range in which extents are sought."""

_FUNCTIONS = {"exp", "log", "tanh", "sqrt"}


def draw_rows(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield statements as rows of a suite; all kinds come in turn, in a drawn order.

    A row's name has the seed, its number, and the family and name of its kind.

    Examples
    --------
    >>> [row["name"] for row in draw_rows(2, 7)] == [row["name"] for row in draw_rows(3, 7)][:2]
    True
    """
    text = files("tilesolve.contractions").joinpath("suites", "statements.toml").read_text("utf-8")
    kinds, draw = tomllib.loads(text)["kind"], random.Random(seed)
    waiting: list[Mapping[str, Any]] = []
    for number in range(1, count + 1):
        if not waiting:
            waiting = [*kinds, *_write_kinds(draw)]
            draw.shuffle(waiting)
        kind = waiting.pop()
        yield {"name": f"{seed}-{number} {kind['family']} {kind['name']}"} | _draw_row(kind, draw)


def _draw_row(kind: Mapping[str, Any], draw: random.Random) -> dict[str, Any]:
    """Return a statement with extents, such that its arrays have a drawn size."""
    text, where = draw.choice(kind["texts"]), kind.get("where", "")
    dtype = draw.choice(kind.get("dtypes", ["float32", "float64"]))
    stages, bounds = parse_stages(text, where), kind.get("bounds", {})
    letters = dict.fromkeys(x for one in stages for x in one.letters)
    shapes = {name: axes.split() for name, axes in kind.get("shapes", {}).items()}
    lengths = dict.fromkeys((*letters, *(x for axes in shapes.values() for x in axes)))
    fixed = {x: round(_draw_log(draw, *bounds[x])) for x in lengths if x in bounds}
    base = {x: _draw_log(draw, 1 / ASPECT, ASPECT) for x in lengths if x not in fixed}
    rounded = [x for x in base if draw.random() < 1 / 2]
    target = _draw_log(draw, *TOTAL_BYTES)

    def scale_by(factor: float) -> dict[str, Any]:
        free = {x: max(1, round(factor * one)) for x, one in base.items()}
        free |= {x: -(-free[x] // ROUND_EXTENT) * ROUND_EXTENT for x in rounded}
        if where:  # the letters of a triangle run equally far
            free = dict.fromkeys(free, min(free.values()))
        every = free | fixed
        return {
            "sizes": {x: every[x] for x in letters},
            "shapes": {name: tuple(every[x] for x in axes) for name, axes in shapes.items()},
        }

    low, high = 1.0, float(TOTAL_BYTES[1])
    for _ in range(FIT_STEPS):
        middle = (low * high) ** (1 / 2)
        made = bind_typed(stages, dtype=dtype, **scale_by(middle))
        fits = count_work(made) <= MOST_WORK
        fits = fits and sum(array.bytes for array in made.arrays) <= target
        low, high = (middle, high) if fits else (low, middle)
    params = {name: PARAMETER for one in stages for name in one.params}
    return {"text": text, "dtype": dtype, "where": where, "params": params} | scale_by(low)


def bind_typed(
    stages: Sequence[Stage],
    sizes: Mapping[str, int],
    dtype: str,
    shapes: Mapping[str, Shape],
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


def _write_kinds(draw: random.Random) -> list[Mapping[str, Any]]:
    """Return kinds whose texts are drawn: stencils and chains of functions."""
    box, star = (_write_stencil(draw, box=one) for one in (True, False))
    narrow = _write_stencil(draw, box=True, cast="int16")
    return [
        {"family": "stencil", "name": "box", "texts": [box]},
        {"family": "stencil", "name": "star", "texts": [star]},
        {"family": "stencil", "name": "bytes", "texts": [narrow], "dtypes": ["uint8"]},
        {"family": "chain", "name": "functions", "texts": [_write_chain(draw)]},
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
