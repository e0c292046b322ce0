"""The study of random tiles of nests: what is run, kept, shown and refused."""

import csv
import io
import json
from types import SimpleNamespace

import pytest
from commands import bench

from tilesolve.bench.nests import NestCase
from tilesolve.bench.procedure import Procedure
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.statements.nest_suites import NestCase as Nest
from tilesolve.contractions.statements.nest_suites import nest_suite
from tilesolve.machine.model import Machine
from tilesolve.studies import nest_tiles as study
from tilesolve.studies.nest_tile_results import (
    DRAWN,
    PLANNED,
    TiledNest,
    TiledNests,
    Tiling,
    describe_shares,
    summarize_tilings,
)

MACHINE = Machine.load("i7-6700k")
SYRK = Nest("syrk", "C[i,j] += A[i,k] * A[j,k]", (("i", 19), ("j", 17), ("k", 9)), "float32")
SMALL = NestCase("syrk", SYRK)


@pytest.fixture
def small(monkeypatch):
    """A suite with small extents."""
    monkeypatch.setattr(study, "DIVISOR", 100)
    return ("nests", "--study", "tilings", "--plans", 4, "--repeat", 1, "--machine", "i7-6700k")


def test_a_study_is_kept_shown_and_resumed(small, tmp_path):
    """Nests that sum are run; the section of the page has the provenance and the shares."""
    kept, table, page = (tmp_path / name for name in ("r.json", "r.csv", "page.md"))
    asked = (*small, "--case", "tr*", "--case", "gemm", "--case", "tp")
    files = ("--json", kept, "--csv", table, "--page", page)
    done = bench(*asked, *files)
    assert done.exit_code == 0, done.output
    found = TiledNests.read(kept)
    assert [case.name for case in found.cases] == ["gemm", "trmm"]
    for case in found.cases:
        assert [one.kind for one in case.tilings] == [PLANNED, "runs", "lines", *[DRAWN] * 4]
        assert dict(case.work.sizes)["i"] == 21
    assert TiledNests.from_json(found.to_json()) == found
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8"))))
    assert [row["case"] for row in rows] == ["gemm"] * 7 + ["trmm"] * 7
    assert float(rows[0]["predicted_s"]) == found.cases[0].tilings[0].score
    text = page.read_text("utf-8")
    for part in ("## tilings of nests", "| CPU |", "L2 0.25 (assumed)", "| trmm | i=21", "median"):
        assert part in text, part
    again = bench(*asked, *files)
    assert again.exit_code == 0
    assert "0 cases" in again.stderr
    assert page.read_text("utf-8").count("## tilings of nests") == 1


def test_another_result_is_a_fault(small, monkeypatch):
    """The exit status is 1, and a line says which."""
    usual = study.find_outliers

    def broken(case, digests):
        return [*usual(case, digests)[:-1], True]

    monkeypatch.setattr(study, "find_outliers", broken)
    done = bench(*small, "--case", "trmm")
    assert done.exit_code == 1
    assert "gives another result than most" in done.stdout


def test_tilings_that_take_far_longer_are_timed_once(monkeypatch):
    """Others in rounds."""
    times = iter([0.1, 0.5, 0.2, *[0.3] * 4])
    monkeypatch.setattr(study, "make_timer", lambda run, trash: lambda: next(times))
    choices = study.draw_tilings(study.NestRequest(SYRK.computation, MACHINE), count=3)
    found = study.time_choices(SMALL, choices, MACHINE, Procedure(repeat=3), lambda _: None)
    assert found == [[0.1, 0.3, 0.3], [0.5], [0.2, 0.3, 0.3]]


def tiled(prices, seconds, own=2.0, lines=3.0):
    """A study with made-up times."""
    made = [(PLANNED, 1.0, own), ("runs", 1.0, own), ("lines", 1.0, lines)]
    made += [(DRAWN, *pair) for pair in zip(prices, seconds, strict=True)]
    return TiledNest(
        SMALL, tuple(Tiling(kind, "i", price, (taken,)) for kind, price, taken in made)
    )


def test_figures_of_a_study():
    """Correlations are of what was drawn alone; ranks and shares count the plan."""
    found = tiled([1.0, 2.0, 3.0], [1.0, 4.0, 8.0])
    assert found.correlation == 1.0
    assert tiled([3.0, 2.0, 1.0], [1.0, 4.0, 8.0]).correlation == -1.0
    assert (found.rank, found.share, found.first) == (2, 0.5, 1.0)
    assert (found.ratio("runs"), found.ratio("lines")) == (1.0, 1.5)
    record = TiledNests(None, {}, MACHINE.to_toml(), (found, TiledNest(SMALL, skipped="no room")))
    lines = summarize_tilings(record)
    assert lines["correlation"] == "median 1.00, worst 1.00 (syrk)"
    assert lines["speed of the plan"].startswith("0.50 of the fastest")
    assert "slower for 1 of 1" in lines["planned by lines"]
    assert "the same tiles for 1" in lines["planned by runs"]
    assert summarize_tilings(TiledNests(None, {}, "", ())) == {}


def test_shares_say_which_are_assumed():
    """Of the levels behind the first cache."""
    found = describe_shares(Machine.load("i7-5930k"), 1)
    assert found == "L2 0.25 (assumed), L3 0.25 (assumed), memory 0.25 (assumed)"


def test_damaged_files_are_refused():
    """A score below zero is none."""
    data = {"tilings": [{"kind": DRAWN, "loops": "i", "score": -1.0, "seconds": [1.0]}]}
    with pytest.raises(BenchmarkError):
        TiledNests.restore(SMALL, json.loads(json.dumps(data)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tccg", "--study", "tilings"), "suite of nests"),
        (("nests", "--study", "tilings", "--peers", "none"), "--peers"),
        (("nests", "--study", "tilings", "--dtype", "f32"), "--dtype"),
        (("nests", "--study", "tiles"), "--study"),
    ],
)
def test_what_would_be_ignored_is_refused(arguments, message):
    """With status 2."""
    done = bench(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_the_suite_s_nests_that_sum_are_studied():
    """At half of their extents, but for letters too small for tiles."""
    found = study.find_temporal(SimpleNamespace(suite="nests", chosen=()))
    assert set(nest_suite("nests")) - set(found) == {"tpm", "tp", "copy", "mask"}
    sizes = dict(found["convlayer"].work.sizes)
    assert sizes | {"r": 3} == sizes
