"""The studies of the benchmark command: tiles beside each other, and misses beside a simulation."""

from __future__ import annotations

import csv
import io
import json
import re
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from commands import bench
from running_cases import make_shallow_machine, write_shallow_machine

from tilesolve import plan
from tilesolve.bench.cases import ContractionCase
from tilesolve.bench.procedure import Procedure
from tilesolve.bench.results.record import Conditions
from tilesolve.bench.run import timed_plans
from tilesolve.bench.run.timed_plans import HOPELESS_RATIO
from tilesolve.contractions.errors import BenchmarkError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference
from tilesolve.machine.model import Machine
from tilesolve.running import task
from tilesolve.studies import misses, plan_tiles
from tilesolve.studies.plan_tile_results import (
    Studies,
    Study,
    Trial,
    list_trial_rows,
    make_trial,
    summarize_studies,
    summarize_study,
)
from tilesolve.studies.plan_tiles import (
    draw_plans,
    solve_runners_up,
    study_problem,
)
from tilesolve.system.cancellation import deadline

MACHINE = make_shallow_machine(256, 16)
SPECS = {
    "ik-ij-jk": "i=60 j=50 k=70",
    "abcd-ebad-ce": "a=12 b=6 c=10 d=9 e=14",
    "abc-bda-dc": "a=30 b=20 c=24 d=40",
}


@pytest.fixture(scope="module")
def best():
    """A plan whose nest has room for others."""
    return plan("abcd-ebad-ce", "a=60 b=50 c=40 d=60 e=50", MACHINE, cache=False)


@pytest.mark.parametrize("spec", SPECS)
def test_varied_plans_compute_the_same(spec, tmp_path):
    """Runners-up, nearby and random plans are plans: they run, and give the reference's result."""
    problem = Problem.of(spec, SPECS[spec])
    best = plan(problem, machine=MACHINE, cache=False)
    rng = np.random.default_rng(3)
    operands = [rng.standard_normal(shape) for shape in problem.shapes[1:]]
    right = reference(problem, *operands)
    varied = [*solve_runners_up(best), *draw_plans(best, 4, near=True), *draw_plans(best, 4)]
    for other in varied:
        other.nest.check(problem)
        assert other.seconds > 0
        assert np.allclose(other(*operands), right, rtol=1e-10, atol=1e-10)


def test_random_plans_differ_and_keep_the_limits(best):
    """No two are equal; every tile fits its cache; nearby ones have the solver's loops."""
    for near in (False, True):
        found = draw_plans(best, 12, near=near)
        assert len({other.nest for other in found}) == 12
        copies = {other.nest.packed for other in found}
        assert copies == {best.nest.packed, best.setting.packed}
        for other in found:
            assert other.choice == best.choice or not near
            tile, fused = {i: chain[-1] for i, chain in other.classes}, best.setting.fused.problem
            held = sum(np.prod([tile[i] for i in t.letters]) for t in fused.spec.tensors)
            assert held * 8 <= best.machine.caches[-1].capacity
    assert draw_plans(best, 3, seed=4) == draw_plans(best, 3, seed=4)
    assert draw_plans(best, 3, seed=4) != draw_plans(best, 3, seed=5)


def test_too_few_tilings_are_an_error(best, monkeypatch):
    """Where draw after draw is no new plan that fits, that is said rather than drawn for ever."""
    monkeypatch.setattr(plan_tiles, "MOST_DRAWS", 20)
    with pytest.raises(BenchmarkError, match=r"only \d+ different tilings"):
        draw_plans(best, 30)


