"""numpy's `einsum` and `tensordot`, computed by expressions that are kept."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from string import ascii_letters
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from numpy import einsum as numpy_einsum  # by their names, as a user may put ours in their places
from numpy import tensordot as numpy_tensordot

from tilesolve.constants.tuning import MAX_KEPT_EINSUMS
from tilesolve.contractions.arrays import is_tensor, view_output
from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.letters import fresh
from tilesolve.contractions.subscripts import from_lists, read
from tilesolve.expressions.compile import MAX_AXES, compile_expression
from tilesolve.expressions.dispatch import Options
from tilesolve.expressions.expression import Expression
from tilesolve.packing.memory_overlap import Array
from tilesolve.system.checks import as_array, as_dtype, check_output, common_dtype
from tilesolve.system.files import read_setting
from tilesolve.system.result_buffers import begins_with_line, is_new_aligned

Order = Literal["K", "A", "C", "F"]
Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]

_calls: dict[Hashable, Callable[..., Any]] = {}
_expressions: dict[Hashable, Expression] = {}


def einsum(
    subscripts: Any = "",  # noqa: ANN401 - text, or the first operand of the list format
    *operands: Any,  # noqa: ANN401 - array-likes, and lists in the list format
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
    order: Order | None = "K",
    casting: Casting = "safe",
    threads: int | None = None,
    optimize: Any = True,  # noqa: ANN401 - what opt_einsum takes
    memory_limit: int | None = None,
) -> Any:  # noqa: ANN401 - an array, or a number
    """Sum products of operands over letters, as `numpy.einsum` does.

    All of numpy's notation is understood: an implicit output, an ellipsis, letters repeated in
    an operand, axes of extent 1 that are broadcast, and the format with lists of integers.
    Large contractions of float32, float64, complex64 and complex128 run by plans of ours, and so
    do those of float16 and bfloat16, with sums in float32, rounded once. Smaller ones, other dtypes
    (integers and truth values are exact, as in numpy) and sums that are no matrix products run by
    numpy; ``print(expression(...))`` shows which. It is decided by shapes and dtypes alone, so that
    a call repeats bit by bit; for results past the caches also by whether `out` begins with a line.

    Parameters
    ----------
    subscripts
        Such as ``"ij,jk->ik"``, or the first operand of numpy's list format.
    *operands
        Arrays, or values that numpy makes arrays of numbers of. Objects are multiplied and added as
        they define it. Where an operand has an ``__array_function__`` of its own, it computes.
    out
        Where the result goes: an array, or a tensor that exports its memory. Where it shares
        memory with an operand, the result is computed into a temporary array first, as numpy does.
        One without axes takes a number of any dtype that keeps its value, unless `optimize` is
        False.
    dtype
        To compute in; else the dtype that numpy promotes the operands and `out` to.
    order
        Memory layout of the result; ``"K"`` leaves it open, as None does.
    casting
        The rule by which operands and result may be cast.
    threads
        That share the work of plans; see `plan`. If a number is given, numpy's BLAS takes no more
        for the steps that it does; the bound holds for the whole process meanwhile.
    optimize
        The order of three or more operands: anything that opt_einsum takes, such as ``"greedy"``
        or a list of pairs, and what `einsum_path` returns. False goes from left to right.
    memory_limit
        Bytes that intermediate results and copies may take at any time; operands are taken to be
        contiguous, and `out` to have the result's dtype and memory of its own.

    Returns
    -------
    numpy.ndarray
        `out`, or the result; one without axes is a number. One operand of which nothing is
        summed gives a view of it, which can be written to.

    Raises
    ------
    SpecError, SizeError, DtypeError, PlanError
        If subscripts, operands and `out` do not fit; nothing has been written then.
    PathError
        If the order in `optimize` does not exist, or leaves operands over.
    MemoryLimitError
        If no order keeps to the limit.
    MachineError
        If `threads` is no positive integer.

    Examples
    --------
    >>> a = np.arange(6).reshape(2, 3)
    >>> einsum("ij,kj", a, a).tolist()
    [[5, 14], [14, 50]]
    >>> einsum("...j->...", a).tolist(), einsum("ii->i", a[:, :2]).tolist()
    ([3, 12], [0, 4])
    >>> einsum(a, [0, 1], [1, 0]).shape
    (3, 2)
    """
    options = (dtype, order, casting, threads, optimize, memory_limit)
    key: Hashable = None
    try:
        if len(operands) == 2:  # without a loop, as these are called most
            one, two = operands
            key = (
                *(subscripts, one.shape, two.shape, one.dtype, two.dtype),
                *(type(one), type(two), options),
            )
        elif len(operands) == 1:
            (one,) = operands
            key = (subscripts, one.shape, one.dtype, type(one), options)
        elif len(operands) == 3:
            one, two, three = operands
            key = (
                *(subscripts, one.shape, two.shape, three.shape, options),
                *(one.dtype, two.dtype, three.dtype, type(one), type(two), type(three)),
            )
        else:
            shapes, dtypes = [x.shape for x in operands], [x.dtype for x in operands]
            key = (subscripts, options, *shapes, *dtypes, *map(type, operands))
        call = None if out is not None else _calls.get(key)
    except (AttributeError, TypeError):  # no arrays, or options that have no hash
        call = key = None
    if call is not None:
        return call(*operands)
    return _general(key, subscripts, operands, out, options)


def tensordot(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    axes: Any = 2,  # noqa: ANN401 - a number, or two lists
    *,
    threads: int | None = None,
) -> Array:
    """Sum products over axes of two arrays, as `numpy.tensordot` does.

    Parameters
    ----------
    a, b
        Arrays, or values that numpy makes arrays of numbers of.
    axes
        How many of the last axes of `a` and the first of `b` are summed over; or two lists of
        axes, or two axes.
    threads
        As in `einsum`.

    Returns
    -------
    numpy.ndarray
        Its axes are those of `a` that are left, then those of `b`.

    Raises
    ------
    SizeError
        If axes do not exist or have different extents.

    Examples
    --------
    >>> tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), ([1, 2], [1, 0])).shape
    (2, 5)
    >>> tensordot(np.ones((2, 3)), np.ones((4, 5)), 1)
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: tensordot sums over axis 1 of a, which has 3, \
and axis 0 of b, which has 4
    """
    owner = find_override((a, b))
    if owner is not None:
        check_no_options(owner, threads=threads)
        return numpy_tensordot(a, b, axes)  # type: ignore[arg-type] # of another library
    first, second = as_array(a, 0), as_array(b, 1)
    text, pairs = _tensordot_text(first.ndim, second.ndim, _axes(axes, first.ndim))
    for one, two in pairs:
        if first.shape[one] != second.shape[two]:
            raise SizeError(
                f"tensordot sums over axis {one} of a, which has {first.shape[one]}, "
                f"and axis {two} of b, which has {second.shape[two]}"
            )
    return np.asarray(einsum(text, first, second, threads=threads))


def _general(
    key: Hashable,
    subscripts: Any,  # noqa: ANN401
    operands: Sequence[Any],
    out: Array | None,
    options: tuple[Any, ...],
) -> Any:  # noqa: ANN401
    """Compute any einsum, and keep the call under its key."""
    dtype, order, casting, threads, optimize, memory_limit = options
    owner = find_override((subscripts, *operands, out))
    if owner is not None:
        return _theirs(owner, (subscripts, *operands), out, options)
    if is_tensor(out):
        _general(key, subscripts, operands, view_output(out, "out"), options)
        return out
    if not isinstance(subscripts, str | bytes):
        subscripts, operands = from_lists((subscripts, *operands))
        key = None  # which does not say what the operands are
    order = "K" if order is None else order
    if isinstance(order, str):  # numpy takes lower case too
        order = order.upper()
    if not operands:
        raise SpecError(f"einsum needs an operand beside {subscripts!r}")
    arrays = [as_array(array, number) for number, array in enumerate(operands)]
    if any(map(is_tensor, operands)):
        key = None  # a kept call takes arrays alone
    dtypes = [array.dtype for array in arrays]
    if isinstance(out, np.ndarray):
        as_dtype(out.dtype, "out")
    _check_choice("order", order, get_args(Order))
    _check_choice("casting", casting, get_args(Casting))
    dtype = None if dtype is None else as_dtype(dtype, "dtype")
    if out is None and len(arrays) == 1 and read(subscripts, [arrays[0].ndim]).is_view:
        dtype, order, casting = None, "K", "safe"  # numpy returns a view, whatever is given
    computed = _computed(dtypes, out, dtype, casting)
    large = isinstance(out, np.ndarray) and is_new_aligned(out.nbytes)
    aligned = out is None or not large or begins_with_line(out)
    wanted = Options(threads, optimize, memory_limit, called_once=True, aligned_output=aligned)

    shapes = [array.shape for array in arrays]
    known = (
        *(subscripts, tuple(shapes), tuple(dtypes), computed, threads, memory_limit, aligned),
        *(repr(optimize), read_setting("TILESOLVE_NUM_THREADS"), read_setting("TILESOLVE_MACHINE")),
    )
    found = _expressions.get(known)
    if found is None:
        form = read(subscripts, [array.ndim for array in arrays])
        found = compile_expression(form, shapes, dtypes, computed, wanted)
        if len(_expressions) >= MAX_KEPT_EINSUMS:
            _expressions.clear()
        _expressions[known] = found
    if out is None and order == "K":
        # A plan depends on settings, which a kept call does not look at.
        arrived = all(isinstance(operand, np.ndarray) for operand in operands)
        if key is not None and arrived and not found.planned:
            if len(_calls) >= MAX_KEPT_EINSUMS:
                _calls.clear()
            _calls[key] = found.call
        return found.run(*arrays)
    return _placed(found, arrays, out, order, casting, bool(optimize))


def _theirs(
    owner: object,
    arguments: Sequence[Any],
    out: Any,  # noqa: ANN401
    options: tuple[Any, ...],
) -> Any:  # noqa: ANN401
    """Have the library of an operand compute an einsum, with the options that were given."""
    dtype, order, casting, threads, optimize, memory_limit = options
    check_no_options(owner, threads=threads, memory_limit=memory_limit)
    given = {"out": out, "dtype": dtype, "order": None if order == "K" else order}
    given["casting"] = None if casting == "safe" else casting
    given["optimize"] = None if optimize is True else optimize
    return numpy_einsum(*arguments, **{k: v for k, v in given.items() if v is not None})


def forget_calls() -> None:
    """Forget earlier calls: the next one of each kind is compiled and planned anew."""
    _calls.clear()
    _expressions.clear()


def _computed(
    dtypes: Sequence[np.dtype[Any]],
    out: Array | None,
    dtype: npt.DTypeLike | None,
    casting: Casting,
) -> np.dtype[Any] | None:
    """Return the dtype to compute in, after checking that operands may be cast to it.

    None is the common dtype of the operands themselves.
    """
    also = [out.dtype] if isinstance(out, np.ndarray) else []
    wanted = common_dtype([*dtypes, *also]) if dtype is None else as_dtype(dtype, "dtype")
    alone = dtype is None and len(dtypes) == 1
    wanted = wanted.newbyteorder("=")
    for number, given in enumerate(dtypes):
        kind = given.newbyteorder("=") if alone else wanted
        _check_cast(given, kind, casting, f"operand {number}")
    return None if dtype is None and out is None else wanted


def _check_choice(name: str, given: object, known: Sequence[str]) -> None:
    if not isinstance(given, str) or given not in known:
        raise SpecError(f"the {name} is one of {', '.join(known)}, not {given!r}")


def _check_cast(given: np.dtype[Any], wanted: np.dtype[Any], casting: Casting, name: str) -> None:
    if not np.can_cast(given, wanted, casting):
        raise DtypeError(f"{name} cannot be cast from {given} to {wanted} by casting={casting!r}")


def _placed(
    found: Expression,
    arrays: Sequence[Array],
    out: Array | None,
    order: Order,
    casting: Casting,
    optimize: bool,
) -> Any:  # noqa: ANN401
    """Compute an expression into `out`, or into a new array of some memory layout."""
    if out is None:
        result = found.run(*arrays)
        if order == "A":
            order = "F" if all(array.flags.f_contiguous for array in arrays) else "C"
        return np.asarray(result, order=order) if np.ndim(result) else result
    form = found.subscripts
    target = check_output(out, f"out of {form.text!r}", found.shape, letters=form.output)
    if target.dtype == found.dtype:
        found.run(*arrays, out=target)
    elif not target.ndim and len(arrays) > 1 and optimize:
        _place_number(np.asarray(found.run(*arrays), found.dtype), target, casting)
    else:
        _check_cast(found.dtype, target.dtype, casting, "the result")
        target[...] = np.array(found.run(*arrays), found.dtype)
    return out


def _place_number(number: Array, out: Array, casting: Casting) -> None:
    """Write a number to an `out` without axes.

    numpy asks for no `casting` there. Here a cast of another kind is refused if it changes a value.
    """
    kept = np.can_cast(number.dtype, out.dtype, "same_kind")
    if not kept and number.dtype.kind != "c":
        with np.errstate(all="ignore"):
            kept = bool(number.astype(out.dtype) == number)
    if not kept:
        _check_cast(number.dtype, out.dtype, casting, f"the result {number[()]}")
    out[...] = number


@lru_cache(maxsize=MAX_KEPT_EINSUMS)
def _tensordot_text(
    first: int, second: int, axes: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a tensordot as einsum writes it, and the pairs of axes that are summed."""
    for name, order, chosen in zip("ab", (first, second), axes, strict=True):
        for axis in chosen:
            if not -order <= axis < order:
                raise SizeError(
                    f"tensordot sums over axis {axis} of {name}, which has {order} axes"
                )
    if len(axes[0]) != len(axes[1]):
        raise SizeError(
            f"tensordot sums over {len(axes[0])} axes of a and {len(axes[1])} axes of b"
        )
    pairs = tuple((x % first, y % second) for x, y in zip(*axes, strict=True))
    for name, chosen in zip("ab", zip(*pairs, strict=True), strict=False):
        if len(set(chosen)) < len(chosen):
            raise SizeError(f"tensordot sums twice over an axis of {name}: {chosen}")
    letters = "".join(islice(fresh(ascii_letters), first + second))
    left, right = list(letters[:first]), list(letters[first:])
    for one, two in pairs:
        right[two] = left[one]
    kept = [x for x in left if x not in right] + [x for x in right if x not in left]
    return f"{''.join(left)},{''.join(right)}->{''.join(kept)}", pairs


