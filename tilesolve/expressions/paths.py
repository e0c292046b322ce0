"""Paths: in which order tensors are contracted. A user gives one, or opt_einsum finds it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from tilesolve.contractions.errors import MemoryLimitError, PathError
from tilesolve.expressions.dispatch import Request

Path = Sequence[tuple[int, ...]]
"""Positions of the operands of each step, which leave; the result joins at the end."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tensors that are contracted: the letters of both, and the result's in any order."""

    takes: tuple[int, int]  # positions among the tensors that are left
    first: int
    second: int
    letters: frozenset[str]


def given_path(optimize: Any, count: int) -> Path | None:  # noqa: ANN401 - what a user gives
    """Return the path that `optimize` spells out for so many operands; None if it names a way.

    Raises
    ------
    PathError
        If it takes arrays that are not there, or leaves more than one.

    Examples
    --------
    >>> given_path(["einsum_path", (1, 2), (0, 1)], 3), given_path("greedy", 3)
    ([(1, 2), (0, 1)], None)
    >>> given_path([(0, 1)], 3)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.PathError: the order [(0, 1)] leaves 2 arrays of 3, not one
    """
    if not isinstance(optimize, list | tuple):
        return None
    name = optimize[0] if optimize and isinstance(optimize[0], str) else None
    if name != "einsum_path" and name and len(optimize) == 2 and isinstance(optimize[1], Real):
        return None  # numpy's way to say how large intermediate results should be
    asked = optimize[1:] if name == "einsum_path" else optimize
    try:
        path = [tuple(operator.index(position) for position in takes) for takes in asked]
    except TypeError as error:
        raise PathError(f"an order is a list of tuples of positions, not {optimize!r}") from error
    left = count
    for takes in path:
        if not takes or len(set(takes)) < len(takes) or not set(takes) <= set(range(left)):
            raise PathError(f"the order {path} takes {takes} of {left} arrays")
        left -= len(takes) - 1
    if left > 1:
        raise PathError(f"the order {path} leaves {left} arrays of {count}, not one")
    return path


def find_path(request: Request, operands: Sequence[str], output: str) -> Path:
    """Return which of two or more tensors are contracted, one step after the other.

    Raises
    ------
    PathError
        If the user's order cannot be followed, or opt_einsum does not know its name.
    MemoryLimitError
        If no order keeps to the limit.

    Examples
    --------
    >>> import numpy as np
    >>> request = Request({"i": 50, "j": 60, "k": 70, "l": 2}, np.dtype(float))
    >>> find_path(request, ["ij", "jk", "kl"], "il")
    [(1, 2), (0, 1)]
    """
    options = request.options
    count, asked = len(operands), options.optimize
    given = given_path(asked, count)
    if given is not None:
        return given
    if asked is False or asked is None:
        return [(0, count - 1 - step if step else 1) for step in range(count - 1)]
    if count == 2:
        return [(0, 1)]
    from opt_einsum import contract_path

    limit = options.memory_limit
    if limit is not None:  # opt_einsum counts the result too, in elements
        limit = max(limit // request.dtype.itemsize, request.size(output))
    most = limit
    if isinstance(asked, list | tuple):
        asked, elements = asked[0], max(int(asked[1]), 1)  # opt_einsum takes 1 or more
        most = elements if limit is None else min(limit, elements)
    try:
        path, _ = contract_path(
            ",".join(operands) + f"->{output}",
            *(tuple(request.sizes[x] for x in letters) for letters in operands),
            shapes=True,
            optimize="auto" if asked is True else asked,
            memory_limit=most,
        )
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise PathError(f"opt_einsum finds no order for optimize={asked!r}: {error}") from error
    if limit is not None and any(len(takes) > 2 for takes in path):
        raise MemoryLimitError(
            f"no order of {','.join(operands)}->{output} keeps each intermediate result within "
            f"memory_limit={options.memory_limit} bytes"
        )
    found = given_path(path, count)
    if found is None:  # of an empty mapping, say
        raise PathError(f"opt_einsum finds no order for optimize={asked!r}")
    return found


def split_path(operands: Sequence[str], output: str, path: Path) -> list[Pair]:
    """Return the pairs of a path; a step of more than two goes from left to right.

    Examples
    --------
    >>> [sorted(pair.letters) for pair in split_path(["ij", "jk", "kl"], "il", [(0, 1, 2)])]
    [['i', 'k'], ['i', 'l']]
    """
    letters = [frozenset(text) for text in operands]
    remaining = list(range(len(operands)))  # in the path's order, where one alone moves to the end
    arrays = list(remaining)  # in the order of the steps, where it does not
    found: list[Pair] = []
    for takes in path:
        made, *others = [remaining[position] for position in takes]
        remaining = [tensor for tensor in remaining if tensor not in (made, *others)]
        for number, other in enumerate(others, 1):
            outside = frozenset(output).union(
                *(letters[tensor] for tensor in (*remaining, *others[number:]))
            )
            kept = (letters[made] | letters[other]) & outside
            found.append(Pair((arrays.index(made), arrays.index(other)), made, other, kept))
            arrays = [tensor for tensor in arrays if tensor not in (made, other)]
            made = len(letters)
            arrays.append(made)
            letters.append(kept)
        remaining.append(made)
    return found
