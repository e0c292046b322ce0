"""Loop trees: how works run, as one value that is priced, printed and walked.

Four kinds of node are enough: loops, buffers, calls, and the points of works. Steps of loops are
numbers, or arrays of them: many nests that differ in the sizes of their tiles alone. Or they are
symbols: then prices are the terms of a program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import Roles
from tilesolve.kernels.programs.nodes import Kind, list_nodes
from tilesolve.model.access import Access, Box, Size, access_of, accesses_of
from tilesolve.model.copies import panel_tensor, repeats_elements
from tilesolve.model.nest import CopyKind, Nest, Output
from tilesolve.packing.cover import CellSequence

Layout = Literal["registers", "panels", "windows", "prepared", "ring", "array"]
"""What a buffer is: registers; micro-panels; a copy of windows, which has each element of the tile
once; micro-panels that were made before all calls; a ring, whose places come again while the body
runs: what one work writes for a later one; or the array itself that a work writes, read there."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is computed at each point.

    Parameters
    ----------
    accesses
        What a point touches, its output first.
    extents
        Of all its letters.
    summed
        Bytes of an element of the output while it is summed.
    share
        Of the trips of its loops, those that compute: less than all on a grid coarser than these.
    """

    accesses: tuple[Access, ...]
    extents: tuple[tuple[str, int], ...]
    summed: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Do:
    """One point of a work."""

    work: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """Walks a letter in steps within the part of it that the loops around leave.

    Parameters
    ----------
    letter, step, body
        What each trip covers so many iterations of, and what it does.
    kind
        How trips run.
    fills
        The level whose tile all trips fill together; empty for none.
    """

    letter: str
    step: Size
    body: tuple[Node, ...]
    kind: Kind = "serial"
    fills: str = ""

    @property
    def single(self) -> bool:
        """Whether each trip is one iteration."""
        return isinstance(self.step, int) and self.step == 1

    @property
    def name(self) -> str:
        """Of the loop: its letter, and how far trips are apart if that is further than one.

        Examples
        --------
        >>> Loop("j", 64, ()).name, Loop("j", 1, ()).name
        ('j_64', 'j')
        """
        return self.letter if self.single else f"{self.letter}_{self.step}"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A thread's own array while the body runs, filled anew when a loop around moves its source.

    Parameters
    ----------
    access
        Number of the work's access that it stands for; of a ring, of the work that writes it.
    holds
        What it holds: the same elements, as they lie in it; of a ring, all its places.
    layout
        What kind of buffer it is.
    level
        Where it is meant to stay.
    body
        What uses it.
    """

    access: int
    holds: Access
    layout: Layout
    level: str
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of compiled code: what it touches, it touches at once."""

    body: tuple[Node, ...]


Node: TypeAlias = Do | Loop | Buffer | Call


@dataclass(frozen=True, slots=True)
class LoopTree:
    """How works run.

    Parameters
    ----------
    works
        What is computed.
    body
        The outermost nodes.
    output
        How the output is written: added to what is there, overwritten, or past the caches.
    threads
        Those that divide loops of their kind.
    cells
        Of letters whose register tiles have chosen sizes.
    aligned
        Whether arrays begin with a line; if not, anywhere.
    """

    works: tuple[Work, ...]
    body: tuple[Node, ...]
    output: Output = "accumulate"
    threads: int = 1
    cells: Mapping[str, CellSequence] = field(default_factory=dict, hash=False)
    aligned: bool = True

    @property
    def loops(self) -> tuple[Loop, ...]:
        """All its loops, each before those within it."""
        return tuple(list_loops(self.body))

    def letter_of(self, kind: Kind) -> str | None:
        """Return the letter of the first loop of a kind; None for none."""
        return next((loop.letter for loop in self.loops if loop.kind == kind), None)

    def __str__(self) -> str:
        return "\n".join(_lines(self.works, self.body, 0))


def list_loops(nodes: Sequence[Node]) -> Iterator[Loop]:
    """Yield all loops of some nodes, each before those within it."""
    return (node for node in list_nodes(nodes) if isinstance(node, Loop))


def list_works(nodes: Sequence[Node]) -> list[int]:
    """Return the works of some nodes, in order."""
    return [node.work for node in list_nodes(nodes) if isinstance(node, Do)]


def nest_loops(loops: Sequence[Loop], body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return loops within one another, outermost first, around a body instead of their own."""
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body


