"""A driver of a GPU that is none: memory of NumPy's, and launches that are noted, or emulated."""

import ctypes
import re
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


POINTER, NUMBER = ctypes.c_void_p, ctypes.c_uint32
ENCODER = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, NUMBER, NUMBER, *[POINTER] * 5, *[NUMBER] * 4)
"""The driver's function that encodes tensor maps."""

PARAMETERS = {"u64": np.uint64, "u32": np.uint32, "b8": np.uint8}
"""What parameters of kernels are, by their types in PTX."""


class FakeCard:
    """What stands in for `cuda-core` and the driver.

    Kernels of `plays` are run as SPIR-V when they are launched; all launches are noted, and what
    tensor maps are encoded of. Maps have the number of their encoding in each byte.
    """

    def __init__(self, monkeypatch, capability=(9, 0)):
        self.launched, self.buffers, self.loaded, self.limits = [], [], [], {}
        self.maps, self.plays, self.parameters, self.encoded = (), (), {}, []
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
        core.Device, core.ObjectCode = lambda: device, code
        core.utils = ModuleType("cuda.core.utils")
        core.utils.StridedMemoryView = SimpleNamespace(from_any_interface=self._view)
        driver = ModuleType("cuda.bindings.driver")
        most = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        driver.CUfunction_attribute = SimpleNamespace(**{most: most})
        driver.cuKernelSetAttribute = self._limit
        driver.cuMemcpyHtoD = driver.cuMemcpyDtoH = self._copy
        driver.cuLaunchKernel, driver.cuGetProcAddress = self._launch, self._find
        flags = SimpleNamespace(CU_GET_PROC_ADDRESS_DEFAULT=0)
        driver.CUdriverProcAddress_flags, self.encoder = flags, ENCODER(self._encode)
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
        for name, listed in re.findall(r"\.entry (\w+)\((.*?)\)", code.decode(), re.DOTALL):
            own = self.parameters[len(self.parameters)] = SimpleNamespace(name=name)
            own.kinds = re.findall(r"\.param (?:\.align \d+ )?\.(u64|u32|b8)", listed)
        return SimpleNamespace(get_kernel=self._get)

    def _get(self, name):
        handle = max(at for at, one in self.parameters.items() if one.name == name)
        return SimpleNamespace(name=name, handle=handle)

    def _find(self, name, version, flags):
        assert (name, version, flags) == (b"cuTensorMapEncodeTiled", 12000, 0)
        return 0, ctypes.cast(self.encoder, POINTER).value, 0

    def _encode(self, to, element, count, address, extents, strides, box, steps, *how):
        assert to % 128 == address % 16 == 0
        long, short = ctypes.c_uint64, ctypes.c_uint32
        read = [
            tuple((kind * length).from_address(place))
            for kind, length, place in (
                (long, count, extents),
                (long, count - 1, strides),
                (short, count, box),
                (short, count, steps),
            )
        ]
        ctypes.memset(to, len(self.encoded), 128)
        self.encoded.append((element, address, *read, how))
        return 0

    def _limit(self, kind, size, handle, device):
        self.limits[self.parameters[handle].name] = size
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

    def _launch(self, handle, *given):
        grid, block, shared, stream, places, extra = given[:3], given[3:6], *given[6:]
        own = self.parameters[handle]
        listed = (POINTER * len(own.kinds)).from_address(places)
        given = [self._read(kind, at) for kind, at in zip(own.kinds, listed, strict=True)]
        one = SimpleNamespace(name=own.name, grid=grid, block=block, shmem_size=shared)
        one.stream, one.given = SimpleNamespace(handle=stream), given
        self.launched.append(one)
        assert extra == 0
        for launch in self.plays:
            if launch.name == own.name:
                self._play(launch, given)
        return (0,)

    def _read(self, kind, at):
        """A parameter's value; of a tensor map what it was encoded of."""
        found = np.ctypeslib.as_array((ctypes.c_uint8 * 8).from_address(at))
        if kind == "b8":
            return self.encoded[found[0]]
        return found[: np.dtype(PARAMETERS[kind]).itemsize].view(PARAMETERS[kind])[0]

    def _play(self, one, given):
        """Run a kernel on the bytes that its arguments are addresses of."""
        known = {buffer.handle: buffer.bytes for buffer in self.buffers}
        arrays = {
            name: known[int(value)]
            for name, value in zip(one.arguments, given, strict=True)
            if isinstance(name, str) and not isinstance(value, tuple)
        }
        found = emulate([Job(Launches((one,), maps=self.maps), arrays, tuple(arrays))])[0]
        for name, result in zip(arrays, found, strict=True):
            arrays[name][...] = result
