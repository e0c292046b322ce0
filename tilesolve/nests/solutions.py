"""Solutions: how each statement of a nest is run, by whom, and what that is predicted to cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.contraction import Contraction
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.kernels.programs.program import Program
from tilesolve.model.loop_tree import LoopTree
from tilesolve.model.price import Price
from tilesolve.model.score import score_price
from tilesolve.nests.block_tasks import Place, order_tasks, share_loads
from tilesolve.nests.classify import NestClass, tile_class
from tilesolve.nests.programs import write_program
from tilesolve.nests.request import NestRequest, Route
from tilesolve.plans.plan import Plan, plan


@dataclass(frozen=True, slots=True)
class _Statement:
    """What all solutions of a statement have.

    Parameters
    ----------
    request
        The statement by itself, and who computes it.
    why
        The reason for what runs it.
    """

    request: NestRequest
    why: str

    @property
    def computation(self) -> Computation:
        """The statement by itself, with the extents of its letters and its arrays."""
        return self.request.computation

    @property
    def statement(self) -> Stage:
        """The statement."""
        return self.request.statement


@dataclass(frozen=True, slots=True)
class _Priced(_Statement):
    """What those have whose loops are priced.

    Parameters
    ----------
    cost
        What loops that move as much are predicted to cost.
    """

    cost: Price

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return self.cost.seconds

    @property
    def score(self) -> float:
        """What it is compared by with other ways to compute the same."""
        return self.request.score(self.cost)


@dataclass(frozen=True, slots=True)
class LoopSolution(_Priced):
    """A statement that generated loops compute.

    Parameters
    ----------
    loops
        What is priced, printed and run.
    tiles
        The tile of each letter; empty where there are none.
    capped_by
        The array and the cache that keep tiles from being larger, as no more rows of it stay;
        empty where other limits do.
    """

    loops: LoopTree
    tiles: Mapping[str, int] = field(default_factory=dict)
    capped_by: str = ""
    route: ClassVar[Route] = "nest"

    @property
    def program(self) -> Program:
        """The loops with their bounds, for what interprets, compiles and prints them."""
        return write_program(self.computation, self.loops)

    @property
    def kind(self) -> NestClass:
        """What tiles are made for."""
        return tile_class(self.statement)

    @property
    def threads_letter(self) -> str | None:
        """The letter that threads divide; None where one thread runs."""
        return self.loops.letter_of("threads")

    @property
    def vector_letter(self) -> str | None:
        """The letter along which vectors lie; None for none."""
        return self.loops.letter_of("vector")

    @property
    def non_temporal(self) -> frozenset[str]:
        """The arrays that are written past the caches."""
        return frozenset([self.statement.name] if self.loops.output == "stream" else [])


@dataclass(frozen=True, slots=True)
class ContractionSolution(_Statement):
    """A statement that plans compute.

    Parameters
    ----------
    contraction
        What they compute.
    plans
        One for each product; all but the first add to what it gives.
    """

    contraction: Contraction
    plans: tuple[Plan, ...]
    route: ClassVar[Route] = "contraction"
    kind: ClassVar[NestClass] = NestClass.CONTRACTION

    @classmethod
    def of(cls, request: NestRequest, why: str, contraction: Contraction) -> Self:
        """Return the solution of a contraction, with a plan for each product."""
        plans = tuple(
            plan(
                product.problem(request.computation),
                machine=request.machine,
                threads=request.threads,
                accumulate=number > 0 or contraction.beta is not None,
            )
            for number, product in enumerate(contraction.products)
        )
        return cls(request, why, contraction, plans)

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return sum(one.seconds for one in self.plans)

    @property
    def score(self) -> float:
        """What it is compared by; waiting is left out, which prices of loops have none of."""
        overlap = self.request.machine.costs.level_overlap
        return sum(score_price(one.price, overlap) for one in self.plans)


BlockPart = LoopSolution | ContractionSolution
"""What computes a block of a region, or a part of that."""


@dataclass(frozen=True, slots=True)
class MoveSolution(_Priced):
    """A statement that moves an array as it is, by a transpose.

    Parameters
    ----------
    axes
        The axes of the input in the output's order.
    """

    axes: tuple[int, ...]
    route: ClassVar[Route] = "transpose"
    kind: ClassVar[NestClass] = NestClass.MOVE


@dataclass(frozen=True, slots=True)
class BlockSolution(_Statement):
    """A contraction in a region as blocks, each a computation of its own on parts of the arrays.

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
    kinds: tuple[tuple[BlockPart, ...], ...]
    places: tuple[Place, ...]
    begun: int = 0
    apart: bool = True
    route: ClassVar[Route] = "contraction"
    kind: ClassVar[NestClass] = NestClass.CONTRACTION

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return self._measure(lambda one: one.seconds)

    @property
    def score(self) -> float:
        """What it is compared by with other ways to compute the same."""
        return self._measure(lambda one: one.score)

    @property
    def tasks(self) -> list[list[Place]]:
        """Blocks that add to the same elements together, the longest first."""
        return [group for _, group in self._weigh(lambda one: one.seconds)]

    def _measure(self, of: Callable[[BlockPart], float]) -> float:
        """Return what all blocks take together, by what each does."""
        begun = sum(sum(map(of, self.kinds[kind])) for kind, _ in self.places[: self.begun])
        loads = [load for load, _ in self._weigh(of)]
        return begun + (share_loads(loads, self.request.threads) if self.apart else sum(loads))

    def _weigh(self, of: Callable[[BlockPart], float]) -> list[tuple[float, list[Place]]]:
        loads = [sum(map(of, kind)) for kind in self.kinds]
        return order_tasks(self.places[self.begun :], self.statement.output, loads)


NestSolution = LoopSolution | ContractionSolution | MoveSolution | BlockSolution
"""How one statement is run."""
