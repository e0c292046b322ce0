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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llvmlite import ir

from tilesolve.constants.gpu import FIRST_ASSEMBLED
from tilesolve.contractions.errors import DeviceError, PlanError
from tilesolve.kernels.gpu.forms import Ending, Form
from tilesolve.kernels.gpu.parts import write_addition
from tilesolve.kernels.gpu.product import write_product
from tilesolve.kernels.gpu.spirv import Spirv
from tilesolve.kernels.gpu.stages import StageKernels, write_stages
from tilesolve.kernels.gpu.sweeping import Sweep, write_sweep
from tilesolve.kernels.gpu.targets import PTX_VERSIONS, Nvptx
from tilesolve.kernels.gpu.translating import translate
from tilesolve.system.subprocess_call import run_in_process

Kernel = Form | Ending | Sweep | StageKernels
"""What code depends on: of an ending, that of the kernel that adds parts of sums up."""

_WRITERS: dict[type, Callable[..., ir.Module]] = {
    Form: write_product,
    Ending: write_addition,
    Sweep: write_sweep,
    StageKernels: write_stages,
}

CODES = ("ptx", "spirv")
"""What kernels can be had as."""

SECONDS = 120.0
"""After which the process that makes code is ended."""


@lru_cache(maxsize=256)
def make_code(form: Kernel, capability: int | None) -> bytes:
    """Return PTX for a compute capability, or SPIR-V where it is None.

    Raises
    ------
    DeviceError
        If LLVM makes none of it.

    Examples
    --------
    >>> b".target sm_80" in make_code(Ending("float64"), 80)
    True
    """
    target = Spirv() if capability is None else Nvptx(capability)
    # Divisions by constants take sums and products that are rounded once, which CPUs may not have.
    code = str(_WRITERS[type(form)](target, form)).replace("llvm.fmuladd.", "llvm.fma.")
    asked: dict[str, object] = {"code": code, "triple": target.triple, "cpu": "", "features": ""}
    asked["passes"] = isinstance(form, StageKernels) or is_grouped(form)
    if capability is not None:
        version = PTX_VERSIONS[max(one for one in PTX_VERSIONS if one <= capability)]
        asked |= {"cpu": find_architecture(form, capability), "features": f"+ptx{version}"}
    try:
        return base64.b64decode(run_in_process(translate, json.dumps(asked), SECONDS))
    except (ChildProcessError, TimeoutError) as error:
        raise DeviceError(f"LLVM made no code for {target.triple}: {error}") from error


def is_grouped(form: Kernel) -> bool:
    """Return whether a kernel has `wgmma`, which later devices lack."""
    return isinstance(form, Form) and form.grouped


def find_architecture(form: Kernel, capability: int) -> str:
    """Return what LLVM and the assembler call a capability."""
    return f"sm_{capability}{'a' if is_grouped(form) else ''}"


def show_code(form: Kernel, capability: int, kind: str) -> str | bytes:
    """Return PTX for a compute capability as text, or SPIR-V as bytes.

    Raises
    ------
    PlanError
        If there is no such kind.
    DeviceError
        If LLVM makes none of it.
    """
    if kind not in CODES:
        raise PlanError(f"kind of code is one of {', '.join(CODES)}, not {kind!r:.80}")
    return make_code(form, capability).decode() if kind == "ptx" else make_code(form, None)


@dataclass(frozen=True, slots=True)
class Assembled:
    """Kernels as NVIDIA's assembler made them.

    `counts` has a thread's registers, and the bytes that it spills, of each kernel by its name.
    Products of `wgmma` are serialized where the assembler lets each wait for the one before.
    """

    cubin: bytes
    counts: Mapping[str, tuple[int, int]]
    serialized: bool = False

    @property
    def registers(self) -> int:
        """The most registers of a thread."""
        return max(one for one, _ in self.counts.values())

    @property
    def spilled(self) -> int:
        """The most bytes that a thread spills."""
        return max(one for _, one in self.counts.values())


def find_tool(name: str) -> str | None:
    """Return the path of `ptxas` or `nvdisasm`: of a toolkit, or of a package; None for neither."""
    if found := shutil.which(name):
        return found
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    return next((str(one) for one in sorted(packages.glob(f"*/bin/{name}"))), None)


@lru_cache(maxsize=256)
def assemble(form: Kernel, capability: int) -> Assembled | None:
    """Return what the assembler makes of kernels; None where there is none for the capability.

    Raises
    ------
    DeviceError
        If it refuses the code.
    """
    tool = find_tool("ptxas")
    if tool is None or capability < FIRST_ASSEMBLED:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_bytes(make_code(form, capability))
        asked = f"-arch={find_architecture(form, capability)}"
        command = [tool, "-v", asked, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DeviceError(f"ptxas refuses the kernel: {done.stderr.strip():.400}")
        counts = {}
        for told in done.stderr.split("Compiling entry function '")[1:]:
            found = [re.search(rf"(\d+) {x}", told) for x in ("registers", "bytes spill stores")]
            registers, spilled = (int(one[1]) if one else 0 for one in found)
            counts[told.partition("'")[0]] = registers, spilled
        return Assembled(made.read_bytes(), counts, "serialized" in done.stderr)
