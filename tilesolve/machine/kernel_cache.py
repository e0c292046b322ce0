"""Compiled kernels in memory and on disk, compiled once for a CPU, a dtype and a vector width."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tilesolve.kernels.codegen.object_code import Family, LoadedCode, build, fingerprint
from tilesolve.machine.model import Machine
from tilesolve.system.files import remove_files
from tilesolve.system.kept_objects import read_object, write_object
from tilesolve.system.locks import Lock
from tilesolve.system.trust import kept_folder

WAIT_SECONDS = 120.0
"""Seconds to wait for another process that compiles the same kernels."""

_lock = Lock()
_loaded: dict[Family, LoadedCode] = {}
_makers: dict[Family, subprocess.Popen[bytes]] = {}


def code_folder() -> Path:
    """Return where object files are kept.

    Examples
    --------
    >>> code_folder().name
    'code'
    """
    return kept_folder("code")


def clear() -> int:
    """Remove all object files, and return how many there were; loaded kernels serve on.

    Raises
    ------
    FileAccessError
        If a file cannot be removed.
    """
    return remove_files(code_folder(), "*.o")


def family_of(dtype: str, machine: Machine) -> Family:
    """Return the family that plans of a dtype run with.

    Examples
    --------
    >>> family_of("float64", Machine.load("i7-6700k")).bits
    256
    """
    halved = machine.uses_half_vectors(dtype)
    return Family.of(dtype, machine.vector_bits, machine.vector_registers, halved=halved)


def start_compiling(family: Family) -> None:
    """Have another process compile a family's kernels, if no file has them and a core is free.

    A process that compiles the macrokernel meanwhile needs as long; `load_kernels` then finds the
    file, or compiles the kernels itself.

    Examples
    --------
    >>> family = Family("float64", 128, 4, 4)
    >>> start_compiling(family)
    >>> load_kernels(family).address("packed_float64_128_1x1_4") > 0
    True
    """
    with _lock:
        known = family in _loaded or family in _makers or _path(family).exists()
        if known or not sys.executable or len(os.sched_getaffinity(0)) < 2:
            return
        names = "Family, load_kernels"
        order = f"from {__name__} import {names}; load_kernels({family!r})"
        nothing = subprocess.DEVNULL
        try:
            _makers[family] = subprocess.Popen(
                [sys.executable, "-P", "-c", order], stdin=nothing, stdout=nothing, stderr=nothing
            )
        except OSError:
            return  # no process can be had


def load_kernels(family: Family) -> LoadedCode:
    """Return a family's kernels: from memory, from disk, or compiled now and kept in both.

    A file that is damaged, or that somebody else could have written, is reported once and written
    again; its code never runs.

    Examples
    --------
    >>> family = Family("float64", 128, 4, 4)
    >>> load_kernels(family) is load_kernels(family)
    True
    """
    with _lock:
        if family not in _loaded:
            _loaded[family] = LoadedCode(_code(family))
        return _loaded[family]


def _path(family: Family) -> Path:
    return code_folder() / f"{family.dtype}-{family.bits}-{fingerprint(family)}.o"


def _code(family: Family) -> bytes:
    path, maker = _path(family), _makers.pop(family, None)
    if maker is not None:
        try:
            maker.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            maker.kill()
            maker.wait()
    code = read_object(path)
    if code is None:
        code = build(family)
        write_object(path, code)
    return code
