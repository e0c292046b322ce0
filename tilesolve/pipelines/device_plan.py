"""Plans of pipelines for GPUs: their code, their report, and their emulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import DeviceError, DtypeError, SizeError
from tilesolve.contractions.statements.computation import ArrayInfo, Computation
from tilesolve.gpu.emulation import Job, emulate
from tilesolve.kernels.gpu.assembling import show_code
from tilesolve.machine.device import Device
from tilesolve.pipelines.device_groups import DeviceFusion, DeviceMode, DeviceStages, solve_stages
from tilesolve.system.html_report import write_html_report
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration, format_size, format_volume


@dataclass(frozen=True, repr=False)
class DevicePlan:
    """How to run stages on a GPU: groups, their tiles and prices, in its solution.

    Examples
    --------
    >>> from tilesolve.pipelines.front import pipeline
    >>> text = "b[y,x] = A[y,x] + A[y,x+1]; o[y,x] = b[y,x] * b[y+1,x]"
    >>> found = pipeline(text, A=(513, 513), machine="a100")
    >>> ".target sm_80" in found.code("ptx"), found.outputs
    (True, ('o',))
    """

    solution: DeviceStages

    @property
    def computation(self) -> Computation:
        """What is computed."""
        return self.solution.computation

    @property
    def device(self) -> Device:
        """Where."""
        return self.solution.device

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arrays that a call takes, in the order in which the stages read them."""
        return self.computation.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The arrays that a call returns."""
        return self.computation.outputs

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return self.solution.seconds

    def code(self, kind: str) -> Any:
        """Return all kernels: PTX as text, or SPIR-V as bytes.

        Raises
        ------
        PlanError
            If there is no such kind.
        DeviceError
            If LLVM makes no code of a stage.
        """
        return show_code(self.solution.form, self.device.capability, kind)

    def emulate(self, *arrays: npt.ArrayLike, **named: npt.ArrayLike) -> Any:
        """Return the result, of several `outputs` a tuple, computed by the same kernels on the CPU.

        Arrays are in the order of `inputs`; parameters, and other inputs, are named.

        Raises
        ------
        DeviceError
            If the extra ``gpu-test`` is missing, or the CPU's OpenCL fails.
        SizeError, DtypeError
            If an array is missing, or not of the plan's shape and dtype.
        """
        found = emulate([self.prepare(*arrays, **named)])[0]
        return found[0] if len(found) == 1 else tuple(found)

    def prepare(self, *arrays: npt.ArrayLike, **named: npt.ArrayLike) -> Job:
        """Return the kernels with arrays to run on: those that are given, and new ones."""
        computation = self.computation
        given = {**dict(zip(self.inputs, arrays, strict=False)), **named}
        params = [ArrayInfo(name, (1,), kind) for name, kind in computation.params]
        wanted = [*(computation.array(name) for name in self.inputs), *params]
        if len(arrays) > len(self.inputs) or given.keys() != {one.name for one in wanted}:
            told = ", ".join(one.name for one in wanted)
            raise SizeError(f"the pipeline takes {told}; {len(arrays) + len(named)} are given")
        found = {one.name: _read(given[one.name], one, params) for one in wanted}
        for group in self.solution.groups:
            made = group.kernel.arrays[-1]
            found[made.name] = np.empty(made.shape, made.dtype)
        return Job(self.solution.launches, found, self.outputs)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Raise an error: kernels of pipelines are not started on a GPU yet.

        Raises
        ------
        DeviceError
            Always.
        """
        raise DeviceError(
            "plans of pipelines do not start kernels on a GPU yet: take plan.code, or "
            "plan.emulate on a CPU"
        )

    def whatif(self, **factors: float) -> DevicePlan:
        """Return the plan for a device with some figures multiplied, see `GpuPlan.whatif`."""
        device = self.device.scale(factors)
        return plan_stages(self.computation, device, self.solution.fusion, self.solution.mode)

    def __repr__(self) -> str:
        names = " ".join(one.names[-1] for one in self.solution.groups)
        return f"<DevicePlan {names}: {format_duration(self.seconds)} on {self.device.name}>"

    def __str__(self) -> str:
        return "\n".join(_report(self.solution))

    def _repr_html_(self) -> str:
        return write_html_report(str(self))


def _read(array: npt.ArrayLike, wanted: ArrayInfo, params: list[ArrayInfo]) -> npt.NDArray[Any]:
    """Return an array of NumPy's as a plan has it; a parameter as an array of one element."""
    if wanted in params:
        return np.full(1, array, wanted.dtype)
    found = read_array(array, wanted.name)
    if found.shape != wanted.shape:
        raise SizeError(f"{wanted.name} has shape {found.shape}, the plan {wanted.shape}")
    if found.dtype.name != wanted.dtype:
        raise DtypeError(f"{wanted.name} is {found.dtype.name}, the plan is {wanted.dtype}")
    return found


def plan_stages(
    computation: Computation,
    device: Device,
    fusion: DeviceFusion = "nested",
    mode: DeviceMode = "default",
) -> DevicePlan:
    """Return the plan of stages for a GPU, see `solve_stages`."""
    return DevicePlan(solve_stages(computation, device, fusion, mode))


def _report(found: DeviceStages) -> Iterator[str]:
    """Yield a report's lines: groups and tiles, what they take, and what they move."""
    device, source = found.device, "by the assembler" if found.assembled else "estimated"
    stages = len(found.computation.stages)
    yield (
        f"{stages} stages in {len(found.groups)} kernels on {device.name}, fusion "
        f"{found.fusion!r}, predicted {format_duration(found.seconds)}"
    )
    yield f"registers are {source}; figures of the device are published or assumed, not measured"
    yield ""
    rows = [["kernel", "tile", "blocks", "threads", "shared", "registers", "occupancy"]]
    rows[0] += ["barriers", "work again"]
    for one in found.groups:
        kernel = one.kernel
        tile = " ".join(f"{letter}:{size}" for letter, size in kernel.tiles)
        counts = (kernel.blocks, kernel.threads, format_size(kernel.shared_bytes), one.registers)
        share, again = f"{one.occupancy.share:.0%}", f"{one.work - 1:.0%}"
        rows.append([kernel.name, tile, *map(str, counts), share, str(sum(kernel.waits)), again])
    yield from align_columns(rows)
    yield ""
    rows = [["kernel", "shared", "L2", "memory", "time", "bound by"]]
    for one in found.groups:
        volumes = (format_volume(level.volume) for level in one.cost.levels)
        rows.append([one.kernel.name, *volumes, format_duration(one.score), one.cost.bottleneck])
    yield from align_columns(rows)
    yield ""
    for one in found.groups:
        *inner, last = one.kernel.steps
        places = [f"{step.name} ({format_size(step.bytes)})" for step in inner]
        yield f"{one.kernel.name}: {' '.join((*places, last.name))}"
