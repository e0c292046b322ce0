"""Plans of the products of a contraction, and what its blocks are predicted to take."""

from __future__ import annotations

from tilesolve.machine.model import Machine
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


def predict_seconds(choice: NestChoice, machine: Machine, threads: int) -> float:
    """Return the predicted time of loops, of a contraction, or of one in blocks."""
    if choice.blocks is not None:
        kinds = [
            sum(predict_seconds(one, machine, threads) for one in kind)
            for kind in choice.blocks.kinds
        ]
        return sum(kinds[kind] for kind, _ in choice.blocks.places)
    if choice.seconds is not None:
        return choice.seconds
    return sum(one.seconds for one in plan_products(choice, machine, threads))
