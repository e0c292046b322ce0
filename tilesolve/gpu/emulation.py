"""Plans for GPUs on a CPU: their kernels as SPIR-V, run by a CPU's OpenCL, for tests."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.gpu import EMULATED_SECONDS
from tilesolve.contractions.errors import DeviceError
from tilesolve.gpu.launches import Launch, Launches
from tilesolve.gpu.opencl import run_jobs
from tilesolve.kernels.gpu.assembling import make_code
from tilesolve.system.subprocess_call import run_in_process


@dataclass(frozen=True)
class Job:
    """Kernels, the operands that they read, and an array of the result's shape and dtype."""

    launches: Launches
    first: NDArray[Any]
    second: NDArray[Any]
    output: NDArray[Any]


@lru_cache(maxsize=1)
def find_runtime() -> Path | None:
    """Return the library of a CPU's OpenCL runtime; None if the extra ``gpu-test`` is missing."""
    if importlib.util.find_spec("pyopencl") is None:
        return None
    found = Path(sys.prefix) / "lib" / "libintelocl.so"
    return found if found.exists() else None


@dataclass(frozen=True)
class Run:
    """Kernels, the arrays that they run on, by name, and which of these are results."""

    kernels: tuple[Launch, ...]
    arrays: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...]


def emulate(jobs: Iterable[Job]) -> list[NDArray[Any]]:
    """Return the results of jobs, run on the CPU one after another; see `emulate_runs`."""
    return [found for (found,) in emulate_runs([_run_of(job) for job in jobs])]


def _run_of(job: Job) -> Run:
    arrays = {
        "first": job.first,
        "second": job.second,
        "output": job.output,
        "tables": job.launches.tables,
    }
    if job.launches.part_bytes:
        arrays["parts"] = np.empty(job.launches.part_bytes, np.uint8)
    return Run(job.launches.kernels, arrays, ("output",))


def emulate_runs(runs: Sequence[Run]) -> list[list[NDArray[Any]]]:
    """Return the results of kernels, run on the CPU one after another.

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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cpu.icd").write_text(f"{runtime}\n")
        codes: dict[object, str] = {}
        written = [_write(folder, number, run, codes) for number, run in enumerate(runs)]
        (folder / "jobs.json").write_text(json.dumps(written))
        environment = {"OCL_ICD_VENDORS": name, "LD_LIBRARY_PATH": str(runtime.parent)}
        try:
            run_in_process(run_jobs, name, EMULATED_SECONDS, environment)
        except (ChildProcessError, TimeoutError) as error:
            raise DeviceError(f"the CPU's OpenCL did not run the kernels: {error}") from error
        return [
            [np.load(folder / f"result{at}_{x}.npy").view(run.arrays[x].dtype) for x in run.outputs]
            for at, run in enumerate(runs)
        ]


def _write(folder: Path, number: int, run: Run, codes: dict[object, str]) -> dict[str, object]:
    """Write the files of a run; return what ``jobs.json`` says of it."""
    files = {}
    for name, array in run.arrays.items():
        files[name] = f"{number}_{name}.npy"
        # Other processes read what NumPy knows: bits of bfloat16 as numbers.
        plain = array.view(np.uint16) if array.dtype.itemsize == 2 else array
        np.save(folder / files[name], np.ascontiguousarray(plain))
    kernels = []
    for one in run.kernels:
        if one.form not in codes:
            codes[one.form] = f"code{len(codes)}.spv"
            (folder / codes[one.form]).write_bytes(make_code(one.form, None))
        kernels.append(
            {
                "code": codes[one.form],
                "name": one.name,
                "grid": one.grid,
                "threads": one.threads,
                "arguments": one.arguments,
            }
        )
    return {"arrays": files, "kernels": kernels, "outputs": run.outputs}
