"""Compiled kernels in memory and on disk, compiled once for a CPU, a dtype and a vector width."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from tilesolve.kernels.codegen.loaded_code import LoadedParts
from tilesolve.kernels.codegen.object_code import Family, build
from tilesolve.kernels.codegen.shape import Shape
from tilesolve.kernels.objects import load_object, object_path
from tilesolve.machine.microkernel import uses_half_vectors
from tilesolve.machine.model import Machine
from tilesolve.system.files import POLL_SECONDS, remove_files
from tilesolve.system.first_use import tell_of_compiling
from tilesolve.system.locks import make_lock
from tilesolve.system.makers import start_maker
from tilesolve.system.trust import kept_folder

WAIT_SECONDS = 120.0
"""Seconds to wait for another process that compiles the same kernels."""

_lock = make_lock()
_loaded: dict[tuple[Family, bool], LoadedParts] = {}
_makers: dict[tuple[Family, bool], subprocess.Popen[bytes]] = {}


def code_folder() -> Path:
    """Return where object files are kept."""
    return kept_folder("code")


def clear() -> int:
    """Remove all object files, and return how many there were; loaded kernels serve on.

    Raises
    ------
    FileAccessError
        If a file cannot be removed.
    """
    return remove_files(code_folder(), "*.o")


def family_of(dtype: str, machine: Machine, pairing: str = "") -> Family:
    """Return the family that plans of a dtype run with, and of a pairing of rows and columns.

    Examples
    --------
    >>> family_of("float64", Machine.load("i7-6700k")).bits
    256
    """
    halved = uses_half_vectors(machine, dtype)
    bits, registers = machine.vector_bits, machine.vector_registers
    return Family.of(dtype, bits, registers, halved=halved, pairing=pairing)


def start_compiling(family: Family, *, packed: bool) -> None:
    """Have another process compile kernels, if no file has them and a core is free.

    This process compiles the functions that run plans meanwhile. After it the other one compiles
    the family's other kernels, for later runs. Runs that begin before it is done compile the few
    that they need; `load_kernels` waits for all.

    `packed` asks for the kernels that read packed copies, not for those that read in place.

    Examples
    --------
    >>> family = Family("float64", 128, 4, 4)
    >>> start_compiling(family, packed=True)
    >>> load_kernels(family, packed=True).address("packed_float64_128_1x1_4") > 0
    True
    """
    part = family, packed
    with _lock:
        if part in _loaded or part in _makers or all(path.exists() for path in _objects(*part)):
            return
        maker = start_maker(
            f"from {__name__} import Family, load_kernels\n"
            f"for packed in {packed}, {not packed}:\n"
            f"    load_kernels({family!r}, packed=packed)"
        )
        if maker is not None:
            _makers[part] = maker


def is_being_made(family: Family, *, packed: bool) -> bool:
    """Return whether another process still compiles kernels that this one has started it for.

    Examples
    --------
    >>> is_being_made(Family("float64", 128, 4, 4), packed=True)
    False
    """
    part = family, packed
    with _lock:
        maker = None if part in _loaded else _makers.get(part)
        unfinished = maker is not None and maker.poll() is None
        return unfinished and not all(path.exists() for path in _objects(*part))


def load_kernels(family: Family, *, packed: bool) -> LoadedParts:
    """Return kernels of a family: from memory, from disk, or compiled now and kept in both.

    A file on disk is used as `make_object` says.

    `packed` asks for the kernels that read packed copies, not for those that read in place.

    Examples
    --------
    >>> family = Family("float64", 128, 4, 4)
    >>> load_kernels(family, packed=True) is load_kernels(family, packed=True)
    True
    """
    part = family, packed
    with _lock:
        if part not in _loaded:
            maker, found = _makers.get(part), []
            with tell_of_compiling():
                for path, what in _objects(*part).items():
                    if maker is not None:
                        _wait_for(path, maker)
                    found.append(load_object(path, partial(build, *what)))
            _loaded[part] = LoadedParts(tuple(found))
        return _loaded[part]


def _objects(family: Family, packed: bool) -> dict[Path, tuple[Family, tuple[Shape, ...]]]:
    """Return the files of a part, and what is compiled for each.

    Kernels with halved vectors have a file of their own, and so has what packs halves: all others
    are those of other families, too.
    """
    shapes = family.part(packed=packed)
    shared = family if family.lanewise else replace(family, source="")
    kind = "mixed" if family.mixed else "lanewise" if family.lanewise else ""
    kind = kind or ("packed" if packed else "in_place")
    found = {}
    for name, one, wanted in (
        (kind, replace(shared, halved=False), [shape for shape in shapes if not shape.halved]),
        ("halved", shared, [shape for shape in shapes if shape.halved]),
        ("packers", replace(family, halved=False), []),
    ):
        if wanted or (name == "packers" and shared != family):
            path = object_path("code", f"{one.source or one.dtype}-{one.bits}-{name}", one)
            found[path] = one, tuple(wanted)
    return found


def _wait_for(path: Path, maker: subprocess.Popen[bytes]) -> None:
    """Wait until a process has made a file, or has ended; end it if it takes too long."""
    end = time.monotonic() + WAIT_SECONDS
    while not path.exists() and maker.poll() is None:
        if time.monotonic() > end:
            maker.kill()
            maker.wait()
        time.sleep(POLL_SECONDS)
