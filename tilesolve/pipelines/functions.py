"""NumPy's functions of elements, sums and products of matrices, as they are traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod
from operator import index
from typing import Any, TypeVar

import numpy as np

from tilesolve.contractions.errors import TraceError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import SEARCHES, identity, reduced_dtype
from tilesolve.contractions.statements.scans import SCANS, Scan
from tilesolve.contractions.statements.terms import Choose, Position, Read, Reduce, Term, apply
from tilesolve.pipelines.graph import Graph, axis_letters
from tilesolve.pipelines.indexing import broadcast
from tilesolve.pipelines.numbers import cast, filling
from tilesolve.pipelines.traced import (
    FUNCTIONS,
    METHODS,
    Traced,
    as_traced,
    combine,
    graph_of,
    new_array,
)

_F = TypeVar("_F", bound=Callable[..., Any])

Axes = int | Sequence[int] | None


def traces(*functions: Any, method: str = "") -> Callable[[_F], _F]:
    """Have a function traced in the place of NumPy's, and of the method of that name."""

    def put(found: _F) -> _F:
        FUNCTIONS.update(dict.fromkeys(functions, found))
        if method:
            METHODS[method] = found
        return found

    return put


def axis_of(axis: int, count: int) -> int:
    """Return an axis as a number from the first one on."""
    return index(axis) % max(count, 1)


def read_axes(axis: Axes, count: int) -> tuple[int, ...]:
    """Return axes as numbers from the first one on; all of them if None."""
    given = range(count) if axis is None else axis
    return tuple(axis_of(one, count) for one in (given if np.iterable(given) else (given,)))


@traces(np.where)
def _where(*given: Any) -> Traced:
    if len(given) != 3:
        raise TraceError("how many positions there are depends on values")
    test = as_traced(graph_of(given), given[0])
    return combine(Choose, test.astype(bool, copy=False), *given[1:])


@traces(np.clip, method="clip")
def _clip(
    array: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **named: Any
) -> Traced:
    low, high = named.pop("min", a_min), named.pop("max", a_max)
    if named:
        raise TraceError(f"pipelines do not have {', '.join(named)} of clip")
    ends = [one for one in (low, high) if one is not None]
    array = as_traced(graph_of((array, *ends)), array)
    kinds = (getattr(one, "dtype", one) for one in (array, *ends))
    found = array.astype(np.result_type(*kinds), copy=not ends)
    found = found if low is None else combine(partial(apply, "maximum"), found, low)
    return found if high is None else combine(partial(apply, "minimum"), found, high)


traces(np.real)(lambda array: array.real)
traces(np.imag)(lambda array: array.imag)
traces(np.angle)(lambda array: np.arctan2(array.imag, array.real))
METHODS["conj"] = METHODS["conjugate"] = lambda array: (
    np.conjugate(array) if array.dtype.kind == "c" else array
)


@traces(np.round, np.around, method="round")
def _round(array: Traced, decimals: int = 0, out: Any = None) -> Traced:
    if decimals:
        raise TraceError("it rounds to decimals")
    return array.copy() if array.dtype.kind in "iu" else combine(partial(apply, "rint"), array)


def _triangle(keep: str, array: Traced, k: int = 0) -> Traced:
    if array.ndim == 1:
        array = array.make(array.element((array.size,) * 2), (array.size,) * 2)
    row, column = axis_letters(array.ndim)[-2:]
    test = apply(keep, Position(column - row), k)
    zero = filling(0, array.dtype.name)
    return array.make(Choose(test, array.element(array.shape), zero), array.shape)


traces(np.tril)(partial(_triangle, "less_equal"))
traces(np.triu)(partial(_triangle, "greater_equal"))


def reduce_axes(
    array: Traced,
    name: str,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    **more: Any,
) -> Traced:
    """Return a reduction along some axes."""
    if more:
        raise TraceError(f"pipelines do not have {', '.join(more)} of reductions")
    if axis is not None and (name in SEARCHES or not isinstance(axis, tuple)):
        axis = (index(axis),)
    axes = () if not array.ndim and axis in ((0,), (-1,)) else sorted(read_axes(axis, array.ndim))
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    if name.startswith("logical"):
        array = array.astype(bool, copy=False)
        name = {"logical_and": "bitwise_and", "logical_or": "bitwise_or"}[name]
    kept = [one for one in range(array.ndim) if one not in axes]
    shape = tuple(array.shape[one] for one in kept)
    over = {one: array.graph.letter(array.shape[one]) for one in axes}
    at = dict(zip(kept, axis_letters(len(kept)), strict=True))
    at |= {one: Affine.letter(letter) for one, letter in over.items()}
    element = array.read([at[one] for one in range(array.ndim)])
    term = _reduced(array.graph, name, over.values(), element, array.dtype.name)
    found = array.make(term, shape)
    if keepdims:
        found = found[tuple(None if one in axes else slice(None) for one in range(array.ndim))]
    return found if dtype is None else found.astype(dtype, copy=False)


