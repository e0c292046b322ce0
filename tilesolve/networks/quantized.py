"""Models of quantized numbers, as models of the floats that these stand for.

A quantized number stands for ``scale * (number - zero)``. What is quantized to be dequantized again
stays as it was; weights are dequantized once. Results differ from those of whole numbers by their
rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.packing.memory_overlap import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_OWN, _MICROSOFT = ("", "ai.onnx"), "com.microsoft"

_MOVING = frozenset(
    ("Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "Split", "Squeeze")
) | {"DepthToSpace", "SpaceToDepth", "Transpose", "Unsqueeze"}
"""Operators that give numbers of their first input: the same ones, quantized or not."""

_OPERATORS = {
    **{"QLinearConv": ("Conv", 2), "QLinearMatMul": ("MatMul", 2)},
    **{"QLinearAdd": ("Add", 2), "QLinearMul": ("Mul", 2), "QGemm": ("Gemm", 2)},
    **{"QLinearSigmoid": ("Sigmoid", 1), "QLinearLeakyRelu": ("LeakyRelu", 1)},
    **{"QLinearGlobalAveragePool": ("GlobalAveragePool", 1)},
    "QLinearAveragePool": ("AveragePool", 1),
}
"""By quantized operator that of floats, and how many inputs it has, each with scale and zero."""

_BIAS_AT = {"QLinearConv": 8, "QGemm": 6}
"""Which input is a bias of whole numbers, whose scale is the product of the inputs' scales."""


def run_as_float(onnx: Any, model: ModelProto) -> ModelProto:
    """Return a model without quantized numbers, as far as these are understood; warn if it had any.

    Parameters
    ----------
    onnx
        The package.
    model
        It stays as it is.
    """
    kinds = {one.op_type for one in model.graph.node}
    if not kinds & {*_OPERATORS, "QuantizeLinear", "DequantizeLinear"}:
        return model
    warnings.warn(
        "the model has quantized numbers, which run as floats here: its results differ from those "
        "of whole numbers by their rounding",
        stacklevel=4,
    )
    return _Rewriter(onnx, model).rewrite()


