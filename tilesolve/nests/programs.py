"""Programs of loop trees: bounds, starts of sums, holds and guards follow from the statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Condition
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
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
from tilesolve.model.loop_tree import Buffer, Call, Do, Loop, LoopTree, list_loops, list_works
from tilesolve.nests.loops import Around


def write_program(computation: Computation, tree: LoopTree) -> Program:
    """Return the loop program of a computation, whose stages are the works of a tree.

    A sum begins where the first loop over one of its letters stands: there all elements of the
    output that the loops within reach are set, unless registers hold them until they are done.
    All threads wait for one another between parts that stand one after another.

    Raises
    ------
    SpecError
        If the tree has copies or rings, or stands for many nests.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("C[i] += A[i,k]"), 8)
    >>> tree = LoopTree((), (Loop("i", 1, (Loop("k", 1, (Do(),)),)),))
    >>> [type(node).__name__ for node in write_program(found, tree).nodes]
    ['Loop', 'Start', 'Loop', 'Compute']
    """
    stages = computation.stages
    starts = [(Start(at),) for at, stage in enumerate(stages) if stage.update is not None]
    around, writer = Around(computation.sizes), _Writer(stages)
    parts = [*starts, *(writer.part(around, node, frozenset()) for node in tree.body)]
    waits = (Barrier(),) if any(loop.kind == "threads" for loop in tree.loops) else ()
    body: list[Node] = []
    for part in parts:
        body += (*waits, *part) if body else part
    past = frozenset([computation.output.name] if tree.output == "stream" else [])
    return Program(computation, tuple(body), past)


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
