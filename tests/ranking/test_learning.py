"""Learned rankers: the regression, the network, their judgement, what is kept, and refusals."""

import json
from dataclasses import replace
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tilesolve import TilesolveError, rank
from tilesolve.cli import app
from tilesolve.contractions.errors import BenchmarkError, PlanError
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.model import Machine
from tilesolve.ranking.learning import judging, network
from tilesolve.ranking.learning.features import list_times, name_times
from tilesolve.ranking.learning.judging import Trials, judge
from tilesolve.ranking.learning.learned import (
    LearnedRanker,
    keep_learned,
    learned_file,
    load_learned,
)
from tilesolve.ranking.learning.logistic import fit_logistic
from tilesolve.ranking.learning.network import (
    Layer,
    count_defeats,
    describe_pairs,
    draw_network,
    find_slopes,
    predict,
    train_network,
)
from tilesolve.ranking.learning.teaching import teach
from tilesolve.ranking.order import spearman
from tilesolve.ranking.standings import Clock
from tilesolve.studies.trial_files import read_trials

SIZES = ("m=96 n=64 k=128", "m=200 n=40 k=64", "m=72 n=144 k=96", "m=40 n=260 k=130")

QUIET = {"progress": lambda *_: None}


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """Networks are trained for a moment."""
    monkeypatch.setattr(network, "STEPS", 60)


@pytest.fixture(scope="module")
def here():
    """A known machine that has this CPU's fingerprint; two caches are planned for sooner."""
    known = Machine.load("i7-6700k")
    levels = (*known.levels[:2], known.memory)
    return known.replace(name="here", fingerprint=detect_cpu().fingerprint, levels=levels)


@pytest.fixture(scope="module")
def rankings(here):
    """Variants of some problems."""
    return [rank("mn-mk-kn", one, here, variants=9, dtype="float32") for one in SIZES]


def timed(found, take):
    """The ranking as if a plan had taken so long, here and now."""
    seconds = tuple(float(take(plan)) for plan in found.plans)
    return replace(found, rounds=tuple((one,) for one in seconds), clock=Clock.here())


def by_price(plan):
    """Exactly what the price says."""
    return exp(list_times(plan)[-1])


def by_second_level(plan):
    """Something else than the price that its parts tell."""
    return exp(list_times(plan)[1])


def write(folder, rankings, take):
    """Files of rankings as the command writes them."""
    paths = []
    for number, one in enumerate(rankings):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(timed(one, take).to_json(), "utf-8")
    return paths


def learn(*arguments):
    return CliRunner().invoke(app, ["learn", *map(str, arguments)])


