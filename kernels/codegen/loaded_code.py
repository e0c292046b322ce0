"""Object files in memory, ready to be called.

LLVM's newer linker puts the sections of an object side by side. Its older one maps each where the
system likes, and ends the process where that is more than 2 GB from another one: see
docs/decisions/056.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from mmap import MAP_PRIVATE, mmap
from typing import Any

import llvmlite.binding as llvm

from tilesolve.contractions.errors import MachineError, MemoryLimitError

_HEADER = struct.Struct("<40xQ12xH2x")
"""Of an ELF file of 64 bits: where the table of sections begins, and how many there are."""

_SECTION = struct.Struct("<4xI16xQQI20x")
"""Of a section: kind, first byte, bytes, and the number of the section with its names."""

_SYMBOL = struct.Struct("<IB1xH16x")
"""Of a symbol: where its name begins, binding and kind, and the number of its section."""

_SYMBOLS, _NOWHERE, _LOCAL, _FUNCTION = 2, 0, 0, 2
"""ELF's numbers: of a section of symbols, no section, a local symbol, and a function."""

_LINKERS_OWN = "_GLOBAL_OFFSET_TABLE_"
"""What code may refer to that is found nowhere, as the linker makes it."""

_ROOM, _LEAST_ROOM = 4, 2**20
"""Bytes that have to be free for each byte of an object, and for any: LLVM's own memory included.

LLVM ends the process where it gets no memory for what it needs itself.
"""

_TURNS = 64
"""Objects that one linker links: it keeps some kB of each, also when the object is gone."""

_numbers = count()


class LoadedCode:
    """An object file in memory, ready to be called.

    Its code can be executed and not be written, until the last reference to this is gone.

    Parameters
    ----------
    code
        What `build` returned, here or in an earlier process on the same CPU.

    Raises
    ------
    MachineError
        If the code calls a function that this process lacks.
    MemoryLimitError
        If the system has no memory for it.

    Examples
    --------
    >>> from tilesolve.kernels.codegen.object_code import Family, build
    >>> family = Family("float64", 128, 4, 4)
    >>> LoadedCode(build(family)).address("packed_float64_128_1x1_4") > 0
    True
    """

    def __init__(self, code: bytes) -> None:
        functions, wanted = _read_symbols(code)
        library = llvm.JITLibraryBuilder().add_object_img(code)
        for name in functions:
            library.export_symbol(name)
        for name in wanted:
            library.import_symbol(name, _find_symbol(name))
        try:
            mmap(-1, _ROOM * len(code) + _LEAST_ROOM, MAP_PRIVATE).close()
            number = next(_numbers)
            self._linked = library.link(_linker(number // _TURNS), f"object{number}")
        except (OSError, RuntimeError) as error:
            raise MemoryLimitError(
                f"{len(code)} bytes of machine code cannot be loaded: the system gives no memory "
                "that can be executed"
            ) from error
        self._addresses: dict[str, int] = {name: self._linked[name] for name in functions}

    def has(self, name: str) -> bool:
        """Return whether a kernel is part of it."""
        return name in self._addresses

    def address(self, name: str) -> int:
        """Return where a kernel begins."""
        return self._addresses[name]


@dataclass(frozen=True, slots=True)
class LoadedParts:
    """Several objects in memory, of one or the other of which each function is.

    Examples
    --------
    >>> from tilesolve.kernels.codegen.object_code import Family, build
    >>> family = Family("float64", 128, 4, 4)
    >>> parts = [LoadedCode(build(family, family.shapes[n : n + 1])) for n in range(2)]
    >>> len({LoadedParts(tuple(parts)).address(shape.name) for shape in family.shapes[:2]})
    2
    """

    parts: tuple[LoadedCode, ...]

    def address(self, name: str) -> int:
        """Return where a kernel begins."""
        return next(part.address(name) for part in self.parts if part.has(name))


@lru_cache(maxsize=1)
def _linker(_turn: int) -> Any:
    """Return what links objects: one for many, as it takes longer to make than most of them.

    It is gone with the last of its objects. Until then it remembers the others.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


def _find_symbol(name: str) -> int:
    """Return where a function is that code calls, one of C's or of Python's."""
    try:
        found = ctypes.cast(ctypes.pythonapi[name], ctypes.c_void_p).value
    except AttributeError as error:
        raise MachineError(f"machine code calls {name}, which this process lacks") from error
    assert found is not None
    return found


def _read_symbols(code: bytes) -> tuple[list[str], list[str]]:
    """Return the functions of an object file, and the names of what it needs from elsewhere."""
    begin, number = _HEADER.unpack_from(code)
    sections = list(_SECTION.iter_unpack(code[begin : begin + number * _SECTION.size]))
    functions, wanted = [], []
    for kind, first, size, names in sections:
        if kind != _SYMBOLS:
            continue
        _, text, length, _ = sections[names]
        table = code[text : text + length]
        for at, traits, section in _SYMBOL.iter_unpack(code[first : first + size]):
            name = table[at : table.index(b"\0", at)].decode()
            binding, sort = divmod(traits, 16)
            if section == _NOWHERE and name and name != _LINKERS_OWN:
                wanted.append(name)
            elif binding != _LOCAL and sort == _FUNCTION:
                functions.append(name)
    return functions, wanted
