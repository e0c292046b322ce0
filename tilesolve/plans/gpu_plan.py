"""Plans for GPUs: their code, their report, and what runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.argument_kinds import read_flag
from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DeviceError, DtypeError, PlanError, TilesolveError
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.emulation import Job, emulate
from tilesolve.gpu.launches import list_launches
from tilesolve.gpu.occupancy import find_occupancy
from tilesolve.gpu.running import DeviceRunner
from tilesolve.gpu.strategy import SCHEDULES, DeviceSolution, relax_best, solve_for_device
from tilesolve.gpu.tilings import Tiling, price_tiling
from tilesolve.kernels.gpu.assembling import make_code
from tilesolve.kernels.gpu.forms import WARP, Form, Operand
from tilesolve.machine.device import Device, find_device
from tilesolve.model.price import Price
from tilesolve.planning.demand import Demand
from tilesolve.plans.report import level_row
from tilesolve.system.html_report import write_html_report
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration, format_size

CODES = ("ptx", "spirv")
"""What kernels can be had as."""

FORMAT = 1
"""Version of these plans' JSON."""


@dataclass(frozen=True, repr=False)
class GpuPlan:
    """How to run a contraction on a GPU, and what that is predicted to cost.

    Parameters
    ----------
    solution
        The tiles and their price.

    Examples
    --------
    >>> found = plan_for_device(Problem.of("ij-ik-kj", 4096, "float16"), Device.load("h100"))
    >>> found.price.bottleneck, ".target sm_90" in found.code("ptx")
    ('compute', True)
    """

    solution: DeviceSolution

    @property
    def problem(self) -> Problem:
        """What is computed."""
        return self.solution.problem

    @property
    def device(self) -> Device:
        """Where."""
        return self.solution.device

    @property
    def price(self) -> Price:
        """What the tiles cost, level by level."""
        return self.solution.cost

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return self.solution.seconds

    @property
    def flops(self) -> float:
        """Predicted flop/s."""
        return self.problem.flops / self.seconds

    def code(self, kind: str) -> Any:  # noqa: ANN401 - text or bytes
        """Return the kernel: PTX as text, or SPIR-V as bytes.

        Where the sum has parts, what adds them up is another kernel, which this leaves out.

        Raises
        ------
        PlanError
            If there is no such kind.
        DeviceError
            If LLVM makes no code of it.
        """
        if kind not in CODES:
            raise PlanError(f"kind of code is one of {', '.join(CODES)}, not {kind!r:.80}")
        capability = self.device.capability if kind == "ptx" else None
        found = make_code(self.solution.tiling.form, capability)
        return found.decode() if kind == "ptx" else found

    def emulate(self, first: npt.ArrayLike, second: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the result, computed by the same kernels on the CPU: slowly, for tests.

        Raises
        ------
        DeviceError
            If the extra ``gpu-test`` is missing, or the CPU's OpenCL fails.
        SizeError, DtypeError
            If an array is not of the plan's shape and dtype.
        """
        arrays = self._read(first, second)
        output = np.zeros(self.problem.shapes[0], arrays[0].dtype)
        solution = self.solution
        one, other = (arrays[at - 1] for at in solution.product.operands)
        job = Job(list_launches(solution.product, solution.tiling), one, other, output)
        return emulate([job])[0]

    def _read(self, first: npt.ArrayLike, second: npt.ArrayLike) -> list[npt.NDArray[Any]]:
        """Return NumPy's arrays of the plan's shapes and dtype."""
        named = ((first, "operand A"), (second, "operand B"))
        arrays = [read_array(one, name) for one, name in named]
        self.problem.check_operands(*arrays)
        for one, (_, name) in zip(arrays, named, strict=True):
            if one.dtype.name != self.problem.dtype:
                raise DtypeError(f"{name} is {one.dtype.name}, the plan is {self.problem.dtype}")
        return arrays

    def __call__(self, first: Any, second: Any, out: Any = None, *, stream: Any = None) -> Any:  # noqa: ANN401
        """Compute the contraction on the GPU.

        Parameters
        ----------
        first, second
            Arrays on the GPU, with DLPack or ``__cuda_array_interface__``; or NumPy's, which are
            copied there, and the result back.
        out
            Where the result goes; of NumPy's arrays a new one if None.
        stream
            The stream to run on; the device's default one if None.

        Raises
        ------
        DeviceError
            If there is no GPU, or not all arrays are on it.
        SizeError, DtypeError
            If an array is not of the plan's shape and dtype.
        """
        runner = DeviceRunner(self.solution)
        if isinstance(first, np.ndarray) and out is None:
            out = np.empty(self.problem.shapes[0], first.dtype)
        if out is None:
            raise DeviceError("of arrays on a GPU out must be given")
        return runner.run(first, second, out, stream)

    def whatif(self, **factors: float) -> GpuPlan:
        """Return the plan for a device with some figures multiplied.

        Parameters
        ----------
        **factors
            ``shared_bandwidth``, ``l2_bandwidth``, ``memory_bandwidth``, ``shared_capacity``,
            ``l2_capacity`` or ``compute``: what each is multiplied by.
        """
        old = self.solution
        device = old.device.scale(factors)
        return plan_for_device(old.problem, device, schedule=old.schedule, tf32=old.tf32)

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value."""
        found, problem = self.solution, self.problem
        return json.dumps(
            {
                "format": FORMAT,
                "spec": str(problem.spec),
                "sizes": dict(problem.sizes),
                "dtype": problem.dtype,
                "device": found.device.to_toml(),
                "tiling": asdict(found.tiling),
                **{name: getattr(found, name) for name in _KEPT},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> GpuPlan:
        """Read a plan from JSON.

        Raises
        ------
        PlanError
            If it is no such plan.
        """
        try:
            found = json.loads(text)
            if found["format"] != FORMAT:
                raise PlanError(f"a plan for GPUs has format {FORMAT}")
            problem = Problem.of(found["spec"], found["sizes"], found["dtype"])
            device, given = Device.from_toml(found["device"]), found["tiling"]
            form = given.pop("form")
            operands = [Operand(**form.pop(name)) for name in ("first", "second")]
            warps = tuple(form.pop("warps"))
            tiling = Tiling(
                Form(warps=warps, first=operands[0], second=operands[1], **form), **given
            )
            own = tiling.form
            held = find_occupancy(device, own.threads, found["registers"], own.shared_bytes)
            empty = DeviceSolution(
                problem=problem,
                device=device,
                tiling=tiling,
                cost=Price((), 0.0, 0.0, ()),
                waiting=0.0,
                occupancy=held,
                relaxed=None,
                **{name: found[name] for name in _KEPT},
            )
            cost, waiting = price_tiling(empty.product, device, tiling, held)
            relaxed = None
            if empty.schedule == "solved":
                relaxed = relax_best(empty.product, device, own.arithmetic)
            return cls(replace(empty, cost=cost, waiting=waiting, relaxed=relaxed))
        except (TilesolveError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"no plan for GPUs: {error}") from None

    def __repr__(self) -> str:
        return (
            f"<GpuPlan {self.problem.spec} {self.problem.dtype}: {self.flops:.3g} flop/s "
            f"predicted on {self.device.name}, bound by {self.price.bottleneck}>"
        )

    def __str__(self) -> str:
        return "\n".join(_report(self.solution))

    def _repr_html_(self) -> str:
        return write_html_report(str(self))


_KEPT = ("schedule", "tf32", "registers", "assembled", "priced", "spilled")
"""What JSON has of a solution as it is."""


def plan_for_device(
    problem: Problem, device: Device, *, schedule: str = "solved", tf32: bool = False
) -> GpuPlan:
    """Return the plan of a contraction for a GPU, see `solve_for_device`."""
    return GpuPlan(solve_for_device(problem, device, schedule=schedule, tf32=tf32))


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
    if demand != Demand() or workers is not None or problem.constant:
        raise PlanError(
            "plans for GPUs have no accumulate, epilogue, strategy, scheme, tries, constant or "
            "workers"
        )
    return plan_for_device(problem, device, schedule=schedule, tf32=rounds)


def _report(found: DeviceSolution) -> Iterator[str]:
    """Yield a report's lines: what runs, what it moves, and how it was found."""
    form, problem, device = found.tiling.form, found.problem, found.device
    rows, columns, sums, batches = found.product.extents
    yield f"{problem} on {device.name}, multiplied as {form.arithmetic}"
    yield f"matrices: {rows} rows, {columns} columns, sums of {sums}, {batches} times"
    rate = format(problem.flops / found.seconds / 1e12, ".4g")
    yield (
        f"predicted: {format_duration(found.seconds)}, {rate} TFLOP/s, bound by "
        f"{found.cost.bottleneck}; figures of the device are published or assumed, not measured"
    )
    yield ""
    table = [["tile", "rows", "columns", "sum"]]
    fragment = form.fragment
    table.append(["fragment", *map(str, (fragment.rows, fragment.columns, fragment.depth))])
    table.append(["warp", *map(str, (*form.warp_tile, fragment.depth))])
    table.append(["block", *map(str, (form.rows, form.columns, form.depth))])
    yield from align_columns(table)
    source = "by the assembler" if found.assembled else "estimated"
    yield (
        f"blocks of {form.threads // WARP} warps, {form.stages} stages of "
        f"{format_size(form.stage_bytes)} in shared memory, {found.registers} registers a thread "
        f"({source})"
    )
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
