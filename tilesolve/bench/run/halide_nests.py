"""Stages as Halide's functions, which one of its autoschedulers plans."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import identity
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
from tilesolve.machine.model import Machine

PLUGINS = {"Mullapudi2016": "autoschedule_mullapudi2016", "Adams2019": "autoschedule_adams2019"}
"""The autoschedulers and the libraries that have them."""

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "true_divide": lambda x, y: x / y,
    "floor_divide": lambda x, y: x / y,
    "remainder": lambda x, y: x % y,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "left_shift": lambda x, y: x << y,
    "right_shift": lambda x, y: x >> y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "negative": lambda x: -x,
    "invert": lambda x: ~x,
}
"""Operations that Python's operators of Halide's expressions do."""

_CALLS = {
    "minimum": "min",
    "maximum": "max",
    "absolute": "abs",
    "rint": "round",
    **{name: name for name in ("sqrt", "exp", "log", "floor", "ceil")},
}
"""Operations that are functions of Halide."""


def make_halide(
    scheduler: str,
    computation: Computation,
    machine: Machine,
    threads: int,
    arrays: Mapping[str, Array],
    params: Mapping[str, float],
    out: Array,
) -> Callable[[], Array]:
    """Return a run of a computation as Halide compiled it by the schedule of an autoscheduler."""
    import halide as hl

    os.environ["HL_NUM_THREADS"] = str(threads)
    hl.load_plugin(PLUGINS[scheduler])
    made = _Functions(hl, computation, arrays, params)
    last = made.functions[computation.output.name]
    last.set_estimates([(0, extent) for extent in reversed(computation.output.shape)])
    pipeline = hl.Pipeline(last)
    target = hl.get_jit_target_from_environment()
    asked = {"parallelism": str(threads)}
    if scheduler == "Mullapudi2016":
        asked["last_level_cache_size"] = str(max(level.capacity or 0 for level in machine.levels))
    pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(scheduler, asked))
    pipeline.compile_jit(target)
    result = hl.Buffer(out)
    held = made, dict(arrays)  # Halide's buffers do not keep what they are made of

    def run() -> Array:
        assert held
        pipeline.realize(result)
        return out

    return run


class _Functions:
    """Halide's function of each stage."""

    def __init__(
        self,
        hl: Any,  # noqa: ANN401 - Halide has no types
        computation: Computation,
        arrays: Mapping[str, Array],
        params: Mapping[str, float],
    ) -> None:
        self.hl, self.computation, self.params = hl, computation, params
        self.held: list[Any] = []
        self.functions: dict[str, Any] = {}
        for name in computation.inputs:
            info = computation.array(name)
            image = hl.ImageParam(self.kind(info.dtype), len(info.shape), name)
            image.set(hl.Buffer(arrays[name]))
            image.set_estimates([(0, extent) for extent in reversed(info.shape)])
            self.functions[name] = image
            self.held.append(image)
        for stage in computation.stages:
            self.functions[stage.name] = self.define(stage)

    def kind(self, dtype: str) -> Any:  # noqa: ANN401 - Halide has no types
        """Return Halide's type of a dtype."""
        found = np.dtype(dtype)
        bits = 8 * found.itemsize
        makers = {"f": self.hl.Float, "i": self.hl.Int, "u": self.hl.UInt}
        return self.hl.Bool() if found.kind == "b" else makers[found.kind](bits)

    def define(self, stage: Stage) -> Any:  # noqa: ANN401 - Halide has no types
        """Return the function of a stage."""
        if stage.update is not None or stage.in_place:
            raise BenchmarkError(f"not written for Halide: {stage}")
        hl, info = self.hl, self.computation.array(stage.name)
        function = hl.Func(stage.name + "_made")
        letters: dict[str, Any] = {letter: hl.Var(letter) for letter in stage.output}
        place = tuple(letters[letter] for letter in reversed(stage.output))
        kind = self.kind(info.dtype)
        if stage.reduction is None:
            if stage.where:
                raise BenchmarkError(f"not written for Halide: {stage}")
            function[place] = hl.cast(kind, self.term(stage.term, letters))
            return function
        domain = hl.RDom([(0, self.computation.sizes[x]) for x in stage.summed], "r")
        axes = [domain[at] for at in range(len(stage.summed))]
        letters |= dict(zip(stage.summed, axes, strict=True))
        for condition in stage.where:
            domain.where(self.condition(condition, letters))
        function[place] = hl.cast(kind, identity(stage.reduction.name, info.dtype))
        value = hl.cast(kind, self.term(stage.reduction.term, letters))
        operation = Apply(stage.reduction.name, (Number(0), Number(0)))
        function[place] = self.apply(operation.name, [function[place], value])
        return function

    def condition(self, condition: Condition, letters: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return a condition as an expression."""
        return self.position(condition.position, letters) >= 0

    def position(self, position: Affine, letters: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return a position as an expression."""
        found = self.hl.i32(position.offset)
        for factor, letter in position.terms:
            found = found + self.hl.i32(factor) * letters[letter]
        return found / self.hl.i32(position.divisor) if position.divisor > 1 else found

    def apply(self, name: str, given: list[Any]) -> Any:  # noqa: ANN401 - Halide has no types
        """Return an operation of expressions."""
        if name in _OPERATORS:
            return _OPERATORS[name](*given)
        return getattr(self.hl, _CALLS[name])(*given)

    def term(self, term: Term, letters: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return a term as an expression."""
        hl = self.hl
        match term:
            case Number(value=value):
                return value
            case Param(name=name):
                kind = self.kind(self.computation.dtypes[name])
                return hl.cast(kind, self.params[name])
            case Position(position=position):
                return hl.cast(hl.Int(64), self.position(position, letters))
            case Read(array=array, subscripts=subscripts):
                place = [
                    self.position(one, letters)
                    if isinstance(one, Affine)
                    else hl.cast(hl.Int(32), self.term(one, letters))
                    for one in reversed(subscripts)
                ]
                return self.functions[array][tuple(place)]
            case Cast(dtype=dtype, term=inner):
                return hl.cast(self.kind(dtype), self.term(inner, letters))
            case Choose(test=test, yes=yes, no=no):
                return hl.select(*(self.term(one, letters) for one in (test, yes, no)))
            case Apply(name=name, arguments=arguments):
                return self.apply(name, [self.term(one, letters) for one in arguments])
            case Reduce():
                raise BenchmarkError(f"not written for Halide: {term} within a larger term")
        raise BenchmarkError(f"not written for Halide: {term}")
