"""Stages of a graph: statements with letters of their own, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.cover import fills_shape
from tilesolve.contractions.statements.operations import named_kind
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Cast, Number, Read, Reduce, Term
from tilesolve.pipelines.graph import Graph, Node, Region, axis_letter, axis_letters, substitute
from tilesolve.pipelines.merging import is_copy, merge

_AXES = "xyzwvutsrqponm"
"""What axes are called, from the last one on."""

_SUMMED = "kijlabcdefgh"
"""What letters that are summed are called."""


def make_computation(graph: Graph, result: str, begins: str | None = None) -> Computation:
    """Return what computes an array of a graph, which may have the elements of another already."""
    graph = replace(graph, nodes=dict(graph.nodes))
    node = graph.nodes[result]
    if node.term is None:  # an array that is given
        result = graph.add(Read(result, axis_letters(len(node.shape))), node.shape, node.dtype)
    merge(graph, {result})
    writer = _Writer(graph, result, begins)
    writer.write()
    names = {one.array for stage in writer.stages for one in (stage.target, *stage.reads)}
    nodes = {writer.names[node.name]: node for node in graph.nodes.values()}
    return bind_stages(
        writer.stages,
        writer.sizes,
        {name: node.dtype for name, node in nodes.items() if name in names and node.term is None},
        {name: node.shape or (1,) for name, node in nodes.items() if name in names},
    )


def find_base(graph: Graph, result: str) -> str | None:
    """Return the given array whose elements a result has wherever it is not written."""
    node = graph.nodes[result]
    while node.base is not None:
        node = graph.nodes[node.base]
        copied = is_copy(node)
        if copied is not None:
            node = graph.nodes[copied]
    return node.name if node.term is None and node.name != result else None


@dataclass(slots=True)
class _Writer:
    """Writes stages.

    Parameters
    ----------
    graph
        What is computed.
    result
        The array that is computed last.
    begins
        The array whose elements the result has already.
    stages, sizes
        What is written: the statements, and the extents of their letters.
    names
        What each array is called.
    """

    graph: Graph
    result: str
    begins: str | None = None
    stages: list[Stage] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """Write all arrays that are computed, and the result last."""
        self._name_arrays()
        for node in self.graph.nodes.values():
            if node.term is not None:
                self._write_node(node)

    def _name_arrays(self) -> None:
        """Name all arrays; one that is written part by part has the name of what it began as."""
        taken: set[str] = set()
        for node in self.graph.nodes.values():
            if node.term is None:
                self.names[node.name] = node.name
                taken.add(node.name)
        chains = self._chains()
        for name in self.graph.nodes:
            if name in self.names:
                continue
            last = name
            while last in chains:
                last = chains[last]
            wanted = self.graph.labels.get(last, "t")
            found, number = wanted, 1
            while found in taken:
                number += 1
                found = f"{wanted}_{number}"
            taken.add(found)
            while True:
                self.names[name] = found
                if name not in chains:
                    break
                name = chains[name]

    def _chains(self) -> dict[str, str]:
        """Return which array goes on where another one was written, which nobody reads later."""
        users: dict[str, set[str]] = {}
        for node in self.graph.nodes.values():
            own = Read(node.base or "", axis_letters(len(node.shape)))
            reads = node.term.reads if node.term is not None else ()
            for read in reads:
                if read != own:
                    users.setdefault(read.array, set()).add(node.name)
        found: dict[str, str] = {}
        for node in self.graph.nodes.values():
            base = node.base
            if base is None or users.get(base) or base == self.result:
                continue
            if self.graph.nodes[base].term is not None:
                found.setdefault(base, node.name)
        return found

    def _write_node(self, node: Node) -> None:
        """Write what computes an array: a copy of what it begins as, and the rest."""
        term = node.term
        assert term is not None
        if node.region is None and _is_zero(term) and not self._needs_zeros(node):
            return
        name, base = self.names[node.name], node.base
        begun = self.begins if name == self.names[self.result] else None
        if begun is not None and is_copy(node) == begun and node.name != self.result:
            return
        if base is not None and self.names[base] != name and base != begun:
            self._write_stage(name, node, Read(base, axis_letters(len(node.shape))), None)
        self._write_stage(name, node, term, node.region)

    def _needs_zeros(self, node: Node) -> bool:
        """Return whether an array of zeros is more than what all of it is written over."""
        name = self.names[node.name]
        same = [one for one in self.graph.nodes.values() if self.names[one.name] == name]
        parts = []
        for one in same[1:]:
            if one.term is None or any(self.names[x.array] == name for x in one.term.reads):
                break
            ends = one.region or tuple((0, n) for n in node.shape)
            parts.append([(low, high - 1) for low, high in ends])
        if name != self.names[self.result] and len(same) == 2 and parts:
            return False  # arrays between have zeros where they are not written
        return not fills_shape(parts, node.shape)

    def _write_stage(self, name: str, node: Node, term: Term, region: Region | None) -> None:
        """Write a statement, whose letters have its number."""
        number = len(self.stages) + 1
        mine = [f"{_AXES[len(node.shape) - 1 - axis]}{number}" for axis in range(len(node.shape))]
        if not mine:
            mine = [f"x{number}"]
        letters = {axis_letter(axis): letter for axis, letter in enumerate(mine)}
        self.sizes |= dict(zip(mine, node.shape or (1,), strict=True))
        sums = [one for one in term.all if isinstance(one, Reduce)]
        for one, letter in zip((x for s in sums for x in s.over), _SUMMED, strict=False):
            letters[one] = f"{letter}{number}"
            self.sizes[letters[one]] = self.graph.extents[one]
        axes = tuple(map(Affine.letter, mine))
        where = [
            condition
            for letter, (low, high), n in zip(axes, region or (), node.shape, strict=False)
            for condition in _within(letter, low, high, n)
        ]
        found = _rename(
            substitute(term, {old: Affine.letter(new) for old, new in letters.items()}),
            letters,
            {old: Read(new, ()) for old, new in self.names.items()},
        )
        same = named_kind(term.kind(self.graph.dtypes)) == node.dtype
        self.stages.append(Stage(name, axes, found, None if same else node.dtype, tuple(where)))


def _within(letter: Affine, low: int, high: int, extent: int) -> Sequence[Condition]:
    """Return that a letter lies between two ends, where it might not."""
    found = [Condition(letter - low)] if low > 0 else []
    return [*found, Condition(high - 1 - letter)] if high < extent else found


def _rename(term: Term, letters: Mapping[str, str], arrays: Mapping[str, Read]) -> Term:
    """Return a term with other names of arrays and of letters that are summed."""
    parts = [_rename(one, letters, arrays) for one in term.parts]
    found = term.rebuilt(parts) if parts else term
    if isinstance(found, Read):
        # An array without axes has one element.
        return Read(arrays[found.array].array, found.subscripts or (Affine.number(0),))
    if isinstance(found, Reduce):
        return Reduce(found.name, tuple(letters[one] for one in found.over), found.term)
    return found


def _is_zero(term: Term) -> bool:
    number = term.term if isinstance(term, Cast) else term
    return isinstance(number, Number) and not number.value and str(number) != "-0.0"
