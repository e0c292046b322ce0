"""ONNX models as they are read: checked, with the shapes of all arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from tilesolve.constants.nests import NETWORK_SHAPE_BYTES
from tilesolve.contractions.convolution_arguments import Ends
from tilesolve.contractions.errors import ModelError
from tilesolve.networks.quantized import run_as_float
from tilesolve.networks.sources import Parsed, parse_model

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

    from tilesolve.networks.sources import Source

OLDEST_OPSET = 7
"""The first version of ONNX's operators in which those of inference mean what they mean now."""

_PACKED = (21, 22, 23, 25, 26)
"""ONNX's numbers of types of fewer than eight bits, several of which are a byte."""

OWN_DOMAINS = ("", "ai.onnx")
"""The names of ONNX's own domain."""

_LIKE_THEIR_INPUT = ("GroupNormalization", "MeanVarianceNormalization")
"""Operators whose result has the shape of what they read first, which ONNX does not tell."""


def import_onnx() -> Any:
    """Return the package `onnx`.

    Raises
    ------
    ModelError
        If it is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise ModelError("the package onnx is missing: pip install 'tilesolve[onnx]'") from None
    return onnx


def read_model(source: Source) -> ModelProto:
    """Return a model that was checked, with the shapes that its arrays have.

    Raises
    ------
    ModelError
        If it cannot be read, is damaged or has operators of a version that is not known.
    """
    return check_model(parse_model(import_onnx(), source))


def check_model(given: Parsed) -> ModelProto:
    """Return a model that was parsed as `read_model` does."""
    onnx, name, found = import_onnx(), given.name, given.model
    for used in found.opset_import:
        newest = onnx.defs.onnx_opset_version()
        if used.domain in OWN_DOMAINS and not OLDEST_OPSET <= used.version <= newest:
            raise ModelError(
                f"{name} has operators of version {used.version}; versions {OLDEST_OPSET} to "
                f"{newest} are read (onnx {onnx.__version__})"
            )
    _check_operators(onnx, name, found)
    _check_data(onnx, name, found)
    try:
        onnx.checker.check_model(_with_shapes(_without_arrays(onnx, found)))
        return infer_shapes(run_as_float(onnx, _without_functions(found)))
    except ModelError as error:
        raise ModelError(str(error).replace("the model", name, 1)) from error
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        raise ModelError(f"{name} is damaged: {error}") from error


def infer_shapes(model: ModelProto) -> ModelProto:
    """Return a model with the shapes of its arrays, as far as they can be told.

    Raises
    ------
    ModelError
        If shapes contradict each other.
    """
    onnx = import_onnx()
    small = _without_arrays(onnx, model)
    untold = {
        at: node
        for at, node in enumerate(model.graph.node)
        if node.op_type in _LIKE_THEIR_INPUT and node.domain in OWN_DOMAINS
    }
    for at, node in untold.items():
        small.graph.node[at].CopyFrom(
            onnx.helper.make_node("Identity", node.input[:1], node.output[:1])
        )
    try:
        found = onnx.shape_inference.infer_shapes(small, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise ModelError(f"the model is damaged: {error}") from error
    for end in ("initializer", "input"):
        del getattr(found.graph, end)[:]
        getattr(found.graph, end).extend(getattr(model.graph, end))
    for at, node in untold.items():
        found.graph.node[at].CopyFrom(node)
    return found


def _without_arrays(onnx: Any, model: ModelProto) -> ModelProto:
    """Return a model whose large arrays are inputs, as nothing asks for their numbers.

    ONNX's functions copy all of a model several times.

    Raises
    ------
    ModelError
        If an array has fewer or more bytes than its shape says.
    """
    found, given = onnx.ModelProto(), {one.name for one in model.graph.input}
    _copy_fields(found, model, "graph")
    _copy_fields(found.graph, model.graph, "initializer")
    for one in model.graph.initializer:
        if len(one.raw_data) <= NETWORK_SHAPE_BYTES:
            found.graph.initializer.append(one)
            continue
        size = prod(one.dims) * onnx.helper.tensor_dtype_to_np_dtype(one.data_type).itemsize
        if size != len(one.raw_data) and one.data_type not in _PACKED:
            told = f"{len(one.raw_data)} bytes, its shape has {size}"
            raise ModelError(f"the model is damaged: the array {one.name!r} has {told}")
        if one.name not in given:
            value = onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims)
            found.graph.input.append(value)
    return found


def _copy_fields(target: Any, source: Any, skipped: str) -> None:
    """Copy all fields of a message but one."""
    for field, value in source.ListFields():
        if field.name == skipped:
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


def _without_functions(model: ModelProto) -> ModelProto:
    """Return a model in which the nodes of its own functions stand where these are called."""
    if not model.functions:
        return model
    from onnx.inliner import inline_local_functions

    return inline_local_functions(model)


def inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that a node has as attributes, as If and Loop do."""
    for one in node.attribute:
        if one.HasField("g"):
            yield one.g
        yield from one.graphs


