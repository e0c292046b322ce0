"""Layers on the command line."""

import json

import pytest
from commands import invoke

from tilesolve.contractions.errors import SizeError, SpecError
from tilesolve.convolutions.command import read_convolution
from tilesolve.plans import tries

LAYER = "n=1 c=4 h=6 w=6 k=8 r=3 s=3 padding=1 stride=1"


def command(*words):
    """Run `tilesolve plan` for a shipped machine."""
    return invoke("plan", *words, "--machine", "i7-6700k")


def test_report():
    """The layer's report: its arguments, then the plan for weights that stay."""
    found = command("--conv", LAYER, "--layout", "NHWC", "--epilogue", "relu")
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0] == "conv 3x3 4→8, 6x6, padding 1, NHWC float32, relu"
    assert lines[2].startswith("hwk-[h+r][w+s]c-rsck ")


def test_json():
    """The plan's JSON, in another dtype."""
    found = command("--conv", "c=4 w=6 k=8 s=1", "--dtype", "f64", "--json")
    assert json.loads(found.stdout)["problem"]["spec"] == "kx-cx-kc"
    assert json.loads(found.stdout)["problem"]["dtype"] == "float64"


def test_tries(monkeypatch):
    """So many candidates are run, of a layer and of a spec; the report is of the fastest."""
    counts = []

    def measure(candidates):
        counts.append(len(candidates))
        return [1.0, *[0.5] * (len(candidates) - 1)]

    monkeypatch.setattr(tries, "measure", measure)
    others = ("--tries", "2", "--strategy", "composition", "--no-cache")
    for words in (("--conv", "c=16 h=8 w=8 k=16 r=3 s=3", "--layout", "NHWC"), ("ij-ik-kj", "64")):
        assert command(*words, *others).exit_code == 0
    assert counts == [2, 2]
    assert command("ij-ik-kj", "8", "--tries", "0").exit_code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give either a spec, --conv or --nest"),
        (("ij-ik-kj", "--conv", LAYER), "give either a spec, --conv or --nest"),
        (("ij-ik-kj", "8", "--layout", "NHWC"), "--layout is of --conv"),
        (("--conv", LAYER, "--accumulate"), "--conv takes no --accumulate"),
        (("--conv", "c=4"), "pixels are given along nothing"),
    ],
)
def test_wrong_use(words, message):
    """Options that do not go together are refused."""
    found = command(*words)
    assert found.exit_code == 2
    assert message in " ".join(found.output.replace("│", " ").split())


def test_numbers():
    """One or as many as there are dimensions; pairs of zeros."""
    found = read_convolution(
        "n=2 c=6 k=4 d=5 h=6 w=7 t=1 r=2 s=3 stride=1x2x1 dilation=2 padding=0x1x1+2 groups=2",
        *("NCHW", "float64"),
    )
    assert str(found) == (
        "1x2x3 6→4, 5x6x7, batch 2, stride 1x2x1, padding 0x1x1+2, dilation 2, 2 groups, "
        "NCHW float64"
    )
    same = read_convolution("c=1 k=1 w=7 s=4 padding=same", "NHWC", "float32")
    assert same.padding == ((1, 2),)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("c=4 k=8 w=x s=1", SizeError, "w must be an integer, got 'x'"),
        ("c=4 k=8 w=5 q=1", SizeError, "found 'q=1'"),
        ("c=4 c=5", SizeError, "two numbers for 'c': 4 and 5"),
        ("c=4 k=8 h=5 s=1", SizeError, "pixels are given along h"),
        ("c=4 k=8 w=5", SizeError, "no number for 's'"),
        ("c=4 w=5 s=1", SizeError, "no number for 'k'"),
        ("c=4 k=8 w=5 r=2 s=1", SizeError, "the window has r"),
        ("c=4 k=8 w=5 s=1 groups=3", SizeError, "groups=3 do not divide 4 channels"),
        ("c=4 k=8 w=5 s=1 stride=0", SizeError, "stride must be at least 1"),
        ("c=4 k=8 w=5 s=1 padding=a", SizeError, "padding must be an integer, got 'a'"),
    ],
)
def test_bad_text(text, error, message):
    """The message says which number."""
    with pytest.raises(error, match=message):
        read_convolution(text, "NCHW", "float32")


def test_bad_layout():
    """Blocks cannot be told by these numbers."""
    with pytest.raises(SpecError, match="layout 'NCHWc' is not known"):
        read_convolution("c=4 k=8 w=5 s=1", "NCHWc", "float32")
