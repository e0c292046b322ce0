"""Scales of channels in front of a layer, as of squeeze and excitation: its weights have them.

A product of images by a number for each channel is a pass over the images. Where there are fewer
filters than pixels, the layer's weights are fewer than these: they are scaled in each call. See
docs/decisions/089.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

import numpy as np

from tilesolve.constants.policy import TIME_TOLERANCE
from tilesolve.convolutions.layer import ConvLayer
from tilesolve.convolutions.layer_plans import LaidLayer, LayerPlans
from tilesolve.nests.task_writer import TaskWriter
from tilesolve.networks.ahead import LayerMaker
from tilesolve.networks.chains import Chain
from tilesolve.networks.graph import Network, Node
from tilesolve.networks.places import Blocks, Place
from tilesolve.networks.planner import Planner
from tilesolve.networks.works import Held, LayerWork, Locate, Step, bind_function
from tilesolve.packing.memory_overlap import Array
from tilesolve.pipelines.front import PipelineFunction


@dataclass(frozen=True, slots=True)
class ScaleBody:
    """Numbers multiplied by a scale, as a function."""

    def __call__(self, numbers: Any, scale: Any) -> Any:  # noqa: D102 - as the class says
        return numbers * scale


@dataclass(frozen=True, slots=True, eq=False)
class ScaledLayer:
    """How a layer of scaled weights is computed.

    Parameters
    ----------
    times, name
        The product, and the array of scales.
    function
        What multiplies weights by it.
    plans
        Of the layer, for weights that are new in each call.
    seconds
        What both are predicted to take.
    """

    times: Node
    name: str
    function: PipelineFunction
    plans: LayerPlans
    seconds: float


def join_scales(network: Network, layers: LayerMaker, planner: Planner) -> None:
    """Let layers have the products in front of them, where that is predicted to be faster."""
    found = []
    for times, node, images, name in _find_scales(network):
        scaled = _choose(network, layers, planner, node, times, name)
        if scaled is not None:
            inputs, given = [images, *node.inputs[1:], name], {**node.given, "scaled": scaled}
            found.append(((times, node), replace(node, inputs=inputs, given=given)))
    network.replace(found)


def _find_scales(network: Network) -> Iterator[tuple[Node, Node, str, str]]:
    """Yield products by scales that a layer of single pixels alone reads, it, images and scales."""
    makers, uses, shapes = network.makers, network.uses, network.shapes
    for node in network.nodes:
        times = makers.get(node.inputs[0]) if node.kind == "Layer" and node.inputs else None
        if times is None or times.kind != "Mul" or uses[times.outputs[0]] != 1:
            continue
        shape, chain = shapes[times.outputs[0]], node.given["chain"]
        for images, name in (times.inputs, times.inputs[::-1]):
            is_scale = shapes[name] == (1, shape[1], *(1,) * (len(shape) - 2))
            is_given = name not in network.constants and images not in network.constants
            if is_scale and is_given and shapes[images] == shape and _fits(chain, shape):
                yield times, node, images, name
                break


def _fits(chain: Chain, shape: tuple[int, ...]) -> bool:
    """Return whether a layer is of single pixels, and of fewer filters than pixels."""
    given = chain.arguments
    return (
        not chain.is_product
        and chain.split is None
        and len(shape) > 2
        and prod(chain.weights.shape[2:]) == prod(given["stride"]) == given["groups"] == 1
        and not any(map(any, given["padding"]))
        and chain.weights.dtype.name in ("float32", "float64")
        and len(chain.weights) < prod(shape[2:])
    )


def _choose(
    network: Network,
    layers: LayerMaker,
    planner: Planner,
    node: Node,
    times: Node,
    name: str,
) -> ScaledLayer | None:
    """Return how a layer has its scales, if that is predicted to be faster than a pass."""
    chain: Chain = node.given["chain"]
    shape, kind = network.shapes[node.inputs[0]], chain.weights.dtype
    direct = layers.make(chain, shape)
    request = replace(chain.request(shape, layers.machine, layers.threads), constant=False)
    plans, function = LayerPlans(request), planner.function(ScaleBody())
    found = plans.made(request.convolution.pointwise)[1]
    if found.solution.partial_outputs:
        return None

    def predict(numbers: tuple[int, ...], scale: tuple[int, ...]) -> float:
        given = (np.broadcast_to(np.zeros((), kind), one) for one in (numbers, scale))
        return function.plan(*given).seconds

    channels, filters, pixels = shape[1], len(chain.weights), prod(shape[2:])
    usual = predict((pixels, channels), (1, channels)) + direct.plan.seconds
    seconds = predict((channels, filters), (channels, 1)) + found.seconds
    if seconds >= (1 - TIME_TOLERANCE) * usual:
        return None
    return ScaledLayer(times, name, function, plans, seconds)


@dataclass(slots=True, eq=False)
class ScaledWork:
    """A layer whose images a product by a number for each channel would scale: its weights are.

    Parameters
    ----------
    layer
        Without the scales.
    weights, bias
        As they are multiplied, with filters last; and what is added.
    x, scale, scaled, out, residual
        Images and scales, scaled weights, the result, and what is added.
    """

    nodes: Sequence[Node]
    layer: ConvLayer
    how: ScaledLayer
    weights: Array
    bias: Array | None
    x: Place
    scale: Place
    scaled: Place
    out: Place
    residual: Place | None
    is_product: bool = False
    is_further: bool = False

    @classmethod
    def of(
        cls,
        direct: LayerWork,
        how: ScaledLayer,
        chain: Chain,
        scale: Place,
        blocks: Blocks,
        at: int,
    ) -> Self:
        """Return the work that does what another one does with scaled images, as number so many."""
        layer, filters = direct.layer, chain.weights
        weights = np.ascontiguousarray(filters.reshape(len(filters), -1).T)
        scaled = blocks.make(weights.shape, weights.dtype, (0, 1), at)
        layer.release(lambda: weights.T.reshape(layer.convolution.w_shape))
        places = direct.x, scale, scaled, direct.out, direct.residual
        return cls([*direct.nodes, how.times], layer, how, weights, chain.bias, *places)

    @property
    def places(self) -> list[Place]:
        """All places that it uses."""
        added = [self.residual] if self.residual else []
        return [self.x, self.scale, self.scaled, self.out, *added]

    @property
    def seconds(self) -> float | None:
        """How long it is predicted to take."""
        return self.how.seconds

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as they are held."""
        return self.layer.held_bytes + self.weights.nbytes

    def _arguments(
        self, locate: Locate
    ) -> tuple[bool, Array, Array, Array | None, Array | None, Array]:
        """Return what plans take."""
        x, out = locate(self.x), locate(self.out)
        residual = None if self.residual is None else locate(self.residual)
        plans, filters = self.how.plans, locate(self.scaled).T
        flat = plans.is_flat(x, out, *(() if residual is None else (residual,)))
        window = (1,) * (x.ndim - 2)
        weights = plans.form(flat).filters(filters.reshape(*filters.shape, *window))
        return flat, x, weights, self.bias, residual, out

    def _scale(self, locate: Locate) -> tuple[tuple[Array, Array], Array]:
        return (self.weights, locate(self.scale).reshape(-1, 1)), locate(self.scaled)

    def bind(self, locate: Locate) -> Step:
        """Return what computes it."""
        given, scaled = self._scale(locate)
        step, arguments = bind_function(self.how.function, given, [scaled]), self._arguments(locate)

        def run(held: Held) -> None:
            step(held)
            self.how.plans.run(*arguments)

        return run

    def write(self, tasks: TaskWriter, locate: Locate) -> LaidLayer | None:
        """Write it down; return what the layer does, if that can be done."""
        given, scaled = self._scale(locate)
        found = self.how.plans.lay_out(*self._arguments(locate))
        if found is None or not self.how.function.write_call(tasks, given, (scaled,)):
            return None
        return found

    def __str__(self) -> str:
        first = str(self.layer).partition("\n")[0]
        return f"{first}, fused with {self.how.name!r}: weights are scaled"
