"""Computations: stages with the extents of their letters and arrays, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np

from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.statements.affine import Affine, Box, greatest_value, least_value
from tilesolve.contractions.statements.extents import Shape, find_extents, list_uses
from tilesolve.contractions.statements.operations import (
    DTYPES,
    REDUCTIONS,
    check_parts,
    is_complex,
    named_kind,
    result_dtype,
)
from tilesolve.contractions.statements.pieces import find_period, greatest_remainder
from tilesolve.contractions.statements.promotion import argument_dtypes
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Read, Term

_MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array of a computation: its name, shape and dtype."""

    name: str
    shape: Shape
    dtype: str

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Computation:
    """Stages, one after another, at given extents.

    Parameters
    ----------
    stages
        In the order in which they run. Several may compute an array, one part after another.
    extents
        Pairs of a letter and how many values it takes, from 0 on.
    arrays
        All arrays: those that are given, in the order of their first read in the text, then those
        that are computed.
    params
        The dtype of each parameter.
    outputs
        The arrays that a call returns, in order.

    Examples
    --------
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> stages = parse_stages("out[y,x] = (A[y,x] + A[y,x+2]) / 2")
    >>> found = bind_stages(stages, {"y": 4, "x": 6}, "float32")
    >>> [(array.name, array.shape) for array in found.arrays], found.inputs
    ([('A', (4, 8)), ('out', (4, 6))], ('A',))
    """

    stages: tuple[Stage, ...]
    extents: tuple[tuple[str, int], ...]
    arrays: tuple[ArrayInfo, ...]
    params: tuple[tuple[str, str], ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def sizes(self) -> Mapping[str, int]:
        """The extent of each letter, as a read-only mapping."""
        return MappingProxyType(dict(self.extents))

    @property
    def dtypes(self) -> Mapping[str, str]:
        """The dtype of each array and parameter, as a read-only mapping."""
        found = {array.name: array.dtype for array in self.arrays}
        return MappingProxyType(found | dict(self.params))

    @property
    def output(self) -> ArrayInfo:
        """The array that the last stage computes."""
        return self.array(self.stages[-1].name)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arrays that a call gives, in order. One that is updated in place is one of them."""
        return _find_inputs(self.stages)

    def array(self, name: str) -> ArrayInfo:
        """Return an array by its name."""
        return next(array for array in self.arrays if array.name == name)

    def box(self, stage: Stage) -> Box:
        """Return the first and the last value of each letter of a stage."""
        return {letter: (0, self.sizes[letter] - 1) for letter in stage.letters}

    def points(self, stage: Stage) -> int:
        """Return how many points the box of a stage has."""
        return prod(self.sizes[letter] for letter in stage.letters)

    def part(self, sizes: Mapping[str, int]) -> Computation:
        """Return the computation at other extents, with arrays as large as these need."""
        extents = {**self.sizes, **sizes}
        return bind_stages(self.stages, extents, self.dtypes, outputs=self.outputs)

    def __str__(self) -> str:
        sizes = " ".join(f"{letter}={extent}" for letter, extent in self.extents)
        return "; ".join(map(str, self.stages)) + f"  {sizes} {self.output.dtype}"


def bind_stages(
    stages: Sequence[Stage],
    sizes: Mapping[str, int] | int,
    dtype: str | Mapping[str, str] = "float64",
    shapes: Mapping[str, Shape] | None = None,
    outputs: Sequence[str] = (),
) -> Computation:
    """Give stages their extents.

    Parameters
    ----------
    stages
        In the order in which they run.
    sizes
        How many values each letter takes, or one number for all. Letters that are missing follow
        from shapes.
    dtype
        Of all arrays that are given and of all parameters; or of each by its name.
    shapes
        Of some arrays. The others end at the last positions that are read or written.
    outputs
        The arrays that a call returns; if none are given, those that no later statement reads.

    Raises
    ------
    SizeError
        If a letter has no extent, or more than an array has.
    DtypeError
        If an operation is not made for the dtypes.
    SpecError
        If a stage is not used, or an array has another number of axes elsewhere, or several sums.
    """
    stages = tuple(stages)
    if not stages:
        raise SpecError("no statement is given: a computation has one at least")
    given = dict(shapes or {})
    orders = _check_orders(stages, given)
    _check_uses(stages)
    returned = _find_outputs(stages, outputs)
    found = find_extents(stages, sizes, given)
    dtypes, params = _dtypes(stages, dtype)
    inputs = _find_inputs(stages)
    names = dict.fromkeys((*inputs, *(stage.name for stage in stages)))
    arrays = tuple(
        ArrayInfo(name, _shape(stages, name, orders[name], found, given), dtypes[name])
        for name in names
    )
    for array in arrays:
        if array.bytes > _MAX_BYTES:
            raise SizeError(f"{array.name} of shape {array.shape} has more than 2**63-1 bytes")
    return Computation(stages, tuple(found.items()), arrays, params, returned)


def _find_inputs(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Return the arrays that are read before a stage computes them."""
    found: dict[str, None] = {}
    made: set[str] = set()
    for stage in stages:
        found |= dict.fromkeys(read.array for read in stage.reads if read.array not in made)
        made.add(stage.name)
    return tuple(found)


def _check_orders(stages: Sequence[Stage], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Return how many axes each array has."""
    found: dict[str, Read] = {}
    for stage in stages:
        for read in (stage.target, *stage.reads):
            first = found.setdefault(read.array, read)
            if len(first.subscripts) != len(read.subscripts):
                raise SpecError(
                    f"{read.array} has {len(first.subscripts)} axes as {first}, "
                    f"{len(read.subscripts)} as {read}, in {stage}"
                )
    for name, shape in shapes.items():
        if name not in found:
            raise SizeError(
                f"a shape is given for {name!r}, which {'; '.join(map(str, stages))} does not have"
            )
        if len(shape) != len(found[name].subscripts):
            raise SizeError(
                f"{name} has shape {shape}, {len(shape)} axes; {found[name]} has "
                f"{len(found[name].subscripts)}"
            )
    return {name: len(read.subscripts) for name, read in found.items()}


def _check_uses(stages: Sequence[Stage]) -> None:
    """Raise `SpecError` if an array is summed up twice, or read before it is computed."""
    made: set[str] = set()
    for at, stage in enumerate(stages):
        if stage.name not in made:
            for other in stages[:at]:
                if any(read.array == stage.name for read in other.reads):
                    raise SpecError(f"{other} reads {stage.name}, which {stage} computes later")
        elif stage.augmented or stage.update is not None:
            raise SpecError(
                f"{stage.name} is computed twice, and {stage} would begin anew; "
                f"write {stage.target} = {stage.target} + sum(…)"
            )
        made.add(stage.name)


def _find_outputs(stages: Sequence[Stage], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the arrays that are returned; raise `SpecError` if another one is for nothing."""
    unread = {}
    for at, stage in enumerate(stages):
        later = [one for one in stages[at + 1 :] if one.name != stage.name]
        if not any(read.array == stage.name for one in later for read in one.reads):
            unread[stage.name] = stage
    made = dict.fromkeys(stage.name for stage in stages)
    for name in wanted:
        if name not in made:
            raise SpecError(f"{name!r} is no output: the statements compute {', '.join(made)}")
    for name, stage in unread.items():
        if wanted and name not in wanted:
            raise SpecError(f"{stage} is computed, but nothing reads {name}, and it is no output")
    return tuple(dict.fromkeys(wanted or unread))


def _shape(
    stages: Sequence[Stage],
    name: str,
    order: int,
    extents: Mapping[str, int],
    shapes: Mapping[str, Shape],
) -> Shape:
    """Return the shape of an array; raise `SizeError` where an element lies outside.

    Unless it is given, it ends at the last positions that are read or written in the region. An
    axis with a letter by itself has the extent of the letter, whatever the region.
    """
    found, whole = [0] * order, [0] * order
    computed = _computed(stages, name, extents)
    letters = {id(stage): stage.letters for stage in stages}
    for stage, element in list_uses(stages, name):
        if element == stage.target and stage.update is None:
            found = [max(n, extents[x]) for n, x in zip(found, stage.output, strict=True)]
        box = {letter: (0, extents[letter] - 1) for letter in letters[id(stage)]}
        nothing = any(high < low for low, high in box.values())
        for axis, subscript in enumerate(element.subscripts):
            if (period := find_period(subscript)) is not None and isinstance(period[1], Number):
                last = greatest_remainder(period[0], int(period[1].value.real), box)
                found[axis] = max(found[axis], 0 if nothing else last + 1)
                most = (
                    shapes[name][axis] if name in shapes else computed[axis] if computed else None
                )
                if most is not None and found[axis] > most:
                    raise SizeError(
                        f"{stage} has {element} at position {last} of axis {axis}, but {name} has "
                        f"extent {most} there"
                    )
                continue
            if not isinstance(subscript, Affine):
                if name not in shapes:
                    raise SizeError(
                        f"the subscript {subscript} of {element} does not tell how long the axis "
                        f"is: give the shape of {name}"
                    )
                if not shapes[name][axis] and not nothing:
                    raise SizeError(
                        f"{stage} has {element}, but axis {axis} of {name} has extent 0"
                    )
                continue
            if any(not extents[letter] for letter in subscript.letters):
                continue
            where = () if element == stage.target or nothing else stage.region(element)
            low = least_value(subscript, box, where)
            if low < 0 and not nothing:
                raise SizeError(
                    f"{stage} has {element} at position {low} of axis {axis}, "
                    f"with {_sizes_of(subscript, extents)}: positions begin at 0"
                    + (f", and {name} has extent {shapes[name][axis]}" if name in shapes else "")
                )
            found[axis] = max(found[axis], greatest_value(subscript, box, where) + 1)
            if computed is None and subscript.plain is not None:
                whole[axis] = max(whole[axis], extents[subscript.plain])
            most = shapes[name][axis] if name in shapes else computed[axis] if computed else None
            if most is not None and found[axis] > most and not nothing:
                raise SizeError(
                    f"{stage} has {element} at position {found[axis] - 1} of axis {axis}, "
                    f"with {_sizes_of(subscript, extents)}, but {name} has extent {most} there"
                )
    return tuple(shapes.get(name, map(max, found, whole)))


def _computed(stages: Sequence[Stage], name: str, extents: Mapping[str, int]) -> Shape | None:
    """Return how many elements of each axis a stage computes; None of what is read before."""
    made = [stage for stage in stages if stage.name == name]
    if not made or made[0].update is not None or name in _find_inputs(stages):
        return None
    columns = zip(*(one.output for one in made), strict=True)
    return tuple(max(extents[letter] for letter in column) for column in columns)


def _sizes_of(subscript: Affine, extents: Mapping[str, int]) -> str:
    return ", ".join(f"{x}={extents[x]}" for x in subscript.letters) or "any sizes"


def _dtypes(
    stages: Sequence[Stage], dtype: str | Mapping[str, str]
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return the dtype of each array, and of each parameter."""
    params = tuple(dict.fromkeys(name for stage in stages for name in stage.params))
    inputs = _find_inputs(stages)
    given = dict(dtype) if isinstance(dtype, Mapping) else dict.fromkeys((*inputs, *params), dtype)
    made = [stage.name for stage in stages]
    if "out" in params:
        raise SpecError("no parameter is called 'out': calls give the result's array by that name")
    for name, kind in given.items():
        if name not in (*inputs, *params, *made):
            raise DtypeError(f"a dtype is given for {name!r}, which no statement has")
        if kind not in DTYPES:
            raise DtypeError(f"nests compute in {', '.join(DTYPES)}, not in {kind!r} ({name})")
    found: dict[str, str] = {}
    for name in (*inputs, *params):
        if name in params and (name in inputs or name in made):
            raise SpecError(f"{name} is an array and a parameter")
        if name not in given:
            raise DtypeError(f"no dtype for {name}; dtypes are given for {', '.join(given)}")
        found[name] = given[name]
        if name in params and is_complex(found[name]):
            raise DtypeError(
                f"the parameter {name} is {found[name]}: complex numbers are given as arrays "
                f"without axes; write {name}[]"
            )
    for stage in stages:
        try:
            wanted = stage.dtype or given.get(stage.name) or found.get(stage.name)
            found[stage.name] = _stage_dtype(stage, found, wanted)
        except DtypeError as error:
            raise DtypeError(f"{error}, in {stage}") from error
    return found, tuple((name, found[name]) for name in params)


def _stage_dtype(stage: Stage, dtypes: Mapping[str, str], wanted: str | None) -> str:
    """Return the dtype of a stage's array; raise `DtypeError` where an operation is not made."""
    computed = stage.term.kind(dtypes)
    if stage.augmented and stage.reduction is not None:  # += is no wider than what it adds up
        summed = stage.reduction.term.kind(dtypes)
        computed = result_dtype(stage.reduction.name, [summed, summed])
    found = wanted or named_kind(computed)
    check_parts(computed, found, str(stage))
    for subscript in stage.target.parts:
        Read(stage.name, (subscript,)).kind({**dtypes, stage.name: found})
    for one in (*stage.target.parts, stage.term):
        _check_numbers(one, dtypes)
    reduction = stage.update or (stage.reduction.name if stage.reduction else None)
    if reduction in REDUCTIONS:  # it runs in the array's dtype
        result_dtype(reduction, [found, found])
    return found


def _check_numbers(term: Term, dtypes: Mapping[str, str]) -> None:
    """Raise `DtypeError` where a number does not fit what it meets."""
    for one in term.all:
        if isinstance(one, Number) and type(one.value) is int and not -(2**63) <= one.value < 2**64:
            raise DtypeError(f"the number {one} does not fit 64 bits")
    for one in term.all:
        if isinstance(one, Apply):
            argument_dtypes(one, [part.kind(dtypes) for part in one.arguments])
