"""Plans for GPUs: their code, their report, and what runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.argument_kinds import read_flag
from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.device_problem import DeviceProblem
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.epilogue_terms import SUM
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.product import Product
from tilesolve.gpu.strategy import (
    SCHEDULES,
    DeviceSolution,
    choose_arithmetic,
    make_tiling,
    price_solution,
    solve_for_device,
)
from tilesolve.kernels.gpu.forms import WARP, Form
from tilesolve.machine.device import Device, find_device
from tilesolve.model.price import Price
from tilesolve.planning.demand import Demand
from tilesolve.plans.device_base import DEVICE_FORMAT, BaseDevicePlan, describe_copies
from tilesolve.plans.files import refuse_damage, seal, unseal
from tilesolve.plans.report import level_row
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration, format_size

HOLDS = "a plan of a contraction for a GPU"
"""What such JSON says that it holds."""


class GpuPlan(BaseDevicePlan[DeviceSolution]):
    """How to run a contraction on a GPU, and what that is predicted to cost.

    Parameters
    ----------
    solution
        The tiles and their price.

    Examples
    --------
    >>> product = Product.of(Problem.of("ij-ik-kj", 4096, "float16"))
    >>> found = GpuPlan(solve_for_device(product, Device.load("h100")))
    >>> found.price.bottleneck, ".target sm_90" in found.code("ptx")
    ('compute', True)
    """

    __slots__ = ()

    @property
    def problem(self) -> Problem:
        """What is computed."""
        return self.solution.problem

    @property
    def price(self) -> Price:
        """What the tiles cost, level by level."""
        return self.solution.cost

    @property
    def flops(self) -> float:
        """Predicted flop/s."""
        return self.problem.flops / self.seconds

    def emulate(
        self,
        first: npt.ArrayLike,
        second: npt.ArrayLike,
        out: npt.NDArray[Any] | None = None,
        *,
        operands: Sequence[npt.ArrayLike] = (),
    ) -> npt.NDArray[Any]:
        """Return the result, computed by the same kernels on the CPU: slowly, for tests.

        Raises
        ------
        DeviceError
            If the extra ``gpu-test`` is missing, or the CPU's OpenCL fails.
        SizeError, DtypeError
            If an array is not of the plan's shape and dtype.
        """
        given = (first, second, *operands)
        one, other, *more = (read_array(x, f"operand {at}") for at, x in enumerate(given))
        arrays = self._name_arrays(one, other, out, more)
        (arrays["output"][...],) = self._emulate(arrays, ("output",))
        return np.asarray(arrays["output"])

    def _name_arrays(
        self,
        first: Any,  # noqa: ANN401
        second: Any,  # noqa: ANN401
        out: Any,  # noqa: ANN401
        operands: Sequence[Any],
    ) -> dict[str, Any]:
        """Return the arrays of a call by the kernels' names, a new output if None is given."""
        product = self.solution.product
        shape, dtype = self.problem.shapes[0], product.output_dtype
        out = self._make_out({"first": first, "second": second}, out, shape, dtype)
        return product.name_arrays(first, second, out, operands)

    def __call__(
        self,
        first: Any,  # noqa: ANN401
        second: Any,  # noqa: ANN401
        out: Any = None,  # noqa: ANN401
        *,
        operands: Sequence[Any] = (),
        stream: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Compute the contraction on the GPU.

        Parameters
        ----------
        first, second
            Arrays on the GPU, with DLPack or ``__cuda_array_interface__``; or NumPy's, which are
            copied there, and the result back.
        out
            Where the result goes; of NumPy's arrays a new one if None.
        operands
            Of the epilogue, in its order.
        stream
            The stream to run on; the device's default one if None.

        Raises
        ------
        DeviceError
            If there is no GPU, or not all arrays are on it.
        SizeError, DtypeError
            If an array is not of the plan's shape and dtype.
        """
        arrays = self._name_arrays(first, second, out, operands)
        adds = self.solution.product.accumulate
        self.executor.run(arrays, ("output",), stream, adds=adds)
        return arrays["output"]

    def _rescale(self, factors: Mapping[str, float]) -> DeviceSolution:
        old = self.solution
        device = old.device.scale(factors)
        return solve_for_device(old.product, device, schedule=old.schedule, tf32=old.tf32)

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value.

        A function of one's own in the epilogue cannot be read.
        """
        found, form = self.solution, self.solution.tiling.form
        problem, product = self.problem, found.product
        return seal(
            HOLDS,
            DEVICE_FORMAT,
            {
                "problem": [str(problem.spec), dict(problem.sizes), problem.dtype],
                "epilogue": str(product.epilogue),
                "accumulate": product.accumulate,
                "device": found.device.to_toml(),
                "sides": [form.rows, form.columns, form.depth],
                "warps": form.warps,
                "more": [form.stages, found.tiling.parts, found.tiling.group, form.grouped],
                **{name: getattr(found, name) for name in _KEPT},
            },
        )

    @classmethod
    def from_json(cls, text: str) -> GpuPlan:
        """Read a plan from JSON.

        Raises
        ------
        PlanError
            If it is no such plan.
        """
        found = unseal(text, HOLDS, DEVICE_FORMAT)
        with refuse_damage():
            problem, device = DeviceProblem.of(*found["problem"]), Device.from_toml(found["device"])
            chain = Epilogue.parse(found["epilogue"])
            product = Product.of(problem, chain, accumulate=found["accumulate"])
            arithmetic = choose_arithmetic(problem, device, tf32=found["tf32"])
            warps, block = tuple(found["warps"]), tuple(found["sides"])
            tiling = make_tiling(product, arithmetic, block, warps, *found["more"])
            kept = {name: found[name] for name in _KEPT}
            return cls(price_solution(product, device, tiling, **kept))

    def __repr__(self) -> str:
        return (
            f"<GpuPlan {self.problem.spec} {self.problem.dtype}: {self.flops:.3g} flop/s "
            f"predicted on {self.device.name}, bound by {self.price.bottleneck}>"
        )

    def __str__(self) -> str:
        return "\n".join(_report(self.solution))


_KEPT = ("schedule", "tf32", "registers", "assembled", "priced", "spilled")
"""What JSON has of a solution as it is."""


def plan_on_device(
    problem: Problem,
    machine: object,
    demand: Demand,
    workers: object,
    *,
    schedule: object,
    tf32: object,
) -> GpuPlan:
    """Return what `tilesolve.plan` does for a GPU.

    Raises
    ------
    PlanError
        If anything is demanded that kernels for GPUs do not do, or GPUs alone.
    """
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        raise PlanError(f"schedule is one of {', '.join(SCHEDULES)}, not {schedule!r:.80}")
    rounds = read_flag(tf32, "tf32", PlanError)
    device = find_device(machine)
    if device is None:
        raise PlanError("schedule and tf32 are of GPUs, such as machine='h100'")
    usual = replace(demand, overwrite=True, epilogue=None) == Demand()
    if not usual or workers is not None or problem.constant:
        raise PlanError("plans for GPUs have no strategy, scheme, tries, constant or workers")
    product = Product.of(problem, demand.epilogue, accumulate=not demand.overwrite)
    return GpuPlan(solve_for_device(product, device, schedule=schedule, tf32=rounds))


def _copied(form: Form, at: int) -> str:
    """Return how an operand comes to shared memory, as reports say it."""
    own, size = form.operands[at], form.fragment.element
    if own.box:
        told = f"boxes of {form.tile(at)[0]} lines of {form.pitch(at)} bytes"
        return f"is fetched by one thread in {told}, {form.pieces(at)} a stage (bulk copies)"
    told = f"is copied by all threads in chunks of {size * own.width} bytes, {form.chunks[at]} each"
    return f"{told}: its letters make no boxes" if form.grouped else told


def _report(found: DeviceSolution) -> Iterator[str]:
    """Yield a report's lines: what runs, what it moves, and how it was found."""
    form, problem, device = found.tiling.form, found.problem, found.device
    rows, columns, sums, batches = found.product.extents
    yield f"{problem} on {device.name}, multiplied as {form.arithmetic} by {form.instruction}"
    if form.ending.term != SUM:
        yield f"C is {form.ending.term}"
    yield f"matrices: {rows} rows, {columns} columns, sums of {sums}, {batches} times"
    rate = format(problem.flops / found.seconds / 1e12, ".4g")
    yield (
        f"predicted: {format_duration(found.seconds)}, {rate} TFLOP/s, bound by "
        f"{found.cost.bottleneck}; {device.source}"
    )
    yield describe_copies(device, sum(problem.bytes))
    yield ""
    table = [["tile", "rows", "columns", "sum"]]
    fragment = form.fragment
    table.append(["fragment", *map(str, (fragment.rows, fragment.columns, fragment.depth))])
    table.append(
        ["four warps" if form.grouped else "warp", *map(str, (*form.warp_tile, fragment.depth))]
    )
    table.append(["block", *map(str, (form.rows, form.columns, form.depth))])
    yield from align_columns(table)
    source = "by the assembler" if found.assembled else "estimated"
    yield (
        f"blocks of {form.threads // WARP} warps, {form.stages} stages of "
        f"{format_size(form.stage_bytes)} in shared memory, {found.registers} registers a thread "
        f"({source})"
    )
    operands = (problem.spec.names[at] for at in found.product.operands)
    yield from (f"{name} {_copied(form, at)}" for at, name in enumerate(operands))
    held = found.occupancy
    yield (
        f"a multiprocessor holds {held.blocks}: {held.share:.0%} of its warps, limited by "
        f"{held.limit}; {found.cost.calls:.0f} blocks on {device.multiprocessors} multiprocessors"
    )
    parts, group = found.tiling.parts, found.tiling.group
    yield f"the sum has {parts} parts; blocks go down {group} rows of tiles"
    yield ""
    longest = found.cost.seconds
    names = problem.spec.names
    moved = [["level", *names, "packing", "together", "at least", "time", "of longest"]]
    least = float(sum(problem.bytes))
    moved += [level_row(level, least, longest) for level in found.cost.levels]
    filler = ["-"] * (len(names) + 3)
    for name, seconds in (("compute", found.cost.compute), ("waiting", found.waiting)):
        moved.append([name, *filler, format_duration(seconds), f"{seconds / longest:.0%}"])
    yield from align_columns(moved)
    yield ""
    if found.relaxed is None:
        yield f"schedule: {found.schedule}"
        return
    sizes = ", ".join(f"{name} {size:.0f}" for name, size in found.relaxed.sizes) or "none"
    yield f"program: {format_duration(found.relaxed.seconds)} at {sizes}"
    yield f"tilings: {found.priced} priced, {found.spilled} refused as they spill or do not fit"
