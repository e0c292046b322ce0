"""Plans for GPUs on a CPU: their kernels as SPIR-V, run by a CPU's OpenCL, for tests."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.gpu import EMULATED_SECONDS
from tilesolve.contractions.errors import DeviceError
from tilesolve.gpu.launches import Launches
from tilesolve.gpu.opencl import run_jobs
from tilesolve.kernels.gpu.assembling import make_code
from tilesolve.system.subprocess_call import run_in_process


@dataclass(frozen=True)
class Job:
    """Kernels, and the arrays that they take by name, the ``output`` among them."""

    launches: Launches
    arrays: Mapping[str, NDArray[Any]]


@lru_cache(maxsize=1)
def find_runtime() -> Path | None:
    """Return the library of a CPU's OpenCL runtime; None if the extra ``gpu-test`` is missing."""
    if importlib.util.find_spec("pyopencl") is None:
        return None
    found = Path(sys.prefix) / "lib" / "libintelocl.so"
    return found if found.exists() else None


def emulate(jobs: Iterable[Job]) -> list[NDArray[Any]]:
    """Return the results of jobs, run on the CPU one after another.

    Raises
    ------
    DeviceError
        If there is no runtime, or it fails.
    """
    runtime = find_runtime()
    if runtime is None:
        raise DeviceError(
            "emulating a GPU takes pyopencl and a CPU's OpenCL: pip install tilesolve[gpu-test]"
        )
    jobs = list(jobs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cpu.icd").write_text(f"{runtime}\n")
        codes: dict[object, str] = {}
        for number, job in enumerate(jobs):
            # The other process knows bytes alone, no dtypes of other libraries.
            given = {**job.arrays, "tables": job.launches.tables}
            arrays = {name: np.frombuffer(one.tobytes(), np.uint8) for name, one in given.items()}
            np.savez(folder / f"arrays{number}.npz", **arrays)  # type: ignore[arg-type]
            for one in job.launches.kernels:
                if one.form not in codes:
                    codes[one.form] = f"code{len(codes)}.spv"
                    (folder / codes[one.form]).write_bytes(make_code(one.form, None))
        written = [
            {
                "kernels": [
                    {**asdict(one), "form": codes[one.form]} for one in job.launches.kernels
                ],
                "part_bytes": job.launches.part_bytes,
            }
            for job in jobs
        ]
        (folder / "jobs.json").write_text(json.dumps(written))
        environment = {"OCL_ICD_VENDORS": name, "LD_LIBRARY_PATH": str(runtime.parent)}
        try:
            run_in_process(run_jobs, name, EMULATED_SECONDS, environment)
        except (ChildProcessError, TimeoutError) as error:
            raise DeviceError(f"the CPU's OpenCL did not run the kernels: {error}") from error
        results = [np.load(folder / f"result{number}.npy") for number in range(len(jobs))]
    shaped = zip(results, (job.arrays["output"] for job in jobs), strict=True)
    return [found.view(output.dtype).reshape(output.shape) for found, output in shaped]