def test_a_study_ranks_what_it_measured(best):
    """Rank, distance from the best seen, and correlation follow from the medians."""
    others = draw_plans(best, 4)
    ranked = sorted([best, *others], key=lambda p: p.seconds)
    seconds = {p.nest: float(at) for at, p in enumerate(ranked, 1)}
    trials = [
        make_trial("solver" if p is best else "random", p, (seconds[p.nest],) * 3)
        for p in (best, *others)
    ]
    found = Study(ContractionCase("x", best.problem), tuple(trials))
    assert found.rank == seconds[best.nest]
    assert found.excess == pytest.approx(seconds[best.nest] - 1)
    assert found.correlation == pytest.approx(1.0)
    reverse = [replace(one, seconds=(9 - one.median,)) for one in trials]
    backwards = Study(ContractionCase("y", best.problem), tuple(reverse))
    assert backwards.correlation == pytest.approx(-1.0)
    assert [row[0] for row in list_trial_rows(found)] == ["1", "2", "3", "4", "5"]
    assert f"number {found.rank} of 5" in summarize_study(found)


def test_many_studies_are_summed_up():
    """Cases that are far off come first, skipped ones say why, and the last line has them all."""
    problem = Problem.of("ik-ij-jk", 8)

    def made(name, *medians):
        """A study whose predictions are in the order of its medians, or in the reverse one."""
        trials = [Trial("x", "", "", "", float(at), (m,)) for at, m in enumerate(medians)]
        return Study(ContractionCase(name, problem), tuple(trials))

    near, far = made("near", 1.05, 1.0, 2.0), made("far", 1.5, 1.2, 1.0)
    skipped = Study(ContractionCase("huge", problem), skipped="too large")
    best = made("best", 1.0, 2.0, 3.0)
    *lines, last = summarize_studies([near, skipped, far, best])
    assert [line.partition(":")[0] for line in lines] == ["far", "near", "best", "huge"]
    assert lines[-1] == "huge: too large"
    assert last == (
        "3 cases: the solver's plan is 5.0 % slower than the fastest in the median, 50.0 % at "
        "worst, over 20 % in 1; rank correlation 0.50 in the median"
    )
    assert summarize_studies([skipped]) == ["huge: too large"]


def test_a_study_runs():
    """All kinds of plans are timed, each in every round but the hopeless."""
    problem = Problem.of("ik-ij-jk", SPECS["ik-ij-jk"])
    told = []
    found = study_problem(
        ContractionCase("small", problem),
        MACHINE,
        Procedure(repeat=2),
        4,
        lambda part, what: told.append(part),
    )
    kinds = [trial.kind for trial in found.trials]
    assert kinds[0] == "solver"
    assert kinds.count("nearby") == kinds.count("random") == 2
    assert all(1 <= len(trial.seconds) <= 2 for trial in found.trials)
    assert told == sorted(told)


def test_kernels_are_loaded_before_the_first_plan_is_timed(monkeypatch):
    """A tiny problem runs first: else the solver's plan would wait for code that all share."""
    from tilesolve.plans.plan import Plan

    extents, usual = [], Plan.__call__

    def noted(self, *operands, **options):
        extents.append(max(self.problem.sizes.values()))
        return usual(self, *operands, **options)

    monkeypatch.setattr(Plan, "__call__", noted)
    case = ContractionCase("small", Problem.of("ik-ij-jk", SPECS["ik-ij-jk"]))
    study_problem(case, MACHINE, Procedure(repeat=1), 2, lambda *_: None)
    assert extents[0] <= 3
    assert set(extents[1:]) == {70}


def test_runs_that_take_far_too_long_are_ended(monkeypatch):
    """They have one time, which the table and the file say is too little, and no result."""
    monkeypatch.setattr(timed_plans, "HOPELESS_RATIO", 0.0)
    monkeypatch.setattr(timed_plans, "LONG_SECONDS", 0.0)
    case = ContractionCase("small", Problem.of("ik-ij-jk", SPECS["ik-ij-jk"]))
    found = study_problem(case, MACHINE, Procedure(repeat=3), 2, lambda *_: None)
    first, *others = found.trials
    assert not first.ended
    assert others
    assert all(trial.ended and len(trial.seconds) == 1 for trial in others)
    measured = [row[6] for row in list_trial_rows(found)]
    assert sum(cell.startswith("> ") for cell in measured) == len(others)
    kept = Studies(Conditions("mine", None, 1, 1, 3, {}, ""), {}, "", (found,))
    assert Studies.from_json(kept.to_json()) == kept
    lines = list(csv.DictReader(io.StringIO(kept.to_csv())))
    assert [line["reason"] for line in lines] == ["", *["ended"] * len(others)]


