"""Stages that each compute all of an array, for languages whose functions have no parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import numpy as np
import numpy.typing as npt

from tilesolve.bench.pipelines import Pipeline
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import (
    Cast,
    Choose,
    Position,
    Read,
    Term,
    apply,
)
from tilesolve.nests.split import split_sums
from tilesolve.pipelines.graph import Place, axis_letters, substitute
from tilesolve.pipelines.stages import make_computation
from tilesolve.pipelines.traced import FUNCTIONS, Traced, filling


def trace_whole(pipeline: Pipeline) -> Computation:
    """Return what a pipeline computes, by stages without parts: borders are of clamped positions.

    Examples
    --------
    >>> from tilesolve.bench.pipelines import CASES
    >>> [stage.name for stage in trace_whole(CASES["shallow_water"].shrink(32)).stages]
    ['u_2', 'v_2', 'h_2']
    """
    with _clamped_borders():
        found = pipeline.trace()
    return split_sums(join_parts(make_computation(found.graph, found.results[0].name)))


def join_parts(computation: Computation) -> Computation:
    """Return stages of which none computes a part of an array: where each part lies is a choice.

    Raises
    ------
    BenchmarkError
        If a stage needs other elements of its own array, or a sum is of a part.
    """
    found: dict[str, Stage] = {}
    for stage in computation.stages:
        before = found.pop(stage.name, None)
        if before is not None or (stage.where and stage.reduction is None):
            stage = _join(stage, before, computation)
        found[stage.name] = stage
    letters = {letter for stage in found.values() for letter in stage.letters}
    sizes = {letter: n for letter, n in computation.extents if letter in letters}
    given = {name: computation.array(name) for name in computation.inputs}
    return bind_stages(
        tuple(found.values()),
        sizes,
        {name: one.dtype for name, one in given.items()},
        {name: computation.array(name).shape for name in (*given, *found)},
    )


def _join(stage: Stage, before: Stage | None, computation: Computation) -> Stage:
    """Return a stage that has the elements of an earlier one outside of its region."""
    dtype = computation.array(stage.name).dtype
    old: Term = filling(0, dtype)
    if before is not None:
        axes = dict(zip(before.output_letters(), stage.axes, strict=True))
        old = substitute(
            before.term, {x: one for x, one in axes.items() if isinstance(one, Affine)}
        )
    if stage.update is not None or stage.reduction is not None:
        raise BenchmarkError(f"not written by whole arrays: {stage}")
    own = _within(stage.term, stage, old, computation)
    if own.kind(computation.dtypes) != dtype:
        own = Cast(dtype, own)
    tests = [apply("greater_equal", Position(one.position), 0) for one in stage.where]
    term = Choose(reduce(lambda x, y: x & y, tests), own, old) if tests else own
    return Stage(stage.name, stage.axes, term, dtype)


def _within(term: Term, stage: Stage, old: Term, computation: Computation) -> Term:
    """Return a term whose reads lie within arrays everywhere; those of its own array are given."""
    if term == stage.target:
        return old
    parts = [_within(one, stage, old, computation) for one in term.parts]
    term = term.rebuilt(parts) if parts else term
    if not isinstance(term, Read):
        return term
    if term.array == stage.name:
        raise BenchmarkError(f"not written by whole arrays: {stage}")
    shape, places = computation.array(term.array).shape, list[Place]()
    ends = {letter: (0, n - 1) for letter, n in computation.extents}
    for place, extent in zip(term.subscripts, shape, strict=True):
        low, high = place.interval(ends) if isinstance(place, Affine) else (0, 0)
        inside = low >= 0 and high < extent
        places.append(place if inside or isinstance(place, Term) else _clamp(place, extent))
    return Read(term.array, tuple(places))


def _clamp(place: Affine, extent: int) -> Term:
    """Return the nearest position within an axis."""
    return apply("minimum", apply("maximum", Position(place), 0), extent - 1)


@contextmanager
def _clamped_borders() -> Iterator[None]:
    """Have `np.pad` traced as one array, whose positions are clamped."""
    before = FUNCTIONS[np.pad]

    def pad(array: Traced, width: npt.ArrayLike, mode: str = "constant") -> Traced:
        if mode not in ("edge", "constant"):
            raise BenchmarkError(f"not written by whole arrays: borders by {mode}")
        return _pad(array, np.broadcast_to(np.asarray(width, int), (array.ndim, 2)).tolist(), mode)

    FUNCTIONS[np.pad] = pad
    try:
        yield
    finally:
        FUNCTIONS[np.pad] = before


def _pad(array: Traced, widths: Sequence[Sequence[int]], mode: str) -> Traced:
    shape = tuple(n + low + high for n, (low, high) in zip(array.shape, widths, strict=True))
    at, tests = list[Place](), list[Term]()
    for letter, n, (low, high) in zip(axis_letters(array.ndim), array.shape, widths, strict=True):
        place = letter - low
        at.append(_clamp(place, n) if low or high else place)
        if mode == "constant":
            tests += [apply("greater_equal", Position(place), 0)] if low else []
            tests += [apply("greater_equal", Position(n - 1 - place), 0)] if high else []
    term: Term = array.copy().read(at)
    if tests:
        term = Choose(reduce(lambda x, y: x & y, tests), term, filling(0, array.dtype.name))
    return array.make(term, shape)
