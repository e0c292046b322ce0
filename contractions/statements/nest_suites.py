"""Suites of nests: statements with sizes, by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from tilesolve.contractions.errors import SuiteError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.drawn_nests import bind_typed, draw_rows
from tilesolve.contractions.statements.extents import Shape
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.contractions.suites import read_drawn_name

_SUITES = ("nests",)
_DRAWN = "statements"


@dataclass(frozen=True, slots=True)
class NestCase:
    """A nest of a suite.

    `sizes` are pairs of a letter and its extent, `params` pairs of a parameter and its value,
    `shapes` pairs of an array and its shape where letters do not tell; an empty `where` means all
    points. `dtype` is of all inputs and parameters, but for those that it names: ``"float32
    v=int64"``.

    Examples
    --------
    >>> print(nest_suite("nests")["tp"].computation)
    out[y,x] = A[x,y]  y=4096 x=4096 int32
    """

    name: str
    text: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    where: str = ""
    params: tuple[tuple[str, float], ...] = ()
    shapes: tuple[tuple[str, Shape], ...] = ()

    @property
    def computation(self) -> Computation:
        """What it computes."""
        stages = parse_stages(self.text, self.where or ())
        return bind_typed(stages, dict(self.sizes), self.dtype, dict(self.shapes))


def list_nest_suites() -> tuple[str, ...]:
    """Return the names of the suites of nests."""
    return _SUITES


def is_drawn(name: str) -> bool:
    """Return whether a name asks for drawn statements.

    Examples
    --------
    >>> is_drawn("statements:3:7"), is_drawn("nests")
    (True, False)
    """
    return name.startswith(_DRAWN)


def nest_suite(name: str) -> Mapping[str, NestCase]:
    """Return the nests of a suite by name; ``statements:N:SEED`` draws so many.

    Raises
    ------
    SuiteError
        If there is no such suite.
    """
    if is_drawn(name):
        if (drawn := read_drawn_name(name, _DRAWN)) is None:
            raise SuiteError(f"drawn statements are named {_DRAWN}:N:SEED, got {name!r}")
        return _draw(*drawn)
    if name not in _SUITES:
        raise SuiteError(
            f"no suite of nests {name!r}; there are {', '.join(_SUITES)}, {_DRAWN}:N:SEED"
        )
    return _read(name)


@cache
def _draw(count: int, seed: int) -> Mapping[str, NestCase]:
    return MappingProxyType({row["name"]: _make_case(row) for row in draw_rows(count, seed)})


@cache
def _read(name: str) -> Mapping[str, NestCase]:
    text = files("tilesolve.contractions").joinpath("suites", f"{name}.toml").read_text("utf-8")
    return MappingProxyType({row["name"]: _make_case(row) for row in tomllib.loads(text)["nest"]})


def _make_case(row: Mapping[str, Any]) -> NestCase:
    return NestCase(
        row["name"],
        row["text"],
        tuple(row["sizes"].items()),
        row["dtype"],
        row.get("where", ""),
        tuple(row.get("params", {}).items()),
        tuple(row.get("shapes", {}).items()),
    )
