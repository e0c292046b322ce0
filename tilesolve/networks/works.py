"""Works: what a program runs, one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilesolve.convolutions.layer import ConvLayer
from tilesolve.nests.plan import NestPlan
from tilesolve.nests.task_writer import TaskWriter
from tilesolve.networks.chains import Chain
from tilesolve.networks.graph import Evaluator, Node
from tilesolve.networks.operators import OPERATORS
from tilesolve.networks.places import Blocks, Place, inverse
from tilesolve.networks.windows import FUNCTIONS
from tilesolve.networks.winograd import WinogradPlan
from tilesolve.networks.winograd_calls import Calls
from tilesolve.networks.winograd_stages import restore_filters, transform_filters
from tilesolve.packing.memory_overlap import Array
from tilesolve.pipelines.front import PipelineFunction
from tilesolve.running.prepared import Prepared

Locate = Callable[[Place], Array]
"""Returns the array at a place of the arena."""

Held = dict[str, Any]
"""Arrays whose shapes are not known before a model runs, by name."""

Step = Callable[[Held], object]
"""A work with its arrays."""


def bind_function(
    function: PipelineFunction, given: Sequence[Array], outs: Sequence[Array]
) -> Step:
    """Return what computes a pipeline of some arrays."""
    out = outs[0] if len(outs) == 1 else tuple(outs)
    bound = function.bind(*given, out=out)
    if bound is None:
        return lambda held: function(*given, out=out)
    return lambda held: bound()


@dataclass(frozen=True, slots=True)
class Since:
    """How many bytes a program touches before it comes back to what a work uses.

    Parameters
    ----------
    weights
        To its weights.
    places
        To each of its places.
    """

    weights: float
    places: Mapping[Place, float]


class Work(Protocol):
    """What a program runs: it reads and writes places of the arena, or arrays of no known shape."""

    nodes: Sequence[Node]

    @property
    def places(self) -> list[Place]:
        """All places that it uses."""

    def bind(self, locate: Locate) -> Step:
        """Return what computes it."""

    def predict(self, since: Since) -> float | None:
        """Return how long it is predicted to take; None if nothing predicts it."""

    def __str__(self) -> str: ...


@dataclass(slots=True, eq=False)
class LayerWork:
    """A convolution or a product with constant weights.

    `is_further` says that it is one of several that together are one of the model's.
    """

    nodes: Sequence[Node]
    layer: ConvLayer
    is_product: bool
    x: Place
    out: Place
    residual: Place | None = None
    is_further: bool = False

    @property
    def places(self) -> list[Place]:
        """All places that it uses."""
        return [self.x, self.out, *([self.residual] if self.residual else [])]

    def bind(self, locate: Locate) -> Step:
        """Return what computes it."""
        layer, x, out = self.layer, locate(self.x), locate(self.out)
        residual = None if self.residual is None else locate(self.residual)

        return lambda held: layer(x, out, residual)

    def predict(self, since: Since) -> float:
        """Return how long it is predicted to take."""
        plan, out, x = self.layer.plan, since.places[self.out], since.places[self.x]
        if not isinstance(plan, NestPlan):
            return plan.solution.score_after((out, x, since.weights))
        residual = 0.0 if self.residual is None else since.places[self.residual]
        known = {"X": x, "O": out, "R": residual}
        names = {one.name for one in plan.computation.arrays}
        return plan.solution.seconds_after({name: known.get(name, since.weights) for name in names})

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as they are held."""
        return self.layer.held_bytes

    def __str__(self) -> str:
        found = str(self.layer).partition("\n")[0]
        return f"{found}, by a nest" if isinstance(self.layer.plan, NestPlan) else found


