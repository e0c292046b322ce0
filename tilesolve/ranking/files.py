"""Rankings as JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tilesolve.contractions.errors import PlanError
from tilesolve.machine.model import Machine
from tilesolve.plans.files import dump_data, load_data
from tilesolve.plans.plan import Plan
from tilesolve.ranking.standings import MEASURED, Clock, Standings
from tilesolve.ranking.table import describe_variant
from tilesolve.ranking.variants import SOLVER, Variant
from tilesolve.system.tables import write_csv

FORMAT = 3
"""Version of the JSON; a file of another version is refused."""

COLUMNS = ("rank", "variant", "around", "tiles", "split", "packed", "fits", "predicted_s")
"""The first columns of a CSV file; scores by each ranker and measured seconds follow."""


def dump(found: Standings) -> str:
    """Return a ranking as JSON: what all variants share once, then the variants."""
    variants: list[dict[str, Any]] = []
    shared: dict[str, Any] = {}
    for at, one in enumerate(found.variants):
        data = dump_data(one.plan.solution)
        shared = {what: data.pop(what) for what in ("machine", "problem")}
        scores = {name: values[at] for name, values in found.scores}
        variants.append(
            {
                "kind": one.kind,
                "fits": one.fits,
                "scores": scores,
                "rounds": found.rounds[at],
                "plan": data,
            }
        )
    data = {
        "ranking": FORMAT,
        "by": found.by,
        "lacking": dict(found.lacking),
        "clock": None if found.clock is None else asdict(found.clock),
        **shared,
        "variants": variants,
    }
    return json.dumps(data)


def load(text: str) -> Standings:
    """Read a ranking from JSON.

    Raises
    ------
    PlanError
        If the text is damaged or of another version.

    Examples
    --------
    >>> load("{}")
    Traceback (most recent call last):
    tilesolve.contractions.errors.PlanError: not a ranking of format 3 but None
    """
    try:
        data = json.loads(text)
        if data.get("ranking") != FORMAT:
            raise PlanError(f"not a ranking of format {FORMAT} but {data.get('ranking')!r}")
        machine, rows = Machine.from_toml(data["machine"]), data["variants"]
        plans = [
            Plan(load_data({"problem": data["problem"], **row["plan"]}, machine)) for row in rows
        ]
        variants = tuple(
            Variant(row["kind"], plan, row["fits"]) for row, plan in zip(rows, plans, strict=True)
        )
        scores = tuple(
            (name, tuple(float(row["scores"][name]) for row in rows)) for name in rows[0]["scores"]
        )
        rounds = tuple(tuple(map(float, row["rounds"])) for row in rows)
        lacking = tuple((name, str(why)) for name, why in data["lacking"].items())
        found = Standings(data["by"], variants, scores, rounds, lacking, _clock(data))
        if sum(one.kind == SOLVER for one in variants) != 1 or found.by not in found.rankers:
            raise PlanError("a damaged ranking: it needs one plan of the solver, and its ranker")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"a damaged ranking: {type(error).__name__}: {error}") from None
    return found


def _clock(data: Mapping[str, Any]) -> Clock | None:
    """Return where times were measured; files did not always say so."""
    if data.get("clock") is None:
        return None
    found = Clock(**data["clock"])
    if not (isinstance(found.cpu, str) and isinstance(found.version, str)):
        raise PlanError(f"a damaged ranking: its clock is {data['clock']!r:.80}")
    return found


def to_csv(found: Standings) -> str:
    """Return a ranking as CSV, a line for each variant in its order."""
    rows = [
        (
            *(place, *describe_variant(variant), variant.plan.seconds),
            *(values[at] for _, values in found.scores),
            "" if found.measured[at] is None else found.measured[at],
        )
        for at, (variant, place) in enumerate(
            zip(found.variants, found.ranks(found.by), strict=True)
        )
    ]
    return write_csv((*COLUMNS, *found.rankers, f"{MEASURED}_s"), rows)
