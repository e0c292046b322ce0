"""What a user of NumPy writes for a statement: operations on whole arrays, the fastest of several.

Arrays are views whose axes are the letters of the statement, made before. A sum of products is an
`einsum`. Another reduction is of the whole grid, or in a loop over the first letter of the output
or over the one that is summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.affine import Condition
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import identity, named_kind
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Number,
    Param,
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

_NOBODY = "nobody writes {} with NumPy"


def make_numpy(
    computation: Computation, arrays: Mapping[str, Array], params: Mapping[str, float], out: Array
) -> Callable[[], Array]:
    """Return a run of NumPy's operations for a computation."""
    computation = split_sums(computation)
    held = dict(arrays)
    runs: list[Callable[[], object]] = []
    for stage in computation.stages:
        info = computation.array(stage.name)
        last = stage is computation.stages[-1]
        held[stage.name] = out if last else np.zeros(info.shape, info.dtype)
        runs.append(_pick_fastest(list_forms(computation, stage, held, params)))

    def run() -> Array:
        for each in runs:
            each()
        return out

    return run


def list_forms(
    computation: Computation, stage: Stage, held: Mapping[str, Array], params: Mapping[str, float]
) -> list[Callable[[], object]]:
    """Return functions that compute one stage: all leave the same result.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("y[i] = max(A[i,k] - x[k], k)"), {"i": 2, "k": 3})
    >>> held = {"A": np.arange(6.0).reshape(2, 3), "x": np.ones(3), "y": np.zeros(2)}
    >>> len([form() for form in list_forms(found, found.stages[0], held, {})])
    3
    >>> held["y"].tolist()
    [1.0, 4.0]
    """
    writer = _Writer(computation, stage, held, params)
    found = []
    for lines in writer.list_forms():
        exec("\n".join(["def form():", *_indent(lines)]), writer.space)
        found.append(writer.space["form"])
    return found


def _pick_fastest(forms: Sequence[Callable[[], object]]) -> Callable[[], object]:
    def measure(form: Callable[[], object]) -> float:
        start = perf_counter()
        form()
        return perf_counter() - start

    if len(forms) == 1:
        return forms[0]
    return min(forms, key=lambda form: min(measure(form) for _ in range(TRIALS)))


