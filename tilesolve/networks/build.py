"""Programs of networks: which work computes each node, and where its arrays lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tilesolve.contractions.errors import TilesolveError
from tilesolve.machine.detect import default_threads
from tilesolve.machine.model import Machine
from tilesolve.networks.ahead import LayerMaker
from tilesolve.networks.chains import Chain
from tilesolve.networks.depthwise import is_grouped, padding_of, with_frame
from tilesolve.networks.graph import Evaluator, Network, Node
from tilesolve.networks.groups import Group, join_nodes
from tilesolve.networks.operators import operators
from tilesolve.networks.parts import VIEWS, Part, find_parts
from tilesolve.networks.places import Blocks, Place, image_order, inverse, without_batch
from tilesolve.networks.planner import Planner
from tilesolve.networks.prices import predict_works
from tilesolve.networks.windows import FUNCTIONS
from tilesolve.networks.winograd import WinogradChoice
from tilesolve.networks.works import (
    BorderWork,
    CopyWork,
    EvaluatorWork,
    LayerWork,
    PipelineWork,
    WinogradWork,
    Work,
)


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
    predicted
        The predicted seconds of each work where it runs; None where nothing predicts them.
    """

    works: list[Work] = field(default_factory=list)
    blocks: Blocks = field(default_factory=Blocks)
    inputs: dict[str, Place] = field(default_factory=dict)
    outputs: dict[str, Place | np.ndarray[Any, Any] | None] = field(default_factory=dict)
    predicted: list[float | None] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Builder:
    """Makes a program of a network."""

    network: Network
    machine: Machine | str | None
    threads: int | None
    winograd: WinogradChoice | None = None
    program: Program = field(default_factory=Program)
    _places: dict[str, Place] = field(default_factory=dict)
    _within: Mapping[str, Part] = field(default_factory=dict)
    _loose: set[str] = field(default_factory=set)
    _layers: LayerMaker = field(init=False)
    _planner: Planner = field(init=False)
    _depthwise: dict[str, tuple[Chain, tuple[int, ...]]] = field(default_factory=dict)
    _margins: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _framed: dict[str, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._planner = Planner(self.machine, self.threads)
        threads = default_threads() if self.threads is None else self.threads
        self.program.blocks.is_divided = threads > 1

    def build(self) -> Program:
        """Return the program."""
        given = self.network, self.machine, self.threads, self.winograd
        with LayerMaker(*given) as self._layers:
            return self._build()

    def _build(self) -> Program:
        network, program = self.network, self.program
        self._within = find_parts(network)
        self._find_depthwise()
        for name in network.inputs:
            shape, dtype = network.shapes[name], network.dtypes[name]
            count = len(shape)
            order = range(count) if self._copies_windows(name) else image_order(count)
            place = program.blocks.make(shape, dtype, order, 0)
            self._places[name] = program.inputs[name] = place
        for nodes in join_nodes(network, self._within):
            self._add(nodes)
        for name in network.outputs:
            found = network.constants.get(name)
            program.outputs[name] = self._places.get(name) if found is None else found
        self._note_lives()
        program.blocks.drop_shadow()
        costs = Machine.load(self.machine).costs
        program.predicted = predict_works(program.works, program.blocks, costs)
        return program

    def _copies_windows(self, name: str) -> bool:
        """Return whether layers alone read an array that copy its windows, in whatever order."""
        for node in self.network.nodes:
            if name not in node.reads:
                continue
            chain = node.given.get("chain")
            if chain is None or chain.residual == name or prod(chain.weights.shape[2:]) == 1:
                return False
            if is_grouped(chain, self.network.shapes[name]):
                return False
        return True

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
        """Find the layers of small groups, and the zeros around what they read."""
        network, makers = self.network, self.network.makers
        for node in network.nodes:
            chain, name = node.given.get("chain"), next(iter(node.inputs), "")
            if chain is None or name not in network.shapes:
                continue
            if not is_grouped(chain, network.shapes[name]):
                continue
            ends = padding_of(chain)
            is_made = name in makers and makers[name].kind not in (*VIEWS, "Concat")
            may_have_zeros = is_made and name not in self._within and name not in network.outputs
            if any(map(any, ends)) and may_have_zeros:
                maker = makers[name].given.get("chain")
                if maker is not None and maker.is_product:
                    may_have_zeros = maker.axis == 1 and maker.see_image()
            if any(map(any, ends)) and not may_have_zeros:
                continue
            self._depthwise[chain.result] = chain, network.shapes[name]
            known = self._margins.get(name, [(0, 0)] * len(ends))
            self._margins[name] = [
                (max(low, other), max(high, another))
                for (low, high), (other, another) in zip(known, ends, strict=True)
            ]
        framed = {x for x, ends in self._margins.items() if any(map(any, ends))}
        for node in network.nodes:
            if node.kind == "Layer" and framed.intersection(node.inputs):
                node.given["chain"].see_image()
        self._layers.framed = framed
        self._layers.depthwise = self._depthwise
        for chain, shape in self._depthwise.values():
            self._layers.make(*with_frame(chain, shape))

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
        elif any(map(any, self._margins.get(name, ()))):
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
        found = self._result_shape(chain, x.shape)
        self.network.shapes[chain.result] = found
        self.network.dtypes[chain.result] = chain.weights.dtype
        own = tuple(range(len(found))) if chain.is_product else image_order(len(found))
        out = self._out(chain.result, tuple(chain.order.index(axis) for axis in own))
        result = self._images(out, inverse(chain.order), chain)
        residual = None
        if chain.residual is not None:
            other = self._places[chain.residual]
            residual = self._images(other, inverse(chain.residual_order), chain)
        if chain.result in self._depthwise:
            layer, framed = self._layers.make(chain, x.shape), self._pad(node.inputs[0], chain)
            work = LayerWork(chain.nodes, layer, False, framed, result, residual)
            self.program.works.append(work)
            return
        images = self._images(x, range(len(x.shape)), chain)
        for at, (one, phase) in enumerate(chain.phases()):
            part, added, seen = result, residual, images
            if phase is not None:
                part, seen = self._cut(result, phase.results), self._cut(images, phase.pixels)
                added = None if residual is None else self._cut(residual, phase.results)
            count, *extents, channels = seen.shape
            shape = x.shape if chain.is_product else (count, channels, *extents)
            make = self._layers.make if one is chain else self._layers.plan
            layer = make(one, shape)
            direct = LayerWork(chain.nodes, layer, chain.is_product, seen, part, added, at > 0)
            self.program.works.append(self._with_fewer_products(direct, one))

    def _with_fewer_products(self, direct: LayerWork, chain: Chain) -> Work:
        """Return a layer by Winograd's products, if these are predicted to be faster."""
        fewer = self.winograd and self.winograd.choose(chain, direct.layer)
        if not fewer:
            return direct
        program = self.program
        return WinogradWork.of(direct, fewer, chain, program.blocks, len(program.works))

    def _result_shape(self, chain: Chain, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of what a chain gives, with its axes in its order."""
        if chain.is_product:
            found = (*shape[:-1], len(chain.weights))
        elif chain.split is not None:
            found = (shape[0], len(chain.weights), *chain.split.out_extents)
        else:
            count, *some, filters = self._layers.make(chain, shape).out_shape
            found = (count, filters, *some)
        return tuple(found[axis] for axis in chain.order)

    def _cut(self, place: Place, cut: Sequence[slice]) -> Place:
        """Return some pixels of images that have their channels last."""
        blocks = self.program.blocks
        found = blocks.view(place, blocks.shadow(place)[(slice(None), *cut)])
        assert found is not None
        return found

    def _pad(self, name: str, chain: Chain) -> Place:
        """Return images with the zeros of a chain around them, channels last."""
        ends, blocks = padding_of(chain), self.program.blocks
        whole = self._framed.get(name, self._places[name])
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

    def _images(self, place: Place, back: Sequence[int], chain: Chain) -> Place:
        """Return a place as the layer has it; what cannot be seen so is copied."""
        blocks = self.program.blocks

        def see(place: Place) -> Place | None:
            shadow = blocks.shadow(place).transpose(back)
            if chain.is_image:
                return blocks.view(place, shadow)
            if chain.is_product:
                return blocks.view(place, shadow.reshape(1, -1, shadow.shape[-1]))
            return blocks.view(place, shadow.transpose(image_order(shadow.ndim)))

        found = see(place) or see(self._copy(place, back))
        assert found is not None
        return found

    def _copy(
        self,
        place: Place,
        order: Sequence[int] | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> Place:
        """Return a copy of an array in C order, or with its axes in another one."""
        at = len(self.program.works)
        order = range(len(place.shape)) if order is None else order
        found = self.program.blocks.make(place.shape, dtype or place.dtype, order, at)
        self.program.works.append(self._planner.copy(place, found))
        return found

    def _widened(self, place: Place) -> Place:
        """Return a copy in single precision of an array of halves; any other as it is."""
        found = place.wide
        if found is place:
            return place
        return self._copy(place, place.order, found.dtype)

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
        if any(node.kind not in FUNCTIONS for node in nodes):
            return "no pipeline has it"
        works, group = self.program.works, Group.of(self.network, nodes)
        inputs = [self._places[name] for name in group.inputs]
        outs = [self._out(name, self._order(name, nodes, inputs)) for name in group.outputs]
        if nodes[0].kind == "MatMul" and not group.constants:
            inputs, outs = without_batch(inputs, outs)
        found, turned = self._planner.plan(group, inputs, outs)
        if found.reason:
            return found.reason
        if turned:
            inputs[-1] = self._copy(inputs[-1])
        inputs = [self._widened(one) for one in inputs]
        wide = [self._like(one) for one in outs]
        works.append(PipelineWork(nodes, found.function, inputs, wide, found.seconds))
        works += [
            CopyWork((), one, out) for one, out in zip(wide, outs, strict=True) if one is not out
        ]
        return ""

    def _like(self, place: Place) -> Place:
        """Return an array in single precision like one of halves; any other itself."""
        if place.wide is place:
            return place
        at = len(self.program.works)
        return self.program.blocks.make(place.shape, place.wide.dtype, place.order, at)

    def _order(self, name: str, nodes: Sequence[Node], inputs: Sequence[Place]) -> tuple[int, ...]:
        """Return the order in memory of what some nodes give: that of what they read."""
        count = len(self.network.shapes[name])
        usual = tuple(range(count))
        if nodes[0].kind in ("MatMul", "Gemm", "Einsum", *VIEWS):
            readers = [one for one in self.network.nodes if name in one.reads]
            if len(readers) == 1 and readers[0].kind == "Transpose":
                return tuple(readers[0].given.get("perm") or usual[::-1])
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
