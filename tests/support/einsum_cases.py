"""Random calls of einsum, valid and not, for numpy and for ours to agree on."""

import string

import numpy as np
import pytest

from tilesolve import TilesolveError
from tilesolve.constants import policy

DTYPES = ("f8", "f4", "c16", "i8", "u1", "?")


def set_costs(patch: pytest.MonkeyPatch, **costs: float) -> None:
    """Let some limits of routes be others, such as `einsum_loop_products`."""
    for name, cost in costs.items():
        patch.setattr(policy, name.upper(), cost)


def draw_call(rng: np.random.Generator) -> tuple[str, list[np.ndarray]]:
    """Return subscripts over ASCII, and operands that mostly fit them."""
    letters = rng.choice(list(string.ascii_letters), 5, replace=False)
    extents = rng.choice([0, 1, 2, 3, 4], 5, p=[0.04, 0.16, 0.3, 0.3, 0.2])
    sizes = dict(zip(letters, extents, strict=True))
    hidden = tuple(rng.integers(1, 4, rng.integers(0, 3)))
    terms, operands = [], []
    dtypes = rng.choice(DTYPES, 2)
    for _ in range(rng.integers(1, 5)):
        chosen = list(rng.choice(letters, rng.integers(0, 4)))
        shape = [sizes[x] for x in chosen]
        for axis, x in enumerate(chosen):
            if chosen.count(x) == 1 and rng.random() < 0.05:
                shape[axis] = 1
        if rng.random() < 0.25:
            at = int(rng.integers(0, len(chosen) + 1))
            axes = hidden[int(rng.integers(0, len(hidden) + 1)) :]
            chosen.insert(at, "...")
            shape[at:at] = [1 if rng.random() < 0.1 else n for n in axes]
        terms.append("".join(chosen))
        dtype = np.dtype(rng.choice(dtypes))
        least = -3 if dtype.kind in "ifc" else 0
        operands.append(np.asarray(rng.integers(least, 4, shape)).astype(dtype))
    text = ",".join(terms)
    if rng.random() < 0.6:
        known = [x for x in letters if x in text]
        output = list(rng.permutation(known)[: rng.integers(0, len(known) + 1)])
        if "..." in text or rng.random() < 0.05:
            output.insert(int(rng.integers(0, len(output) + 1)), "...")
        text += "->" + "".join(output)
    return spoil_call(text, operands, rng)


def spoil_call(
    text: str, operands: list[np.ndarray], rng: np.random.Generator
) -> tuple[str, list[np.ndarray]]:
    """Return one call in four with something changed, which may make it invalid."""
    if rng.random() < 0.75:
        return text, operands
    at = int(rng.integers(0, len(text) + 1))
    kind = rng.integers(0, 4)
    if kind == 0:
        text = text[:at] + str(rng.choice(list(string.printable))) + text[at:]
    elif kind == 1:
        text = text[:at] + text[at + 1 :]
    elif kind == 2:
        text = text[:at] + str(rng.choice(list("  .,->ab"))) + text[at + 1 :]
    else:
        position = int(rng.integers(0, len(operands)))
        shape = list(operands[position].shape)
        if shape and rng.random() < 0.7:
            shape[int(rng.integers(0, len(shape)))] += 1
        else:
            shape.insert(0, 2)
        operands[position] = np.ones(shape, operands[position].dtype)
    return text, operands


def catch_outcome(function, text, operands):
    """Return what a function returns, or the error with which it refuses."""
    try:
        return function(text, *operands)
    except (ValueError, TypeError) as error:
        return error


def describe_difference(text, operands, ours, theirs) -> str | None:
    """Return how two outcomes differ, or None: errors of any kind are alike, if they are ours."""
    refused = [isinstance(found, Exception) for found in (ours, theirs)]
    if all(refused):
        return None if isinstance(ours, TilesolveError) else f"{text!r}: {ours!r} is none of ours"
    shapes = [array.shape for array in operands]
    dtypes = [str(array.dtype) for array in operands]
    if any(refused):
        return f"{text!r} {shapes} {dtypes}: ours {ours!r}, numpy {theirs!r}"
    same = type(ours) is type(theirs) and ours.dtype == theirs.dtype and ours.shape == theirs.shape
    # Values are small and whole, so that every order of sums is exact.
    if not same or not np.array_equal(ours, theirs):
        return f"{text!r} {shapes} {dtypes}: {ours!r} is not {theirs!r}"
    return None
