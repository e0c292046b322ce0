"""Compiled kernels: another process makes them while this one is busy, if it can."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from patience import PATIENCE

from tilesolve import Machine, Plan, Problem, plan
from tilesolve.kernels.codegen.object_code import Family, build
from tilesolve.machine import kernel_cache
from tilesolve.machine.kernel_cache import family_of, load_kernels, start_compiling
from tilesolve.plans import executors
from tilesolve.running import task

FAMILY = Family("float32", 128, 6, 4)
NAME = FAMILY.shapes[0].name


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch, kept_functions):
    """No kernels in memory or on disk, two cores, and a list of what is built in this process."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(tmp_path))
    (tmp_path / "functions").symlink_to(kept_functions)
    monkeypatch.setattr(kernel_cache, "_loaded", {})
    monkeypatch.setattr(kernel_cache, "_makers", {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})
    built = []

    def noted(family, shapes):
        built.append((family, shapes))
        return build(family, shapes)

    monkeypatch.setattr(kernel_cache, "build", noted)
    yield built
    for maker in kernel_cache._makers.values():  # it may have begun with kernels of later runs
        maker.kill()
        maker.wait(PATIENCE)


def program(folder, text):
    """Return a shell script that stands for Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_another_process_compiles_what_is_missing(empty):
    """This one finds the file, and starts no second process for it."""
    start_compiling(FAMILY, packed=True)
    [maker] = kernel_cache._makers.values()
    start_compiling(FAMILY, packed=True)
    assert list(kernel_cache._makers.values()) == [maker]
    assert load_kernels(FAMILY, packed=True).address(NAME) > 0
    assert maker.wait(PATIENCE) == 0
    load_kernels(FAMILY, packed=False)
    assert empty == []


def test_what_is_there_is_not_made_again(monkeypatch):
    """A family in memory or on disk needs no process."""
    load_kernels(FAMILY, packed=True)
    start_compiling(FAMILY, packed=True)
    monkeypatch.setattr(kernel_cache, "_loaded", {})
    start_compiling(FAMILY, packed=True)
    assert not kernel_cache._makers


def test_one_core_is_not_shared(empty, monkeypatch):
    """Two processes on one core would be slower than one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0})
    start_compiling(FAMILY, packed=True)
    assert not kernel_cache._makers
    assert load_kernels(FAMILY, packed=True).address(NAME) > 0
    assert empty == [(FAMILY, FAMILY.part(packed=True))]


@pytest.mark.parametrize("text", ["exit 1", "exec sleep 600", None])
def test_what_another_process_fails_to_make_is_made_here(empty, monkeypatch, tmp_path, text):
    """It may end early, hang, or not even start."""
    where = program(tmp_path, text) if text else str(tmp_path / "nothing")
    monkeypatch.setattr(sys, "executable", where)
    monkeypatch.setattr(kernel_cache, "WAIT_SECONDS", 0.5)
    start_compiling(FAMILY, packed=True)
    makers = list(kernel_cache._makers.values())
    assert len(makers) == (text is not None)
    assert load_kernels(FAMILY, packed=True).address(NAME) > 0
    assert empty == [(FAMILY, FAMILY.part(packed=True))]
    assert all(maker.returncode for maker in makers)


def test_the_first_run_of_a_plan_begins_with_its_kernels(monkeypatch):
    """They are asked for before what runs plans is loaded, and only then."""
    begun = []
    monkeypatch.setattr(executors, "_executor_types", [])
    monkeypatch.setattr(
        kernel_cache, "start_compiling", lambda family, packed: begun.append((family, packed))
    )
    machine = Machine.load("i7-6700k")
    found = plan(Problem.of("mn-mk-kn", 4), machine=machine, cache=False)
    for _ in range(2):
        assert Plan(found.solution).executor.solution is found.solution
    assert begun == [(family_of("float64", machine), False)]


@pytest.mark.parametrize("sizes", [(1, 3, 5), (17, 6, 13), (70, 9, 70)])
def test_runs_compile_what_they_need_while_another_process_compiles_all(
    monkeypatch, tmp_path, empty, sizes
):
    """They wait for nothing; kernels of whole and of partial tiles are right."""
    monkeypatch.setattr(sys, "executable", program(tmp_path, "exec sleep 600"))
    monkeypatch.setattr(executors, "_executor_types", [])
    monkeypatch.setattr(kernel_cache, "WAIT_SECONDS", 0.0)
    task._kernel_addresses.cache_clear()
    problem = Problem.of("mn-mk-kn", dict(zip("mkn", sizes, strict=True)))
    draw = np.random.default_rng(5)
    a, b = draw.random(sizes[:2]), draw.random(sizes[1:])
    np.testing.assert_allclose(plan(problem, cache=False)(a, b), a @ b, rtol=1e-12)
    [(family, shapes)] = empty
    assert family.only
    assert len(shapes) < len(replace(family, only=()).part(packed=shapes[0].packed))


def test_processes_that_begin_at_once_compile_once(tmp_path):
    """All but one wait, and load what that one has made."""
    order = (
        "import sys\n"
        "from tilesolve.machine import kernel_cache\n"
        "from tilesolve.machine.kernel_cache import Family\n"
        "real, built = kernel_cache.build, []\n"
        "kernel_cache.build = lambda *given: built.append(given) or real(*given)\n"
        "sys.stdin.readline()\n"
        f"kernel_cache.load_kernels({FAMILY!r}, packed=True)\n"
        "print(len(built))\n"
    )
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([sys.executable, "-c", order], **pipe) for _ in range(4)]
    for process in started:
        process.stdin.write("begin\n")
        process.stdin.flush()
    counts = [int(process.communicate(timeout=PATIENCE)[0]) for process in started]
    assert sorted(counts) == [0, 0, 0, 1]


@pytest.fixture
def no_addresses():
    """No state that knows where kernels are: those of a test go with it."""
    task._kernel_addresses.cache_clear()
    yield
    task._kernel_addresses.cache_clear()


@pytest.mark.usefixtures("no_addresses")
@pytest.mark.parametrize("spec", ["ik-ij-jk", "ik-ij-kj"])
@pytest.mark.parametrize("extent", [5, 200])
def test_a_run_needs_the_kernels_of_one_part(spec, extent, tmp_path, kept_code):
    """Others are neither compiled nor loaded, and it computes what it should."""
    (tmp_path / "code").symlink_to(kept_code)
    found = plan(spec, extent, dtype="float32", cache=False)
    operands = [np.ones((extent, extent), np.float32) for _ in range(2)]
    assert (found(*operands) == extent).all()
    assert len(kernel_cache._loaded) == 1
