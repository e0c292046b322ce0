"""The study of the price: its terms, the fit, its file, tables and section of a page."""

import csv
import io
import json
import math
import random
from dataclasses import replace

import pytest
from commands import bench
from hypothesis import given
from hypothesis import strategies as st
from running_cases import write_shallow_machine
from turns import examples

from tilesolve.bench.cases import ContractionCase, draw_problems
from tilesolve.bench.nests import NestCase, find_nests
from tilesolve.bench.results.record import Conditions
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite as find_suite
from tilesolve.machine.model import Machine
from tilesolve.ranking.variants import list_variants
from tilesolve.studies import priced_plans as study
from tilesolve.studies.price_results import (
    compare_machines,
    fit_factors,
    fit_machines,
    list_factor_rows,
    list_far_plans,
    list_price_rows,
    share_near,
)
from tilesolve.studies.priced_plans import (
    CALIBRATED,
    DETECTED,
    PricedCase,
    PricedCases,
    Trial,
    split_price,
)

SUITE = """
format = 1
spec = "mn-mk-kn"
problems = [
    { name = "small", sizes = "m=24 n=32 k=16" }, { name = "long", sizes = "m=8 n=16 k=64" }
]
"""
TERMS = ("arithmetic", "packing", "L1", "memory", "waiting")


@pytest.mark.parametrize("machine", ["i7-6700k", "e5-2680v4"])
@pytest.mark.parametrize(
    "problem",
    [*draw_problems(3, 9).values(), find_suite("resnet18")["ResNet18-8"]],
    ids=str,
)
def test_terms_are_what_the_score_is_made_of(problem, machine):
    """With factors of 1 the terms of any variant come to the score that it is compared by."""
    for variant in list_variants(problem, Machine.load(machine), count=4):
        found = variant.plan.solution
        terms = split_price(found)
        assert all(value >= 0 for value in terms.values())
        overlap = found.machine.costs.level_overlap
        trial = Trial(DETECTED, "solver", found.seconds, terms, overlap, (1.0,))
        assert trial.score() == pytest.approx(found.score, rel=1e-9)
        assert trial.score({"memory": 2.0}) >= trial.score()


@examples(6, 15)
@given(st.integers(0, 1000), st.floats(0.5, 2.0), st.floats(0.5, 2.0))
def test_a_fit_finds_what_times_were_made_with(seed, arithmetic, memory):
    """Factors come back where they matter, in spite of noise and of a time that is far off."""
    draw = random.Random(seed)
    trials = []
    for number in range(120):
        terms = {name: 10 ** draw.uniform(-4, -2) for name in TERMS}
        one = Trial(DETECTED, "solver", 1.0, terms, 0.5, (1.0,))
        taken = one.score({"arithmetic": arithmetic, "memory": memory})
        taken *= math.exp(draw.gauss(0, 0.02)) * (9.0 if number == 5 else 1.0)
        trials.append(replace(one, seconds=(taken,)))
    found = fit_factors(trials)
    assert found["arithmetic"] == pytest.approx(arithmetic, rel=0.12)
    assert found["memory"] == pytest.approx(memory, rel=0.12)
    assert min(found.values()) >= 0
    near = [one.score(found) / one.median for one in trials]
    assert share_near(near) == pytest.approx(119 / 120)


def make_case(name, seconds):
    """A case of two machines, a plan and a variant of each, with seconds of these in order."""
    times = iter(seconds)
    trials = tuple(
        Trial(machine, kind, 1.0, {"arithmetic": size, "memory": 0.1}, 0.0, (next(times),))
        for machine in (DETECTED, CALIBRATED)
        for kind, size in (("solver", 1.0), ("grid", 2.0))
    )
    return PricedCase(ContractionCase(name, Problem.of("ik-ij-jk", 8)), trials)


@pytest.fixture
def found():
    """Two suites: the first has the detected plan twice as fast, the second the calibrated one."""
    cases = (
        make_case("a:1: x", (2.0, 4.0, 4.0, 2.0)),
        make_case("a:1: y", (2.0, 4.0, 4.0, 8.0)),
        make_case("b: x", (2.0, 4.0, 1.0, 8.0)),
        PricedCase(ContractionCase("b: z", Problem.of("ik-ij-jk", 8)), skipped="too large"),
    )
    made = Conditions("a:1,b", None, 1, 1, 3, {}, "toy 123")
    return PricedCases(made, {"CPU": "x"}, "", cases)


