"""A contraction in a region as blocks: whole ones for plans, those at the border with conditions.

Blocks that conditions on letters of the output alone cut are computed as a whole, and the elements
within the region are taken over. Where a condition has a letter of the sum, loops compute them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilesolve.constants.nests import NEST_BLOCKS, NEST_PANELS, NEST_TASKS_PER_THREAD
from tilesolve.contractions.statements.affine import Affine, Box, Condition
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.contraction import Contraction
from tilesolve.contractions.statements.cover import (
    cover_region,
    open_conditions,
    shift_condition,
)
from tilesolve.contractions.statements.extents import Shape
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Number, Read, Term
from tilesolve.contractions.statements.values import replace_terms
from tilesolve.nests.block_tasks import Place
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import (
    BlockPart,
    BlockSolution,
    ContractionSolution,
    LoopSolution,
    name_reads,
    read_contraction,
)

PlanLoops = Callable[[NestRequest], tuple[LoopSolution, ...]]
"""Returns generated loops for a request of one statement."""


def make_blocks(
    request: NestRequest, contraction: Contraction, why: str, plan_loops: PlanLoops
) -> BlockSolution:
    """Return a contraction in a region as blocks.

    Where a condition has a letter of the sum, all elements of the output begin before, and all
    blocks add to them; else each block computes its elements from the start. Each block is a task
    of one thread if there are enough that add to different elements.

    Parameters
    ----------
    request
        Of the statement.
    contraction, why
        What it is, and what is said of it.
    plan_loops
        Plans what no plan of a contraction computes.
    """
    stage, threads = request.statement, request.threads
    cover = cover_region(stage.where, request.computation.box(stage), NEST_PANELS, NEST_BLOCKS)
    parts = (*cover.inside, *cover.border)
    tasks = len({tuple(part[letter] for letter in stage.output) for part in parts})
    apart = threads == 1 or tasks >= threads * NEST_TASKS_PER_THREAD
    maker = _Maker.of(request, contraction, apart, plan_loops)
    places: list[Place] = []
    if any(letter in stage.summed for one in stage.where for letter in one.letters):
        places.append((maker.start(), dict.fromkeys(stage.letters, 0)))
    begun = len(places)
    places += [(maker.block(part), {x: low for x, (low, _) in part.items()}) for part in parts]
    told = f"{why} in {len(places)} blocks"
    return BlockSolution(request, told, tuple(maker.kinds), tuple(places), begun, apart)


def make_box(request: NestRequest, why: str) -> BlockSolution:
    """Return a contraction in a region that is a box as the block that this is.

    Parameters
    ----------
    request
        Of the statement.
    why
        What is said of it.
    """
    stage, computation = request.statement, request.computation
    boxes = cover_region(stage.where, computation.box(stage), 1, 1).inside
    if not boxes:
        return BlockSolution(request, f"{why}, nowhere", (), (), apart=False)
    (box,) = boxes
    dtypes = {stage.name: computation.dtypes[stage.name]}
    own: dict[Term, Term] = {}
    for name, read in name_reads(request).items():
        dtypes[name] = computation.dtypes[read.array]
        own[read] = Read(name, tuple(_from_first(one) for one in read.subscripts))
    term = replace_terms(stage.term, own)
    alone = bind_stages(
        (Stage(stage.name, stage.axes, term, dtypes[stage.name]),),
        {letter: high - low + 1 for letter, (low, high) in box.items()},
        dtypes | {name: computation.dtypes[name] for name in stage.params},
    )
    inner = ContractionSolution.of(replace(request, computation=alone), why)
    place = 0, {letter: low for letter, (low, _) in box.items()}
    return BlockSolution(request, f"{why} in a box", ((inner,),), (place,), apart=False)


def _from_first(subscript: Affine | Term) -> Affine | Term:
    """Return a position from the first one on that letters begin at."""
    return replace(subscript, offset=0) if isinstance(subscript, Affine) else subscript


@dataclass(slots=True)
class _Maker:
    """Makes the kinds of blocks, each once.

    Parameters
    ----------
    request
        The contraction in its region.
    each
        The same as who computes a block is asked.
    plan_loops
        As of `make_blocks`.
    arrays
        For each name of an array in blocks the element that it stands for.
    dtypes
        Of these arrays and of parameters.
    added, beta
        What is added to the output, by these names, and what multiplies the output.
    """

    request: NestRequest
    each: NestRequest
    plan_loops: PlanLoops
    arrays: Mapping[str, Read]
    dtypes: Mapping[str, str]
    added: Term
    beta: Term | None
    kinds: list[tuple[BlockPart, ...]] = field(default_factory=list)
    known: dict[object, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, request: NestRequest, contraction: Contraction, apart: bool, plan_loops: PlanLoops
    ) -> _Maker:
        """Return one for a contraction."""
        computation = request.computation
        each = request.alone() if apart else request
        arrays = name_reads(request)
        dtypes = dict(computation.dtypes)
        dtypes |= {name: computation.dtypes[read.array] for name, read in arrays.items()}
        own: dict[Term, Term] = {read: Read(name, read.subscripts) for name, read in arrays.items()}
        added = replace_terms(contraction.added, own)
        return cls(request, each, plan_loops, arrays, dtypes, added, contraction.beta)

    @property
    def stage(self) -> Stage:
        """The statement."""
        return self.request.statement

    def start(self) -> int:
        """Return the kind that begins all elements of the output, to which blocks add then."""
        stage = self.stage
        begun = self._bind(self._plus(None), self.request.computation.sizes, stage.bounds)
        self.beta = Number(1)
        return self._kind(
            "start", lambda: self.plan_loops(replace(self.request, computation=begun))
        )

    def block(self, box: Box) -> int:
        """Return the kind of a block, given the first and the last value of each letter."""
        stage = self.stage
        sizes = {letter: high - low + 1 for letter, (low, high) in box.items()}
        open_ = open_conditions(stage.where, box)
        where = tuple(shift_condition(one, box) for one in open_)
        summed = any(letter in stage.summed for one in open_ for letter in one.letters)
        loops = bool(where) and (summed or not self._lies_inside(box))
        key = tuple(sizes.items()), where, loops
        if not where:
            return self._kind(key, lambda: (self._contraction(self._plus(self.added), sizes),))
        if not loops:
            return self._kind(key, lambda: self._masked(sizes, where))
        looped = self._plus(self.added)
        return self._kind(key, lambda: self._loops(self._bind(looped, sizes, where)))

    def _masked(
        self, sizes: Mapping[str, int], where: Sequence[Condition]
    ) -> tuple[BlockPart, ...]:
        """Return what computes a block as a whole and takes over what is in the region."""
        stage, name = self.stage, f"{self.stage.name}_block"
        while name in self.dtypes:
            name += "_"
        whole = Stage(name, stage.axes, self.added, self.dtypes[stage.name])
        merged = self._plus(Read(name, stage.axes))
        kinds = {**self.dtypes, name: self.dtypes[stage.name]}
        shapes = {name: tuple(sizes[letter] for letter in stage.output)}
        return (
            self._contraction(whole, sizes),
            *self._loops(self._bind(merged, sizes, where, kinds, shapes)),
        )

    def _plus(self, added: Term | None) -> Stage:
        """Return the statement that a term makes together with what lies in the output."""
        stage = self.stage
        if self.beta is None:
            term = Number(0) if added is None else added
        else:
            old = stage.target if self.beta == Number(1) else self.beta * stage.target
            term = old if added is None else old + added
        return Stage(stage.name, stage.axes, term, self.dtypes[stage.name])

    def _loops(self, computation: Computation) -> tuple[LoopSolution, ...]:
        """Return a block that loops compute."""
        return self.plan_loops(replace(self.each, computation=computation))

    def _contraction(self, stage: Stage, sizes: Mapping[str, int]) -> ContractionSolution:
        """Return a block that plans compute."""
        request = replace(self.each, computation=self._bind(stage, sizes))
        return ContractionSolution.of(request, f"it is the contraction {read_contraction(request)}")

    def _bind(
        self,
        stage: Stage,
        sizes: Mapping[str, int],
        where: Sequence[Condition] = (),
        dtypes: Mapping[str, str] | None = None,
        shapes: Mapping[str, Shape] | None = None,
    ) -> Computation:
        """Return a statement at the extents of a block, in a region."""
        known = self.dtypes if dtypes is None else dtypes
        names = {stage.name, *(read.array for read in stage.reads), *stage.params}
        return bind_stages(
            (stage.with_where(where),),
            {letter: sizes[letter] for letter in stage.letters},
            {name: kind for name, kind in known.items() if name in names},
            shapes,
        )

    def _kind(self, key: object, make: Callable[[], tuple[BlockPart, ...]]) -> int:
        if key not in self.known:
            self.known[key] = len(self.kinds)
            self.kinds.append(make())
        return self.known[key]

    def _lies_inside(self, box: Box) -> bool:
        """Return whether arrays have all elements that a block as a whole reads."""
        return all(
            isinstance(one, Affine) and one.interval(box)[1] < extent
            for read in self.arrays.values()
            for one, extent in zip(
                read.subscripts, self.request.computation.array(read.array).shape, strict=True
            )
        )
