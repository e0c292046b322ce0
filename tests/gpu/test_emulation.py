"""Kernels as SPIR-V on the CPU: right on drawn problems, with work-groups and barriers."""

import random
from dataclasses import replace

import numpy as np
import pytest
from gpu_cases import (
    DTYPES,
    draw_group_problem,
    draw_group_tiling,
    draw_problem,
    draw_tiling,
    make_case,
    make_tiling,
    tolerance,
)

import tilesolve
from tilesolve.contractions.problem import Problem
from tilesolve.gpu.emulation import Job, emulate, find_runtime
from tilesolve.gpu.launches import Launch, Launches
from tilesolve.kernels.gpu import product as product_kernels
from tilesolve.kernels.gpu.assembling import make_code
from tilesolve.kernels.gpu.forms import GROUPED, Form
from tilesolve.kernels.gpu.sweeping import SWEEP, SWEEP_THREADS, Sweep
from tilesolve.kernels.gpu.targets import I32

pytestmark = pytest.mark.skipif(find_runtime() is None, reason="the extra gpu-test is missing")


def check(cases):
    """Run all jobs of cases in one process; compare each with NumPy's result."""
    found = emulate(job for job, _, _, _ in cases)
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


def grouped(seed, arithmetic, spec=None, epilogue="", accumulate=False, **given):
    rng = random.Random(f"{seed} {arithmetic}")
    problem = draw_group_problem(rng, arithmetic, spec)

    def tile(product):
        return draw_group_tiling(rng, product, arithmetic, **given)

    job, wanted = make_case(problem, tile, seed, epilogue, accumulate)
    return job, wanted, problem, arithmetic


def group_case(arithmetic, spec, sizes, block, groups=(1, 1), stages=3, seed=0):
    problem = Problem.of(spec, sizes, DTYPES[arithmetic])
    job, wanted = make_case(
        problem,
        lambda one: make_tiling(one, arithmetic, block, groups, stages, grouped=True),
        seed,
    )
    return job, wanted, problem, arithmetic


def test_groups_of_warps_multiply_swizzled_tiles():
    sizes = {"i": 65, "j": 24, "k": 200}
    check([group_case("float16", "ij-ki-jk", sizes, (64, 16, 64))])


@pytest.mark.parametrize("fault", ["swizzle", "stages"])
def test_wrong_places_and_early_copies_of_groups_show(fault, monkeypatch):
    """Elements where none are looked for, and copies over what is still multiplied."""
    sizes = {"i": 64, "j": 16, "k": 322}  # no multiple of 8, so that all threads copy chunks
    if fault == "swizzle":
        place = product_kernels.place_in_tile

        def wrong(b, form, at, line, along):
            return b.xor(place(b, form, at, line, along), b.shl(b.and_(line, I32(1)), I32(4)))

        monkeypatch.setattr(product_kernels, "place_in_tile", wrong)
    else:
        monkeypatch.setattr(Form, "ahead", property(lambda form: form.stages - 1))
    make_code.cache_clear()
    case = group_case("float16", "ij-ik-jk", sizes, (64, 16, 32))
    with pytest.raises(AssertionError):
        check([case])
    make_code.cache_clear()


BOXED = (
    ("ij-ik-jk", {"i": 70, "j": 24, "k": 200}, (0, 1)),
    ("ij-ki-kj", {"i": 72, "j": 40, "k": 77}, (0, 1)),
    ("ij-ik-kj", {"i": 65, "j": 23, "k": 136}, (0,)),
    ("bij-bik-bkj", {"b": 2, "i": 65, "j": 24, "k": 100}, (1,)),
    ("abcd-aebf-dfce", {"a": 3, "b": 16, "c": 24, "d": 2, "e": 3, "f": 64}, (0,)),
    ("cabd-caeb-cde", {"a": 5, "b": 64, "c": 2, "d": 17, "e": 40}, (0, 1)),
)
"""Layouts whose operands bulk copies fetch, both or one, in tiles of 64 by 32 by 64."""


def test_tiles_are_fetched_by_tensor_maps():
    cases = [group_case("float16", spec, sizes, (64, 32, 64)) for spec, sizes, _ in BOXED[:3]]
    check(cases)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [3, 5])
