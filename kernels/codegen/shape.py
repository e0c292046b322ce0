"""Shapes of microkernels: what their code depends on, their frames and their modes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tilesolve.kernels.dtypes import lanes, real_of

FIELDS = (
    "a",
    "b",
    "k",
    "a_step",
    "b_step",
    "rows_a",
    "columns_b",
    "sums_a",
    "sums_b",
    "next_a",
    "a_ahead",
    "b_ahead",
    "more",
    "a_move",
    "b_move",
    "rows_a_move",
    "columns_b_move",
    "rows_c_move",
    "columns_c_move",
    "next_step",
    "next_a_move",
    "fetch",
    "fetch_move",
    "fetches",
    "c",
    "rows_c",
    "columns_c",
    "rows",
    "prefetch_next",
    "mode",
    "alpha",
    "alpha_imaginary",
    "beta",
    "beta_imaginary",
    "rows_b",
    "lines",
    "lines_move",
    "line_count",
    "starts",
    "starts_rows",
    "apart",
    "bounds",
    "least",
    "largest",
    "c_ahead",
)
"""Names of the 8-byte fields of a frame, in order."""


HALVED_REGISTERS = 32
"""Vector registers of CPUs that have vectors of 512 bits, the only ones with halved groups."""


class Mode(IntEnum):
    """How a microkernel writes C.

    Examples
    --------
    >>> Mode(2).name
    'STREAM'
    """

    STORE = 0
    """Vectors of ``alpha * sum``; C is not read."""
    ADD = 1
    """Vectors of ``alpha * sum + beta * C``."""
    STREAM = 2
    """Aligned vectors by non-temporal stores; C is not read."""
    STREAM_PIECES = 3
    """As `STREAM`, but vectors in pieces of 16 bytes, and aligned to these alone."""
    PART = 4
    """As `STORE`, but of the last group only the rows that it has."""
    PART_ADD = 5
    """As `ADD`, but of the last group only the rows that it has."""
    SCATTER = 6
    """Element by element; C is not read."""
    SCATTER_ADD = 7
    """Element by element, ``beta * C`` added."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a microkernel's code depends on.

    Parameters
    ----------
    dtype
        Of all tensors.
    bits
        Vector width: 128, 256 or 512.
    vectors
        Groups of rows.
    columns
        Columns.
    group
        Columns that lie together in a micro-panel.
    packed
        Whether it reads micro-panels, or operands in place.
    halved
        Whether the last group's vectors are half as wide, as it has no more rows. Such kernels
        read rows from micro-panels, and never write whole vectors.
    mixed
        Whether only rows come from micro-panels, and columns are read in place.
    lanewise
        Whether columns have rows, too: each lane multiplies elements of its own. Both operands are
        read in place.
    source
        The dtype of the operands of lanewise kernels, where these are halves; else empty.
    pairing
        What it does with a row's and a column's element, as `Pairing` is written; empty where it
        adds up their products.

    Examples
    --------
    >>> shape = Shape("float64", 512, vectors=3, columns=8, group=8, packed=True)
    >>> shape.name, shape.rows
    ('packed_float64_512_3x8_8', 24)
    """

    dtype: str
    bits: int
    vectors: int
    columns: int
    group: int
    packed: bool
    halved: bool = False
    mixed: bool = False
    lanewise: bool = False
    source: str = ""
    pairing: str = ""

    @property
    def name(self) -> str:
        """The symbol that the kernel has in its object file."""
        kind = "halved" if self.halved else "packed" if self.packed else "placed"
        kind = "lanewise" if self.lanewise else f"{kind}_mixed" if self.mixed else kind
        dtype = self.source or self.dtype
        kind = f"{self.pairing} {kind}".lstrip()
        return f"{kind}_{dtype}_{self.bits}_{self.vectors}x{self.columns}_{self.group}"

    @property
    def real(self) -> str:
        """The dtype of the vectors."""
        return real_of(self.dtype)

    @property
    def complex(self) -> bool:
        """Whether an element is two numbers."""
        return self.real != self.dtype

    @property
    def takes_epilogue(self) -> bool:
        """Whether sums may begin with numbers of the rows, and end within bounds."""
        return not (self.complex or self.lanewise or self.pairing)

    @property
    def lanes(self) -> int:
        """Rows of one group."""
        return lanes(self.dtype, self.bits)

    @property
    def rows(self) -> int:
        """Rows of the whole tile."""
        return self.vectors * self.lanes

    @property
    def narrow(self) -> bool:
        """Whether a halved kernel has all of its vectors half as wide: where registers suffice."""
        groups = 2 * self.vectors - 1
        return self.halved and groups * self.columns + groups < HALVED_REGISTERS

    @property
    def accumulators(self) -> int:
        """Vectors that hold the tile of C."""
        groups = 2 * self.vectors - 1 if self.narrow else self.vectors
        return groups * self.columns * (2 if self.complex else 1)
