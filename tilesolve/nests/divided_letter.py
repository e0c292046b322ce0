"""Which letter of a statement threads divide."""

from __future__ import annotations

from collections.abc import Sequence

from tilesolve.constants.nests import NEST_UNEVEN_SHARE
from tilesolve.contractions.statements.cover import whole_parts
from tilesolve.nests.request import NestRequest


def find_divided_letter(request: NestRequest, letters: Sequence[str]) -> str:
    """Return the first letter that threads divide about evenly, or the one they do most evenly."""
    stage, extents, threads = request.statement, request.computation.sizes, request.threads
    parts = whole_parts([stage], extents)
    if not parts:
        return letters[0]
    ends = dict(zip(stage.output_letters(), parts[0], strict=True))

    def find_longest(letter: str) -> float:
        low, high = ends[letter]
        share = -(-extents[letter] // threads)
        begins = range(0, extents[letter], max(share, 1))
        longest = max((min(high + 1, x + share) - max(low, x) for x in begins), default=0)
        return longest * threads / max(high + 1 - low, 1)

    found = {letter: find_longest(letter) for letter in letters}
    even = (letter for letter in letters if found[letter] <= NEST_UNEVEN_SHARE)
    return next(even, min(letters, key=found.__getitem__))
