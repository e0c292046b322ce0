"""Plans for GPUs on a CPU: their kernels as SPIR-V, run by a CPU's OpenCL, for tests."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesolve.constants.gpu import EMULATED_SECONDS
from tilesolve.contractions.errors import DeviceError
from tilesolve.gpu.launches import Launch
from tilesolve.gpu.opencl import run_jobs
from tilesolve.kernels.gpu.assembling import make_code
from tilesolve.system.subprocess_call import run_in_process


@dataclass(frozen=True)
class Run:
    """Kernels, the arrays that they run on, by name, and which of these are results."""

    kernels: tuple[Launch, ...]
    arrays: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...]


@lru_cache(maxsize=1)
def find_runtime() -> Path | None:
    """Return the library of a CPU's OpenCL runtime; None if the extra ``gpu-test`` is missing."""
    if importlib.util.find_spec("pyopencl") is None:
        return None
    found = Path(sys.prefix) / "lib" / "libintelocl.so"
    return found if found.exists() else None


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
        written = []
        for number, run in enumerate(runs):
            # The other process knows bytes alone, no dtypes of other libraries.
            plain = {x: np.frombuffer(one.tobytes(), np.uint8) for x, one in run.arrays.items()}
            np.savez(folder / f"arrays{number}.npz", **plain)  # type: ignore[arg-type]
            for one in run.kernels:
                if one.form not in codes:
                    codes[one.form] = f"code{len(codes)}.spv"
                    (folder / codes[one.form]).write_bytes(make_code(one.form, None))
            kernels = [replace(one, form=codes[one.form]) for one in run.kernels]  # type: ignore[arg-type]
            written.append({"kernels": [asdict(one) for one in kernels], "outputs": run.outputs})
        (folder / "jobs.json").write_text(json.dumps(written))
        environment = {"OCL_ICD_VENDORS": name, "LD_LIBRARY_PATH": str(runtime.parent)}
        try:
            run_in_process(run_jobs, name, EMULATED_SECONDS, environment)
        except (ChildProcessError, TimeoutError) as error:
            raise DeviceError(f"the CPU's OpenCL did not run the kernels: {error}") from error
        return [
            [
                np.load(folder / f"result{at}_{x}.npy").view(one.dtype).reshape(one.shape)
                for x, one in ((x, run.arrays[x]) for x in run.outputs)
            ]
            for at, run in enumerate(runs)
        ]
