"""Positions that are looked at before they are used: all of a vector at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.terms import Term
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.kernels.programs.emitter import Emitter
from tilesolve.kernels.programs.range_checks import RangeCheck, range_checks
from tilesolve.kernels.programs.scope import Scope, emit_position
from tilesolve.kernels.programs.term_emitter import TermEmitter


def emit_looked_at(
    emitter: Emitter, number: int, scope: Scope, fast: Callable[[], None], slow: Callable[[], None]
) -> None:
    """Emit what a stage does at a whole vector, given code for it.

    Parameters
    ----------
    emitter, number, scope
        The stage, and what surrounds the vector.
    fast
        Emits code that uses positions as they are, which runs where none is outside of its array.
    slow
        Emits code that checks each.
    """
    checks = _list_checks(emitter, number, scope)
    if checks is None:
        slow()
        return
    outside: ir.Value | None = None
    for check in checks:
        found = _any_outside(emitter, check, scope)
        outside = found if outside is None else emitter.builder.or_(outside, found)

    def run() -> None:
        with emitter.passing(checks):
            fast()

    if outside is None:
        run()
    else:
        emitter.branch(emitter.builder.not_(outside), run, slow)


def _list_checks(emitter: Emitter, number: int, scope: Scope) -> Sequence[RangeCheck] | None:
    """Return the checks of a stage; None if not all can be made before.

    Positions that depend on others that are computed cannot, nor those within reductions. Where no
    position differs among the lanes, they need not.
    """
    lanes = scope.lanes
    if lanes is None or lanes.mask is not None or scope.active is not None or scope.trips:
        return None
    checks = [one for one in range_checks(emitter.skeleton.stages) if one.stage == number]
    positions = [one.read.subscripts[one.axis] for one in checks]
    terms = [one for one in positions if isinstance(one, Term)]
    if any(read.plain is None for one in terms for read in one.reads):
        return None
    if not all(x in scope.places for one in terms for x in one.letters):
        return None
    if not any(lanes.letter in one.letters for one in terms):
        return None
    return [one for one in checks if one not in emitter.passed]


def _any_outside(emitter: Emitter, check: RangeCheck, scope: Scope) -> ir.Value:
    """Emit whether any position of a vector is outside, or may be: numbers stay narrow."""
    builder, point = emitter.builder, TermEmitter(emitter, check.stage, scope)
    position = check.read.subscripts[check.axis]
    assert not isinstance(position, Affine)
    kind = point.kind(position)
    value = point.value(position, kind)
    extent = emitter.skeleton.shape(check.read.array)[check.axis]
    end = emit_position(builder, extent, scope).value(builder)
    whole = value.type.element if isinstance(value.type, ir.VectorType) else value.type
    if whole != INT64:
        end = vectors.extreme(builder, "<", end, INT64(int(np.iinfo(kind).max)))
        end = builder.trunc(end, whole)
    if not isinstance(value.type, ir.VectorType):
        return builder.icmp_unsigned(">=", value, end)
    found = builder.icmp_unsigned(">=", value, vectors.broadcast(builder, end, value.type))
    return vectors.reduce(builder, "or", found)
