"""What windows share, by the integer set library: islpy, which the extra `polyhedral` brings.

A window is a subscript of several letters, such as `[h+r]`, that run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from tilesolve.contractions.errors import ModelError, PlanError
from tilesolve.contractions.spec import Subscript
from tilesolve.model.iterations import Loop

Box = tuple[tuple[int, int], ...]
"""First iteration and end of each of some letters."""


@lru_cache(maxsize=4096)
def count_images(
    subscripts: tuple[Subscript, ...], letters: tuple[str, ...], boxes: frozenset[Box]
) -> int:
    """Return how many different places some subscripts have in a union of boxes.

    Raises
    ------
    ModelError
        If islpy is missing.

    Examples
    --------
    >>> from tilesolve.contractions.spec import Spec
    >>> row = Spec.parse("h-[2h+r]-r").operands[0].subscripts
    >>> count_images(row, ("h", "r"), frozenset({((0, 4), (0, 1)), ((3, 4), (0, 3))}))
    6
    """
    isl = _load_isl()
    names = ", ".join(f"x{at}" for at in range(len(letters)))
    parts = " or ".join(
        "(" + " and ".join(f"{low} <= x{at} < {high}" for at, (low, high) in enumerate(box)) + ")"
        for box in sorted(boxes)
    )
    places = ", ".join(
        " + ".join(f"{factor} x{letters.index(letter)}" for factor, letter in subscript.terms)
        for subscript in subscripts
    )
    points = isl.Set(f"{{ [{names}] : {parts} }}")
    images = points.apply(isl.Map(f"{{ [{names}] -> [{places}] }}"))
    return int(images.coalesce().count_val().to_python())


def share_of_windows(
    subscripts: Collection[Subscript], loops: Sequence[Loop], carrier: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Return who first uses elements again that an earlier trip of a loop has used.

    Parameters
    ----------
    subscripts
        All of a tensor that have letters of the loops.
    loops
        All over the letters that windows couple, outermost first.
    carrier
        The number of the one whose trips share.

    Returns
    -------
    tuple or None
        As trips of the loops the first iteration whose element comes again in a later trip, and
        the first and the last that use it again; None if trips share nothing.

    Raises
    ------
    ModelError
        If islpy is missing.
    PlanError
        If register tiles have chosen sizes.

    Examples
    --------
    In `[h+r]` the second `r` of one `h` meets the first one of the next:

    >>> loops = [Loop("h", 1, "", 1, 8, 8, 1), Loop("r", 1, "", 1, 3, 3, 1)]
    >>> share_of_windows([Subscript(((1, "h"), (1, "r")))], loops, 0)
    ((0, 1), (1, 0), (1, 0))
    """
    if any(loop.cells for loop in loops):
        raise PlanError("what windows share of tiles of chosen sizes is not counted")
    isl = _load_isl()
    conditions = [
        *_run(loops, "a"),
        *_run(loops, "b"),
        *(f"a{at} = b{at}" for at in range(carrier)),
        f"a{carrier} < b{carrier}",
        *(f"{_place(loops, one, 'a')} = {_place(loops, one, 'b')}" for one in subscripts),
    ]
    sides = [", ".join(f"{name}{at}" for at in range(len(loops))) for name in "ab"]
    pairs = isl.Map(f"{{ [{sides[0]}] -> [{sides[1]}] : {' and '.join(conditions)} }}")
    if pairs.is_empty():
        return None
    first = pairs.domain().lexmin()
    again = pairs.intersect_domain(first).range()
    source, least, most = map(_trips, (first, again.lexmin(), again.lexmax()))
    return source, least, most


def _run(loops: Sequence[Loop], name: str) -> list[str]:
    """Return the conditions for trips of loops: what is left of a tile ends it."""
    found = []
    for at, loop in enumerate(loops):
        inside = Subscript(((1, loop.letter),))
        found.append(f"0 <= {name}{at} and {_place(loops, inside, name, at)} < {loop.span}")
    return found


def _place(loops: Sequence[Loop], subscript: Subscript, name: str, first: int = 0) -> str:
    """Return where along an axis an iteration is, as the trips of loops from one on make it."""
    factors = {letter: factor for factor, letter in subscript.terms}
    return " + ".join(
        f"{factors[loop.letter] * loop.step} {name}{at}"
        for at, loop in enumerate(loops)
        if at >= first and loop.letter in factors
    )


def _trips(points: Any) -> tuple[int, ...]:  # noqa: ANN401 - islpy has no types
    """Return the only point of a set."""
    isl = _load_isl()
    point = points.sample_point()
    size = point.get_space().dim(isl.dim_type.set)
    return tuple(
        int(point.get_coordinate_val(isl.dim_type.set, at).to_python()) for at in range(size)
    )


def _load_isl() -> Any:  # noqa: ANN401
    """Return islpy."""
    try:
        import islpy
    except ImportError as error:
        raise ModelError("islpy is missing: pip install 'tilesolve[polyhedral]'") from error
    return islpy
