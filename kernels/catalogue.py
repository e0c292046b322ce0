"""Microkernels to choose from: their register tiles and what using them costs."""

from __future__ import annotations

from dataclasses import dataclass

from tilesolve.kernels.dtypes import lanes


@dataclass(frozen=True, slots=True)
class Microkernel:
    """A register tile and the costs that the planner counts with.

    Parameters
    ----------
    rows, columns
        MR and NR: elements of the output that stay in registers over a call.
    efficiency
        Share of the machine's peak that its inner loop reaches.
    call
        Cycles that a call costs besides its arithmetic: entry, and C in and out.
    pack
        Cycles that packing one element costs.
    fetch
        Cycles that an element of rows read in place costs each time it enters the second cache.
    stream
        Cycles that one of columns read in place costs each time it enters the first.

    Examples
    --------
    >>> Microkernel(rows=24, columns=8).rows
    24
    """

    rows: int
    columns: int
    efficiency: float = 1.0
    call: float = 60.0
    pack: float = 1.0
    fetch: float = 0.5
    stream: float = 0.25


def default(dtype: str, vector_bits: int, registers: int) -> Microkernel:
    """Return the microkernel that holds where none has been measured.

    Three vectors of rows by eight columns where there are 32 registers, two by six where there
    are 16: 24 and 12 accumulators, so that the vectors of A and the broadcast of B fit beside
    them. A complex element needs two accumulators: half as many columns, and with 16 registers one
    vector of rows, so that nothing is spilled.

    Examples
    --------
    >>> default("float64", 512, 32)
    Microkernel(rows=24, columns=8, efficiency=1.0, call=60.0, pack=1.0, fetch=0.5, stream=0.25)
    >>> default("float32", 256, 16)
    Microkernel(rows=16, columns=6, efficiency=1.0, call=60.0, pack=1.0, fetch=0.5, stream=0.25)
    """
    group = max(1, lanes(dtype, vector_bits))
    vectors, columns = (3, 8) if registers >= 32 else (2, 6)
    if dtype.startswith("complex"):
        vectors, columns = (vectors, columns // 2) if registers >= 32 else (1, columns)
    return Microkernel(vectors * group, columns)
