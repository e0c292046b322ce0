"""Unrolling: how the loop over k of a microkernel is written, by its shape."""

from __future__ import annotations

from tilesolve.kernels.codegen.shape import Shape

PENDING = 8
"""Independent FMA chains that a kernel keeps busy: the latency times the rate of all CPUs known."""

WIDE = 512
"""Bits of vectors from which on a step takes so long that asking for lines costs nothing, and that
as many stores as a tile has fill the queue of stores."""

UNROLLED = 4
"""Steps of k in a trip of the loop, twice as many of narrow vectors and half as many of complex
numbers, once all lines of ``fetch`` are asked for. With both prefetches in each of six cycles whole
runs were a tenth slower (Zen 4, AVX2 kernels). A line of C is asked for in each trip: all of them
at once keep what comes from the second cache waiting (24 lines, 190 ns away, took 0.35 µs a call
instead of 0.1; Granite Rapids)."""

LISTED = 4
"""Steps in a trip of narrow kernels while these lines are asked for."""

SPARE_LOADS = 1
"""Loads in the time of a step that are left for what is asked for ahead."""


def pending(shape: Shape) -> int:
    """Return how many steps of k have sums of their own, so that enough FMAs are under way.

    Examples
    --------
    >>> pending(Shape("float64", 256, 1, 3, 4, packed=True))
    4
    """
    sets = 1
    while sets * shape.accumulators < PENDING:
        sets *= 2
    return sets


def unrolled(shape: Shape) -> bool:
    """Return whether a kernel does several steps of k a trip once all lines are asked for.

    Examples
    --------
    >>> [unrolled(Shape("float64", 512, 2, 6, 8, packed=packed)) for packed in (True, False)]
    [True, False]
    """
    return shape.packed and not shape.halved and pending(shape) == 1


def folded(shape: Shape) -> int:
    """Return how many groups of rows an unrolled kernel's FMAs take from memory for each column.

    That spares an instruction and a register for each, and takes more loads, of which a CPU does
    no more at a time than FMAs.

    Examples
    --------
    >>> [folded(Shape("float64", 256, *sides, 4, packed=True)) for sides in ((3, 4), (2, 6))]
    [1, 0]
    """
    if not unrolled(shape) or shape.complex or shape.bits >= WIDE or shape.columns == 1:
        return 0
    spare = shape.accumulators - shape.columns - shape.vectors - SPARE_LOADS
    return max(0, min(shape.vectors, spare // (shape.columns - 1)))


def trip_steps(shape: Shape) -> int:
    """Return the steps of k in a trip of a loop that is unrolled.

    What a trip takes beside its products keeps narrow kernels busy: where another thread shares the
    core, a step has half of its instructions' time, and is bound by them.

    Examples
    --------
    >>> [trip_steps(Shape("float64", bits, 2, 6, 8, packed=True)) for bits in (256, 512)]
    [8, 4]
    """
    steps = UNROLLED if shape.bits >= WIDE else 2 * UNROLLED
    return steps // 2 if shape.complex else steps
