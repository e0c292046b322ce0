"""Rankings: scores and times of variants, files of them, the picture, and the command."""

import csv
import io
import json
from dataclasses import dataclass, replace

import pytest
from commands import invoke

import tilesolve
from tilesolve import Ranking, rank
from tilesolve.contractions.errors import MemoryLimitError, ModelError, PlanError
from tilesolve.machine.model import Machine
from tilesolve.ranking import rankers
from tilesolve.ranking import ranking as ranking_module
from tilesolve.ranking.picture import draw_ranking, list_bars
from tilesolve.ranking.ranking import count_top
from tilesolve.ranking.standings import Clock

SIZES = "m=96 n=64 k=128"


@pytest.fixture(scope="module")
def found():
    """A ranking of some variants."""
    return rank("mn-mk-kn", SIZES, "i7-6700k", variants=12, dtype="float32")


@dataclass(frozen=True)
class Fewest:
    """A ranker of one's own: the fewest calls first."""

    name: str = "calls"

    def score(self, plan):
        return plan.price.calls


def timed(found, seconds):
    """The ranking as if its variants had taken so long."""
    return replace(found, rounds=tuple(() if one is None else (one,) for one in seconds))


def test_variants_stand_by_their_score(found):
    """The price is the score that the solver compares by; the order of another ranker is his."""
    scores = found.scores_by("price")
    assert list(scores) == sorted(scores)
    assert list(scores) == [plan.solution.score for plan in found.plans]
    assert found.solver == tilesolve.plan("mn-mk-kn", SIZES, "i7-6700k", dtype="float32")
    for name in found.rankers:
        other = found.sorted_by(name)
        assert list(other.scores_by(name)) == sorted(found.scores_by(name))
        assert set(other.plans) == set(found.plans)
        assert other.sorted_by("price").scores_by("price") == scores
        places = dict(zip(found.plans, found.scores_by(name), strict=True))
        assert [places[plan] for plan in other.plans] == list(other.scores_by(name))


def test_rankers_are_values_with_one_method():
    """One of one's own stands beside the others, and they agree with themselves."""
    found = rank("mn-mk-kn", SIZES, "i7-6700k", variants=8, by=Fewest())
    assert found.by == "calls"
    assert found.rankers == ("price", "reuses", "sets", "calls")
    assert [plan.price.calls for plan in found.plans] == list(found.scores_by("calls"))
    assert found.agreement("calls", "calls") == 1.0
    assert -1 <= found.agreement("calls", "price") <= 1
    assert found.ties("calls") == sum(
        found.scores_by("calls").count(one) > 1 for one in found.scores_by("calls")
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "luck"}, "no ranker 'luck'; there are price, reuses, sets"),
        ({"by": Fewest(name="x"), "like": "y"}, "no variants like 'y'"),
        ({"variants": 0}, "variants must be an integer of 1 or more, got 0"),
        ({"variants": 2.0}, "variants must be an integer"),
        ({"seed": -1}, "seed must be an integer of 0 or more, got -1"),
    ],
)
def test_what_cannot_be_ranked_is_refused(options, message):
    """Each with the argument and its value."""
    with pytest.raises(PlanError, match=message):
        rank("mn-mk-kn", 8, "i7-6700k", **options)


def test_a_ranker_without_a_number_is_refused():
    """NaN has no place in an order."""

    class Nothing(Fewest):
        def score(self, plan):
            return float("nan")

    with pytest.raises(PlanError, match="ranker 'nothing' gives a plan the score nan"):
        rank("mn-mk-kn", 8, "i7-6700k", by=Nothing("nothing"), variants=2)


def test_a_ranker_whose_library_is_missing_says_so(monkeypatch):
    """Unless it is asked for it is left out, with the reason; asked for it is an error."""

    def refuse(plan):
        raise ModelError("islpy is not installed")

    monkeypatch.setattr(rankers, "reuses_of", refuse)
    found = rank("mn-mk-kn", 9, "i7-6700k", variants=3)
    assert found.rankers == ("price",)
    assert "sets: islpy is not installed" in str(found)
    with pytest.raises(PlanError, match="nothing is ranked by 'reuses': islpy is not"):
        found.scores_by("reuses")
    assert Ranking.from_json(found.to_json()) == found
    with pytest.raises(ModelError, match="islpy"):
        rank("mn-mk-kn", 9, "i7-6700k", variants=3, by="sets")