def tree_of_bands(
    problem: Problem,
    bands: Sequence[tuple[str, Sequence[str]]],
    boxes: Sequence[Box],
    packed: Sequence[str | None],
    output: Output,
    kinds: Sequence[CopyKind] = (),
    cells: Mapping[str, CellSequence] | None = None,
) -> LoopTree:
    """Return the loops of bands around a register tile: one nest, or many of the same order.

    A call goes over the sides of its tile in each step of its sums, whatever the order, and each
    batch is a call of its own.

    Parameters
    ----------
    problem
        The contraction or convolution.
    bands
        Level and loop order (innermost first) of each band, innermost band first.
    boxes
        For each band the tile of each letter; the last is the whole problem.
    packed
        For each operand the level that its copy lives in; None: calls make none.
    output
        How C is written.
    kinds
        For each operand the kind of its copy; if empty, all copies are micro-panels.
    cells
        Of letters whose register tiles have chosen sizes.
    """
    work = work_of(problem)
    copies = copies_of(problem, tuple(packed), tuple(kinds))
    rank, lane = _ranks(problem), problem.lane
    steps: Box = dict.fromkeys(problem.sizes, 1)
    body: tuple[Node, ...] = (Do(),)
    for at, ((level, order), box) in enumerate(zip(bands, boxes, strict=True)):
        for letter in order if at else sorted(order, key=rank.__getitem__):
            kind: Kind = "serial"
            if not at and not rank[letter]:
                kind = "vector" if letter == lane else "unrolled"
            body = (Loop(letter, steps[letter], body, kind, level),)
        steps = box
        if not at:
            body = (Call((Buffer(0, work.accesses[0], "registers", level, body),)),)
        for number, holds, layout, where in copies:
            if where == level:
                body = (Buffer(number, holds, layout, level, body),)
    for number, holds, layout, where in copies:
        if where is None:
            body = (Buffer(number, holds, layout, bands[-1][0], body),)
    return LoopTree((work,), body, output, cells=cells or {})


def tree_of(problem: Problem, nest: Nest) -> LoopTree:
    """Return the loops of a nest of bands.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> print(tree_of(problem, Nest.of(problem, [("register", "kmn", 8), ("memory", "kmn", 64)])))
    for n step 8
      for m step 8
        for k step 8
          call:
            C~[m,n] = registers of C:
              for k step 1
                for n step 1 [vector]
                  for m step 1 [unrolled]
                    C[m,n] <- A[m,k], B[k,n]
    """
    return tree_of_bands(
        problem,
        [(band.level, band.order) for band in nest.bands],
        [dict(band.box) for band in nest.bands],
        nest.packed or (None,) * len(problem.spec.operands),
        nest.output,
        nest.kinds,
        nest.sequences,
    )


@lru_cache(maxsize=512)
def work_of(problem: Problem) -> Work:
    """Return what a contraction or convolution computes at each point."""
    return Work(accesses_of(problem), problem.extents, problem.sum_itemsize)


@lru_cache(maxsize=512)
def copies_of(
    problem: Problem, packed: tuple[str | None, ...], kinds: tuple[CopyKind, ...]
) -> tuple[tuple[int, Access, Layout, str | None], ...]:
    """Return the number, the copy, its layout and its level of each operand that is copied.

    A micro-panel has each sum of each row, in the sums' precision. So it repeats what windows
    share, and what does not depend on a sum. A copy of windows has each element once.
    """
    found: list[tuple[int, Access, Layout, str | None]] = []
    chosen: Sequence[CopyKind] = kinds or ["micro-panels" if one else "in place" for one in packed]
    for number, (level, kind) in enumerate(zip(packed, chosen, strict=True), start=1):
        if kind == "in place":
            continue
        spec = problem.spec
        tensor, wide = spec.tensors[number], problem.itemsize
        if kind != "windows":
            wide = problem.sum_itemsize
            if repeats_elements(spec, number):
                tensor = panel_tensor(spec, number)
        layouts: dict[CopyKind, Layout] = {
            "micro-panels": "panels",
            "windows": "windows",
            "prepared": "prepared",
        }
        holds = accesses_of(problem)[number]
        if tensor is not spec.tensors[number] or wide != problem.itemsize:
            holds = access_of(problem, spec.names[number], tensor, wide)
        found.append((number, holds, layouts[kind], level))
    return tuple(found)


@lru_cache(maxsize=512)
def _ranks(problem: Problem) -> dict[str, int]:
    """Return for each letter its place in a call: sides, sums, batches."""
    roles = Roles.of_problem(problem)
    return {i: 2 if i in roles.batches else int(i in roles.sums) for i in problem.sizes}


def _lines(works: Sequence[Work], nodes: Sequence[Node], depth: int) -> Iterator[str]:
    """Yield a line for each node, those within it further to the right."""
    pad = "  " * depth
    for node in nodes:
        if isinstance(node, Do):
            accesses = works[node.work].accesses
            output, *reads = (f"{one.array}[{_axes(one)}]" for one in accesses)
            yield f"{pad}{output} <- {', '.join(reads)}"
            continue
        if isinstance(node, Loop):
            how = "" if node.kind == "serial" else f" [{node.kind}]"
            yield f"{pad}for {node.letter} step {node.step}{how}"
        elif isinstance(node, Call):
            yield f"{pad}call:"
        else:
            what = node.holds.array
            where = "" if node.layout == "registers" else f" in {node.level}"
            yield f"{pad}{what}~[{_axes(node.holds)}] = {node.layout} of {what}{where}:"
        yield from _lines(works, node.body, depth + 1)


def _axes(access: Access) -> str:
    """Return the subscripts of an access as a text."""
    return ",".join(
        "+".join(f"{factor if factor > 1 else ''}{letter}" for factor, letter in axis.terms)
        for axis in access.axes
    )


def renumber(node: Node, work: int) -> Node:
    """Return a node that does another work."""
    if isinstance(node, Do):
        return Do(work)
    return replace(node, body=tuple(renumber(one, work) for one in node.body))
