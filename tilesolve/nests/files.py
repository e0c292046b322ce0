"""Plans of nests as JSON: what was asked for; reading it plans anew, to the same choices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import PlanError, TilesolveError
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.parse import parse_conditions, parse_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.kernels.programs.printer import print_program
from tilesolve.machine.model import Machine
from tilesolve.nests.planning import plan_nest
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import LoopSolution, NestSolution
from tilesolve.system.checksums import checksum_of

HOLDS = "a plan of a nest"
"""What such JSON says of itself."""

NEST_FORMAT = 2
"""Version of the JSON; a file of another version is refused.

In the first one, inputs were those of the right side before those of subscripts on the left, and
sums kept the dtype of what they sum.
"""


def dump_nest(request: NestRequest, solutions: Sequence[NestSolution]) -> str:
    """Return what was asked for as JSON, with the loops that were chosen."""
    computation = request.computation
    data = {
        "format": NEST_FORMAT,
        "holds": HOLDS,
        "stages": [_stage_data(stage) for stage in computation.stages],
        "sizes": dict(computation.sizes),
        "shapes": {array.name: list(array.shape) for array in computation.arrays},
        "dtypes": dict(computation.dtypes),
        "machine": request.machine.to_toml(),
        "threads": request.threads,
        "mode": request.mode,
        "route": request.route,
        "loops": _write_loops(solutions),
    }
    return json.dumps({**data, "checksum": checksum_of(data)})


def load_nest(text: str) -> tuple[NestRequest, tuple[NestSolution, ...]]:
    """Read what a plan was asked for from JSON, and plan it again.

    Raises
    ------
    PlanError
        If the text is no plan, of another version, damaged, or would run other loops today.

    Examples
    --------
    >>> load_nest("[]")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.PlanError: this is no plan of a nest
    """
    check_kind(text, str, "text of a plan", "JSON", PlanError)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"this is no plan of a nest: {error}") from None
    if not isinstance(data, dict) or data.get("holds") != HOLDS:
        raise PlanError("this is no plan of a nest")
    if data.get("format") != NEST_FORMAT:
        raise PlanError(
            f"the plan's format is {data.get('format')!r}, this version reads {NEST_FORMAT}"
        )
    given = data.pop("checksum", None)
    if given != checksum_of(data):
        raise PlanError("the plan is damaged: its checksum is not that of its content")
    try:
        request = NestRequest(
            _computation(data),
            Machine.from_toml(data["machine"]),
            *(data[name] for name in ("threads", "mode", "route")),
        )
        solutions = plan_nest(request)
        same = _write_loops(solutions) == data["loops"]
    except TilesolveError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"the plan is damaged: {type(error).__name__}: {error}") from None
    if not same:
        raise PlanError("the plan was made by other code: this version would run other loops")
    return request, solutions


def _write_loops(solutions: Sequence[NestSolution]) -> list[str]:
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
