"""Loop trees of groups of stages: what is computed in which of the loops that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod

from tilesolve.constants.nests import GROUP_SHORT_EXTENT, NEST_HELD_VECTORS, NEST_WRITTEN_PARTS
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.model.access import Access, Axis
from tilesolve.model.loop_tree import (
    Buffer,
    Call,
    Do,
    Layout,
    Loop,
    LoopTree,
    Node,
    Work,
    list_works,
    nest_loops,
    renumber,
)
from tilesolve.model.nest import Output
from tilesolve.nests.arithmetic import points_of_vector
from tilesolve.nests.cuts import largest_part
from tilesolve.nests.groups import Group, holds_rings
from tilesolve.nests.loads import as_loaded
from tilesolve.nests.loops import step_of
from tilesolve.nests.references import find_references
from tilesolve.nests.regions import Regions, find_regions
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import over, plain_tree
from tilesolve.nests.spans import Span


@dataclass(frozen=True, slots=True)
class Level:
    """Where a stage is computed and kept: within how many of the loops that its group shares.

    Parameters
    ----------
    computed, kept
        Both 0: an array of its own, before the group. The same: whole, for each tile. Else it is
        kept in a ring while the loop within the first `kept` ones slides.
    """

    computed: int
    kept: int

    def __post_init__(self) -> None:
        if not 0 <= self.kept <= self.computed or (self.computed and not self.kept):
            raise PlanError(
                f"a stage is computed within the loops that it is kept in, not in {self.computed} "
                f"of {self.kept}"
            )


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the stages of a computation run together.

    Parameters
    ----------
    loops
        Over tiles of the last stage, the root: outermost first, without bodies.
    levels
        Of each other stage, by its name; one that is missing has an array of its own.
    rows
        How many rows of a stage are written out around each vector.
    places
        The level of the machine where buffers are meant to stay.
    """

    loops: tuple[Loop, ...]
    levels: Mapping[str, Level]
    rows: int = 1
    place: str = "L2"

    def level(self, stage: Stage) -> Level:
        """Return where a stage is computed and kept."""
        return self.levels.get(stage.name, Level(0, 0))


def group_tree(request: NestRequest, grouping: Grouping, *, streamed: bool = False) -> LoopTree:
    """Return the tree of a computation whose last stage is the root of a group.

    Parameters
    ----------
    request
        All stages, and who computes them.
    grouping
        How they run together.
    streamed
        Whether the root goes past the caches.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> text = "b[y,x] = I[y,x] + I[y,x+1]" + chr(10) + "o[u,v] = b[u,v] + b[u+1,v]"
    >>> stages = bind_stages(parse_stages(text), {"y": 9, "x": 8, "u": 8, "v": 8})
    >>> request = NestRequest(stages, Machine.load("i7-6700k"))
    >>> shared = (over("u", 4), over("u", 1))
    >>> print(group_tree(request, Grouping(shared, {"b": Level(2, 1)})))
    for u step 4
      b~[u,v] = ring of b in L2:
        for u step 1
          call:
            b~[u,v] = registers of b:
              for v step 1 [vector]
                b[u,v] <- I[u,v]
          call:
            o~[u,v] = registers of o:
              for v step 1 [vector]
                o[u,v] <- b[u,v]
    """
    computation, before = request.computation, list[Node]()
    for at, stage in enumerate(computation.stages[:-1]):
        if not grouping.level(stage).computed:
            alone = plain_tree(request.of(computation, stage))
            before += [renumber(node, at) for node in alone.body]
    maker = _Maker(request, grouping, find_regions(computation))
    output: Output = "stream" if streamed else "store"
    tree = LoopTree((), (*before, *maker.within(0)), output, request.threads, aligned=False)
    return with_works(request, tree)


