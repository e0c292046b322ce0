"""Stages as Python text that defines Halide's functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import identity, is_complex, named_kind
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
    Term,
)

_OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "true_divide": "/",
    "floor_divide": "/",
    "remainder": "%",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "left_shift": "<<",
    "right_shift": ">>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
"""Operations that operators between Halide's expressions do."""

_CALLS = {
    "negative": "-",
    "invert": "~",
    "minimum": "hl.min",
    "maximum": "hl.max",
    "absolute": "hl.abs",
    "rint": "hl.round",
    **{name: f"hl.{name}" for name in ("sqrt", "exp", "log", "floor", "ceil")},
}
"""Operations that are functions of Halide, or stand before an expression."""


def write_functions(
    parts: Sequence[tuple[Stage, Computation]], *, around: bool = False
) -> Iterator[str]:
    """Yield lines that define a function `f_NAME` of each stage, with variables `v_LETTER`.

    Parameters
    ----------
    parts
        Stages in order, each with a computation that has its arrays.
    around
        Whether inputs have elements around them: what begins a ring reads some that none needs.

    Raises
    ------
    PlanError
        If a stage is of parts of an array, complex, an update, or has a term that is not written.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = bind_stages(parse_stages("o[x] = A[x] + A[x+1]"), 8, "float32")
    >>> print(*write_functions([(found.stages[0], found)]), sep=chr(10))
    v_x = hl.Var('x')
    f_A = hl.ImageParam(hl.Float(32), 1, 'A')
    f_A.set(hl.Buffer(inputs['A']))
    f_A.set_estimates([(0, 9)])
    f_o = hl.Func('o_made')
    f_o[v_x] = (f_A[v_x] + f_A[v_x + 1])
    """
    made: dict[str, None] = {}
    names = dict.fromkeys(letter for stage, _ in parts for letter in stage.output)
    yield from (f"v_{letter} = hl.Var({letter!r})" for letter in names)
    for stage, computation in parts:
        if is_complex(*computation.dtypes.values()):
            raise PlanError(f"not written for Halide: {stage}, of complex numbers")
        if stage.name in made or stage.update is not None or stage.in_place:
            raise PlanError(f"not written for Halide: {stage}, of parts of an array or an update")
        for name in dict.fromkeys(read.array for read in stage.reads):
            if name not in made:
                yield from _input(name, computation)
                if around:
                    yield f"f_{name} = hl.BoundaryConditions.repeat_edge(f_{name})"
                made[name] = None
        yield from _Definition(stage, computation).lines()
        made[stage.name] = None


def kind_of(dtype: str) -> str:
    """Return Halide's type of a dtype."""
    found = np.dtype(dtype)
    makers = {"f": "Float", "i": "Int", "u": "UInt"}
    return "hl.Bool()" if found.kind == "b" else f"hl.{makers[found.kind]}({8 * found.itemsize})"


def write_number(value: float, dtype: str) -> str:
    """Return a number in a dtype as text.

    Examples
    --------
    >>> write_number(2, "float32"), write_number(3, "uint16")
    ('hl.f32(2.0)', 'hl.u16(3)')
    """
    found = np.dtype(dtype)
    if found.kind == "b":
        return f"hl.cast(hl.Bool(), {int(value)})"
    text = f"float({str(float(value))!r})" if not np.isfinite(value) else repr(float(value))
    return f"hl.{found.kind}{8 * found.itemsize}({text if found.kind == 'f' else int(value)})"


def _input(name: str, computation: Computation) -> Iterator[str]:
    """Yield lines that define an input."""
    info = computation.array(name)
    yield f"f_{name} = hl.ImageParam({kind_of(info.dtype)}, {len(info.shape)}, {name!r})"
    yield f"f_{name}.set(hl.Buffer(inputs[{name!r}]))"
    yield f"f_{name}.set_estimates({[(0, extent) for extent in reversed(info.shape)]})"


