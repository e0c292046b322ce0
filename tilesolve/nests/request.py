"""What a caller asks of a nest: made once, and handed on to whatever plans a statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Literal, Self, get_args

import numpy as np

from tilesolve.constants.nests import NEST_CONTRACTION_FLOPS
from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import MachineError, PlanError
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.powers import expand_powers
from tilesolve.contractions.statements.stage import Stage
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine
from tilesolve.model.level_view import LevelView
from tilesolve.model.price import Price, list_levels
from tilesolve.model.score import score_price
from tilesolve.model.starts import Start, charge_sources, start_arrays
from tilesolve.nests.arithmetic import lanes_of
from tilesolve.nests.interference import SetRule
from tilesolve.system.checks import check_threads

Route = Literal["nest", "contraction", "transpose"]
"""What runs a statement: generated loops, a plan, or a transpose."""

NestMode = Literal["default", "thesis", "untiled", "plain"]
"""How loops are decided: by the machine, as the thesis does, or without tiles."""

Fusion = Literal["slide", "overlap", "inline", "root"]
"""How stages of a pipeline run together: rings that slide, tiles that overlap, terms within terms,
or one after another."""

Division = Literal["split", "best"]
"""How stages are divided into groups: as few as caches allow, or those that cost least together."""


@dataclass(frozen=True, slots=True)
class NestRequest:
    """What is to be planned.

    Parameters
    ----------
    computation
        The statements and their extents.
    machine
        Whose caches and costs count.
    threads
        Those that share the work.
    mode
        ``"thesis"`` decides by the printed formulas and costs, and holds no registers;
        ``"untiled"`` takes no tiles; ``"plain"`` holds no registers either: threads outside,
        vectors inside, and nothing else.
    route
        What is to run it; the best if None, which is a nest in all modes but the default.
    threads_per_core
        Those that share a core's caches; if None as many as the machine has, in the thesis's mode
        or where there are more threads than cores.
    sets
        How the number of sets of a cache is read, see `SetRule`.
    later
        The share of a run's first line that each further one costs, at all levels; the machine's
        if None.
    fusion, division
        How stages of a pipeline run together, and which ones.
    start
        Where arrays lie when a call begins: ``"warm"`` for who repeats calls, in the nearest cache
        that holds all of them; ``"cold"`` in memory.
    least_flops
        Operations from which on a plan computes a contraction.

    Raises
    ------
    PlanError
        If a mode, a route or sets are none, or the mode has not the route.
    MachineError
        If the machine or the threads are none.
    """

    computation: Computation
    machine: Machine
    threads: int = 1
    mode: NestMode = "default"
    route: Route | None = None
    threads_per_core: int | None = None
    sets: SetRule = "cache"
    later: float | None = None
    fusion: Fusion = "slide"
    division: Division = "split"
    start: Start = "warm"
    least_flops: int = NEST_CONTRACTION_FLOPS

    def __post_init__(self) -> None:
        check_kind(self.computation, Computation, "computation", "a Computation", PlanError)
        check_kind(self.machine, Machine, "machine", "a Machine", MachineError)
        check_kind(self.mode, str, "mode", "text", PlanError)
        check_kind(self.route, (str, NoneType), "route", "text or None", PlanError)
        for name, value, known in (
            ("mode", self.mode, get_args(NestMode)),
            ("route", self.route, (*get_args(Route), None)),
            ("sets", self.sets, get_args(SetRule)),
            ("fusion", self.fusion, get_args(Fusion)),
            ("division", self.division, get_args(Division)),
            ("start", self.start, get_args(Start)),
        ):
            if not (value is None or isinstance(value, str)) or value not in known:
                raise PlanError(f"{name} is one of {', '.join(map(str, known))}, not {value!r:.60}")
        check_threads(self.threads)
        if self.mode != "default" and self.route not in (None, "nest"):
            raise PlanError(f"mode {self.mode!r} has generated loops, not the route {self.route!r}")

    @property
    def statement(self) -> Stage:
        """The only statement."""
        (stage,) = self.computation.stages
        return stage

    @property
    def lanes(self) -> int:
        """The elements of a vector of the output."""
        return lanes_of(self.computation.output.dtype, self.machine)

    @property
    def line(self) -> int:
        """The elements of a line of the output."""
        size = np.dtype(self.computation.output.dtype).itemsize
        return max(self.machine.levels[0].line // size, 1)

    def of(self, computation: Computation, *stages: Stage) -> Self:
        """Return the same for some statements of a computation, with arrays of their sizes.

        Small powers are products there.
        """
        stages = tuple(_expand(stage, computation) for stage in stages)
        arrays = {name for x in stages for name in (x.name, *(read.array for read in x.reads))}
        names = arrays.union(*(stage.params for stage in stages))
        outputs = _find_outputs(computation, stages)
        alone = bind_stages(
            stages,
            {letter: computation.sizes[letter] for stage in stages for letter in stage.letters},
            {name: kind for name, kind in computation.dtypes.items() if name in names},
            {name: computation.array(name).shape for name in arrays},
            outputs,
        )
        return replace(self, computation=alone)

    def alone(self) -> Self:
        """Return the same for one of the threads, which works beside the others."""
        return replace(self, machine=divide_machine(self.machine, self.threads), threads=1)

    @property
    def places(self) -> tuple[LevelView, ...]:
        """The register file and the caches as a thread sees them."""
        return list_levels(self.machine, self.threads)

    def charge(self, cost: Price, between: Sequence[float] = ()) -> Price:
        """Return what loops cost with arrays where they lie at first, each byte where it is.

        `between` says how many bytes were touched since each tensor was, see `start_arrays`.
        """
        return charge_sources(start_arrays(cost, self.places, self.start, between))

    def score(self, cost: Price, between: Sequence[float] = (), shown: float = 1.0) -> float:
        """Return what loops are compared by; `shown` times the usual shows of other levels."""
        return score_price(self.charge(cost, between), self.machine.costs.level_overlap * shown)


def _find_outputs(computation: Computation, stages: Sequence[Stage]) -> tuple[str, ...]:
    """Return the arrays of some stages that others need, or that none of them reads."""
    made = dict.fromkeys(stage.name for stage in stages)
    others = [stage for stage in computation.stages if stage.name not in made]
    needed = {read.array for stage in others for read in stage.reads}.union(computation.outputs)
    read = {x.array for stage in stages for x in stage.reads if x.array != stage.name}
    return tuple(name for name in made if name in needed or name not in read)


def _expand(stage: Stage, computation: Computation) -> Stage:
    """Return a stage with products in place of small powers."""
    term = expand_powers(stage.term, computation.dtypes)
    return stage if term is stage.term else replace(stage, term=term)
