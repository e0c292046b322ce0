"""Programs of loop trees: bounds, starts of sums, holds and guards follow from the statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilesolve.constants.nests import GROUP_SHORT_EXTENT
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Condition
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.kernels.programs import program
from tilesolve.kernels.programs.program import (
    Barrier,
    Compute,
    Guard,
    Hold,
    Node,
    Program,
    Start,
)
from tilesolve.model import loop_tree
from tilesolve.model.loop_tree import (
    Buffer,
    Call,
    Do,
    Loop,
    LoopTree,
    list_loops,
    list_works,
)
from tilesolve.nests.cuts import cut_stage, list_parts
from tilesolve.nests.groups import Group, Placed, Tile, holds_rings
from tilesolve.nests.loops import Around


def write_program(computation: Computation, tree: LoopTree) -> Program:
    """Return the loop program of a computation, whose stages are the works of a tree.

    A sum begins where the first loop over one of its letters stands: there all elements of the
    output that the loops within reach are set, unless registers hold them until they are done.
    All threads wait for one another between parts that stand one after another.

    Works that rings join are a group: loops that they share walk tiles of the last one, which is
    its root. What each of the others computes there, and what a ring keeps of it, follows from
    `Group`: loops of a ring begin as far before a tile as it takes to warm the ring up.

    Raises
    ------
    SpecError
        If the tree has copies, or stands for many nests, or a stage is kept where it is not read.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("C[i] += A[i,k]"), 8)
    >>> tree = LoopTree((), (Loop("i", 1, (Loop("k", 1, (Do(),)),)),))
    >>> [type(node).__name__ for node in write_program(found, tree).nodes]
    ['Loop', 'Start', 'Loop', 'Compute']
    """
    cut, numbers = _cut_stages(computation)
    starts = [(Start(at),) for at, stage in enumerate(cut.stages) if stage.update is not None]
    around, writer = Around(computation.sizes), _Writer(cut.stages)
    parts = list[tuple[Node, ...]](starts)
    for node in tree.body:
        if holds_rings(node):
            group = _GroupWriter(computation.sizes, writer, Group.of(computation, node), numbers)
            parts.append(group.node(node, group.waiting))
            continue
        parts += (writer.part(around, one, frozenset()) for one in _spread(node, numbers))
    waits = (Barrier(),) if any(loop.kind == "threads" for loop in tree.loops) else ()
    body: list[Node] = []
    for part in parts:
        body += (*waits, *part) if body else part
    past = frozenset([computation.output.name] if tree.output == "stream" else [])
    return Program(cut, tuple(body), past)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a stage as a stage of its own: its number, and which loops compute it.

    Parameters
    ----------
    number, stage
        Of that stage.
    border
        Whether other parts are larger: then its code is short.
    narrow
        Letters that take few values there.
    """

    number: int
    stage: Stage
    border: bool
    narrow: frozenset[str]

    def node(self, node: loop_tree.Node) -> loop_tree.Node:
        """Return a node that computes it."""
        if isinstance(node, Do):
            return Do(self.number)
        if self.border and isinstance(node, Loop) and walks_vectors(self.stage, node):
            return self.node(node.body[0])  # its rows come one after another
        body = tuple(map(self.node, node.body))
        if isinstance(node, Loop) and self.border:
            plain = node.kind == "unrolled" or node.letter in self.narrow
            return replace(node, body=body, kind="serial" if plain else node.kind)
        return replace(node, body=body)


def _spread(
    node: loop_tree.Node, numbers: Sequence[Sequence[_Piece]]
) -> tuple[loop_tree.Node, ...]:
    """Return nodes that compute all parts of a node's works, in the loops that these share."""
    works = set(list_works((node,)))
    if len(works) == 1 or isinstance(node, Do):
        return tuple(piece.node(node) for piece in numbers[works.pop()])
    body = tuple(one for inner in node.body for one in _spread(inner, numbers))
    return (replace(node, body=body),)


