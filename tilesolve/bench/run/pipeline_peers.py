"""Who computes pipelines: as `nest_peers`, each from the NumPy function or from its stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.bench.nests import run_function
from tilesolve.bench.pipelines import Pipeline, replace_numpy
from tilesolve.bench.run.halide_nests import SLIDING, make_halide, write_schedule, write_stages
from tilesolve.bench.run.made import Made, Run
from tilesolve.bench.run.nest_peers import Operands, name_inputs, run_plan
from tilesolve.bench.run.numba_nests import make_numba
from tilesolve.contractions.errors import BenchmarkError, PlanError
from tilesolve.machine.model import Machine
from tilesolve.nests.arithmetic import lanes_of
from tilesolve.nests.split import split_sums

if TYPE_CHECKING:
    from tilesolve.nests.request import Fusion
    from tilesolve.pipelines.plan import PipelinePlan


def _solve(
    pipeline: Pipeline, machine: Machine, threads: int, fusion: Fusion = "slide"
) -> PipelinePlan:
    """Return a plan of ours, made anew."""
    from tilesolve.nests.request import NestRequest
    from tilesolve.pipelines.plan import PipelinePlan
    from tilesolve.pipelines.solve import solve_pipeline

    request = NestRequest(pipeline.computation, machine, threads, fusion=fusion, start="cold")
    return PipelinePlan(solve_pipeline(request))


def tilesolve(
    nest: Pipeline,
    machine: Machine,
    threads: int,
    operands: Operands,
    out: Array,
    fusion: Fusion = "slide",
) -> Made:
    """Make ready a pipeline of ours, in groups of stages."""
    return run_plan(_solve(nest, machine, threads, fusion), nest, operands, out)


root = partial(tilesolve, fusion="root")
"""Makes ready a pipeline of ours, one stage after another."""

overlap = partial(tilesolve, fusion="overlap")
"""Makes ready a pipeline of ours, in tiles that overlap."""


def numpy(nest: Pipeline, _: Machine, __: int, operands: Operands, ___: Array) -> Run:
    """Make ready the function of a pipeline, as its user has it."""
    return partial(run_function, nest, operands)


def numba(nest: Pipeline, _: Machine, threads: int, operands: Operands, out: Array) -> Run:
    """Make ready the obvious loops of each stage."""
    return make_numba(nest.computation, threads, name_inputs(nest, operands), {}, out)


def halide(
    nest: Pipeline,
    machine: Machine,
    threads: int,
    operands: Operands,
    out: Array,
    scheduler: str = "Mullapudi2016",
) -> Run:
    """Make ready what a scheduler of Halide plans, or one by hand where none is named."""
    whole, schedule = split_sums(nest.computation), list[str]()
    if not scheduler:
        if nest.text not in SLIDING:
            raise BenchmarkError(f"nobody wrote a schedule of {nest.text}")
        schedule = write_schedule(whole, SLIDING[nest.text], lanes_of(whole.output.dtype, machine))
    text, arrays = write_stages(whole, schedule), name_inputs(nest, operands)
    return make_halide(text, scheduler, machine, threads, arrays, {}, out, narrow=True)


halide_adams = partial(halide, scheduler="Adams2019")
"""Makes ready what Halide's scheduler of 2019 plans."""

halide_manual = partial(halide, scheduler="")
"""Makes ready what Halide makes of a schedule that was written by hand."""


def halide_ours(
    nest: Pipeline, machine: Machine, threads: int, operands: Operands, out: Array
) -> Run:
    """Make ready what Halide makes of our decisions."""
    try:
        text = _solve(nest, machine, threads).to_halide()
    except PlanError as error:
        raise BenchmarkError(str(error)) from error
    arrays = name_inputs(nest, operands)
    return make_halide(text, "", machine, threads, arrays, {}, out, narrow=True)


def jax(nest: Pipeline, _: Machine, __: int, operands: Operands, ___: Array) -> Run:
    """Make ready the function itself, with JAX's functions in the place of NumPy's."""
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_enable_x64", True)
    assert isinstance(nest.function, FunctionType)
    compiled = jax.jit(replace_numpy(nest.function, jnp))
    known = name_inputs(nest, operands)
    given = [jnp.asarray(known[name]) for name, _ in nest.shapes]

    def run() -> Array:
        found = jax.block_until_ready(compiled(*given))
        return np.asarray(found[0] if isinstance(found, tuple) else found)

    try:
        run()
    except TypeError as error:  # it has no arrays that are written to
        raise BenchmarkError(f"JAX does not have it: {str(error).partition('.')[0]}") from error
    return run


def opencv(nest: Pipeline, _: Machine, threads: int, operands: Operands, out: Array) -> Run:
    """Make ready what OpenCV has of a pipeline."""
    import cv2

    from tilesolve.bench.run import opencv_pipelines

    cv2.setNumThreads(threads)
    return _library(opencv_pipelines.PIPELINES, nest, operands, "OpenCV", out)


def scikit_image(nest: Pipeline, _: Machine, __: int, operands: Operands, out: Array) -> Run:
    """Make ready what scikit-image has of a pipeline."""
    from skimage.restoration import denoise_tv_chambolle

    from tilesolve.bench.array_functions import ROUNDS, WEIGHT

    chambolle = partial(denoise_tv_chambolle, weight=WEIGHT, eps=0, max_num_iter=ROUNDS + 1)
    return _library({"total_variation": chambolle}, nest, operands, "scikit-image", out)


def _library(
    known: dict[str, Callable[..., Array]],
    nest: Pipeline,
    operands: Operands,
    name: str,
    out: Array,
) -> Run:
    if nest.text not in known:
        raise BenchmarkError(f"{name} does not have it")
    assert out.shape
    return partial(known[nest.text], *operands)
