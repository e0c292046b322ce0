"""Solutions: how each statement of a nest is run, by whom, and what that is predicted to cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from tilesolve.constants.nests import NEST_STEP_SHOWN
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.contraction import Contraction, find_contraction
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.kernels.programs.program import Program
from tilesolve.model.loop_tree import LoopTree
from tilesolve.model.price import Price
from tilesolve.model.score import begin_seconds, score_price, score_times
from tilesolve.nests.band_steps import BandBuffer, BandStep
from tilesolve.nests.block_tasks import Place, order_tasks, share_loads
from tilesolve.nests.classify import NestClass, tile_class
from tilesolve.nests.group_price import price_group
from tilesolve.nests.group_trees import Grouping, group_tree
from tilesolve.nests.groups import Group, Placed, holds_rings
from tilesolve.nests.moves import read_move, transpose_of
from tilesolve.nests.programs import write_program
from tilesolve.nests.request import NestRequest, Route
from tilesolve.nests.windows import is_in_step
from tilesolve.plans.plan import Plan, plan
from tilesolve.transposes.price import price_transpose
from tilesolve.transposes.solution import TransposeSolution


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
        What its loops are predicted to cost.
    """

    cost: Price

    @property
    def seconds(self) -> float:
        """The predicted time: the score."""
        return self.score

    @property
    def score(self) -> float:
        """What it is compared by with other ways to compute the same."""
        return self.request.score(self.cost)


@dataclass(frozen=True, slots=True)
class _Looped(_Priced):
    """What those have that generated loops compute.

    Parameters
    ----------
    loops
        What is priced, printed and run.
    """

    loops: LoopTree
    route: ClassVar[Route] = "nest"

    @property
    def score(self) -> float:
        """What it is compared by with other ways to compute the same."""
        return self.score_after()

    def score_after(self, between: Sequence[float] = ()) -> float:
        """Return the same, given how many bytes were touched since each tensor was."""
        shown = NEST_STEP_SHOWN if is_in_step(self.statement, self.loops) else 1.0
        return self.request.score(self.cost, between, shown)

    @property
    def program(self) -> Program:
        """The loops with their bounds, for what interprets, compiles and prints them."""
        return write_program(self.computation, self.loops)

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
class LoopSolution(_Looped):
    """A statement that generated loops compute.

    Parameters
    ----------
    tiles
        The tile of each letter; empty where there are none.
    capped_by
        The array and the cache that keep tiles from being larger, as no more rows of it stay;
        empty where other limits do.
    """

    tiles: Mapping[str, int] = field(default_factory=dict)
    capped_by: str = ""

    @property
    def kind(self) -> NestClass:
        """What tiles are made for."""
        return tile_class(self.statement)


@dataclass(frozen=True, slots=True)
class FusedSolution(_Looped):
    """Several stages that generated loops compute together, each where the last one needs it."""

    kind: ClassVar[NestClass] = NestClass.FUSED

    def score_after(self, between: Sequence[float] = ()) -> float:
        """Return the same, given how many bytes were touched since each tensor was.

        A stage loads from the first cache as it computes. Stages take turns: what one computes
        hides nothing of what another one waits for.
        """
        overlap = self.request.machine.costs.level_overlap
        cost = self.request.charge(self.cost, between)
        near, *far = cost.levels
        core = float(score_times([cost.compute, near.seconds], overlap))
        cost = replace(cost, compute=core, levels=(replace(near, seconds=0.0), *far))
        return sum(score_price(one, overlap) for one in cost.take_turns())

    @classmethod
    def of(cls, request: NestRequest, grouping: Grouping, why: str, *, streamed: bool) -> Self:
        """Return the solution of stages that run together in some way, with its price."""
        loops = group_tree(request, grouping, streamed=streamed)
        return cls(request, why, price_group(request, loops), loops)

    @property
    def statement(self) -> Stage:
        """The last stage: the root."""
        return self.computation.stages[-1]

    @property
    def placed(self) -> Mapping[str, Placed]:
        """Where each stage of the group is computed and kept, by its name."""
        groups = [Group.of(self.computation, x) for x in self.loops.body if holds_rings(x)]
        return {one.stage: one for group in groups for one in group.placed.values()}


@dataclass(frozen=True, slots=True)
class ContractionSolution(_Statement):
    """A statement that plans compute.

    Parameters
    ----------
    plans
        One for each product; all but the first add to what it gives.
    """

    plans: tuple[Plan, ...]
    route: ClassVar[Route] = "contraction"
    kind: ClassVar[NestClass] = NestClass.CONTRACTION

    @classmethod
    def of(cls, request: NestRequest, why: str) -> Self:
        """Return the solution of a contraction, with a plan for each product."""
        contraction = read_contraction(request)
        last = len(contraction.products) - 1
        plans = tuple(
            plan(
                product.problem(request.computation, request.computation.output.dtype),
                machine=request.machine,
                threads=request.threads,
                accumulate=number > 0 or contraction.beta is not None,
                epilogue=contraction.epilogue if number == last else None,
            )
            for number, product in enumerate(contraction.products)
        )
        return cls(request, why, plans)

    @property
    def contraction(self) -> Contraction:
        """What they compute."""
        return read_contraction(self.request)

    @property
    def seconds(self) -> float:
        """The predicted time, which waiting is a part of if arrays lie in memory."""
        if self.request.start == "cold":
            return sum(one.seconds for one in self.plans)
        return self.score

    @property
    def score(self) -> float:
        """What it is compared by; waiting is left out, which prices of loops have none of."""
        costs, prices = self.request.machine.costs, [one.price for one in self.plans]
        return sum(begin_seconds(one, costs) + self.request.score(one) for one in prices)