def test_tiles_of_several_letters_are_fetched(stages):
    cases = [
        group_case("bfloat16", spec, sizes, (64, 32, 64), stages=stages, seed=seed)
        for seed, (spec, sizes, _) in enumerate(BOXED)
    ]
    for (job, *_), (spec, _, boxed) in zip(cases, BOXED, strict=True):
        assert job.launches.kernels[0].form.boxed == boxed, spec
    check(cases)


def test_wrong_tensor_maps_show():
    """A wrong swizzle, box, extent or stride gives wrong numbers."""
    right = group_case("float16", "ij-ik-jk", {"i": 65, "j": 16, "k": 200}, (64, 32, 64))
    job, wanted = right[:2]
    (name, own), *others = job.launches.maps
    wrong = (
        replace(own, swizzle=64),
        replace(own, box=(own.box[0], own.box[1] // 2)),
        replace(own, extents=(own.extents[0] - 8, own.extents[1])),
        replace(own, strides=(own.strides[0], own.strides[1] - 16)),
    )
    jobs = [
        replace(job, launches=replace(job.launches, maps=((name, one), *others)))
        for one in (own, *wrong)
    ]
    near = [np.allclose(found, wanted, atol=0.1) for (found,) in emulate(jobs)]
    assert near == [True] + [False] * len(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["bytes", "parity", "release", "free"])
def test_barriers_that_would_never_pass_show(fault, monkeypatch):
    """Bytes that never come, a wrong turn, warps that do not arrive, and too few that must."""
    changed = {
        "bytes": lambda one: one._replace(size=one.size + 16),
        "parity": lambda one: one._replace(parity=I32(0)),
        "free": lambda one: one._replace(warps=one.warps + 1),
        "release": lambda one: one,
    }[fault]
    make = product_kernels.Fetch
    monkeypatch.setattr(product_kernels, "Fetch", lambda *given: changed(make(*given)))
    if fault == "release":
        monkeypatch.setattr(product_kernels._Product, "_release", lambda *_: None)
    make_code.cache_clear()
    case = group_case("float16", "ij-ik-jk", {"i": 64, "j": 16, "k": 520}, (64, 32, 64))
    with pytest.raises(AssertionError):
        check([case])
    make_code.cache_clear()


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
    ((found,),) = emulate([Job(Launches((one,)), arrays)])
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
@pytest.mark.parametrize("arithmetic", GROUPED)
@pytest.mark.parametrize("seed", range(4))
def test_drawn_problems_by_groups_are_right(arithmetic, seed):
    chain = "" if arithmetic == "int8" else CHAINS[seed]
    cases = [grouped(10 * seed + number, arithmetic) for number in range(2)]
    check([*cases, grouped(10 * seed + 3, arithmetic, epilogue=chain, accumulate=bool(seed % 2))])


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["ij-ik-jk", "ij-ki-kj"])
def test_sides_around_those_of_groups_are_right(spec):
    sides = [{"i": 128 + x, "j": 64 - x, "k": 192 + x} for x in (-1, 0, 1)]
    check([group_case("bfloat16", spec, one, (128, 64, 64), (2, 1), 4) for one in sides])


@pytest.mark.slow
@pytest.mark.parametrize("columns", [96, 128, 192, 256])
def test_wide_groups_are_right(columns):
    sizes = {"i": 72, "j": columns + 8, "k": 136}
    check([group_case("float16", "ij-ik-kj", sizes, (64, columns, 64), (1, 1), 3)])


@pytest.mark.slow
def test_plans_are_emulated_as_they_are():
    rng = np.random.default_rng(0)
    first, second = rng.random((70, 96)), rng.random((96, 40))
    for dtype, machine in (("float64", "h100"), ("float32", "xavier"), ("float16", "rtx2080ti")):
        one, other = first.astype(dtype), second.astype(dtype)
        found = tilesolve.plan("ij,jk->ik", [one, other], machine).emulate(one, other)
        assert np.allclose(found, first @ second, rtol=2e-3 if dtype == "float16" else 1e-5)
