"""NVIDIA's estimator of products (`nvidia-matmul-heuristics`), in a process of its own."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path


def estimate_products(text: str) -> str:
    """Write what products take to a file, and end the process: the library's own end fails.

    The request has the GPU's name there, whose kernels, letters of the dtypes, the path of the
    file, and for each product its sides and tilings: eight numbers each, of a block, of a warp,
    stages, parts, and the group of rows. The answer has, for each, the seconds of the library's own
    choice, this choice, and the seconds of the tilings; 0 for those that it does not know.
    """
    import nvMatmulHeuristics as library  # noqa: N813

    asked = json.loads(text)
    layout = library.NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR
    letters = asked["letters"]
    own = library.NvMatmulHeuristicsInterface(
        library.NvMatmulHeuristicsTarget[asked["target"]],
        precision=letters,
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
    )
    device = own.createHardwareDescriptor()
    gpu = library.NvMatmulHeuristicsNvidiaGpu[asked["gpu"]]
    own.setHardwarePredefinedGpu(device, gpu)
    own.loadInternalDiscoverySet(layout, device)
    target = ctypes.c_int(own.target)
    found = []
    for sides, tilings in asked["products"]:
        problem = own.makeNvMatmulHeuristicsProblem(*sides, layout)
        best = own.get(problem, 1, device)[0]
        config = best["nvmmhKernelConfiguration"]
        seconds = []
        for rows, columns, depth, down, across, stages, parts, group in tilings:
            given = own.nvmmhKernelConfiguration()
            given.cta[:] = (rows, columns, depth)
            given.warp[:] = (down, across, depth)
            given.instr[:] = tuple(config.instr)
            given.splitK, given.loadStages = parts, stages
            given.gridSwizzle, given.ctaOrder = group, config.ctaOrder
            given.cluster[:] = (1, 1)
            references = ctypes.byref(problem), ctypes.byref(given)
            seconds.append(
                own.nvMatmulHeuristicsEstimateRuntime(
                    own.handle, letters.encode(), target, *references, device
                )
            )
        choice = [*config.cta, *config.warp[:2], config.loadStages, config.splitK]
        found.append({"own": best["runtime"], "choice": choice, "given": seconds})
    Path(asked["answer"]).write_text(json.dumps(found))
    os._exit(0)
