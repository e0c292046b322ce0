"""Traced arrays: what stands in for NumPy's arrays while a function is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.constants.nests import STAGE_PARTS
from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import (
    DtypeError,
    SizeError,
    SpecError,
    TilesolveError,
    TraceError,
)
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.promotion import argument_dtypes
from tilesolve.contractions.statements.terms import Apply, Cast, Choose, Number, Read, Term, apply
from tilesolve.contractions.statements.ufuncs import apply_ufunc
from tilesolve.nests.arguments import nest_dtype
from tilesolve.pipelines.graph import Graph, Node, Place, Shape, axis_letters, name_places, place_at
from tilesolve.pipelines.indexing import Index, broadcast, find_written, read_index
from tilesolve.pipelines.numbers import cast, compare_outside, filling, number, python_kind, typed
from tilesolve.pipelines.numpy_calls import ask_numpy, call_traced, write_out
from tilesolve.pipelines.refusals import Shaped, noted


@dataclass(slots=True, eq=False)
class Storage:
    """An array that the function holds: views share it, and writes make a new one of it.

    Parameters
    ----------
    graph
        Where it is computed.
    name
        The array that has its elements as they are now.
    source
        The storage whose elements it has a copy of where NumPy has a view, and their name then.
    in_order
        Whether its elements lie in C order, one beside the next.
    """

    graph: Graph
    name: str
    source: tuple[Storage, str] | None = None
    in_order: bool = True


FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""What is traced in the place of NumPy's functions."""

METHODS: dict[str, Callable[..., Any]] = {}
"""What is traced in the place of methods of NumPy's arrays."""