def drawn(seed, count=5, variants=12, weights=(1.0, -0.5, 2.0)):
    """Trials whose times follow from their numbers, and whose price is the first of these."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(count):
        times = draw.normal(size=(variants, len(weights)))
        seconds = np.exp(times @ np.array(weights))
        scores = {"price": tuple(times[:, 0].tolist())}
        sets = np.exp(draw.normal(size=(variants, 4)))
        found.append(Trials(str(number), ("a", "b", "price"), seconds, times, sets, "", scores))
    return found


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=5), st.integers(0, 99))
@settings(max_examples=25)
def test_the_regression_finds_the_order_of_a_weighted_sum(weights, seed):
    """On problems that it has not seen: there it puts variants in the order of their seconds."""
    weights = np.array([*weights, 1.0])
    draw = np.random.default_rng(seed)
    samples = []
    for _ in range(5):
        numbers = draw.normal(size=(20, len(weights)))
        samples.append((numbers, np.exp(numbers @ weights)))
    found = fit_logistic(samples[1:])
    assert spearman((samples[0][0] @ found).tolist(), samples[0][1].tolist()) > 0.9


def test_the_regression_stands_at_its_minimum():
    """No small change of a weight makes the cross-entropy of the pairs less."""
    rng = np.random.default_rng(3)
    numbers, seconds = rng.normal(size=(15, 3)), rng.uniform(1, 2, size=15)

    def loss(weights):
        total, of_pairs = 0.0, 0.0
        for one in range(15):
            for other in range(one):
                gap = (numbers[one] - numbers[other]) @ weights
                ratio = np.log(seconds[one] / seconds[other])
                of_pairs += abs(ratio) * np.logaddexp(0, -gap * np.sign(ratio))
                total += abs(ratio)
        return of_pairs / total + 5e-4 * weights @ weights

    best = fit_logistic([(numbers, seconds)])
    for at in range(3):
        for step in (-1e-3, 1e-3):
            other = best.copy()
            other[at] += step
            assert loss(other) > loss(best)


def test_equal_times_teach_nothing():
    """All variants as fast: no weight."""
    assert fit_logistic([(np.eye(3), np.ones(3))]).tolist() == [0.0, 0.0, 0.0]


def test_the_network_s_slopes_are_finite_differences():
    """Of each layer's weights and biases, in the parts where the activations are smooth."""
    draw = np.random.default_rng(5)
    net = tuple(
        Layer(one.weights, draw.normal(size=one.biases.shape))
        for one in draw_network(8, np.random.default_rng(4))
    )
    inputs = describe_pairs(*np.exp(draw.normal(size=(2, 9, 4))))
    faster = np.eye(2)[draw.integers(2, size=9)]
    _, slopes = find_slopes(net, inputs, faster)
    for at, (layer, slope) in enumerate(zip(net, slopes, strict=True)):
        for field in ("weights", "biases"):
            values, wanted = getattr(layer, field), getattr(slope, field)
            for _ in range(6):
                place = tuple(draw.integers(values.shape))
                ends = []
                for step in (-1e-6, 1e-6):
                    changed = values.copy()
                    changed[place] += step
                    moved = (*net[:at], replace(layer, **{field: changed}), *net[at + 1 :])
                    ends.append(find_slopes(moved, inputs, faster)[0])
                assert (ends[1] - ends[0]) / 2e-6 == pytest.approx(wanted[place], abs=2e-6)


def test_the_network_has_the_paper_s_shape():
    """Eight shares in, 64, 32, 16 and 8 neurons, two probabilities out."""
    net = draw_network(8, np.random.default_rng(1))
    assert [one.weights.shape for one in net] == [(8, 64), (64, 32), (32, 16), (16, 8), (8, 2)]
    given = predict(net, np.full((3, 8), 0.125))
    assert given.shape == (3, 2)
    assert np.allclose(given.sum(axis=1), 1)


def test_the_network_learns_sets_that_tell(monkeypatch):
    """Where the bytes of memory decide, it orders variants that it has not seen by them."""
    monkeypatch.setattr(network, "STEPS", 400)
    draw = np.random.default_rng(2)
    samples = []
    for _ in range(4):
        sets = np.exp(draw.normal(size=(15, 4)))
        samples.append((sets, sets[:, 3].copy()))
    net = train_network(samples[1:], 1)
    assert spearman(count_defeats(net, samples[0][0]), samples[0][1].tolist()) > 0.7


def test_who_beats_none_is_not_ranked_before_others():
    """A network that tells nothing apart ties all variants."""
    net = (*draw_network(8, np.random.default_rng(1))[:-1], Layer(np.zeros((8, 2)), np.zeros(2)))
    assert count_defeats(net, np.random.default_rng(1).uniform(1, 2, (5, 4))) == [4.0] * 5


def test_the_same_seed_teaches_the_same():
    """To the last bit; another one draws other weights."""
    samples = [(one.sets, one.seconds) for one in drawn(1)]
    one, same, other = (train_network(samples, seed) for seed in (7, 7, 8))
    for first, second, third in zip(one, same, other, strict=True):
        assert np.array_equal(first.weights, second.weights)
        assert not np.array_equal(first.weights, third.weights)


def test_a_problem_that_is_judged_has_taught_nothing(monkeypatch):
    """What is learned before it is ranked comes from the others alone."""
    trials = drawn(1)
    seen = []

    def watch(samples):
        seen.append([id(seconds) for _, seconds in samples])
        return fit_logistic(samples)

    monkeypatch.setattr(judging, "fit_logistic", watch)
    judge(trials, 1, **QUIET)
    assert seen == [[id(one.seconds) for one in trials if one is not left] for left in trials]


