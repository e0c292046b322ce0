"""Tensor contractions and convolutions with solved, not searched, tile sizes.

Public names load on first use, so that importing the package stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilesolve.system.version import __version__ as __version__

if TYPE_CHECKING:
    from tilesolve.caches import clear_cache as clear_cache
    from tilesolve.contractions.epilogue import elementwise as elementwise
    from tilesolve.contractions.errors import TilesolveError as TilesolveError
    from tilesolve.contractions.problem import Problem as Problem
    from tilesolve.contractions.reference import reference as reference
    from tilesolve.contractions.spec import Spec as Spec
    from tilesolve.contractions.statements.stage import Stage as Stage
    from tilesolve.contractions.suites import suite as suite
    from tilesolve.convolutions.batch_norm import fold_batchnorm as fold_batchnorm
    from tilesolve.convolutions.conv import conv as conv
    from tilesolve.convolutions.layer import ConvLayer as ConvLayer
    from tilesolve.convolutions.layer import conv_layer as conv_layer
    from tilesolve.convolutions.transposed import conv_transpose as conv_transpose
    from tilesolve.expressions.compile import expression as expression
    from tilesolve.expressions.einsum import einsum as einsum
    from tilesolve.expressions.einsum import tensordot as tensordot
    from tilesolve.expressions.expression import Expression as Expression
    from tilesolve.expressions.path_report import einsum_path as einsum_path
    from tilesolve.machine.level import Level as Level
    from tilesolve.machine.level import Peak as Peak
    from tilesolve.machine.model import Machine as Machine
    from tilesolve.nests.plan import NestPlan as NestPlan
    from tilesolve.nests.plan import nest as nest
    from tilesolve.networks import onnx as onnx
    from tilesolve.pipelines.front import pipeline as pipeline
    from tilesolve.plans.plan import Plan as Plan
    from tilesolve.plans.plan import plan as plan
    from tilesolve.ranking.ranking import Ranking as Ranking
    from tilesolve.ranking.ranking import rank as rank
    from tilesolve.system.aligned_arrays import empty as empty
    from tilesolve.transposes.transpose import transpose as transpose

_HOMES = {
    "ConvLayer": "convolutions.layer",
    "Expression": "expressions.expression",
    "Level": "machine.level",
    "Machine": "machine.model",
    "NestPlan": "nests.plan",
    "Peak": "machine.level",
    "Plan": "plans.plan",
    "Problem": "contractions.problem",
    "Ranking": "ranking.ranking",
    "Spec": "contractions.spec",
    "Stage": "contractions.statements.stage",
    "TilesolveError": "contractions.errors",
    "clear_cache": "caches",
    "conv": "convolutions.conv",
    "conv_layer": "convolutions.layer",
    "conv_transpose": "convolutions.transposed",
    "einsum": "expressions.einsum",
    "einsum_path": "expressions.path_report",
    "elementwise": "contractions.epilogue",
    "empty": "system.aligned_arrays",
    "expression": "expressions.compile",
    "fold_batchnorm": "convolutions.batch_norm",
    "nest": "nests.plan",
    "pipeline": "pipelines.front",
    "plan": "plans.plan",
    "rank": "ranking.ranking",
    "reference": "contractions.reference",
    "suite": "contractions.suites",
    "tensordot": "expressions.einsum",
    "transpose": "transposes.transpose",
}

_MODULES = {"onnx": "networks.onnx"}

__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - each name has its own type, declared above
    if name not in __all__:
        raise AttributeError(f"module 'tilesolve' has no attribute {name!r}")
    from tilesolve.system.loading import load_module

    home = load_module(f"tilesolve.{_MODULES.get(name) or _HOMES[name]}")
    value = home if name in _MODULES else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