@dataclass(slots=True, eq=False)
class WinogradWork:
    """A layer of fewer products: see `winograd`. `kept` are arrays that it needs meanwhile."""

    nodes: Sequence[Node]
    layer: ConvLayer
    plan: WinogradPlan
    weights: Prepared
    bias: Array | None
    x: Place
    out: Place
    residual: Place | None
    kept: Sequence[Place]
    is_further: bool = False
    is_product: bool = False

    @classmethod
    def of(
        cls, work: LayerWork, plan: WinogradPlan, chain: Chain, blocks: Blocks, at: int
    ) -> WinogradWork:
        """Return the work that does what another one does, as number so many."""
        kind = chain.weights.dtype
        kept = [blocks.make(shape, kind, range(len(shape)), at) for shape in plan.shapes]
        weights = plan.product.hold(transform_filters(chain.weights))
        work.layer.release(lambda: restore_filters(weights.array))
        given = work.nodes, work.layer, plan, weights, chain.bias
        return cls(*given, work.x, work.out, work.residual, kept, work.is_further)

    @property
    def places(self) -> list[Place]:
        """All places that it uses."""
        return [self.x, self.out, *([self.residual] if self.residual else []), *self.kept]

    def _calls(self, locate: Locate) -> Calls:
        residual = None if self.residual is None else locate(self.residual)
        kept = [locate(one) for one in self.kept]
        x, out = locate(self.x), locate(self.out)
        return self.plan.calls(x, self.weights, self.bias, residual, out, kept)

    def bind(self, locate: Locate) -> Step:
        """Return what computes it."""
        steps = self._calls(locate).bind()

        def run(held: Held) -> None:
            for step in steps:
                step()

        return run

    def write(self, tasks: TaskWriter, locate: Locate) -> bool:
        """Write it down; return whether that can be done."""
        return self._calls(locate).write(tasks)

    def predict(self, since: Since) -> float:
        """Return how long it is predicted to take."""
        return self.plan.predict(since.weights)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as they are held."""
        return self.layer.held_bytes + self.weights.held_bytes

    def __str__(self) -> str:
        first = str(self.layer).partition("\n")[0]
        return f"{first}, by Winograd"


@dataclass(slots=True, eq=False)
class BorderWork:
    """Zeros around images, along the axes that have them."""

    place: Place
    ends: Sequence[tuple[int, int]]
    nodes: Sequence[Node] = ()

    @property
    def places(self) -> list[Place]:
        """All places that it uses."""
        return [self.place]

    def bind(self, locate: Locate) -> Step:
        """Return what computes it."""
        whole, slabs = locate(self.place), list[Array]()
        for axis, (low, high) in enumerate(self.ends):
            along: list[slice] = [slice(None)] * whole.ndim
            for part in (slice(0, low), slice(whole.shape[axis] - high, None)):
                along[axis] = part
                slabs.append(whole[tuple(along)])
        slabs = [slab for slab in slabs if slab.size]

        def run(held: Held) -> None:
            for slab in slabs:
                slab.fill(0)

        return run

    def predict(self, since: Since) -> None:
        """Nothing predicts it."""

    def __str__(self) -> str:
        return "zeros around images"


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """What nodes compute, as a function of arrays in the order of memory.

    Parameters
    ----------
    nodes
        In their order.
    constants
        What they read beside.
    inputs, outputs
        Names of arrays, with the order of axes that each has in memory.
    opset
        The version of the operators.
    """

    nodes: Sequence[Node]
    constants: Mapping[str, Array]
    inputs: Sequence[tuple[str, tuple[int, ...]]]
    outputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any]]]
    opset: int

    def __call__(self, *arrays: Any) -> Any:  # noqa: D102 - as the class says
        held: Held = dict(self.constants)
        for (name, order), array in zip(self.inputs, arrays, strict=True):
            held[name] = array.transpose(inverse(order))
        for node in self.nodes:
            given = [held[name] if name else None for name in node.inputs]
            found = FUNCTIONS[node.kind](node, self.opset, *given)
            results = found if isinstance(found, tuple) else (found,)
            held.update(zip(node.outputs, results, strict=False))
        made = []
        for name, order, dtype in self.outputs:
            found = held[name]
            found = found if found.dtype == dtype else found.astype(dtype)
            made.append(found.transpose(order))
        return made[0] if len(made) == 1 else tuple(made)


@dataclass(frozen=True, slots=True)
class CopyBody:
    """A copy of an array with its axes in another order, as a function."""

    order: tuple[int, ...]

    def __call__(self, x: Any) -> Any:  # noqa: D102 - as the class says
        return x.transpose(self.order).copy()


@dataclass(slots=True, eq=False)
class PipelineWork:
    """Operators that a pipeline computes, or a copy."""

    nodes: Sequence[Node]
    function: PipelineFunction
    inputs: list[Place]
    outputs: list[Place]
    seconds: float | None = None

    @property
    def places(self) -> list[Place]:
        """All places that it uses."""
        return [*self.inputs, *self.outputs]

    def bind(self, locate: Locate) -> Step:
        """Return what computes it."""
        given = [locate(one).transpose(one.order) for one in self.inputs]
        outs = [locate(one).transpose(one.order) for one in self.outputs]
        return bind_function(self.function, given, outs)

    def predict(self, since: Since) -> float | None:
        """Return how long it is predicted to take, of arrays in the nearest cache for them."""
        return self.seconds

    def __str__(self) -> str:
        return ", ".join(one.kind for one in self.nodes) or "copy"


@dataclass(slots=True, eq=False)
class CopyWork:
    """An array that is copied, as NumPy does it."""

    nodes: Sequence[Node]
    source: Place
    out: Place

    @property
    def places(self) -> list[Place]:
        """All places that it uses."""
        return [self.source, self.out]

    def bind(self, locate: Locate) -> Step:
        """Return what computes it."""
        source, out = locate(self.source), locate(self.out)

        return lambda held: np.copyto(out, source)

    def predict(self, since: Since) -> None:
        """Nothing predicts it."""

    def __str__(self) -> str:
        return "copy"


@dataclass(slots=True, eq=False)
class EvaluatorWork:
    """An operator that ONNX's own evaluator computes.

    `inputs` and `outputs` have a place, a constant, or nothing where no shape is known.
    """

    nodes: Sequence[Node]
    evaluator: Evaluator
    inputs: dict[str, Place | Array | None]
    outputs: dict[str, Place | None]
    reason: str

    @property
    def is_ours(self) -> bool:
        """Whether the operator is one of ours, which the evaluator calls."""
        return self.nodes[0].kind in OPERATORS

    @property
    def places(self) -> list[Place]:
        """All places that it uses."""
        all_of_them = [*self.inputs.values(), *self.outputs.values()]
        return [one for one in all_of_them if isinstance(one, Place)]

    def bind(self, locate: Locate) -> Step:
        """Return what computes it."""
        known = {
            name: locate(one) if isinstance(one, Place) else one
            for name, one in self.inputs.items()
            if one is not None
        }
        loose = [name for name, one in self.inputs.items() if one is None]
        targets = {
            name: locate(one) if one is not None else None for name, one in self.outputs.items()
        }
        evaluator = self.evaluator

        def run(held: Held) -> None:
            found = evaluator.run(known | {name: held[name] for name in loose})
            for name, value in zip(evaluator.outputs, found, strict=True):
                target = targets[name]
                if target is None:
                    held[name] = value
                else:
                    target[...] = value

        return run

    def predict(self, since: Since) -> None:
        """Nothing predicts it."""

    def __str__(self) -> str:
        return f"{self.nodes[0]} {'alone' if self.is_ours else 'in ONNX reference'}: {self.reason}"
