"""Functions that refer to stand-ins, so that what they do can be noted."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import Any

from tilesolve.contractions.elementwise import global_names

StandIn = Callable[[Any], Any]
"""Returns what a function gets for what it refers to."""


class StandInModule:
    """A module in which there are stand-ins."""

    def __init__(self, module: ModuleType, stand_in: StandIn) -> None:
        self._module, self._stand_in = module, stand_in

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return self._stand_in(getattr(self._module, name))


def rebuild(
    function: FunctionType, stand_in: StandIn, made: dict[FunctionType, FunctionType]
) -> FunctionType:
    """Return a function that refers to stand-ins; `made` has those that are rebuilt already.

    Examples
    --------
    >>> rebuild(lambda x: x + len("abc"), lambda value: value, {})(4)
    7
    """
    if function in made:
        return made[function]
    known = function.__globals__
    names: dict[str, Any] = {"__name__": function.__module__}
    cells = tuple(CellType() for _ in function.__closure__ or ())
    found = FunctionType(function.__code__, names, function.__name__, None, cells)
    made[function] = found
    found.__defaults__ = tuple(map(stand_in, function.__defaults__ or ())) or None
    if function.__kwdefaults__:
        found.__kwdefaults__ = {x: stand_in(one) for x, one in function.__kwdefaults__.items()}
    names["__builtins__"] = known.get("__builtins__", builtins)
    for name in global_names(function.__code__):
        if name in known:
            names[name] = stand_in(known[name])
    for cell, old in zip(cells, function.__closure__ or (), strict=True):
        cell.cell_contents = stand_in(old.cell_contents)
    return found