def with_works(request: NestRequest, tree: LoopTree) -> LoopTree:
    """Return a tree with what its works touch, and the shapes of its rings: its loops tell both."""
    computation = request.computation
    groups = [Group.of(computation, node) for node in tree.body if holds_rings(node)]
    rooms: dict[str, tuple[int, ...]] = {}
    spans: dict[str, Mapping[str, Span]] = {}
    for group in groups:
        for one in group.placed.values():
            spans[one.stage] = group.regions.spans[one.stage]
            if one.kept is not None and one.stage not in computation.outputs:
                rooms[one.stage] = one.room()[1]
    rows = dict(_written_out(tree.body))
    works = tuple(
        _work(request, stage, (spans, rooms), rows[at])
        for at, stage in enumerate(computation.stages)
    )
    holds = {one.accesses[0].array: one.accesses[0] for one in works}
    body = tuple(_with_holds(node, works, holds) for node in tree.body)
    return replace(tree, works=works, body=body)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the nodes of a group."""

    request: NestRequest
    grouping: Grouping
    regions: Regions

    @property
    def outputs(self) -> tuple[str, ...]:
        """The stages whose arrays are needed elsewhere."""
        return self.request.computation.outputs

    def within(self, depth: int) -> tuple[Node, ...]:
        """Return what runs within so many of the shared loops."""
        *producers, root = enumerate(self.request.computation.stages)
        shared = self.grouping.loops
        parts = [
            self.nest(stage, at, depth)
            for at, stage in producers
            if self.grouping.level(stage).computed == depth > 0
        ]
        if depth < len(shared):
            parts.append(replace(shared[depth], body=self.within(depth + 1)))
        else:
            parts.append(self.nest(root[1], root[0], depth))
        found = tuple(parts)
        for _, stage in reversed(producers):
            if self.grouping.level(stage).kept == depth > 0:
                holds = Access(stage.name, (), (), 1, "write")
                layout: Layout = "array" if stage.name in self.outputs else "ring"
                found = (Buffer(0, holds, layout, self.grouping.place, found),)
        return found

    def nest(self, stage: Stage, work: int, depth: int) -> Node:
        """Return the loops of a stage alone, within so many of the shared ones."""
        loops = self.grouping.loops[:depth]
        letters = [self.letter(stage, one) for one in stage.output]
        *rows, column = letters or [""]
        inside = [over(column, 1, "vector")] if letters else []
        summed = [over(x) for x in stage.summed] if stage.reduction is not None else []
        around = [over(x) for x in rows if not any(x == y.letter and y.single for y in loops)]
        short = [] if summed else [x for x in rows if self.is_short(x)][-1:]
        written = self.grouping.rows if self.is_brief(stage, short) else 1
        inside = [*(over(x, 1, "unrolled") for x in short), *inside]
        around = [one for one in around if one.letter not in short]
        rows = [x for x in rows if x not in short]
        if summed:
            around.append(over(column, NEST_HELD_VECTORS * self.request.lanes))
        elif rows and written > 1:
            around = [one for one in around if one.letter != rows[-1]]
            if not any(one.letter == rows[-1] and one.step == written for one in loops):
                around.append(over(rows[-1], written))
            inside.insert(len(short), over(rows[-1], 1, "unrolled"))
        if len(inside) > 1 and not summed:  # rows are walked together, vector by vector
            around.append(over(column, self.lanes(stage)))
        body = nest_loops([*summed, *inside], (Do(work),))
        holds = Access(stage.name, (), (), 1, "write")
        call = Call((Buffer(0, holds, "registers", "register", body),))
        return nest_loops(around, (call,))[0]

    def is_brief(self, stage: Stage, short: Sequence[str]) -> bool:
        """Return whether the code of a stage stays short if rows are written out."""
        sizes = self.request.computation.sizes
        term = largest_part(self.request.computation, stage).term
        count = prod(sizes[x] for x in short) * self.grouping.rows
        return len(term.all) * count <= NEST_WRITTEN_PARTS

    def lanes(self, stage: Stage) -> int:
        """Return how many points of a stage a vector has."""
        computation = self.request.computation
        largest = largest_part(computation, stage)
        return points_of_vector(largest, computation.dtypes, self.request.machine)

    def is_short(self, letter: str) -> bool:
        """Return whether a letter, such as that of channels, is written out within each vector.

        What does not depend on it is computed once then.
        """
        walked = any(letter == one.letter for one in self.grouping.loops)
        return not walked and self.request.computation.sizes[letter] <= GROUP_SHORT_EXTENT

    def letter(self, stage: Stage, own: str) -> str:
        """Return the letter of the root that a letter of a stage follows; else that itself."""
        return self.regions.spans[stage.name][own].letter or own


def _written_out(
    nodes: Sequence[Node], around: tuple[Loop, ...] = ()
) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield for each work how many rows of each letter are written out around its vectors."""
    for node in nodes:
        if isinstance(node, Do):
            steps = {one.letter: step_of(one) for one in around if one.kind != "unrolled"}
            rows = [one.letter for one in around if one.kind == "unrolled"]
            yield node.work, {letter: max(steps.get(letter, 1), 1) for letter in rows}
        else:
            yield from _written_out(
                node.body, (*around, node) if isinstance(node, Loop) else around
            )