class _Writer:
    """Writes one stage as Python; `space` has what the names in it mean."""

    def __init__(
        self,
        computation: Computation,
        stage: Stage,
        held: Mapping[str, Array],
        params: Mapping[str, float],
    ) -> None:
        self.stage, self.held, self.letters = stage, held, stage.letters
        self.dtypes, self.sizes = computation.dtypes, computation.sizes
        self.dtype = self.dtypes[stage.name]
        own = {name: np.dtype(self.dtypes[name]).type(params[name]) for name in stage.params}
        self.space: dict[str, Any] = {"np": np, "out": held[stage.name], **own}
        self.cut = -1  # the axis that a loop runs along

    def name(self, value: object) -> str:
        """Return a name for a value."""
        found = f"v{len(self.space)}"
        self.space[found] = value
        return found

    def list_forms(self) -> Iterator[list[str]]:
        """Yield the bodies of functions that compute the stage."""
        stage, term = self.stage, self.stage.term
        mask = self._mask(stage.bounds, stage.output)
        where = f", where={mask}" if mask else ""
        if stage.update is not None:
            yield self._write_update()
        elif stage.reduction is not None and mask:
            target = self.name(self.space["out"])
            self.space["out"] = np.zeros_like(self.space[target])
            for lines in self._list_reductions(stage.reduction):
                yield [*lines, f"np.copyto({target}, out{where})"]
        elif stage.reduction is not None:
            yield from self._list_reductions(stage.reduction)
        else:
            lines, value = self._write_parts(term)
            same = isinstance(term, Apply) and named_kind(term.kind(self.dtypes)) == self.dtype
            into = f"{value[:-1]}, out=out{where})"
            yield [*lines, into if same else f"np.copyto(out, {value}, 'unsafe'{where})"]

    def _list_reductions(self, found: Reduce) -> Iterator[list[str]]:
        """Yield the ways of a reduction."""
        term, axes = found.term, tuple(self.letters.index(letter) for letter in found.over)
        shape = [self.sizes[letter] for letter in self.letters]
        first = self.name(np.dtype(self.dtype).type(identity(found.name, self.dtype)))
        conditions = self.stage.conditions(found)
        products = self._write_products(found)
        if products:
            yield products
            return
        single = len(term.reads) == 1 or bool(conditions) or any(not x.plain for x in term.reads)
        if not single:
            yield from self._write_squares(term)
        how = f"axis={axes}, dtype='{self.dtype}', out=out"
        lines, value = self._write_parts(term)
        if conditions:
            value = f"np.where({self._mask(conditions, self.letters)}, {value}, {first})"
        if single or prod(shape) * np.dtype(self.dtype).itemsize <= GRID_BYTES:
            yield [*lines, f"np.{found.name}.reduce({value}, {how})"]
        for self.cut in [] if single else [0, *axes] if len(axes) == 1 else [0]:
            lines, value = self._write_parts(term)
            loop = f"for s in range({shape[self.cut]}):"
            if shape[self.cut] > LOOP_TRIPS:
                continue
            if self.cut in axes:
                out = self.name(self.space["out"].reshape(*shape[: self.cut], 1))
                step = f"np.{found.name}({out}, {value}, out={out}, casting='unsafe')"
                yield [f"out.fill({first})", loop, *_indent([*lines, step])]
            else:
                step = f"np.{found.name}.reduce({value}, {how}[s:s+1])"
                yield [loop, *_indent([*lines, step])]
        self.cut = -1

    def _write_products(self, found: Reduce) -> list[str]:
        """Return a sum of products of elements by `einsum`; nothing for anything else."""
        sums = _split(found.term, "add")
        products = [_split(one, "multiply") for one in sums]
        floats = np.dtype(self.dtype).kind == "f" and found.name == "add"
        known = all(isinstance(one, Read) and one.plain for part in products for one in part)
        if not floats or not known or min(map(len, products)) < 2:
            return []
        conditions = self.stage.conditions(found)
        lines = []
        for at, factors in enumerate(products):
            views = [self._view(one, squeeze=True) for one in factors if isinstance(one, Read)]
            own = [[x for x in self.letters if x in one.letters] for one in factors]
            names = list(map(self.name, views))
            needed = {letter for one in conditions for letter in one.letters}
            which = next((n for n, letters in enumerate(own) if needed <= {*letters}), None)
            if which is None:
                return []
            if mask := self._mask(conditions, own[which]):
                names[which] = f"np.where({mask}, {names[which]}, 0)"
            short = dict(zip(self.letters, "abcdefghijkl", strict=False))
            texts = ("".join(short[x] for x in one) for one in (*own, self.stage.output))
            text = "->".join(",".join(texts).rsplit(",", 1))
            path = np.einsum_path(text, *views, optimize="optimal")[0]
            into = "" if at else ", out=out"
            call = f"np.einsum('{text}', {', '.join(names)}, optimize={self.name(path)}{into})"
            lines.append(f"np.add(out, {call}, out=out)" if at else call)
        return lines

    def _write_squares(self, term: Term) -> Iterator[list[str]]:
        """Yield squared distances of rows by a product: ``x² + y² - 2xy``."""
        match term:
            case Apply("multiply", (Apply("subtract", (Read() as x, Read() as y)) as one, other)):
                same = one == other and np.dtype(self.dtype).kind == "f" and len(self.letters) == 3
            case _:
                return
        if same and ({*self.letters} - {*y.letters}, {*self.letters} - {*x.letters}) == (
            {self.letters[0]},
            {self.letters[1]},
        ):
            left, right = (self.name(self._view(read, squeeze=True)) for read in (x, y))
            yield [
                f"np.matmul({left}, {right}.T, out=out)",
                "np.multiply(out, -2, out=out)",
                f"np.add(out, np.einsum('ij,ij->i', {left}, {left})[:, None], out=out)",
                f"np.add(out, np.einsum('ij,ij->i', {right}, {right}), out=out)",
            ]

    def _write_update(self) -> list[str]:
        """Return a histogram: `bincount`, or `add.at` for rows."""
        first, *rest = self.stage.axes
        if self.stage.update != "add" or self.stage.where or not isinstance(first, Term):
            raise BenchmarkError(_NOBODY.format(self.stage))
        lines, place = self._write_parts(first)
        more, value = self._write_parts(self.stage.term)
        lines += [f"at = {place}.ravel()", *more]
        if rest:
            return [*lines, "out.fill(0)", f"np.add.at(out, at, {value})"]
        weights = "" if isinstance(self.stage.term, Number) else f", {value}.ravel()"
        found = f"np.bincount(at{weights}, minlength={len(self.space['out'])})"
        return [*lines, f"np.copyto(out, {found}, 'unsafe')"]

    def _write_parts(self, term: Term) -> tuple[list[str], str]:
        """Return lines for parts that occur several times, and what the term is then."""
        names: dict[Term, str] = {}
        lines: list[str] = []
        times = Counter(term.all)
        for one in reversed(term.all):
            if times[one] > 1 and isinstance(one, Apply | Cast | Choose) and one not in names:
                lines.append(f"t{len(names)} = {self._write(one, names)}")
                names[one] = f"t{len(names)}"
        return lines, self._write(term, names)

    def _write(self, term: Term, names: Mapping[Term, str]) -> str:
        """Return a term as NumPy's Python."""
        given = [self._write(part, names) for part in term.parts]
        match term:
            case _ if term in names:
                return names[term]
            case Number(value=value):
                return repr(value)
            case Param(name=name):
                return name
            case Cast(dtype=dtype, term=inner):
                array = f"np.array({given[0]})" if isinstance(inner, Number) else given[0]
                return f"{array}.astype('{dtype}')"
            case Choose():
                test, yes, no = (self._write(one, names) for one in (term.test, term.yes, term.no))
                return f"np.where({test}, {yes}, {no})"
            case Apply(name=name):
                return f"np.{name}({', '.join(given)})"
            case Read(subscripts=(Term() as place, *rest)):
                own = [letter for letter in self.letters if letter in place.letters]
                others = [one.plain for one in rest if not isinstance(one, Term)]
                if [*own, *others] == [*self.letters]:
                    shape = tuple(self.sizes[letter] for letter in own)
                    return (
                        f"{self.name(self.held[term.array])}.take({given[0]}.reshape({shape}), 0)"
                    )
            case Read() if term.plain:
                view = self._view(term)
                name = self.name(view)
                alone = self.cut < 0 or view.shape[self.cut] == 1
                return name if alone else f"{name}[{':, ' * self.cut}s:s+1]"
        raise BenchmarkError(_NOBODY.format(term))

    def _view(self, read: Read, *, squeeze: bool = False) -> Array:
        """Return the elements of an array at all points, with an axis for each letter, or own."""
        array, steps, start = self.held[read.array], dict.fromkeys(self.letters, 0), []
        for subscript, stride in zip(read.plain or (), array.strides, strict=True):
            if subscript.divisor > 1:
                raise BenchmarkError(_NOBODY.format(read))
            for factor, letter in subscript.terms:
                steps[letter] += factor * stride
            start.append(slice(subscript.offset, None))
        letters = [x for x in self.letters if not squeeze or x in read.letters]
        shape = [self.sizes[x] if x in read.letters else 1 for x in letters]
        strides = [steps[x] for x in letters]
        return np.lib.stride_tricks.as_strided(array[tuple(start)], shape, strides)

    def _mask(self, conditions: Sequence[Condition], letters: Sequence[str]) -> str:
        """Return the name of where conditions hold, with axes for letters; empty without any."""
        if not conditions:
            return ""
        steps = np.ix_(*(np.arange(self.sizes[letter]) for letter in letters))
        held = (one.holds(dict(zip(letters, steps, strict=True))) for one in conditions)
        return self.name(np.logical_and.reduce(np.broadcast_arrays(*held)))


def _split(term: Term, name: str) -> list[Term]:
    """Return the parts that an operation puts together; the term itself if it is none."""
    if isinstance(term, Apply) and term.name == name:
        return [one for part in term.arguments for one in _split(part, name)]
    return [term]


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
