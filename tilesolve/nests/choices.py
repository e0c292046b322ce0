"""Choices: how each statement of a computation is run, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.contraction import Contraction
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.kernels.programs.program import Program
from tilesolve.model.price import Price
from tilesolve.nests.classify import NestClass
from tilesolve.nests.programs import LoopNest
from tilesolve.system.units import format_count

Route = Literal["nest", "contraction", "transpose"]
"""What runs a statement: generated loops, a plan, or a transpose."""

NestMode = Literal["default", "thesis", "untiled", "plain"]
"""How loops are decided: by the machine, as the thesis does, or without tiles."""


@dataclass(frozen=True, slots=True)
class NestChoice:
    """How one statement is run.

    Parameters
    ----------
    stage
        The position of the statement; where its sums became statements, they have it, too.
    computation
        The statement by itself, with the extents of its letters and its arrays.
    kind
        Its class.
    route, why
        What runs it, and the reason.
    tiles
        The tile of each letter; empty where there are none.
    loops
        The loops, outermost first.
    capped_by
        The array and the cache that keep tiles from being larger, as no more rows of it stay;
        empty where other limits do.
    cost
        What it is predicted to cost; None where a plan or a transpose runs it.
    program
        Its loops; None where a plan or a transpose runs it.
    contraction
        What plans compute; None on other routes.
    blocks
        What computes the contraction's region; None where it has none.
    axes
        The axes of the input in the output's order, where a transpose runs it.
    """

    stage: int
    computation: Computation
    kind: NestClass
    route: Route
    why: str
    tiles: Mapping[str, int] = field(default_factory=dict)
    loops: LoopNest = field(default_factory=lambda: LoopNest(()))
    capped_by: str = ""
    cost: Price | None = None
    program: Program | None = None
    contraction: Contraction | None = None
    blocks: Blocks | None = None
    axes: tuple[int, ...] = ()

    @property
    def statement(self) -> Stage:
        """The statement."""
        return self.computation.stages[0]

    @property
    def seconds(self) -> float | None:
        """The predicted time; None where a plan or a transpose runs it."""
        return None if self.cost is None else self.cost.seconds

    @property
    def threads_letter(self) -> str | None:
        """The letter that threads divide; None where one thread runs."""
        return self._letter("threads")

    @property
    def vector_letter(self) -> str | None:
        """The letter along which vectors lie; None for none."""
        return self._letter("vector")

    @property
    def non_temporal(self) -> frozenset[str]:
        """The arrays that are written past the caches."""
        return self.program.non_temporal if self.program else frozenset()

    def lines(self) -> list[str]:
        """Return what a report says of it.

        Examples
        --------
        >>> from tilesolve.contractions.statements.computation import bind_stages
        >>> from tilesolve.contractions.statements.parse import parse_stages
        >>> from tilesolve.machine.model import Machine
        >>> from tilesolve.nests.planning import plan_nest
        >>> found = bind_stages(parse_stages("m[y,x] = A[x,y] & B[y,x]"), 512, "int32")
        >>> print(plan_nest(found, Machine.load("i7-6700k"), 2)[0].lines()[1])
          tile x:256 y:256, loops y_256 x_256 y_8 y | x, threads over y, vectors along x
        """
        found = [f"{self.statement}: {self.kind.value}, by a {self.route}: {self.why}"]
        if self.blocks is not None:
            return [*found, *self.blocks.lines()]
        if self.route != "nest":
            return found
        sizes = " ".join(f"{x}:{tile}" for x, tile in self.tiles.items())
        names = [item.name for item in self.loops.items]
        inner = max(self.loops.held, 1)
        parts = [f"tile {sizes}" if sizes else "no tiles"]
        parts.append("loops " + " ".join([*names[:-inner], "|", *names[-inner:]]))
        parts += [f"threads over {self.threads_letter}"] if self.threads_letter else []
        parts += [f"vectors along {self.vector_letter}"] if self.vector_letter else []
        parts += [f"{name} goes past the caches" for name in sorted(self.non_temporal)]
        parts += [f"held back by {self.capped_by}"] if self.capped_by else []
        return [*found, "  " + ", ".join(parts)]

    def _letter(self, kind: str) -> str | None:
        return next((item.letter for item in self.loops.items if item.kind == kind), None)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A region as blocks, each a computation of its own on parts of the arrays.

    Parameters
    ----------
    arrays
        Pairs of a name in the blocks and the element of the statement that it stands for: each
        element has an array of its own, the output's name stays.
    kinds
        What computes a block, for each different one.
    places
        The kind of each block, and the first value of each letter there, in order.
    begun
        How many of the first ones begin elements to which all others add.
    apart
        Whether each of the others is a task of one thread; else threads share each block.
    """

    arrays: tuple[tuple[str, Read], ...]
    kinds: tuple[tuple[NestChoice, ...], ...]
    places: tuple[tuple[int, Mapping[str, int]], ...]
    begun: int = 0
    apart: bool = True

    def lines(self) -> list[str]:
        """Return what a report says of them: how many of each kind, and what computes them."""
        found = []
        for number, kind in enumerate(self.kinds):
            count = sum(at == number for at, _ in self.places)
            sizes = " ".join(f"{x}={n}" for x, n in kind[-1].computation.extents)
            parts = [f"{one.statement} by a {one.route}" for one in kind]
            found.append(f"  {format_count(count, 'block')} {sizes}: {'; '.join(parts)}")
        return found
