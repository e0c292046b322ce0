"""An expression as text that users read and paste: what runs in which order, and why."""

from __future__ import annotations

from collections.abc import Iterator

from tilesolve.expressions.contraction_order import Step
from tilesolve.expressions.dispatch import flops
from tilesolve.expressions.expression import Expression
from tilesolve.expressions.step_kernels import Planned
from tilesolve.plans.report import table
from tilesolve.system.units import format_duration, format_volume


def report(expression: Expression) -> str:
    """Return an expression's report.

    Examples
    --------
    >>> from tilesolve.expressions.compile import expression
    >>> print(report(expression("ij,jk,k->i", (90, 100), (100, 110), (110,))))
    ij,jk,k->i i=90 j=100 k=110 float64
    2 steps, 40 kflop; all at once it would take 2.97 Mflop
    at most 800 B beside operands and result, the largest intermediate result has 800 B
    <BLANKLINE>
      step  computes  takes     way  flops  result  copies
      1      jk,k->j    1 2  matmul  22000   800 B     0 B
      2      ij,j->i    0 3  matmul  18000   720 B     0 B
    <BLANKLINE>
    step 1: matmul, a matrix by a vector: memory bounds it, whoever computes
    step 2: matmul, a matrix by a vector: memory bounds it, whoever computes
    """
    return "\n".join((*_head(expression), "", *_steps(expression), "", *_reasons(expression)))


def _head(expression: Expression) -> Iterator[str]:
    form = expression.subscripts
    sizes = form.sizes(expression.shapes)
    extents = " ".join(f"{letter}={extent}" for letter, extent in sizes.items())
    yield " ".join(filter(None, (str(form), extents, str(expression.dtype))))
    together = flops(form.operands, form.output, sizes, expression.dtype)
    many = "1 step" if len(expression.steps) == 1 else f"{len(expression.steps)} steps"
    line = f"{many}, {_flop(expression.flops)}"
    if len(expression.steps) > 1:
        line += f"; all at once it would take {_flop(together)}"
    yield line
    between = [step.result for step in expression.steps[:-1]]
    line = f"at most {format_volume(expression.peak)} beside operands and result"
    if between:
        line += f", the largest intermediate result has {format_volume(max(between))}"
    yield line


def _flop(count: float) -> str:
    return format_volume(count).replace("B", "flop")


def _steps(expression: Expression) -> Iterator[str]:
    rows = [("step", "computes", "takes", "way", "flops", "result", "copies")]
    for number, needs in enumerate(expression.prepare):
        if needs is not None:
            rows.append(("-", needs.text, str(number), needs.way, "-", "-", "-"))
    at_hand = [str(number) for number in range(len(expression.shapes))]
    for number, step in enumerate(expression.steps, 1):
        takes = " ".join(at_hand[position] for position in step.takes)
        at_hand = [name for at, name in enumerate(at_hand) if at not in step.takes]
        at_hand.append(str(len(expression.shapes) + number - 1))
        rows.append(
            (
                *(str(number), step.kernel.text, takes, step.kernel.way, str(step.flops)),
                *(format_volume(step.result), format_volume(step.copies)),
            )
        )
    yield from table(rows)


def _reasons(expression: Expression) -> Iterator[str]:
    for number, step in enumerate(expression.steps, 1):
        yield f"step {number}: {step.kernel.way}, {step.why}{_planned(step)}"


def _planned(step: Step) -> str:
    """Return what a plan says of itself: its speed, and what it packs."""
    if not isinstance(step.kernel, Planned):
        return ""
    plan = step.kernel.plan
    packed = [
        f"{operand} is packed into {level}" if level else f"{operand} is read in place"
        for operand, level in zip(
            step.kernel.text.split("->")[0].split(","), plan.nest.packed, strict=True
        )
    ]
    return (
        f"; {format_duration(plan.seconds)} predicted, bound by {plan.price.bottleneck}; "
        + ", ".join(packed)
    )
