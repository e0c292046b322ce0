"""Compiled functions that outlive their process: none is used with a layout it was not made for."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilesolve
from tilesolve.kernels import filling, guards, macrokernel

SCRIPT = """
import numpy, tilesolve
assert tilesolve.__path__ == [{path!r}], tilesolve.__path__
for spec in ("ik-ij-jk", "abc-bda-dc"):
    problem = tilesolve.Problem.of(spec, 21)
    arrays = [numpy.random.default_rng(0).standard_normal(s) for s in problem.shapes[1:]]
    plan = tilesolve.plan(problem, machine="i7-6700k", cache=False)
    assert numpy.allclose(plan(*arrays), tilesolve.reference(problem, *arrays))
"""

CHANGES = {
    "packers": ('    "source",\n    "target",\n', '    "target",\n    "source",\n'),
    "shape": ('    "a",\n    "b",\n    "k",\n', '    "k",\n    "b",\n    "a",\n'),
    "state": ("    TOP = PACKER + len(packers.FIELDS)\n", "    TOP = PACKER + 40\n"),
}
"""For modules that compiled functions take constants from, another order of these."""


def test_another_layout_is_noticed(tmp_path):
    """Functions compiled before the layout of frames and states changed are compiled again."""
    tree = tmp_path / "tilesolve"
    source = Path(tilesolve.__file__).parent
    shutil.copytree(source, tree)  # with what is compiled already
    for package in ("contractions", "kernels", "packing"):
        found = Path(sys.modules[f"tilesolve.{package}"].__file__).parent
        shutil.copytree(found, tree / package, dirs_exist_ok=True)
    for changes in ({}, CHANGES):
        for module, (old, new) in changes.items():
            path = tree / "kernels" / f"{module}.py"
            text = path.read_text("utf-8")
            assert text.count(old) == 1, module
            path.write_text(text.replace(old, new), "utf-8")
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(path=str(tree))],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", [filling, guards, macrokernel])
def test_layouts_cover_all_that_is_taken_from_others(module):
    """The checksum that code is compiled for is that of every module of ours that it imports."""
    parsed = ast.parse(Path(module.__file__).read_text("utf-8"))
    imported = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom) and node.module in (
            "tilesolve.kernels",
            "tilesolve.packing",
        ):
            imported |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("tilesolve."):
            imported.add(node.module)
    (call,) = (
        node
        for node in ast.walk(parsed)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "checksum"
    )
    covered = {getattr(module, argument.id).__name__ for argument in call.args}
    assert imported <= covered
