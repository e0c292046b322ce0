"""Who computes layers: for each peer a function that prepares one.

Such a maker is given the layer, in the layout of its arrays, the machine, the number of threads,
operands (images, filters in torch's order and a bias), and an array for the result. Its run
computes convolution, bias and ReLU, and returns the result with channels before pixels, however it
lies. Weights are prepared in the maker; padding belongs into the run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.bench.layers import channels_first
from tilesolve.bench.results.sweeps import Figures
from tilesolve.bench.run.im2col import make_im2col
from tilesolve.bench.run.made import Made, Run, Timer
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.machine.model import Machine

if TYPE_CHECKING:
    from tilesolve.convolutions.layer import ConvLayer

ONNX_OPSET = 17
"""Version of the operators in models for ONNX Runtime."""

ONNX_FORMAT = 9
"""Version of the files of these models, which all its releases since 2023 read."""

TORCH_DIMENSIONS = 2
"""Of images whose weights torch prepares."""


PACKING_RUNS = 3
"""Runs in which packing is timed, and as many beside them for the share that it has."""


def tilesolve(
    layer: Convolution, machine: Machine, threads: int, operands: Sequence[Array], out: Array
) -> Made:
    """Make ready a layer of ours, solved anew."""
    from tilesolve.convolutions.layer import conv_layer

    x, w, bias = operands
    made = conv_layer(
        layer.x_shape,
        w,
        bias,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        layout=layer.layout,
        epilogue="relu",
        machine=machine,
        threads=threads,
    )
    view = channels_first(layer, out)

    def run() -> Array:
        made(x, out)
        return view

    return Made(run, partial(_find_figures, made))


def _find_figures(layer: ConvLayer, timed: Timer) -> Figures:
    """Return what is predicted of a layer's plan, and packing's share of timed runs."""
    from tilesolve.nests.plan import NestPlan
    from tilesolve.nests.solutions import LoopSolution
    from tilesolve.running.packing_time import time_packing

    plan = layer.plan
    if isinstance(plan, NestPlan):
        roofline = layer.flops / plan.machine.peak(layer.convolution.dtype, plan.threads)
        loops = [one for one in plan.solutions if isinstance(one, LoopSolution)]
        slowest = max(loops, key=lambda one: one.seconds)
        frames = [one.bytes for one in plan.computation.arrays if one.name == "P"]
        bound = slowest.cost.bottleneck
        return Figures(roofline, plan.seconds, bound, float(sum(frames)))
    pairs = [(time_packing(plan.executor, timed), timed()) for _ in range(PACKING_RUNS)]
    packing, whole = map(median, zip(*pairs, strict=True))
    return Figures(
        plan.roofline,
        plan.seconds,
        plan.price.bottleneck,
        sum(plan.price.packed) * plan.problem.itemsize,
        packing / whole,
        plan.packing_share,
    )


def im2col(layer: Convolution, _: Machine, __: int, operands: Sequence[Array], out: Array) -> Run:
    """Make ready copies of windows, and products by numpy's BLAS."""
    x, w, bias = operands
    run, view = make_im2col(layer, x, w, bias, out), channels_first(layer, out)

    def run_all() -> Array:
        run()
        return view

    return run_all


def torch_eager(
    layer: Convolution, _: Machine, threads: int, operands: Sequence[Array], _out: Array
) -> Run:
    """Make ready torch's functions as they are called by hand; weights are reordered in each."""
    module = importlib.import_module("torch")
    images, filters, shift, pad = _make_tensors(module, layer, threads, operands)
    name = f"conv{len(layer.size)}d"
    convolve = getattr(module.nn.functional, name)
    steps = (layer.stride, _even_ends(layer), layer.dilation, layer.groups)

    def run() -> Any:  # noqa: ANN401 - a tensor of torch
        with module.inference_mode():
            return convolve(pad(images), filters, shift, *steps).relu_()

    return run


def torch(
    layer: Convolution, _: Machine, threads: int, operands: Sequence[Array], _out: Array
) -> Run:
    """Make ready oneDNN in torch with weights prepared and ReLU fused, as compiled models have it.

    For channels first that is another function than for channels last, whose result stays so.
    """
    module = importlib.import_module("torch")
    if len(layer.size) != TORCH_DIMENSIONS or layer.dtype != "float32":
        raise BenchmarkError("torch prepares weights of float32 and two dimensions alone")
    images, filters, shift, pad = _make_tensors(module, layer, threads, operands)
    steps, gaps, ends = map(list, (layer.stride, layer.dilation, _even_ends(layer)))
    shape = list(pad(images).shape)
    rest: tuple[Any, ...]
    if layer.layout == "NHWC":
        packed = module._C._nn.mkldnn_reorder_conv2d_weight(
            filters.to_mkldnn(), ends, steps, gaps, layer.groups, shape
        )
        rest = (packed, shift, ends, steps, gaps, layer.groups, "relu", [], None)
        convolve = module.ops.mkldnn._convolution_pointwise
    else:
        context = module.ops.mkldnn_prepacked.conv2d_prepack(
            filters, shift, steps, ends, gaps, layer.groups, shape, "relu"
        )
        rest = (context,)
        convolve = module.ops.mkldnn_prepacked.conv2d_run

    def run() -> Any:  # noqa: ANN401 - a tensor of torch
        with module.inference_mode():
            return convolve(pad(images), *rest)

    return run


