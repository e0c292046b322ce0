"""What a user of NumPy writes for a statement: operations on whole arrays, the fastest of several.

Arrays are views whose axes are the letters of the statement, made before. A reduction is an
`einsum` where it is a sum of products; else the whole grid is computed and reduced, or it is
looped over the first letter of the output, or over the last one that is summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.activations import ACTIVATIONS
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import identity, named_kind
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Number,
    Param,
    Position,
    Read,
    Reduce,
    Term,
)
from tilesolve.nests.split import split_sums

GRID_BYTES = 2**28
"""Most bytes of a grid that is computed as a whole before it is reduced."""

LOOP_TRIPS = 10_000
"""Most trips of a loop in Python."""

TRIALS = 2
"""Runs by which the fastest form of a statement is chosen."""

_Form = Callable[[], object]


def make_numpy(
    computation: Computation, arrays: Mapping[str, Array], params: Mapping[str, float], out: Array
) -> Callable[[], Array]:
    """Return a run of NumPy's operations for a computation.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("y[i] = max(A[i,k], k)"), {"i": 2, "k": 3})
    >>> make_numpy(found, {"A": np.arange(6.0).reshape(2, 3)}, {}, np.empty(2))().tolist()
    [2.0, 5.0]
    """
    computation = split_sums(computation)
    held = dict(arrays)
    forms: list[_Form] = []
    for stage in computation.stages:
        info = computation.array(stage.name)
        last = stage is computation.stages[-1]
        held[stage.name] = out if last else np.zeros(info.shape, info.dtype)
        writer = _Writer(computation, stage, held, params)
        forms.append(_pick_fastest([writer.compile(lines) for lines in writer.list_forms()]))

    def run() -> Array:
        for form in forms:
            form()
        return out

    return run


def _pick_fastest(forms: Sequence[_Form]) -> _Form:
    """Return the form that takes least time; all leave the same result."""
    if not forms:
        raise BenchmarkError("nobody writes this with NumPy")

    def measure(form: _Form) -> float:
        times = []
        for _ in range(TRIALS):
            start = perf_counter()
            form()
            times.append(perf_counter() - start)
        return min(times)

    return forms[0] if len(forms) == 1 else min(forms, key=measure)


class _Writer:
    """Writes one stage as Python; `space` has what the names in it mean."""

    def __init__(
        self,
        computation: Computation,
        stage: Stage,
        held: Mapping[str, Array],
        params: Mapping[str, float],
    ) -> None:
        self.computation, self.stage, self.held = computation, stage, held
        self.letters, self.dtypes = stage.letters, computation.dtypes
        self.sizes = computation.sizes
        own = {name: np.dtype(self.dtypes[name]).type(params[name]) for name in stage.params}
        self.space: dict[str, Any] = {"np": np, "out": held[stage.name], **ACTIVATIONS, **own}
        self.fresh = (f"v{number}" for number in count())
        self.cut: tuple[int, str] | None = None

    def compile(self, lines: Iterable[str]) -> _Form:
        """Return the function that lines are the body of."""
        text = "\n".join(["def form():", *_indent(lines)])
        exec(compile(text, "<numpy>", "exec"), self.space)
        form: _Form = self.space["form"]
        return form

    def list_forms(self) -> Iterator[list[str]]:
        """Yield the bodies of functions that compute the stage."""
        stage = self.stage
        if stage.update is not None:
            yield self._write_update()
        elif stage.reduction is None:
            yield self._write_plain(stage.term)
        elif stage.bounds:
            raise BenchmarkError("nobody writes this with NumPy")
        else:
            yield from self._list_reductions(stage.reduction)

    def name(self, value: object) -> str:
        """Return a name for a value."""
        found = next(self.fresh)
        self.space[found] = value
        return found

    def _write_plain(self, term: Term) -> list[str]:
        """Return an operation that writes to the result where it has its dtype."""
        lines, written = self._begin(term)
        mask = self._mask(self.stage.bounds)
        where = f", where={mask}" if mask else ""
        same = named_kind(term.kind(self.dtypes)) == self.dtypes[self.stage.name]
        if isinstance(term, Apply) and same and term.name not in ACTIVATIONS:
            return [*lines, f"{written(term)[:-1]}, out=out{where})"]
        return [*lines, f"np.copyto(out, {written(term)}, casting='unsafe'{where})"]

    def _list_reductions(self, found: Reduce) -> Iterator[list[str]]:
        """Yield the ways of a reduction."""
        term, axes = found.term, tuple(self.letters.index(letter) for letter in found.over)
        dtype = self.dtypes[self.stage.name]
        yield from self._write_einsum(found)
        yield from self._write_squares(term)
        operation = f"np.{found.name}"
        lines, written = self._begin(term)
        mask = self._mask(self.stage.conditions(found))
        first = self.name(np.dtype(dtype).type(identity(found.name, dtype)))
        within = f"np.where({mask}, {written(term)}, {first})" if mask else written(term)
        shape = [self.sizes[letter] for letter in self.letters]
        whole = prod(shape) * np.dtype(dtype).itemsize <= GRID_BYTES
        if len(term.reads) == 1 or whole or mask:
            grid = self._fill(within, term)
            yield [*lines, f"{operation}.reduce({grid}, axis={axes}, dtype='{dtype}', out=out)"]
        if len(term.reads) == 1 or mask:
            return
        if self.stage.output and self.sizes[self.letters[0]] <= LOOP_TRIPS:
            self.cut = 0, "s:s+1"
            lines, written = self._begin(term)
            how = f"axis={axes}, dtype='{dtype}', out=out[s:s+1]"
            step = f"{operation}.reduce({written(term)}, {how})"
            yield [f"for s in range({shape[0]}):", *_indent([*lines, step])]
        if self.sizes[self.letters[axes[-1]]] <= LOOP_TRIPS and len(axes) == 1:
            self.cut = axes[-1], "s:s+1"
            lines, written = self._begin(term)
            target = self.name(self.held[self.stage.name].reshape(*shape[: axes[0]], 1))
            step = f"{operation}({target}, {written(term)}, out={target}, casting='unsafe')"
            loop = [f"for s in range({shape[axes[-1]]}):", *_indent([*lines, step])]
            yield [f"out.fill({first})", *loop]
        self.cut = None

    def _fill(self, grid: str, term: Term) -> str:
        """Return a grid with all points: a term may lack letters that are summed."""
        if set(self.letters) <= set(term.letters):
            return grid
        return f"np.broadcast_to({grid}, {tuple(self.sizes[one] for one in self.letters)})"

    def _write_einsum(self, found: Reduce) -> Iterator[list[str]]:
        """Yield a sum of products of elements as an `einsum`, whose path is found before."""
        factors = _split_product(found.term)
        floats = all(np.dtype(self.dtypes[one.array]).kind == "f" for one in factors)
        affine = all(one.plain is not None for one in factors)
        if found.name != "add" or len(factors) < 2 or not floats or not affine:
            return
        conditions = self.stage.conditions(found)
        own = [tuple(x for x in self.letters if x in one.letters) for one in factors]
        views: list[Any] = [self._squeeze(one) for one in factors]
        names = [self.name(view) for view in views]
        needed = {letter for one in conditions for letter in one.letters}
        if conditions:
            at = next((n for n, mine in enumerate(own) if needed <= {*mine}), None)
            if at is None:
                return
            mask = self.space[self._mask(conditions)]
            mask = self.name(np.broadcast_to(mask, self._spread(own[at])).reshape(views[at].shape))
            names[at] = f"np.where({mask}, {names[at]}, 0)"
        short = dict(zip(self.letters, "abcdefghijkl", strict=False))
        inputs = ",".join("".join(short[x] for x in mine) for mine in own)
        text = f"{inputs}->{''.join(short[x] for x in self.stage.output)}"
        path = self.name(np.einsum_path(text, *views, optimize="optimal")[0])
        yield [f"np.einsum('{text}', {', '.join(names)}, out=out, optimize={path})"]

    def _write_squares(self, term: Term) -> Iterator[list[str]]:
        """Yield squared distances by a product: ``x² + y² - 2xy``."""
        match term:
            case Apply("multiply", (Apply("subtract", (Read() as x, Read() as y)) as one, other)):
                pass
            case _:
                return
        floats = np.dtype(self.dtypes[self.stage.name]).kind == "f"
        if one != other or not floats or len(self.stage.output) != 2 or len(self.letters) != 3:
            return
        row, column, _ = self.letters
        if row not in x.letters or column not in y.letters or column in x.letters:
            return
        left, right = (self.name(self._squeeze(read)) for read in (x, y))
        yield [
            f"np.matmul({left}, {right}.T, out=out)",
            "np.multiply(out, -2, out=out)",
            f"np.add(out, np.einsum('ij,ij->i', {left}, {left})[:, None], out=out)",
            f"np.add(out, np.einsum('ij,ij->i', {right}, {right}), out=out)",
        ]

    def _write_update(self) -> list[str]:
        """Return a histogram: `bincount`, or `add.at` for rows."""
        stage = self.stage
        if stage.update != "add" or stage.where:
            raise BenchmarkError("nobody writes this with NumPy")
        lines, written = self._begin(stage.term)
        value, places = written(stage.term), [self._write_place(one, written) for one in stage.axes]
        shape = self.held[stage.name].shape
        if all(isinstance(one, Term) for one in stage.axes):
            place = places[0]
            if len(places) > 1:
                place = f"np.ravel_multi_index(({', '.join(places)}), {shape})"
            weights = "" if isinstance(stage.term, Number) else f", weights=({value}).ravel()"
            found = f"np.bincount(({place}).ravel(){weights}, minlength={prod(shape)})"
            return [*lines, f"np.copyto(out, {found}.reshape({shape}), casting='unsafe')"]
        rest = [one.plain if isinstance(one, Affine) else None for one in stage.axes[1:]]
        if [*self.letters[1:]] == rest:
            places = [f"({places[0]}).ravel()"]
        return [*lines, "out.fill(0)", f"np.add.at(out, ({','.join(places)},), {value})"]

    def _begin(self, term: Term) -> tuple[list[str], Callable[[Term], str]]:
        """Return lines for parts that occur several times, and how to write a term."""
        names: dict[Term, str] = {}
        lines: list[str] = []
        times = Counter(term.all)
        for one in reversed(term.all):
            if times[one] > 1 and isinstance(one, Apply | Cast | Choose) and one not in names:
                text = self._write(one, names)
                names[one] = f"t{len(names)}"
                lines.append(f"{names[one]} = {text}")
        return lines, lambda one: self._write(one, names)

    def _write(self, term: Term, names: Mapping[Term, str]) -> str:
        """Return a term as NumPy's Python."""
        if term in names:
            return names[term]

        def inner(one: Term) -> str:
            return self._write(one, names)

        match term:
            case Number(value=value):
                return repr(value)
            case Param(name=name):
                return name
            case Position(position=position):
                return self._take(self.name(np.asarray(position.at(self._grid()))))
            case Cast(dtype=dtype, term=one):
                return f"{inner(one)}.astype('{dtype}')"
            case Choose(test=test, yes=yes, no=no):
                return f"np.where({inner(test)}, {inner(yes)}, {inner(no)})"
            case Apply(name=name, arguments=arguments):
                prefix = "" if name in ACTIVATIONS else "np."
                return f"{prefix}{name}({', '.join(map(inner, arguments))})"
            case Read():
                if term.plain is not None:
                    return self._take(self.name(self._view(term)))
                return self._write_gather(term, inner)
        raise BenchmarkError(f"nobody writes {term} with NumPy")

    def _write_gather(self, read: Read, inner: Callable[[Term], str]) -> str:
        """Return elements at positions that are read: rows by `take`."""
        array = self.name(self.held[read.array])
        first, *rest = read.subscripts
        if isinstance(first, Term):
            own = [x for x in self.letters if x in first.letters]
            others = [one.plain if isinstance(one, Affine) else None for one in rest]
            if [*own, *others] == [*self.letters]:
                shape = tuple(self.sizes[letter] for letter in own)
                return f"{array}.take(({inner(first)}).reshape({shape}), axis=0)"
        places = [self._write_place(one, inner) for one in read.subscripts]
        return f"{array}[{', '.join(places)}]"

    def _write_place(self, subscript: Affine | Term, inner: Callable[[Term], str]) -> str:
        return inner(Position(subscript) if isinstance(subscript, Affine) else subscript)

    def _take(self, name: str) -> str:
        """Return the part of a view that a loop is at."""
        if self.cut is None or self.space[name].shape[self.cut[0]] == 1:
            return name
        return f"{name}[{':, ' * self.cut[0]}{self.cut[1]}]"

    def _grid(self) -> dict[str, Array]:
        steps = np.ix_(*(np.arange(self.sizes[letter]) for letter in self.letters))
        return dict(zip(self.letters, steps, strict=True))

    def _spread(self, letters: Iterable[str]) -> tuple[int, ...]:
        """Return the shape of what has some letters: other axes have extent 1."""
        kept = {*letters}
        return tuple(self.sizes[one] if one in kept else 1 for one in self.letters)

    def _view(self, read: Read) -> Array:
        """Return the elements of an array at all points, with an axis for each letter."""
        array, steps, start = self.held[read.array], dict.fromkeys(self.letters, 0), []
        for subscript, stride in zip(read.plain or (), array.strides, strict=True):
            if subscript.divisor > 1:
                raise BenchmarkError(f"nobody writes {read} with NumPy")
            for factor, letter in subscript.terms:
                steps[letter] += factor * stride
            start.append(slice(subscript.offset, None))
        shape = self._spread(read.letters)
        return np.lib.stride_tricks.as_strided(array[tuple(start)], shape, list(steps.values()))

    def _squeeze(self, read: Read) -> Array:
        """Return the view with axes for its own letters alone."""
        shape = tuple(self.sizes[letter] for letter in self.letters if letter in read.letters)
        return self._view(read).reshape(shape)

    def _mask(self, conditions: Iterable[Condition]) -> str:
        """Return the name of where conditions hold; empty if there are none."""
        held = [one.holds(self._grid()) for one in conditions]
        return self.name(np.logical_and.reduce(np.broadcast_arrays(*held))) if held else ""


def _split_product(term: Term) -> list[Read]:
    """Return the elements that a term is the product of; none if it is anything else."""
    match term:
        case Read():
            return [term]
        case Apply("multiply", (left, right)):
            parts = [_split_product(left), _split_product(right)]
            return [one for part in parts for one in part] if all(parts) else []
    return []


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