def test_what_is_learned_is_kept_where_it_ranks_better():
    """A price that is wrong in a way that can be learned; its figures are of unseen problems."""
    found = judge(drawn(1), 1, **QUIET)
    assert found.gains
    assert found.learned == "logistic"
    assert found.regret("logistic") < 0.05 < found.regret("price")
    assert found.median("logistic").correlation > 0.95 > found.median("price").correlation


def test_nothing_is_kept_where_the_price_is_right():
    """No gain is left."""
    found = judge(drawn(1, weights=(1.0, 0.0, 0.0)), 1, **QUIET)
    assert found.regret("price") == 0.0
    assert not found.gains


def test_a_gain_in_one_problem_alone_is_none():
    """A smaller mean with a larger median is not kept."""
    figures = judging.Figures
    price = tuple(figures(x, x, 0.5) for x in (0.0, 0.0, 0.9))
    other = tuple(figures(x, x, 0.5) for x in (0.1, 0.1, 0.1))
    found = judging.Judgement(("a", "b", "c"), {"price": price, "logistic": other})
    assert found.regret("logistic") < found.regret("price")
    assert not found.gains


def test_without_sets_there_is_no_network():
    """The reason is printed, and the regression is judged all the same."""
    trials = [replace(one, sets=None, lacking="islpy is not installed") for one in drawn(1)]
    found = judge(trials, 1, **QUIET)
    assert list(found.figures) == ["price", "logistic"]


def test_the_command_keeps_what_ranks_better(tmp_path, rankings, here):
    """It is used by its name, and puts unseen variants in the order of their seconds."""
    done = learn(*write(tmp_path, rankings[1:], by_second_level))
    assert done.exit_code == 0, done.output
    for words in ("price", "reuses", "sets", "logistic", "network", "median", "saved in"):
        assert words in done.stdout
    found = rank("mn-mk-kn", SIZES[0], here, variants=9, dtype="float32", by="learned")
    assert found.by == "learned"
    told = timed(found, by_second_level)
    assert told.correlation("learned") > max(0.8, told.correlation("price"))
    assert told.regret(1) <= told.regret(1, "price")
    assert learned_file().parent.name == "machines"


def test_the_command_keeps_nothing_where_the_price_is_right(tmp_path, rankings):
    """It says so."""
    done = learn(*write(tmp_path, rankings, by_price))
    assert done.exit_code == 0, done.output
    assert "no learned ranker has less than price" in done.stdout
    assert done.stdout.endswith("nothing is kept\n")
    assert not learned_file().exists()


def test_the_command_learns_the_same_from_the_same(tmp_path, rankings):
    """The kept file has the same bytes, and the table the same figures."""
    paths = write(tmp_path, rankings, by_second_level)
    first, kept = learn(*paths, "--seed", 3), learned_file().read_bytes()
    assert learn(*paths, "--seed", 3).stdout == first.stdout
    assert learned_file().read_bytes() == kept


@pytest.mark.parametrize("kind", ["logistic", "network"])
def test_a_learned_ranker_reads_back_as_it_was(kind, rankings, here):
    """And ranks as it did, a plan alone included."""
    trials = [
        judging.collect_trials(str(at), timed(one, by_second_level))
        for at, one in enumerate(rankings)
    ]
    made = teach(kind, "gemm", trials, 1)
    keep_learned(made)
    assert load_learned() == made
    plans = rankings[0].plans
    again = load_learned().among(plans)
    assert [again.score(plan) for plan in plans] == [made.among(plans).score(p) for p in plans]
    assert isinstance(made.score(plans[0]), float)
    found = rank("mn-mk-kn", SIZES[0], here, variants=9, dtype="float32", by="learned")
    assert list(found.scores_by("learned")) == sorted(again.score(plan) for plan in plans)


