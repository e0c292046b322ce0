"""What tests of machine code share: memory with guard zones, and kernels compiled once."""

import ctypes
import mmap
import platform
from dataclasses import replace
from functools import cache

import numpy as np
from llvmlite import binding

from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import Family, TargetCpu, build, optimise, parse_family
from tilesolve.kernels.objects import make_object, object_path
from tilesolve.kernels.programs.compiled_program import lower_program
from tilesolve.kernels.programs.layout import Layout
from tilesolve.kernels.programs.skeleton import find_skeleton

WIDTHS = {128: 16, 256: 16, 512: 32}
"""Bits of vectors, and how many of them a machine with such vectors has."""

_WORD = 0x7FFDBEEF
"""Unwritten memory: one word is a float32 that is not a number, two are such a float64, and as an
address or an offset of one they lie nowhere."""

NOWHERE = _WORD << 32 | _WORD
"""An offset that is not to be used."""

_ZONE = 256
"""Bytes between pieces, and more than any vector has."""

_SIZE, _EDGE = 1 << 18, 1 << 16
"""Bytes of a room, and those at each edge of it that a piece may have for itself."""


@cache
def _memory():
    """Return bytes whose neighbours, on both sides, cannot be accessed."""
    pages = mmap.mmap(-1, _SIZE + 2 * mmap.PAGESIZE)
    whole = np.frombuffer(pages, np.uint8)
    for begin in (0, len(whole) - mmap.PAGESIZE):
        address = ctypes.c_void_p(whole.ctypes.data + begin)
        assert not ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), 0)
    return whole[mmap.PAGESIZE : -mmap.PAGESIZE]


class GuardedMemory:
    """Memory from which pieces are taken, with guard zones around them, all of it poisoned.

    There is only one: the next room has the same memory.
    """

    def __init__(self):
        self.bytes = _memory()
        self.address = self.bytes.ctypes.data
        self.bytes.view(np.uint32)[:] = _WORD
        self.used = _EDGE

    def take(self, size, shift=0, edge=None):
        """Return the address of a new piece.

        It begins `shift` bytes behind a multiple of 64; or at the "first" edge of the memory, or
        ends at the "last" one, where an access beyond is the end of the process.
        """
        assert size <= _EDGE - _ZONE
        if edge is not None:
            return self.address + (0 if edge == "first" else self.bytes.size - size)
        begin = self.used + -self.used % 64 + shift
        self.used = begin + size + _ZONE
        assert self.used <= self.bytes.size - _EDGE
        return self.address + begin

    def scatter(self, places, values):
        """Write each value to the address at its position in `places`."""
        raw = np.ascontiguousarray(values)[..., None].view(np.uint8)
        self.bytes[self.offsets(places, raw.shape[-1])] = raw

    def gather(self, places, dtype):
        """Read the value at each address in `places`."""
        size = np.dtype(dtype).itemsize
        return self.bytes[self.offsets(places, size)].view(dtype)[..., 0]

    def table(self, values, length=0):
        """Return the address of a new table of integers; entries beyond `values` are poison."""
        values = np.asarray(values, np.int64)
        begin = self.take(8 * max(len(values), length))
        self.scatter(begin + 8 * np.arange(len(values)), values)
        return begin

    def frame(self, fields, values):
        """Return the address of a new frame; fields without a value are poison."""
        begin = self.take(8 * len(fields))
        for name, value in values.items():
            value = np.asarray(value)
            value = value.astype(np.int64) if value.dtype.kind in "iu" else value
            self.scatter(np.array(begin + 8 * fields.index(name)), value)
        return begin

    def offsets(self, places, size):
        """Return where the bytes of elements at some addresses lie in `bytes`."""
        offsets = np.asarray(places, np.int64)[..., None] - self.address
        return offsets + np.arange(size)


def assembly(family, shapes=None, cpu=None):
    """Return the assembly of what `build` makes."""
    parsed, machine = parse_family(family, shapes, cpu)
    return machine.emit_assembly(parsed)


def program_assembly(program, cpu):
    """Return the assembly of a program for a CPU, with its widest vectors."""
    layout = Layout.rows(program.computation)
    module = lower_program(find_skeleton(program)[0], layout, cpu.bits, cpu)
    parsed, machine = optimise(module, cpu, unroll=False)
    return machine.emit_assembly(parsed)


def keep_once(make, family, shapes=None, cpu=None):
    """Return what `build` makes, or the text that `assembly` does: the first run alone makes it."""
    names = None if shapes is None else [shape.name for shape in shapes]
    name = f"{family.dtype}-{family.bits}-some"

    def made():
        found = make(family, shapes, cpu)
        return found if isinstance(found, bytes) else found.encode()

    return make_object(object_path("code", name, make.__name__, family, cpu, names), made)


def build_once(family, shapes=None, cpu=None):
    """Return the object file of a family's kernels, as `build` does."""
    return keep_once(build, family, shapes, cpu)


@cache
def load_kernels(dtype, bits, plain=False, pairing=""):
    """Return the packing kernels of a family, and some microkernels of all kinds, compiled once.

    Parameters
    ----------
    plain
        Without what this CPU has beyond every other of its architecture: LLVM then makes wide
        vectors of narrow ones, and FMAs of multiplications and additions.
    pairing
        What they do with pairs of elements in place of adding up their products.
    """
    family = Family.of(dtype, bits, WIDTHS[bits], pairing=pairing)
    wanted = [(1, 1), (1, 99), (2, 5), (3, 99), (4, 3)]
    if plain or pairing:  # the widest take as long to compile as all others
        wanted = [(1, 1), (1, family.group + 1), (2, 5), (4, 3)]
    sides = {(groups, min(columns, family.max_columns(groups))) for groups, columns in wanted}
    others = replace(family, mixed=True), replace(family, lanewise=True)
    every = [shape for one in (family, *others) for shape in one.shapes]
    shapes = [shape for shape in every if (shape.vectors, shape.columns) in sides]
    cpu = TargetCpu(binding.get_default_triple(), "x86-64", "", 128) if plain else TargetCpu.here()
    return family, shapes, LoadedCode(build_once(family, shapes, cpu))


def list_plain():
    """Return the values of `plain` that can be tried here."""
    return (False, True) if platform.machine() == "x86_64" else (False,)


def call(kernels, name, frame):
    """Run a kernel."""
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(kernels.address(name))(frame)
