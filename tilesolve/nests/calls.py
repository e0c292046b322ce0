"""What a call of a nest takes: arrays and numbers, all checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array, view_output
from tilesolve.contractions.errors import DtypeError, SizeError
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.contractions.statements.cover import fills_shape, whole_parts
from tilesolve.contractions.statements.stage import Stage
from tilesolve.packing.memory_overlap import same_elements
from tilesolve.system.checks import check_apart, check_dtype, check_output
from tilesolve.system.result_buffers import result_maker

Array = npt.NDArray[Any]
Held = dict[str, Array]
Params = Mapping[str, float]
Out = Array | Sequence[Array]
"""Where a result goes, or several."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a call computes with.

    Parameters
    ----------
    held
        The inputs by name.
    params
        The value of each parameter.
    targets
        Where the results go: new arrays, or as much of what is given as `out` as the nest's have.
    outs
        The whole arrays that the results are, or are parts of.
    """

    held: Held
    params: Params
    targets: tuple[Array, ...]
    outs: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What calls of a nest take.

    Parameters
    ----------
    text
        The statements, as messages quote them.
    inputs
        The arrays in order.
    params
        Pairs of a parameter and its dtype.
    outputs
        The arrays of the results.
    fills
        Whether a new array for each begins with zeros.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> found = Signature.of(bind_stages(parse_stages("o[i] = a * x[i] + y[i]"), 2))
    >>> call = found.read([np.zeros(2)], {"y": np.ones(2), "a": 3}, None)
    >>> list(call.held), call.params
    (['x', 'y'], {'a': 3.0})
    """

    text: str
    inputs: tuple[ArrayInfo, ...]
    params: tuple[tuple[str, str], ...]
    outputs: tuple[ArrayInfo, ...]
    fills: tuple[bool, ...]

    @classmethod
    def of(cls, computation: Computation) -> Self:
        """Return what calls of a computation take."""
        inputs = tuple(map(computation.array, computation.inputs))
        outputs = tuple(map(computation.array, computation.outputs))
        whole = {x.name for x in computation.stages if not leaves_elements(computation, x)}
        fills = tuple(one not in inputs and one.name not in whole for one in outputs)
        text = repr("; ".join(map(str, computation.stages)))
        return cls(text, inputs, computation.params, outputs, fills)

    def line_up(
        self, arrays: Sequence[object], named: Mapping[str, object]
    ) -> tuple[Sequence[object], Sequence[object]] | None:
        """Return all inputs and all parameters in order, as a call gives them.

        None if anything is missing or too much: `read` tells what.

        Examples
        --------
        >>> from tilesolve.contractions.statements.computation import bind_stages
        >>> from tilesolve.contractions.statements.parse import parse_stages
        >>> found = Signature.of(bind_stages(parse_stages("o[i] = a * x[i] + y[i]"), 2))
        >>> found.line_up(["x"], {"a": 3, "y": "y"})
        (['x', 'y'], [3])
        """
        count, given = len(self.inputs), len(arrays)
        if given + len(named) != count + len(self.params) or given > count:
            return None
        try:
            if given < count:
                arrays = [*arrays, *[named[info.name] for info in self.inputs[given:]]]
            return arrays, [named[name] for name, _ in self.params]
        except KeyError:
            return None

    def read(
        self, arrays: Sequence[npt.ArrayLike], named: Mapping[str, Any], out: Out | None
    ) -> Call:
        """Return what a call computes with; raise an error if something of it does not fit.

        Parameters
        ----------
        arrays
            Inputs in their order.
        named
            Further inputs, and all parameters.
        out
            Where the result goes, or an array for each of several results; new ones if None.
        """
        values = self._named(arrays, named)
        params = self.read_params(values)
        held = {info.name: self._read_input(info, values[info.name]) for info in self.inputs}
        if out is None:
            targets = tuple(new() for new in self.output_makers())
            return Call(held, params, targets, targets)
        outs = self._read_outs(out)
        targets = tuple(map(partial(self._read_output, held), self.outputs, outs))
        for at, one in enumerate(targets):
            others = zip(self.outputs[:at], targets[:at], strict=True)
            check_apart(one, f"out of {self.text}", {info.name: x for info, x in others})
        return Call(held, params, targets, outs)

    def read_params(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Return the value of each parameter; raise an error if one is no number of its dtype."""
        return {name: _read_param(values[name], name, dtype) for name, dtype in self.params}

    def output_makers(self) -> tuple[Callable[[], Array], ...]:
        """Return what makes a new array for each result: of zeros if the nest leaves elements."""
        return tuple(
            result_maker(one.shape, np.dtype(one.dtype), zeros=fills)
            for one, fills in zip(self.outputs, self.fills, strict=True)
        )

    def _read_outs(self, out: Out) -> tuple[Array, ...]:
        """Return the arrays that are given for the results."""
        given = (out,) if len(self.outputs) == 1 else out
        if not isinstance(given, tuple | list) or len(given) != len(self.outputs):
            names = ", ".join(one.name for one in self.outputs)
            raise SizeError(f"{self.text} has several results: out is a tuple, of {names}")
        what = f"out of {self.text}"
        return tuple(x if isinstance(x, np.ndarray) else view_output(x, what) for x in given)

    def _named(self, arrays: Sequence[npt.ArrayLike], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arrays and parameters by name, as calls of Python functions give them."""
        inputs = [info.name for info in self.inputs]
        params = [name for name, _ in self.params]
        takes = f"{self.text} takes {len(inputs)} arrays, {', '.join(inputs) or 'none'}"
        if len(arrays) > len(inputs):
            raise SizeError(f"{takes}; got {len(arrays)}")
        values: dict[str, Any] = dict(zip(inputs, arrays, strict=False))
        for name, value in named.items():
            if name in values:
                raise SizeError(f"{self.text} gets {name!r} twice, by position and by name")
            if name not in inputs and any(name == one.name for one in self.outputs):
                raise SizeError(f"{self.text} computes {name!r}: the array for it is called out")
            if name not in inputs and name not in params:
                known = ", ".join((*inputs, *params)) or "none"
                raise SizeError(
                    f"{self.text} has no parameter {name!r}, nor such an array; it has {known}"
                )
            values[name] = value
        missing = [name for name in inputs if name not in values]
        if missing:
            got = len(inputs) - len(missing)
            raise SizeError(f"{takes}; got {got}, none for {', '.join(missing)}")
        for name in params:
            if name not in values:
                raise SizeError(f"no value is given for the parameter {name!r} of {self.text}")
        return values

    def _read_input(self, info: ArrayInfo, value: npt.ArrayLike) -> Array:
        what = f"array {info.name} of {self.text}"
        array = read_array(value, what)
        if array.shape != info.shape:
            raise SizeError(f"{what} has shape {array.shape}, the plan has {info.shape}")
        check_dtype(array, what, np.dtype(info.dtype))
        return array

    def _read_output(self, held: Held, info: ArrayInfo, out: Array) -> Array:
        """Return as much of an array for a result as is computed, if it may be written."""
        what = f"out of {self.text}"
        part = first_elements(out, info.shape)
        target = check_output(part, what, info.shape, dtype=np.dtype(info.dtype))
        for name, array in held.items():
            if name != info.name or not same_elements(target, array):
                check_apart(target, what, {name: array})
        return target


def _read_param(value: npt.ArrayLike, name: str, dtype: str) -> float:
    """Return the value of a parameter: a number that its dtype holds."""
    array, kind = read_array(value, f"the parameter {name!r}"), np.dtype(dtype)
    if array.shape:
        raise SizeError(f"the parameter {name!r} is a number, not an array of shape {array.shape}")
    number = array.item()
    wrong = DtypeError(f"the parameter {name!r} is a number of {dtype}, not {value!r:.60}")
    if kind.kind == "f":
        if not isinstance(number, bool | int | float | np.floating):
            raise wrong
        try:
            return float(kind.type(number))
        except OverflowError:
            raise wrong from None
    ends = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    if not isinstance(number, bool | int) or not ends[0] <= number <= ends[1]:
        raise wrong
    return bool(number) if kind.kind == "b" else int(number)


def first_elements(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the first elements of an array that is larger along some axes; any other as it is.

    Examples
    --------
    >>> first_elements(np.arange(6).reshape(2, 3), (2, 2)).tolist()
    [[0, 1], [3, 4]]
    """
    if array.shape == shape or array.ndim != len(shape):
        return array
    larger = all(n >= m for n, m in zip(array.shape, shape, strict=True))
    return array[tuple(map(slice, shape))] if larger else array


def leaves_elements(computation: Computation, stage: Stage) -> bool:
    """Return whether a stage leaves elements of its array as they are."""
    if stage.update is not None:
        return False
    same = [one for one in computation.stages if one.name == stage.name]
    shape = computation.array(stage.name).shape
    if len(same) > 1:
        return not fills_shape(whole_parts(same, computation.sizes), shape)
    computed = tuple(computation.sizes[letter] for letter in stage.output)
    return computed != shape or bool(stage.bounds)
