"""What the parts of the lowering share while the code of one program is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir

from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.stage import Stage
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.vectors import INT64, constant
from tilesolve.kernels.programs.accesses import Target, full_mask
from tilesolve.kernels.programs.range_checks import RangeCheck, range_checks
from tilesolve.kernels.programs.scope import Scope, both, emit_position
from tilesolve.kernels.programs.shared_lines import WaitingPart
from tilesolve.kernels.programs.skeleton import Skeleton


@dataclass(slots=True)
class Emitter:
    """One function of a program that is being written.

    Parameters
    ----------
    builder
        Where to write.
    skeleton
        What is lowered.
    bits
        Width of vectors.
    targets
        Arrays and buffers by name.
    params
        The value of each parameter.
    failure
        Pointer to where a check that fails puts its number, from 1 on, and the position.
    stop
        Pointer to the word that ends the run once it is not 0.
    kept
        Vectors that other points of a block use, too: valid where the builder is.
    held
        Elements that a `Hold` keeps in registers.
    held_stage
        Their stage; None outside of a `Hold`.
    held_names
        Loops of the `Hold` that run while elements are held.
    held_ragged
        Whether elements beyond the end of a loop are left out.
    waiting
        Parts of lines that wait for what goes on there, by the array and the lanes of a vector.
    passed
        Checks of positions that hold where the builder is.
    picks_bytes
        Whether the CPU picks bytes out of registers.
    """

    builder: ir.IRBuilder
    skeleton: Skeleton
    bits: int
    targets: dict[str, Target]
    params: Mapping[str, ir.Value]
    failure: ir.Value
    stop: ir.Value
    kept: dict[Any, list[ir.Value]] = field(default_factory=dict)
    held: dict[Any, ir.Value] = field(default_factory=dict)
    held_stage: int | None = None
    held_names: frozenset[str] = frozenset()
    held_ragged: bool = False
    waiting: dict[tuple[str, int], WaitingPart] = field(default_factory=dict)
    passed: frozenset[RangeCheck] = frozenset()
    picks_bytes: bool = False

    def stage(self, number: int) -> Stage:
        """Return a stage by its position."""
        return self.skeleton.stages[number]

    @property
    def dtypes(self) -> Mapping[str, str]:
        """The dtype of each array and parameter."""
        return self.skeleton.dtypes

    def waiting_part(self, target: Target, lanes: int) -> WaitingPart:
        """Return the part of a line of an array that waits for what goes on there."""
        key = target.name, lanes
        if key not in self.waiting:
            self.waiting[key] = WaitingPart.of(self.builder, target, lanes)
        return self.waiting[key]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Write code that may not run, or runs often: what it keeps is not valid behind it."""
        before = dict(self.kept)
        try:
            yield
        finally:
            self.kept = before

    def branch(self, condition: ir.Value, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Write two ways; the condition is likely to hold."""
        with self.builder.if_else(condition, likely=True) as ways:
            for way, write in zip(ways, (yes, no), strict=True):
                with way, self.inside():
                    write()

    @contextmanager
    def passing(self, checks: Iterable[RangeCheck]) -> Iterator[None]:
        """Write code that runs where some checks hold."""
        before, self.passed = self.passed, self.passed.union(checks)
        try:
            yield
        finally:
            self.passed = before

    def check(
        self, check: RangeCheck, position: ir.Value, extent: Affine, scope: Scope
    ) -> tuple[ir.Value, ir.Value]:
        """Write a check of positions.

        Returns
        -------
        tuple
            The positions with 0 in place of those outside, and whether they are outside.
        """
        builder, kind = self.builder, position.type
        end = emit_position(builder, extent, scope).value(builder)
        if isinstance(kind, ir.VectorType):
            end = vectors.broadcast(builder, end, kind)
        bad = builder.icmp_unsigned(">=", position, end)
        number = range_checks(self.skeleton.stages).index(check) + 1
        bad = self.tell(number, bad, position, scope)
        return builder.select(bad, constant(kind, 0), position), bad

    def tell(self, number: int, bad: ir.Value, values: ir.Value, scope: Scope) -> ir.Value:
        """Write what tells of integers that are bad, by the number of a check.

        Returns
        -------
        ir.Value
            Those of the bad ones that are computed.
        """
        builder, worst = self.builder, values
        if isinstance(values.type, ir.VectorType):
            bad = builder.and_(bad, full_mask(scope))
            any_bad = vectors.reduce(builder, "or", bad)
            beyond = builder.select(bad, values, constant(values.type, 2**63 - 1))
            worst = vectors.reduce(builder, "smin", beyond)
        else:
            any_bad = bad = both(builder, bad, scope.active)
        with builder.if_then(any_bad, likely=False):
            builder.store(INT64(number), self.failure, align=8)
            behind = builder.gep(self.failure, [INT64(1)], source_etype=INT64)
            builder.store(worst, behind, align=8)
        return bad
