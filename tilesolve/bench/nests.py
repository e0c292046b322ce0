"""Nests as cases: the kernels of a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from tilesolve.bench.case import (
    NUMPY_OFFSET_BYTES,
    ROUNDING_ERRORS,
    Array,
    Case,
    Expected,
    choose_named,
    find_sums_slack,
    place_array,
)
from tilesolve.bench.pipelines import CASES, Pipeline
from tilesolve.bench.results.fields import read_text
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.nest_suites import NestCase as Nest
from tilesolve.contractions.statements.nest_suites import is_drawn, list_nest_suites, nest_suite
from tilesolve.contractions.statements.terms import Term

TINY_EXTENT = 11
"""Largest extent of the nest that is checked as a whole."""

LARGEST_DRAWN = 100
"""Integers are drawn below this."""

NEST_SECONDS = 5.0
"""Estimated seconds to start and check a contender and to time it."""

STATEMENT_SECONDS = 2.0
"""The same of a drawn statement, in a process that is there."""

SHARE = 32
"""How many times shorter the axes of a pipeline are that is checked first."""

PIPELINES = "pipelines"
"""The suite of functions."""


@dataclass(frozen=True, slots=True)
class NestCase(Case[Nest]):
    """A nest that is measured.

    All of a small version is checked; of the whole one, the sums of parts are compared among
    contenders.
    """

    START_SECONDS = NEST_SECONDS
    PACED = False
    WORK: ClassVar[type[Nest]] = Nest

    @property
    def dtype(self) -> str:
        """That of the result."""
        return self.work.computation.output.dtype

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, and of copies of them: peers hold results of statements."""
        return 2 * sum(array.bytes for array in self.work.computation.arrays)

    @property
    def volume(self) -> int:
        """Bytes of all arrays that are given or returned, each once."""
        made = self.work.computation
        names = dict.fromkeys((*made.inputs, made.output.name))
        return sum(made.array(name).bytes for name in names)

    @property
    def temporal(self) -> bool:
        """Whether the nest uses elements again: it sums."""
        return any(stage.summed for stage in self.work.computation.stages)

    @property
    def sums_slack(self) -> float:
        """By how much sums of parts of right results may differ; not at all for integers."""
        made = self.work.computation
        if np.dtype(self.dtype).kind != "f":
            return 0.0
        return find_sums_slack(self.dtype, count_terms(made), prod(made.output.shape))

    def shrink(self) -> NestCase:
        """Return the nest at small extents."""
        small = tuple((letter, min(extent, TINY_EXTENT)) for letter, extent in self.work.sizes)
        shapes = tuple(
            (name, tuple(min(extent, TINY_EXTENT) for extent in shape))
            for name, shape in self.work.shapes
        )
        return replace(self, work=replace(self.work, sizes=small, shapes=shapes))

    def draw(self, offset: int = NUMPY_OFFSET_BYTES) -> list[Array]:
        """Return inputs, and an array for the result: zeros, as a region leaves elements.

        They are written, so that no run takes new pages from the system.
        """
        made = self.work.computation
        out = place_array(made.output.shape, made.output.dtype, offset)
        out.fill(0)
        return [*draw_nest(made, offset=offset).values(), out]

    def expect(self, operands: Sequence[Array]) -> Expected:
        """Return all of a small result; of a large one its shape alone."""
        made = self.work.computation
        if max(extent for _, extent in self.work.sizes) > TINY_EXTENT:
            none = np.zeros(0, made.output.dtype)
            at = tuple(np.zeros((len(made.output.shape), 0), np.int64))
            return Expected(made.output.shape, self.dtype, at, none)
        given = dict(zip(made.inputs, operands, strict=True))
        right = evaluate(made, given, dict(self.work.params))
        slack = 0.0
        if right.dtype.kind == "f":
            size = max(1.0, float(np.abs(right).max(initial=0.0)))
            slack = ROUNDING_ERRORS * float(np.finfo(self.dtype).eps) * count_terms(made) * size
        return Expected(made.output.shape, self.dtype, ..., right, slack)

    def to_data(self) -> dict[str, Any]:
        """Return the JSON fields of the nest."""
        return {
            "statement": self.work.text,
            "sizes": dict(self.work.sizes),
            "dtype": self.work.dtype,
            "where": self.work.where,
            "params": dict(self.work.params),
            "shapes": {name: list(shape) for name, shape in self.work.shapes},
        }

    def list_cells(self) -> tuple[str, str, str]:
        """Return statements, sizes and dtype."""
        shapes = ((name, "x".join(map(str, shape))) for name, shape in self.work.shapes)
        sizes = " ".join(f"{name}={extent}" for name, extent in (*self.work.sizes, *shapes))
        return self.work.text, sizes, self.work.dtype

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Return the nest that such JSON fields describe."""
        nest = cls.WORK(
            read_text(entry, "name"),
            read_text(entry, "statement"),
            tuple(entry["sizes"].items()),
            read_text(entry, "dtype"),
            read_text(entry, "where"),
            tuple(entry["params"].items()),
            tuple((name, tuple(shape)) for name, shape in entry.get("shapes", {}).items()),
        )
        return cls(nest.name, nest)


@dataclass(frozen=True, slots=True)
class StatementCase(NestCase):
    """A drawn statement that is measured with what its caches hold of earlier runs."""

    START_SECONDS = STATEMENT_SECONDS
    KEEPS_PROCESSES = True
    WARM = True

    @property
    def relative_slack(self) -> float:
        """Statements add up what is not near one: squares, and numbers of one sign."""
        return round_off(self.dtype)


@dataclass(frozen=True, slots=True)
class PipelineCase(NestCase):
    """A traced function that is measured. All of its result is compared with NumPy's."""

    WORK = Pipeline

    @property
    def pipeline(self) -> Pipeline:
        """The function."""
        assert isinstance(self.work, Pipeline)
        return self.work

    @property
    def relative_slack(self) -> float:
        """Results are of one sign."""
        return round_off(self.dtype)

    def shrink(self) -> PipelineCase:
        """Return the pipeline of small arrays."""
        return PipelineCase(self.name, self.pipeline.shrink(SHARE))

    def draw(self, offset: int = NUMPY_OFFSET_BYTES) -> list[Array]:
        """Return inputs, and an array for the result."""
        made = self.work.computation
        drawn = {**self.pipeline.constants, **self.pipeline.arrays()}
        found = []
        for name in (*made.inputs, made.output.name):
            info = made.array(name)
            found.append(place_array(info.shape, info.dtype, offset))
            found[-1][...] = drawn.get(name, 0)
        return found

    def expect(self, operands: Sequence[Array]) -> Expected:
        """Return what the function does."""
        right = run_function(self.pipeline, operands)
        slack = round_off(self.dtype) * max(1.0, float(np.abs(right).max(initial=0.0)))
        return Expected(right.shape, self.dtype, ..., right, slack)