@dataclass(slots=True)
class _Rewriter:
    """Writes the nodes of a model again.

    `floats` has, for each quantized array, the one of floats that it stands for; `makers` the node
    that quantizes it, and `written` has those where somebody needs that.
    """

    onnx: Any
    model: ModelProto
    constants: dict[str, Array] = field(default_factory=dict)
    floats: dict[str, str] = field(default_factory=dict)
    makers: dict[str, NodeProto] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    nodes: list[NodeProto] = field(default_factory=list)
    added: dict[str, Array] = field(default_factory=dict)

    def rewrite(self) -> ModelProto:
        """Return the model."""
        onnx, graph = self.onnx, self.model.graph
        to_array = onnx.numpy_helper.to_array
        self.constants = {one.name: to_array(one) for one in graph.initializer}
        for node in graph.node:
            values = [one.t for one in node.attribute if one.name == "value"]
            if node.op_type == "Constant" and values:
                self.constants[node.output[0]] = to_array(values[0])
        for node in graph.node:
            self._write(node)
        for one in graph.output:
            self._quantize(one.name)
        found = onnx.ModelProto()
        found.CopyFrom(self.model)
        del found.graph.node[:]
        found.graph.node.extend(self.nodes)
        del found.graph.value_info[:]  # of floats now, some of them
        found.graph.initializer.extend(
            onnx.numpy_helper.from_array(one, name) for name, one in self.added.items()
        )
        return found

    def _write(self, node: NodeProto) -> None:
        """Write what a node computes, on floats if it can be."""
        kind, own = node.op_type, node.domain in _OWN
        if kind == "QuantizeLinear" and own:
            self.floats[node.output[0]], self.makers[node.output[0]] = node.input[0], node
        elif kind in _MOVING and own and node.input[0] in self.floats:
            self._move(node)
        elif not self._write_floats(node):
            for name in node.input:
                self._quantize(name)
            self.nodes.append(node)

    def _write_floats(self, node: NodeProto) -> bool:
        """Write an operator of quantized numbers as one of floats; return whether it is such."""
        own = node.domain in _OWN
        if node.op_type == "DequantizeLinear" and own:
            return self._dequantize(node)
        known = node.op_type in _OPERATORS and (own or node.domain == _MICROSOFT)
        return known and self._compute(node)

    def _quantize(self, name: str) -> None:
        """Have an array of quantized numbers where somebody reads it as such."""
        if name in self.makers and name not in self.written:
            self.written.add(name)
            self.nodes.append(self.makers[name])

    def _dequantize(self, node: NodeProto) -> bool:
        """Write floats for quantized numbers; return whether that is known how."""
        name, result = node.input[0], node.output[0]
        if name in self.floats:
            self._add("Identity", [self.floats[name]], result)
            return True
        given = {one.name: one.i for one in node.attribute}
        if given.get("block_size"):
            return False
        return self._as_float(list(node.input), result, given.get("axis", 1))

    def _as_float(self, given: Sequence[str], result: str, axis: int) -> bool:
        """Write the floats of quantized numbers, given these, their scale and their zero."""
        scale = self.constants.get(given[1])
        zero = self.constants.get(given[2]) if given[2:] and given[2] else np.zeros((), np.int8)
        x = self.constants.get(given[0])
        if scale is None or zero is None or (x is None and scale.size > 1):
            return False
        if x is not None:
            shape = [1] * x.ndim
            if scale.size > 1:
                shape[axis] = scale.size
            scale = scale.reshape(shape)
            zero = zero.astype(np.float32).reshape(shape if zero.size > 1 else [1] * x.ndim)
            self._constant(((x.astype(np.float32) - zero) * scale).astype(scale.dtype), result)
            return True
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(scale.dtype)
        self._quantize(given[0])
        self._add("Cast", [given[0]], f"{result}'cast", to=kind)
        self._constant(zero.astype(scale.dtype).reshape(()), f"{result}'zero")
        self._constant(scale.reshape(()), f"{result}'scale")
        self._add("Sub", [f"{result}'cast", f"{result}'zero"], f"{result}'moved")
        self._add("Mul", [f"{result}'moved", f"{result}'scale"], result)
        return True

    def _compute(self, node: NodeProto) -> bool:
        """Write an operator of quantized numbers as that of floats; return whether it can be."""
        kind, count = _OPERATORS[node.op_type]
        given = {one.name: one for one in node.attribute}
        if "channels_last" in given and given.pop("channels_last").i:
            return False
        names, result = list(node.input), f"{node.output[0]}'float"
        inputs = [names[at : at + 3] for at in range(0, 3 * count, 3)]
        bias = "".join(names[_BIAS_AT.get(node.op_type, len(names)) :][:1])
        scales = [self.constants.get(one[1]) for one in inputs]
        if bias and (bias not in self.constants or any(x is None for x in scales)):
            return False
        axis = 0 if kind == "Conv" or ("transB" in given and given["transB"].i) else -1
        read = [self._float_of(x, f"{result}'{at}", axis) for at, x in enumerate(inputs)]
        if not all(read):
            return False
        if bias:
            value = self.constants[bias].astype(np.float32)
            for factor in (one for one in scales if one is not None):
                value = value * factor.ravel()
            alpha = given["alpha"].f if "alpha" in given else 1.0
            self._constant((value * alpha).astype(np.float32), f"{result}'bias")
            read.append(f"{result}'bias")
        made = self.onnx.helper.make_node(kind, read, [result], name=node.name)
        made.attribute.extend(given.values())
        self.nodes.append(made)
        self._note(node, result)
        return True

    def _note(self, node: NodeProto, result: str) -> None:
        """Note the floats of an operator's quantized result, whose scale and zero it is given."""
        ends = list(node.input)
        at = 7 if node.op_type == "QGemm" else 3 * _OPERATORS[node.op_type][1]
        name = node.output[0]
        if len(ends) <= at or not ends[at]:  # it gives floats
            self._add("Identity", [result], name)
            return
        self.floats[name] = result
        given = [result, *ends[at : at + 2]]
        self.makers[name] = self.onnx.helper.make_node("QuantizeLinear", given, [name])

    def _float_of(self, given: Sequence[str], result: str, axis: int) -> str:
        """Return the floats of an input, its scale and its zero; nothing if they are not known."""
        if given[0] in self.floats:
            return self.floats[given[0]]
        return result if self._as_float(given, result, axis) else ""

    def _move(self, node: NodeProto) -> None:
        """Write what gives the same numbers in another order: of the floats."""
        for name in node.input[1:]:
            self._quantize(name)
        made = self.onnx.NodeProto()
        made.CopyFrom(node)
        made.input[0] = self.floats[node.input[0]]
        maker = self.makers[node.input[0]]
        count = len(node.output) if node.op_type == "Split" else 1
        for at, name in enumerate(node.output[:count]):
            made.output[at] = self.floats[name] = f"{name}'float"
            given = [made.output[at], *maker.input[1:]]
            self.makers[name] = self.onnx.helper.make_node("QuantizeLinear", given, [name])
        self.nodes.append(made)

    def _constant(self, value: Array, name: str) -> None:
        self.added[name] = self.constants[name] = np.ascontiguousarray(value)

    def _add(self, kind: str, inputs: Sequence[str], output: str, **given: Any) -> None:
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [output], **given))
