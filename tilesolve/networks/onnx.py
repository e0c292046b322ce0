"""ONNX models: their convolutions, operators for ONNX's evaluator, and models that run here.

Needs the extra ``onnx``. `layers` lists what a model convolves, `operators` are what
``onnx.reference.ReferenceEvaluator(model, new_ops=...)`` takes, and `load` makes a model whose
convolutions are layers of ours, with batch normalisations, residuals and activations in them.

Examples
--------
>>> import tilesolve
>>> model = tilesolve.onnx.load("resnet18.onnx")  # doctest: +SKIP
>>> model({"image": image})["logits"].shape  # doctest: +SKIP
(1, 1000)
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.errors import ModelError
from tilesolve.contractions.problem import dtype_name
from tilesolve.networks.files import (
    attributes_of,
    check_inputs,
    read_arguments,
    read_model,
    shapes_of,
)
from tilesolve.networks.model import Model as Model
from tilesolve.networks.model import load as load
from tilesolve.networks.operators import operators as operators

if TYPE_CHECKING:
    from onnx import ModelProto


def layers(
    source: str | PathLike[str] | bytes | ModelProto, *, dtype: str = "float32"
) -> list[Convolution]:
    """Return the convolutions of a model, in its order, as often as they stand there.

    Transposed ones, which are several convolutions each, are not among them.

    Parameters
    ----------
    source
        A file, the content of one, or the model itself.
    dtype
        The dtype that layers compute in.

    Raises
    ------
    ModelError
        If the model cannot be read, is damaged, has dynamic shapes, or operators of a version that
        is not known.
    """
    kind = dtype_name(dtype)
    graph = read_model(source).graph
    check_inputs(graph)
    shapes = shapes_of(graph)
    found = []
    for node in graph.node:
        if node.op_type != "Conv":
            continue
        for name in node.input[:2]:
            if name not in shapes:
                raise ModelError(f"the shape of {name!r} is not known, which a Conv reads")
        x_shape, w_shape = (shapes[name] for name in node.input[:2])
        arguments = read_arguments(attributes_of(node), x_shape, w_shape)
        found.append(Convolution.of(x_shape, w_shape, **arguments, dtype=kind))
    return found