def onnxruntime(
    layer: Convolution, _: Machine, threads: int, operands: Sequence[Array], out: Array
) -> Run:
    """Make ready a model of the layer; its result goes to an array made before."""
    runtime, onnx = importlib.import_module("onnxruntime"), importlib.import_module("onnx")
    x, w, bias = operands
    helper = onnx.helper
    kind = int(helper.np_dtype_to_tensor_dtype(np.dtype(layer.dtype)))
    nodes = [
        helper.make_node(
            "Conv",
            ["x", "w", "b"],
            ["y"],
            pads=list(chain(*zip(*layer.padding, strict=True))),
            strides=layer.stride,
            dilations=layer.dilation,
            group=layer.groups,
        ),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    values = [onnx.numpy_helper.from_array(array, name) for array, name in ((w, "w"), (bias, "b"))]
    given, made = (
        helper.make_tensor_value_info(name, kind, shape)
        for name, shape in (("x", layer.x_shape), ("z", layer.out_shape))
    )
    graph = helper.make_graph(nodes, "layer", [given], [made], values)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", ONNX_OPSET)], ir_version=ONNX_FORMAT
    )
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for bind, name, array in ((binding.bind_input, "x", x), (binding.bind_output, "z", out)):
        bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    return partial(_run_holding, partial(session.run_with_iobinding, binding), out, x)


def openvino(
    layer: Convolution, _: Machine, threads: int, operands: Sequence[Array], out: Array
) -> Run:
    """Make ready a compiled model of the layer, at the precision of its dtype."""
    module = importlib.import_module("openvino")
    ops = importlib.import_module("openvino.opset13")
    x, w, bias = operands
    before, after = (list(ends) for ends in zip(*layer.padding, strict=True))
    given = ops.parameter([layer.batch, layer.channels, *layer.size], np.dtype(layer.dtype).type)
    steps = (list(layer.stride), before, after, list(layer.dilation))
    if layer.groups == 1:
        found = ops.convolution(given, ops.constant(w), *steps)
    else:
        parted = w.reshape(layer.groups, layer.filters // layer.groups, *w.shape[1:])
        found = ops.group_convolution(given, ops.constant(parted), *steps)
    shift = bias.reshape(1, -1, *(1,) * len(layer.size))
    model = module.Model([ops.relu(ops.add(found, ops.constant(shift)))], [given], "layer")
    if layer.layout == "NHWC":
        model = _with_channels_last(module, model, len(layer.size))
    precision = "f64" if layer.dtype == "float64" else "f32"
    compiled = module.Core().compile_model(
        model,
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": precision,
        },
    )
    request = compiled.create_infer_request()
    request.set_input_tensor(module.Tensor(x, shared_memory=True))
    request.set_output_tensor(module.Tensor(out, shared_memory=True))
    return partial(_run_holding, request.infer, channels_first(layer, out), x)


def _run_holding(run: Callable[[], object], out: Array, _: Array) -> Array:
    """Run, and return the result; the images are held, of which a library knows the address."""
    run()
    return out


def _with_channels_last(module: Any, model: Any, dimensions: int) -> Any:  # noqa: ANN401
    """Return a model whose arrays have channels last; the compiler chooses how to read them."""
    processor = importlib.import_module("openvino.preprocess").PrePostProcessor(model)
    pixels = "DHW"[-dimensions:]
    for end in (processor.input(), processor.output()):
        end.tensor().set_layout(module.Layout(f"N{pixels}C"))
        end.model().set_layout(module.Layout(f"NC{pixels}"))
    return processor.build()


def _even_ends(layer: Convolution) -> tuple[int, ...]:
    """Return the zeros on both sides of each dimension; none where sides differ, see `_pads`."""
    return tuple(one if _is_even(layer) else 0 for one, _ in layer.padding)


def _is_even(layer: Convolution) -> bool:
    return all(one == other for one, other in layer.padding)


def _make_tensors(
    module: Any,  # noqa: ANN401
    layer: Convolution,
    threads: int,
    operands: Sequence[Array],
) -> tuple[Any, Any, Any, Callable[[Any], Any]]:
    """Return tensors of torch that lie as the layout says, and what pads with uneven sides."""
    module.set_num_threads(threads)
    x, w, bias = operands
    images, filters = module.from_numpy(channels_first(layer, x)), module.from_numpy(w)
    if layer.layout == "NHWC":
        formats = {2: module.channels_last, 3: module.channels_last_3d}
        if len(layer.size) not in formats:
            raise BenchmarkError("torch has no layout with channels last for one dimension")
        filters = filters.contiguous(memory_format=formats[len(layer.size)])
    if _is_even(layer):
        return images, filters, module.from_numpy(bias), lambda tensor: tensor
    sides = list(chain.from_iterable(reversed(layer.padding)))

    def pad(tensor: Any) -> Any:  # noqa: ANN401
        return module.nn.functional.pad(tensor, sides)

    return images, filters, module.from_numpy(bias), pad
