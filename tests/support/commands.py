"""The command within a test's process, and Python in a process of its own."""

import subprocess
import sys

from patience import PATIENCE
from typer.testing import CliRunner

from tilesolve.cli import app


def invoke(*arguments):
    """Run the command here."""
    return CliRunner().invoke(app, [*map(str, arguments)])


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
