"""Who runs whole networks: for each peer a function that prepares one.

Such a maker is given the network, the machine, the number of threads, inputs in the model's order,
and an array for the result. Its run returns the first result.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Sequence

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.bench.networks import WholeNetwork
from tilesolve.bench.results.sweeps import Figures
from tilesolve.bench.run.made import Made, Run, Timer
from tilesolve.bench.run.torch_networks import make_module
from tilesolve.machine.model import Machine

Operands = Sequence[Array]

_LOAD = """
from time import perf_counter
begin = perf_counter()
import pickle, sys, tilesolve
tilesolve.onnx.load(**pickle.load(sys.stdin.buffer))
print(perf_counter() - begin)
"""


def tilesolve(
    network: WholeNetwork, machine: Machine, threads: int, operands: Operands, _: Array
) -> Made:
    """Make ready a model of ours."""
    from tilesolve.networks.model import load

    made = load(network.model, threads=threads, machine=machine)
    given = {name: one for (name, _, _), one in zip(network.ends, operands, strict=False)}
    result = network.ends[-1][0]

    def describe(_: Timer) -> Figures:
        predicted = sum(one or 0.0 for one in made.program.predicted)
        again = time_loading(network, machine, threads)
        return Figures(predicted=predicted, how=made.count, again=again)

    return Made(lambda: made(given)[result], describe, lambda: made(given))


def time_loading(network: WholeNetwork, machine: Machine, threads: int) -> float:
    """Return in how many seconds a new process loads a model whose plans were kept."""
    source = network.source if network.is_file else network.model.SerializeToString()
    given = pickle.dumps({"source": source, "machine": machine, "threads": threads})
    settings = {name: one for name, one in os.environ.items() if name != "TILESOLVE_CACHE"}
    command = [sys.executable, "-c", _LOAD]
    for _ in ("keep", "time"):
        done = subprocess.run(command, input=given, env=settings, capture_output=True, check=True)
    return float(done.stdout)


def onnxruntime(
    network: WholeNetwork, machine: Machine, threads: int, operands: Operands, out: Array
) -> Run:
    """Make ready ONNX Runtime; its result goes to an array made before."""
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = runtime.InferenceSession(
        network.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    ends = zip(network.ends, (*operands, out), strict=True)
    for at, ((name, *_), array) in enumerate(ends):
        bind = binding.bind_output if at == len(operands) else binding.bind_input
        bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def run() -> Array:
        session.run_with_iobinding(binding)
        return out

    return run


def openvino(network: WholeNetwork, _: Machine, threads: int, operands: Operands, __: Array) -> Run:
    """Make ready OpenVINO, for the shortest time of one call, in single precision."""
    module = importlib.import_module("openvino")
    core = module.Core()
    model = core.read_model(network.model.SerializeToString(), b"")
    compiled = core.compile_model(
        model,
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
        },
    )
    request = compiled.create_infer_request()
    for at, array in enumerate(operands):
        request.set_input_tensor(at, module.Tensor(array, shared_memory=True))

    def run() -> Array:
        request.infer()
        return np.asarray(request.get_output_tensor(0).data)

    return run


def torch(network: WholeNetwork, _: Machine, threads: int, operands: Operands, __: Array) -> Run:
    """Make ready torch: the network as functions of torch, traced, with weights prepared."""
    module = importlib.import_module("torch")
    module.set_num_threads(threads)
    images = [module.from_numpy(array) for array in operands]
    with module.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing will be replaced by what needs a compiler of C++
        traced = module.jit.trace(make_module(module, network.model), images)
        compiled = module.jit.optimize_for_inference(traced)

    def run() -> Array:
        with module.inference_mode():
            return np.asarray(compiled(*images))

    return run
