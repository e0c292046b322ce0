"""Terms at a single point, with numpy's numbers of their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import OPERATIONS, identity, named_kind
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

Point = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PointValues:
    """What terms of a stage are.

    Parameters
    ----------
    computation, stage
        Whose terms.
    params
        The value of each parameter.
    load
        Returns an element by its read and position.
    """

    computation: Computation
    stage: Stage
    params: Mapping[str, Any]
    load: Callable[[Read, tuple[int, ...]], Any]

    def place(self, subscript: Affine | Term, point: Point) -> int:
        """Return the position that a subscript is."""
        if isinstance(subscript, Affine):
            return int(subscript.at(point))
        return int(self.value(subscript, "int64", point))

    def value(self, term: Term, dtype: str, point: Point) -> Any:
        """Return a term at a point, in a dtype."""
        return np.asarray(self._computed(term, point)).astype(dtype)[()]

    def _computed(self, term: Term, point: Point) -> Any:
        match term:
            case Number(value=value):
                return value
            case Param(name=name):
                return self.params[name]
            case Position(position=position):
                return np.int64(position.at(point))
            case Read(subscripts=subscripts):
                return self.load(term, tuple(self.place(one, point) for one in subscripts))
            case Cast(dtype=dtype, term=inner):
                return self.value(inner, dtype, point)
            case Choose(test=test, yes=yes, no=no):
                kind = named_kind(term.kind(self.computation.dtypes))
                found = [self.value(one, kind, point) for one in (yes, no)]
                return found[0] if self.value(test, "bool", point) else found[1]
            case Apply(name=name, arguments=arguments):
                kinds = [one.kind(self.computation.dtypes) for one in arguments]
                given = [
                    self.value(one, dtype, point)
                    for one, dtype in zip(arguments, argument_dtypes(term, kinds), strict=True)
                ]
                return OPERATIONS[name].function(*given)
            case Reduce():
                return self._reduced(term, point)
        raise SpecError(f"{term!r} is no term")

    def _reduced(self, term: Reduce, point: Point) -> Any:
        kind = named_kind(term.kind(self.computation.dtypes))
        found = np.dtype(kind).type(identity(term.name, kind))
        conditions = self.stage.conditions(term)
        for values in product(*(range(self.computation.sizes[x]) for x in term.over)):
            here = {**point, **dict(zip(term.over, values, strict=True))}
            if all(one.holds(here) for one in conditions):
                value = self.value(term.term, kind, here)
                found = np.asarray(OPERATIONS[term.name].function(found, value)).astype(kind)[()]
        return found
