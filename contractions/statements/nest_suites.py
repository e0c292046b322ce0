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
from tilesolve.contractions.statements.computation import Computation, bind_stages
from tilesolve.contractions.statements.parse import parse_stages

_SUITES = ("nests",)


@dataclass(frozen=True, slots=True)
class NestCase:
    """A nest of a suite.

    `sizes` are pairs of a letter and its extent, `params` pairs of a parameter and its value;
    an empty `where` means all points.

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

    @property
    def computation(self) -> Computation:
        """What it computes."""
        stages = parse_stages(self.text, self.where or ())
        return bind_stages(stages, dict(self.sizes), self.dtype)


def list_nest_suites() -> tuple[str, ...]:
    """Return the names of the suites of nests."""
    return _SUITES


def nest_suite(name: str) -> Mapping[str, NestCase]:
    """Return the nests of a suite by name.

    Raises
    ------
    SuiteError
        If there is no such suite.
    """
    if name not in _SUITES:
        raise SuiteError(f"no suite of nests {name!r}; there are {', '.join(_SUITES)}")
    return _read(name)


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
    )
