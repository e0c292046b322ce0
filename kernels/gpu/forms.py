"""Forms of products on GPUs: all that a kernel's code depends on, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gcd, prod
from typing import Literal

from tilesolve.contractions.epilogue_terms import SUM
from tilesolve.contractions.statements.terms import Term

Arithmetic = Literal["float16", "bfloat16", "int8", "tf32", "float64", "fma32", "fma64"]
"""How warps multiply: tensor cores on halves, bytes, float32 rounded to TF32 and float64; or FMAs.
"""

WARP = 32
"""Lanes of a warp."""

GROUP = 4 * WARP
"""Lanes of four warps, which multiply together by `wgmma`."""

GROUPED: tuple[Arithmetic, ...] = ("float16", "bfloat16", "int8", "tf32")
"""How groups of four warps multiply."""

DIMENSIONS = 5
"""Of a tensor map, at most."""

BARRIER_BYTES = 8
"""Bytes of a barrier of bulk copies in shared memory."""

SWIZZLE_BYTES = 1024
"""Where tiles that `wgmma` reads begin: at multiples of this."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a warp, or a group of four, multiplies at once.

    A lane holds so many registers of 32 bits of A, B and C. An element of the operands, and a sum,
    have so many bytes; the dtypes are of C and of sums. Rows in shared memory are padded, so that
    lanes read from different banks: where they lie along the sum, and where along rows or columns.
    The instructions are those of tensor cores; FMAs have none. Operands of groups of four warps
    stay in shared memory.
    """

    rows: int
    columns: int
    depth: int
    registers: tuple[int, int, int]
    element: int
    summed: int
    dtypes: tuple[str, str]
    pads: tuple[int, int]
    instructions: int
    lanes: int = WARP

    @property
    def sums(self) -> int:
        """Sums that a lane holds."""
        return 4 * self.registers[2] // self.summed

    @property
    def result(self) -> int:
        """Bytes of an element of C."""
        return self.element if self.element > 1 else self.summed


_HALVES = 16, 16, 16, (4, 4, 8), 2, 4
_BYTES = 16, 16, 32, (4, 4, 8), 1, 4

FRAGMENTS: dict[Arithmetic, Fragment] = {
    "float16": Fragment(*_HALVES, ("float16", "float32"), (16, 16), 2),
    "bfloat16": Fragment(*_HALVES, ("bfloat16", "float32"), (16, 16), 2),
    "int8": Fragment(*_BYTES, ("int32", "int32"), (16, 16), 2),
    "tf32": Fragment(16, 8, 8, (4, 2, 4), 4, 4, ("float32", "float32"), (16, 32), 1),
    "float64": Fragment(8, 8, 4, (2, 2, 4), 8, 8, ("float64", "float64"), (32, 32), 1),
    "fma32": Fragment(16, 8, 1, (4, 1, 4), 4, 4, ("float32", "float32"), (16, 16), 0),
    "fma64": Fragment(16, 8, 1, (8, 2, 8), 8, 8, ("float64", "float64"), (16, 16), 0),
}
"""The fragments of each arithmetic."""


@lru_cache
def find_fragment(arithmetic: Arithmetic, grouped: int = 0) -> Fragment:
    """Return the fragment of a warp; or of a group of four, of so many columns.

    Examples
    --------
    >>> found = find_fragment("tf32", 128)
    >>> found.rows, found.columns, found.depth, found.sums
    (64, 128, 8, 64)
    """
    own = FRAGMENTS[arithmetic]
    if not grouped:
        return own
    held, depth = (0, 0, grouped // 2), 32 // own.element
    return replace(
        own, rows=64, columns=grouped, depth=depth, registers=held, instructions=1, lanes=GROUP
    )


def name_engine(arithmetic: Arithmetic, *, grouped: bool) -> str:
    """Return what devices call the peak of warps, or of groups of four."""
    return f"wgmma_{arithmetic}" if grouped else arithmetic


@dataclass(frozen=True, slots=True)
class Box:
    """An operand that bulk copies fetch by a tensor map: extents of letters but for the outermost.

    They are of C's side, of the sum and of batches, the outermost first; letters that follow each
    other in memory are one. None says that there is no letter at all.
    """

    free: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()
    batches: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """How an operand is copied to shared memory, so many elements side by side at once.

    Its rows there lie along the sum, or else along rows or columns of C. Where elements along C's
    side, or along the sum, are not equally far apart, a table has their places. With a box one
    thread has whole tiles fetched.
    """

    along_sum: bool
    width: int
    free_linear: bool = True
    sum_linear: bool = True
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of sums in C, in the kernel that has all of each.

    What is stored is a term of `SUM` and of elements of the arrays: of C, and of operands of the
    epilogue. Of each, rows and columns are equally far apart or not.
    """

    arithmetic: Arithmetic
    linear: tuple[tuple[bool, bool], ...] = ((True, True),)
    term: Term = SUM

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of C and of the epilogue's operands, in kernels and in terms."""
        return ("output", *(f"operand{at}" for at in range(len(self.linear) - 1)))

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of the arrays' sides in kernels."""
        return tuple(f"{name}_{side}" for name in self.arrays for side in ("row", "column"))


