"""Tensor contractions and convolutions with solved, not searched, tile sizes.

Public names load on first use, so that importing the package stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilesolve.compiling import expression
    from tilesolve.contractions.errors import TilesolveError
    from tilesolve.contractions.problem import Problem
    from tilesolve.contractions.reference import reference
    from tilesolve.contractions.spec import Spec
    from tilesolve.contractions.suites import suite
    from tilesolve.like_numpy import einsum, tensordot
    from tilesolve.machine import Level, Machine
    from tilesolve.planning import Plan, plan
    from tilesolve.reusable import Expression
    from tilesolve.transposing import transpose

__version__ = "0.1.0"

_HOMES = {
    "Expression": "tilesolve.reusable",
    "Level": "tilesolve.machine",
    "Machine": "tilesolve.machine",
    "Plan": "tilesolve.planning",
    "Problem": "tilesolve.contractions.problem",
    "Spec": "tilesolve.contractions.spec",
    "TilesolveError": "tilesolve.contractions.errors",
    "einsum": "tilesolve.like_numpy",
    "expression": "tilesolve.compiling",
    "plan": "tilesolve.planning",
    "reference": "tilesolve.contractions.reference",
    "suite": "tilesolve.contractions.suites",
    "tensordot": "tilesolve.like_numpy",
    "transpose": "tilesolve.transposing",
}

__all__ = [
    "Expression",
    "Level",
    "Machine",
    "Plan",
    "Problem",
    "Spec",
    "TilesolveError",
    "einsum",
    "expression",
    "plan",
    "reference",
    "suite",
    "tensordot",
    "transpose",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - each name has its own type, declared above
    if name not in _HOMES:
        raise AttributeError(f"module 'tilesolve' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
