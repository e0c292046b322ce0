"""Time convolution layers beside torch and ONNX Runtime, where these are installed.

Each contender has a process of its own, with its weights prepared and bias and ReLU fused, and they
take turns, with caches flushed before each run. Padding is inside everyone's time. Ours and torch
run in both layouts. The ratio is that of the fastest of ours to the fastest of all others.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Sequence
from math import prod
from multiprocessing.connection import Connection
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.layer_suites import layer_suite, layer_suites

FLUSHED_BYTES = 1 << 27
Run = Callable[[], Any]


def arrays(layer: Convolution) -> tuple[np.ndarray[Any, Any], ...]:
    """Return random images, with channels first, filters and a bias."""
    rng = np.random.default_rng(0)
    shapes = (layer.x_shape, layer.w_shape, (layer.filters,))
    x, w, bias = (rng.standard_normal(shape, np.float32) for shape in shapes)
    return x, w, bias


def ours(layer: Convolution, layout: str) -> Run:
    """Return a call of our layer."""
    import tilesolve

    x, w, bias = arrays(layer)
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if layout == "NHWC" else x
    made = tilesolve.conv_layer(
        x.shape, w, bias, stride=layer.stride, padding=layer.padding, groups=layer.groups,
        layout=layout, epilogue="relu", threads=1,
    )  # fmt: skip
    out = np.empty(made.out_shape, np.float32)
    return lambda: made(x, out=out)


def torch(layer: Convolution, layout: str) -> Run:
    """Return a call of torch's layer; in eager mode it was faster than frozen."""
    import torch

    torch.set_num_threads(1)
    kind = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    x, w, bias = (torch.from_numpy(array) for array in arrays(layer))
    zeros = layer.padding[0][0]
    made = torch.nn.Conv2d(
        layer.channels, layer.filters, layer.window, layer.stride, zeros, groups=layer.groups
    )
    made.weight.data, made.bias.data = w, bias
    model = torch.nn.Sequential(made, torch.nn.ReLU()).eval().to(memory_format=kind)
    x = x.contiguous(memory_format=kind)

    def run() -> None:
        with torch.inference_mode():
            model(x)

    return run


def onnxruntime(layer: Convolution, layout: str) -> Run:
    """Return a call of an ONNX model of the layer; it has channels first."""
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    del layout
    x, w, bias = arrays(layer)
    zeros = [end for side in (0, 1) for end in (ends[side] for ends in layer.padding)]
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["y"], pads=zeros, strides=layer.stride, group=layer.groups
        ),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    values = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", layer.x_shape), ("z", layer.out_shape))
    ]
    graph = helper.make_graph(nodes, "layer", ends[:1], ends[1:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})


CONTENDERS: dict[str, tuple[Callable[[Convolution, str], Run], str]] = {
    "ours NCHW": (ours, "NCHW"),
    "ours NHWC": (ours, "NHWC"),
    "torch NCHW": (torch, "NCHW"),
    "torch NHWC": (torch, "NHWC"),
    "onnxruntime": (onnxruntime, "NCHW"),
}


def serve(name: str, asked: Connection) -> None:
    """Answer in a process of its own: make a layer, or run the last one and send the seconds."""
    make, layout = CONTENDERS[name]
    junk, run = np.zeros(FLUSHED_BYTES, np.uint8), None
    while (layer := asked.recv()) is not None:
        if isinstance(layer, Convolution):
            run = make(layer, layout)
            run()
            asked.send(None)
        elif run is not None:
            junk += 1
            begin = time.perf_counter()
            run()
            asked.send(time.perf_counter() - begin)


def time_layer(layer: Convolution, asked: dict[str, Connection], repeat: int) -> dict[str, float]:
    """Return the median seconds of each contender."""
    for one in asked.values():
        one.send(layer)
        one.recv()
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(repeat):
        for name, one in asked.items():
            one.send("run")
            seconds[name].append(one.recv())
    return {name: median(times) for name, times in seconds.items()}


def title(layer: Convolution) -> str:
    """Return a layer in a few characters."""
    kind = "dw " if layer.groups > 1 else ""
    window, step = layer.window[0], f" s{layer.stride[0]}" if layer.stride[0] > 1 else ""
    return f"{kind}{layer.channels}→{layer.filters} {window}x{window}{step} {layer.size[0]}²"


def report(seconds: list[dict[str, float]], names: list[str]) -> None:
    """Print the means of ratios, and how many layers are ahead."""
    mine = [name for name in names if name.startswith("ours")]
    others = [name for name in names if name not in mine]
    if not others:
        return
    ratios = [min(s[n] for n in others) / min(s[n] for n in mine) for s in seconds]
    print(
        f"the fastest of ours to the fastest other: mean {geometric_mean(ratios):.2f}, least "
        f"{min(ratios):.2f}, ahead in {sum(ratio >= 1 for ratio in ratios)} of {len(ratios)}"
    )
    for name in others:
        beside = [s[name] / min(s[n] for n in mine) for s in seconds]
        print(f"to {name}: mean {geometric_mean(beside):.2f}, least {min(beside):.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the layers of a suite and print GFLOP/s."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", nargs="?", default="resnet18", choices=layer_suites())
    parser.add_argument("--model", default="", help="only layers of models whose name has this")
    parser.add_argument("--most", type=int, default=0, help="at most so many layers")
    parser.add_argument("--repeat", type=int, default=15, help="runs of each")
    options = parser.parse_args(arguments)
    layers = list(
        dict.fromkeys(
            one.convolution for one in layer_suite(options.suite) if options.model in one.model
        )
    )[: options.most or None]
    needed = {"torch": ["torch"], "onnxruntime": ["onnx", "onnxruntime"]}
    names = [
        name
        for name in CONTENDERS
        if all(importlib.util.find_spec(part) for part in needed.get(name.split()[0], []))
    ]
    missing = sorted({name.split()[0] for name in CONTENDERS if name not in names})
    print(f"{options.suite}: {len(layers)} layers, float32, one thread, GFLOP/s", end="")
    print(f"; not installed: {', '.join(missing)}" if missing else "")
    context = multiprocessing.get_context("spawn")
    asked, processes = {}, []
    for name in names:
        asked[name], theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(name, theirs), daemon=True))
        processes[-1].start()
    print(f"{'layer':28}" + "".join(f"{name:>13}" for name in names))
    found = []
    for layer in layers:
        found.append(time_layer(layer, asked, options.repeat))
        flops = 2 * prod(layer.out_size) * layer.filters * prod(layer.w_shape[1:]) / 1e9
        speeds = "".join(f"{flops / found[-1][name]:13.1f}" for name in names)
        print(f"{title(layer):28}{speeds}", flush=True)
    report(found, names)
    for one in asked.values():
        one.send(None)
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
