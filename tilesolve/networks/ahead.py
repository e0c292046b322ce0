"""Layers of networks, each made once; where many are to be planned, other cores help."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Self

from tilesolve.constants.nests import NETWORK_ALONE_SECONDS, NETWORK_HELPERS
from tilesolve.convolutions.group_plans import GroupPlans
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.convolutions.layer_plans import LayerPlans, LayerRequest
from tilesolve.machine.model import Machine
from tilesolve.networks.chains import Chain
from tilesolve.networks.graph import Network
from tilesolve.plans.cache import is_enabled

_ORDER = f"import sys; from {__name__} import plan_given; plan_given(sys.stdin.buffer.read())"

Waiting = tuple[LayerRequest, bool]
"""A layer to be planned, and whether pixels are a single axis."""


@dataclass(slots=True, eq=False)
class LayerMaker:
    """Makes the layers of a network's chains.

    It is a context, without which nobody helps.

    Parameters
    ----------
    framed
        Arrays that have zeros around them, so that their pixels are no single axis.
    """

    network: Network
    machine: Machine | str | None
    threads: int | None
    framed: Collection[str] = ()
    _made: dict[str, ConvLayer] = field(default_factory=dict, init=False)
    _seconds: float = field(default=0.0, init=False)
    _helpers: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._helpers.close()

    def make(self, chain: Chain, shape: tuple[int, ...]) -> ConvLayer:
        """Return the layer of a chain for images of a shape, which has channels before pixels."""
        found = self._made.get(chain.result)
        if found is None:
            found = self._made[chain.result] = self.plan(chain, shape)
        return found

    def hold(self, chain: Chain, shape: tuple[int, ...]) -> ConvLayer:
        """Return the layer of a chain that something else computes: it is not planned."""
        request = chain.request(shape, self.machine, self.threads)
        found = ConvLayer(request, chain.weights, chain.bias, packs=False)
        return self._made.setdefault(chain.result, found)

    def plan(self, chain: Chain, shape: tuple[int, ...]) -> ConvLayer:
        """Return a new layer: that of a chain, or of a part of one.

        Sums that threads would divide are one thread's: parts of them are no part of a task list.
        """
        begin = perf_counter()
        request = chain.request(shape, self.machine, self.threads)
        flat = self._is_flat(chain, request)
        found = ConvLayer(request, chain.weights, chain.bias, packs=False, flat=flat)
        if found.divides_sums:
            request = chain.request(shape, self.machine, 1)
            found = ConvLayer(request, chain.weights, chain.bias, packs=False, flat=flat)
        before, self._seconds = self._seconds, self._seconds + perf_counter() - begin
        if before < NETWORK_ALONE_SECONDS <= self._seconds:
            self._helpers.enter_context(plan_ahead(list(dict.fromkeys(self._list_waiting()))))
        return found

    def _is_flat(self, chain: Chain, request: LayerRequest) -> bool:
        """Return whether pixels are a single axis of all arrays of a layer, and may be."""
        names = {chain.nodes[0].inputs[0], chain.result, chain.residual}
        return request.convolution.pointwise and not names.intersection(self.framed)

    def _list_waiting(self) -> Iterator[tuple[LayerRequest, bool]]:
        """Yield the layers that are not made yet, as far as their shapes are known, as planned."""
        for node in self.network.nodes:
            chain = node.given.get("chain")
            if chain is None or chain.split or chain.result in self._made:
                continue
            if (shape := self.network.shapes.get(node.inputs[0])) is not None:
                request = chain.request(shape, self.machine, self.threads)
                yield request, self._is_flat(chain, request)


@contextmanager
def plan_ahead(requests: Sequence[Waiting]) -> Iterator[None]:
    """Have free cores plan layers, the last ones first, while the block plans the first ones.

    Plans come back by way of the cache on disk. None of the processes outlives the block.
    """
    cores = len(os.sched_getaffinity(0))
    count = min(cores - 1, NETWORK_HELPERS, len(requests) - 1)
    helpers: list[subprocess.Popen[bytes]] = []
    if sys.executable and is_enabled():
        for at in range(count):
            with suppress(OSError):  # no process can be had
                helpers.append(_start(requests[::-1][at::count]))
    try:
        yield
    finally:
        for one in helpers:
            one.kill()
            one.wait()


def _start(requests: Sequence[Waiting]) -> subprocess.Popen[bytes]:
    """Start a process that plans layers."""
    nothing = subprocess.DEVNULL
    found = subprocess.Popen(
        [sys.executable, "-P", "-c", _ORDER], stdin=subprocess.PIPE, stdout=nothing, stderr=nothing
    )
    assert found.stdin is not None
    with suppress(BrokenPipeError):
        found.stdin.write(pickle.dumps(list(requests)))
        found.stdin.close()
    return found


def plan_given(content: bytes) -> None:
    """Plan the layers of a pickled list, and keep the plans on disk."""
    requests: list[Waiting] = pickle.loads(content)
    for request, flat in requests:
        if GroupPlans.of(request) is None:
            LayerPlans(request).made(flat)