def _reduced(graph: Graph, name: str, over: Iterable[str], term: Term, kind: str) -> Term:
    """Return a reduction of a term over those letters that it has: others have one value."""
    over = tuple(over)
    if not all(graph.extents[letter] for letter in over):
        return filling(identity(name, kind), reduced_dtype(name, kind))
    used = tuple(letter for letter in over if letter in term.letters)
    if not used and name in SEARCHES:
        return filling(0, "int64")
    return Reduce(name, used, term) if used else cast(term, kind, reduced_dtype(name, kind))


METHODS["reduce"] = reduce_axes
for _function, _method, _name in (
    (np.sum, "sum", "add"),
    (np.prod, "prod", "multiply"),
):
    traces(_function, method=_method)(
        lambda array, axis=None, dtype=None, out=None, keepdims=False, *, _name=_name, **more: (
            reduce_axes(array, _name, axis, dtype, keepdims, **more)
        )
    )
for _functions, _method, _name in (
    ((np.min, np.amin), "min", "minimum"),
    ((np.max, np.amax), "max", "maximum"),
    ((np.any,), "any", "logical_or"),
    ((np.all,), "all", "logical_and"),
    ((np.argmin,), "argmin", "argmin"),
    ((np.argmax,), "argmax", "argmax"),
):
    traces(*_functions, method=_method)(
        lambda array, axis=None, out=None, keepdims=False, *, _name=_name, **more: reduce_axes(
            array, _name, axis, None, keepdims, **more
        )
    )


def scan_axis(array: Traced, name: str, axis: int | None = None, dtype: Any = None) -> Traced:
    """Return what a term is put together to from the first element of an axis on."""
    if axis is None or (not array.ndim and axis in (0, -1)):
        array, axis = array.reshape(-1), 0
    if dtype is not None:
        array = array.astype(dtype, copy=False)
    letter = str(axis_letters(array.ndim)[axis_of(axis, array.ndim)])
    element = array.element(array.shape)
    if letter not in element.letters or not isinstance(element, Read) or element.plain is None:
        element = array.copy().element(array.shape)
    found = array.make(Scan(name, letter, element), array.shape)
    return found if dtype is None else found.astype(dtype, copy=False)


for _name in ("cumsum", "cumprod"):
    traces(getattr(np, _name), method=_name)(
        lambda array, axis=None, dtype=None, out=None, *, _name=_name: scan_axis(
            array, _name, axis, dtype
        )
    )


def _accumulate(array: Traced, name: str, axis: int = 0, dtype: Any = None) -> Traced:
    named = [scan for scan, operation in SCANS.items() if operation == name]
    if not named:
        raise TraceError(f"pipelines do not have {name} as it is called here")
    return scan_axis(array, named[0], axis, dtype)


METHODS["accumulate"] = _accumulate
traces(np.ptp)(
    lambda array, axis=None, out=None, keepdims=False: (
        array.max(axis, keepdims=keepdims) - array.min(axis, keepdims=keepdims)
    )
)
traces(np.count_nonzero)(lambda array, *given, **named: array.astype(bool).sum(*given, **named))


def _count(array: Traced, axis: Axes) -> int:
    return prod(array.shape[one] for one in read_axes(axis, array.ndim))


