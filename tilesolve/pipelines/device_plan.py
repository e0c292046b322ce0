"""Plans of pipelines for GPUs: their code, their report, and their emulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.argument_kinds import read_flag
from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.gpu.product import check_array
from tilesolve.gpu.running import read_given
from tilesolve.kernels.gpu.assembling import find_tool
from tilesolve.machine.device import Device
from tilesolve.nests.files import VALUES
from tilesolve.nests.plan import StatementsPlan
from tilesolve.pipelines.device_groups import (
    DeviceFusion,
    DeviceMode,
    DeviceStages,
    restore_stages,
    solve_stages,
)
from tilesolve.plans import cache as plan_cache
from tilesolve.plans.device_base import DEVICE_FORMAT, BaseDevicePlan, describe_copies
from tilesolve.plans.files import refuse_damage, seal, unseal
from tilesolve.system.tables import align_columns
from tilesolve.system.units import format_duration, format_size, format_volume

HOLDS = "a plan of a pipeline for a GPU"
"""What such JSON says that it holds."""


class DevicePlan(StatementsPlan, BaseDevicePlan[DeviceStages]):
    """How to run stages on a GPU: groups, their tiles and prices, in its solution.

    Examples
    --------
    >>> from tilesolve.pipelines.front import pipeline
    >>> text = "b[y,x] = A[y,x] + A[y,x+1]; o[y,x] = b[y,x] * b[y+1,x]"
    >>> found = pipeline(text, A=(513, 513), machine="a100")
    >>> ".target sm_80" in found.code("ptx"), found.outputs
    (True, ('o',))
    >>> DevicePlan.from_json(found.to_json()) == found
    True
    """

    __slots__ = ()

    @property
    def computation(self) -> Computation:
        """What is computed."""
        return self.solution.computation

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
        found = self._emulate(self.prepare(*arrays, **named), self.outputs)
        return found[0] if len(found) == 1 else tuple(found)

    def prepare(self, *arrays: npt.ArrayLike, **named: npt.ArrayLike) -> dict[str, Any]:
        """Return arrays by the kernels' names: those that are given, parameters and new outputs."""
        given, numbers = self._read(arrays, named)
        return {**given, **numbers, **self._make_outs(given, None)}

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Compute the stages on the GPU.

        Parameters
        ----------
        *arrays
            In the order of `inputs`. On the GPU, with DLPack or ``__cuda_array_interface__``; or
            NumPy's, which are copied there, and the results back.
        out
            Where the result goes, of several `outputs` a tuple; of NumPy's arrays new ones if None.
        stream
            The stream to run on; the device's default one if None.
        **named
            Parameters, which are numbers, and other inputs.

        Raises
        ------
        DeviceError
            If there is no GPU, or not all arrays are on it.
        SizeError, DtypeError
            If an array is missing, or not of the plan's shape and dtype.
        PlanError
            If results share elements with one another, or with what is given.
        """
        given, numbers = self._read(arrays, named)
        outs = self._make_outs(given, out)
        self.executor.run({**given, **outs}, self.outputs, stream, numbers)
        return tuple(outs.values()) if len(outs) > 1 else outs[self.outputs[0]]

    def _read(
        self, arrays: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the inputs of a call by name, and its parameters as arrays of one element."""
        kinds = dict(self.computation.params)
        given = {**dict(zip(self.inputs, arrays, strict=False)), **named}
        wanted, count = [*self.inputs, *kinds], len(arrays) + len(named)
        if given.keys() != {*wanted} or count != len(wanted):
            raise SizeError(f"the pipeline takes {', '.join(wanted)}; {count} are given")
        found = {name: read_given(given[name], name) for name in self.inputs}
        self._check(found)
        return found, {name: np.full(1, given[name], kind) for name, kind in kinds.items()}

    def _make_outs(self, given: Mapping[str, Any], out: Any) -> dict[str, Any]:
        """Return arrays for the results by name, as far as they are not given new ones."""
        outs = out if len(self.outputs) > 1 and out is not None else [out] * len(self.outputs)
        found = {}
        for name, one in zip(self.outputs, outs, strict=True):
            info = self.computation.array(name)
            found[name] = self._make_out(given, one, info.shape, info.dtype)
        self._check(found)
        return found

    def _check(self, arrays: Mapping[str, Any]) -> None:
        for name, one in arrays.items():
            info = self.computation.array(name)
            check_array(one, name, info.shape, info.dtype)

    def _rescale(self, factors: Mapping[str, float]) -> DeviceStages:
        old = self.solution
        return solve_stages(old.computation, old.device.scale(factors), old.fusion, old.mode)

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value."""
        found = self.solution
        groups = [
            {
                "stages": one.names,
                "tiles": dict(one.kernel.tiles),
                "threads": one.kernel.threads,
                "registers": one.registers,
            }
            for one in found.groups
        ]
        data = {
            "computation": VALUES.write(found.computation),
            "device": found.device.to_toml(),
            **{name: getattr(found, name) for name in _KEPT},
            "groups": groups,
        }
        return seal(HOLDS, DEVICE_FORMAT, data)

    @classmethod
    def from_json(cls, text: str) -> DevicePlan:
        """Read a plan from JSON.

        Raises
        ------
        PlanError
            If it is no such plan.
        """
        data = unseal(text, HOLDS, DEVICE_FORMAT)
        with refuse_damage():
            computation = VALUES.read(Computation, data["computation"])
            device, kept = Device.from_toml(data["device"]), {x: data[x] for x in _KEPT}
            groups = [
                (tuple(one["stages"]), one["tiles"], one["threads"], one["registers"])
                for one in data["groups"]
            ]
            return cls(restore_stages(computation, device, groups, **kept))

    def __repr__(self) -> str:
        names = " ".join(one.names[-1] for one in self.solution.groups)
        return f"<DevicePlan {names}: {format_duration(self.seconds)} on {self.device.name}>"

    def __str__(self) -> str:
        return "\n".join(_report(self.solution))


_KEPT = ("fusion", "mode", "assembled")
"""What JSON has of a solution as it is."""


def plan_stages(
    computation: Computation,
    device: Device,
    fusion: DeviceFusion = "nested",
    mode: DeviceMode = "default",
    *,
    cache: bool = True,
) -> DevicePlan:
    """Return the plan of stages for a GPU, see `solve_stages`; one that is kept, where it may be.

    Examples
    --------
    >>> from tilesolve.pipelines.statements import read_statements
    >>> blur = read_statements("o[x] = A[x] + A[x+1]", {"A": (65,)}, "float32")
    >>> plan_stages(blur, Device.load("a100")) is plan_stages(blur, Device.load("a100"))
    True
    """

    def solve() -> DevicePlan:
        return DevicePlan(solve_stages(computation, device, fusion, mode))

    def read(text: str) -> DevicePlan:
        found = DevicePlan.from_json(text)
        if found.computation != computation or found.device != device:
            raise PlanError("it is of another computation or device")
        return found

    if not read_flag(cache, "cache", PlanError) or not plan_cache.is_enabled():
        return solve()
    # Registers that an assembler counts decide, too.
    words = repr((device, fusion, mode, find_tool("ptxas")))
    key = DEVICE_FORMAT, VALUES.write(computation), words
    return plan_cache.remember(
        (computation, words), lambda: plan_cache.recall(key, read, solve, DevicePlan.to_json)
    )


def _report(found: DeviceStages) -> Iterator[str]:
    """Yield a report's lines: groups and tiles, what they take, and what they move."""
    device, source = found.device, "by the assembler" if found.assembled else "estimated"
    stages = len(found.computation.stages)
    yield (
        f"{stages} stages in {len(found.groups)} kernels on {device.name}, fusion "
        f"{found.fusion!r}, predicted {format_duration(found.seconds)}"
    )
    yield f"registers are {source}; {device.source}"
    whole = found.computation
    yield describe_copies(
        device, sum(whole.array(x).bytes for x in (*whole.inputs, *whole.outputs))
    )
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
