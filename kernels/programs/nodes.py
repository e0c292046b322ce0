"""What programs and loop trees have in common: how loops run, and walking all parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

Kind = Literal["serial", "vector", "unrolled", "threads"]
"""How a loop runs: trip by trip, all lanes at once, written out, or divided among threads."""

N = TypeVar("N")


def list_nodes(body: Iterable[N]) -> Iterator[N]:
    """Yield all parts of parts of a program, or of a loop tree, each before those within it."""
    waiting = [*body][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(getattr(node, "body", ()))
