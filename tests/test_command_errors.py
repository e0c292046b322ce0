"""The command: whatever arguments it is given, one line says what is wrong."""

from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import pytest
from commands import invoke

from tilesolve import caches
from tilesolve.bench.run import suite_sweep
from tilesolve.calibration import calibrate as calibration
from tilesolve.calibration import microkernels
from tilesolve.cli import app
from tilesolve.machine.model import Machine
from tilesolve.machine.places import machine_file
from tilesolve.system.files import write_atomically

CALLBACKS = {
    found.name or found.callback.__name__: found.callback for found in app.registered_commands
}

REQUIRED = {
    "bench": ("tccg",),
    "plan": ("ij,jk->ik", "4", "--machine", "i7-6700k"),
}
"""What a command needs beside the argument that is wrong."""

WRONG = {
    str: ("§?", "no/such/place"),
    StrEnum: ("§?", ""),
    int: ("§?", "1.5", "", "nan", "-3", "0"),
    float: ("§?", "", "1,5", "nan", "-1"),
    Path: ("/dev/null/file",),
}
"""What is given for each type of value."""


def options():
    """Each option of each command: its name, and the type of its value, bool for flags."""
    for command, callback in sorted(CALLBACKS.items()):
        for name, hint in get_type_hints(callback, include_extras=True).items():
            for extra in getattr(hint, "__metadata__", ()):
                if type(extra).__name__ == "OptionInfo":
                    written = str(extra.default)  # where typer has the name beside a type
                    own = written if written.startswith("--") else f"--{name.replace('_', '-')}"
                    yield command, own, value_type(hint.__origin__)


def value_type(hint):
    """The type of one value, where there may be none, or several."""
    (found, *_) = [one for one in get_args(hint) if one is not NoneType] or [hint]
    found = value_type(found) if get_args(found) else found
    return StrEnum if issubclass(found, StrEnum) else found


OPTIONS = list(options())
VALUES = [
    (command, option, value) for command, option, kind in OPTIONS for value in WRONG.get(kind, ())
]


def check(*arguments):
    """Run the command; it ends with 2 and one line, before anything was measured."""
    done = invoke(*arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 2, (arguments, done.output)
    assert done.stderr.startswith("error: "), done.output
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.output


@pytest.fixture(autouse=True)
def measures_nothing(monkeypatch):
    """A command that got through its checks would measure or compile for minutes."""

    def fail(*_, **__):
        raise AssertionError("it went to work")

    monkeypatch.setattr(suite_sweep, "run_sweep", fail)
    monkeypatch.setattr(calibration, "calibrate", fail)
    monkeypatch.setattr(microkernels, "measure_catalogues", fail)
    monkeypatch.setattr(caches, "warm_cache", fail)


@pytest.mark.parametrize("name", sorted(CALLBACKS))
def test_arguments_that_a_command_does_not_have(name):
    """Options that are unknown or lack their value."""
    check(name, "--no-such-option")
    for command, option, kind in OPTIONS:
        if command == name:
            check(name, f"{option}=yes" if kind is bool else option)


@pytest.mark.parametrize(("name", "option", "value"), VALUES)
def test_wrong_values_of_options(name, option, value):
    """Of each type, for each option of each command."""
    if name == "kernels":
        write_atomically(machine_file(), Machine.detect().to_toml())
    check(name, *REQUIRED.get(name, ()), option, value)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("--nonsense",),
        ("machine", "§?"),
        ("machine", ""),
        ("machine", "/"),
        ("machine", "i7-6700k", "--toml", "--json"),
        ("suites", "§?"),
        ("suites", "no.toml"),
        ("suites", "no.onnx"),
        ("bench",),
        ("bench", "§?"),
        ("bench", "random:x:1"),
        ("bench", "random:0:1"),
        ("plan", "§?", "4"),
        ("plan", "ij->ji", "4"),
        ("plan", "ij,jk->ik", "-3"),
        ("plan", "--conv", "§?"),
        ("plan", "--conv", ""),
        ("plan", "ij,jk->ik", "4", "--conv", "c=1"),
        ("kernels",),
    ],
)
def test_wrong_arguments(arguments):
    """Names, specs and sizes that do not exist or do not fit."""
    check(*arguments)
