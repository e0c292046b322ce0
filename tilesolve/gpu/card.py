"""A GPU that is here: `cuda-core` finds it, and loads and starts kernels on it.

Written from the documentation of `cuda-core` 1.2; it has not been run on a card.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.errors import DeviceError
from tilesolve.gpu.launches import Launch
from tilesolve.kernels.gpu.assembling import assemble, make_code
from tilesolve.machine.device import Device, list_devices


class Card:
    """The first GPU of this computer.

    Raises
    ------
    DeviceError
        If there is no `cuda-core`, or no GPU.
    """

    def __init__(self) -> None:
        try:
            from cuda import core
            from cuda.bindings import driver
            from cuda.core import utils
        except ImportError as error:
            told = "running on a GPU takes cuda-core: pip install tilesolve[gpu]"
            raise DeviceError(told) from error
        try:
            self.device = core.Device()
            self.device.set_current()
            major, minor = self.device.compute_capability
        except Exception as error:  # the driver's own, whichever it is
            told = "no GPU was found; plan.code and plan.emulate work without one"
            raise DeviceError(f"{told} ({error})") from error
        self.core, self.driver, self.views = core, driver, utils.StridedMemoryView
        self.name, self.capability = str(self.device.name), 10 * major + minor
        self.stream = self.device.default_stream

    def ask(self, found: tuple[Any, ...]) -> Any:
        """Return what the driver answers; raise an error if that is one."""
        if int(found[0]):
            raise DeviceError(f"the driver of the GPU answers {found[0]}")
        return found[1] if found[1:] else None

    def attribute(self, name: str) -> int:
        """Return a figure of the GPU by the driver's name of it."""
        kind = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.ask(self.driver.cuDeviceGetAttribute(kind, self.device.device_id)))

    def nearest(self) -> Device:
        """Return the device that comes with the package and is most like this one."""
        known = [Device.load(name) for name in list_devices()]
        same = [one for one in known if one.name in self.name.lower().replace(" ", "")]
        able = [one for one in known if one.capability <= self.capability]
        if not able:
            raise DeviceError(f"{self.name} is older than all devices that plans are made for")
        return max(same or able, key=lambda one: one.capability)

    def load(self, one: Launch, capability: int) -> Any:
        """Return a kernel on the device, with as much shared memory as it needs."""
        made, kinds = assemble(one.form, capability), self.core.ObjectCode
        code = (
            kinds.from_ptx(make_code(one.form, capability))
            if made is None
            else kinds.from_cubin(made.cubin)
        )
        kernel = code.get_kernel(one.name)
        names = self.driver.CUfunction_attribute
        most = names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        number = self.device.device_id
        self.ask(self.driver.cuKernelSetAttribute(most, one.shared, kernel.handle, number))
        return kernel

    def upload(self, array: NDArray[Any]) -> Any:
        """Return a buffer on the device with an array's elements."""
        array = np.ascontiguousarray(array)
        found = self.device.allocate(array.nbytes, stream=self.stream)
        self.stream.sync()
        self.ask(self.driver.cuMemcpyHtoD(int(found.handle), array.ctypes.data, array.nbytes))
        return found

    def download(self, buffer: Any, array: NDArray[Any]) -> None:
        """Fill an array with a buffer's elements."""
        whole = np.empty(array.shape, array.dtype)
        address = int(buffer.handle)
        self.ask(self.driver.cuMemcpyDtoH(whole.ctypes.data, address, whole.nbytes))
        array[...] = whole

    def start(self, kernel: Any, one: Launch, given: Sequence[Any], stream: Any) -> None:
        """Start a kernel with arguments: addresses are ``numpy.uint64``, numbers ``uint32``."""
        config = self.core.LaunchConfig(
            grid=one.grid, block=(one.threads, 1, 1), shmem_size=one.shared
        )
        self.core.launch(stream, config, kernel, *given)

    def time(self, work: Callable[[], object], rounds: int) -> float:
        """Return the seconds of each of so many rounds of work, on the default stream."""
        timed = self.core.EventOptions(timing_enabled=True)
        work()
        begin = self.stream.record(options=timed)
        for _ in range(rounds):
            work()
        end = self.stream.record(options=timed)
        end.sync()
        return float(end - begin) / 1e3 / rounds
