"""From subscripts and shapes to an expression: what is prepared, ordered and planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, prod
from string import ascii_letters
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.constants import policy
from tilesolve.contractions.errors import MemoryLimitError, SizeError, SpecError
from tilesolve.contractions.half_precision import is_half, summed_dtype
from tilesolve.contractions.subscripts import Subscripts, read
from tilesolve.expressions import dispatch
from tilesolve.expressions.constants import Constants, constant_arrays
from tilesolve.expressions.contraction_order import ExpressionStep, contraction_steps
from tilesolve.expressions.dispatch import Options, Request, flops, why_loops
from tilesolve.expressions.expression import Expression
from tilesolve.expressions.paths import given_path
from tilesolve.expressions.step_kernels import (
    Loops,
    Preparation,
    RoundOff,
    Transpose,
    Zeros,
    in_ascii,
)
from tilesolve.expressions.windows import compile_windows
from tilesolve.system.checks import as_dtype, common_dtype

MAX_AXES = 64
"""Axes of a numpy array at most."""

MAX_LOOP_OPERANDS = 16
"""Operands that numpy's loops take at once; more are contracted in pairs."""


def expression(
    subscripts: str,
    *shapes: Any,  # noqa: ANN401 - tuples, or whatever has a shape
    dtype: npt.DTypeLike = "float64",
    threads: int | None = None,
    optimize: Any = True,  # noqa: ANN401 - what opt_einsum takes
    memory_limit: int | None = None,
    constants: Sequence[int] = (),
) -> Expression:
    """Read, order and plan an einsum once, to call it many times.

    Parameters
    ----------
    subscripts
        As `einsum` takes them, in text.
    *shapes
        The shape of each operand, or an array that has it.
    dtype
        Of operands given by their shape.
    threads
        That share the work of plans; see `plan`. If a number is given, numpy's BLAS takes no more
        for the steps that it does; the bound holds for the whole process meanwhile.
    optimize
        The order of three or more operands: anything that opt_einsum takes, such as ``"greedy"``
        or a list of pairs. False goes from left to right.
    memory_limit
        Bytes that intermediate results and copies may take at any time; operands are taken to be
        contiguous.
    constants
        Numbers of operands that are the same for all calls, from 0 on. They are given as arrays, of
        which copies are taken: later changes do not matter. Calls take the others. Steps that
        depend on constants only run once, and plans have constants packed.

    Returns
    -------
    Expression
        Call it with operands; print it to see what runs.

    Raises
    ------
    SpecError, SizeError, DtypeError
        If subscripts, shapes and dtypes do not fit.
    MemoryLimitError
        If no order keeps to the limit.
    MachineError
        If `threads` is no positive integer.

    Examples
    --------
    >>> trace = expression("ii", (3, 3))
    >>> float(trace(np.eye(3)))
    3.0
    >>> expression("ij,jk->ik", (2, 3), (4, 5))
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: the extents of 'j' in 'ij,jk->ik' disagree: \
3 on axis 1 of operand 0 ('ij'), 4 on axis 0 of operand 1 ('jk')
    """
    extents = tuple(_shape(shape, number) for number, shape in enumerate(shapes))
    own = as_dtype(dtype, "dtype")
    dtypes = [
        as_dtype(shape.dtype, f"operand {number}") if hasattr(shape, "dtype") else own
        for number, shape in enumerate(shapes)
    ]
    if not shapes:
        raise SpecError(f"an expression needs the shape of an operand beside {subscripts!r}")
    options = Options(threads, optimize, memory_limit)
    form = read(subscripts, list(map(len, extents)))
    arrays = constant_arrays(constants, shapes, form.text)
    found = compile_expression(form, extents, dtypes, None, options)
    if not arrays:
        return found
    return replace(found, constants=Constants.of(found.prepare, found.steps, arrays))


