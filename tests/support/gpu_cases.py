"""Products for GPUs that are drawn, their kernels, and what they must compute."""

import numpy as np

from tilesolve.contractions.problem import Problem
from tilesolve.gpu.emulation import Job
from tilesolve.gpu.launches import list_launches
from tilesolve.gpu.product import Product, is_linear
from tilesolve.gpu.tilings import Tiling
from tilesolve.kernels.gpu.forms import FRAGMENTS, Form

DTYPES = {
    "float16": "float16",
    "bfloat16": "bfloat16",
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


def make_tiling(product, arithmetic, block, warps, stages=3, parts=1, group=2):
    """A tiling of a product by given sides."""
    linear = (is_linear(product.places[name]) for name in ("row_step", "column_step"))
    operands = product.operand(0), product.operand(1)
    form = Form(arithmetic, *block, warps, stages, *operands, *linear, parts > 1)
    return Tiling(form, parts, group)


def draw_tiling(rng, product, arithmetic, **given):
    """A small tiling: a block of one to four warps of one to two fragments each way."""
    fragment = FRAGMENTS[arithmetic]
    warps = rng.choice([(1, 1), (1, 2), (2, 1), (2, 2)])
    sides = [warps[0] * fragment.rows, warps[1] * fragment.columns]
    block = (*(side * rng.choice([1, 2]) for side in sides), max(8, fragment.depth))
    chosen = {"stages": rng.choice([1, 2, 3]), "parts": rng.choice([1, 1, 3])}
    return make_tiling(product, arithmetic, block, warps, **{**chosen, **given})


def draw_problem(rng, arithmetic, spec=None):
    """A problem with extents around multiples of 8, some of them odd."""
    spec = spec or rng.choice(SPECS)
    letters = sorted(set(spec) - {"-"})
    few = len(letters) > 4
    sizes = {x: rng.choice([3, 5, 8] if few else [1, 7, 16, 24, 33, 72]) for x in letters}
    return Problem.of(spec, sizes, DTYPES[arithmetic])


def make_case(problem, tiling_of, seed):
    """A job of a problem on fresh data with a poisoned output, and what it must yield."""
    rng = np.random.default_rng(seed)
    product = Product.of(problem)
    kind = array_dtype(problem.dtype)
    arrays = [rng.standard_normal(problem.shape(at)).astype(kind) for at in (1, 2)]
    output = np.full(problem.shape(0), np.nan).astype(kind)
    texts = ["".join(tensor.letters) for tensor in problem.spec.tensors]
    wanted = np.einsum(
        f"{texts[1]},{texts[2]}->{texts[0]}", *(one.astype(np.float64) for one in arrays)
    )
    first, second = (arrays[at - 1] for at in product.operands)
    job = Job(list_launches(product, tiling_of(product)), first, second, output)
    return job, wanted


def tolerance(problem, arithmetic):
    """By how much a result may differ, of a sum of numbers around one."""
    product = Product.of(problem)
    unit = {"float16": 2**-11, "bfloat16": 2**-8, "tf32": 2**-10}.get(arithmetic, 0.0)
    rounding = np.finfo(np.float64 if problem.dtype == "float64" else np.float32).eps
    steps = product.extents[2]
    return 8 * (unit * np.sqrt(steps) + rounding * steps)
