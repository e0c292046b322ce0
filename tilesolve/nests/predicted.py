"""How long choices are predicted to take, whatever runs them."""

from __future__ import annotations

from tilesolve.machine.model import Machine
from tilesolve.nests.block_tasks import measure_blocks
from tilesolve.nests.choices import NestChoice
from tilesolve.nests.planning import plan_nest
from tilesolve.nests.product_plans import plan_products


def predict_seconds(choice: NestChoice, machine: Machine, threads: int) -> float:
    """Return the predicted time of a statement; a transpose takes what loops take to move as much.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> machine = Machine.load("i7-6700k")
    >>> (choice,) = plan_nest(bind_stages(parse_stages("o[i] = 2 * A[i]"), 1000), machine)
    >>> predict_seconds(choice, machine, 1) == choice.cost.seconds
    True
    """
    if choice.blocks is not None:
        output = choice.statement.output
        return measure_blocks(choice.blocks, output, machine, threads, predict_seconds)
    if choice.route == "contraction":
        return sum(plan.seconds for plan in plan_products(choice, machine, threads))
    cost = choice.cost
    if choice.route == "transpose":
        cost = plan_nest(choice.computation, machine, threads, route="nest")[0].cost
    return cost.seconds if cost else 0.0