def compile_expression(
    subscripts: Subscripts,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any] | None,
    options: Options,
) -> Expression:
    """Return the expression for subscripts that have been read.

    It computes in `dtype`; None means the operands' common one, and that of the operand for a
    view.

    Examples
    --------
    >>> form = read("ij->ji", [2])
    >>> found = compile_expression(form, [(2, 3)], [np.dtype(int)], None, Options())
    >>> found.steps[0].kernel.route
    'view'
    """
    if len(subscripts.output) > MAX_AXES:
        raise SpecError(
            f"the result of {subscripts.text!r} has {len(subscripts.output)} axes, "
            f"arrays have {MAX_AXES} at most"
        )
    given_path(options.optimize, len(shapes))
    sizes, spec = subscripts.sizes(shapes), subscripts.spec
    own = dtypes[0] if subscripts.is_view else common_dtype(dtypes)
    common = own if dtype is None else dtype

    def compile_in(computed: np.dtype[Any]) -> Expression:
        if spec is not None:
            return compile_windows(spec, subscripts, shapes, dtypes, computed, options)
        return _compile_in(subscripts, sizes, shapes, dtypes, computed, options)

    if is_half(common.name) and not subscripts.is_view:
        return _compile_halves(compile_in, dtypes, common)
    return compile_in(common)


def _compile_halves(
    compile_in: Callable[[np.dtype[Any]], Expression],
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any],
) -> Expression:
    """Return the expression for halves: a plan of theirs, or all of it in float32, rounded once.

    Operands that no single plan contracts are widened first, so that intermediate results are
    float32.
    """
    if len(dtypes) == 2 and all(one == dtype for one in dtypes):
        found = compile_in(dtype)
        sums = any(needs.axes for needs in found.prepare if needs is not None)
        if found.planned and not sums:
            return found
    found = compile_in(np.dtype(summed_dtype(dtype.name)))
    count, letters = prod(found.shape), found.subscripts.output
    rounding = RoundOff(f"{letters}->{letters}", dtype)
    why = f"operands are {dtype}, sums {found.dtype}"
    step = ExpressionStep((0,), rounding, why, 0, count * dtype.itemsize, 0)
    peak = found.peak + count * found.dtype.itemsize
    return replace(found, dtype=dtype, steps=(*found.steps, step), peak=peak)


def _compile_in(
    subscripts: Subscripts,
    sizes: dict[str, int],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[np.dtype[Any]],
    common: np.dtype[Any],
    options: Options,
) -> Expression:
    """Return the expression that computes in one dtype."""
    shape = tuple(sizes[x] for x in subscripts.output)
    found = partial(Expression, subscripts, tuple(shapes), tuple(dtypes), shape, common)
    if kernel := _whole(subscripts, sizes, dtypes, common, options):
        work = flops(subscripts.operands, subscripts.output, sizes, common)
        takes = tuple(range(len(shapes)))
        step = ExpressionStep(takes, *kernel, work, prod(shape) * common.itemsize, 0)
        return found((None,) * len(shapes), (step,), None, 0)

    # Axes of extent 1 are dropped: their letters are other operands', or nobody's.
    wide = [
        "".join(x for x, extent in zip(text, of, strict=True) if extent != 1)
        for text, of in zip(subscripts.operands, shapes, strict=True)
    ]
    prepared = [
        _prepared(subscripts, number, wide, dtypes[number], common) for number in range(len(shapes))
    ]
    letters = [text for _, text in prepared]
    request = Request(sizes, common, options)
    owned = [
        0 if needs is None or not needs.owns(of) else request.nbytes(text)
        for (needs, text), of in zip(prepared, dtypes, strict=True)
    ]
    output = "".join(x for x in subscripts.output if sizes[x] > 1)
    steps, peak = _steps_within_limit(request, letters, output, owned, subscripts.text)
    has_ones = any(extent == 1 for extent in shape)
    index = tuple(None if extent == 1 else slice(None) for extent in shape) if has_ones else None
    return found(tuple(needs for needs, _ in prepared), tuple(steps), index, peak)