@traces(np.mean, method="mean")
def _mean(
    array: Traced, axis: Axes = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Any:
    kind = "float64" if dtype is None and array.dtype.kind not in "fc" else dtype
    found = reduce_axes(array, "add", axis, kind, keepdims) / _count(array, axis)
    return found if dtype is None else found.astype(dtype, copy=False)


@traces(np.var, method="var")
def _var(
    array: Traced,
    axis: Axes = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Any:
    array = array if dtype is None else array.astype(dtype, copy=False)
    apart = array - _mean(array, axis, keepdims=True)
    squares = (apart * np.conjugate(apart)).real if array.dtype.kind == "c" else apart * apart
    found = reduce_axes(squares, "add", axis, keepdims=keepdims)
    return found / max(_count(array, axis) - ddof, 0)


traces(np.std, method="std")(
    lambda array, axis=None, dtype=None, out=None, ddof=0, keepdims=False: np.sqrt(
        _var(array, axis, dtype, None, ddof, keepdims)
    )
)
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@traces(np.einsum)
def _einsum(text: str, *given: Any, **named: Any) -> Traced:
    if named.keys() - {"optimize"} or not isinstance(text, str):
        raise TraceError("pipelines have einsum of text, and nothing else of it")
    inputs, arrow, output = text.replace(" ", "").partition("->")
    names = inputs.split(",")
    if not arrow:
        output = "".join(sorted(x for x in set(inputs) - {*",."} if inputs.count(x) == 1))
        output = f"...{output}" if "..." in inputs else output
    graph = graph_of(given)
    arrays = [as_traced(graph, one) for one in given]
    names, output = _name_dots(names, [one.ndim for one in arrays], output)
    extents: dict[str, int] = {}
    for name, array in zip(names, arrays, strict=True):
        for letter, extent in zip(name, array.shape, strict=True):
            extents[letter] = extent if extents.get(letter, 1) == 1 else extents[letter]
    at = dict(zip(output, axis_letters(len(output)), strict=True))
    over = {x: graph.letter(n) for x, n in extents.items() if x not in output}
    at |= {x: Affine.letter(letter) for x, letter in over.items()}
    kind = np.result_type(*(one.dtype for one in arrays)).name
    term: Term | None = None
    for name, array in zip(names, arrays, strict=True):
        axes = zip(name, array.shape, strict=True)
        own = [Affine.number(0) if n == 1 else at[x] for x, n in axes]
        element = cast(array.read(own), array.dtype.name, kind)
        term = element if term is None else apply("multiply", term, element)
    assert term is not None
    name = "bitwise_or" if kind == "bool" else "add"
    term = _reduced(graph, name, over.values(), term, kind)
    found = new_array(graph, term, tuple(extents[x] for x in output), kind)
    return found.seen_from(arrays[0]) if len(arrays) == 1 and not over else found


def _name_dots(names: Sequence[str], counts: Sequence[int], output: str) -> tuple[list[str], str]:
    """Return letters in the place of dots, given how many axes each array has."""
    used = {*"".join(names), *output}
    pairs = zip(names, counts, strict=False)
    own = [count - len(name) + 3 if "..." in name else 0 for name, count in pairs]
    free = [x for x in _LETTERS if x not in used][: max(0, *own)]
    dots = ["".join(free[len(free) - count :]) for count in own]
    found = [name.replace("...", mine) for name, mine in zip(names, dots, strict=False)]
    return found, output.replace("...", "".join(free))


@traces(np.tensordot)
def _tensordot(first: Any, second: Any, axes: Any = 2) -> Traced:
    first, second = _pair(first, second)
    if isinstance(axes, int):
        axes = range(first.ndim - axes, first.ndim), range(axes)
    mine, others = read_axes(axes[0], first.ndim), read_axes(axes[1], second.ndim)
    names = list(_LETTERS[: first.ndim])
    free = list(_LETTERS[first.ndim : first.ndim + second.ndim])
    for one, other in zip(mine, others, strict=True):
        free[other] = names[one]
    output = [x for x in names + free if (x in names) != (x in free)]
    return _einsum(f"{''.join(names)},{''.join(free)}->{''.join(output)}", first, second)


def _pair(first: Any, second: Any) -> tuple[Traced, Traced]:
    graph = graph_of((first, second))
    return as_traced(graph, first), as_traced(graph, second)


@traces(np.matmul)
def _matmul(first: Any, second: Any) -> Any:
    first, second = _pair(first, second)
    if first.ndim < 2 or second.ndim < 2:
        return _dot(first, second)
    batches = _LETTERS[: len(broadcast(first.shape[:-2], second.shape[:-2]))]
    names, arrays = [], []
    for array, own in ((first, "XY"), (second, "YZ")):
        used = zip(batches[len(batches) - array.ndim + 2 :], array.shape, strict=False)
        names.append("".join(x for x, n in used if n > 1) + own)
        arrays.append(array[tuple(0 if n == 1 else slice(None) for n in array.shape[:-2])])
    wide = "".join(x for x in batches if any(x in one for one in names))
    found = _einsum(f"{','.join(names)}->{wide}XZ", *arrays)
    return found[tuple(slice(None) if x in wide else None for x in batches)]


@traces(np.dot, method="dot")
def _dot(first: Any, second: Any, out: Any = None) -> Any:
    first, second = _pair(first, second)
    if not (first.ndim and second.ndim):
        return first * second
    return _tensordot(first, second, (first.ndim - 1, max(second.ndim - 2, 0)))


@traces(np.outer)
def _outer(first: Any, second: Any, out: Any = None) -> Traced:
    first, second = _pair(first, second)
    return _einsum("a,b->ab", first.reshape(-1), second.reshape(-1))


@traces(np.inner)
def _inner(first: Any, second: Any) -> Traced:
    first, second = _pair(first, second)
    return _tensordot(first, second, (first.ndim - 1, second.ndim - 1))
