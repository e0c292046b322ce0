"""Compiled functions: none is used with a layout it was not made for, and all where they are."""

import ast
import ctypes
import gc
import os
import shutil
import sys
import weakref
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from commands import run_python

import tilesolve
from tilesolve.constants import tuning
from tilesolve.kernels.codegen.python_entry import Definition
from tilesolve.kernels.runtime import guard_fields
from tilesolve.kernels.runtime.array_guard import describe_arrays, match_arrays
from tilesolve.kernels.runtime.compiled import (
    INT,
    REAL,
    address,
    as_pointer,
    compiled,
    invoke,
    is_ready,
    result,
)
from tilesolve.kernels.sources import LAYOUT, checksum, list_sources

runtime = sys.modules["tilesolve.kernels.runtime.compiled"]

CHECK = "assert tilesolve.__path__ == [{path!r}], tilesolve.__path__\n"

MATCH = """
import numpy, tilesolve
from tilesolve.kernels.runtime import array_guard, guard_fields
given = numpy.zeros((2, 3)), numpy.zeros((2, 4))
words = numpy.append(numpy.zeros(guard_fields.ARRAYS, int), array_guard.describe_arrays(given))
words[guard_fields.GIVEN] = 2
for others in given, given[::-1]:
    row = numpy.array([id(array) for array in others])
    found = array_guard.match_arrays(words.ctypes.data, row.ctypes.data)
    assert found == (others is given)
"""

OF_MATCHING = {
    "runtime/guard_fields": (("GIVEN = 9\n", "GIVEN = 10\n"), ("NONE = 10\n", "NONE = 9\n")),
}
"""For the module that a compiled function takes constants from, another order of two of these."""

RUN_PLANS = """
import numpy, tilesolve
for spec in ("ik-ij-jk", "abc-bda-dc"):
    problem = tilesolve.Problem.of(spec, 21)
    arrays = [numpy.random.default_rng(0).standard_normal(s) for s in problem.shapes[1:]]
    plan = tilesolve.plan(problem, machine="i7-6700k", cache=False)
    assert numpy.allclose(plan(*arrays), tilesolve.reference(problem, *arrays))
"""

OF_PLANS = {
    "codegen/pack": (('    "source",\n    "target",\n', '    "target",\n    "source",\n'),),
    "codegen/shape": (('    "a",\n    "b",\n    "k",\n', '    "k",\n    "b",\n    "a",\n'),),
    "runtime/state": (("TOP = PACKER_FRAME + len(pack.FIELDS)\n", "TOP = PACKER_FRAME + 40\n"),),
}
"""The same for all functions that run a plan: it takes many seconds to compile them."""


COMPILED = [
    f"{path.parent.name}.{path.stem}"
    for path in list_sources()
    if "\n@compiled(" in path.read_text("utf-8")
]
"""Modules of compiled functions."""


