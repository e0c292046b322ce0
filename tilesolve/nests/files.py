"""Plans of nests as JSON: what was asked for, and the loops, which have to be the same then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.parse import parse_conditions, parse_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.kernels.programs.printer import print_program
from tilesolve.machine.model import Machine
from tilesolve.nests.planning import solve_nest
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import LoopSolution, NestSolution, SolvedNest
from tilesolve.plans.files import refuse_damage, seal, unseal

HOLDS = "a plan of a nest"
"""What such JSON says that it holds."""

NEST_FORMAT = 4
"""Version of the JSON; a file of another version is refused.

In the first one, inputs were those of the right side before those of subscripts on the left, and
sums kept the dtype of what they sum. The second one had the first three of the options.
"""

OPTIONS = ("threads", "mode", "route", "threads_per_core", "sets", "later")
"""What JSON has of a request as it is."""


def dump_nest(solution: SolvedNest) -> str:
    """Return what was asked for as JSON, with the loops that were chosen."""
    request = solution.request
    computation = request.computation
    data = {
        "stages": [_stage_data(stage) for stage in computation.stages],
        "sizes": dict(computation.sizes),
        "shapes": {array.name: list(array.shape) for array in computation.arrays},
        "dtypes": dict(computation.dtypes),
        "machine": request.machine.to_toml(),
        **{name: getattr(request, name) for name in OPTIONS},
        "loops": list_loops(solution.solutions),
    }
    return seal(HOLDS, NEST_FORMAT, data)


def load_nest(text: str) -> SolvedNest:
    """Read how a computation is run from JSON.

    Raises
    ------
    PlanError
        If the text is no plan, of another version, or damaged.

    Examples
    --------
    >>> load_nest("{}")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.PlanError: this is 'a plan', not 'a plan of a nest'
    """
    data = unseal(text, HOLDS, NEST_FORMAT)
    with refuse_damage():
        options = {name: data[name] for name in OPTIONS}
        machine = Machine.from_toml(data["machine"])
        found = solve_nest(NestRequest(_computation(data), machine, **options))
        if list_loops(found.solutions) != data["loops"]:
            raise PlanError("it was made by other code: this version would run other loops")
        return found


def list_loops(solutions: Sequence[NestSolution]) -> list[str]:
    """Return the loops of each statement as text; the route where others run it."""
    return [
        print_program(one.program) if isinstance(one, LoopSolution) else one.route
        for one in solutions
    ]


def _stage_data(stage: Stage) -> dict[str, Any]:
    """Return a stage as text: the statement and its conditions."""
    return {
        "statement": str(stage.with_where(())),
        "where": [str(one) for one in stage.where],
        "dtype": stage.dtype,
    }


def _computation(data: dict[str, Any]) -> Computation:
    stages = []
    for one in data["stages"]:
        (stage,) = parse_stages(one["statement"])
        where = parse_conditions(one["where"])
        stages.append(replace(stage, dtype=one["dtype"], where=where))
    shapes = {name: tuple(shape) for name, shape in data["shapes"].items()}
    return bind_stages(stages, data["sizes"], data["dtypes"], shapes)
