"""Plans for GPUs on a CPU: their kernels as SPIR-V, run by a CPU's OpenCL, for tests."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.gpu import EMULATED_POISON, EMULATED_SECONDS
from tilesolve.contractions.errors import DeviceError
from tilesolve.gpu.launches import Launches
from tilesolve.gpu.opencl import run_jobs
from tilesolve.kernels.gpu.assembling import make_code
from tilesolve.system.subprocess_call import run_in_process


@dataclass(frozen=True)
class Job:
    """Kernels, the arrays that they take by name, and which of these are results."""

    launches: Launches
    arrays: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...] = ("output",)


@lru_cache(maxsize=1)
def find_runtime() -> Path | None:
    """Return the library of a CPU's OpenCL runtime; None if the extra ``gpu-test`` is missing."""
    if importlib.util.find_spec("pyopencl") is None:
        return None
    found = Path(sys.prefix) / "lib" / "libintelocl.so"
    return found if found.exists() else None


def emulate(jobs: Iterable[Job]) -> list[list[NDArray[Any]]]:
    """Return the results of each job, run on the CPU one after another.

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
        written = [_write(folder, number, job, codes) for number, job in enumerate(jobs)]
        (folder / "jobs.json").write_text(json.dumps(written))
        environment = {"OCL_ICD_VENDORS": name, "LD_LIBRARY_PATH": str(runtime.parent)}
        try:
            run_in_process(run_jobs, name, EMULATED_SECONDS, environment)
        except (ChildProcessError, TimeoutError) as error:
            raise DeviceError(f"the CPU's OpenCL did not run the kernels: {error}") from error
        results = [dict(np.load(folder / f"results{number}.npz")) for number in range(len(jobs))]
    return [
        [found[x].view(job.arrays[x].dtype).reshape(job.arrays[x].shape) for x in job.outputs]
        for found, job in zip(results, jobs, strict=True)
    ]


def _write(folder: Path, number: int, job: Job, codes: dict[object, str]) -> dict[str, object]:
    """Write the files of a job; return what ``jobs.json`` says of it."""
    scratch = {
        name: np.full(size, EMULATED_POISON, np.uint8) for name, size in job.launches.scratch
    }
    maps = {name: one.table for name, one in job.launches.maps}
    given: dict[str, NDArray[Any]] = {"tables": job.launches.tables, **maps, **scratch}
    given |= job.arrays
    # The other process knows bytes alone, no dtypes of other libraries.
    arrays = {
        name: np.frombuffer(one.tobytes(), np.uint8) for name, one in given.items() if one.size
    }
    np.savez(folder / f"arrays{number}.npz", **arrays)  # type: ignore[arg-type]
    kernels = []
    for one in job.launches.kernels:
        if one.form not in codes:
            codes[one.form] = f"code{len(codes)}.spv"
            (folder / codes[one.form]).write_bytes(make_code(one.form, None))
        started = {name: getattr(one, name) for name in ("name", "grid", "threads", "arguments")}
        kernels.append({"form": codes[one.form], **started})
    return {"kernels": kernels, "outputs": job.outputs}