class Traced(Shaped):
    """An array that notes what is done to it.

    Parameters
    ----------
    storage
        Whose elements it has.
    shape
        Its own.
    places
        The position along each axis of the storage, in the letters of its own axes.
    """

    __slots__ = ("places", "shape", "storage")
    storage: Storage
    shape: Shape
    places: tuple[Place, ...]

    def __init__(
        self, storage: Storage, shape: Shape, places: tuple[Place, ...] | None = None
    ) -> None:
        own = axis_letters(len(shape)) if places is None else places
        for name, value in (("storage", storage), ("shape", shape), ("places", own)):
            object.__setattr__(self, name, value)

    is_number = False

    @property
    def graph(self) -> Graph:
        """Where it is computed."""
        return self.storage.graph

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its elements."""
        return np.dtype(self.graph.nodes[self.storage.name].dtype)

    @property
    def T(self) -> Traced:  # noqa: N802 - as NumPy's
        """The array with its axes the other way round."""
        return self.view_as(range(self.ndim)[::-1]) if self.ndim else self

    @property
    def real(self) -> Traced:
        """The real parts of its elements."""
        return self._part("real") if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Traced:
        """The imaginary parts of its elements."""
        return self._part("imag")

    def _part(self, name: str) -> Traced:
        found = combine(partial(apply, name), self)
        return found.as_number() if self.is_number else found.seen_from(self)

    def as_number(self) -> Element:
        """Return an array without axes as a number of NumPy's, which no write reaches."""
        self.read(())  # is it as NumPy has it now?
        return Element(Storage(self.graph, self.storage.name), (), self.places)

    def as_array(self) -> Traced:
        """Return it as an array that may be written to."""
        return self

    @property
    def is_whole(self) -> bool:
        """Whether it has all elements of its storage, in order."""
        node = self.graph.nodes[self.storage.name]
        return self.shape == node.shape and self.places == axis_letters(self.ndim)

    def seen_from(self, other: Traced) -> Traced:
        """Return it as what NumPy has a view for: it is neither written to nor read when old."""
        self.storage.source = other.storage, other.storage.name
        return self

    def read(self, at: Sequence[Place]) -> Read:
        """Return its element at some position."""
        if (source := self.storage.source) and source[0].name != source[1]:
            raise TraceError("it reads a view of an array that was written to since; make a copy()")
        named = name_places(at)
        try:
            places = tuple(place_at(one, named) for one in self.places)
            return Read(self.storage.name, places or (Affine.number(0),))
        except SpecError:  # a quotient is no part of another position
            return self.copy().read(at)

    def element(self, shape: Shape) -> Read:
        """Return its element at a point of a shape that it is broadcast to."""
        letters = axis_letters(len(shape))[len(shape) - self.ndim :]
        wide = shape[len(shape) - self.ndim :]
        at = [
            Affine.number(0) if mine == 1 and other != 1 else letter
            for mine, other, letter in zip(self.shape, wide, letters, strict=True)
        ]
        return self.read(at)

    def view(self, shape: Shape, at: Sequence[Place]) -> Traced:
        """Return a view, given the position along each axis in the letters of the view."""
        named = name_places(at)
        return Traced(self.storage, shape, tuple(place_at(one, named) for one in self.places))

    def view_as(self, axes: Sequence[int]) -> Traced:
        """Return a view with the axes in another order."""
        letters = axis_letters(self.ndim)
        at = [letters[list(axes).index(axis)] for axis in range(self.ndim)]
        return self.view(tuple(self.shape[axis] for axis in axes), at)

    def make(self, term: Term, shape: Shape, dtype: str | None = None) -> Traced:
        """Return a new array of some term."""
        return new_array(self.graph, term, shape, dtype)

    def astype(
        self,
        dtype: npt.DTypeLike,
        order: Any = "K",
        casting: Any = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Traced:
        """Return the elements in another dtype."""
        kind = nest_dtype(dtype, "an array")
        if (order, casting) != ("K", "unsafe"):
            ask_numpy(np.ndarray.astype, (self, kind, order, casting), {})
        if kind == self.dtype.name and not copy:
            return self
        return self.make(cast(self.element(self.shape), self.dtype.name, kind), self.shape, kind)

    def copy(self, order: Any = "C") -> Traced:
        """Return a new array with the same elements."""
        return self.astype(self.dtype, order if order != "C" else "K")

    __copy__ = copy

    def __deepcopy__(self, _: object) -> Traced:
        return self.copy()

    def __iter__(self) -> Iterator[Traced]:
        return (self[at] for at in range(len(self)))

    @noted
    def __getitem__(self, key: object) -> Traced:
        index = read_index(key, self.shape)
        dots = any(one is Ellipsis for one in (key if isinstance(key, tuple) else (key,)))
        number = not index.shape and not dots
        if index.arrays:
            ask_numpy(np.ndarray.__getitem__, (self, key), {})
            found = self._gather(index)
            if not number and all(getattr(x, "is_number", False) for x in index.arrays.values()):
                found.seen_from(self)
        else:
            found = self.view(index.shape, index.affine)
        return found.as_number() if number else found

    def _gather(self, index: Index) -> Traced:
        """Return the elements at positions that arrays have; those outside are found."""
        extents, own_letters = self.graph.nodes[self.storage.name].shape, axis_letters(self.ndim)
        pairs = list(zip(self.places, extents, strict=True))
        if any((own_letters[x], self.shape[x]) not in pairs for x in index.arrays):
            return self.copy()._gather(index)
        at: list[Place] = list(index.affine)
        letters = axis_letters(len(index.shape))
        for axis, given in index.arrays.items():
            array = as_traced(self.graph, given)
            # Its axes lie where the index has put those of all such arrays together.
            first = index.first + index.width - array.ndim
            own = [
                Affine.number(0) if n == 1 else letter
                for n, letter in zip(array.shape, letters[first:], strict=False)
            ]
            place: Term = array.read(own)
            if array.dtype != np.int64:
                place = Cast("int64", place)
            if array.dtype.kind != "u":
                place = Choose(place < 0, place + self.shape[axis], place)
            at[axis] = place
        return self.make(self.read(at), index.shape)

    @noted
    def __setitem__(self, key: object, value: Any) -> None:
        picks = isinstance(key, Traced) and key.dtype == bool and key.shape == self.shape
        if picks and not np.ndim(value):
            ask_numpy(np.ndarray.__setitem__, (self, key, value), {})
            term = self._written(value, ())
            self.assign(combine(lambda *terms: Choose(terms[0], term, terms[1]), key, self))
            return
        index = read_index(key, self.shape)
        if index.arrays:
            raise TraceError("it writes to positions that are computed")
        view = self.view(index.shape, index.affine)
        ask_numpy(np.ndarray.__setitem__, (view, ..., value), {})
        view.assign(value)

    def assign(self, value: Any) -> None:
        """Write to all elements, and so to those of the storage."""
        own = isinstance(value, Traced) and value.storage is self.storage
        if own and (value.places, value.shape) == (self.places, self.shape):
            return  # what += ends with
        storage, node = self.storage, self.graph.nodes[self.storage.name]
        if storage.source:
            raise TraceError("it writes to a view that is read alone; make a copy()")
        if not self.size:
            return
        at, tests = find_written(self.places, node.shape, self.shape)
        term, writes = self._written(value, at), 0
        if tests:
            again = 0 < node.writes < STAGE_PARTS - 1 or is_filled(node)
            old = (
                node.term
                if again and node.term is not None
                else Read(node.name, axis_letters(len(node.shape)))
            )
            term = Choose(reduce(and_, tests), term, old)
            writes = node.writes + 1 if again else 1
        storage.name = self.graph.add(term, node.shape, node.dtype, writes)

    def _written(self, value: Any, at: Sequence[Place]) -> Term:
        """Return what is written at a position, in the storage's dtype."""
        kind = self.dtype.name
        if isinstance(value, bool | int | float | complex):
            return filling(value, kind)
        array = as_traced(self.graph, value)
        while array.ndim > self.ndim and array.shape[0] == 1:
            array = array[0]
        if broadcast(array.shape, self.shape) != self.shape:
            raise SizeError(f"an array of shape {array.shape} is written to one of {self.shape}")
        skipped = self.ndim - array.ndim
        own = [
            Affine.number(0) if n == 1 else place
            for n, place in zip(array.shape, at[skipped:], strict=True)
        ]
        return cast(array.read(own), array.dtype.name, kind)

    @noted
    def __array_ufunc__(
        self,
        function: np.ufunc,
        method: str,
        *given: Any,
        **named: Any,
    ) -> Any:
        (out,) = named.pop("out", None) or (None,)
        if function in FUNCTIONS and method == "__call__":  # such as matmul
            return call_traced(function, FUNCTIONS[function], given, {**named, "out": out})
        if method in ("reduce", "accumulate"):
            along = partial(METHODS[method], name=function.__name__)
            named = {"axis": 0, **named, "out": out}
            return call_traced(getattr(function, method), along, given, named)
        if method == "__call__" and not named and function.nout == 1:
            found = compute(function, given)
            number = out is None and not found.ndim
            return found.as_number() if number else write_out(found, out)
        raise TraceError(f"pipelines do not have {function.__name__} as it is called here")

    @noted
    def __array_function__(
        self,
        function: Any,
        types: Any,
        given: Any,
        named: Mapping[str, Any],
    ) -> Any:
        if function not in FUNCTIONS:
            module = getattr(function, "__module__", "numpy")
            raise TraceError(f"pipelines do not have {module}.{function.__name__}")
        return call_traced(function, FUNCTIONS[function], given, named)

    @noted
    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return partial(self._call, name)
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise TraceError(f"pipelines do not have the attribute {name!r} of arrays")
        raise AttributeError(f"an array has no attribute {name!r}")

    @noted
    def _call(self, name: str, *given: Any, **named: Any) -> Any:
        kind = np.generic if self.is_number else np.ndarray
        return call_traced(getattr(kind, name), METHODS[name], (self, *given), named)


class Element(Traced):
    """A number of NumPy's: what would change it makes another one, and its views are copies."""

    __slots__ = ()
    is_number = True

    def view(self, shape: Shape, at: Sequence[Place]) -> Traced:
        """Return an array with a copy of it."""
        return Traced(self.storage, self.shape, self.places).copy().view(shape, at)

    def as_number(self) -> Element:
        """Return it as it is."""
        return self

    def as_array(self) -> Traced:
        """Return an array without axes that has a copy of it."""
        return self.view((), ())

    def astype(self, *given: Any, **named: Any) -> Traced:
        """Return the number in another dtype."""
        return super().astype(*given, **named).as_number()

    def assign(self, value: Any) -> None:
        """Refuse to write to it."""
        raise TraceError("it writes to a number of an array; a[0, ...] is an array")


for _name in (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("and", "or", "xor", "lshift", "rshift"),
):
    setattr(Element, f"__i{_name}__", lambda *_: NotImplemented)  # Python makes another number


def is_filled(node: Node) -> bool:
    """Return whether all elements of an array are a number."""
    return isinstance(node.term, Cast) and isinstance(node.term.term, Number)


def new_array(graph: Graph, term: Term, shape: Shape, dtype: str | None = None) -> Traced:
    """Return a new array of some term."""
    return Traced(Storage(graph, graph.add(term, shape, dtype)), shape)


def as_traced(graph: Graph, value: Any) -> Traced:
    """Return an array of a function as one that is traced; its own are constants."""
    if isinstance(value, Traced):
        return value
    array = read_array(value, "a constant")
    if not array.ndim and array.dtype.kind in "biufc":
        return new_array(graph, Cast(array.dtype.name, number(array.item())), ())
    return Traced(Storage(graph, graph.constant(array)), array.shape)


def graph_of(values: Sequence[Any]) -> Graph:
    """Return the graph of some values; one of them is traced."""
    return next(one.graph for one in values if isinstance(one, Traced))


def compute(function: np.ufunc, given: Sequence[Any]) -> Traced:
    """Return a function of each element of some arrays and numbers."""
    if (same := compare_outside(function, given)) is not None:
        shape = broadcast(*(np.shape(one) for one in given))
        return new_array(graph_of(given), filling(same, "bool"), shape)
    build = partial(apply if function is np.power else apply_ufunc, function.__name__)
    kinds = (getattr(one, "dtype", type(one)) for one in given)
    try:
        found = combine(build, *given)
        *taken, made = function.resolve_dtypes((*map(python_kind, kinds), None))
    except TilesolveError:
        raise
    except TypeError as error:
        raise DtypeError(str(error)) from error
    if found.dtype == made:
        return found
    pairs = zip(given, taken, strict=True)
    return combine(build, *(x.astype(kind) if hasattr(x, "dtype") else x for x, kind in pairs))


def combine(build: Callable[..., Term], *given: Any) -> Traced:
    """Return a term of each element of some arrays and numbers."""
    graph = graph_of(given)
    shape = broadcast(*(np.shape(one) for one in given))
    if any(type(one) is float and (one != one or not one) for one in given):
        given = tuple(typed(one, given) for one in given)
    try:
        term = build(*(term_of(graph, one, shape) for one in given))
    except SpecError as error:
        raise TraceError(str(error)) from error
    for one in term.all:
        if isinstance(one, Apply):  # numbers have to fit
            argument_dtypes(one, [part.kind(graph.dtypes) for part in one.arguments])
    return new_array(graph, term, shape)


def term_of(graph: Graph, value: Any, shape: Shape) -> Term:
    """Return an element of a value at a point of a shape that it is broadcast to."""
    if type(value) in (bool, int, float, complex):
        return number(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return Cast(value.dtype.name, number(value.item()))
    if isinstance(value, np.ndarray) and not isinstance(value, Traced) and not value.ndim:
        return term_of(graph, value[()], shape)
    return as_traced(graph, value).element(shape)
