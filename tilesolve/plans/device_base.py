"""What plans for GPUs have in common: their code, what runs them, and their emulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.errors import DeviceError
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.gpu.emulation import Job, emulate
from tilesolve.gpu.launches import Launches
from tilesolve.gpu.running import DeviceRunner, are_numpy
from tilesolve.kernels.gpu.assembling import Kernel, show_code
from tilesolve.machine.device import Device
from tilesolve.plans.base import BasePlan, Solved
from tilesolve.system.units import format_duration, format_volume

DEVICE_FORMAT = 3
"""Version of the JSON of plans for GPUs."""


class DeviceSolved(Solved, Protocol):
    """What a plan for a GPU holds."""

    @property
    def device(self) -> Device:
        """Where."""
        ...

    @property
    def form(self) -> Kernel:
        """What code is made of."""
        ...

    @property
    def launches(self) -> Launches:
        """The kernels, and how they are started."""
        ...


DeviceSolvedT = TypeVar("DeviceSolvedT", bound=DeviceSolved)


class BaseDevicePlan(BasePlan[DeviceSolvedT, DeviceRunner]):
    """A plan for a GPU."""

    __slots__ = ()

    def _make_executor(self) -> DeviceRunner:
        return DeviceRunner(self.device, self._solution.launches)

    @property
    def device(self) -> Device:
        """Where."""
        return self._solution.device

    def code(self, kind: str) -> Any:  # noqa: ANN401 - text or bytes
        """Return the kernels: PTX as text, or SPIR-V as bytes.

        Where a sum has parts, what adds them up is another kernel, which this leaves out.

        Raises
        ------
        PlanError
            If there is no such kind.
        DeviceError
            If LLVM makes no code of it.
        """
        return show_code(self._solution.form, self.device.capability, kind)

    def _emulate(
        self, arrays: Mapping[str, npt.NDArray[Any]], outputs: tuple[str, ...]
    ) -> list[npt.NDArray[Any]]:
        """Return results that the kernels compute on the CPU."""
        return emulate([Job(self._solution.launches, arrays, outputs)])[0]

    def _make_out(
        self,
        given: Mapping[str, Any],
        out: Any,  # noqa: ANN401
        shape: tuple[int, ...],
        dtype: str,
    ) -> Any:  # noqa: ANN401 - an array of any library
        """Return where a result goes: an array that is given, or a new one beside NumPy's."""
        if out is not None:
            return out
        if not are_numpy(given):
            raise DeviceError("of arrays on a GPU out must be given")
        return np.zeros(shape, array_dtype(dtype))


def describe_copies(device: Device, size: float) -> str:
    """Return what copying NumPy's arrays to a GPU, and results back, is predicted to cost.

    Examples
    --------
    >>> describe_copies(Device.load("h100"), 1e9)
    'arrays of NumPy are copied, 1 GB, which takes about 40 ms more'
    """
    seconds = size / device.host_bandwidth
    return (
        f"arrays of NumPy are copied, {format_volume(size)}, which takes about "
        f"{format_duration(seconds)} more"
    )
