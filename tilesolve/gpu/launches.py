"""The kernels of a plan, with the numbers that they are started with: what any runner takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tilesolve.gpu.product import Product, is_linear
from tilesolve.gpu.tensor_maps import TensorMap, find_box
from tilesolve.gpu.tilings import Tiling
from tilesolve.kernels.gpu.assembling import Kernel
from tilesolve.kernels.gpu.parts import ADDITION, THREADS, addition_arguments
from tilesolve.kernels.gpu.product import KERNEL, OPERANDS, product_arguments
from tilesolve.kernels.gpu.writing import MAP_NAME


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel, and how it is started: blocks along three axes, threads and shared bytes of each.

    Its arguments are names of arrays, such as ``first``, ``output`` or ``operand0``, and numbers.
    """

    form: Kernel
    name: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    arguments: tuple[str | int, ...]


@dataclass(frozen=True)
class Launches:
    """All kernels of a plan, in order.

    Tables say where batches begin, and where elements are that are not equally far apart. Scratch
    are names and bytes of arrays that kernels write for later ones. Exact kernels run on cards of
    the compute capability that they are made for, and on no later ones. Tensor maps are kernels'
    arguments, too, each by its name, of the array that is called so but for the ending.
    """

    kernels: tuple[Launch, ...]
    tables: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    scratch: tuple[tuple[str, int], ...] = ()
    exact: bool = False
    maps: tuple[tuple[str, TensorMap], ...] = ()


def list_launches(product: Product, tiling: Tiling) -> Launches:
    """Return the kernels of a tiling of a product.

    Examples
    --------
    >>> from tilesolve.contractions.problem import Problem
    >>> product = Product.of(Problem.of("ij-ik-kj", 200, "float32"))
    >>> from tilesolve.gpu.strategy import make_tiling
    >>> tiling = make_tiling(product, "fma32", (64, 64, 8), (2, 1), 2)
    >>> [(one.name, one.grid) for one in list_launches(product, tiling).kernels]
    [('product', (16, 1, 1))]
    """
    form, (rows, columns, steps, batches) = tiling.form, product.extents
    tables, length, sides = [product.batch_places], len(product.batch_places), {}
    for side, places in product.places.items():
        if is_linear(places):
            sides[side] = int(places[1]) if len(places) > 1 else 0
        else:
            tables.append(places)
            sides[side], length = length, length + len(places)
    part = ceil(ceil(steps / tiling.parts) / form.depth) * form.depth
    numbers = {"rows": rows, "columns": columns, "sum": steps, "part": part, **sides}
    numbers |= {"group": tiling.group, "batches": batches, "count": tiling.parts}
    blocks = ceil(rows / form.rows) * ceil(columns / form.columns), tiling.parts, batches
    arrays, own = product_arguments(form)
    there = numbers | ({"output_row": columns, "output_column": 1} if form.partial else {})
    names = ("parts" if form.partial and name == "output" else name for name in arrays)
    given: tuple[str | int, ...] = (*names, *(there[name] for name in own))
    kernels = [Launch(form, KERNEL, blocks, form.threads, form.shared_bytes, given)]
    scratch: tuple[tuple[str, int], ...] = ()
    if form.partial:
        arrays, own = addition_arguments(form.ending)
        given = (*arrays, *(numbers[name] for name in own))
        grid = ceil(rows * columns / THREADS), 1, batches
        kernels.append(Launch(form.ending, ADDITION, grid, THREADS, 0, given))
        size = tiling.parts * batches * rows * columns * form.fragment.summed
        scratch = (("parts", size),)
    table = np.concatenate(tables).astype(np.int32)
    boxes = ((f"{OPERANDS[at]}{MAP_NAME}", find_box(product, form, at)) for at in form.boxed)
    maps = tuple((name, found[1]) for name, found in boxes if found)
    return Launches(tuple(kernels), table, scratch, form.grouped, maps)
