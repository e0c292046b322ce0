"""Expressions: an einsum that is read, ordered and planned once, and called many times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy._core.multiarray import c_einsum

from tilesolve.contractions.errors import DtypeError, MemoryLimitError, SizeError
from tilesolve.contractions.subscripts import Subscripts, read
from tilesolve.network import Settings, Step, arranged
from tilesolve.outputs import check_output
from tilesolve.steps import KERNEL, LOOPED, Loops, Prepare, Transpose, Zeros, flops, in_ascii

Array = npt.NDArray[Any]

NUMPY_OPERANDS = 16
"""Operands that numpy's loops take at once; more are contracted in pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """An einsum for operands of given shapes and dtypes, ready to be called.

    `expression` makes one. Printing it shows what runs: each step, by which way and why, what is
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
        For each operand what it needs before the steps; None if nothing.
    steps
        What runs, in this order.
    index
        What adds the axes of extent 1 to the last step's result; None if there are none.
    peak
        Bytes of copies and intermediate results while it runs, beside operands and result.

    Examples
    --------
    >>> chain = expression("ij,jk,kl->il", (2, 3), (3, 40), (40, 2))
    >>> chain(np.ones((2, 3)), np.ones((3, 40)), np.ones((40, 2))).tolist()
    [[120.0, 120.0], [120.0, 120.0]]
    """

    subscripts: Subscripts
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    prepare: tuple[Prepare | None, ...]
    steps: tuple[Step, ...]
    index: tuple[Any, ...] | None
    peak: int

    def __call__(self, *operands: npt.ArrayLike, out: Array | None = None) -> Any:  # noqa: ANN401
        """Compute it.

        Parameters
        ----------
        *operands
            Of the expression's shapes and dtypes; any strides, never modified.
        out
            Where the result goes; a new array if None. It may not share memory with an operand.

        Returns
        -------
        numpy.ndarray
            `out`, or the result; one without axes is a number. An expression of one operand that
            sums nothing returns a view of it.

        Raises
        ------
        SizeError, DtypeError, PlanError
            If an operand or `out` is not what the expression is for.

        Examples
        --------
        >>> total = np.zeros(2)
        >>> expression("ij->i", (2, 3))(np.ones((2, 3)), out=total) is total, total.tolist()
        (True, [3.0, 3.0])
        """
        arrays = self._checked(operands)
        if out is None:
            return self.run(*arrays)
        text = self.subscripts.text
        check_output(out, self.subscripts.output, self.shape, arrays, text)
        if out.dtype != self.dtype:
            raise DtypeError(f"out of {text!r} is {out.dtype}, the result is {self.dtype}")
        return self.run(*arrays, out=out)

    def run(self, *operands: Array, out: Array | None = None) -> Any:  # noqa: ANN401
        """Compute it for operands and an `out` that have been checked.

        Examples
        --------
        >>> expression("i,i", (2,), (2,)).run(np.ones(2), np.ones(2))
        np.float64(2.0)
        """
        arrays = [
            np.asarray(array) if needs is None else needs(np.asarray(array))
            for array, needs in zip(operands, self.prepare, strict=True)
        ]
        target = out
        if out is not None and self.index is not None:
            target = out[tuple(0 if at is None else at for at in self.index)]
        for number, step in enumerate(self.steps, 1):
            taken = [arrays[position] for position in step.takes]
            arrays = [array for at, array in enumerate(arrays) if at not in step.takes]
            arrays.append(step.kernel(*taken, out=target if number == len(self.steps) else None))
        if out is not None:
            return out
        (result,) = arrays
        if self.index is not None:
            result = result[self.index]
        return result if result.ndim else result[()]

    @property
    def call(self) -> Callable[..., Any]:
        """The fastest way to compute it for checked operands and without an `out`.

        Examples
        --------
        >>> expression("i,i", (2,), (2,)).call(np.ones(2), np.ones(2))
        np.float64(2.0)
        """
        kernel = self.steps[0].kernel
        whole = len(self.steps) == 1 and not any(self.prepare) and self.index is None
        if whole and isinstance(kernel, Loops):
            if all(dtype == self.dtype for dtype in self.dtypes):
                return partial(c_einsum, kernel.run)
            return partial(c_einsum, kernel.run, dtype=self.dtype, casting="unsafe")
        return self.run

    @property
    def planned(self) -> bool:
        """Whether a plan of ours runs in it.

        Examples
        --------
        >>> expression("ij,jk", (2, 2), (2, 2)).planned
        False
        """
        return any(step.kernel.way == "plan" for step in self.steps)

    @property
    def flops(self) -> int:
        """Operations on numbers, of all steps.

        Examples
        --------
        >>> expression("ij,jk", (2, 3), (3, 4)).flops
        48
        """
        return sum(step.flops for step in self.steps)

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
        ways = ", ".join(step.kernel.way for step in self.steps)
        return f"<Expression {self.subscripts.text!r} of {shapes} {self.dtype}: {ways}>"

    def __str__(self) -> str:
        from tilesolve.reusable_report import report

        return report(self)


def expression(
    subscripts: str,
    *shapes: Any,  # noqa: ANN401 - tuples, or whatever has a shape
    dtype: npt.DTypeLike = "float64",
    threads: int | None = None,
    optimize: Any = True,  # noqa: ANN401 - what opt_einsum takes
    memory_limit: int | None = None,
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
        That share the work of plans; see `plan`.
    optimize
        The order of three or more operands: anything that opt_einsum takes, such as ``"greedy"``
        or a list of pairs. False goes from left to right.
    memory_limit
        Bytes that intermediate results and copies may take at any time.

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
    given = np.dtype(dtype)
    dtypes = [np.dtype(getattr(shape, "dtype", given)) for shape in shapes]
    for number, of in enumerate(dtypes):
        check_dtype(of, f"operand {number}")
    settings = Settings(KERNEL, threads, optimize, memory_limit)
    return compiled(read(subscripts, list(map(len, extents))), extents, dtypes, None, settings)


def compiled(
    subscripts: Subscripts,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any] | None,
    settings: Settings,
) -> Expression:
    """Return the expression for subscripts that have been read.

    Parameters
    ----------
    subscripts
        A letter for each axis.
    shapes, dtypes
        Of the operands.
    dtype
        To compute in; the operands' common one if None.
    settings
        What the user asks for.

    Examples
    --------
    >>> found = compiled(read("ij->ji", [2]), [(2, 3)], [np.dtype(int)], None, Settings())
    >>> found.steps[0].kernel.way
    'view'
    """
    common = common_dtype(dtypes) if dtype is None else dtype
    sizes = subscripts.sizes(shapes)
    shape = tuple(sizes[x] for x in subscripts.output)
    thin = any(extent == 1 for extent in shape)
    found = partial(Expression, subscripts, tuple(shapes), tuple(dtypes), shape, common)
    if kernel := _whole(subscripts, sizes, dtypes, common):
        work = flops(subscripts.operands, subscripts.output, sizes, common)
        step = Step(tuple(range(len(shapes))), *kernel, work, prod(shape) * common.itemsize, 0)
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
    output = "".join(x for x in subscripts.output if sizes[x] > 1)
    result = prod(shape) * common.itemsize
    if len(letters) == 1:
        axes = tuple(letters[0].index(x) for x in output)
        turn = Transpose(f"{letters[0]}->{output}", axes)
        steps = [Step((0,), turn, "one operand", 0, result, 0)]
    else:
        steps = arranged(letters, output, sizes, common, settings)
    owned = [
        0 if needs is None or not needs.owns(of) else prod(sizes[x] for x in text) * common.itemsize
        for (needs, text), of in zip(prepared, dtypes, strict=True)
    ]
    peak = _peak(owned, steps)
    if settings.memory_limit is not None and peak > settings.memory_limit:
        raise MemoryLimitError(
            f"{subscripts.text!r} needs {peak} bytes beside its operands and its result, "
            f"memory_limit is {settings.memory_limit}"
        )
    index = tuple(None if extent == 1 else slice(None) for extent in shape) if thin else None
    return found(tuple(needs for needs, _ in prepared), tuple(steps), index, peak)


def _whole(
    subscripts: Subscripts,
    sizes: dict[str, int],
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any],
) -> tuple[Loops | Zeros, str] | None:
    """Return what computes all of an einsum at once, where that is best, and why."""
    shape = tuple(sizes[x] for x in subscripts.output)
    if 0 in sizes.values():
        return Zeros(str(subscripts), shape, dtype), "an extent is 0"
    if len(set(sizes)) > 52 or len(subscripts.operands) > NUMPY_OPERANDS:
        return None
    count = prod(sizes.values())
    loops = Loops.of(subscripts.operands, subscripts.output, dtype)
    if len(subscripts.operands) == 1 and set(sizes) == set(subscripts.output):
        if dtypes[0] == dtype:
            return replace(loops, way="view"), "nothing is summed"
        return None
    return (loops, f"{count} multiplications") if count <= LOOPED else None


def _prepared(
    subscripts: Subscripts,
    number: int,
    wide: Sequence[str],
    given: np.dtype[Any],
    dtype: np.dtype[Any],
) -> tuple[Prepare | None, str]:
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
        Prepare(
            f"{written}->{left}",
            index,
            in_ascii(f"{here}->{once}") if once != here else "",
            tuple(once.index(x) for x in lone),
            dtype,
        ),
        left,
    )


def _peak(owned: Sequence[int], steps: Sequence[Step]) -> int:
    """Return the most bytes at hand at once, beside the user's arrays."""
    at_hand = list(owned)
    most = sum(at_hand)
    for number, step in enumerate(steps, 1):
        result = step.result if number < len(steps) else 0
        most = max(most, sum(at_hand) + result + step.copies)
        at_hand = [size for at, size in enumerate(at_hand) if at not in step.takes] + [result]
    return most