@dataclass(frozen=True, slots=True)
class _Definition:
    """Writes the function of a stage."""

    stage: Stage
    computation: Computation

    def lines(self) -> Iterator[str]:
        """Yield lines that define the function; sums run in the order of their letters."""
        stage, sizes = self.stage, self.computation.sizes
        letters = {letter: f"v_{letter}" for letter in stage.output}
        place = ", ".join(letters[letter] for letter in reversed(stage.output)) or "()"
        dtype = self.computation.array(stage.name).dtype
        name, reduction = f"f_{stage.name}", stage.reduction
        yield f"{name} = hl.Func({stage.name + '_made'!r})"
        if reduction is None:
            if stage.where:
                raise PlanError(f"not written for Halide: {stage}, in a region")
            yield f"{name}[{place}] = {self.value(stage.term, dtype, letters)}"
            return
        summed = tuple(reversed(stage.summed))
        domain = f"r_{stage.name}"
        yield f"{domain} = hl.RDom({[(0, sizes[x]) for x in summed]})"
        letters |= {letter: f"{domain}[{at}]" for at, letter in enumerate(summed)}
        for one in stage.where:
            yield f"{domain}.where({self.position(one.position, letters)} >= 0)"
        yield f"{name}[{place}] = {write_number(identity(reduction.name, dtype).real, dtype)}"
        value = self.value(reduction.term, dtype, letters)
        summed_up = self.apply(reduction.name, [f"{name}[{place}]", value], dtype)
        yield f"{name}[{place}] = {summed_up}"

    def position(self, position: Affine, letters: Mapping[str, str]) -> str:
        """Return a position as text."""
        parts = [
            letters[letter] if factor == 1 else f"{factor} * {letters[letter]}"
            for factor, letter in position.terms
        ]
        if position.offset or not parts:
            parts.append(str(position.offset))
        found = " + ".join(parts).replace("+ -", "- ")
        return f"({found}) / {position.divisor}" if position.divisor > 1 else found

    def apply(self, name: str, given: Sequence[str], dtype: str) -> str:
        """Return an operation of expressions of a dtype as text."""
        divides = name in ("floor_divide", "remainder") and np.dtype(dtype).kind == "f"
        if name in _OPERATORS and not divides:
            return f"({f' {_OPERATORS[name]} '.join(given)})"
        if name in _CALLS:
            return f"{_CALLS[name]}({', '.join(given)})"
        raise PlanError(f"not written for Halide: {name} of {dtype}, in {self.stage}")

    def value(self, term: Term, dtype: str, letters: Mapping[str, str]) -> str:
        """Return a term in a dtype as text."""
        if isinstance(term, Number):
            return write_number(term.value.real, dtype)
        found = self.term(term, letters)
        if term.kind(self.computation.dtypes) == dtype:
            return found
        return f"hl.cast({kind_of(dtype)}, {found})"

    def term(self, term: Term, letters: Mapping[str, str]) -> str:
        """Return a term as text, in the dtypes that NumPy computes in."""
        dtypes = self.computation.dtypes
        match term:
            case Param(name=name):
                return f"hl.cast({kind_of(dtypes[name])}, params[{name!r}])"
            case Position(position=position):
                return f"hl.cast(hl.Int(64), {self.position(position, letters)})"
            case Read(array=array, subscripts=subscripts):
                place = [
                    self.position(one, letters)
                    if isinstance(one, Affine)
                    else f"hl.cast(hl.Int(32), {self.value(one, 'int64', letters)})"
                    for one in reversed(subscripts)
                ]
                return f"f_{array}[{', '.join(place) or '()'}]"
            case Cast(dtype=dtype, term=inner):
                return self.value(inner, dtype, letters)
            case Choose(test=test, yes=yes, no=no):
                kind = named_kind(term.kind(dtypes))
                parts = [self.value(one, kind, letters) for one in (yes, no)]
                return f"hl.select({self.value(test, 'bool', letters)}, {', '.join(parts)})"
            case Apply(name=name, arguments=arguments):
                kinds = argument_dtypes(term, [one.kind(dtypes) for one in arguments])
                pairs = zip(arguments, kinds, strict=True)
                given = [self.value(one, kind, letters) for one, kind in pairs]
                return self.apply(name, given, kinds[0])
        raise PlanError(f"not written for Halide: {term} within a larger term")
