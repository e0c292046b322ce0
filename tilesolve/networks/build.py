"""Programs of networks: which work computes each node, and where its arrays lie."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilesolve.constants.policy import NETWORK_JOINED_NODES, TIME_TOLERANCE
from tilesolve.contractions.errors import TilesolveError
from tilesolve.machine.model import Machine
from tilesolve.networks.ahead import LayerMaker
from tilesolve.networks.chains import Chain
from tilesolve.networks.depthwise import (
    DepthwiseBody,
    Ends,
    compare_depthwise,
    depthwise_weights,
    is_depthwise,
    padding_of,
)
from tilesolve.networks.graph import Evaluator, Network, Node
from tilesolve.networks.operators import operators
from tilesolve.networks.parts import VIEWS, Part, find_parts
from tilesolve.networks.places import Blocks, Place, image_order, inverse
from tilesolve.networks.windows import FUNCTIONS
from tilesolve.networks.works import (
    Body,
    BorderWork,
    CopyWork,
    DepthwiseWork,
    EvaluatorWork,
    LayerWork,
    PipelineWork,
    Work,
)
from tilesolve.pipelines.front import PipelineFunction, pipeline


@dataclass(slots=True, eq=False)
class Program:
    """Works in the order in which they run, and where their arrays lie.

    Parameters
    ----------
    works
        What runs.
    blocks
        The memory of their arrays.
    inputs
        Where each input of the model is copied to.
    outputs
        Where each output is found: a place, a constant, or nothing if its shape is not known.
    """

    works: list[Work] = field(default_factory=list)
    blocks: Blocks = field(default_factory=Blocks)
    inputs: dict[str, Place] = field(default_factory=dict)
    outputs: dict[str, Place | np.ndarray[Any, Any] | None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Builder:
    """Makes a program of a network."""

    network: Network
    machine: Machine | str | None
    threads: int | None
    program: Program = field(default_factory=Program)
    _places: dict[str, Place] = field(default_factory=dict)
    _within: Mapping[str, Part] = field(default_factory=dict)
    _loose: set[str] = field(default_factory=set)
    _layers: LayerMaker = field(init=False)
    _functions: dict[Hashable, PipelineFunction] = field(default_factory=dict)
    _faster: dict[Hashable, float | None] = field(default_factory=dict)
    _depthwise: dict[str, tuple[PipelineFunction, float]] = field(default_factory=dict)
    _margins: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _framed: dict[str, Place] = field(default_factory=dict)

    def build(self) -> Program:
        """Return the program."""
        with LayerMaker(self.network, self.machine, self.threads) as self._layers:
            return self._build()

    def _build(self) -> Program:
        network, program = self.network, self.program
        self._within = find_parts(network)
        self._find_depthwise()
        for name in network.inputs:
            shape, dtype = network.shapes[name], network.dtypes[name]
            place = program.blocks.make(shape, dtype, image_order(len(shape)), 0)
            self._places[name] = program.inputs[name] = place
        for nodes in self._join():
            self._add(nodes)
        for name in network.outputs:
            found = network.constants.get(name)
            program.outputs[name] = self._places.get(name) if found is None else found
        self._note_lives()
        return program

    def _note_lives(self) -> None:
        """Note from which work to which each block is needed."""
        program = self.program
        for place in program.inputs.values():
            program.blocks.use(place, -1)
        for at, work in enumerate(program.works):
            for place in work.places:
                program.blocks.use(place, at)
        for end in program.outputs.values():
            if isinstance(end, Place):
                program.blocks.use(end, len(program.works))

    def _find_depthwise(self) -> None:
        """Find the depthwise layers that pipelines compute, and the zeros around what they read."""
        network, makers = self.network, self.network.makers
        for node in network.nodes:
            chain = node.given.get("chain")
            if chain is None or not is_depthwise(chain):
                continue
            name, ends = node.inputs[0], padding_of(chain)
            is_made = name in makers and makers[name].kind not in (*VIEWS, "Concat")
            if is_made and (maker := makers[name].given.get("chain")) is not None:
                is_made = not maker.is_product  # whose rows are one axis in memory
            may_have_zeros = is_made and name not in self._within and name not in network.outputs
            if any(map(any, ends)) and not may_have_zeros:
                continue
            found = self._plan_depthwise(chain, network.shapes[name])
            if found is None:
                continue
            self._depthwise[chain.result] = found
            known = self._margins.get(name, [(0, 0)] * len(ends))
            self._margins[name] = [
                (max(low, other), max(high, another))
                for (low, high), (other, another) in zip(known, ends, strict=True)
            ]

    def _plan_depthwise(
        self, chain: Chain, shape: tuple[int, ...]
    ) -> tuple[PipelineFunction, float] | None:
        """Return what computes a depthwise layer, and its seconds, if that is faster.

        Both are run: the price of a layer is of arrays that come from memory, and these do not.
        """
        layer = self._layers.make(chain, shape)
        given, residual = chain.arguments, chain.residual is not None
        counts = tuple(layer.out_shape[1:-1])
        key = (counts, given["stride"], given["dilation"], chain.activation)
        function = self._functions.get(key)
        if function is None:
            body = DepthwiseBody(*key[:-1], self._activate(chain))
            function = pipeline(body, machine=self.machine, threads=self.threads)
            self._functions[key] = function
        kind = (key, shape, chain.weights.shape, padding_of(chain), residual)
        if kind not in self._faster:
            seconds, others = compare_depthwise(chain, shape, function, layer)
            self._faster[kind] = seconds if seconds < (1 - TIME_TOLERANCE) * others else None
        found = self._faster[kind]
        return None if found is None else (function, found)

    def _join(self) -> list[list[Node]]:
        """Return the nodes, those that one pipeline computes together.

        A node joins those before it where it alone reads what they give.
        """
        network = self.network
        uses, groups = network.uses, list[list[Node]]()
        ends: dict[str, list[Node]] = {}
        for node in network.nodes:
            alone = [
                ends[name]
                for name in node.inputs
                if name in ends and uses[name] == 1 and self._may_join(node)
            ]
            if alone and len(alone[0]) < NETWORK_JOINED_NODES and node.inputs[0]:
                group = alone[0]
                groups.remove(group)
                del ends[group[-1].outputs[0]]
                group.append(node)
            else:
                group = [node]
            groups.append(group)
            if self._may_join(node):
                ends[node.outputs[0]] = group
        return groups

    def _may_join(self, node: Node) -> bool:
        """Return whether a node may be one of several in a pipeline."""
        return (
            node.kind in FUNCTIONS
            and node.kind not in VIEWS
            and node.kind not in ("Concat", "MatMul", "Gemm", "Einsum")
            and len(node.outputs) == 1
            and node.outputs[0] not in self._within
            and all(x in self.network.shapes for x in (*node.reads, *node.outputs))
        )

    def _add(self, nodes: Sequence[Node]) -> None:
        """Add what computes some nodes."""
        first = nodes[0]
        if first.kind == "Layer":
            self._add_layer(first)
        elif self._is_loose(first):
            self._evaluate(first, "shapes are not known before it runs")
        elif (first.kind in VIEWS and self._view(first)) or (
            first.kind == "Concat" and self._is_written(first)
        ):
            pass
        else:
            reason = self._compute(nodes)
            if reason and len(nodes) > 1:
                for node in nodes:
                    self._add([node])
            elif reason:
                self._evaluate(first, reason)

    def _is_loose(self, node: Node) -> bool:
        """Return whether there is something of no known shape that a node reads or gives."""
        network = self.network
        if any(name in self._loose for name in node.reads):
            return True
        return any(x and (x not in network.shapes or x not in network.dtypes) for x in node.outputs)

    def _out(self, name: str, order: Sequence[int]) -> Place:
        """Return where an array is written."""
        network, blocks = self.network, self.program.blocks
        if name in self._places:
            return self._places[name]
        shape, dtype = network.shapes[name], network.dtypes[name]
        if name in self._within:
            whole, cut = self._within[name]
            if whole not in self._places:
                self._out(whole, image_order(len(shape)))
            place = self._places[whole]
            part = blocks.view(place, blocks.shadow(place)[cut])
            assert part is not None
        elif any(map(any, self._margins.get(name, ()))) and tuple(order) == image_order(len(shape)):
            part = self._frame(name, shape, dtype)
        else:
            part = blocks.make(shape, dtype, order, len(self.program.works))
        self._places[name] = part
        return part

    def _frame(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Place:
        """Return where images lie that have zeros around them."""
        blocks, ends = self.program.blocks, [(0, 0), (0, 0), *self._margins[name]]
        wide = tuple(n + low + high for n, (low, high) in zip(shape, ends, strict=True))
        whole = blocks.make(wide, dtype, image_order(len(shape)), len(self.program.works))
        self._framed[name] = whole
        self.program.works.append(BorderWork(whole, ends))
        cut = tuple(slice(low, low + n) for n, (low, _) in zip(shape, ends, strict=True))
        found = blocks.view(whole, blocks.shadow(whole)[cut])
        assert found is not None
        return found

    def _is_written(self, node: Node) -> bool:
        """Return whether all parts of an array lie there already."""
        return all(self._within.get(x, ("",))[0] == node.outputs[0] for x in node.inputs)

    def _add_layer(self, node: Node) -> None:
        """Add a layer; its chain's result may have its axes in another order."""
        chain: Chain = node.given["chain"]
        x = self._places[node.inputs[0]]
        layer = self._layers.make(chain, x.shape)
        shape = (*x.shape[:-1], len(chain.weights))
        if not chain.is_product:
            count, *extents, filters = layer.out_shape
            shape = (count, filters, *extents)
        found = tuple(shape[axis] for axis in chain.order)
        self.network.shapes[chain.result] = found
        self.network.dtypes[chain.result] = chain.weights.dtype
        own = tuple(range(len(shape))) if chain.is_product else image_order(len(shape))
        out = self._out(chain.result, tuple(chain.order.index(axis) for axis in own))
        result = self._images(out, inverse(chain.order), chain)
        residual = None
        if chain.residual is not None:
            added = self._places[chain.residual]
            residual = self._images(added, inverse(chain.residual_order), chain)
        work: Work
        if chain.result in self._depthwise:
            function, seconds = self._depthwise[chain.result]
            weights = [depthwise_weights(chain)]
            if chain.bias is not None:
                weights.append(chain.bias)
            padded = self._pad(node.inputs[0], padding_of(chain))
            work = DepthwiseWork(
                chain.nodes, layer, function, weights, padded, result, residual, seconds
            )
        else:
            images = self._images(x, range(len(x.shape)), chain)
            work = LayerWork(chain.nodes, layer, chain.is_product, images, result, residual)
        self.program.works.append(work)

    def _pad(self, name: str, ends: Ends) -> Place:
        """Return images with zeros around them, channels last."""
        blocks, whole = self.program.blocks, self._framed.get(name, self._places[name])
        cut = tuple(
            slice(most - low, extent - (last - high))
            for (most, last), (low, high), extent in zip(
                self._margins[name], ends, whole.shape[2:], strict=True
            )
        )
        shadow = blocks.shadow(whole)[(slice(None), slice(None), *cut)]
        found = blocks.view(whole, shadow.transpose(image_order(shadow.ndim)))
        assert found is not None
        return found

    def _activate(self, chain: Chain) -> Callable[[Any], Any]:
        """Return the activation of a chain as a function."""
        end, opset = chain.end, self.network.opset
        if end is None:
            return lambda value: value
        return lambda value: FUNCTIONS[end.kind](end, opset, value, *chain.end_values)

    def _images(self, place: Place, back: Sequence[int], chain: Chain) -> Place:
        """Return a place as the layer has it; what cannot be seen so is copied."""
        blocks = self.program.blocks

        def see(place: Place) -> Place | None:
            shadow = blocks.shadow(place).transpose(back)
            if chain.is_product:
                return blocks.view(place, shadow.reshape(1, -1, shadow.shape[-1]))
            return blocks.view(place, shadow.transpose(image_order(shadow.ndim)))

        found = see(place) or see(self._copy(place, back))
        assert found is not None
        return found

    def _copy(self, place: Place, order: Sequence[int] | None = None) -> Place:
        """Return a copy of an array in C order, or with its axes in another one."""
        at = len(self.program.works)
        order = range(len(place.shape)) if order is None else order
        found = self.program.blocks.make(place.shape, place.dtype, order, at)
        self.program.works.append(CopyWork((), place, found))
        return found

    def _view(self, node: Node, copied: Place | None = None) -> bool:
        """Note results that are views, if need be of a copy; return whether they are."""
        network, blocks = self.network, self.program.blocks
        if node.inputs[0] not in self._places:
            return False
        place = copied or self._places[node.inputs[0]]
        given = [network.constants.get(name) if name else None for name in node.inputs[1:]]
        if any(one is None and name for one, name in zip(given, node.inputs[1:], strict=True)):
            return False
        try:
            made = FUNCTIONS[node.kind](node, network.opset, blocks.shadow(place), *given)
        except (TilesolveError, ValueError, IndexError, TypeError):
            return False
        results = made if isinstance(made, tuple) else (made,)
        views = [blocks.view(place, np.asarray(one)) for one in results]
        if any(one is None for one in views) and not copied:
            return self._view(node, self._copy(place))
        used = [name for name in node.outputs[len(results) :] if network.uses[name]]
        if used or any(one is None for one in views):
            return False
        for name, one in zip(node.outputs, views, strict=False):
            assert one is not None
            self._places[name] = one
        return True

    def _compute(self, nodes: Sequence[Node]) -> str:
        """Add a pipeline of some nodes; return why there is none."""
        network = self.network
        for node in nodes:
            if node.kind not in FUNCTIONS:
                return "no pipeline has it"
        uses, made = network.uses, {name for node in nodes for name in node.outputs}
        reads = dict.fromkeys(x for node in nodes for x in node.inputs if x and x not in made)
        names = [name for name in reads if name not in network.constants]
        ends = [
            name
            for node in nodes
            for name in node.outputs
            if name and (uses[name] > sum(name in one.inputs for one in nodes))
        ]
        inputs = [self._places[name] for name in names]
        outs = [self._out(name, self._order(name, nodes, inputs)) for name in ends]
        constants = {name: network.constants[name] for name in reads if name in network.constants}
        kinds = [network.dtypes[name] for name in ends]
        body = Body(
            nodes,
            constants,
            list(zip(names, (one.order for one in inputs), strict=True)),
            list(zip(ends, (one.order for one in outs), kinds, strict=True)),
            network.opset,
        )
        function: PipelineFunction = pipeline(body, machine=self.machine, threads=self.threads)
        given = [self.program.blocks.shadow(one).transpose(one.order) for one in inputs]
        try:
            plans = function.plan(*given)
        except (TilesolveError, ValueError, TypeError, IndexError, AttributeError) as error:
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        several = plans if isinstance(plans, tuple) else (plans,)
        seconds = sum(one.seconds for one in several)
        self.program.works.append(PipelineWork(nodes, function, inputs, outs, seconds))
        return ""

    def _order(self, name: str, nodes: Sequence[Node], inputs: Sequence[Place]) -> tuple[int, ...]:
        """Return the order in memory of what some nodes give: that of what they read."""
        count = len(self.network.shapes[name])
        usual = tuple(range(count))
        if nodes[0].kind in ("MatMul", "Gemm", "Einsum", *VIEWS):
            return usual
        return next((one.order for one in inputs if len(one.shape) == count), usual)

    def _evaluate(self, node: Node, reason: str) -> None:
        """Add a node that ONNX's own evaluator computes."""
        network = self.network
        reads = list(dict.fromkeys(node.reads))
        made = [name for name in node.outputs if name]
        assert node.proto is not None
        evaluator = Evaluator([node.proto], reads, made, network, operators())
        inputs = {x: self._places.get(x, network.constants.get(x)) for x in reads}
        outputs: dict[str, Place | None] = {}
        for name in made:
            if name in network.shapes and name in network.dtypes:
                shape = network.shapes[name]
                outputs[name] = self._out(name, tuple(range(len(shape))))
            else:
                outputs[name] = None
                self._loose.add(name)
        self.program.works.append(EvaluatorWork([node], evaluator, inputs, outputs, reason))
