"""Code from modules, in a process of its own: LLVM ends the process that asks for what it lacks.

NVIDIA's assembler `ptxas` and its reader `nvdisasm` come with packages, or with a toolkit.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llvmlite import ir

from tilesolve.contractions.errors import DeviceError
from tilesolve.kernels.gpu.forms import Form
from tilesolve.kernels.gpu.parts import Addition, write_addition
from tilesolve.kernels.gpu.product import write_product
from tilesolve.kernels.gpu.spirv import Spirv
from tilesolve.kernels.gpu.stages import StageKernels, write_stages
from tilesolve.kernels.gpu.targets import PTX_VERSIONS, Nvptx, Target
from tilesolve.kernels.gpu.translating import translate
from tilesolve.system.subprocess_call import run_in_process

SECONDS = 120.0
"""After which the process that makes code is ended."""


@lru_cache(maxsize=256)
def make_code(form: Form | Addition | StageKernels, capability: int | None) -> bytes:
    """Return PTX for a compute capability, or SPIR-V where it is None.

    Raises
    ------
    DeviceError
        If LLVM makes none of it.

    Examples
    --------
    >>> b".target sm_80" in make_code(Addition("float64", True, True), 80)
    True
    """
    target: Target = Spirv() if capability is None else Nvptx(capability)
    # Divisions by constants take sums and products that are rounded once, which CPUs may not have.
    code = str(_write(target, form)).replace("llvm.fmuladd.", "llvm.fma.")
    asked: dict[str, object] = {"code": code, "triple": target.triple, "cpu": "", "features": ""}
    asked["passes"] = isinstance(form, StageKernels)
    if capability is not None:
        version = PTX_VERSIONS[max(one for one in PTX_VERSIONS if one <= capability)]
        asked |= {"cpu": f"sm_{capability}", "features": f"+ptx{version}"}
    try:
        return base64.b64decode(run_in_process(translate, json.dumps(asked), SECONDS))
    except (ChildProcessError, TimeoutError) as error:
        raise DeviceError(f"LLVM made no code for {target.triple}: {error}") from error


def _write(target: Target, form: Form | Addition | StageKernels) -> ir.Module:
    """Return the module of a form."""
    if isinstance(form, StageKernels):
        return write_stages(target, form)
    return write_product(target, form) if isinstance(form, Form) else write_addition(target, form)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A kernel as NVIDIA's assembler made it.

    Parameters
    ----------
    cubin
        Code for one compute capability.
    registers
        Of a thread.
    spilled
        Bytes of registers that a thread keeps in memory.
    counts
        Both of each kernel by its name.
    """

    cubin: bytes
    registers: int
    spilled: int
    counts: Mapping[str, tuple[int, int]]


def find_tool(name: str) -> str | None:
    """Return the path of `ptxas` or `nvdisasm`: of a toolkit, or of a package; None for neither."""
    if found := shutil.which(name):
        return found
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    return next((str(one) for one in sorted(packages.glob(f"*/bin/{name}"))), None)


@lru_cache(maxsize=256)
def assemble(form: Form | Addition | StageKernels, capability: int) -> Assembled | None:
    """Return what the assembler makes of a kernel; None where there is no assembler.

    Raises
    ------
    DeviceError
        If it refuses the code.
    """
    tool = find_tool("ptxas")
    if tool is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_bytes(make_code(form, capability))
        command = [tool, "-v", f"-arch=sm_{capability}", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DeviceError(f"ptxas refuses the kernel: {done.stderr.strip():.400}")
        counts = {}
        for told in done.stderr.split("Compiling entry function '")[1:]:
            found = [re.search(rf"(\d+) {x}", told) for x in ("registers", "bytes spill stores")]
            registers, spilled = (int(one[1]) if one else 0 for one in found)
            counts[told.partition("'")[0]] = registers, spilled
        most = [max((one[at] for one in counts.values()), default=0) for at in range(2)]
        return Assembled(made.read_bytes(), most[0], most[1], counts)


def count_instructions(cubin: bytes, name: str) -> int | None:
    """Return how often an instruction stands in assembled code; None where there is no reader.

    Examples
    --------
    >>> count_instructions(b"", "HMMA") in (None, 0)
    True
    """
    tool = find_tool("nvdisasm")
    if tool is None or not cubin:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True)
    return len(re.findall(rf"\b{name}\b", told.stdout))