def run_function(pipeline: Pipeline, operands: Sequence[Array]) -> Array:
    """Return the first result of a pipeline's function, given inputs in the statements' order."""
    given = dict(zip(pipeline.computation.inputs, operands, strict=True))
    found = pipeline.function(*(given[name] for name, _ in pipeline.shapes))
    return np.asarray(found[0] if isinstance(found, tuple) else found)


def round_off(dtype: str) -> float:
    """Return by which share of itself a right result may differ; not at all for integers."""
    info = np.dtype(dtype)
    return ROUNDING_ERRORS * float(np.finfo(info).eps) if info.kind == "f" else 0.0


def find_pipelines(name: str, *, chosen: Sequence[str] = ()) -> dict[str, PipelineCase]:
    """Return pipelines by name, as `find_nests` does.

    Examples
    --------
    >>> list(find_pipelines(PIPELINES, chosen=["*s*p"]))
    ['unsharp']
    """
    found = choose_named(CASES, chosen, suite=name, what="pipeline")
    return {key: PipelineCase(key, one) for key, one in found.items()}


def has_nests(name: str) -> bool:
    """Return whether a suite has nests.

    Examples
    --------
    >>> has_nests("nests"), has_nests("tccg")
    (True, False)
    """
    return name in list_nest_suites() or is_drawn(name)


def find_nests(name: str, *, chosen: Sequence[str] = ()) -> dict[str, NestCase]:
    """Return the kernels of a suite by name.

    `chosen` has names, or patterns such as ``syr*``; without any, all kernels are meant.

    Raises
    ------
    BenchmarkError
        If no kernel has a chosen name.

    Examples
    --------
    >>> list(find_nests("nests", chosen=["syr2k", "t?"]))
    ['syr2k', 'tp']
    """
    found = choose_named(nest_suite(name), chosen, suite=name, what="nest")
    return {key: NestCase(key, nest) for key, nest in found.items()}


def find_statements(name: str, *, chosen: Sequence[str] = ()) -> dict[str, StatementCase]:
    """Return drawn statements by name, as `find_nests` does."""
    found = find_nests(name, chosen=chosen)
    return {key: StatementCase(key, case.work) for key, case in found.items()}


def draw_nest(
    computation: Computation, seed: int = 7, offset: int = NUMPY_OFFSET_BYTES
) -> dict[str, Array]:
    """Return inputs of a computation by name; always the same.

    Integers that are positions in an array lie in it.
    """
    rng = np.random.default_rng(seed)
    bounds = bound_positions(computation)
    found: dict[str, Array] = {}
    for name in computation.inputs:
        info = computation.array(name)
        found[name] = place_array(info.shape, info.dtype, offset)
        kind = found[name].dtype
        if kind.kind == "f":
            rng.standard_normal(out=found[name], dtype=kind.type)
        else:
            found[name][...] = rng.integers(0, bounds.get(name, LARGEST_DRAWN), info.shape)
    return found


def bound_positions(computation: Computation) -> dict[str, int]:
    """Return for arrays whose elements are positions the extent that these lie below.

    Examples
    --------
    >>> nest = Nest("", "o[i] = T[v[i]]", (("i", 9),), "int32", shapes=(("T", (7,)),))
    >>> bound_positions(nest.computation)
    {'v': 7}
    """
    found: dict[str, int] = {}
    for stage in computation.stages:
        for element in (stage.target, *stage.reads):
            shape = computation.array(element.array).shape
            for extent, subscript in zip(shape, element.subscripts, strict=True):
                for read in subscript.reads if isinstance(subscript, Term) else ():
                    found[read.array] = min(extent, found.get(read.array, extent))
    return found


def count_terms(computation: Computation) -> int:
    """Return how many terms an element of the result is made of, with those of its operands."""
    return prod(
        -(-computation.points(stage) // max(1, prod(computation.array(stage.name).shape)))
        for stage in computation.stages
    )
