"""The slow and obvious evaluation of stages that every other result is held to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import OPERATIONS, SEARCHES, identity, named_kind
from tilesolve.contractions.statements.scans import Scan
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Cast,
    Param,
    Position,
    Read,
    Reduce,
    Term,
)
from tilesolve.contractions.statements.values import combine

Arrays = dict[str, npt.NDArray[Any]]
Grid = Mapping[str, npt.NDArray[np.int64]]


def evaluate(
    computation: Computation,
    arrays: Mapping[str, npt.ArrayLike],
    params: Mapping[str, float] | None = None,
    out: npt.ArrayLike | Sequence[npt.ArrayLike] | None = None,
) -> Any:  # noqa: ANN401 - an array, or a tuple of them
    """Evaluate a computation on arrays, slowly, point by point of a whole grid.

    Floating-point numbers are float64 all the way; integers wrap as their dtypes do.

    `out` has the output's elements from before, where a region leaves them as they are; without
    it these are zeros. Of several outputs it has one for each, and so has what is returned.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stages = parse_stages("out[x] = A[x] + A[x+1]")
    >>> evaluate(bind_stages(stages, 3), {"A": [1.0, 2.0, 3.0, 4.0]})
    array([3., 5., 7.])
    """
    kept: Arrays = {}
    for name in computation.inputs:
        info = computation.array(name)
        kept[name] = np.asarray(arrays[name]).astype(_wide(info.dtype))
        if kept[name].shape != info.shape:
            raise SizeError(f"{name} has shape {kept[name].shape}, not {info.shape}")
    values = (
        {name: np.dtype(kind).type(params[name]) for name, kind in computation.params}
        if params
        else {}
    )
    names = computation.outputs
    several: Any = (out,) if len(names) == 1 else out
    given = {} if out is None else dict(zip(names, several, strict=True))
    for stage in computation.stages:
        info = computation.array(stage.name)
        before = kept.get(stage.name)
        if before is None and stage.name in given:
            before = np.asarray(given[stage.name])
        start = np.zeros(info.shape) if before is None else before
        made = start.astype(_wide(info.dtype), copy=True)
        if stage.sequence is not None:
            kept[stage.name] = made
        for step in _list_steps(computation, stage):
            _Evaluation(computation, stage, kept, values, step).write(made)
        kept[stage.name] = made
    found = tuple(kept[name] for name in names)
    return found[0] if len(found) == 1 else found


def _wide(dtype: str) -> np.dtype[Any]:
    """Return the dtype that values are kept in."""
    wide = {"f": "float64", "c": "complex128"}
    return np.dtype(wide.get(np.dtype(dtype).kind, dtype))


def _list_steps(computation: Computation, stage: Stage) -> Iterable[Mapping[str, range]]:
    """Return the values of letters that are computed one after another: others have them all."""
    if stage.sequence is None:
        return [{}]
    steps = range(computation.sizes[stage.sequence])
    return [{stage.sequence: range(at, at + 1)} for at in steps]


class _Evaluation:
    """One stage on arrays, at some values of its letters."""

    def __init__(
        self,
        computation: Computation,
        stage: Stage,
        arrays: Arrays,
        params: Mapping[str, Any],
        step: Mapping[str, range],
    ) -> None:
        self.stage, self.arrays, self.params = stage, arrays, params
        self.dtypes = computation.dtypes
        letters = stage.letters
        ranges = [step.get(letter, range(computation.sizes[letter])) for letter in letters]
        steps = np.ix_(*(np.array(one, np.int64) for one in ranges))
        self.grid: Grid = dict(zip(letters, steps, strict=True))
        self.shape = tuple(map(len, ranges))
        self.box = tuple(slice(one.start, one.stop) for one in ranges[: len(stage.output)])
        self.region = self.points(stage.where, self.shape)

    def points(
        self, conditions: Iterable[Condition], shape: tuple[int, ...]
    ) -> npt.NDArray[np.bool_]:
        """Return at which points conditions hold."""
        found = np.ones(shape, dtype=bool)
        for condition in conditions:
            found = found & condition.holds(self.grid)
        return found

    def write(self, made: npt.NDArray[Any]) -> None:
        """Write what the stage computes into its array."""
        stage = self.stage
        with np.errstate(all="ignore"):
            values = np.broadcast_to(self.value(stage.term), self._after(self.shape))
        values = values.astype(made.dtype)
        if stage.update is not None:
            places = tuple(
                np.broadcast_to(self.place(axis), self.shape)[self.region] for axis in stage.axes
            )
            _check_places(str(stage.target), places, made.shape)
            made[...] = identity(stage.update, made.dtype.name)
            OPERATIONS[stage.update].function.at(made, places, values[self.region])
            return
        inner = tuple(range(len(stage.output), len(self.shape)))
        kept = np.ones(self.shape[: len(stage.output)], dtype=bool)
        outer = {
            x: steps.reshape(steps.shape[: len(stage.output)])
            for x, steps in self.grid.items()
            if x in stage.output
        }
        for condition in stage.bounds:
            kept = kept & condition.holds(outer)
        box: tuple[Any, ...] = self.box
        computed = made[(*box, ...)]
        computed[kept] = values.reshape(kept.shape)[kept] if inner else values[kept]

    def _after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape once reductions have run: summed letters have one value."""
        if self.stage.update is not None:
            return shape
        count = len(self.stage.output)
        return shape[:count] + (1,) * (len(shape) - count)

    def place(self, subscript: Affine | Term) -> npt.NDArray[Any]:
        """Return the positions that a subscript takes."""
        found = subscript.at(self.grid) if isinstance(subscript, Affine) else self.value(subscript)
        return np.asarray(found)

    def value(self, term: Term) -> Any:  # noqa: ANN401 - an array or a number
        """Return a term at all points."""
        match term:
            case Param(name=name):
                return self.params[name]
            case Position(position=position):
                return np.asarray(position.at(self.grid), dtype=np.int64)
            case Read():
                return self.read(term)
            case Cast(dtype=dtype, term=inner):
                return np.asarray(self.value(inner)).astype(dtype).astype(_wide(dtype))
            case Reduce():
                return self.reduced(term)
            case Scan():
                return self.scanned(term)
        found, kind = combine(term, self.value), term.kind(self.dtypes)
        return found.astype(_wide(kind)) if isinstance(kind, str) else found

    def read(self, read: Read) -> npt.NDArray[Any]:
        """Return the elements of an array; those outside the region may lie anywhere."""
        array = self.arrays[read.array]
        places = [self.place(one) for one in read.subscripts]
        region = self.points(self.stage.region(read), self.shape)
        needed = places
        if not (region.size and region.all()):
            needed = [np.broadcast_to(place, self.shape)[region] for place in places]
        _check_places(str(read), needed, array.shape)
        if not array.size:
            return np.zeros(np.broadcast_shapes(*(place.shape for place in places)), array.dtype)
        inside = [np.clip(x, 0, extent - 1) for x, extent in zip(places, array.shape, strict=True)]
        found: npt.NDArray[Any] = np.asarray(array[tuple(inside)])
        return found

    def reduced(self, term: Reduce) -> npt.NDArray[Any]:
        """Return a reduction, one value along its letters; a whole one has the stage's dtype."""
        if term.name in SEARCHES:
            return self.searched(term)
        whole = term is self.stage.term
        name = self.dtypes[self.stage.name] if whole else named_kind(term.kind(self.dtypes))
        kind, first = np.dtype(_wide(name)), identity(term.name, name)
        shape = self.shape_of(term)
        taken = self.points(self.stage.conditions(term), shape)
        values = np.broadcast_to(self.value(term.term), shape).astype(kind)
        found: npt.NDArray[Any] = OPERATIONS[term.name].function.reduce(
            np.where(taken, values, kind.type(first)),
            axis=tuple(self.stage.letters.index(letter) for letter in term.over),
            keepdims=True,
            dtype=kind,
            initial=kind.type(first),
        )
        return found

    def scanned(self, term: Scan) -> npt.NDArray[Any]:
        """Return a scan at all values of its letter."""
        axis = self.stage.letters.index(term.letter)
        along = [extent if at == axis else 1 for at, extent in enumerate(self.shape)]
        values = np.asarray(self.value(term.term))
        values = np.broadcast_to(values, np.broadcast_shapes(values.shape, along))
        kind = np.dtype(_wide(named_kind(term.kind(self.dtypes))))
        function = OPERATIONS[term.operation].function
        found: npt.NDArray[Any] = function.accumulate(values.astype(kind), axis=axis)
        return found

    def searched(self, term: Reduce) -> npt.NDArray[Any]:
        """Return where the first extreme value stands, counted in the order of the letters."""
        shape, letters = self.shape_of(term), self.stage.letters
        axes = [letters.index(letter) for letter in term.over]
        taken = np.moveaxis(self.points(self.stage.conditions(term), shape), axes, range(len(axes)))
        values = np.moveaxis(np.broadcast_to(self.value(term.term), shape), axes, range(len(axes)))
        rest = values.shape[len(axes) :]
        values, taken = (
            one.reshape(-1, *rest) for one in (values, np.broadcast_to(taken, values.shape))
        )
        first = identity(SEARCHES[term.name], values.dtype.name)
        found = np.where(taken, values, first)
        extreme = getattr(found, term.name[3:])(axis=0, initial=first)
        here = taken & ((values == extreme) | (values != values))
        places = np.where(here.any(axis=0), here.argmax(axis=0), identity("minimum", "int64"))
        return places.reshape(
            [1 if x in term.over else n for x, n in zip(letters, shape, strict=True)]
        )

    def shape_of(self, term: Reduce) -> tuple[int, ...]:
        """Return the shape of the grid of a reduction: other sums' letters have one value."""
        letters = {*self.stage.output, *term.over}
        return tuple(
            extent if x in letters else 1
            for x, extent in zip(self.stage.letters, self.shape, strict=True)
        )


def _check_places(
    name: str,
    places: Sequence[npt.NDArray[Any]],
    shape: tuple[int, ...],
) -> None:
    """Raise `SizeError` where a position lies outside an array."""
    for axis, (place, extent) in enumerate(zip(places, shape, strict=True)):
        if place.size and (place.min() < 0 or place.max() >= extent):
            wrong = place.min() if place.min() < 0 else place.max()
            raise SizeError(f"{name} is at position {wrong} of axis {axis}, which has {extent}")
