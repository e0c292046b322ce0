"""Products for GPUs that are drawn, their kernels, and what they must compute."""

import numpy as np
from numpy_epilogues import apply_epilogue

from tilesolve.contractions.device_problem import DeviceProblem
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.gpu.emulation import Job
from tilesolve.gpu.launches import list_launches
from tilesolve.gpu.product import Product
from tilesolve.gpu.strategy import make_tiling
from tilesolve.kernels.gpu.forms import FRAGMENTS

DTYPES = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "tf32": "float32",
    "fma32": "float32",
    "float64": "float64",
    "fma64": "float64",
}
"""The dtype of tensors, by arithmetic."""

SPECS = (
    "ij-ik-kj",
    "ij-ki-kj",
    "ji-ik-jk",
    "bij-bik-bkj",
    "abcd-aebf-dfce",
    "abc-bda-dc",
    "iabj-kai-bkj",
)
"""Layouts of all kinds: rows, columns and sums side by side, batches, and several letters."""


def array_dtype(dtype):
    """NumPy's dtype of a name, that of `ml_dtypes` included."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def draw_tiling(rng, product, arithmetic, **given):
    """A small tiling: a block of one to four warps of one to two fragments each way."""
    fragment = FRAGMENTS[arithmetic]
    warps = rng.choice([(1, 1), (1, 2), (2, 1), (2, 2)])
    sides = [warps[0] * fragment.rows, warps[1] * fragment.columns]
    block = (*(side * rng.choice([1, 2]) for side in sides), max(8, fragment.depth))
    chosen = {"stages": rng.choice([1, 2, 3]), "parts": rng.choice([1, 1, 3]), "group": 2}
    return make_tiling(product, arithmetic, block, warps, **{**chosen, **given})


def draw_group_tiling(rng, product, arithmetic, **given):
    """A small tiling of groups of four warps: one or two of them, of one or two fragments."""
    groups = rng.choice([(1, 1), (2, 1), (1, 2)])
    deep = rng.choice([64, 128]) // FRAGMENTS[arithmetic].element
    block = 64 * groups[0] * rng.choice([1, 2]), groups[1] * rng.choice([16, 32, 64, 96]), deep
    chosen = {"stages": rng.choice([3, 4]), "parts": rng.choice([1, 1, 3]), "group": 2}
    return make_tiling(product, arithmetic, block, groups, **{**chosen, **given}, grouped=True)


def draw_group_problem(rng, arithmetic, spec=None):
    """A problem around the sides of such tiles, of operands that groups can multiply."""
    along = ("ij-ik-jk", "bij-bik-bjk", "abcd-aef-bcdef")
    spec = spec or rng.choice(SPECS if arithmetic in ("float16", "bfloat16") else along)
    letters = sorted(set(spec) - {"-"})
    few = len(letters) > 4
    sizes = {x: rng.choice([3, 5, 8] if few else [1, 24, 63, 64, 65, 72, 136]) for x in letters}
    if few and arithmetic in ("int8", "tf32"):
        sizes["f"] = 16
    return DeviceProblem.of(spec, sizes, DTYPES[arithmetic])


def draw_problem(rng, arithmetic, spec=None):
    """A problem with extents around multiples of 8, some of them odd."""
    spec = spec or rng.choice(SPECS)
    letters = sorted(set(spec) - {"-"})
    few = len(letters) > 4
    sizes = {x: rng.choice([3, 5, 8] if few else [1, 7, 16, 24, 33, 72]) for x in letters}
    return DeviceProblem.of(spec, sizes, DTYPES[arithmetic])


def draw_array(rng, shape, dtype):
    """Fresh numbers around one, or bytes."""
    if dtype.startswith("int"):
        return rng.integers(-128, 128, shape, dtype=dtype)
    return rng.standard_normal(shape).astype(array_dtype(dtype))


def make_case(problem, tiling_of, seed, epilogue="", accumulate=False):
    """A job of a problem on fresh data, and what it must yield.

    The output is poisoned unless it is added to.
    """
    rng = np.random.default_rng(seed)
    chain = Epilogue.parse(epilogue)
    product = Product.of(problem, chain, accumulate=accumulate)
    arrays = [draw_array(rng, problem.shape(at), problem.dtype) for at in (1, 2)]
    output = draw_array(rng, problem.shape(0), product.output_dtype)
    operands = [draw_array(rng, one, product.output_dtype) for one in chain.shapes(problem)]
    texts = ["".join(tensor.letters) for tensor in problem.spec.tensors]
    wanted = np.einsum(
        f"{texts[1]},{texts[2]}->{texts[0]}", *(one.astype(np.float64) for one in arrays)
    )
    if accumulate:
        wanted += output.astype(np.float64)
    elif product.output_dtype != "int32":
        output = np.full_like(output, np.nan)
    wide = [one.astype(np.float64) for one in operands]
    wanted = apply_epilogue(chain, problem, wanted, wide)
    names = product.name_arrays(*arrays, output, operands)
    return Job(list_launches(product, tiling_of(product)), names), wanted


def tolerance(problem, arithmetic):
    """By how much a result may differ, of a sum of numbers around one."""
    product = Product.of(problem)
    if arithmetic == "int8":
        return 0.0
    unit = {"float16": 2**-11, "bfloat16": 2**-8, "tf32": 2**-10}.get(arithmetic, 0.0)
    rounding = np.finfo(np.float64 if problem.dtype == "float64" else np.float32).eps
    steps = product.extents[2]
    return 8 * (unit * np.sqrt(steps) + rounding * steps)
