"""Plans of the products of a contraction, and what choices are compared by."""

from __future__ import annotations

from tilesolve.machine.model import Machine
from tilesolve.model.score import score
from tilesolve.nests.block_tasks import measure_blocks
from tilesolve.nests.choices import NestChoice
from tilesolve.plans.plan import Plan, plan


def plan_products(choice: NestChoice, machine: Machine, threads: int) -> tuple[Plan, ...]:
    """Return a plan for each product; all but the first add to what it gives."""
    contraction = choice.contraction
    assert contraction is not None
    return tuple(
        plan(
            product.problem(choice.computation),
            machine=machine,
            threads=threads,
            accumulate=number > 0 or contraction.beta is not None,
        )
        for number, product in enumerate(contraction.products)
    )


def score_choice(choice: NestChoice, machine: Machine, threads: int) -> float:
    """Return the score of loops, of a contraction, or of one in blocks; 0 for a transpose.

    Waiting is left out, which prices of loops have none of.
    """
    if choice.blocks is not None:
        output = choice.statement.output
        return measure_blocks(choice.blocks, output, machine, threads, score_choice)
    if choice.cost is not None:
        return score(choice.cost, machine.costs.level_overlap)
    if choice.contraction is None:
        return 0.0
    prices = (one.price for one in plan_products(choice, machine, threads))
    return sum(score(one, machine.costs.level_overlap) for one in prices)
