"""The studies of the benchmark command: tiles beside each other, and misses beside a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from tilesolve import plan
from tilesolve.bench import misses, tiles
from tilesolve.bench.sweep import Effort
from tilesolve.bench.tiles import (
    Study,
    Trial,
    overall,
    random_plans,
    rows,
    runners_up,
    study,
    summary,
)
from tilesolve.cli import app
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference
from tilesolve.machine import Machine

SPECS = {
    "ik-ij-jk": "i=60 j=50 k=70",
    "abcd-ebad-ce": "a=12 b=6 c=10 d=9 e=14",
    "abc-bda-dc": "a=30 b=20 c=24 d=40",
}


def command(*arguments):
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


@pytest.fixture(scope="module")
def best():
    """A plan whose nest has room for others."""
    return plan("abcd-ebad-ce", "a=60 b=50 c=40 d=60 e=50", "i7-6700k", cache=False)


@pytest.mark.parametrize("spec", SPECS)
def test_varied_plans_compute_the_same(spec, tmp_path):
    """Runners-up, nearby and random plans are plans: they run, and give the reference's result."""
    problem = Problem.of(spec, SPECS[spec])
    best = plan(problem, machine="i7-6700k", cache=False)
    rng = np.random.default_rng(3)
    operands = [rng.standard_normal(shape) for shape in problem.shapes[1:]]
    right = reference(problem, *operands)
    varied = [*runners_up(best), *random_plans(best, 4, near=True), *random_plans(best, 4)]
    for other in varied:
        other.nest.check(problem)
        assert other.seconds > 0
        assert np.allclose(other(*operands), right, rtol=1e-10, atol=1e-10)


def test_random_plans_differ_and_keep_the_limits(best):
    """No two are equal; every tile fits its cache; nearby ones have the solver's loops."""
    for near in (False, True):
        found = random_plans(best, 12, near=near)
        assert len({other.nest for other in found}) == 12
        copies = {other.nest.packed for other in found}
        assert copies == {best.nest.packed, best.setting.packed}
        for other in found:
            assert other.choice == best.choice or not near
            tile, fused = {i: chain[-1] for i, chain in other.classes}, best.setting.fused.problem
            held = sum(np.prod([tile[i] for i in t.letters]) for t in fused.spec.tensors)
            assert held * 8 <= best.machine.caches[-1].capacity
    assert random_plans(best, 3, seed=4) == random_plans(best, 3, seed=4)
    assert random_plans(best, 3, seed=4) != random_plans(best, 3, seed=5)


def test_too_few_tilings_are_an_error(best, monkeypatch):
    """Where draw after draw is no new plan that fits, that is said rather than drawn for ever."""
    monkeypatch.setattr(tiles, "DRAWS", 20)
    with pytest.raises(BenchmarkError, match=r"only \d+ different tilings"):
        random_plans(best, 30)


def test_a_study_ranks_what_it_measured(best):
    """Rank, distance from the best seen, and correlation follow from the medians."""
    others = random_plans(best, 4)
    ranked = sorted([best, *others], key=lambda p: p.seconds)
    seconds = {p.nest: float(at) for at, p in enumerate(ranked, 1)}
    trials = [
        Trial("solver" if p is best else "random", p, (seconds[p.nest],) * 3)
        for p in (best, *others)
    ]
    found = Study("x", tuple(trials))
    assert found.rank == seconds[best.nest]
    assert found.excess == pytest.approx(seconds[best.nest] - 1)
    assert found.correlation == pytest.approx(1.0)
    backwards = Study("x", tuple(Trial(t.kind, t.plan, (9 - t.median,)) for t in trials))
    assert backwards.correlation == pytest.approx(-1.0)
    assert [row[0] for row in rows(found)] == ["1", "2", "3", "4", "5"]
    assert f"number {found.rank} of 5" in summary(found)
    assert overall([found, backwards]).startswith("2 cases")


def test_a_study_runs():
    """All kinds of plans are timed, each in every round but the hopeless."""
    problem = Problem.of("ik-ij-jk", SPECS["ik-ij-jk"])
    told = []
    found = study(
        "small",
        problem,
        Machine.load("i7-6700k"),
        Effort(repeat=2),
        lambda part, what: told.append(part),
        count=4,
    )
    kinds = [trial.kind for trial in found.trials]
    assert kinds[0] == "solver"
    assert kinds.count("nearby") == kinds.count("random") == 2
    assert all(1 <= len(trial.seconds) <= 2 for trial in found.trials)
    assert told == sorted(told)


def test_a_wrong_plan_ends_a_study(monkeypatch):
    """Times of a plan that computes something else would mean nothing."""
    from tilesolve.planning import Plan

    usual = Plan.__call__

    def off(self, *operands, out=None, **options):
        operands, out = operands[:2], operands[2] if len(operands) > 2 else out
        result = usual(self, *operands, out, **options)
        result.flat[0] += 1
        return result

    monkeypatch.setattr(Plan, "__call__", off)
    machine, problem = Machine.load("i7-6700k"), Problem.of("ik-ij-jk", 20)
    with pytest.raises(BenchmarkError, match="plan 1 gives another result: wrong result"):
        study("x", problem, machine, Effort(repeat=1), lambda *_: None, count=2)


def test_the_tile_study_prints_a_table():
    """The command's table has the solver's plan, and a line says where it ranks."""
    done = command("abcdef-degb-gfac-nowhere", "--study", "tiles")
    assert done.exit_code == 2
    done = command("--study", "tiles")
    assert done.exit_code == 2
    done = command("tccg", "--study", "tiles", "--json", "x.json")
    assert done.exit_code == 2
    assert "takes no --case and no file" in done.stderr


def test_misses_of_a_case(tmp_path):
    """A row for each cache, with the paper's figures where the machine is the paper's."""
    (tmp_path / "mine.toml").write_text(
        'format = 1\nproblems = [{ name = "one", spec = "ik-ij-jk", sizes = "i=40 j=30 k=50" }]'
    )
    done = command(tmp_path / "mine.toml", "--study", "misses", "--machine", "i7-6700k")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["one"]]
    assert [line[1] for line in lines] == ["L1", "L2", "L3"]
    assert lines[-1][6:] == ["100%", "-", "-"]
    simulated, predicted, ratio = (float(figure) for figure in lines[-1][2:5])
    assert ratio == pytest.approx(predicted / simulated, abs=0.01)
    # All of it fits the last cache: each line is missed once.
    assert simulated == sum(-(-n // 8) for n in (40 * 30, 30 * 50, 40 * 50))


def test_the_problems_are_those_of_table_2():
    """Four contractions at full size, with figures of the paper for three levels each."""
    found = misses.problems()
    assert [str(problem.spec) for problem in found.values()] == list(misses.PAPER)
    assert found["abcd-aebf-dfce"].flops == 2 * 72**6
    assert all(len(figures) == 3 for figures in misses.PAPER.values())
    machine = Machine.load(misses.MACHINE)
    small = Problem.of("abcd-aebf-dfce", 6)
    (first, *_) = misses.rows("abcd-aebf-dfce", small, machine)
    assert first[-2:] == ("2.50e+09", "2.44e+09")
