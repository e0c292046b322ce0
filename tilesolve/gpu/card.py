"""A GPU that is here: `cuda-core` finds it, and loads and starts kernels on it.

Written from the documentation of `cuda-core` 1.2; it has not been run on a card.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.errors import DeviceError
from tilesolve.gpu.launches import Launch
from tilesolve.gpu.tensor_maps import TensorMap
from tilesolve.kernels.gpu.assembling import assemble, make_code
from tilesolve.machine.device import Device, list_devices

MAP_BYTES = 128
"""Bytes of a tensor map, which begins at a multiple of them."""

_SWIZZLES = {32: 1, 64: 2, 128: 3}
"""The driver's numbers of swizzles, by bytes of a line."""

_ELEMENTS = {1: 0, 2: 1, 4: 2}
"""Its numbers of elements of so many bytes, which are copied as they are."""

_L2_LINES = 2
"""Its number for lines of 128 bytes that L2 fetches."""

_ENCODER = b"cuTensorMapEncodeTiled", 12000
"""Its function that encodes tensor maps, and the version of CUDA that has it."""


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

    @cached_property
    def _encoder(self) -> Callable[..., int]:
        """The driver's function: its own wrapper in Python may misalign what it fills."""
        usual = self.driver.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
        place = self.ask(self.driver.cuGetProcAddress(*_ENCODER, usual))
        number, pointer = ctypes.c_uint32, ctypes.c_void_p
        kinds = [pointer, number, number, *[pointer] * 5, *[number] * 4]
        return ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(int(place))

    def encode(self, one: TensorMap, address: int) -> NDArray[np.uint8]:
        """Return a tensor map of the tensor at an address, as the driver encodes it."""
        whole = np.zeros(2 * MAP_BYTES, np.uint8)
        found = whole[-whole.ctypes.data % MAP_BYTES :][:MAP_BYTES]
        extents, strides = np.array(one.extents, np.uint64), np.array(one.strides[1:], np.uint64)
        box, steps = np.array(one.box, np.uint32), np.ones(len(one.box), np.uint32)
        sides = (array.ctypes.data for array in (extents, strides, box, steps))
        kind, swizzle = _ELEMENTS[one.element], _SWIZZLES[one.swizzle]
        how = 0, swizzle, _L2_LINES, 0
        self.ask((self._encoder(found.ctypes.data, kind, len(box), address, *sides, *how),))
        return found

    def start(self, kernel: Any, one: Launch, given: Sequence[Any], stream: Any) -> None:
        """Start a kernel with arguments.

        Addresses are ``numpy.uint64``, numbers ``uint32``, tensor maps arrays of bytes.
        """
        values = [np.asarray(value) for value in given]
        places = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        sides = *one.grid, one.threads, 1, 1, one.shared
        handles = int(kernel.handle), int(stream.handle)
        listed = ctypes.addressof(places)
        self.ask(self.driver.cuLaunchKernel(handles[0], *sides, handles[1], listed, 0))

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