@dataclass(frozen=True, slots=True)
class Form:
    """A kernel for products of matrices, or of tensors by tables of their elements' places.

    Parameters
    ----------
    ending, first, second
        What becomes of sums, and how operands are copied.
    rows, columns, depth, warps
        Of C that a block of threads computes, and of the sum that it copies at once; warps, or
        groups of four, that rows and columns are divided among.
    stages
        Copies of the operands' tiles in shared memory: one in use, of groups two, the others on
        their way.
    partial
        Whether a block has a part of the sum alone, which goes to memory in between, in order;
        another kernel adds parts up.
    grouped
        Whether four warps multiply together by `wgmma`, which reads operands from shared memory.

    Examples
    --------
    >>> operands = Operand(True, 8), Operand(False, 8)
    >>> form = Form(Ending("float16"), 128, 128, 32, (2, 4), 3, *operands)
    >>> form.threads, form.shared_bytes, form.instructions(80)
    (256, 56832, 32)
    """

    ending: Ending
    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]
    stages: int
    first: Operand
    second: Operand
    partial: bool = False
    grouped: bool = False

    @property
    def arithmetic(self) -> Arithmetic:
        """How warps multiply."""
        return self.ending.arithmetic

    @property
    def fragment(self) -> Fragment:
        """What a warp, or a group of four, multiplies at once."""
        return find_fragment(self.arithmetic, self.grouped and self.columns // self.warps[1])

    @property
    def engine(self) -> str:
        """What multiplies, as devices call its peak."""
        return name_engine(self.arithmetic, grouped=self.grouped)

    @property
    def instruction(self) -> str:
        """What multiplies, as PTX calls it."""
        one = self.fragment
        if not one.instructions:
            return "fma"
        name = "wgmma.mma_async" if self.grouped else "mma.sync"
        return f"{name} m{one.rows}n{one.columns // one.instructions}k{one.depth}"

    @property
    def operands(self) -> tuple[Operand, Operand]:
        """How both operands are copied."""
        return self.first, self.second

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.fragment.lanes * self.warps[0] * self.warps[1]

    @property
    def warp_tile(self) -> tuple[int, int]:
        """Rows and columns of C that a warp, or a group of four, computes."""
        return self.rows // self.warps[0], self.columns // self.warps[1]

    @property
    def read_tile(self) -> tuple[int, int]:
        """Rows and columns whose operands are read from shared memory once in each step."""
        return (self.fragment.rows, self.fragment.columns) if self.grouped else self.warp_tile

    @property
    def side(self) -> tuple[int, int]:
        """Fragments of a warp, or a group of four, along rows and columns."""
        rows, columns = self.warp_tile
        return rows // self.fragment.rows, columns // self.fragment.columns

    def tile(self, at: int) -> tuple[int, int]:
        """Return the lines of an operand's tile in shared memory, and the elements of each."""
        side = (self.rows, self.columns)[at]
        return (side, self.depth) if self.operands[at].along_sum else (self.depth, side)

    def pitch(self, at: int) -> int:
        """Return the bytes of a line of an operand's tile in shared memory; A is 0, B is 1.

        Lines of groups are not padded, and have 128 bytes at most: along rows or columns they are
        pieces, of which each has all steps of the sum before the next piece begins.
        """
        if self.grouped:
            piece = (self.fragment.rows, self.fragment.columns)[at]
            along = self.depth if self.operands[at].along_sum else piece
            return gcd(128, along * self.fragment.element)
        pad = self.fragment.pads[not self.operands[at].along_sum]
        return self.tile(at)[1] * self.fragment.element + pad

    def tile_bytes(self, at: int) -> int:
        """Return the bytes of an operand's tile in shared memory."""
        if self.grouped:
            lines, length = self.tile(at)
            size = lines * length * self.fragment.element
            return -(-size // SWIZZLE_BYTES) * SWIZZLE_BYTES
        return self.tile(at)[0] * self.pitch(at)

    @property
    def stage_bytes(self) -> int:
        """Bytes of both operands' tiles."""
        return self.tile_bytes(0) + self.tile_bytes(1)

    @property
    def ahead(self) -> int:
        """Tiles of both operands that are on their way while others are multiplied."""
        return self.stages - 1 - self.grouped

    @property
    def boxed(self) -> tuple[int, ...]:
        """Which operands bulk copies fetch; A is 0, B is 1."""
        return tuple(at for at, own in enumerate(self.operands) if own.box)

    def pieces(self, at: int) -> int:
        """Return how many boxes a tile is fetched in, each of lines of one pitch."""
        return self.tile(at)[1] * self.fragment.element // self.pitch(at)

    @property
    def chunks(self) -> tuple[int, int]:
        """Chunks of each operand's tile that a thread copies, none of what bulk copies fetch."""
        first, second = (
            0 if own.box else ceil(prod(self.tile(at)) / own.width / self.threads)
            for at, own in enumerate(self.operands)
        )
        return first, second

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block: tiles, and two barriers a stage for bulk copies."""
        barriers = 2 * BARRIER_BYTES if self.boxed else 0
        return self.stages * (self.stage_bytes + barriers)

    def instructions(self, capability: int) -> int:
        """Return the instructions of tensor cores in the kernel's loop over the sum."""
        rows, columns = self.side
        steps = self.depth // self.fragment.depth
        twice = self.fragment.element == 2 and capability < 80
        return rows * columns * steps * self.fragment.instructions * (1 + twice)
