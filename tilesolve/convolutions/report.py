"""A layer as text that users read and paste: what it is, and the report of its plan."""

from __future__ import annotations

from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.plans.plan import Plan
from tilesolve.system.units import format_volume


def write_layer_report(
    layer: Convolution,
    plan: Plan,
    packed_bytes: int,
    has_bias: bool,
    has_residual: bool,
    activation: Epilogue,
) -> str:
    """Return a layer's report: its arguments, how weights and padding are read, its plan."""
    follows = [
        *(["bias"] if has_bias else []),
        *(["residual"] if has_residual else []),
        *([str(activation)] if activation.operations else []),
    ]
    lines = [", ".join((f"conv {layer}", *follows))]
    if layer.pointwise:
        lines.append("a product of matrices, where pixels are one axis in memory")
    if packed_bytes:
        lines.append(f"weights are packed once into {format_volume(packed_bytes)}")
    return "\n".join((*lines, "", str(plan)))
