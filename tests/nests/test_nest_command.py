"""``tilesolve plan --nest``."""

import json

import pytest
from typer.testing import CliRunner

from tilesolve.cli import app
from tilesolve.nests.plan import NestPlan, nest

MACHINE = "i7-6700k"


def call(*arguments):
    """The result of the command."""
    return CliRunner().invoke(app, ["plan", *arguments])


def test_a_nest_is_planned_and_explained():
    """Sizes follow as for specs; JSON reads back."""
    text = ("--nest", "out[y,x] = A[x,y] & B[y,x]", "--dtype", "int32", "--machine", MACHINE)
    done = call("64", *text)
    plan = nest("out[y,x] = A[x,y] & B[y,x]", 64, "int32", machine=MACHINE)
    assert done.exit_code == 0, done.output
    assert done.output == f"{plan}\n"
    again = call("y=64", "x=64", *text, "--json")
    assert json.loads(again.output)["holds"] == "a plan of a nest"
    assert NestPlan.from_json(again.output) == plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nest", "C[i] = A[i]", "4", "--accumulate"), "--nest takes no --accumulate"),
        (("--nest", "C[i] = A[i]", "4", "--conv", "c=4"), "--nest takes no --conv"),
        (("ij-ik-kj", "4", "--where", "i < 3"), "--where is of --nest"),
        (("--nest", "C[i] = A[", "4"), "column"),
        (("--nest", "C[i] = A[i]", "4", "--route", "bus"), "route is one of"),
    ],
)
def test_what_would_be_ignored_is_refused(arguments, message):
    """With a line that names it."""
    done = call(*arguments)
    assert done.exit_code == 2
    assert message in done.output