def _cut_stages(computation: Computation) -> tuple[Computation, list[list[_Piece]]]:
    """Return the parts of all stages as stages, and those of each."""
    found, numbers = list[Stage](), list[list[_Piece]]()
    for stage in computation.stages:
        cut = cut_stage(computation, stage)
        pieces = list[_Piece]()
        for part in cut:
            narrow = {x for x, low, high in part.ranges if high - low < GROUP_SHORT_EXTENT}
            border = part is not cut[0]
            number = len(found) + len(pieces)
            pieces.append(_Piece(number, stage, border, frozenset(narrow)))
        numbers.append(pieces)
        found += list_parts(computation, stage)
    if tuple(found) == computation.stages:
        return computation, numbers
    shapes = {array.name: array.shape for array in computation.arrays}
    sizes, dtypes = computation.sizes, computation.dtypes
    return bind_stages(found, sizes, dtypes, shapes, computation.outputs), numbers


def holds_sums(stage: Stage, nodes: Sequence[loop_tree.Node]) -> bool:
    """Return whether registers hold sums of a statement while some nodes run.

    They do where vectors of them are summed. A single sum the compiler keeps by itself.
    """
    loops = list(list_loops(nodes))
    summed = any(loop.letter in stage.summed for loop in loops)
    vectors = any(loop.kind == "vector" for loop in loops)
    return stage.reduction is not None and summed and vectors


