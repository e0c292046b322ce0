"""Conditions in LLVM IR: which points, or which lanes of a vector, are computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llvmlite import ir

from tilesolve.contractions.statements.affine import Condition
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.arithmetic import BIT
from tilesolve.kernels.ir.vectors import INT64, constant
from tilesolve.kernels.programs.accesses import lane_positions
from tilesolve.kernels.programs.scope import Scope, both, emit_position


def holding(
    builder: ir.IRBuilder, conditions: Iterable[Condition], scope: Scope
) -> ir.Value | None:
    """Emit whether conditions hold that are the same at all lanes; None if there are none."""
    found: ir.Value | None = None
    for one in conditions:
        value = emit_position(builder, one.position, scope).value(builder)
        holds = builder.icmp_signed(">=", value, INT64(0))
        found = both(builder, found, holds)
    return found


def within(builder: ir.IRBuilder, conditions: Iterable[Condition], scope: Scope) -> Scope:
    """Return the scope of the points at which conditions hold, too."""
    lanes, given = scope.lanes, list(conditions)
    if lanes is None:
        return activate(builder, scope, holding(builder, given, scope))
    uniform = [one for one in given if not one.position.factor(lanes.letter)]
    scope = activate(builder, scope, holding(builder, uniform, scope))
    for one in given:
        if one in uniform:
            continue
        values = lane_positions(builder, one.position, scope)
        mask = builder.icmp_signed(">=", values, constant(values.type, 0))
        scope = activate_some(builder, mask_lanes(builder, scope, mask))
    return scope


def activate(builder: ir.IRBuilder, scope: Scope, holds: ir.Value | None) -> Scope:
    """Return a scope in which points are computed only if something holds."""
    if holds is None:
        return scope
    scope = replace(scope, active=both(builder, scope.active, holds))
    if scope.lanes is None:
        return scope
    kind = ir.VectorType(BIT, scope.lanes.count)
    return mask_lanes(builder, scope, vectors.broadcast(builder, holds, kind))


def mask_lanes(builder: ir.IRBuilder, scope: Scope, mask: ir.Value) -> Scope:
    """Return a scope in which some lanes alone are computed."""
    assert scope.lanes is not None
    mask = both(builder, scope.lanes.mask, mask)
    return replace(scope, lanes=replace(scope.lanes, mask=mask))


def activate_some(builder: ir.IRBuilder, scope: Scope) -> Scope:
    """Return a scope in which nothing is computed if no lane is."""
    assert scope.lanes is not None
    some = vectors.reduce(builder, "or", scope.lanes.mask)
    return replace(scope, active=both(builder, scope.active, some))
