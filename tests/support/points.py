"""Statements evaluated by Python's own loops, point by point: the oracle of what evaluates them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import OPERATIONS, identity
from tilesolve.contractions.statements.terms import (
    Apply,
    Cast,
    Choose,
    Number,
    Param,
    Position,
    Read,
    Reduce,
)


class Points:
    """A computation on arrays, by its points."""

    def __init__(self, computation: Any, arrays: Mapping[str, Any], params: Any = None) -> None:
        self.computation, self.params = computation, params or {}
        self.arrays = {name: np.array(array) for name, array in arrays.items()}

    def run(self) -> Any:
        """Return the output, stage by stage."""
        for stage in self.computation.stages:
            info = self.computation.array(stage.name)
            before = self.arrays.get(stage.name)
            made = np.zeros(info.shape, info.dtype) if before is None else before.copy()
            if stage.sequence:
                self.arrays[stage.name] = made
            if stage.update is not None:
                made[...] = identity(stage.update, info.dtype)
                for point in self.box(stage, stage.letters):
                    if all(one.holds(point) for one in stage.where):
                        self.add(made, stage.update, self.place(stage.axes, point), stage, point)
            else:
                for point in self.box(stage, stage.output):
                    outer = [x for x in stage.where if set(x.letters) <= set(stage.output)]
                    if all(one.holds(point) for one in outer):
                        made[self.place(stage.axes, point)] = self.value(stage.term, point, stage)
            self.arrays[stage.name] = made
        found = tuple(self.arrays[name] for name in self.computation.outputs)
        return found[0] if len(found) == 1 else found

    def add(self, made: Any, name: str, place: Any, stage: Any, point: Any) -> None:
        """Put the term of a stage into an element."""
        value = np.asarray(self.value(stage.term, point, stage)).astype(made.dtype)
        made[place] = OPERATIONS[name].function(made[place], value)

    def box(self, stage: Any, letters: Any) -> Any:
        """Yield the values of letters."""
        sizes = self.computation.sizes
        for values in product(*(range(sizes[x]) for x in letters)):
            yield dict(zip(letters, values, strict=True))

    def place(self, subscripts: Any, point: Any, stage: Any = None) -> Any:
        """Return where an element lies."""
        found = tuple(
            int(x.at(point) if isinstance(x, Affine) else self.value(x, point, stage))
            for x in subscripts
        )
        assert all(one >= 0 for one in found), found
        return found

    def value(self, term: Any, point: Any, stage: Any) -> Any:
        """Return a term at a point."""
        match term:
            case Number(value=value):
                return value
            case Param(name=name):
                return np.dtype(dict(self.computation.params)[name]).type(self.params[name])
            case Position(position=position):
                return np.int64(position.at(point))
            case Read(array=array, subscripts=subscripts):
                return self.arrays[array][self.place(subscripts, point, stage)]
            case Cast(dtype=dtype, term=inner):
                return np.asarray(self.value(inner, point, stage)).astype(dtype)[()]
            case Choose(test=test, yes=yes, no=no):
                chosen = yes if self.value(test, point, stage) else no
                kind = term.kind(self.computation.dtypes)
                return np.asarray(self.value(chosen, point, stage)).astype(kind)[()]
            case Apply(name=name, arguments=arguments):
                with np.errstate(all="ignore"):
                    return OPERATIONS[name].function(
                        *(self.value(one, point, stage) for one in arguments)
                    )
            case Reduce(name=name, over=over, term=inner):
                kind = np.dtype(self.computation.dtypes[stage.name])
                total = kind.type(identity(name, kind.name))
                for more in self.box(stage, over):
                    there = {**point, **more}
                    where = [x for x in stage.where if set(x.letters) <= set(there)]
                    if all(one.holds(there) for one in where):
                        value = np.asarray(self.value(inner, there, stage)).astype(kind)[()]
                        with np.errstate(all="ignore"):
                            total = kind.type(OPERATIONS[name].function(total, value))
                return total
        raise TypeError(term)