def walks_vectors(stage: Stage, loop: Loop) -> bool:
    """Return whether a loop goes over vectors, around loops that are written out around each.

    A vector loop in such loops takes these steps by itself, so that programs have no loop for it.
    """
    loops = list(list_loops(loop.body))
    around = {one.kind for one in loops[:-1]}
    if not isinstance(loop.body[0], Call) or around != {"unrolled"}:
        return False
    inner = loops[-1].kind, loops[-1].letter
    return inner == ("vector", loop.letter) and not holds_sums(stage, loop.body)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the nodes of trees, each at its place among loops.

    Parameters
    ----------
    stages
        The works.
    holding
        Whether registers hold a sum, which begins there.
    """

    stages: tuple[Stage, ...]
    holding: bool = False

    def part(self, around: Around, node: loop_tree.Node, begun: frozenset[int]) -> tuple[Node, ...]:
        """Return what runs beside others: where those conditions hold that no bound within does.

        `begun` are the works whose sums are.
        """
        found = self.node(around, node, begun)
        works = list_works((node,))
        known = {loop.letter for loop in around.loops if loop.single}
        conditions = [one for one in self.stages[works[0]].where if known.issuperset(one.letters)]
        if len(works) > 1 or not conditions:
            return found
        return (Guard(tuple(conditions), found),)

    def node(self, around: Around, node: loop_tree.Node, begun: frozenset[int]) -> tuple[Node, ...]:
        """Return what runs at a place."""
        match node:
            case Do(work=work):
                return (Compute(work),)
            case Loop():
                return self._loop(around, node, begun)
            case Buffer(layout=layout) if layout != "registers":
                raise SpecError(f"a buffer of {layout} has no program")
            case Buffer(body=body) if holds_sums(self.stages[list_works(body)[0]], body):
                (work,) = list_works(body)
                held = replace(self, holding=True)._body(around, body, begun)
                return (Hold(work, held, work not in begun),)
            case Call(body=body) | Buffer(body=body):
                return self._body(around, body, begun)

    def _body(
        self, around: Around, body: tuple[loop_tree.Node, ...], begun: frozenset[int]
    ) -> tuple[Node, ...]:
        """Return what runs within a node."""
        write = self.node if len(body) == 1 else self.part
        return tuple(one for node in body for one in write(around, node, begun))

    def _loop(self, around: Around, loop: Loop, begun: frozenset[int]) -> tuple[Node, ...]:
        """Return a loop, behind what begins the sums that it is the first to go over."""
        works = list_works(loop.body)
        if walks_vectors(self.stages[works[0]], loop):
            return self._body(around, loop.body, begun)
        new = [at for at in works if at not in begun and self._sums(at, loop.letter)]
        inner = list(list_loops(loop.body))
        starts = [x for at in new for x in self._start(around, at, inner) if not self.holding]
        begun = begun.union(new)
        body = self._body(around.within(loop), loop.body, begun)
        return (*starts, around.bound(loop, self._conditions(works, begun), body))

    def _sums(self, work: int, letter: str) -> bool:
        stage = self.stages[work]
        return stage.reduction is not None and letter in stage.summed

    def _conditions(self, works: Sequence[int], begun: frozenset[int]) -> list[Condition]:
        """Return the conditions that hold in a loop for all its works."""
        first, *others = (
            self.stages[at].where
            if at in begun or self.stages[at].update is not None
            else self.stages[at].bounds
            for at in works
        )
        return [one for one in first if all(one in other for other in others)]

    def _start(self, around: Around, work: int, loops: Sequence[Loop]) -> tuple[Node, ...]:
        """Return what begins a sum: for all its elements that some loops reach."""
        stage = self.stages[work]
        left = [one for one in loops if one.single and one.letter in stage.output]
        left = [one for one in left if work in list_works(one.body)]
        if not left:
            return (Start(work),)
        first, *rest = left
        if rest or first.kind != "vector":
            first = replace(first, kind="serial")
        body = self._start(around.within(first), work, rest)
        return (around.bound(first, stage.bounds, body),)


@dataclass(frozen=True, slots=True)
class _GroupWriter:
    """Writes the nodes of a tree that belong to a group of stages."""

    extents: Mapping[str, int]
    writer: _Writer
    group: Group
    pieces: Sequence[Sequence[_Piece]]

    @property
    def waiting(self) -> tuple[Tile, ...]:
        """The loops that begin before the tiles around them."""
        return tuple(tile for tile in self.group.tiles.values() if tile.sliding)

    def node(self, node: loop_tree.Node, waiting: tuple[Tile, ...]) -> tuple[Node, ...]:
        """Return what runs at a place; `waiting` are loops whose first trips not all parts need."""
        works = list_works((node,))
        placed = [self.group.placed[work] for work in works]
        if isinstance(node, Buffer) and node.layout == "ring":
            return (self._buffer(node, waiting),)
        if isinstance(node, Buffer) and node.layout == "array":
            return self._body(node.body, waiting)
        if len(works) == 1:
            return self._stage(node, placed[0])
        if not isinstance(node, Loop):
            assert not isinstance(node, Do)
            return self._body(node.body, waiting)
        tile = self.group.tiles[id(node)]
        low = placed[0].begin_of(tile) - tile.warm_up
        high = placed[0].ends_of(tile)
        body = self._body(node.body, waiting)
        return (program.Loop(tile.name, (low,), high, body, tile.step, node.kind),)

    def _body(self, body: Sequence[loop_tree.Node], waiting: tuple[Tile, ...]) -> tuple[Node, ...]:
        """Return parts one after another, each where it is needed."""
        found: list[Node] = []
        for node in body:
            placed = [self.group.placed[work] for work in list_works((node,))]
            root = all(one.stage == self.group.regions.root for one in placed)
            late = [one for one in waiting if all(one in each.waits for each in placed)]
            part = self.node(node, tuple(one for one in waiting if one not in late))
            if late and not root:  # bounds of the root itself leave out what lies before
                begun = (Condition(one.begin - placed[0].begin_of(one)) for one in late)
                part = (Guard(tuple(begun), part),)
            found += part
        return tuple(found)

    def _buffer(self, buffer: Buffer, waiting: tuple[Tile, ...]) -> program.Buffer:
        name = buffer.holds.array
        placed = next(one for one in self.group.placed.values() if one.stage == name)
        origin, shape = placed.room()
        letters = list(self.group.regions.spans[name])
        ring = letters.index(placed.ring[0]) if placed.ring else None
        return program.Buffer(name, origin, shape, self._body(buffer.body, waiting), ring)

    def _stage(self, node: loop_tree.Node, placed: Placed) -> tuple[Node, ...]:
        """Return the loops of a stage alone, over its own letters."""
        pieces, regions = self.pieces[placed.work], self.group.regions
        stage = self.writer.stages[pieces[0].number]
        names = {x: regions.letter_of(placed.stage, x) for x in regions.extents}
        own = _with_letters(node, {x: one for x, one in names.items() if one})
        walked = {loop.letter for loop in list_loops((own,))}
        for letter in reversed([x for x in stage.output if x not in walked]):
            own = Loop(letter, 1, (own,))
        bounds = {letter: placed.bounds(letter) for letter in stage.output}
        around = Around(self.extents, (), bounds)
        parts = (self.writer.part(around, piece.node(own), frozenset()) for piece in pieces)
        return tuple(node for part in parts for node in part)


def _with_letters(node: loop_tree.Node, names: Mapping[str, str]) -> loop_tree.Node:
    """Return a node whose loops walk the letters of a stage in place of the root's."""
    if isinstance(node, Do):
        return node
    body = tuple(_with_letters(one, names) for one in node.body)
    if isinstance(node, Loop):
        return replace(node, letter=names.get(node.letter, node.letter), body=body)
    return replace(node, body=body)
