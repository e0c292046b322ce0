"""Unrolling: how the loop over k of a microkernel is written, by its shape."""

from __future__ import annotations

from tilesolve.kernels.codegen.shape import Shape
from tilesolve.kernels.tuning import (
    INDEPENDENT_FMAS,
    SPARE_LOADS_PER_STEP,
    UNROLLED_STEPS,
    WIDE_VECTOR_BITS,
)


def accumulator_sets(shape: Shape) -> int:
    """Return how many steps of k have sums of their own, so that enough FMAs are under way.

    Examples
    --------
    >>> accumulator_sets(Shape("float64", 256, 1, 3, 4, packed=True))
    4
    """
    sets = 1
    while sets * shape.accumulators < INDEPENDENT_FMAS:
        sets *= 2
    return sets


def is_unrolled(shape: Shape) -> bool:
    """Return whether a kernel does several steps of k a trip once all lines are asked for.

    Examples
    --------
    >>> [is_unrolled(Shape("float64", 512, 2, 6, 8, packed=packed)) for packed in (True, False)]
    [True, False]
    """
    return shape.packed and not shape.halved and accumulator_sets(shape) == 1


def vectors_from_memory(shape: Shape) -> int:
    """Return how many groups of rows an unrolled kernel's FMAs take from memory for each column.

    That spares an instruction and a register for each, and takes more loads, of which a CPU does
    no more at a time than FMAs.

    Examples
    --------
    >>> shapes = [Shape("float64", 256, *sides, 4, packed=True) for sides in ((3, 4), (2, 6))]
    >>> [vectors_from_memory(shape) for shape in shapes]
    [1, 0]
    """
    if (
        not is_unrolled(shape)
        or shape.complex
        or shape.bits >= WIDE_VECTOR_BITS
        or shape.columns == 1
    ):
        return 0
    spare = shape.accumulators - shape.columns - shape.vectors - SPARE_LOADS_PER_STEP
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
    steps = UNROLLED_STEPS if shape.bits >= WIDE_VECTOR_BITS else 2 * UNROLLED_STEPS
    return steps // 2 if shape.complex else steps
