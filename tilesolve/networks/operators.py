"""Operators of ours for ONNX's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesolve.networks.files import (
    import_onnx,
    read_arguments,
    read_transposed_arguments,
)
from tilesolve.networks.graph import Node
from tilesolve.networks.windows import FUNCTIONS
from tilesolve.packing.memory_overlap import Array

OPERATORS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool")
"""What `operators` has."""


def operators() -> list[type]:
    """Return operators for ``onnx.reference.ReferenceEvaluator(model, new_ops=...)``.

    They are Conv, ConvTranspose, Gemm and MatMul, and MaxPool, too, as the evaluator takes a second
    for an image.

    Raises
    ------
    ModelError
        If onnx is not installed.
    """
    import_onnx()
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops.op_max_pool import MaxPool as EvaluatorMaxPool

    from tilesolve.convolutions.conv import conv  # most networks need none of these
    from tilesolve.convolutions.transposed import conv_transpose

    class Conv(OpRun):  # type: ignore[misc]
        def _run(self, x: Array, w: Array, bias: Array | None = None, **given: Any) -> tuple[Array]:
            return (conv(x, w, bias, **read_arguments(given, x.shape, w.shape)),)

    class Gemm(OpRun):  # type: ignore[misc]
        def _run(self, a: Array, b: Array, c: Array | None = None, **given: Any) -> tuple[Array]:
            return (multiply_matrices(a, b, c, **given),)

    class MatMul(OpRun):  # type: ignore[misc]
        def _run(self, a: Array, b: Array) -> tuple[Array]:
            return (multiply(a, b),)

    class MaxPool(EvaluatorMaxPool):  # type: ignore[misc]
        def _run(self, x: Array, **given: Any) -> tuple[Array, ...]:
            outputs = list(self.onnx_node.output)
            if len(outputs) > 1:
                return super()._run(x, **given)  # type: ignore[no-any-return]
            return (np.asarray(FUNCTIONS["MaxPool"](Node("MaxPool", ["x"], outputs, given), 0, x)),)

    class ConvTranspose(OpRun):  # type: ignore[misc]
        def _run(self, x: Array, w: Array, bias: Array | None = None, **given: Any) -> tuple[Array]:
            arguments = read_transposed_arguments(given, x.shape, w.shape)
            return (conv_transpose(x, w, bias, **arguments),)

    return [Conv, ConvTranspose, Gemm, MatMul, MaxPool]


def multiply(a: Array, b: Array) -> Array:
    """Return the products of matrices that numpy's `matmul` gives.

    Examples
    --------
    >>> multiply(np.ones((4, 2, 3)), np.ones(3)).shape
    (4, 2)
    """
    from tilesolve.expressions.einsum import einsum

    first = "j" if a.ndim == 1 else "...ij"
    second = "j" if b.ndim == 1 else "...jk"
    left, right = ("" if a.ndim == 1 else "i"), ("" if b.ndim == 1 else "k")
    return np.asarray(einsum(f"{first},{second}->...{left}{right}", a, b))


def multiply_matrices(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float | None = None,
    beta: float | None = None,
    transA: int | None = None,
    transB: int | None = None,
    **_others: Any,
) -> Array:
    """Return ``alpha * A * B + beta * C``, as ONNX's Gemm does.

    Examples
    --------
    >>> multiply_matrices(np.ones((3, 2)), np.ones((3, 4)), np.ones(4), alpha=2.0, transA=1).shape
    (2, 4)
    """
    from tilesolve.expressions.einsum import einsum

    first, second = ("ji" if transA else "ij"), ("kj" if transB else "jk")
    found = np.asarray(einsum(f"{first},{second}->ik", a, b))
    if alpha not in (None, 1.0):
        found = found * found.dtype.type(alpha)
    if c is None:
        return found
    return found + (c if beta in (None, 1.0) else c * c.dtype.type(beta))
