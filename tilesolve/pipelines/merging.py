"""Merging: terms that are needed at one place are computed there, and no array is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.terms import Number, Read, Reduce, Term
from tilesolve.pipelines.graph import Graph, Node, axis_letter, replace_reads

MOST_PARTS = 512
"""How many parts the term of an array may have that others are merged into."""

Readers = dict[str, dict[str, list[tuple[Read, frozenset[str]]]]]
"""By array, and by the one that reads it, the elements that are read and the letters around."""


def merge(graph: Graph, results: set[str]) -> None:
    """Leave out arrays that others may compute where they read them, and those that none needs.

    An array that is read at one position by a single other one is computed there, if each element
    is needed once; so are those with a single operation of a single element, wherever they are
    read. Results, sums and arrays whose parts are written one after another stay.
    """
    _Merging(graph, results).run()


class _Merging:
    """Arrays that are being merged; `readers` is kept up to date."""

    def __init__(self, graph: Graph, results: set[str]) -> None:
        self.graph, self.results = graph, results
        self.readers: Readers = {}
        self.bases: set[str] = set()

    def run(self) -> None:
        nodes = self.graph.nodes
        live = set(self.results)
        for name in reversed(nodes):
            if name in live:
                live |= {*_sources(nodes[name])}
        for name in [one for one in nodes if one not in live]:
            del nodes[name]
        self.bases = {node.base for node in nodes.values() if node.base}
        for name in nodes:
            self._note(name)
        for test in (self._needed_once, self._is_trivial, self._needed_once):
            for name in reversed(list(nodes)):
                node = nodes[name]
                if self._may_go(node) and test(node):
                    self._move(node)

    def _note(self, name: str) -> None:
        """Note what an array reads."""
        node = self.graph.nodes[name]
        if node.term is None:
            return
        around = frozenset(axis_letter(axis) for axis, n in enumerate(node.shape) if n != 1)
        for read, letters in _places(node.term, around):
            self.readers.setdefault(read.array, {}).setdefault(name, []).append((read, letters))

    def _may_go(self, node: Node) -> bool:
        """Return whether an array is a term that others may have in place of it."""
        if node.name in self.results or node.name in self.bases or node.term is None:
            return False
        sums = any(isinstance(one, Reduce) for one in node.term.all)
        return node.region is None and not sums

    def _needed_once(self, node: Node) -> bool:
        """Return whether each element is read once, by a single array."""
        readers = self.readers.get(node.name, {})
        if len(readers) != 1:
            return False
        (found,) = readers.values()
        if len({read for read, _ in found}) != 1 or len(found) * _size(node.term) > MOST_PARTS:
            return False
        return all(_is_once(read, letters) for read, letters in found)

    def _is_trivial(self, node: Node) -> bool:
        """Return whether it is less work to compute than to read."""
        term = node.term
        assert term is not None
        return term.work <= 1 and len(term.reads) <= 1

    def _move(self, node: Node) -> None:
        """Compute an array where it is read, and nowhere else, if there is a term for that."""
        nodes = self.graph.nodes
        made: dict[str, Term] = {}
        try:
            for name in self.readers.get(node.name, {}):
                term = nodes[name].term
                assert term is not None
                made[name] = replace_reads(term, node)
        except SpecError:
            return
        if any(_size(term) > MOST_PARTS for term in made.values()):
            return
        for name in made:
            for found in self.readers.values():
                found.pop(name, None)
            nodes[name] = replace(nodes[name], term=made[name])
            self._note(name)
        del nodes[node.name]
        for found in self.readers.values():
            found.pop(node.name, None)


def _sources(node: Node) -> Iterator[str]:
    """Yield the arrays that another one is made of."""
    if node.base:
        yield node.base
    if node.term is not None:
        yield from (read.array for read in node.term.reads)


def _places(term: Term, letters: frozenset[str]) -> Iterator[tuple[Read, frozenset[str]]]:
    """Yield the elements that are read, each with the letters of the loops around."""
    if isinstance(term, Read):
        yield term, letters
    if isinstance(term, Reduce):
        letters = letters | set(term.over)
    for part in term.parts:
        yield from _places(part, letters)


def _is_once(read: Read, letters: frozenset[str]) -> bool:
    """Return whether no element is read twice while the loops around it run."""
    places = read.plain
    if places is None or any(one.divisor > 1 or len(one.terms) > 1 for one in places):
        return False
    return letters <= {letter for one in places for letter in one.letters}


def _size(term: Term | None) -> int:
    return 0 if term is None else sum(not isinstance(one, Number) for one in term.all)


def is_copy(node: Node) -> str | None:
    """Return the array that another one is as it is; None if it is anything else."""
    term = node.term
    letters = tuple(Affine.letter(axis_letter(axis)) for axis in range(len(node.shape)))
    whole = node.region is None and isinstance(term, Read) and term.subscripts == letters
    return term.array if whole and isinstance(term, Read) else None
