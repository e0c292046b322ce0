"""Networks of the suite as modules of torch, which has nothing that reads ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.networks.files import read_arguments
from tilesolve.networks.graph import Network, Node, read_network
from tilesolve.networks.patterns import join_patterns

if TYPE_CHECKING:
    from onnx import ModelProto

Function = Callable[..., Any]
"""Returns a node's result, given tensors."""

Torch = Any
"""The package, or something of its own."""


def make_module(module: Torch, model: ModelProto) -> Torch:
    """Return a model as a module of torch, whose weights have channels last.

    SiLU and GELU are torch's own, however the model writes them.

    Parameters
    ----------
    module
        The package torch.
    model
        What the module computes: its first result.

    Raises
    ------
    BenchmarkError
        If torch is not told how to compute an operator.
    """
    network = read_network(model)
    join_patterns(network)
    steps = [(node, _find_function(module, node, network)) for node in network.nodes]
    tensors = {name: _read_constant(module, array) for name, array in network.constants.items()}

    class Whole(module.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for at, tensor in enumerate(tensors.values()):
                self.register_buffer(f"constant_{at}", tensor)

        def forward(self, *given: Torch) -> Torch:
            own = {x: getattr(self, f"constant_{at}") for at, x in enumerate(tensors)}
            held = own | dict(zip(network.inputs, given, strict=True))
            for node, function in steps:
                held[node.outputs[0]] = function(*(held[x] if x else None for x in node.inputs))
            return held[network.outputs[0]]

    return Whole().eval()


def _read_constant(module: Torch, array: Array) -> Torch:
    tensor = module.from_numpy(np.array(array))
    return tensor.contiguous(memory_format=module.channels_last) if tensor.ndim == 4 else tensor


def _find_function(module: Torch, node: Node, network: Network) -> Function:
    """Return what computes a node."""
    functions, given = module.nn.functional, node.given
    simple: dict[str, Function] = {
        "Add": module.add,
        "Mul": module.mul,
        "Div": module.div,
        "MatMul": module.matmul,
        "Relu": functions.relu,
        "Sigmoid": module.sigmoid,
        "Silu": functions.silu,
        "Gelu": functions.gelu,
        "Flatten": lambda x: module.flatten(x, given.get("axis", 1)),
        "Concat": lambda *x: module.cat(x, given["axis"]),
        "Transpose": lambda x: x.permute(given["perm"]),
        "Softmax": lambda x: module.softmax(x, given["axis"]),
        "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
        "ReduceMean": lambda x, *_: x.mean(given["axes"], keepdim=bool(given["keepdims"])),
    }
    if node.kind in simple:
        return simple[node.kind]
    constants = [network.constants.get(name) for name in node.inputs]
    if node.kind == "Conv":
        return _find_convolution(functions, node, network)
    if node.kind == "MaxPool":
        taps, steps = given["kernel_shape"], given["strides"]
        ends, up = (given.get("pads") or [0, 0])[:2], bool(given.get("ceil_mode"))
        return lambda x: functions.max_pool2d(x, taps, steps, ends, ceil_mode=up)
    if node.kind == "Clip":
        low, high = (None if one is None else float(one) for one in constants[1:])
        return lambda x, *_: module.clamp(x, low, high)
    if node.kind == "Reshape":
        assert constants[1] is not None
        shape = constants[1].tolist()
        return lambda x, _: x.reshape(shape)
    if node.kind == "Resize":
        assert constants[2] is not None
        times = constants[2][2:].tolist()
        return lambda x, *_: functions.interpolate(x, scale_factor=times, mode="nearest")
    if node.kind == "LayerNormalization":
        epsilon = given["epsilon"]
        return lambda x, scale, bias: functions.layer_norm(x, scale.shape, scale, bias, epsilon)
    if node.kind == "Gemm" and given.get("transB"):
        return functions.linear  # type: ignore[no-any-return]
    raise BenchmarkError(f"torch is not told how to compute {node}")


def _find_convolution(functions: Torch, node: Node, network: Network) -> Function:
    shapes = [network.shapes[name] for name in node.inputs[:2]]
    read = read_arguments(node.given, *shapes)
    ends: Sequence[tuple[int, int]] = read["padding"]
    steps = (read["stride"], [low for low, _ in ends], read["dilation"], read["groups"])
    if any(low != high for low, high in ends):
        raise BenchmarkError(f"torch is not told how to pad two sides otherwise, as {node} does")
    return lambda x, w, bias=None: functions.conv2d(x, w, bias, *steps)