def test_no_run_is_ended_while_kernels_are_loaded(monkeypatch):
    """Each plan has its kernels before its first run, however long it takes to compile them."""
    limited, loads, usual = [False], [], task.load_kernels

    @contextmanager
    def noted(limit):
        limited[0] = True
        with deadline(limit) as met:
            yield met
        limited[0] = False

    def load(*family, **part):
        loads.append(limited[0])
        return usual(*family, **part)

    monkeypatch.setattr(timed_plans, "deadline", noted)
    monkeypatch.setattr(task, "load_kernels", load)
    problem = Problem.of("ik-ij-jk", SPECS["ik-ij-jk"])
    plans = [plan(problem, machine=MACHINE, cache=False) for _ in range(2)]
    forget = task._kernel_addresses.cache_clear
    timed_plans.time_plans(problem, plans, Procedure(repeat=1), lambda _: forget())
    assert len(loads) >= len(plans)
    assert not any(loads)


@pytest.fixture
def suite(tmp_path):
    """A file of problems, one of which no memory holds."""
    path = tmp_path / "mine.toml"
    write_shallow_machine(tmp_path)
    path.write_text(
        'format = 1\nproblems = [{ name = "one", spec = "ik-ij-jk", sizes = "i=60 j=50 k=70" },'
        '{ name = "two", spec = "abc-acd-db", sizes = "a=30 b=36 c=23 d=44" },'
        '{ name = "huge", spec = "ik-ij-jk", sizes = "i=1000000 j=1000000 k=1000000" },'
        '{ name = "tiny", spec = "ik-ij-jk", sizes = "i=1 j=1 k=1" }]'
    )
    return path


def list_arguments(suite, plans, repeat):
    """What the command is asked for: a study of tiles on the machine beside the suite."""
    machine = suite.parent / "shallow.toml"
    asked = ("--plans", plans, "--repeat", repeat, "--machine", machine)
    return (suite, "--study", "tiles", *asked)


def test_a_suite_is_studied_and_gone_on_with(suite, tmp_path, monkeypatch):
    """What is kept is not run again; what cannot be studied is a line; each trial is one in CSV."""
    monkeypatch.setattr(plan_tiles, "MOST_DRAWS", 500)
    kept, table = tmp_path / "kept.json", tmp_path / "trials.csv"
    common = list_arguments(suite, plans=6, repeat=2)
    done = bench(*common, "--case", "one", "--json", kept)
    assert done.exit_code == 0, done.output
    (first,) = Studies.read(kept).cases
    done = bench(*common, "--json", kept, "--csv", table)
    assert done.exit_code == 0, done.output
    found = {case.name: case for case in Studies.read(kept).cases}
    assert list(found) == ["one", "two", "huge", "tiny"]
    assert found["one"] == first
    assert "huge: does not fit into memory" in done.stdout
    assert re.search(r"tiny: only \d different tilings", done.stdout)
    assert "2 cases: the solver's plan is" in done.stdout
    lines = list(csv.DictReader(io.StringIO(table.read_text())))
    trials = {name: sum(line["case"] == name for line in lines) for name in found}
    assert trials == {"one": len(first.trials), "two": len(found["two"].trials)} | dict.fromkeys(
        ("huge", "tiny"), 1
    )
    assert [line["kind"] for line in lines if line["case"] == "two"][-6:] == 3 * ["nearby"] + 3 * [
        "random"
    ]
    before = kept.read_bytes()
    for option, what in ((("--plans", 3), "plans"), (("--seconds", 9), "seconds")):
        done = bench(*common, *option, "--json", kept)
        assert done.exit_code == 2
        assert f"holds a study of tiles with another {what}" in done.stderr
    done = bench(suite, "--json", kept)
    assert done.exit_code == 2
    assert "these are results of a study of tiles, not of a sweep" in done.stderr
    assert kept.read_bytes() == before


