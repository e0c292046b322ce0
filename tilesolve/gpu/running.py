"""Plans on a GPU: their kernels on arrays of any library.

It has not been run on a card.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tilesolve.contractions.errors import DeviceError
from tilesolve.gpu.card import Card
from tilesolve.gpu.launches import list_launches
from tilesolve.gpu.strategy import DeviceSolution


class DeviceRunner:
    """Runs a solution on the first GPU, and keeps what it loaded there.

    Raises
    ------
    DeviceError
        If there is no `cuda-core`, no GPU, or one of an earlier compute capability.
    """

    def __init__(self, solution: DeviceSolution) -> None:
        self.card, self.solution = Card(), solution
        here, wanted = self.card.capability, solution.device.capability
        if here < wanted:
            told = f"{solution.device.name} has compute capability {wanted / 10}"
            raise DeviceError(f"{told}, the GPU here {here / 10}")
        self.launches = list_launches(solution.product, solution.tiling)

    @cached_property
    def kernels(self) -> list[Any]:
        """The kernels on the device."""
        capability = self.solution.device.capability
        return [self.card.load(one, capability) for one in self.launches.kernels]

    @cached_property
    def tables(self) -> Any:
        """The tables of places, on the device."""
        return self.card.upload(self.launches.tables)

    def bind(self, first: Any, second: Any, out: Any) -> Callable[[], None]:
        """Return what computes into an array, of arrays that are on the device."""
        card = self.card
        arrays = self.solution.product.name_arrays(first, second, out)
        addresses = {name: self._find(one, card.stream) for name, one in arrays.items()}
        return lambda: self._start(addresses, card.stream)

    def run(
        self, first: Any, second: Any, out: Any, operands: Sequence[Any] = (), stream: Any = None
    ) -> Any:
        """Compute into an array, and return it.

        Parameters
        ----------
        first, second, out, operands
            All on the device, with DLPack or ``__cuda_array_interface__``; or all of NumPy, which
            are copied there and back.
        stream
            Anything that `cuda-core` takes for a stream; the default one if None.
        """
        card = self.card
        own = card.stream if stream is None else card.device.create_stream(stream)
        arrays = self.solution.product.name_arrays(first, second, out, operands)
        here = {isinstance(one, np.ndarray) for one in arrays.values()}
        if len(here) > 1:
            raise DeviceError("some arrays are on the GPU, and some are not")
        if here == {False}:
            self._start({name: self._find(one, own) for name, one in arrays.items()}, own)
            return out
        buffers = {name: card.upload(one) for name, one in arrays.items()}
        self._start({name: int(one.handle) for name, one in buffers.items()}, own)
        own.sync()
        card.download(buffers["output"], out)
        return out

    def _find(self, array: Any, stream: Any) -> int:
        """Return the address of an array on the device, in C order, once `stream` may use it."""
        view = self.card.views.from_any_interface(array, stream_ptr=int(stream.handle))
        usual = tuple(np.cumprod([1, *view.shape[:0:-1]])[::-1]) if view.shape else ()
        if not view.is_device_accessible or (view.strides and tuple(view.strides) != usual):
            raise DeviceError("arrays must be on the GPU, in C order")
        if int(view.ptr) % 16:
            raise DeviceError("arrays on the GPU must begin at a multiple of 16 bytes")
        return int(view.ptr)

    def _start(self, addresses: Mapping[str, int], stream: Any) -> None:
        """Start all kernels on arrays at addresses."""
        addresses = {**addresses, "tables": int(self.tables.handle)}
        parts = None
        if self.launches.part_bytes:
            parts = self.card.device.allocate(self.launches.part_bytes, stream=stream)
            addresses["parts"] = int(parts.handle)
        for one, kernel in zip(self.launches.kernels, self.kernels, strict=True):
            given = [
                np.uint64(addresses[value]) if isinstance(value, str) else np.uint32(value)
                for value in one.arguments
            ]
            self.card.start(kernel, one, given, stream)
        if parts is not None:
            parts.close(stream)
