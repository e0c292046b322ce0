"""Compiled kernels: another process makes them while this one is busy, if it can."""

import os
import sys

import pytest

from tilesolve import Machine, Plan, Problem, plan
from tilesolve.kernels.codegen.object_code import Family, build
from tilesolve.machine import kernel_cache
from tilesolve.machine.kernel_cache import family_of, load_kernels, start_compiling
from tilesolve.plans import executors

FAMILY = Family("float32", 128, 6, 4)
NAME = FAMILY.shapes[0].name


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """No kernels in memory or on disk, two cores, and a list of what is built in this process."""
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "_loaded", {})
    monkeypatch.setattr(kernel_cache, "_makers", {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})
    built = []

    def noted(family):
        built.append(family)
        return build(family)

    monkeypatch.setattr(kernel_cache, "build", noted)
    return built


def program(folder, text):
    """Return a shell script that stands for Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_another_process_compiles_what_is_missing(empty):
    """This one finds the file, and starts no second process for it."""
    start_compiling(FAMILY)
    [maker] = kernel_cache._makers.values()
    start_compiling(FAMILY)
    assert list(kernel_cache._makers.values()) == [maker]
    assert load_kernels(FAMILY).address(NAME) > 0
    assert empty == []
    assert maker.returncode == 0
    assert not kernel_cache._makers


def test_what_is_there_is_not_made_again(monkeypatch):
    """A family in memory or on disk needs no process."""
    load_kernels(FAMILY)
    start_compiling(FAMILY)
    monkeypatch.setattr(kernel_cache, "_loaded", {})
    start_compiling(FAMILY)
    assert not kernel_cache._makers


def test_one_core_is_not_shared(empty, monkeypatch):
    """Two processes on one core would be slower than one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0})
    start_compiling(FAMILY)
    assert not kernel_cache._makers
    assert load_kernels(FAMILY).address(NAME) > 0
    assert empty == [FAMILY]


@pytest.mark.parametrize("text", ["exit 1", "exec sleep 600", None])
def test_what_another_process_fails_to_make_is_made_here(empty, monkeypatch, tmp_path, text):
    """It may end early, hang, or not even start."""
    where = program(tmp_path, text) if text else str(tmp_path / "nothing")
    monkeypatch.setattr(sys, "executable", where)
    monkeypatch.setattr(kernel_cache, "WAIT_SECONDS", 0.5)
    start_compiling(FAMILY)
    makers = list(kernel_cache._makers.values())
    assert len(makers) == (text is not None)
    assert load_kernels(FAMILY).address(NAME) > 0
    assert empty == [FAMILY]
    assert all(maker.returncode for maker in makers)


def test_the_first_run_of_a_plan_begins_with_its_kernels(monkeypatch):
    """They are asked for before what runs plans is loaded, and only then."""
    begun = []
    monkeypatch.setattr(executors, "_executor_types", [])
    monkeypatch.setattr(kernel_cache, "start_compiling", begun.append)
    machine = Machine.load("i7-6700k")
    found = plan(Problem.of("mn-mk-kn", 4), machine=machine, cache=False)
    for _ in range(2):
        assert Plan(found.solution).executor.solution is found.solution
    assert begun == [family_of("float64", machine)]
