"""ONNX's operators on elements, as NumPy functions that pipelines trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np

from tilesolve.contractions.errors import TraceError
from tilesolve.contractions.statements.activations import ACTIVATIONS
from tilesolve.contractions.statements.terms import apply
from tilesolve.networks.files import import_onnx
from tilesolve.networks.graph import Node
from tilesolve.pipelines.traced import Traced, combine

_F = TypeVar("_F", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""By an operator's name: a function of a node, the opset's version, and the arrays it reads."""


def computes(*kinds: str) -> Callable[[_F], _F]:
    """Have a function compute some operators."""

    def put(function: _F) -> _F:
        FUNCTIONS.update(dict.fromkeys(kinds, function))
        return function

    return put


def kind_of(x: Any) -> type[np.generic]:
    """Return the type of an array's elements, for numbers that are not to widen them."""
    found: type[np.generic] = np.dtype(x.dtype).type
    return found


def _numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda node, opset, *given: function(*given)


_NUMPY: dict[str, Callable[..., Any]] = {
    **{"Abs": np.abs, "Neg": np.negative, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint},
    **{"Sqrt": np.sqrt, "Exp": np.exp, "Log": np.log, "Tanh": np.tanh, "Sin": np.sin},
    **{"Cos": np.cos, "Tan": np.tan, "Sign": np.sign, "Not": np.logical_not, "IsNaN": np.isnan},
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Pow": np.power},
    **{"Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal},
    **{"Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Where": np.where},
    **{"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor},
}
for _kind, _function in _NUMPY.items():
    FUNCTIONS[_kind] = _numpy(_function)

for _kind, _function in {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}.items():
    FUNCTIONS[_kind] = lambda node, opset, *given, _function=_function: reduce(_function, given)


@computes("Mean")
def _mean(node: Node, opset: int, *given: Any) -> Any:
    return reduce(np.add, given) / kind_of(given[0])(len(given))


@computes("Div")
def _divide(node: Node, opset: int, a: Any, b: Any) -> Any:
    if np.dtype(a.dtype).kind != "f":
        raise TraceError("whole numbers are divided towards zero")
    return a / b


@computes("Reciprocal")
def _reciprocal(node: Node, opset: int, x: Any) -> Any:
    return kind_of(x)(1) / x


@computes("Relu")
def _relu(node: Node, opset: int, x: Any) -> Any:
    return np.maximum(x, kind_of(x)(0))


@computes("Clip")
def _clip(node: Node, opset: int, x: Any, low: Any = None, high: Any = None) -> Any:
    low, high = node.given.get("min", low), node.given.get("max", high)
    found = x if low is None else np.maximum(x, kind_of(x)(low))
    return found if high is None else np.minimum(found, kind_of(x)(high))


@computes("LeakyRelu")
def _leaky(node: Node, opset: int, x: Any) -> Any:
    return np.where(x < 0, x * kind_of(x)(node.given.get("alpha", 0.01)), x)


@computes("PRelu")
def _prelu(node: Node, opset: int, x: Any, slope: Any) -> Any:
    return np.where(x < 0, x * slope, x)


@computes("ThresholdedRelu")
def _thresholded(node: Node, opset: int, x: Any) -> Any:
    return np.where(x > kind_of(x)(node.given.get("alpha", 1.0)), x, kind_of(x)(0))


@computes("Elu")
def _elu(node: Node, opset: int, x: Any) -> Any:
    kind = kind_of(x)
    return np.where(x < 0, kind(node.given.get("alpha", 1.0)) * (np.exp(x) - kind(1)), x)


@computes("Selu")
def _selu(node: Node, opset: int, x: Any) -> Any:
    kind = kind_of(x)
    alpha, gamma = node.given.get("alpha", 1.67326319), node.given.get("gamma", 1.05070102)
    return kind(gamma) * np.where(x < 0, kind(alpha) * (np.exp(x) - kind(1)), x)


@computes("Celu")
def _celu(node: Node, opset: int, x: Any) -> Any:
    kind, alpha = kind_of(x), node.given.get("alpha", 1.0)
    low = np.minimum(kind(alpha) * (np.exp(x / kind(alpha)) - kind(1)), kind(0))
    return np.maximum(x, kind(0)) + low


def activate(name: str, x: Any) -> Any:
    """Return an activation of each element, traced or not."""
    if isinstance(x, Traced):
        return combine(partial(apply, name), x)
    return ACTIVATIONS[name](x)


for _kind in ("Sigmoid", "Silu"):
    FUNCTIONS[_kind] = lambda node, opset, x, _kind=_kind: activate(_kind.lower(), x)


@computes("HardSigmoid")
def _hard_sigmoid(node: Node, opset: int, x: Any) -> Any:
    kind = kind_of(x)
    alpha, beta = node.given.get("alpha", 0.2), node.given.get("beta", 0.5)
    return np.minimum(np.maximum(kind(alpha) * x + kind(beta), kind(0)), kind(1))


@computes("HardSwish")
def _hard_swish(node: Node, opset: int, x: Any) -> Any:
    kind = kind_of(x)
    return x * np.minimum(np.maximum(x / kind(6) + kind(0.5), kind(0)), kind(1))


@computes("Softplus")
def _softplus(node: Node, opset: int, x: Any) -> Any:
    kind = kind_of(x)
    return np.maximum(x, kind(0)) + np.log(kind(1) + np.exp(-np.abs(x)))


@computes("Softsign")
def _softsign(node: Node, opset: int, x: Any) -> Any:
    return x / (kind_of(x)(1) + np.abs(x))


@computes("Mish")
def _mish(node: Node, opset: int, x: Any) -> Any:
    return x * np.tanh(_softplus(node, opset, x))


@computes("Gelu")
def _gelu(node: Node, opset: int, x: Any) -> Any:
    is_tanh = node.given.get("approximate", "none") == "tanh"
    return activate("gelu_tanh" if is_tanh else "gelu", x)


@computes("Cast")
def _cast(node: Node, opset: int, x: Any) -> Any:
    return x.astype(import_onnx().helper.tensor_dtype_to_np_dtype(node.given["to"]))


@computes("CastLike")
def _cast_like(node: Node, opset: int, x: Any, like: Any) -> Any:
    return x.astype(like.dtype)


@computes("QuantizeLinear")
def _quantize(node: Node, opset: int, x: Any, scale: Any, zero: Any = None) -> Any:
    kind = np.dtype(np.uint8) if zero is None else zero.dtype
    if kind.name not in ("int8", "uint8", "int16", "uint16") or scale.size != 1:
        raise TraceError("it quantizes by axis, or to other than whole numbers")
    step, begin = kind_of(x)(scale.item()), 0 if zero is None else zero.item()
    found, ends = np.rint(x / step) + kind_of(x)(begin), np.iinfo(kind)
    return np.minimum(np.maximum(found, kind_of(x)(ends.min)), kind_of(x)(ends.max)).astype(kind)
