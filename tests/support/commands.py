"""The command within a test's process, and Python in a process of its own."""

import subprocess
import sys
from functools import cache

from patience import PATIENCE
from typer import testing

from tilesolve.cli import app

FIRST_USE = """
import numpy as np
import tilesolve

first = np.arange(1600.0).reshape(40, 40)
second = first[::-1] + 1
assert np.allclose(tilesolve.plan("ik-ij-jk", 40, "i7-6700k")(first, second), first @ second)
assert (tilesolve.transpose(first) == first.T).all()
stage = tilesolve.nest("C[i,j] = A[j,i] + B[i,j]", 40, machine="i7-6700k")
assert (stage(first, second) == first.T + second).all()
"""
"""What a process may do first: a plan, a transpose and a nest, whose code is made or loaded."""


testing._get_command = cache(testing._get_command)
"""Makes all options of all commands, which takes longer than most commands do."""


def invoke(*arguments):
    """Run the command here."""
    return testing.CliRunner().invoke(app, [*map(str, arguments)])


def bench(*arguments):
    """Run the command that measures here."""
    return invoke("bench", *arguments)


def answer(*arguments):
    """Return what the command prints on stdout, having printed nothing else."""
    done = invoke(*arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def refused(*arguments):
    """Return the one line of an error: exit status 2 and nothing on stdout."""
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def run_python(*arguments, **options):
    """Run Python in a process of its own; what it prints is kept."""
    usual = {"capture_output": True, "text": True, "timeout": PATIENCE, "check": False}
    return subprocess.run([sys.executable, *map(str, arguments)], **(usual | options))