def test_plans_for_another_machine_are_not_ranked_by_what_was_learned_here(rankings):
    """The error names the machine."""
    trials = [judging.collect_trials("x", timed(one, by_price)) for one in rankings]
    keep_learned(teach("logistic", "gemm", trials, 1))
    with pytest.raises(PlanError, match="machine 'e5-2680v4' is another"):
        rank("mn-mk-kn", 32, "e5-2680v4", variants=3, by="learned")


@pytest.mark.parametrize(
    ("spec", "sizes", "threads"),
    [
        ("mn-mk-kn", "m=0 n=4 k=4", 1),
        ("mn-mk-kn", "m=3 n=4 k=0", 1),
        ("mn-mk-kn", "m=1 n=1 k=1", 1),
        ("mn-mk-kn", "m=33 n=34 k=35", 2),
        ("kh-c[h+r]-kcr", "k=16 c=8 h=12 r=3", 1),
    ],
)
def test_all_problems_have_scores(spec, sizes, threads, here):
    """Those without iterations, too; there all variants are equal."""
    found = rank(spec, sizes, here, variants=3, threads=threads, by=ranker())
    scores = found.scores_by("learned")
    assert np.isfinite(scores).all()
    assert list(scores) == sorted(scores)
    if 0 in found.problem.sizes.values():
        assert set(scores) == {0.0}


def test_without_a_learned_ranker_the_command_is_named():
    """That makes one."""
    with pytest.raises(TilesolveError, match=r"no ranker has been learned.*'tilesolve learn"):
        rank("mn-mk-kn", 32, "i7-6700k", by="learned")


def ranker():
    names = ("L1", "L2", "memory", "compute", "packing", "price")
    weights = ((0.0,) * 5 + (1.0,),)
    return LearnedRanker("logistic", detect_cpu().fingerprint, "0.1.0", "gemm", names, weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpu": "another"}, "learned on another CPU"),
        ({"version": "0.0.1"}, r"version 0\.0\.1 learned it, and this is 0\.1\.0"),
        ({"kind": "forest"}, "no kind 'forest'"),
        ({"weights": ((1.0,),)}, "do not fit together"),
        ({"weights": ((float("nan"),) * 6,)}, "a weight is no number"),
        ({"kind": "network", "weights": (((1.0,), (2.0,)),)}, "do not fit together"),
        ({"weights": 3}, "damaged"),
        ({"weights": (("x",) * 6,)}, "damaged"),
    ],
)
def test_a_file_that_cannot_be_right_is_not_used(change, message):
    """Of another computer or version, or with weights that are none."""
    keep_learned(replace(ranker(), **change))
    with pytest.raises(PlanError, match=message) as caught:
        load_learned()
    assert "tilesolve learn" in str(caught.value)
    assert str(learned_file()) in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "list", "format", "bytes"])
def test_a_damaged_file_is_not_used(damage):
    """Whatever is wrong with it."""
    keep_learned(ranker())
    text = learned_file().read_text("utf-8")
    others = {
        "cut": text[:-9],
        "changed": text.replace("gemm", "tccg"),
        "empty": "",
        "list": "[]",
        "format": text.replace('"learned": 1', '"learned": 2'),
    }
    learned_file().write_bytes(b"\xff" if damage == "bytes" else others[damage].encode())
    with pytest.raises(PlanError, match="the learned ranker in"):
        load_learned()


def test_a_file_that_others_could_have_written_is_not_used():
    """As with a machine file."""
    keep_learned(ranker())
    learned_file().chmod(0o666)
    with pytest.raises(PlanError, match="can be written by others"):
        load_learned()


def study(rankings, suite="gemm"):
    """A study of rankings as a file has it."""
    return json.dumps(
        {
            "format": 1,
            "holds": "a study of rankings",
            "settings": {
                **{"suite": suite, "dtype": None, "threads": 1, "batch": 1, "repeat": 1},
                **{"contenders": {}, "machine": "x"},
            },
            "provenance": {},
            "machine": "",
            "cases": [
                {
                    "name": f"case {at}",
                    "spec": str(one.problem.spec),
                    "sizes": dict(one.problem.sizes),
                    "dtype": one.problem.dtype,
                    "ranking": json.loads(one.to_json()),
                }
                for at, one in enumerate(rankings)
            ],
        }
    )