def _steps_within_limit(
    request: Request, letters: Sequence[str], output: str, owned: Sequence[int], text: str
) -> tuple[list[ExpressionStep], int]:
    """Return the steps and the bytes that they take at most, which `memory_limit` bounds."""
    limit = inf if request.options.memory_limit is None else request.options.memory_limit
    steps = _steps(request, letters, output)
    peak = _peak(owned, steps)
    if peak > limit:
        steps = _steps(replace(request, transposes_batches=False), letters, output)
        peak = _peak(owned, steps)
    if peak > limit:
        raise MemoryLimitError(
            f"{text!r} needs {peak} bytes beside its operands and its result, "
            f"memory_limit is {request.options.memory_limit}"
        )
    return steps, peak


def _steps(request: Request, letters: Sequence[str], output: str) -> list[ExpressionStep]:
    if len(letters) > 1:
        return contraction_steps(request, letters, output)
    axes = tuple(letters[0].index(x) for x in output)
    kernel = Transpose(f"{letters[0]}->{output}", axes)
    return [ExpressionStep((0,), kernel, "one operand", 0, request.nbytes(output), 0)]


def _whole(
    subscripts: Subscripts,
    sizes: dict[str, int],
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any],
    options: Options,
) -> tuple[Loops | Zeros, str] | None:
    """Return what computes all of an einsum at once, where that is best, and why."""
    shape = tuple(sizes[x] for x in subscripts.output)
    if 0 in sizes.values():
        return Zeros(str(subscripts), shape, dtype), "an extent is 0"
    operands = len(subscripts.operands)
    asked = operands > 2 and not isinstance(options.optimize, bool | None)  # for an order of pairs
    if asked or len(sizes) > len(ascii_letters) or operands > MAX_LOOP_OPERANDS:
        return None
    products = prod(sizes.values())
    loops = Loops.of(subscripts.operands, subscripts.output, dtype)
    if operands == 1 and set(sizes) == set(subscripts.output):
        if dtypes[0] == dtype:
            return replace(loops, route="view"), "nothing is summed"
        return None
    if dtype.hasobject and (operands <= 2 or not options.optimize):
        return loops, dispatch.WHY_OBJECTS
    if products <= policy.EINSUM_LOOP_PRODUCTS:
        return loops, why_loops(products)
    return None


def _prepared(
    subscripts: Subscripts,
    number: int,
    wide: Sequence[str],
    given: np.dtype[Any],
    dtype: np.dtype[Any],
) -> tuple[Preparation | None, str]:
    """Return what an operand needs before it meets others, and its letters then."""
    written, here = subscripts.operands[number], wide[number]
    others = {x for at, text in enumerate(wide) if at != number for x in text}
    once = "".join(dict.fromkeys(here))
    lone = [x for x in once if x not in others and x not in subscripts.output]
    left = "".join(x for x in once if x not in lone)
    if left == written and given == dtype:
        return None, left
    index = None
    if here != written:
        index = (*(slice(None) if x in here else 0 for x in written), Ellipsis)
    return (
        Preparation(
            f"{written}->{left}",
            index,
            in_ascii(f"{here}->{once}") if once != here else "",
            tuple(once.index(x) for x in lone),
            dtype,
        ),
        left,
    )


def _peak(owned: Sequence[int], steps: Sequence[ExpressionStep]) -> int:
    """Return the most bytes that exist at once, without the user's arrays."""
    held = list(owned)
    most = sum(held)
    for number, step in enumerate(steps, 1):
        result = step.result if number < len(steps) else 0
        most = max(most, sum(held) + result + step.copies)
        held = [size for at, size in enumerate(held) if at not in step.takes] + [result]
    return most


def _shape(given: Any, number: int) -> tuple[int, ...]:  # noqa: ANN401 - anything with a shape
    """Return the shape of an operand as the user gave it."""
    extents = getattr(given, "shape", given)
    try:
        shape = tuple(int(extent) for extent in extents if int(extent) == extent)
        whole = len(shape) == len(extents) and all(extent >= 0 for extent in shape)
    except (TypeError, ValueError):
        whole = False
    if not whole:
        raise SizeError(
            f"the shape of operand {number} must be extents of 0 or more, not {given!r}"
        )
    return shape
