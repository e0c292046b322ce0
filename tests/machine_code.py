"""What tests of machine code share: memory with guard zones, and kernels compiled once."""

import ctypes
import platform
from functools import cache

import numpy as np
from llvmlite import binding

from tilesolve.kernels.code import Cpu, Family, Loaded, build
from tilesolve.packing.buffers import allocate

WIDTHS = {128: 16, 256: 16, 512: 32}
"""Bits of vectors, and how many of them a machine with such vectors has."""

_WORD = 0x7FFDBEEF
"""Unwritten memory: one word is a float32 that is not a number, two are such a float64, and as an
address or an offset of one they lie nowhere."""

_ZONE = 256
"""Bytes between pieces, and more than any vector has."""


class Room:
    """Memory from which pieces are taken, with guard zones around them, all of it poisoned."""

    def __init__(self, size=1 << 18):
        self.bytes = allocate(size)
        self.bytes.view(np.uint32)[:] = _WORD
        self.used = _ZONE

    @property
    def address(self):
        return self.bytes.ctypes.data

    def take(self, size, shift=0):
        """Return the address of a new piece, `shift` bytes behind a multiple of 64."""
        self.used += -self.used % 64 + shift
        begin = self.used
        self.used += size + _ZONE
        assert self.used <= self.bytes.size
        return self.address + begin

    def scatter(self, places, values):
        """Write each value to the address at its position in `places`."""
        raw = np.ascontiguousarray(values)[..., None].view(np.uint8)
        self.bytes[self._bytes_of(places, raw.shape[-1])] = raw

    def gather(self, places, dtype):
        """Read the value at each address in `places`."""
        size = np.dtype(dtype).itemsize
        return self.bytes[self._bytes_of(places, size)].view(dtype)[..., 0]

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

    def _bytes_of(self, places, size):
        offsets = np.asarray(places, np.int64)[..., None] - self.address
        return offsets + np.arange(size)


@cache
def loaded(dtype, bits, plain=False):
    """Compile the packing kernels of a family, and some microkernels of all kinds.

    Parameters
    ----------
    plain
        Without what this CPU has beyond every other of its architecture: LLVM then makes wide
        vectors of narrow ones, and FMAs of multiplications and additions.
    """
    family = Family.of(dtype, bits, WIDTHS[bits])
    sides = {
        (groups, min(columns, family.most_columns(groups)))
        for groups, columns in ((1, 1), (1, 99), (2, 5), (3, 99), (4, 3))
    }
    shapes = [shape for shape in family.shapes if (shape.vectors, shape.columns) in sides]
    cpu = Cpu(binding.get_default_triple(), "x86-64", "", 128) if plain else Cpu.here()
    return family, shapes, Loaded(build(family, shapes, cpu))


def plain_or_not():
    """Return the values of `plain` that can be tried here."""
    return (False, True) if platform.machine() == "x86_64" else (False,)


def call(kernels, name, frame):
    """Run a kernel."""
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(kernels.address(name))(frame)