def test_a_wrong_plan_ends_its_study_alone(suite, tmp_path, monkeypatch):
    """Times of a plan that computes something else mean nothing; other problems are run."""
    from tilesolve.plans.plan import Plan

    usual = Plan.__call__

    def off(self, *operands, out=None, **options):
        operands, out = operands[:2], operands[2] if len(operands) > 2 else out
        result = usual(self, *operands, out, **options)
        result.flat[0] += str(self.problem.spec) == "ik-ij-jk"
        return result

    monkeypatch.setattr(Plan, "__call__", off)
    kept, table = tmp_path / "kept.json", tmp_path / "trials.csv"
    common = list_arguments(suite, plans=2, repeat=1)
    chosen = ("--case", "one", "--case", "two")
    for _ in range(2):  # the second time all of it is in the file
        done = bench(*common, *chosen, "--json", kept, "--csv", table)
        assert done.exit_code == 1
        assert "one: plan 1 gives another result: wrong result" in done.stdout
        assert "1 case: the solver's plan is" in done.stdout
        one, two = Studies.read(kept).cases
        assert one.fault
        assert not one.trials
        assert two.trials
        assert not two.fault
        (line, *_) = csv.DictReader(io.StringIO(table.read_text()))
        assert line["reason"] == one.fault


def test_an_interrupted_study_keeps_what_is_done(suite, tmp_path, monkeypatch):
    """The first study is in the file when the second one is broken off."""
    kept, usual = tmp_path / "kept.json", plan_tiles.vary_plan

    def broken(best, *rest):
        if best.problem.sizes.get("d") == 44:
            raise KeyboardInterrupt
        return usual(best, *rest)

    monkeypatch.setattr(plan_tiles, "vary_plan", broken)
    common = list_arguments(suite, plans=2, repeat=1)
    done = bench(*common, "--json", kept)
    assert done.exit_code == 130
    assert f"1 case kept in {kept}" in done.stderr
    assert [case.name for case in Studies.read(kept).cases] == ["one"]


def test_studies_read_back():
    """JSON gives back what was kept; a trial without a time is a damaged file."""
    problem = Problem.of("ik-ij-jk", 8)
    trial = Trial("solver", "K N", "M:6,12", "L2", 1.0, (2.0, 3.0))
    one = Study(ContractionCase("one", problem), (trial,))
    skipped = Study(ContractionCase("two", problem), skipped="too large")
    found = Studies(Conditions("mine", None, 1, 1, 3, {}, "m", plans=9), {}, "", (one, skipped))
    assert Studies.from_json(found.to_json()) == found
    for bad in ((), (replace(one.trials[0], seconds=()),)):
        text = found.with_case(replace(one, trials=bad)).to_json()
        with pytest.raises(BenchmarkError, match="damaged"):
            Studies.from_json(text)


@pytest.mark.parametrize(
    ("what", "damage"), [("seconds", [0.0]), ("seconds", "12"), ("predicted", 0), ("around", None)]
)
def test_impossible_trials_are_refused(what, damage):
    """The error is one line that says which value."""
    trial = Trial("solver", "K N", "M:6,12", "L2", 1.0, (2.0, 3.0))
    one = Study(ContractionCase("one", Problem.of("ik-ij-jk", 8)), (trial,))
    data = json.loads(Studies(Conditions("mine", None, 1, 1, 3, {}, "m"), {}, "", (one,)).to_json())
    data["cases"][0]["trials"][0][what] = damage
    with pytest.raises(BenchmarkError, match=f"damaged file of results: '{what}' must be "):
        Studies.from_json(json.dumps(data))


