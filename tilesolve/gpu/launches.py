"""The kernels of a plan, with the numbers that they are started with: what any runner takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tilesolve.gpu.product import Product
from tilesolve.gpu.tilings import Tiling
from tilesolve.kernels.gpu.forms import Form
from tilesolve.kernels.gpu.parts import ADDITION, ADDITION_ARGUMENTS, THREADS, Addition
from tilesolve.kernels.gpu.product import ARGUMENTS, KERNEL
from tilesolve.kernels.gpu.stages import StageKernels


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel, and how it is started.

    Parameters
    ----------
    form
        What its code depends on.
    name
        Of the kernel.
    grid, threads
        Blocks along three axes, and threads of each.
    shared
        Bytes of shared memory of a block.
    arguments
        Names of arrays: ``first``, ``second``, ``output``, ``tables`` or ``parts``; and numbers.
    """

    form: Form | Addition | StageKernels
    name: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    arguments: tuple[str | int, ...]


@dataclass(frozen=True)
class Launches:
    """All kernels of a contraction, in order.

    Parameters
    ----------
    kernels
        They follow each other.
    tables
        Where elements are that are not equally far apart, and where batches begin.
    part_bytes
        That parts of sums take; 0 for none.
    """

    kernels: tuple[Launch, ...]
    tables: NDArray[np.int32]
    part_bytes: int


def list_launches(product: Product, tiling: Tiling) -> Launches:
    """Return the kernels of a tiling of a product.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> product = Product.of(Problem.of("ij-ik-kj", 200, "float32"))
    >>> form = Form("fma32", 64, 64, 8, (2, 1), 2, product.operand(0), product.operand(1))
    >>> [(one.name, one.grid) for one in list_launches(product, Tiling(form)).kernels]
    [('product', (16, 1, 1))]
    """
    form, (rows, columns, steps, batches) = tiling.form, product.extents
    linear = {
        "first_free": form.first.free_linear,
        "first_sum": form.first.sum_linear,
        "second_sum": form.second.sum_linear,
        "second_free": form.second.free_linear,
        "row_step": form.row_linear,
        "column_step": form.column_linear,
    }
    tables, length, numbers = [product.batch_places], len(product.batch_places), {}
    for name, places in product.places.items():
        if linear[name]:
            numbers[name] = int(places[1]) if len(places) > 1 else 0
        else:
            tables.append(places)
            numbers[name], length = length, length + len(places)
    part = ceil(ceil(steps / tiling.parts) / form.depth) * form.depth
    numbers |= {"rows": rows, "columns": columns, "sum": steps, "part": part}
    numbers |= {"group": tiling.group, "batches": batches, "batch_places": 0}
    numbers |= {"count": tiling.parts}
    blocks = ceil(rows / form.rows) * ceil(columns / form.columns)
    kernels = []
    own = dict(numbers)
    if form.partial:
        own |= {"row_step": columns, "column_step": 1}
    names = [("parts" if one == "output" and form.partial else one) for one in ARGUMENTS]
    kernels.append(
        Launch(
            form,
            KERNEL,
            (blocks, tiling.parts, batches),
            form.threads,
            form.shared_bytes,
            tuple(own.get(name, name) for name in names),
        )
    )
    if form.partial:
        addition = Addition(form.arithmetic, linear["row_step"], linear["column_step"])
        arguments = tuple(numbers.get(name, name) for name in ADDITION_ARGUMENTS)
        grid = (ceil(rows * columns / THREADS), 1, batches)
        kernels.append(Launch(addition, ADDITION, grid, THREADS, 0, arguments))
    size = tiling.parts * batches * rows * columns * form.fragment.summed if form.partial else 0
    return Launches(tuple(kernels), np.concatenate(tables).astype(np.int32), size)