def test_regret_and_excess_follow_from_the_times(found):
    """Of what was measured: the first, the best of more, and the solver's plan."""
    at = found.plans.index(found.solver)
    seconds = [2.0 + 0.1 * n for n in range(len(found))]
    seconds[2], seconds[at] = 1.0, 3.0
    done = timed(found, seconds)
    assert done.fastest == 1.0
    assert done.excess == pytest.approx(2.0)
    assert done.regret(len(found)) == 0.0
    assert done.regret(1) >= done.regret(2) >= done.regret(3)
    assert done.agreement("price", "measured") == done.agreement("measured", "price")
    assert -1 <= done.correlation("sets") <= 1
    part = timed(found, [taken if n in (at, 0) else None for n, taken in enumerate(seconds)])
    assert part.fastest == min(seconds[0], seconds[at])
    assert "slower than the fastest" in str(part)


def test_a_ranker_that_ties_all_has_the_regret_of_the_mean(found):
    """It is not credited with the best of them."""
    same = tuple((name, (1.0,) * len(found)) for name in found.rankers)
    seconds = [1.0, *[3.0] * (len(found) - 1)]
    done = timed(replace(found, scores=same), seconds)
    assert done.regret(1) == pytest.approx(sum(seconds) / len(seconds) - 1)
    assert done.ties("price") == len(found)


def test_a_ranking_says_whether_it_knows_latencies():
    """Without them each counts as 1; with all of them the line is gone."""
    machine = Machine.load("i7-6700k")
    levels = tuple(replace(level, latency=1e-9) for level in machine.levels)
    for one, told in ((machine, True), (machine.replace(levels=levels), False)):
        text = str(rank("mn-mk-kn", 16, one, variants=2))
        assert (
            "sets: the machine does not have all latencies, so each counts as 1" in text
        ) == told


def test_what_was_not_measured_has_no_figures(found):
    """The error says that the ranking has to be run."""
    for ask in (lambda: found.fastest, found.regret, found.correlation, lambda: found.excess):
        with pytest.raises(PlanError, match=r"measured.*call run\(\)"):
            ask()
    with pytest.raises(PlanError, match="13 variants have to be measured, 12 are"):
        timed(found, [1.0] * 12).regret(13)
    with pytest.raises(PlanError, match="count must be 1 or more first variants, got 0"):
        timed(found, [1.0] * 12).regret(0)


def test_runs_are_of_the_first_and_of_the_solver_s_plan(found):
    """Results are checked by the one procedure that studies have; the others have no time."""
    few = found.sorted_by("sets")
    done = few.run(2, repeat=2)
    ran = {at for at, taken in enumerate(done.measured) if taken is not None}
    assert ran == {0, 1, few.plans.index(few.solver)}
    assert all(done.measured[at] > 0 for at in ran)
    assert (done.plans, done.scores) == (few.plans, few.scores)


def test_all_of_them_can_be_run(found, monkeypatch):
    """In turns, the solver's plan first."""
    seen = []

    def time_plans(problem, plans, procedure, step):
        seen.extend(plans)
        return [[3.0, 1.0, 2.0] for _ in plans], set()

    monkeypatch.setattr(ranking_module, "time_plans", time_plans)
    done = found.run(None)
    assert seen[0] == found.solver
    assert set(seen) == set(found.plans)
    assert done.measured == (2.0,) * len(found)
    assert (found.clock, done.clock) == (None, Clock.here())
    assert Ranking.from_json(done.to_json()) == done


def test_what_does_not_fit_into_memory_is_not_run(found, monkeypatch):
    """It says how much it needs."""
    monkeypatch.setattr(ranking_module, "describe_lack", lambda count: "does not fit into memory")
    with pytest.raises(MemoryLimitError, match=r"mn-mk-kn m=96.* does not fit into memory"):
        found.run()


@pytest.mark.parametrize(("top", "count"), [(1, 1), (12, 12), (99, 12), ("25%", 3), ("1%", 1)])
def test_a_number_or_a_share_of_the_variants_is_run(top, count):
    """At least one, at most all."""
    assert count_top(top, 12) == count


@pytest.mark.parametrize("top", [0, -1, True, 1.5, "5", "0%", "101%", "-5%", "%", "1e1%", "all"])
def test_other_numbers_of_variants_are_refused(top):
    """Of whatever type."""
    with pytest.raises(PlanError, match="top must be a number from 1 on"):
        count_top(top, 12)


