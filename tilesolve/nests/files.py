"""Plans of nests as JSON: what was asked for; reading it plans anew, to the same choices."""

from __future__ import annotations

import json
from typing import Any

from tilesolve.contractions.errors import PlanError, TilesolveError
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.parse import parse_conditions, parse_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.machine.model import Machine
from tilesolve.nests.plan import NestPlan
from tilesolve.system.checksums import checksum_of

NEST_FORMAT = 1
"""Version of the JSON; a file of another version is refused."""


def dump_nest(plan: NestPlan) -> str:
    """Return a plan as JSON."""
    computation, machine, threads, mode, route = plan.__reduce__()[1]
    data = {
        "format": NEST_FORMAT,
        "holds": "a plan of a nest",
        "stages": [_stage_data(stage) for stage in computation.stages],
        "sizes": dict(computation.sizes),
        "shapes": {array.name: list(array.shape) for array in computation.arrays},
        "dtypes": dict(computation.dtypes),
        "machine": machine.to_toml(),
        "threads": threads,
        "mode": mode,
        "route": route,
        "choices": [str(one.program or one.route) for one in plan.choices],
    }
    return json.dumps({**data, "checksum": checksum_of(data)})


def load_nest(text: str) -> NestPlan:
    """Read a plan from JSON.

    Raises
    ------
    PlanError
        If the text is none, of another version, damaged, or plans otherwise today.

    Examples
    --------
    >>> load_nest("[]")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.PlanError: this is no plan of a nest
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"this is no plan of a nest: {error}") from None
    if not isinstance(data, dict) or data.get("holds") != "a plan of a nest":
        raise PlanError("this is no plan of a nest")
    if data.get("format") != NEST_FORMAT:
        raise PlanError(
            f"the plan's format is {data.get('format')!r}, this version reads {NEST_FORMAT}"
        )
    given = data.pop("checksum", None)
    if given != checksum_of(data):
        raise PlanError("the plan is damaged: its checksum is not that of its content")
    try:
        found = NestPlan(
            _computation(data),
            Machine.from_toml(data["machine"]),
            data["threads"],
            data["mode"],
            data["route"],
        )
        written = list(data["choices"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, TilesolveError):
            raise
        raise PlanError(f"the plan is damaged: {type(error).__name__}: {error}") from None
    if [str(one.program or one.route) for one in found.choices] != written:
        raise PlanError("the plan was made by other code: this version would run other loops")
    return found


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
        stages.append(Stage(stage.name, stage.axes, stage.term, one["dtype"], where, stage.update))
    shapes = {name: tuple(shape) for name, shape in data["shapes"].items()}
    return bind_stages(stages, data["sizes"], data["dtypes"], shapes)
