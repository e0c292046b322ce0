"""The study of rankings: its cases, file, tables and section of a page."""

import csv
import io
import json
from dataclasses import replace

import pytest
from commands import bench

from tilesolve.contractions.errors import BenchmarkError, MemoryLimitError
from tilesolve.ranking import ranking as ranking_module
from tilesolve.ranking.ranking import rank
from tilesolve.studies import rankings as study
from tilesolve.studies.rankings import RankedCases, summarize_rankings

SUITE = """
format = 1
spec = "mn-mk-kn"
dtype = "float32"

[[problems]]
name = "small"
sizes = "m=24 n=32 k=16"

[[problems]]
name = "long"
sizes = "m=8 n=16 k=64"
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A suite whose variants take as long as their place in the list of those that run."""
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)

    def time_plans(problem, plans, procedure, step):
        step("a round")
        return [[2.0 + at, 1.0 + at] for at in range(len(plans))], set()

    monkeypatch.setattr(ranking_module, "time_plans", time_plans)
    return path


def test_a_study_is_kept_shown_and_resumed(suite, tmp_path):
    """All variants are run; the section of the page has the provenance."""
    kept, table, page = (tmp_path / name for name in ("r.json", "r.csv", "page.md"))
    files = ("--json", kept, "--csv", table, "--page", page)
    asked = (suite, "--study", "ranking", "--plans", 6, "--machine", "i7-6700k", *files)
    done = bench(*asked)
    assert done.exit_code == 0, done.stderr
    found = RankedCases.read(kept)
    assert list(found.rankings) == ["small", "long"]
    for one in found.rankings.values():
        assert len(one) == 6
        assert None not in one.measured
        assert one.excess == 0.0
    assert RankedCases.from_json(found.to_json()) == found
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8"))))
    assert [row["case"] for row in rows] == ["small"] * 6 + ["long"] * 6
    assert [float(row["price"]) for row in rows[:6]] == list(
        found.rankings["small"].scores_by("price")
    )
    text = page.read_text("utf-8")
    assert "## ranking of variants" in text
    for part in ("| CPU |", "| command |", "| small | 6 |", "the solver's plan", "median rank"):
        assert part in text
    again = bench(*asked)
    assert again.exit_code == 0
    assert "0 cases" in again.stderr
    assert page.read_text("utf-8").count("## ranking of variants") == 1


def test_means_are_of_all_cases():
    """The worst is named; a ranker that is lacking has no line."""
    found = rank("mn-mk-kn", 8, "i7-6700k", variants=3)
    at = found.plans.index(found.solver)
    seconds = [4.0] * 3
    seconds[at] = 2.0
    slow = [4.0] * 3
    slow[(at + 1) % 3] = 1.0
    rankings = [
        replace(found, scores=found.scores[:1], rounds=tuple((one,) for one in taken))
        for taken in (seconds, slow)
    ]
    lines = summarize_rankings(rankings)
    assert list(lines) == ["the solver's plan", "price"]
    assert lines["the solver's plan"].startswith("0.500 of the fastest")
    assert "0.250 at worst; 0.500 by the least median" in lines["the solver's plan"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(BenchmarkError("plan 2 gives another result"), 1), (MemoryLimitError("too large"), 0)],
)
def test_what_goes_wrong_with_a_case_is_a_line(suite, tmp_path, monkeypatch, error, status):
    """A wrong result is exit status 1; the other cases go on."""
    usual = study.rank

    def broken(problem, **options):
        if problem.sizes["k"] == 64:
            raise error
        return usual(problem, **options)

    monkeypatch.setattr(study, "rank", broken)
    kept = tmp_path / "r.json"
    done = bench(suite, "--study", "ranking", "--plans", 3, "--machine", "i7-6700k", "--json", kept)
    assert done.exit_code == status
    assert f"long: {error}" in done.stdout
    found = RankedCases.read(kept)
    assert list(found.rankings) == ["small"]
    assert RankedCases.from_json(found.to_json()) == found


def test_a_variant_without_a_time_is_damage(suite, tmp_path):
    """The file is refused."""
    kept = tmp_path / "r.json"
    asked = (suite, "--study", "ranking", "--plans", 2, "--machine", "i7-6700k", "--case", "small")
    assert bench(*asked, "--json", kept).exit_code == 0
    data = json.loads(kept.read_text("utf-8"))
    data["cases"][0]["ranking"]["variants"][0]["rounds"] = []
    with pytest.raises(BenchmarkError, match="small has a variant without a time"):
        RankedCases.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--study", "ranking", "--peers", "none"], "--peers"),
        (["--study", "ranking", "--plot", "x.png"], "--plot"),
        (["--plans", "3"], "--study"),
    ],
)
def test_options_that_a_study_would_ignore_are_refused(arguments, message):
    """With status 2."""
    done = bench("gemm-small", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