@pytest.mark.parametrize(
    ("script", "changed"),
    [
        pytest.param(MATCH, OF_MATCHING, id="a function"),
        pytest.param(RUN_PLANS, OF_PLANS, id="plans", marks=pytest.mark.slow),
    ],
)
def test_another_layout_is_noticed(script, changed, tmp_path):
    """Functions compiled before the layout of frames and states changed are compiled again."""
    tree = tmp_path / "tilesolve"
    source = Path(tilesolve.__file__).parent
    shutil.copytree(source, tree)  # with what is compiled already
    for package in ("contractions", "kernels", "packing"):
        found = Path(sys.modules[f"tilesolve.{package}"].__file__).parent
        shutil.copytree(found, tree / package, dirs_exist_ok=True)
    for changes in ({}, changed):
        for module, lines in changes.items():
            path = tree / "kernels" / f"{module}.py"
            for old, new in lines:
                text = path.read_text("utf-8")
                assert text.count(old) == 1, module
                path.write_text(text.replace(old, new), "utf-8")
        done = run_python("-c", script + CHECK.format(path=str(tree)), cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def _imported(path):
    """Return the modules of ours that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tilesolve"):
            package = hasattr(import_module(node.module), "__path__")
            within = {f"{node.module}.{name.name}" for name in node.names}
            found |= within if package else {node.module}
    return found


@pytest.mark.parametrize("module", COMPILED)
def test_the_layout_covers_all_that_is_taken_from_others(module):
    """What code is compiled for has every module of ours in it that its own imports."""
    assert checksum(list_sources()) == LAYOUT
    covered = {str(source) for source in list_sources()}
    names = _imported(Path(import_module(f"tilesolve.kernels.{module}").__file__))
    assert names
    for name in names:
        assert import_module(name).__file__ in covered, name


def test_sources_are_all_files_of_all_subfolders():
    """Whatever lies below the kernels' and packing's folders, however deep, and their constants."""
    found = set()
    for package in ("kernels", "packing"):
        (top,) = import_module(f"tilesolve.{package}").__path__
        for folder, _, names in os.walk(top):
            found |= {Path(folder) / name for name in names if name.endswith(".py")}
    assert {path.parent.name for path in found} >= {"kernels", "codegen", "runtime", "probes"}
    assert set(list_sources()) == found | {Path(tuning.__file__)}


def test_a_change_of_any_file_changes_the_layout(tmp_path):
    """Whichever of the files it is in."""
    copies = [tmp_path / f"{at}.py" for at, _ in enumerate(list_sources())]
    for copy, source in zip(copies, list_sources(), strict=True):
        shutil.copy(source, copy)
    found = {checksum(copies)}
    for copy in copies:
        text = copy.read_text("utf-8")
        copy.write_text(text + "#", "utf-8")
        found.add(checksum(copies))
        copy.write_text(text, "utf-8")
    assert LAYOUT in found
    assert len(found) == 1 + len(copies)


def test_another_process_makes_what_is_wanted_sooner_first(monkeypatch, tmp_path):
    orders, made = [], []
    monkeypatch.setattr(runtime, "start_maker", orders.append)
    monkeypatch.setattr(runtime, "_path_of", lambda module: tmp_path / module)
    monkeypatch.setattr(runtime, "_loaded", {})
    monkeypatch.setattr(runtime, "_makers", {})
    sooner = "tilesolve.kernels.runtime.boxes"
    assert is_ready(match_arrays, after=[sooner])  # there is no other process
    monkeypatch.setattr(os, "nice", int)
    monkeypatch.setattr(runtime, "load_functions", made.append)
    [order] = orders
    exec(order, {})
    assert made == [sooner, "tilesolve.kernels.runtime.array_guard"]


def test_code_at_an_address_gets_its_arguments_in_order_and_gives_back_an_integer():
    seen = []

    def note(first, second, real, *others):
        seen.append((first, second, real, others))
        return 2**40 + first

    integer, real = ctypes.c_int64, ctypes.c_double
    kind = ctypes.CFUNCTYPE(integer, integer, ctypes.c_void_p, real, *[integer] * 7)
    callback = kind(note)
    where = ctypes.cast(callback, ctypes.c_void_p).value

    @compiled(INT, INT, INT, REAL, returns=INT)
    def call(place, first, second, third):
        invoke(place, first, as_pointer(second), third, 3, 4, 5, 6, 7, 8, 9)
        return result(place, first + 1, as_pointer(second), third, 0, 0, 0, 0, 0, 0, first)

    assert call(where, 1, 64, 0.5) == 2**40 + 2
    assert seen == [(1, 64, 0.5, (3, 4, 5, 6, 7, 8, 9)), (2, 64, 0.5, (0, 0, 0, 0, 0, 0, 1))]


def test_a_compiled_function_is_the_same_where_its_address_says():
    given = np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((4, 3))
    words = np.append(np.zeros(guard_fields.ARRAYS, np.int64), describe_arrays(given))
    words[guard_fields.GIVEN] = len(given)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 2)
    for others in (given, given[::-1]):
        row = np.array([id(array) for array in others])
        arguments = words.ctypes.data, row.ctypes.data
        found = kind(address(match_arrays))(*arguments)
        assert found == match_arrays(*arguments) == (others is given)


def test_definitions_outlive_whoever_made_them():
    """Threads that call first at once make one each, and functions of all of them run."""
    made = weakref.ref(Definition.of(address(match_arrays)))
    gc.collect()
    assert made() is not None
