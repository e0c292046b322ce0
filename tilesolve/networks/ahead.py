"""Layers of networks, each made once; where many are to be planned, other cores help."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from tilesolve.constants.nests import NETWORK_ALONE_PLANS
from tilesolve.constants.policy import HELPERS
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.convolutions.layer_plans import LayerRequest
from tilesolve.machine.model import Machine
from tilesolve.networks.chains import Chain
from tilesolve.networks.depthwise import with_frame
from tilesolve.networks.graph import Network
from tilesolve.networks.winograd import WinogradChoice
from tilesolve.plans.cache import count_solved, is_enabled
from tilesolve.system.helpers import Job, helped


@dataclass(slots=True, eq=False)
class LayerMaker:
    """Makes the layers of a network's chains.

    It is a context, without which nobody helps.

    Parameters
    ----------
    winograd
        Chooses layers of fewer products; None if there are none.
    framed
        Arrays that have zeros around them, so that their pixels are no single axis.
    depthwise
        Results of layers whose images come with their zeros.
    """

    network: Network
    machine: Machine | str | None
    threads: int | None
    winograd: WinogradChoice | None = None
    framed: Collection[str] = ()
    depthwise: Collection[str] = ()
    _made: dict[str, ConvLayer] = field(default_factory=dict, init=False)
    _solved_before: int = field(default_factory=count_solved, init=False)
    _is_helped: bool = field(default=False, init=False)
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

    def plan(self, chain: Chain, shape: tuple[int, ...]) -> ConvLayer:
        """Return a new layer: that of a chain, or of a part of one.

        Sums that threads would divide are one thread's: parts of them are no part of a task list.
        """
        found = self._plan(chain, shape)
        solved = count_solved() - self._solved_before
        if solved >= NETWORK_ALONE_PLANS and not self._is_helped and is_enabled():
            self._is_helped = True
            self._helpers.enter_context(helped(list(self._list_waiting()), HELPERS))
        return found

    def _plan(self, chain: Chain, shape: tuple[int, ...]) -> ConvLayer:
        request = chain.request(shape, self.machine, self.threads)
        flat = self._is_flat(chain, request)
        found = ConvLayer(request, chain.weights, chain.bias, packs=False, flat=flat)
        if found.divides_sums:
            request = chain.request(shape, self.machine, 1)
            found = ConvLayer(request, chain.weights, chain.bias, packs=False, flat=flat)
        return found

    def _is_flat(self, chain: Chain, request: LayerRequest) -> bool:
        """Return whether pixels are a single axis of all arrays of a layer, and may be."""
        names = {chain.nodes[0].inputs[0], chain.result, chain.residual}
        return request.convolution.pointwise and not names.intersection(self.framed)

    def _list_waiting(self) -> Iterator[Job]:
        """Yield what plans the layers that are not made yet, as far as their shapes are known."""
        for node in self.network.nodes:
            chain = node.given.get("chain")
            if chain is None or chain.split or chain.result in self._made:
                continue
            if (shape := self.network.shapes.get(node.inputs[0])) is not None:
                yield partial(self.plan_ahead, chain, shape)

    def plan_ahead(self, chain: Chain, shape: tuple[int, ...]) -> None:
        """Plan the layer of a chain in all ways that are asked for, and keep the plans on disk."""
        if chain.result in self.depthwise:
            chain, shape = with_frame(chain, shape)
        layer = self._plan(chain, shape)
        if self.winograd is not None:
            self.winograd.choose(chain, layer)
