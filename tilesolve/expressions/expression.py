"""Expressions: an einsum that is read, ordered and planned once, and called many times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy._core.multiarray import c_einsum

from tilesolve.contractions.errors import DtypeError, SizeError
from tilesolve.contractions.subscripts import Subscripts
from tilesolve.expressions.constants import Constants, prepare
from tilesolve.expressions.contraction_order import ExpressionStep
from tilesolve.expressions.dispatch import flops
from tilesolve.expressions.planned import Planned
from tilesolve.expressions.step_kernels import Loops, Preparation, Transpose
from tilesolve.packing.memory_overlap import Array, overlap
from tilesolve.system.checks import as_array, check_output
from tilesolve.system.html_report import write_html_report
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration, format_volume


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """An einsum for operands of given shapes and dtypes, ready to be called.

    `expression` makes one. Printing it shows what runs: each step, by which route and why, what is
    packed, and the memory that it takes.

    Parameters
    ----------
    subscripts
        What is computed.
    shapes, dtypes
        Of the operands.
    shape, dtype
        Of the result.
    prepare
        For each operand its preparation before the steps; None if it needs none.
    steps
        The steps that run, in this order.
    index
        The index that adds the axes of extent 1 to the last step's result; None if there are none.
    peak
        Bytes of copies and intermediate results while it runs, without operands and result.
    constants
        Operands that calls do not give, with results computed of them; None if there are none.

    Examples
    --------
    >>> from tilesolve import expression
    >>> chain = expression("ij,jk,kl->il", (2, 3), (3, 40), (40, 2))
    >>> chain(np.ones((2, 3)), np.ones((3, 40)), np.ones((40, 2))).tolist()
    [[120.0, 120.0], [120.0, 120.0]]
    """

    subscripts: Subscripts
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    prepare: tuple[Preparation | None, ...]
    steps: tuple[ExpressionStep, ...]
    index: tuple[Any, ...] | None
    peak: int
    constants: Constants | None = None
    call: Callable[..., Any] = field(init=False, repr=False)
    """What computes it fastest for checked operands and without an `out`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "call", self._fastest())

    def __call__(self, *operands: npt.ArrayLike, out: Array | None = None) -> Any:  # noqa: ANN401
        """Compute it.

        Parameters
        ----------
        *operands
            Of the expression's shapes and dtypes; any strides, never modified. Those that are
            constant are left out.
        out
            Where the result goes; a new array if None. Where it shares memory with an operand, the
            result is computed into a temporary array first.

        Returns
        -------
        numpy.ndarray
            `out`, or the result; one without axes is a number. An expression of one operand that
            sums nothing returns a view of it.

        Raises
        ------
        SizeError, DtypeError, PlanError
            If an operand or `out` does not fit the expression.

        Examples
        --------
        >>> from tilesolve import expression
        >>> total = np.zeros(2)
        >>> expression("ij->i", (2, 3))(np.ones((2, 3)), out=total) is total, total.tolist()
        (True, [3.0, 3.0])
        """
        if self.constants is not None:
            operands = self.constants.join(operands, len(self.shapes), self.subscripts.text)
        if out is None and self._fits(operands):
            return self.call(*operands)
        arrays = self._checked(operands)
        if out is None:
            return self.run(*arrays)
        text = self.subscripts.text
        target = check_output(
            out,
            f"out of {text!r}",
            self.shape,
            letters=self.subscripts.output,
            dtype=self.dtype,
            whose="the result",
        )
        self.run(*arrays, out=target)
        return out

    def run(self, *operands: Array, out: Array | None = None) -> Any:  # noqa: ANN401
        """Compute it for operands and an `out` that have been checked.

        Operands may share memory with `out`. Infinities and NaN come without a warning or an error,
        as from numpy's einsum. Where an object's own product or sum fails, `out` is as it was.
        """
        with np.errstate(all="ignore"):
            apart = not self.dtype.hasobject
            if out is None or (apart and not any(overlap(out, operand) for operand in operands)):
                return self._run(operands, out)
            result = np.asarray(self._run(operands, None), self.dtype)
            # A view, such as a diagonal: numpy's assignment reads what it has written.
            out[...] = result.copy() if np.may_share_memory(result, out) else result
            return out

    def _run(self, operands: Sequence[Array], out: Array | None) -> Any:  # noqa: ANN401
        target = out
        if out is not None and self.index is not None:
            target = out[(*(0 if at is None else at for at in self.index), Ellipsis)]
        if self.constants is not None:
            result = self.constants.run(operands, self.prepare, target)
        else:
            result = self._run_steps(operands, target)
        if out is not None:
            return out
        if self.index is not None:
            result = result[self.index]
        return result if result.ndim else result[()]

    def _run_steps(self, operands: Sequence[Array], target: Array | None) -> Array:
        arrays = [prepare(array, of) for array, of in zip(operands, self.prepare, strict=True)]
        for number, step in enumerate(self.steps, 1):
            taken = [arrays[position] for position in step.takes]
            arrays = [array for at, array in enumerate(arrays) if at not in step.takes]
            arrays.append(step.kernel(*taken, out=target if number == len(self.steps) else None))
        (result,) = arrays
        return result

    @property
    def planned(self) -> bool:
        """Whether a plan of ours runs in it.

        Examples
        --------
        >>> from tilesolve import expression
        >>> expression("ij,jk", (2, 2), (2, 2)).planned
        False
        """
        return any(step.kernel.route == "plan" for step in self.steps)

    @property
    def flops(self) -> int:
        """Operations on numbers, of all steps.

        Examples
        --------
        >>> from tilesolve import expression
        >>> expression("ij,jk", (2, 3), (3, 4)).flops
        48
        """
        return sum(step.flops for step in self.steps)

    def _fastest(self) -> Callable[..., Any]:
        """Return numpy's loops themselves, or a view's maker, if they are all that runs."""
        kernel = self.steps[0].kernel
        if self.constants is not None:
            return self.run
        whole = len(self.steps) == 1 and not any(self.prepare) and self.index is None
        if whole and isinstance(kernel, Loops):
            if all(dtype == self.dtype for dtype in self.dtypes):
                return partial(c_einsum, kernel.run)
            return partial(c_einsum, kernel.run, dtype=self.dtype, casting="unsafe")
        if whole and isinstance(kernel, Transpose) and self.shape:
            return kernel
        return self.run

    def _fits(self, operands: Sequence[npt.ArrayLike]) -> bool:
        """Return whether operands are arrays of the expression's shapes and dtypes."""
        if len(operands) != len(self.shapes):
            return False
        for array, shape, dtype in zip(operands, self.shapes, self.dtypes, strict=True):
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return False
        return True

    def _checked(self, operands: Sequence[npt.ArrayLike]) -> list[Array]:
        subscripts = self.subscripts
        if len(operands) != len(self.shapes):
            raise SizeError(
                f"the expression {subscripts.text!r} takes {len(self.shapes)} operands, "
                f"not {len(operands)}"
            )
        arrays = [as_array(array, number) for number, array in enumerate(operands)]
        for number, array in enumerate(arrays):
            shape, dtype = self.shapes[number], self.dtypes[number]
            name = subscripts.operand(number)
            if len(array.shape) != len(shape):
                raise SizeError(f"{name} has the shape {array.shape}, the expression {shape}")
            for letter, have, want in zip(
                subscripts.operands[number], array.shape, shape, strict=True
            ):
                if have != want:
                    raise SizeError(
                        f"{name} has {have} for {subscripts.name(letter)}, the expression {want}"
                    )
            if array.dtype != dtype:
                raise DtypeError(f"{name} is {array.dtype}, the expression's is {dtype}")
        return arrays

    def __repr__(self) -> str:
        shapes = ", ".join(map(str, self.shapes))
        routes = ", ".join(step.kernel.route for step in self.steps)
        return f"<Expression {self.subscripts.text!r} of {shapes} {self.dtype}: {routes}>"

    def __str__(self) -> str:
        return "\n".join((*_head(self), "", *_step_table(self), "", *_reasons(self)))

    def _repr_html_(self) -> str:
        return write_html_report(str(self))


