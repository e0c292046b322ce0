"""Plans on a GPU: their kernels on arrays of any library.

It has not been run on a card.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.arrays import HOST_DEVICES, read_array
from tilesolve.contractions.errors import DeviceError, PlanError
from tilesolve.gpu.card import Card
from tilesolve.gpu.launches import Launches
from tilesolve.kernels.gpu.writing import MAP_NAME
from tilesolve.machine.device import Device

Numbers = Mapping[str, NDArray[Any]]
"""Parameters, as arrays of one element."""


class DeviceRunner:
    """Runs kernels on the first GPU, and keeps what it loaded there.

    Raises
    ------
    DeviceError
        If there is no `cuda-core`, no GPU, or one of an earlier compute capability; where plans
        have `wgmma`, of another one.
    """

    def __init__(self, device: Device, launches: Launches) -> None:
        self.card, self.device, self.launches = Card(), device, launches
        here, wanted = self.card.capability, device.capability
        if here < wanted or (launches.exact and here != wanted):
            told = f"{device.name} has compute capability {wanted / 10}"
            raise DeviceError(f"{told}, the GPU here {here / 10}")

    @cached_property
    def kernels(self) -> list[Any]:
        """The kernels on the device."""
        return [self.card.load(one, self.device.capability) for one in self.launches.kernels]

    @cached_property
    def tables(self) -> Mapping[str, Any]:
        """The tables of places on the device, if kernels have some."""
        tables = self.launches.tables
        return {"tables": self.card.upload(tables)} if tables.size else {}

    def bind(self, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """Return what computes with arrays that are on the device, by name, and stay there."""
        addresses = self._find(arrays, (), self.card.stream)
        return lambda: self._start(addresses, {}, self.card.stream)

    def run(
        self,
        arrays: Mapping[str, Any],
        outputs: Sequence[str],
        stream: Any = None,
        numbers: Numbers = MappingProxyType({}),
        *,
        adds: bool = False,
    ) -> None:
        """Compute into arrays.

        Parameters
        ----------
        arrays
            All on the device, with DLPack or ``__cuda_array_interface__``; or all of NumPy, which
            are copied there and back.
        outputs
            Names of those that are written.
        stream
            Anything that `cuda-core` takes for a stream; the default one if None.
        numbers
            Parameters, which are copied there.
        adds
            Whether outputs are added to, so that NumPy's are copied there, too.
        """
        card = self.card
        own = card.stream if stream is None else card.device.create_stream(stream)
        if not are_numpy(arrays):
            self._start(self._find(arrays, outputs, own), numbers, own)
            return
        given = {name: one for name, one in arrays.items() if adds or name not in outputs}
        made = {name: arrays[name].nbytes for name in outputs if not adds}
        with ExitStack() as held:
            buffers = {name: card.upload(one) for name, one in given.items()}
            buffers |= {name: card.device.allocate(n, stream=own) for name, n in made.items()}
            for one in buffers.values():
                held.callback(one.close, own)
            self._start({name: int(one.handle) for name, one in buffers.items()}, numbers, own)
            own.sync()
            for name in outputs:
                card.download(buffers[name], arrays[name])

    def _find(
        self, arrays: Mapping[str, Any], outputs: Sequence[str], stream: Any
    ) -> dict[str, int]:
        """Return the addresses of arrays on the device, in C order, once `stream` may use them."""
        found: dict[str, range] = {}
        for name, array in arrays.items():
            view = self.card.views.from_any_interface(array, stream_ptr=int(stream.handle))
            usual = tuple(np.cumprod([1, *view.shape[:0:-1]])[::-1]) if view.shape else ()
            if not view.is_device_accessible or (view.strides and tuple(view.strides) != usual):
                raise DeviceError("arrays must be on the GPU, in C order")
            begin, size = int(view.ptr), int(np.prod(view.shape)) * view.dtype.itemsize
            if begin % 16:
                raise DeviceError("arrays on the GPU must begin at a multiple of 16 bytes")
            found[name] = range(begin, begin + size)
        for name in outputs:
            for other, one in found.items():
                own = found[name]
                if other != name and own.start < one.stop and one.start < own.stop:
                    raise PlanError(f"out shares elements with {other}")
        return {name: one.start for name, one in found.items()}

    def _start(self, addresses: Mapping[str, int], numbers: Numbers, stream: Any) -> None:
        """Start all kernels on arrays at addresses; what lies between them goes with the stream."""
        device = self.card.device
        with ExitStack() as held:
            buffers = {name: self.card.upload(one) for name, one in numbers.items()}
            for name, size in self.launches.scratch:
                buffers[name] = device.allocate(size, stream=stream)
            for one in buffers.values():
                held.callback(one.close, stream)
            buffers |= self.tables
            known = {**addresses, **{name: int(one.handle) for name, one in buffers.items()}}
            maps = {
                name: self.card.encode(one, known[name.removesuffix(MAP_NAME)])
                for name, one in self.launches.maps
            }
            for launch, kernel in zip(self.launches.kernels, self.kernels, strict=True):
                given = [
                    np.uint32(value)
                    if isinstance(value, int)
                    else maps[value]
                    if value in maps
                    else np.uint64(known[value])
                    for value in launch.arguments
                ]
                self.card.start(kernel, launch, given, stream)


def read_given(value: Any, name: str) -> Any:
    """Return an array on a GPU as it is, and any other one as NumPy's.

    Raises
    ------
    DtypeError
        If it is no array.

    Examples
    --------
    >>> read_given([1, 2], "x")
    array([1, 2])
    """
    place = getattr(value, "__dlpack_device__", None)
    there = place is not None and place()[0] not in HOST_DEVICES
    there = there or hasattr(value, "__cuda_array_interface__")
    return value if there else read_array(value, name)


def are_numpy(arrays: Mapping[str, Any]) -> bool:
    """Return whether arrays are NumPy's, or else on a GPU.

    Raises
    ------
    DeviceError
        If some are, and some are not.

    Examples
    --------
    >>> are_numpy({"a": np.ones(2), "b": np.ones(3)})
    True
    """
    kinds = {isinstance(one, np.ndarray) for one in arrays.values()}
    if len(kinds) > 1:
        raise DeviceError("some arrays are on the GPU, and some are not")
    return kinds == {True}