def test_json_gives_an_equal_ranking(found):
    """With times or without."""
    for one in (found, timed(found, [None, *[1.5] * (len(found) - 1)])):
        assert Ranking.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    "change",
    [
        {"ranking": 1},
        {"by": "luck"},
        {"variants": []},
        {"variants": [{"kind": "solver"}]},
        {"machine": "x"},
        {"lacking": 3},
    ],
)
def test_damaged_json_is_refused(found, change):
    """Whatever is wrong with it."""
    with pytest.raises(PlanError, match="rank"):
        Ranking.from_json(json.dumps(json.loads(found.to_json()) | change))
    with pytest.raises(PlanError, match="a damaged ranking"):
        Ranking.from_json(found.to_json()[:-2])


def test_json_that_does_not_say_where_it_was_measured_is_read(found):
    """As it was written before."""
    data = json.loads(found.to_json())
    del data["clock"]
    assert Ranking.from_json(json.dumps(data)) == found


def test_csv_has_a_line_for_each_variant(found):
    """With all scores to the last bit."""
    done = timed(found, [None, *[1.5] * (len(found) - 1)])
    rows = list(csv.DictReader(io.StringIO(done.to_csv())))
    for name in found.rankers:
        assert tuple(float(row[name]) for row in rows) == found.scores_by(name)
    assert [row["measured_s"] for row in rows] == ["", *["1.5"] * (len(found) - 1)]
    assert [float(row["predicted_s"]) for row in rows] == [plan.seconds for plan in found.plans]


def test_the_picture_shows_picks_beside_the_fastest(found, tmp_path):
    """As shares of its speed; without times there is none."""
    seconds = [1.0 + n for n in range(len(found))]
    bars = list_bars(timed(found, seconds))
    assert list(bars) == ["slowest", "untuned", "price", "reuses", "sets", "solver", "fastest"]
    assert bars["fastest"] == 1.0
    assert bars["slowest"] == 1.0 / len(found)
    assert all(0 < share <= 1 for share in bars.values())
    draw_ranking(timed(found, seconds), tmp_path / "picks.svg")
    assert "<svg" in (tmp_path / "picks.svg").read_text("utf-8")
    with pytest.raises(PlanError, match="nothing was"):
        draw_ranking(found, tmp_path / "none.svg")


def command(*arguments):
    return invoke("rank", *arguments)


def test_the_command_prints_and_writes(tmp_path, monkeypatch):
    """A table, and the files that are asked for; they hold the ranking that is printed."""
    monkeypatch.setattr(
        ranking_module, "time_plans", lambda p, plans, *_: ([[1.0]] * len(plans), set())
    )
    kept, table, picture = (tmp_path / name for name in ("r.json", "r.csv", "r.png"))
    done = command(
        *("mn-mk-kn", "m=32", "n=48", "k=16", "--dtype", "f32", "--machine", "i7-6700k"),
        *("--variants", 6, "--seed", 3, "--by", "reuses", "--run", "50%"),
        *("--json", kept, "--csv", table, "--plot", picture),
    )
    assert done.exit_code == 0, done.stderr
    read = Ranking.from_json(kept.read_text("utf-8"))
    assert done.stdout == f"{read}\n"
    assert (read.by, len(read)) == ("reuses", 6)
    assert table.read_text("utf-8") == read.to_csv()
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m=3"], "no size for 'n'"),
        ([8, "--by", "luck"], "no ranker 'luck'"),
        ([8, "--run", "0"], "top must be a number from 1 on"),
        ([8, "--run", "5x"], "top must be a number from 1 on"),
        ([8, "--like", "tvm"], "no variants like 'tvm'"),
        ([8, "--dtype", "f17"], "'f17' is not a dtype"),
        ([8, "--machine", "nowhere"], "nowhere"),
        ([8, "--threads", "0"], "threads must be a positive integer"),
    ],
)
def test_wrong_input_is_one_line(arguments, message):
    """On standard error, with status 2, before anything is measured."""
    done = command("mn-mk-kn", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--plot", "x.png"], ["--json", "x", "--csv", "x"], ["--variants", "0"]]
)
def test_options_that_make_no_sense_are_refused(arguments):
    """Together, or alone."""
    done = command("mn-mk-kn", 8, *arguments)
    assert done.exit_code == 2
    assert not done.stdout