def _check_operators(onnx: Any, name: str, model: ModelProto) -> None:
    """Raise `ModelError` if an operator of ONNX is not known; those of others are only run."""
    versions = [one.version for one in model.opset_import if one.domain in OWN_DOMAINS]
    nodes = [*model.graph.node, *(node for one in model.functions for node in one.node)]
    while nodes and versions:
        node = nodes.pop()
        nodes += [one for graph in inner_graphs(node) for one in graph.node]
        if node.domain in OWN_DOMAINS and not onnx.defs.has(node.op_type, versions[0]):
            place = node.name or (node.output[0] if node.output else "")
            raise ModelError(
                f"{name} has the operator {node.op_type!r} (node {place!r}), which version "
                f"{versions[0]} of ONNX's operators does not have"
            )


def _check_data(onnx: Any, name: str, model: ModelProto) -> None:
    """Raise `ModelError` if an array lies in another file that was not read."""
    for one in model.graph.initializer:
        if one.data_location == onnx.TensorProto.EXTERNAL:
            file = next((entry.value for entry in one.external_data if entry.key == "location"), "")
            raise ModelError(
                f"{name} has the array {one.name!r} in another file, {file!r}: give the path of "
                "the model, beside which it lies"
            )


def _with_shapes(model: ModelProto) -> ModelProto:
    """Return a model for the checker, which wants shapes of inputs and outputs; others do not."""
    ends = (*model.graph.input, *model.graph.output)
    if all(one.type.tensor_type.HasField("shape") for one in ends):
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for one in (*copy.graph.input, *copy.graph.output):
        if one.type.HasField("tensor_type"):
            one.type.tensor_type.shape.SetInParent()
    return copy


def shapes_of(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array of a graph of which all extents are known."""
    found = {one.name: tuple(one.dims) for one in graph.initializer}
    for one in (*graph.input, *graph.value_info, *graph.output):
        kind = one.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            found.setdefault(one.name, tuple(dim.dim_value for dim in kind.shape.dim))
    return found


def dtypes_of(graph: GraphProto) -> dict[str, Any]:
    """Return the dtype of each array of which it is known."""
    onnx = import_onnx()
    kinds = {
        one.name: one.type.tensor_type.elem_type
        for one in (*graph.input, *graph.value_info, *graph.output)
        if one.type.HasField("tensor_type") and one.type.tensor_type.elem_type
    }
    return {name: onnx.helper.tensor_dtype_to_np_dtype(kind) for name, kind in kinds.items()}


def dimensions_of(graph: GraphProto) -> dict[str, tuple[int | str, ...] | None]:
    """Return the extents of each input: numbers, or names of those that are not known.

    An input without a shape has None.
    """
    fixed = {one.name for one in graph.initializer}
    found: dict[str, tuple[int | str, ...] | None] = {}
    for one in graph.input:
        if one.name in fixed:
            continue
        kind = one.type.tensor_type
        found[one.name] = None
        if kind.HasField("shape"):
            found[one.name] = tuple(
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"
                for dim in kind.shape.dim
            )
    return found


def check_inputs(graph: GraphProto) -> None:
    """Raise `ModelError` if an input has extents that are not known."""
    for name, dims in dimensions_of(graph).items():
        if dims is None or any(isinstance(one, str) for one in dims):
            told = "no shape" if dims is None else f"the dynamic shape {format_shape(dims)}"
            raise ModelError(
                f"input {name!r} has {told}: give it numbers, for "
                "instance by onnx.tools.update_model_dims.update_inputs_outputs_dims"
            )


def format_shape(dims: Sequence[int | str]) -> str:
    """Return extents as text.

    Examples
    --------
    >>> format_shape(("N", 3))
    '(N, 3)'
    """
    return f"({', '.join(map(str, dims))}{',' * (len(dims) == 1)})"


def fix_shapes(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """Return a copy of a model whose inputs have some shapes.

    Raises
    ------
    ModelError
        If the model cannot have them.
    """
    copy = import_onnx().ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for one in copy.graph.output:
        one.type.tensor_type.ClearField("shape")
    for one in copy.graph.input:
        if one.name in shapes:
            kind = one.type.tensor_type
            kind.ClearField("shape")
            kind.shape.SetInParent()
            for extent in shapes[one.name]:
                kind.shape.dim.add().dim_value = extent
    return infer_shapes(copy)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node by name, texts as text."""
    onnx = import_onnx()
    values = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in values.items()
    }


