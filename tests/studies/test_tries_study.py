"""The study of tries: its cases, file, tables and section of a page."""

import csv
import io
import json

import pytest
from commands import bench
from running_cases import write_shallow_machine

from tilesolve.bench.cases import ContractionCase
from tilesolve.contractions.errors import BenchmarkError, MemoryLimitError
from tilesolve.contractions.problem import Problem
from tilesolve.ranking.variants import list_variants
from tilesolve.studies import tries as study
from tilesolve.studies.tries import AllTried, Tried, summarize_tries

SUITE = """
format = 1
spec = "mn-mk-kn"
problems = [
    { name = "small", sizes = "m=24 n=32 k=16" }, { name = "long", sizes = "m=8 n=16 k=64" }
]
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Two products: of the small one tries keep another plan, which takes half as long."""
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)
    write_shallow_machine(tmp_path)

    def plan(problem, *, machine, threads, tries=1):
        other = tries > 1 and problem.sizes["k"] == 16
        return list_variants(problem, machine, threads, count=2)[other].plan

    def time_plans(problem, plans, procedure, step):
        step("a round")
        return [[2.0, 4.0, 3.0], [1.5, 1.5, 1.0]], set()

    monkeypatch.setattr(study, "plan", plan)
    monkeypatch.setattr(study, "time_plans", time_plans)
    return path


def test_a_study_is_kept_shown_and_resumed(suite, tmp_path):
    """Where tries keep the same plan nothing is run; the section has the provenance."""
    kept, table, page = (tmp_path / name for name in ("t.json", "t.csv", "page.md"))
    files = ("--json", kept, "--csv", table, "--page", page)
    asked = (
        suite,
        "--study",
        "tries",
        "--plans",
        2,
        "--machine",
        suite.parent / "shallow.toml",
        *files,
    )
    done = bench(*asked)
    assert done.exit_code == 0, done.stderr
    found = AllTried.read(kept)
    assert AllTried.from_json(found.to_json()) == found
    assert [(case.name, case.ratio) for case in found.cases] == [("small", 0.5), ("long", 1.0)]
    assert all(case.answer > 0 for case in found.cases)
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8"))))
    assert [row["ratio"] for row in rows] == ["0.5", "1.0"]
    assert "the same plan" in done.stdout
    text = page.read_text("utf-8")
    for part in ("## tries, ", "| command |", "| small | 3 s | 1.5 s | 0.500 |", "2 tries"):
        assert part in text
    again = bench(*asked)
    assert again.exit_code == 0
    assert "0 cases" in again.stderr


@pytest.mark.parametrize(
    ("error", "status"),
    [(BenchmarkError("plan 2 gives another result"), 1), (MemoryLimitError("too large"), 0)],
)
def test_what_goes_wrong_with_a_case_is_a_line(suite, tmp_path, monkeypatch, error, status):
    """A wrong result is exit status 1; the other cases go on."""

    def broken(*_):
        raise error

    monkeypatch.setattr(study, "time_plans", broken)
    kept = tmp_path / "t.json"
    done = bench(
        suite, "--study", "tries", "--machine", suite.parent / "shallow.toml", "--json", kept
    )
    assert done.exit_code == status
    assert f"small: {error}" in done.stdout
    found = AllTried.read(kept)
    assert [case.name for case in found.done] == ["long"]
    assert AllTried.from_json(found.to_json()) == found
    assert found.to_csv().count(str(error)) == 1


def test_a_time_without_the_other_is_damage(suite, tmp_path):
    """The file is refused."""
    kept = tmp_path / "t.json"
    asked = (
        suite,
        "--study",
        "tries",
        "--machine",
        suite.parent / "shallow.toml",
        "--case",
        "small",
    )
    assert bench(*asked, "--json", kept).exit_code == 0
    data = json.loads(kept.read_text("utf-8"))
    data["cases"][0]["alone"] = []
    with pytest.raises(BenchmarkError, match="small have times of one plan only"):
        AllTried.from_json(json.dumps(data))


def test_plans_have_to_be_kept(suite, monkeypatch):
    """Without the cache no answer comes from a file."""
    monkeypatch.setenv("TILESOLVE_CACHE", "off")
    done = bench(suite, "--study", "tries", "--machine", suite.parent / "shallow.toml")
    assert done.exit_code == 2
    assert "TILESOLVE_CACHE is off" in done.stderr


def test_means_are_of_all_cases():
    """The worst is named, and how many have another plan."""
    problem = Problem.of("ik-ij-jk", 8)
    cases = (
        Tried(ContractionCase("one", problem), (1.0,), (1.21,), 0.002),
        Tried(ContractionCase("two", problem), answer=0.001),
        Tried(ContractionCase("three", problem), skipped="too large"),
    )
    found = summarize_tries(AllTried(None, {}, "", cases))
    assert found == {
        "with over without": "1.100 in the geometric mean, 1.210 at worst; "
        "another plan in 1 of 2 cases",
        "kept plan again": "2 ms at most",
    }
    assert summarize_tries(AllTried(None, {}, "", cases[2:])) == {}
