"""Unrolling: how the loop over k of a microkernel is written, by its shape.

Measurements behind it are in docs/decisions/040.
"""

from __future__ import annotations

from tilesolve.constants import tuning
from tilesolve.kernels.codegen.shape import Shape


def accumulator_sets(shape: Shape) -> int:
    """Return how many steps of k have sums of their own, so that enough FMAs are under way.

    Examples
    --------
    >>> accumulator_sets(Shape("float64", 256, 1, 3, 4, packed=True))
    4
    """
    sets = 1
    while sets * shape.accumulators < tuning.INDEPENDENT_FMAS:
        sets *= 2
    return sets


def is_unrolled(shape: Shape) -> bool:
    """Return whether a kernel does several steps of k a trip once all lines are prefetched.

    Examples
    --------
    >>> [is_unrolled(Shape("float64", 512, 2, 6, 8, packed=packed)) for packed in (True, False)]
    [True, False]
    """
    return shape.packed and not shape.halved and accumulator_sets(shape) == 1


def stores_lines(shape: Shape) -> bool:
    """Return whether a kernel's first steps of k each store a line that was summed before.

    Narrow kernels have no registers left for its addresses.

    Examples
    --------
    >>> [stores_lines(Shape("float64", bits, 2, 6, 8, packed=True)) for bits in (256, 512)]
    [False, True]
    """
    return is_unrolled(shape) and shape.bits >= tuning.WIDE_VECTOR_BITS


def prefetches_columns_of_c(shape: Shape) -> bool:
    """Return whether the first steps of short sums each prefetch a column of C.

    Narrow kernels have no registers left for its addresses, nor do complex ones.

    Examples
    --------
    >>> shapes = [Shape("float64", bits, 2, 6, 8, packed=True) for bits in (256, 512)]
    >>> [prefetches_columns_of_c(shape) for shape in shapes]
    [False, True]
    """
    return shape.packed and not shape.complex and shape.bits >= tuning.WIDE_VECTOR_BITS


def listed_lines(shape: Shape) -> int:
    """Return how many lines of the table ``fetch`` a step of k prefetches.

    Taller tiles take more time a step, and there are fewer of them to ask for the rows that come
    next. Narrow kernels have no time for more than one.

    Examples
    --------
    >>> [listed_lines(Shape("float64", bits, 3, 4, 4, packed=True)) for bits in (256, 512)]
    [1, 3]
    """
    return shape.vectors if shape.bits >= tuning.WIDE_VECTOR_BITS else 1


def vectors_from_memory(shape: Shape) -> int:
    """Return how many groups of rows an unrolled kernel's FMAs take from memory for each column.

    Each spares an instruction and a register, and takes more loads: CPUs do no more of them at a
    time than FMAs.

    Examples
    --------
    >>> shapes = [Shape("float64", 256, *sides, 4, packed=True) for sides in ((3, 4), (2, 6))]
    >>> [vectors_from_memory(shape) for shape in shapes]
    [1, 0]
    """
    wide = shape.bits >= tuning.WIDE_VECTOR_BITS
    if not is_unrolled(shape) or shape.complex or wide or shape.columns == 1:
        return 0
    taken = shape.columns + shape.vectors + tuning.SPARE_LOADS_PER_STEP
    spare = shape.accumulators - taken
    return max(0, min(shape.vectors, spare // (shape.columns - 1)))


def steps_per_trip(shape: Shape) -> int:
    """Return the steps of k in a trip of a loop that is unrolled.

    Narrow kernels are kept busy by what a trip takes beside its products: a thread that shares its
    core has half of the time for a step's instructions, and is bound by them.

    Examples
    --------
    >>> [steps_per_trip(Shape("float64", bits, 2, 6, 8, packed=True)) for bits in (256, 512)]
    [8, 4]
    """
    wide = shape.bits >= tuning.WIDE_VECTOR_BITS
    steps = tuning.UNROLLED_STEPS if wide else 2 * tuning.UNROLLED_STEPS
    return steps // 2 if shape.complex else steps