def read_arguments(
    given: Mapping[str, Any], x_shape: tuple[int, ...], w_shape: tuple[int, ...]
) -> dict[str, Any]:
    """Return the arguments of `Convolution.of` that the attributes of a Conv node say.

    Raises
    ------
    ModelError
        If they contradict the shapes, or are none of ONNX's.

    Examples
    --------
    >>> found = read_arguments({"pads": [0, 1, 2, 3], "group": 2}, (1, 4, 8, 8), (6, 2, 3, 3))
    >>> found["padding"], found["groups"]
    (((0, 2), (1, 3)), 2)
    """
    order = len(x_shape) - 2
    stride = tuple(given.get("strides") or (1,) * order)
    dilation = tuple(given.get("dilations") or (1,) * order)
    window = tuple(given.get("kernel_shape") or w_shape[2:])
    if window != tuple(w_shape[2:]):
        raise ModelError(f"kernel_shape of a Conv is {window}, its weights have {w_shape[2:]}")
    kind, pads = given.get("auto_pad") or "NOTSET", given.get("pads") or (0,) * 2 * order
    padding: tuple[Ends, ...]
    if kind == "NOTSET" and len(pads) == 2 * order:
        padding = tuple(zip(pads[:order], pads[order:], strict=True))
    elif kind == "VALID":
        padding = ((0, 0),) * order
    elif kind in ("SAME_UPPER", "SAME_LOWER"):
        padding = tuple(
            same_ends(kind, *axis)
            for axis in zip(x_shape[2:], window, stride, dilation, strict=True)
        )
    else:
        raise ModelError(f"auto_pad of a Conv is {kind!r}, pads are {tuple(pads)}")
    return {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": given.get("group") or 1,
    }


def read_transposed_arguments(
    given: Mapping[str, Any], x_shape: tuple[int, ...], w_shape: tuple[int, ...]
) -> dict[str, Any]:
    """Return the arguments of `conv_transpose` that the attributes of a ConvTranspose node say.

    Raises
    ------
    ModelError
        If they contradict the shapes, are none of ONNX's, or ask for a result that is larger than
        all windows together.

    Examples
    --------
    >>> given = {"strides": [2], "auto_pad": "SAME_UPPER"}
    >>> read_transposed_arguments(given, (1, 4, 8), (4, 6, 3))["padding"]
    ((0, 1),)
    """
    order = len(x_shape) - 2
    kind, size = given.get("auto_pad") or "NOTSET", given.get("output_shape")
    usual = {name: value for name, value in given.items() if name != "auto_pad"}
    found = read_arguments(usual, x_shape, w_shape)
    more = tuple(given.get("output_padding") or (0,) * order)
    if kind in ("SAME_UPPER", "SAME_LOWER") and not size:
        size = [n * step for n, step in zip(x_shape[2:], found["stride"], strict=True)]
    elif kind not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"auto_pad of a ConvTranspose is {kind!r}")
    if size:
        axes = zip(
            *(x_shape[2:], w_shape[2:], found["stride"], found["dilation"], more),
            size[-order:],
            strict=True,
        )
        whole = [
            step * (n - 1) + gap * (k - 1) + 1 + extra - out for n, k, step, gap, extra, out in axes
        ]
        if min(whole) < 0:
            raise ModelError(
                f"output_shape of a ConvTranspose is {tuple(size)}, which is too large"
            )
        found["padding"] = tuple(
            (lack // 2, lack - lack // 2) if kind == "SAME_UPPER" else (lack - lack // 2, lack // 2)
            for lack in whole
        )
    elif kind == "VALID":
        found["padding"] = ((0, 0),) * order
    return found | {"output_padding": more}


def same_ends(kind: str, extent: int, taps: int, stride: int, dilation: int) -> Ends:
    """Return the zeros with which an axis has its extent divided by the stride, rounded up.

    Examples
    --------
    >>> same_ends("SAME_UPPER", 7, 4, 2, 1), same_ends("SAME_LOWER", 7, 4, 2, 1)
    ((1, 2), (2, 1))
    """
    reach = dilation * (taps - 1) + 1
    lacking = max(0, (-(-extent // stride) - 1) * stride + reach - extent)
    less, more = lacking // 2, lacking - lacking // 2
    return (less, more) if kind == "SAME_UPPER" else (more, less)
