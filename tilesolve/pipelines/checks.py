"""Checks that NumPy makes of values, as of positions, whether results need all of these or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.terms import (
    Apply,
    Choose,
    Dtypes,
    Number,
    Position,
    Read,
    Term,
)
from tilesolve.pipelines.graph import Graph, Node, Place, axis_letter

_Box = tuple[range, ...]
"""Elements of an array, as positions along each axis."""


def list_unread(graph: Graph, results: Sequence[str]) -> list[str]:
    """Return arrays whose elements are checked as they are computed, where results skip some.

    Examples
    --------
    >>> from tilesolve.contractions.statements.terms import apply
    >>> graph = Graph()
    >>> a = Read(graph.give("a", (5,), "int64"), (Affine.letter("_0"),))
    >>> power = graph.add(apply("power", a, a), (5,))
    >>> first = graph.add(Read(power, (Affine.letter("_0"),)), (1,))
    >>> list_unread(graph, [first]) == [power], list_unread(graph, [first, power])
    (True, [])
    """
    checking = {x.name for x in graph.nodes.values() if x.term and _checks(x.term, graph.dtypes)}
    follow = set[str]()  # those that need a checking one
    for node in graph.nodes.values() if checking else ():
        if node.name in checking or (node.term and any(x.array in follow for x in node.term.reads)):
            follow.add(node.name)
    read, found = defaultdict[str, list[_Box]](list), list[str]()
    for node in reversed([graph.nodes[name] for name in graph.nodes if name in follow]):
        if node.name not in results and not _cover(node.shape, read[node.name]):
            if node.name not in checking:
                continue
            found.append(node.name)
        for one, box in _list_boxes(graph, node):
            read[one.array].append(box)
    return found


def _checks(term: Term, dtypes: Dtypes) -> bool:
    """Return whether values are checked: positions from arrays, exponents of integers."""
    for one in term.all:
        if isinstance(one, Read) and any(x.reads for x in one.parts):
            return True
        power = isinstance(one, Apply) and one.name == "power"
        if power and not isinstance(one.parts[1], Number) and "int" in str(one.kind(dtypes)):
            return True
    return False


def _list_boxes(graph: Graph, node: Node) -> Iterator[tuple[Read, _Box]]:
    """Yield what a node reads for sure, where that is all elements between some positions."""
    assert node.term is not None
    counts = {axis_letter(axis): n for axis, n in enumerate(node.shape)} | graph.extents
    waiting = [(node.term, False)]
    while waiting:
        term, chosen = waiting.pop()
        by_place = isinstance(term, Choose) and not term.test.reads
        waiting += [(one, chosen or by_place) for one in term.parts]
        if isinstance(term, Read) and not (chosen and term.plain):
            extents = graph.nodes[term.array].shape
            letters = [x for one in term.subscripts for x in one.letters]
            sides = [_between(*x, counts) for x in zip(term.subscripts, extents, strict=False)]
            if all(side is not None for side in sides) and len(letters) == len(set(letters)):
                yield term, tuple(side for side in sides if side is not None)


def _between(place: Place, extent: int, counts: Mapping[str, int]) -> range | None:
    """Return the positions that a place takes, within an axis, if it leaves none out."""
    match place:
        case Apply(name="minimum", arguments=(Apply(name="maximum", arguments=(within, _)), _)):
            found = _between(within, extent, counts)
        case Position(position=position):
            found = _between(position, extent, counts)
        case Affine():
            span = 0
            for factor, letter in sorted(place.terms, key=lambda x: abs(x[0])):
                if abs(factor) > max(span + 1, place.divisor):
                    return None
                span += abs(factor) * (counts[letter] - 1)
            low, high = place.interval({x: (0, counts[x] - 1) for x in place.letters})
            found = range(max(low, 0), min(high, extent - 1) + 1)
        case _:
            found = None
    return found


def _cover(shape: Sequence[int], boxes: Sequence[_Box]) -> bool:
    """Return whether boxes have all elements of an array together."""
    ends = [
        sorted({0, n, *(x for box in boxes for x in (box[axis].start, box[axis].stop))})
        for axis, n in enumerate(shape)
    ]
    cells = np.zeros([len(one) - 1 for one in ends], bool)
    for box in boxes:
        sides = zip(ends, box, strict=True)
        cells[tuple(slice(one.index(x.start), one.index(x.stop)) for one, x in sides)] = True
    return not prod(shape) or bool(cells.all())
