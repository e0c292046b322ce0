"""Arrays of a nest, and whether its result is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from tilesolve.bench.run.oracle import DIGEST_PARTS, ROUNDING_ERRORS, Array
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.evaluate import evaluate

TINY_EXTENT = 11
"""Largest extent of the nest that is checked as a whole."""

LARGEST_DRAWN = 100
"""Integers are drawn below this."""


def draw_nest(computation: Computation, seed: int = 7) -> dict[str, Array]:
    """Return inputs of a computation by name; always the same.

    Integers that are subscripts of others are drawn as others are: suites have no such nests.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name in computation.inputs:
        info = computation.array(name)
        kind = np.dtype(info.dtype)
        if kind.kind == "f":
            found[name] = rng.standard_normal(info.shape, dtype=kind.type)
        else:
            found[name] = rng.integers(0, LARGEST_DRAWN, info.shape).astype(kind)
    return found


def draw_output(computation: Computation) -> Array:
    """Return an array for the result: zeros, as a region leaves elements as they are.

    They are written, so that no run takes new pages from the system.
    """
    return np.full(computation.output.shape, 0, computation.output.dtype)


def shrink_nest(computation: Computation) -> Computation:
    """Return the computation at small extents."""
    return computation.part({x: min(n, TINY_EXTENT) for x, n in computation.extents})


def count_terms(computation: Computation) -> int:
    """Return how many terms an element of the result is made of, with those of its operands."""
    return prod(
        prod(computation.sizes[letter] for letter in stage.summed) for stage in computation.stages
    )


def find_nest_fault(
    computation: Computation, arrays: Mapping[str, Array], params: Mapping[str, float], found: Array
) -> str:
    """Return how a small result is wrong; nothing if it is right."""
    right = evaluate(computation, arrays, params)
    if found.shape != right.shape:
        return f"wrong result: shape {found.shape}, not {right.shape}"
    if found.dtype.kind == "f":
        slack = ROUNDING_ERRORS * float(np.finfo(found.dtype).eps) * count_terms(computation)
        off = ~(np.abs(found - right) <= slack * max(1.0, float(np.abs(right).max(initial=0.0))))
    else:
        off = found != right
    return f"wrong result at {int(off.sum())} of {off.size} places" if off.any() else ""


def find_nest_outliers(computation: Computation, digests: Sequence[Array]) -> list[bool]:
    """Return for each of several results whether its sums of parts differ from what most found."""
    if not digests:
        return []
    stack = np.array(digests, dtype=np.float64)
    middle = np.median(stack, axis=0)
    output = computation.output
    if np.dtype(output.dtype).kind != "f":
        return [bool((one != middle).any()) for one in stack]
    part = max(1, prod(output.shape) / DIGEST_PARTS)
    epsilon = float(np.finfo(output.dtype).eps)
    slack: Any = ROUNDING_ERRORS * epsilon * count_terms(computation) * sqrt(part)
    return [bool((~(np.abs(one - middle) <= slack)).any()) for one in stack]
