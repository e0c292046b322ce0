"""Plans on a GPU: `cuda-core` loads and starts their kernels on arrays of any library.

Written from the documentation of `cuda-core` 1.2; it has not been run on a card.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.errors import DeviceError, DtypeError, SizeError
from tilesolve.gpu.launches import Launch, list_launches
from tilesolve.gpu.strategy import DeviceSolution
from tilesolve.kernels.gpu.assembling import assemble, make_code


class DeviceRunner:
    """Runs a solution on the first GPU, and keeps what it loaded there.

    Raises
    ------
    DeviceError
        If there is no `cuda-core`, no GPU, or one of an earlier compute capability.
    """

    def __init__(self, solution: DeviceSolution) -> None:
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
        if 10 * major + minor < solution.device.capability:
            wanted = divmod(solution.device.capability, 10)
            raise DeviceError(
                f"{solution.device.name} has compute capability {wanted[0]}.{wanted[1]}, "
                f"the GPU here {major}.{minor}"
            )
        self.core, self.driver, self.views = core, driver, utils.StridedMemoryView
        self.solution = solution
        self.launches = list_launches(solution.product, solution.tiling)

    def _do(self, found: tuple[Any, ...]) -> None:
        """Raise an error unless the driver did what it was asked for."""
        if int(found[0]):
            raise DeviceError(f"the driver of the GPU answers {found[0]}")

    @cached_property
    def kernels(self) -> list[Any]:
        """The kernels on the device, with as much shared memory as they need."""
        return [self._load(one) for one in self.launches.kernels]

    def _load(self, one: Launch) -> Any:
        capability = self.solution.device.capability
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
        self._do(self.driver.cuKernelSetAttribute(most, one.shared, kernel.handle, number))
        return kernel

    @cached_property
    def tables(self) -> Any:
        """The tables of places, on the device."""
        return self._upload(self.launches.tables)

    def _upload(self, array: NDArray[Any]) -> Any:
        """Return a buffer on the device with an array's elements."""
        array = np.ascontiguousarray(array)
        stream = self.device.default_stream
        found = self.device.allocate(array.nbytes, stream=stream)
        stream.sync()
        self._do(self.driver.cuMemcpyHtoD(int(found.handle), array.ctypes.data, array.nbytes))
        return found

    def run(self, first: Any, second: Any, out: Any, stream: Any = None) -> Any:
        """Compute into an array, and return it.

        Parameters
        ----------
        first, second, out
            All three on the device, with DLPack or ``__cuda_array_interface__``; or all of NumPy,
            which are copied there and back.
        stream
            Anything that `cuda-core` takes for a stream; the default one if None.
        """
        own = self.device.default_stream if stream is None else self.device.create_stream(stream)
        arrays, shapes = (out, first, second), self.solution.problem.shapes
        here = [isinstance(one, np.ndarray) for one in arrays]
        if any(here) and not all(here):
            raise DeviceError("some arrays are on the GPU, and some are not")
        for one, shape in zip(arrays, shapes, strict=True):
            _check(one, shape, self.solution.problem.dtype)
        if not here[0]:
            self._start([self._find(one, own) for one in arrays], own)
            return out
        whole = np.empty(shapes[0], out.dtype)
        buffers = [self._upload(one) for one in (whole, first, second)]
        self._start([int(one.handle) for one in buffers], own)
        own.sync()
        address = int(buffers[0].handle)
        self._do(self.driver.cuMemcpyDtoH(whole.ctypes.data, address, whole.nbytes))
        out[...] = whole
        return out

    def _find(self, array: Any, stream: Any) -> int:
        """Return the address of an array on the device, in C order, once `stream` may use it."""
        view = self.views(array, stream_ptr=int(stream.handle))
        usual = tuple(np.cumprod([1, *view.shape[:0:-1]])[::-1]) if view.shape else ()
        if not view.is_device_accessible or (view.strides and tuple(view.strides) != usual):
            raise DeviceError("arrays must be on the GPU, in C order")
        if int(view.ptr) % 16:
            raise DeviceError("arrays on the GPU must begin at a multiple of 16 bytes")
        return int(view.ptr)

    def _start(self, tensors: list[int], stream: Any) -> None:
        """Start all kernels on tensors at addresses, C first."""
        numbers = self.solution.product.operands
        addresses = {"output": tensors[0], "tables": int(self.tables.handle)}
        addresses |= {"first": tensors[numbers[0]], "second": tensors[numbers[1]]}
        parts = None
        if self.launches.part_bytes:
            parts = self.device.allocate(self.launches.part_bytes, stream=stream)
            addresses["parts"] = int(parts.handle)
        for one, kernel in zip(self.launches.kernels, self.kernels, strict=True):
            config = self.core.LaunchConfig(
                grid=one.grid, block=(one.threads, 1, 1), shmem_size=one.shared
            )
            given = [
                np.uint64(addresses[value]) if isinstance(value, str) else np.uint32(value)
                for value in one.arguments
            ]
            self.core.launch(stream, config, kernel, *given)
        if parts is not None:
            parts.close(stream)


def _check(array: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Raise an error unless an array has a shape and a dtype, by name."""
    if tuple(getattr(array, "shape", ())) != shape:
        raise SizeError(f"an array must have the shape {shape}, got {getattr(array, 'shape', ())}")
    known = str(getattr(array, "dtype", "")).rpartition(".")[2]
    if known != dtype:
        raise DtypeError(f"an array must be of dtype {dtype}, got {known or type(array).__name__}")
