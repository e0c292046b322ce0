"""Classes of indices: letters that occur in exactly the same tensors.

Within a class only the product of the extents enters a volume, so the model solves for
classes, not letters (section 3 of the paper: M, N and K of the equivalent matrix product).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilesolve.contractions.spec import Spec

if TYPE_CHECKING:
    import networkx as nx

    Node = tuple[str, str | int]

_NAMED = {(0, 1): "M", (0, 2): "N", (1, 2): "K", (0, 1, 2): "B"}


@dataclass(frozen=True, slots=True)
class IndexClass:
    """Indices that occur in the same tensors.

    `name` is M, N, K or B for the plain indices of two operands; else the letters, joined.
    `letters` are in the order of ``spec.letters``. `tensors` are positions in ``spec.tensors``
    of what it indexes: 0 is the output.

    Examples
    --------
    >>> find_classes(Spec.parse("abcd-aebf-dfce"))[0]
    IndexClass(name='M', letters=('a', 'b'), tensors=(0, 1))
    """

    name: str
    letters: tuple[str, ...]
    tensors: tuple[int, ...]


def graph(spec: Spec) -> nx.Graph[Node]:
    """Return the bipartite graph of indices and the tensors that they index.

    Nodes are ``("index", letter)`` and ``("tensor", position)``. The edge attribute ``plain``
    is false where the letter stands in an affine subscript, or twice in the tensor.

    Examples
    --------
    >>> found = graph(Spec.parse("hk-[h+r]c-krc"))
    >>> sorted(position for _, position in found["index", "h"])
    [0, 1]
    >>> found["index", "h"]["tensor", 1]["plain"]
    False
    """
    import networkx as nx  # which takes as long to import as a plan does to make

    found: nx.Graph[Node] = nx.Graph()
    found.add_nodes_from((("index", letter) for letter in spec.letters), bipartite=0)
    found.add_nodes_from((("tensor", at) for at in range(len(spec.tensors))), bipartite=1)
    for letter, edges in _list_edges(spec).items():
        for position, plain in edges.items():
            found.add_edge(("index", letter), ("tensor", position), plain=plain)
    return found


def _list_edges(spec: Spec) -> dict[str, dict[int, bool]]:
    """Return for each letter the tensors that it indexes, and whether it is plain there."""
    found: dict[str, dict[int, bool]] = {letter: {} for letter in spec.letters}
    for position, tensor in enumerate(spec.tensors):
        for letter in tensor.letters:
            uses = [subscript for subscript in tensor.subscripts if letter in subscript.letters]
            found[letter][position] = len(uses) == 1 and uses[0].plain
    return found


def find_classes(spec: Spec) -> tuple[IndexClass, ...]:
    """Return the classes of a spec's indices: M, N, K and B first, then by appearance.

    Plain indices with equal neighbourhoods in `graph` are one class. An index in an affine
    subscript, or repeated in a tensor, is a class of its own: its tile does not enter that
    tensor's footprint as a factor.

    Examples
    --------
    >>> [(c.name, c.letters) for c in find_classes(Spec.parse("khw-c[h+r][w+s]-kcrs"))][:3]
    [('N', ('k',)), ('K', ('c',)), ('h', ('h',))]
    """
    groups: dict[tuple[tuple[int, ...], str | None], list[str]] = {}
    for letter, edges in _list_edges(spec).items():
        alone = None if all(edges.values()) else letter
        groups.setdefault((tuple(edges), alone), []).append(letter)
    named = _NAMED if len(spec.operands) == 2 else {}
    matrix: dict[str, IndexClass] = {}
    others: list[IndexClass] = []
    for (tensors, alone), letters in groups.items():
        if alone is None and tensors in named:
            matrix[named[tensors]] = IndexClass(named[tensors], tuple(letters), tensors)
        else:
            name = "".join(letters)
            while name in named.values():  # an index that is called K is not the class K
                name += "'"
            others.append(IndexClass(name, tuple(letters), tensors))
    return (*(matrix[name] for name in named.values() if name in matrix), *others)