def test_studies_are_read_as_single_rankings_are(tmp_path, rankings):
    """Their suite is kept, and their problems have the names of the suite."""
    path = tmp_path / "study.json"
    path.write_text(study([timed(one, by_price) for one in rankings]), "utf-8")
    suite, trials = read_trials([path])
    assert suite == "gemm"
    assert [one.name for one in trials] == [f"case {at}" for at in range(len(SIZES))]
    assert trials[0].names == name_times(rankings[0].plans[0])
    assert trials[0].seconds.tolist() == [by_price(plan) for plan in rankings[0].plans]


def test_what_is_no_file_of_trials_is_refused(tmp_path, rankings):
    """Each with a line that names the file."""
    path = tmp_path / "trials.json"
    good = timed(rankings[0], by_price)
    old = json.loads(good.to_json())
    del old["clock"]
    wrong = {
        "not valid JSON": "{",
        "no results of a study of rankings": "[]",
        "format is None": "{}",
        "not of a study of rankings": '{"format": 1, "holds": "a sweep"}',
        "not a ranking of format 2 but 7": '{"ranking": 7}',
        "a damaged ranking": json.dumps({**old, "clock": {"cpu": 1, "version": "x"}}),
        "does not say where its times were measured": json.dumps(old),
        "another CPU": replace(good, clock=Clock("another", "0.1.0")).to_json(),
        r"version 0\.0\.1 measured it": replace(
            good, clock=replace(Clock.here(), version="0.0.1")
        ).to_json(),
        "two variants or more have to be measured": replace(
            good, rounds=((1.0,), *[()] * (len(good) - 1))
        ).to_json(),
        "each time must be a positive number": replace(
            good, rounds=((0.0,),) * len(good)
        ).to_json(),
        "no scores by price": replace(good, by="sets", scores=good.scores[2:]).to_json(),
    }
    for message, text in wrong.items():
        path.write_text(text, "utf-8")
        with pytest.raises(BenchmarkError, match=message) as caught:
            read_trials([path])
        assert str(path) in str(caught.value)
    with pytest.raises(BenchmarkError, match=r"cannot read .*: No such file"):
        read_trials([tmp_path / "none.json"])


def test_trials_that_do_not_go_together_are_refused(tmp_path, rankings, here):
    """Of another machine or suite, a problem twice in whatever letters, too few problems."""
    one, two = write(tmp_path, rankings[:2], by_price)
    other, twin = tmp_path / "suite.json", tmp_path / "twin.json"
    other.write_text(study([timed(rankings[2], by_price)]), "utf-8")
    with pytest.raises(BenchmarkError, match=r"suite\.json is of the suite 'gemm', .*one suite"):
        read_trials([one, other])
    foreign = rank("mn-mk-kn", 32, "i7-6700k", variants=3)
    twin.write_text(timed(foreign, by_price).to_json(), "utf-8")
    with pytest.raises(BenchmarkError, match="machine 'i7-6700k', which is not this computer"):
        read_trials([twin])
    faster = here.replace(frequency=here.frequency / 2)
    again = rank("mn-mk-kn", 32, faster, variants=3)
    twin.write_text(timed(again, by_price).to_json(), "utf-8")
    with pytest.raises(BenchmarkError, match="another machine file than"):
        read_trials([one, twin])
    renamed = rank("xz-xy-yz", "x=96 z=64 y=128", here, variants=3, dtype="float32")
    twin.write_text(timed(renamed, by_price).to_json(), "utf-8")
    with pytest.raises(BenchmarkError, match=r"xz-xy-yz .* is the problem of mn-mk-kn"):
        read_trials([one, twin])
    done = learn(one, two)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("error: 3 different problems or more")


def test_a_folder_that_others_can_change_is_refused_before_anything_is_learned(tmp_path, rankings):
    """As what is kept there would not be read."""
    folder = learned_file().parent
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    done = learn(*write(tmp_path, rankings, by_second_level))
    assert done.exit_code == 2
    assert "can be written by others" in done.stderr
