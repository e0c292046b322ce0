"""Letters for indices that have none yet."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import chain, count


def fresh(first: str, taken: Container[str] = ()) -> Iterator[str]:
    """Yield letters that are not taken, without end: some first, then those of other alphabets.

    Examples
    --------
    >>> letters = fresh("MNK", taken="NB")
    >>> [next(letters) for _ in range(4)]
    ['M', 'K', 'α', 'β']
    """
    others = (x for x in map(chr, count(ord("α"))) if x.isalpha())
    return (x for x in chain(first, others) if x not in taken)
