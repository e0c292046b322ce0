"""Kernels as SPIR-V on an OpenCL device: what the process of its own does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def run_jobs(text: str) -> str:
    """Run jobs of kernels, which files in a folder hold; write each result beside them.

    The text names the folder; its file ``jobs.json`` has, for each job, its kernels, and which
    arrays are results.
    """
    import numpy as np
    import pyopencl as cl

    folder = Path(text)
    device = find_device(cl)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    programs: dict[str, Any] = {}
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text())):
        arrays = dict(np.load(folder / f"arrays{number}.npz"))
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = {name: cl.Buffer(context, flags, hostbuf=array) for name, array in arrays.items()}
        for one in job["kernels"]:
            if one["form"] not in programs:
                program = cl.Program(context, (folder / one["form"]).read_bytes())
                programs[one["form"]] = program.build()
            kernel = cl.Kernel(programs[one["form"]], one["name"])
            given = [
                buffers[value] if isinstance(value, str) else np.uint32(value)
                for value in one["arguments"]
            ]
            size = (one["grid"][0] * one["threads"], *one["grid"][1:])
            kernel(queue, size, (one["threads"], 1, 1), *given)
            queue.finish()  # the runtime compiles meanwhile, and fails if it compiles two at once
        for name in job["outputs"]:
            cl.enqueue_copy(queue, arrays[name], buffers[name])
            np.save(folder / f"result{number}_{name}.npy", arrays[name])
    return str(device.name)


def find_device(cl: Any) -> Any:
    """Return the first device of OpenCL that is a CPU, and no emulator of an FPGA."""
    platforms = [one for one in cl.get_platforms() if "FPGA" not in one.name]
    return platforms[0].get_devices()[0]
