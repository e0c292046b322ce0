"""``tilesolve plan --nest``."""

import json

import pytest
from typer.testing import CliRunner

from tilesolve.cli import app
from tilesolve.nests.plan import NestPlan, keep_plan, nest
from tilesolve.nests.solutions import FusedSolution
from tilesolve.pipelines.plan import PipelinePlan

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


def test_statements_share_tiles(tmp_path):
    """As those of a pipeline; the picture is of their stages."""
    pytest.importorskip("matplotlib")
    text = "b[y,x] = exp(A[y,x] + A[y,x+1]); o[v,u] = b[v,u] + b[v+1,u]"
    sizes = {"y": 257, "x": 256, "v": 256, "u": 256}
    words = [f"{letter}={extent}" for letter, extent in sizes.items()]
    plan = keep_plan(PipelinePlan, nest(text, sizes, machine=MACHINE).request, cache=True)
    assert any(isinstance(one, FusedSolution) for one in plan.solutions)
    path = tmp_path / "stages.png"
    given = ("--nest", text, *words, "--fuse", "--machine", MACHINE, "--plot", path)
    done = call(*map(str, given))
    assert done.exit_code == 0, done.output
    assert done.output == f"{plan}\n"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nest", "C[i] = A[i]", "4", "--accumulate"), "--nest takes no --accumulate"),
        (("--nest", "C[i] = A[i]", "4", "--conv", "c=4"), "--nest takes no --conv"),
        (("ij-ik-kj", "4", "--where", "i < 3"), "--where is of --nest"),
        (("ij-ik-kj", "4", "--fuse"), "--fuse is of --nest"),
        (("--nest", "C[i] = A[", "4"), "column"),
        (("--nest", "C[i] = A[i]", "4", "--route", "bus"), "route is one of"),
    ],
)
def test_what_would_be_ignored_is_refused(arguments, message):
    """With a line that names it."""
    done = call(*arguments)
    assert done.exit_code == 2
    assert message in done.output