def test_tables(found):
    """Correlations, regrets and ratios of both machines stand beside each other, by suite."""
    rows = list_price_rows(found)
    assert [row[:3] for row in rows] == [
        ("a:1", "detected", "2"),
        ("a:1", "calibrated", "2"),
        ("b", "detected", "1"),
        ("b", "calibrated", "1"),
    ]
    assert [row[3] for row in rows] == ["1.00", "0.00", "1.00", "1.00"]
    assert [row[5] for row in rows] == ["1.000, 1.00", "2.000, 2.00", "2.000, 2.00", "1.000, 1.00"]
    assert [row[6:] for row in rows] == [
        ("0.50", "0%"),
        ("0.25", "0%"),
        ("0.50", "0%"),
        ("1.00", "100%"),
    ]
    assert compare_machines(found) == {
        "a:1": "0.500 times as fast in the geometric mean, 0.50 at worst (x)",
        "b": "2.000 times as fast in the geometric mean, 2.00 at worst (x)",
    }
    factors = fit_machines(found)
    terms = list_factor_rows(found, factors)
    assert [row[0] for row in terms] == ["none", "arithmetic", "memory", "all"]
    assert {len(row) for row in terms} == {5}
    assert terms[0][2] == "0%"
    assert float(terms[1][1]) == pytest.approx(2.0, rel=0.1)
    assert terms[1][2] == "100%"
    alone = replace(found, cases=tuple(replace(c, trials=c.trials[:2]) for c in found.cases[:3]))
    assert compare_machines(alone) == {}
    assert {len(row) for row in list_factor_rows(alone, fit_machines(alone))} == {3}
    assert list_factor_rows(found, fit_machines(replace(found, cases=()))) == []
    (first, second) = list_far_plans(found, factors)
    assert first.startswith("detected, furthest off")
    assert second.count("(") == 3
    assert "(b: x)" in second.partition(",")[2].split(": ", 1)[1]


def test_files(found):
    """What is kept comes back, nests included; a case without the plan of a machine is refused."""
    nest = NestCase("b: mask", find_nests("nests", chosen=["mask"])["mask"].work)
    nest = replace(nest, work=replace(nest.work, name="b: mask"))
    whole = found.with_case(PricedCase(nest, found.cases[0].trials))
    assert PricedCases.from_json(whole.to_json()) == whole
    assert whole.has(nest)
    assert whole.to_csv().count("\n") == 1 + 4 * 4 + 1
    data = json.loads(found.to_json())
    data["cases"][0]["trials"][2]["kind"] = "grid"
    with pytest.raises(BenchmarkError, match="a:1: x lacks a time, or a plan"):
        PricedCases.from_json(json.dumps(data))


def test_a_study_from_end_to_end(tmp_path, monkeypatch):
    """Two suites in a run: kept, shown on a page, and not run again."""
    suites = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for path in suites:
        path.write_text(SUITE)
    machine = Machine.load(str(write_shallow_machine(tmp_path)))
    monkeypatch.setattr(study.Machine, "detect", lambda: machine.replace(cores=1, name="seen"))
    kept, table, page = (tmp_path / name for name in ("p.json", "p.csv", "page.md"))
    asked = (
        ",".join(map(str, suites)),
        *("--study", "price", "--plans", 2, "--repeat", 1, "--case", "small"),
        *("--machine", tmp_path / "shallow.toml", "--json", kept, "--csv", table, "--page", page),
    )
    done = bench(*asked)
    assert done.exit_code == 0, done.output
    read = PricedCases.read(kept)
    assert [case.name for case in read.cases] == [f"{path}: small" for path in suites]
    for case in read.cases:
        assert case.machines == [DETECTED, CALIBRATED]
        assert [one.kind for one in case.trials].count("solver") == 2
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8"))))
    assert len(rows) == sum(len(case.trials) for case in read.cases)
    text = page.read_text("utf-8")
    for part in ("## price, ", "| arithmetic |", "| calibrated beside detected |"):
        assert part in text
    assert "0 cases" in bench(*asked).stderr
    assert bench("gemm", "--study", "price", "--case", "no such").exit_code == 2
    assert bench("gemm", "--study", "price", "--peers", "none").exit_code == 2