BlockPart = LoopSolution | ContractionSolution
"""What computes a block of a region, or a part of that."""


@dataclass(frozen=True, slots=True)
class MoveSolution(_Priced):
    """A statement that moves an array as it is, by a transpose."""

    route: ClassVar[Route] = "transpose"
    kind: ClassVar[NestClass] = NestClass.MOVE

    @classmethod
    def of(cls, request: NestRequest) -> Self:
        """Return the solution of a move, by the price of its walk."""
        cost = price_transpose(transpose_of(request), request.machine)
        return cls(request, f"it moves {request.statement.reads[0].array} as it is", cost)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the input in the output's order."""
        return read_move(self.request)

    @property
    def transpose(self) -> TransposeSolution:
        """What runs, for arrays in C order that begin with a line."""
        return transpose_of(self.request)


@dataclass(frozen=True, slots=True)
class BlockSolution(_Statement):
    """A contraction in a region as blocks, each a computation of its own on parts of the arrays.

    Parameters
    ----------
    kinds
        What computes a block, for each different one.
    places
        The kind of each block, and the first value of each letter there, in order.
    begun
        How many of the first ones begin elements to which all others add.
    apart
        Whether each of the others is a task of one thread; else threads share each block.
    """

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
    def arrays(self) -> Mapping[str, Read]:
        """The element of the statement that each array of blocks stands for."""
        return name_reads(self.request)

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


def read_contraction(request: NestRequest) -> Contraction:
    """Return the contraction that a statement is.

    Raises
    ------
    PlanError
        If it is none.
    """
    found, reason = find_contraction(request.statement, request.computation.dtypes)
    if found is None:
        raise PlanError(f"{request.statement} is no contraction: {reason}")
    return found


def name_reads(request: NestRequest) -> dict[str, Read]:
    """Return the elements that a statement reads but its own, by names for arrays of blocks.

    Each element has an array of its own there; the output's name stays.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> from tilesolve.machine.model import Machine
    >>> found = bind_stages(parse_stages("C[i,j] += A[i,k] * A[j,k]"), 8)
    >>> {x: str(one) for x, one in name_reads(NestRequest(found, Machine.load("i7-6700k"))).items()}
    {'A': 'A[i,k]', 'A_': 'A[j,k]'}
    """
    stage, taken = request.statement, request.computation.dtypes
    found: dict[str, Read] = {}
    for read in stage.reads:
        if read == stage.target:
            continue
        name = read.array
        while name in found or (name != read.array and name in taken):
            name += "_"
        found[name] = read
    return found


@dataclass(frozen=True, slots=True)
class BandSolution(_Statement):
    """Stages that run a band of rows at a time, contractions among them by microkernels.

    Parameters
    ----------
    letter, rows
        The letter of the last stage along which bands follow one another, and their height.
    buffers
        Of stages whose arrays nothing else needs.
    kinds
        What computes a step, for each different one.
    strips
        The steps of each thread, in order.
    """

    letter: str
    rows: int
    buffers: tuple[BandBuffer, ...]
    kinds: tuple[tuple[NestSolution, ...], ...]
    strips: tuple[tuple[BandStep, ...], ...]
    route: ClassVar[Route] = "contraction"
    kind: ClassVar[NestClass] = NestClass.FUSED

    @property
    def statement(self) -> Stage:
        """The last stage."""
        return self.computation.stages[-1]

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return self._measure(lambda one: one.seconds)

    @property
    def score(self) -> float:
        """What it is compared by with other ways to compute the same."""
        return self._measure(lambda one: one.score)

    def room_bytes(self, buffer: BandBuffer) -> int:
        """Return the bytes of a buffer."""
        info = self.computation.array(buffer.array)
        return info.bytes // info.shape[buffer.axis] * buffer.rows

    def _measure(self, of: Callable[[NestSolution], float]) -> float:
        """Return what the longest strip takes, by what each solution does."""
        loads = [sum(map(of, kind)) for kind in self.kinds]
        return max(sum(loads[step.kind] for step in strip) for strip in self.strips)


NestSolution = (
    LoopSolution | ContractionSolution | MoveSolution | BlockSolution | FusedSolution | BandSolution
)
"""How one statement is run, or several together."""
