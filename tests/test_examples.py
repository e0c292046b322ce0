"""The examples run, and say what they are there to say."""

import importlib.util
import os
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SLOW = {"planning_speed", "transposing_speed"}
"""Examples that measure and take minutes; `make bench` runs them."""


def example(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run_here():
    """An example that no test runs would rot."""
    here = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert path.stem in SLOW or f'example("{path.stem}").main(' in here


def test_einsum_planning(capsys):
    """Each contraction is right, and has a row; each size says how many calls pay."""
    example("einsum_planning").main([16])
    out = capsys.readouterr().out
    assert out.count("| 2^16 |") == 7
    assert "of 6 |" in out


def test_first_contraction(capsys):
    """The plan's result is numpy's."""
    example("first_contraction").main()
    assert "equal to numpy's" in capsys.readouterr().out


@pytest.mark.parametrize("compiled", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_call_overhead(compiled, capsys, monkeypatch):
    """Every contender is called, and a fresh process contracts: one that has to compile, too."""
    if compiled:
        kept = os.environ["TILESOLVE_CACHE_DIR"]
        monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda: nullcontext(kept))
    example("call_overhead").main(["--calls", "3", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(" | ") for line in lines if "×" in line]
    assert len(rows) == 12
    at = next(at for at, line in enumerate(lines) if line.startswith("µs a call of a nest"))
    nests = [line.split(" | ") for line in lines[at + 2 : lines.index("", at)]]
    assert len(nests) == 8
    assert all(float(cell) > 0 for row in (*rows, *nests) for cell in row[1:])
    assert [line for line in lines if line.startswith("First contraction of the next process")]


def test_model_against_simulation(capsys):
    """The chosen nests' table has a row per problem and level, its ratios near 1."""
    example("model_against_simulation").main()
    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("| problem"))
    ratio = [cell.strip() for cell in lines[at].split("|")].index("ratio")
    rows = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(float(line.split("|")[ratio]))
    assert len(rows) >= 9
    assert all(0.9 <= row <= 1.1 for row in rows)


def test_memory_bandwidth_study(capsys, tmp_path):
    """The paper's model gives the paper's answer, and the picture is drawn."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "study.png"
    studies = example("memory_bandwidth_study").main(["--points", "2", "--plot", str(picture)])
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "| +40.0 % |" in printed
    paper = studies["paper's model, C overwritten"]
    assert paper.bottlenecks[0] == "memory"
    growth, slowest = paper.takeover
    assert slowest == "L1"
    assert growth == pytest.approx(0.21, abs=0.03)
    assert paper.larger_saves == pytest.approx(0, abs=1e-3)
    for found in studies.values():
        assert max(found.times[-1].values()) <= max(found.times[0].values()) * 1.03


def test_a_study_of_one_point_is_refused(capsys):
    """A growth needs two ends."""
    with pytest.raises(SystemExit):
        example("memory_bandwidth_study").main(["--points", "1"])
    assert "2 or more" in capsys.readouterr().err


def test_small_problems(capsys, tmp_path):
    """Each contender has a figure for each side, and the picture is drawn."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "small.png"
    arguments = ["--sides", "2", "24", "--seconds", "0.001", "--plot", str(picture)]
    results = example("small_problems").main(arguments)
    assert picture.read_bytes().startswith(b"\x89PNG")
    for text, rows in results.items():
        assert rows[0][:2] == (2, "view" if "," not in text else "loops")
        assert all(min(taken) > 0 for *_, times in rows for taken in times.values())
        assert {"einsum", "expression", "numpy"} <= set(rows[0][2])
    assert "| 24 | matmul |" in capsys.readouterr().out


def test_edge_speed(capsys, tmp_path):
    """Each extent has shares of the peak, of kernels and of calls, and the picture is drawn."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "edges.png"
    arguments = ["--extents", "9", "33", "--seconds", "0.001", "--plot", str(picture)]
    results = example("edge_speed").main(arguments)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(results) == 4
    for rows in results.values():
        assert [extent for extent, _ in rows] == [9, 33]
        assert all(share > 0 for _, shares in rows for share in shares.values())
    assert capsys.readouterr().out.count("| 33 | ") == 4


def test_thread_scaling(capsys, tmp_path):
    """Every round has both, whose results are checked; those the cores did not give count not."""
    suite = tmp_path / "suite.toml"
    suite.write_text('format = 1\nproblems = [{ spec = "ik-ij-jk", sizes = "i=70 j=80 k=90" }]\n')
    arguments = ["--suite", str(suite), "--rounds", "1", "--seconds", "0"]
    found = example("thread_scaling").main(arguments)
    (measured,) = found.values()
    assert 1 <= len(measured.rounds) <= 5
    assert len(measured.calm) <= len(measured.given) == len(measured.rounds)
    assert measured.share > 0
    assert "| ik-ij-jk |" in capsys.readouterr().out
    one, two = measured.rounds[0]
    calm = replace(
        measured, rounds=((one, replace(one, seconds=one.seconds / 2, peak=2 * one.peak)),)
    )
    assert calm.ratio == calm.best == 2
    assert not replace(calm, rounds=((one, replace(two, peak=1.8 * one.peak)),)).calm


def test_batched_contractions(capsys):
    """A batch has numpy's results."""
    arguments = ["abc-adc-bd", "a=9", "b=8", "c=7", "d=6", "--count", "5", "--threads", "2"]
    example("batched_contractions").main([*arguments, "--rounds", "1"])
    assert "equal to numpy's" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")
def test_pyscf_ccsd(capsys):
    """With our einsum in its place, coupled cluster gives the same energy."""
    pytest.importorskip("pyscf")
    assert example("pyscf_ccsd").main(["sto-3g"]) < 1e-9
    printed = capsys.readouterr().out
    calls = int(printed.splitlines()[-1].split()[0])
    assert calls > 500
    assert numpy.einsum.__module__ == "numpy"


@pytest.mark.slow
def test_whole_model(capsys):
    """A ResNet-18 gives what other runtimes give, twenty layers and a product among what runs."""
    pytest.importorskip("onnx")
    assert example("whole_model").main(["--size", "32", "--rounds", "1"]) < 1e-4
    printed = capsys.readouterr().out
    assert printed.count("conv ") == 21
    assert printed.count("residual, relu") == 8
    assert "our 21 layers alone" in printed


def test_fused_epilogues(capsys):
    """Fused and unfused results are equal, and each case has its ratio."""
    example("fused_epilogues").main(["--most", "1", "--repeat", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:7] for line in lines[1:3]] == ["3→64 7x", "product"]
    assert all(float(line.split()[-1]) > 0 for line in lines[1:3])
    assert lines[3].startswith("convolutions: mean ")


@pytest.mark.slow
def test_distributed_speed(capsys):
    """All contenders compute five contractions, which sampled elements agree with."""
    example("distributed_speed").main(["--scale", "0.2"])
    out = capsys.readouterr().out
    assert out.count("| tilesolve |") == 5
    assert "in the geometric mean" in out


@pytest.mark.slow
def test_larger_than_memory(capsys):
    """Tensors that exceed the workers' memory are contracted into a file, and sampled."""
    example("larger_than_memory").main(["--side", "3600"])
    assert "8 sampled elements are right" in capsys.readouterr().out
