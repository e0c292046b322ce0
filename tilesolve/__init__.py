"""Tensor contractions and convolutions with solved, not searched, tile sizes.

Public names load on first use, so that importing the package stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilesolve.system.version import __version__ as __version__

if TYPE_CHECKING:
    from tilesolve.contractions.errors import TilesolveError
    from tilesolve.contractions.problem import Problem
    from tilesolve.contractions.reference import reference
    from tilesolve.contractions.spec import Spec
    from tilesolve.contractions.suites import suite
    from tilesolve.expressions.compile import expression
    from tilesolve.expressions.einsum import einsum, tensordot
    from tilesolve.expressions.expression import Expression
    from tilesolve.machine.model import Level, Machine
    from tilesolve.plans.plan import Plan, plan
    from tilesolve.transposes.transpose import transpose


_HOMES = {
    "Expression": "tilesolve.expressions.expression",
    "Level": "tilesolve.machine.model",
    "Machine": "tilesolve.machine.model",
    "Plan": "tilesolve.plans.plan",
    "Problem": "tilesolve.contractions.problem",
    "Spec": "tilesolve.contractions.spec",
    "TilesolveError": "tilesolve.contractions.errors",
    "einsum": "tilesolve.expressions.einsum",
    "expression": "tilesolve.expressions.compile",
    "plan": "tilesolve.plans.plan",
    "reference": "tilesolve.contractions.reference",
    "suite": "tilesolve.contractions.suites",
    "tensordot": "tilesolve.expressions.einsum",
    "transpose": "tilesolve.transposes.transpose",
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