def _work(
    request: NestRequest,
    stage: Stage,
    places: tuple[Mapping[str, Mapping[str, Span]], Mapping[str, tuple[int, ...]]],
    rows: Mapping[str, int],
) -> Work:
    """Return what a stage computes at each point, in the letters of its group's root."""
    spans, rooms = places
    computation, own = request.computation, spans.get(stage.name, {})
    stage = largest_part(computation, stage)
    accesses = [
        align_access(one, own, rooms.get(one.array)) for one in find_references(computation, stage)
    ]
    followed = {one.letter: computation.sizes[one.letter] for one in own.values() if one.letter}
    letters = dict.fromkeys(x for one in accesses for x in one.letters)
    vector = [over(x, 1, "vector") for x in accesses[0].contiguous[-1:]]
    names = {span.letter: letter for letter, span in own.items() if span.letter}
    written = {names.get(letter, letter): count for letter, count in rows.items()}
    loaded = tuple(as_loaded(request, stage, one, vector, written) for one in accesses)
    extents = tuple((x, followed.get(x, computation.sizes[x])) for x in letters)
    share = prod(min(float(span.scale), 1.0) for span in own.values() if span.letter)
    return Work(loaded, extents, accesses[0].element, share)


def align_access(
    access: Access, spans: Mapping[str, Span], room: tuple[int, ...] | None = None
) -> Access:
    """Return an access in the letters that those of its stage follow, and as a buffer has it.

    Examples
    --------
    >>> y = Affine.letter("y")
    >>> half = Access("A", (Axis(((1, "h"),), 2),), (9,), 4)
    >>> align_access(half, {"h": Span(y // 2, (y + 3) // 2, 9)}).axes
    (Axis(terms=((1, 'y'),), spread=4, divisor=2, computed=False),)
    """
    axes = []
    for axis in access.axes:
        moving = {letter: spans[letter].low for _, letter in axis.terms if letter in spans}
        moving = {letter: one for letter, one in moving.items() if one.terms}
        common = lcm(*(one.divisor for one in moving.values()))
        terms: list[tuple[int, str]] = []
        for factor, letter in axis.terms:
            one = moving.get(letter, Affine.letter(letter))
            terms += [(factor * step * (common // one.divisor), x) for step, x in one.terms]
        wide = axis.spread * common, axis.divisor * common
        axes.append(Axis(tuple(terms), *wide, axis.computed))
    return replace(access, axes=tuple(axes), shape=access.shape if room is None else room)


def _with_holds(node: Node, works: Sequence[Work], holds: Mapping[str, Access]) -> Node:
    """Return a node whose buffers hold what works touch."""
    if isinstance(node, Do):
        return node
    body = tuple(_with_holds(one, works, holds) for one in node.body)
    if isinstance(node, Buffer) and node.layout in ("ring", "array"):
        return replace(node, body=body, holds=holds[node.holds.array])
    if isinstance(node, Buffer):
        work = works[list_works(body)[0]]
        return replace(node, body=body, holds=work.accesses[node.access])
    return replace(node, body=body)