def _axes(axes: Any, order: int) -> tuple[tuple[int, ...], tuple[int, ...]]:  # noqa: ANN401
    """Return tensordot's axes as two tuples."""
    try:
        number = operator.index(axes)
    except TypeError:
        try:
            one, two = (tuple(map(operator.index, of if np.iterable(of) else (of,))) for of in axes)
        except (TypeError, ValueError):
            raise SizeError(
                f"tensordot's axes are a number or two lists of numbers, not {axes!r}"
            ) from None
        return one, two
    if not 0 <= number <= MAX_AXES:
        raise SizeError(f"tensordot sums over 0 to {MAX_AXES} axes, not {number}")
    return tuple(range(order - number, order)), tuple(range(number))


def find_override(arguments: Iterable[object]) -> object:
    """Return the first argument that has an `__array_function__` of its own, or None."""
    for argument in arguments:
        own = getattr(type(argument), "__array_function__", None)
        if own is not None and own is not np.ndarray.__array_function__:
            return argument
    return None


def check_no_options(owner: object, **options: object) -> None:
    """Raise `DtypeError` for an option of ours that another library would have to heed."""
    for name, value in options.items():
        if value is not None:
            raise DtypeError(
                f"{name}={value!r} is for numpy arrays; {type(owner).__name__} computes for itself"
            )
