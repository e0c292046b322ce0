"""The walk from the statement outwards that every figure of data movement comes from.

One function, `walk_loops`, serves numbers and symbols alike, so that prices, printed expressions
and the nonlinear program cannot disagree (section 3.1 of the paper, Listing 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Rule = Literal["distance", "listing3", "tiles"]
"""When a tensor outlives a loop that does not index it.

By reuse distance, by Listing 3, or as programs have it: a level keeps what its tile touches."""

Truth = bool | NDArray[np.bool_]
"""A yes or no, for one nest or for each of many."""

Position = int | NDArray[np.int_]
"""A number of loops, counted from the statement outwards."""

Q = TypeVar("Q")
"""What the walk multiplies: floats, arrays of them (many nests at once), or signomials."""


class _Moved(Protocol):
    """What some letters move."""

    @property
    def letters(self) -> Sequence[str]: ...


def choose(condition: Truth, yes: Q, no: Q) -> Q:
    """Return one of two values, element by element where the condition is an array.

    Examples
    --------
    >>> choose(True, "a", "b"), choose(np.array([True, False]), 1, 2).tolist()
    ('a', [1, 2])
    """
    if condition is True:
        return yes
    if condition is False:
        return no
    if isinstance(condition, np.ndarray):
        picked: Any = np.where(condition, yes, no)  # type: ignore[call-overload]
        return picked  # type: ignore[no-any-return]
    return yes if condition else no


def blend(share: Truth | float, yes: Q, no: Q) -> Q:
    """Return one of two values, or for a share that much of the first and the rest of the second.

    Examples
    --------
    >>> blend(True, 8.0, 16.0), blend(0.75, 8.0, 16.0)
    (8.0, 10.0)
    """
    if isinstance(share, float):
        part: Any = share
        mixed: Q = part * yes + (1 - part) * no
        return mixed
    return choose(share, yes, no)


def find_last(runs: Sequence[Truth], counted: Sequence[bool]) -> list[Position]:
    """Return for each number of loops the last of them that runs, of those that count.

    Examples
    --------
    >>> find_last([True, False, True], [True, True, False])
    [0, 1, 1, 1]
    """
    found: list[Position] = [0]
    for after, (running, counts) in enumerate(zip(runs, counted, strict=True), start=1):
        found.append(choose(running, after, found[-1]) if counts else found[-1])
    return found


def walk_loops(
    accesses: Sequence[_Moved],
    loops: Sequence[tuple[str, Q]],
    footprints: Sequence[Sequence[Q]],
    stays: Callable[[Position, int], Truth | float],
    runs: Sequence[Truth] | None = None,
    start: Sequence[Q] | None = None,
    last: Callable[[Sequence[str]], Sequence[Position]] | None = None,
) -> list[Q]:
    """Return how much of each tensor one level takes in over a nest.

    Parameters
    ----------
    accesses
        What has the letters that move it: accesses, or tensors.
    loops
        Letter and trip count of each loop, innermost first.
    footprints
        For each tensor its footprint at the statement and after each loop.
    stays
        Whether what the first so many loops touch is still there when a loop, given by its
        number, comes round to its next trip; or how much of it is.
    runs
        Whether each loop runs more than once, which all do by default; one that does not has one
        trip, and changes nothing.
    start
        How much of each what the innermost loop does takes in; its footprint if None.
    last
        What `find_last` returns for the loops of some letters, where that is known.

    Examples
    --------
    Ten rows of A against one row of B that does not fit beside them:

    >>> from tilesolve.contractions.spec import Spec
    >>> spec = Spec.parse("mn-mk-kn")
    >>> boxes = [dict(m=1, n=1, k=1), dict(m=1, n=1, k=50), dict(m=10, n=1, k=50)]
    >>> sizes = [[float(np.prod([b[i] for i in t.letters])) for b in boxes] for t in spec.tensors]
    >>> walk_loops(spec.tensors, [("k", 50.0), ("m", 10.0)], sizes, lambda inner, _: inner < 1)
    [10.0, 500.0, 500.0]
    """
    moved: list[Any] = [sizes[0] for sizes in footprints] if start is None else list(start)
    running = [True] * len(loops) if runs is None else runs

    def find(letters: Sequence[str]) -> Sequence[Position]:
        return find_last(running, [letter in letters for letter, _ in loops])

    found = last or find
    inside = found([letter for letter, _ in loops])
    rows = [
        (t, one.letters, sizes, found(one.letters))
        for t, (one, sizes) in enumerate(zip(accesses, footprints, strict=True))
    ]
    for position, ((letter, trips), run) in enumerate(zip(loops, running, strict=True)):
        whole: Truth | float | None = None
        for t, letters, sizes, own in rows:
            if letter not in letters:
                # What a tensor's outermost inner loop touches comes between two of its uses.
                stay = stays(own[position], position)
                if stay is False:
                    moved[t] = moved[t] * trips
                elif stay is not True:
                    moved[t] = blend(stay, moved[t], moved[t] * trips)
                continue
            # While everything so far is still there, only what is new to the grown box
            # comes in: for a plain subscript the trip count, for an affine one less.
            if whole is None:
                whole = stays(inside[position], position)
                if not isinstance(whole, float):
                    whole = whole & run
            if whole is True:
                moved[t] = sizes[position + 1]
            elif whole is False:
                moved[t] = moved[t] * trips
            else:
                moved[t] = blend(whole, sizes[position + 1], moved[t] * trips)
    return moved
