"""A driver of a GPU that is none: memory of NumPy's, and launches that are noted, or emulated."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np

from tilesolve.gpu.emulation import Job, emulate
from tilesolve.gpu.launches import Launches


class FakeBuffer:
    """Bytes on the card, which begin at a multiple of 16."""

    def __init__(self, size):
        whole = np.full(size + 16, 0xA5, np.uint8)
        self.bytes = whole[-whole.ctypes.data % 16 :][:size]
        self.handle, self.closed = self.bytes.ctypes.data, None

    def close(self, stream):
        self.closed = stream


class CardArray:
    """An array on the card, as a library has one."""

    def __init__(self, array):
        self.buffer = FakeBuffer(array.nbytes)
        self.shape, self.dtype, self.strides = array.shape, array.dtype, None
        self.__cuda_array_interface__ = {}
        self.numpy()[...] = array

    def numpy(self):
        return self.buffer.bytes.view(self.dtype).reshape(self.shape)


class FakeCard:
    """What stands in for `cuda-core` and the driver.

    Kernels of `plays` are run as SPIR-V when they are launched; all launches are noted.
    """

    def __init__(self, monkeypatch, capability=(9, 0)):
        self.launched, self.buffers, self.loaded, self.limits = [], [], [], {}
        self.plays = ()
        device = SimpleNamespace(
            set_current=lambda: None,
            compute_capability=capability,
            name="NVIDIA Fake",
            device_id=0,
            default_stream=SimpleNamespace(handle=0, sync=lambda: None),
            allocate=self._allocate,
            create_stream=lambda one: SimpleNamespace(handle=one, sync=lambda: None),
        )
        code = SimpleNamespace(from_ptx=self._load, from_cubin=self._load)
        core = ModuleType("cuda.core")
        core.Device, core.ObjectCode, core.launch = lambda: device, code, self._launch
        core.LaunchConfig = SimpleNamespace
        core.utils = ModuleType("cuda.core.utils")
        core.utils.StridedMemoryView = SimpleNamespace(from_any_interface=self._view)
        driver = ModuleType("cuda.bindings.driver")
        most = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        driver.CUfunction_attribute = SimpleNamespace(**{most: most})
        driver.cuKernelSetAttribute = self._limit
        driver.cuMemcpyHtoD = driver.cuMemcpyDtoH = self._copy
        bindings, cuda = ModuleType("cuda.bindings"), ModuleType("cuda")
        bindings.driver, cuda.core, cuda.bindings = driver, core, bindings
        for one in (cuda, core, core.utils, bindings, driver):
            monkeypatch.setitem(sys.modules, one.__name__, one)
        monkeypatch.setattr("tilesolve.gpu.card.assemble", lambda *_: None)

    def _allocate(self, size, *, stream):
        self.buffers.append(FakeBuffer(size))
        return self.buffers[-1]

    def _load(self, code):
        assert b".target sm_" in code
        self.loaded.append(code)
        return SimpleNamespace(get_kernel=lambda name: SimpleNamespace(name=name, handle=name))

    def _limit(self, kind, size, handle, device):
        self.limits[handle] = size
        return (0,)

    def _copy(self, to, source, size):
        ctypes.memmove(to, source, size)
        return (0,)

    def _view(self, array, *, stream_ptr):
        return SimpleNamespace(
            ptr=array.buffer.handle,
            shape=array.shape,
            strides=array.strides,
            dtype=array.dtype,
            is_device_accessible=True,
        )

    def _launch(self, stream, config, kernel, *given):
        self.launched.append(
            SimpleNamespace(stream=stream, name=kernel.name, given=given, **vars(config))
        )
        for one in self.plays:
            if one.name == kernel.name:
                self._play(one, given)

    def _play(self, one, given):
        """Run a kernel on the bytes that its arguments are addresses of."""
        known = {buffer.handle: buffer.bytes for buffer in self.buffers}
        arrays = {
            name: known[int(value)]
            for name, value in zip(one.arguments, given, strict=True)
            if isinstance(name, str)
        }
        found = emulate([Job(Launches((one,)), arrays, tuple(arrays))])[0]
        for name, result in zip(arrays, found, strict=True):
            arrays[name][...] = result
