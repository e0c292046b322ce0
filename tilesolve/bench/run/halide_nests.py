"""Stages as Halide's functions, which one of its autoschedulers plans."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.affine import Affine, Condition
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import identity
from tilesolve.contractions.statements.promotion import argument_dtypes
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
        self.parts: dict[str, list[Stage]] = {}
        self.before: dict[Read, Any] = {}  # values that a part goes on from
        self.clamped = False
        for name in computation.inputs:
            info = computation.array(name)
            image = hl.ImageParam(self.kind(info.dtype), len(info.shape), name)
            image.set(hl.Buffer(arrays[name]))
            image.set_estimates([(0, extent) for extent in reversed(info.shape)])
            self.functions[name] = image
            self.held.append(image)
        for name in dict.fromkeys(stage.name for stage in reversed(computation.stages)):
            self.parts[name] = [one for one in computation.stages if one.name == name]
        for name in reversed(self.parts):
            self.functions[name] = self.define(self.parts[name])

    def kind(self, dtype: str) -> Any:  # noqa: ANN401 - Halide has no types
        """Return Halide's type of a dtype."""
        found = np.dtype(dtype)
        bits = 8 * found.itemsize
        makers = {"f": self.hl.Float, "i": self.hl.Int, "u": self.hl.UInt}
        return self.hl.Bool() if found.kind == "b" else makers[found.kind](bits)

    def define(self, parts: Sequence[Stage]) -> Any:  # noqa: ANN401 - Halide has no types
        """Return the function of an array that a stage computes, or several, a part each."""
        if len(parts) > 1 or (parts[0].where and parts[0].reduction is None):
            return self.define_parts(parts)
        (stage,) = parts
        if stage.update is not None or stage.in_place:
            raise BenchmarkError(f"not written for Halide: {stage}")
        hl, info = self.hl, self.computation.array(stage.name)
        function = hl.Func(stage.name + "_made")
        letters: dict[str, Any] = {letter: hl.Var(letter) for letter in stage.output}
        place = tuple(letters[letter] for letter in reversed(stage.output))
        kind = self.kind(info.dtype)
        if stage.reduction is None:
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

    def define_parts(self, parts: Sequence[Stage]) -> Any:  # noqa: ANN401 - Halide has no types
        """Return the function of an array that is computed part by part.

        The part that has most borders is the likely one, as Halide has it for borders of images.
        """
        hl, info = self.hl, self.computation.array(parts[0].name)
        function = hl.Func(parts[0].name + "_made")
        axes = [hl.Var(f"x{at}") for at in range(len(info.shape))]
        kind, likely = self.kind(info.dtype), max(len(one.where) for one in parts)
        value = hl.cast(kind, 0)
        for number, stage in enumerate(parts):
            in_place = stage.in_place and not number
            if stage.update is not None or stage.reduction is not None or in_place:
                raise BenchmarkError(f"not written for Halide: {stage}")
            letters: dict[str, Any] = dict(zip(stage.output, axes, strict=True))
            self.before[stage.target] = value
            self.clamped = bool(stage.where)
            own = hl.cast(kind, self.term(stage.term, letters))
            for condition in stage.where:
                own = hl.likely(own) if len(stage.where) == likely else own
                own = hl.select(self.condition(condition, letters), own, value)
            value, self.clamped = own, False
        function[tuple(reversed(axes))] = value
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
                return hl.f64(value) if isinstance(value, float) else value
            case Param(name=name):
                kind = self.kind(self.computation.dtypes[name])
                return hl.cast(kind, self.params[name])
            case Position(position=position):
                return hl.cast(hl.Int(64), self.position(position, letters))
            case Read() if term in self.before:
                return self.before[term]
            case Read(array=array, subscripts=subscripts):
                if array not in self.functions:
                    raise BenchmarkError(f"not written for Halide: {array} is read amid its parts")
                place = [
                    self.position(one, letters)
                    if isinstance(one, Affine)
                    else hl.cast(hl.Int(32), self.term(one, letters))
                    for one in reversed(subscripts)
                ]
                if self.clamped:
                    ends = reversed(self.computation.array(array).shape)
                    place = [hl.clamp(one, 0, n - 1) for one, n in zip(place, ends, strict=True)]
                return self.functions[array][tuple(place)]
            case Cast(dtype=dtype, term=inner):
                return hl.cast(self.kind(dtype), self.term(inner, letters))
            case Choose(test=test, yes=yes, no=no):
                return hl.select(*(self.term(one, letters) for one in (test, yes, no)))
            case Apply(name=name, arguments=arguments):
                dtypes = self.computation.dtypes
                kinds = argument_dtypes(term, [one.kind(dtypes) for one in arguments])
                return self.apply(
                    name,
                    [
                        hl.cast(self.kind(kind), self.term(one, letters))
                        for one, kind in zip(arguments, kinds, strict=True)
                    ],
                )
            case Reduce():
                raise BenchmarkError(f"not written for Halide: {term} within a larger term")
        raise BenchmarkError(f"not written for Halide: {term}")