# The report


def _head(expression: Expression) -> Iterator[str]:
    form = expression.subscripts
    sizes = form.sizes(expression.shapes)
    extents = " ".join(f"{letter}={extent}" for letter, extent in sizes.items())
    yield " ".join(filter(None, (str(form), extents, str(expression.dtype))))
    together = flops(form.indices, form.output, sizes, expression.dtype)
    many = "1 step" if len(expression.steps) == 1 else f"{len(expression.steps)} steps"
    line = f"{many}, {_flop(expression.flops)}"
    if len(expression.steps) > 1:
        line += f"; all at once it would take {_flop(together)}"
    yield line
    if expression.constants is not None:
        yield expression.constants.describe(len(expression.steps))
    between = [step.result for step in expression.steps[:-1]]
    line = f"at most {format_volume(expression.peak)} beside operands and result"
    if between:
        line += f", the largest intermediate result has {format_volume(max(between))}"
    yield line


def _flop(count: float) -> str:
    return format_volume(count).replace("B", "flop")


def _step_table(expression: Expression) -> Iterator[str]:
    rows = [("step", "computes", "takes", "route", "flops", "result", "copies")]
    for number, needs in enumerate(expression.prepare):
        if needs is not None:
            rows.append(("-", needs.text, str(number), needs.route, "-", "-", "-"))
    names = [str(number) for number in range(len(expression.shapes))]
    for number, step in enumerate(expression.steps, 1):
        takes = " ".join(names[position] for position in step.takes)
        names = [name for at, name in enumerate(names) if at not in step.takes]
        names.append(str(len(expression.shapes) + number - 1))
        rows.append(
            (
                *(str(number), step.kernel.text, takes, step.kernel.route, str(step.flops)),
                *(format_volume(step.result), format_volume(step.copies)),
            )
        )
    yield from align_columns(rows)


def _reasons(expression: Expression) -> Iterator[str]:
    for number, step in enumerate(expression.steps, 1):
        yield f"step {number}: {step.kernel.route}, {step.why}{_plan_summary(step)}"


def _plan_summary(step: ExpressionStep) -> str:
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
