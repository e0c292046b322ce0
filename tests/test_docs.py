import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tilesolve
from tilesolve.cli import app
from tilesolve.contractions.problem import DTYPES
from tilesolve.machine.model import Machine
from tilesolve.system.files import SETTINGS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")

MODULES = [
    "tilesolve",
    *(
        found.name
        for found in pkgutil.walk_packages(tilesolve.__path__, "tilesolve.")
        if not found.name.endswith("__main__")  # which runs the command
    ),
    *(
        found.name
        for folder in ("contractions", "kernels", "packing")
        for found in pkgutil.walk_packages(
            importlib.import_module(f"tilesolve.{folder}").__path__, f"tilesolve.{folder}."
        )
    ),
]


def public(module):
    """The public classes and functions that a module itself defines, with their names."""
    for name, value in vars(module).items():
        value = inspect.unwrap(value) if callable(value) else value
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value


def members(kind):
    """The public methods and properties that a class itself defines, with their names."""
    for name, value in vars(kind).items():
        value = getattr(value, "__func__", value)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield name, value


def is_documented(value):
    """Whether somebody wrote a docstring: dataclasses make one up from the signature."""
    doc = value.__doc__ or ""
    return bool(doc.strip()) and not doc.startswith(f"{getattr(value, '__name__', ' ')}(")


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_show(name):
    """The examples in a module's docstrings run and print what stands there."""
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name):
    """A module, and each public class, function, method and property in it, has a docstring."""
    module = importlib.import_module(name)
    found = [(name, module), *public(module)]
    for class_name, kind in public(module):
        if inspect.isclass(kind):
            found += [(f"{class_name}.{member}", value) for member, value in members(kind)]
    assert [called for called, value in found if not is_documented(value)] == []


@pytest.mark.parametrize("name", tilesolve.__all__)
def test_public_names_have_an_example(name):
    """Each name of the package shows an example; of errors, what raises them shows them."""
    value = getattr(tilesolve, name)
    is_error = inspect.isclass(value) and issubclass(value, BaseException)
    assert is_error or ">>> " in (value.__doc__ or "")


def blocks(language):
    """The README's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_readme_examples_give_what_they_show():
    """The README's examples run, one after the other, and print what stands there."""
    session = doctest.DocTestParser().get_doctest("".join(blocks("python")), {}, "README", None, 0)
    assert session.examples
    assert doctest.DocTestRunner().run(session).failed == 0


def test_readme_machine_file_is_one():
    """The README's example of a machine file can be read."""
    (text,) = [block for block in blocks("toml") if "[vector]" in block]
    machine = Machine.from_toml(text)
    assert [level.name for level in machine.levels] == ["L1", "L2", "memory"]
    assert all(machine.peak(dtype) > 0 for dtype in DTYPES)


def test_readme_names_every_setting_and_command():
    """The README has each environment variable, each command, and all options of the large ones."""
    commands = [command.name or command.callback.__name__ for command in app.registered_commands]
    shown = "".join(
        CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
        for command in ("plan", "bench")
    )
    options = [option for option in re.findall(r"--[a-z-]+", shown) if option != "--help"]
    wanted = [*SETTINGS, *(f"`tilesolve {command}" for command in commands), *options]
    assert len(options) > 5
    assert [name for name in wanted if name not in README] == []
