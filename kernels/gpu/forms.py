"""Forms of products on GPUs: all that a kernel's code depends on, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Arithmetic = Literal["float16", "bfloat16", "tf32", "float64", "fma32", "fma64"]
"""How warps multiply: tensor cores on halves, float32 rounded to TF32 and float64; or FMAs."""

WARP = 32
"""Lanes of a warp."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a warp multiplies at once, of operands that lie in its lanes' registers.

    Parameters
    ----------
    rows, columns, depth
        Its sides.
    registers
        That a lane holds of A, B and C, of 32 bits.
    element, summed
        Bytes of an element of the operands, and of a sum.
    pads
        Bytes by which rows in shared memory are longer than what is copied, so that lanes read
        from different banks: where they lie along the sum, and where along rows or columns.
    instructions
        Of tensor cores; 0 for FMAs.
    """

    rows: int
    columns: int
    depth: int
    registers: tuple[int, int, int]
    element: int
    summed: int
    pads: tuple[int, int]
    instructions: int


FRAGMENTS: dict[Arithmetic, Fragment] = {
    "float16": Fragment(16, 16, 16, (4, 4, 8), 2, 4, (16, 16), 2),
    "bfloat16": Fragment(16, 16, 16, (4, 4, 8), 2, 4, (16, 16), 2),
    "tf32": Fragment(16, 8, 8, (4, 2, 4), 4, 4, (16, 32), 1),
    "float64": Fragment(8, 8, 4, (2, 2, 4), 8, 8, (32, 32), 1),
    "fma32": Fragment(16, 8, 1, (4, 1, 4), 4, 4, (16, 16), 0),
    "fma64": Fragment(16, 8, 1, (8, 2, 8), 8, 8, (16, 16), 0),
}
"""The fragments of each arithmetic."""


@dataclass(frozen=True, slots=True)
class Operand:
    """How an operand is copied to shared memory.

    Parameters
    ----------
    along_sum
        Whether its rows there lie along the sum; else along the rows or columns of C.
    width
        Elements side by side that are copied at once.
    free_linear, sum_linear
        Whether elements along C's side, and along the sum, are equally far apart; else their
        places stand in a table.
    """

    along_sum: bool
    width: int
    free_linear: bool = True
    sum_linear: bool = True


@dataclass(frozen=True, slots=True)
class Form:
    """A kernel for products of matrices, or of tensors by tables of their elements' places.

    Parameters
    ----------
    arithmetic
        How warps multiply.
    rows, columns, depth
        Of C that a block of threads computes, and of the sum that it copies at once.
    warps
        That rows and columns of a block are divided among.
    stages
        Copies of the operands' tiles in shared memory: one in use, the others on their way.
    first, second
        How the operands are copied.
    row_linear, column_linear
        As for operands, of C.
    partial
        Whether a block has a part of the sum alone, which goes to memory in between, in order;
        another kernel adds parts up.

    Examples
    --------
    >>> form = Form("float16", 128, 128, 32, (2, 4), 3, Operand(True, 8), Operand(False, 8))
    >>> form.threads, form.shared_bytes, form.instructions(80)
    (256, 56832, 32)
    """

    arithmetic: Arithmetic
    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]
    stages: int
    first: Operand
    second: Operand
    row_linear: bool = True
    column_linear: bool = True
    partial: bool = False

    @property
    def fragment(self) -> Fragment:
        """What a warp multiplies at once."""
        return FRAGMENTS[self.arithmetic]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * self.warps[0] * self.warps[1]

    @property
    def warp_tile(self) -> tuple[int, int]:
        """Rows and columns of C that a warp computes."""
        return self.rows // self.warps[0], self.columns // self.warps[1]

    @property
    def side(self) -> tuple[int, int]:
        """Fragments of a warp along rows and columns."""
        rows, columns = self.warp_tile
        return rows // self.fragment.rows, columns // self.fragment.columns

    def pitch(self, operand: int) -> int:
        """Return the bytes of a row of an operand's tile in shared memory; A is 0, B is 1."""
        own = (self.first, self.second)[operand]
        length = self.depth if own.along_sum else (self.rows, self.columns)[operand]
        return length * self.fragment.element + self.fragment.pads[not own.along_sum]

    def tile_bytes(self, operand: int) -> int:
        """Return the bytes of an operand's tile in shared memory."""
        own = (self.first, self.second)[operand]
        lines = (self.rows, self.columns)[operand] if own.along_sum else self.depth
        return lines * self.pitch(operand)

    @property
    def stage_bytes(self) -> int:
        """Bytes of both operands' tiles."""
        return self.tile_bytes(0) + self.tile_bytes(1)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return self.stages * self.stage_bytes

    def instructions(self, capability: int) -> int:
        """Return the instructions of tensor cores in the kernel's loop over the sum."""
        rows, columns = self.side
        halves = self.fragment.element == 2
        each = self.fragment.instructions * (2 if halves and capability < 80 else 1)
        return rows * columns * (self.depth // self.fragment.depth) * each
