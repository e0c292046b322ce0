"""Pipelines for GPUs with given tiles, the arrays that they run on, and what they must yield."""

from dataclasses import replace

import numpy as np

from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.gpu.emulation import Job, emulate
from tilesolve.machine.device import Device
from tilesolve.pipelines.device_groups import DeviceStages
from tilesolve.pipelines.device_plan import DevicePlan
from tilesolve.pipelines.device_tiles import DeviceGroup
from tilesolve.pipelines.front import pipeline

BOXES = """K[c,y,x] = E[c,y,x] + E[c,y,x+1] + E[c,y,x+2]
W[u,v] = sum(K[d,u,v] + 8 * E[d,u,v], d)
Z[s,t] = W[s,t] + W[s+1,t] + W[s+2,t] + W[s+3,t] + W[s+4,t]"""
"""The example of chapter 6: stages K, W and Z; H is 4 E, and computed where W reads it."""

BOX_SIZES = {"c": 3, "d": 3, "y": 1028, "u": 1028, "s": 1024, "x": 1024, "v": 1024, "t": 1024}
"""Extents of its letters."""


def group_plan(computation, tiles, threads=None, device="a100"):
    """The plan of all stages in one kernel with given tiles of the last one's axes."""
    group = DeviceGroup(Device.load(device), computation)
    letters = computation.stages[-1].output_letters()
    kernel = group.tile(
        {x: min(n, group.regions.extents[x]) for x, n in zip(letters, tiles, strict=True)}
    )
    kernel = replace(kernel, name="group0", threads=threads or min(kernel.threads, 1024))
    tiled = group.price(kernel)
    assert tiled is not None
    return DevicePlan(DeviceStages(computation, group.device, "groups", "default", (tiled,), False))


def prepare(plan, arrays):
    """The kernels of a plan with arrays by name, and poison where results belong."""
    found = plan.prepare(**{name: arrays[name] for name in plan.inputs})
    for name in plan.outputs:
        found[name].view(np.uint8)[...] = 0xA5
    return Job(plan.solution.launches, found, plan.outputs)


def function_case(case, machine, fusion):
    """A plan of a pipeline's function, prepared on drawn arrays, and what NumPy computes."""
    arrays, function = case.arrays(), pipeline(case.function)
    plan = function.plan(*arrays.values(), machine=machine, fusion=fusion)
    run = prepare(plan, {**case.constants, **arrays})
    return run, case.function(*(one.copy() for one in arrays.values()))


def drawn_case(computation, arrays, tiles, threads):
    """A plan with given tiles, prepared, and what its stages compute."""
    run = prepare(group_plan(computation, tiles, threads), arrays)
    wanted = evaluate(computation, arrays)
    return run, wanted.astype(computation.output.dtype)


def check(cases):
    """Run all kernels in one process; compare each result with what is wanted."""
    found = emulate([run for run, _ in cases])
    for (result,), (run, wanted) in zip(found, cases, strict=True):
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        if wanted.dtype.kind == "f":
            near = 1e-5 if wanted.dtype.itemsize == 4 else 1e-12
            assert np.allclose(result, wanted, rtol=near, atol=near, equal_nan=True), run.launches
        else:
            assert np.array_equal(result, wanted), run.launches
