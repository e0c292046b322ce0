"""Kernels as SPIR-V on the CPU: right on drawn problems, with work-groups and barriers."""

import random

import numpy as np
import pytest
from gpu_cases import DTYPES, draw_problem, draw_tiling, make_case, make_tiling, tolerance

import tilesolve
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.emulation import Run, emulate_runs, find_runtime
from tilesolve.gpu.launches import Launch
from tilesolve.kernels.gpu.sweeping import SWEEP, SWEEP_THREADS, Sweep

pytestmark = pytest.mark.skipif(find_runtime() is None, reason="the extra gpu-test is missing")


def check(cases):
    """Run all jobs of cases in one process; compare each with NumPy's result."""
    found = emulate_runs([run for run, _, _, _ in cases])
    for (result,), (_, wanted, problem, arithmetic) in zip(found, cases, strict=True):
        difference = np.abs(result.astype(np.float64) - wanted)
        assert difference.max() <= tolerance(problem, arithmetic), (str(problem), arithmetic)


def drawn(seed, arithmetic, spec=None, epilogue="", accumulate=False, **given):
    rng = random.Random(f"{seed} {arithmetic}")
    problem = draw_problem(rng, arithmetic, spec)

    def tile(product):
        return draw_tiling(rng, product, arithmetic, **given)

    job, wanted = make_case(problem, tile, seed, epilogue, accumulate)
    return job, wanted, problem, arithmetic


def test_every_arithmetic_is_right():
    check(
        [
            drawn(1, "float16", "ij-ki-kj", parts=1),
            drawn(2, "bfloat16", "ji-ik-jk", parts=1),
            drawn(3, "tf32", "ij-ik-kj", parts=1),
            drawn(4, "float64", "bij-bik-bkj", parts=1),
            drawn(5, "fma32", "abcd-aebf-dfce", parts=1),
            drawn(6, "float16", "abc-bda-dc", parts=3, stages=1),
            drawn(7, "int8", "ij-ik-jk", parts=1),
            drawn(8, "int8", "ij-ki-kj", parts=3),
        ]
    )


def test_results_are_added_and_followed_by_functions():
    check(
        [
            drawn(1, "float16", "ij-ik-kj", "+j relu", parts=1),
            drawn(2, "bfloat16", "bij-bik-bkj", "*bi +", accumulate=True, parts=3),
            drawn(4, "int8", "ij-ik-kj", "+ij", accumulate=True, parts=3),
        ]
    )


def test_sweeps_read_every_chunk():
    """Each thread keeps what it read, an odd number of times."""
    source = np.random.default_rng(0).integers(0, 2**31, 4 * 1000, np.uint32)
    threads = 2 * SWEEP_THREADS
    arrays = {"source": source, "output": np.zeros(threads, np.uint32)}
    numbers = len(source) // 4, 3, threads
    one = Launch(Sweep(), SWEEP, (2, 1, 1), SWEEP_THREADS, 0, (*arrays, *numbers))
    ((found,),) = emulate_runs([Run((one,), arrays, ("output",))])
    assert np.bitwise_xor.reduce(found) == np.bitwise_xor.reduce(source)
    own = source.reshape(-1, 4)[5::threads]
    assert found[5] == np.bitwise_xor.reduce(own, axis=None)


CHAINS = ("", "+ relu6", "clip(-1,2)", "silu", "tanh", "gelu-tanh sigmoid")
"""Epilogues for any output."""


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", DTYPES)
@pytest.mark.parametrize("seed", range(6))
def test_drawn_problems_are_right(arithmetic, seed):
    chain = "" if arithmetic == "int8" else CHAINS[seed]
    cases = [drawn(10 * seed + number, arithmetic) for number in range(3)]
    check([*cases, drawn(10 * seed + 3, arithmetic, epilogue=chain, accumulate=bool(seed % 2))])


@pytest.mark.slow
def test_sides_around_those_of_a_block_are_right():
    cases = []
    for extra in (-1, 0, 1):
        problem = Problem.of("ij-ik-kj", {"i": 64 + extra, "j": 64 - extra, "k": 48 + extra}, "f4")
        job, wanted = make_case(
            problem, lambda one: make_tiling(one, "tf32", (32, 32, 16), (2, 2), 3), extra + 1
        )
        cases.append((job, wanted, problem, "tf32"))
    check(cases)


@pytest.mark.slow
def test_plans_are_emulated_as_they_are():
    rng = np.random.default_rng(0)
    first, second = rng.random((70, 96)), rng.random((96, 40))
    for dtype, machine in (("float64", "h100"), ("float32", "xavier"), ("float16", "rtx2080ti")):
        one, other = first.astype(dtype), second.astype(dtype)
        found = tilesolve.plan("ij,jk->ik", [one, other], machine).emulate(one, other)
        assert np.allclose(found, first @ second, rtol=2e-3 if dtype == "float16" else 1e-5)