@pytest.mark.parametrize(("took", "rounds"), [(0.5, [3, 3, 1]), (5.0, [2, 2, 1])])
def test_long_plans_are_run_less_often(monkeypatch, took, rounds):
    """Two rounds are enough past the budget, one if hopeless; every other one goes in reverse.

    The first run of each is no round, however long it takes: it may have compiled.
    """
    problem = Problem.of("ik-ij-jk", SPECS["ik-ij-jk"])
    slow = iter(range(100))
    runs = []

    def timer(run, trash):
        number = next(slow)

        def timed():
            run()
            runs.append(number)
            return took * (1.0 if number < 2 else 1.01 * HOPELESS_RATIO)

        return timed

    monkeypatch.setattr(timed_plans, "make_timer", timer)
    monkeypatch.setattr(plan_tiles, "RUNNER_UP_PLANS", 0)
    procedure = Procedure(repeat=3, seconds=10.0)
    case = ContractionCase("x", problem)
    found = study_problem(case, MACHINE, procedure, 2, lambda *_: None)
    assert [len(one.seconds) for one in found.trials] == rounds
    assert runs == [0, 1, 2, *(0, 1, 2), *(1, 0), *(0, 1) * (rounds[0] - 2)]


def test_the_tile_study_refuses_what_it_does_not_do():
    """An unknown name, no name, and options that mean nothing to it are one line each."""
    done = bench("abcdef-degb-gfac-nowhere", "--study", "tiles")
    assert done.exit_code == 2
    done = bench("--study", "tiles")
    assert done.exit_code == 2
    for option in (("--html", "x.html"), ("--batch", 999), ("--peers", "foo"), ("--limit", 1)):
        done = bench("tccg", "--study", "tiles", *option)
        assert done.exit_code == 2
        assert "--json and --csv" in done.stderr
    done = bench("tccg", "--study", "misses", "--json", "x.json")
    assert done.exit_code == 2
    assert "no --case, no file" in done.stderr


@pytest.mark.parametrize(
    "option",
    [
        *(("--dtype", "f32"), ("--threads", 77), ("--peers", "foo"), ("--repeat", 0)),
        *(("--batch", 1), ("--seconds", 3), ("--limit", 9), ("--plans", 3), ("--case", "abc")),
    ],
)
def test_the_study_of_misses_ignores_no_option(option):
    """What it would not heed is refused, even where it is what it would be anyway."""
    done = bench("tccg", "--study", "misses", *option)
    assert (done.exit_code, done.stdout) == (2, "")
    assert option[0] in done.stderr


def test_random_plans_are_those_of_a_study():
    """A sweep runs none."""
    done = bench("tccg", "--plans", 3)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--plans" in done.stderr


def test_misses_of_a_case(tmp_path):
    """A row for each cache, with the paper's figures where the machine is the paper's."""
    (tmp_path / "mine.toml").write_text(
        'format = 1\nproblems = [{ name = "one", spec = "ik-ij-jk", sizes = "i=40 j=30 k=50" }]'
    )
    done = bench(tmp_path / "mine.toml", "--study", "misses", "--machine", "i7-6700k")
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
    found = misses.list_paper_problems()
    assert [str(problem.spec) for problem in found.values()] == [row.spec for row in misses.TABLE_2]
    assert found["abcd-aebf-dfce"].flops == 2 * 72**6
    assert all(len(row.misses) == 3 for row in misses.TABLE_2)
    machine = Machine.load(misses.PAPER_MACHINE)
    small = Problem.of("abcd-aebf-dfce", 6)
    (first, *_) = misses.list_miss_rows("abcd-aebf-dfce", small, machine)
    assert first[-2:] == ("2.50e+09", "2.44e+09")