def common_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype that numpy promotes all to, in the machine's byte order.

    Examples
    --------
    >>> common_dtype([np.dtype("f4"), np.dtype("i4")])
    dtype('float64')
    """
    return np.result_type(*dtypes).newbyteorder("=")


def check_dtype(dtype: np.dtype[Any], name: str) -> None:
    """Raise `DtypeError` unless a dtype is one of numbers or truth values.

    Examples
    --------
    >>> check_dtype(np.dtype(object), "operand 0")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.DtypeError: operand 0 is object; einsum takes numbers and booleans
    """
    if dtype.kind not in "biufc":
        raise DtypeError(f"{name} is {dtype}; einsum takes numbers and booleans")


def as_array(value: npt.ArrayLike, number: int) -> Array:
    """Return an operand as an array.

    Examples
    --------
    >>> as_array([[1, 2], [3]], 1)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.DtypeError: operand 1 is no array: setting an array element \
with a sequence. The requested array has an inhomogeneous shape after 1 dimensions. The detected \
shape was (2,) + inhomogeneous part.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DtypeError(f"operand {number} is no array: {error}") from error
    if array.dtype.kind not in "biufc":
        what = f"{array.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise DtypeError(f"operand {number} is {what}; einsum takes numbers and booleans")
    return array


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
