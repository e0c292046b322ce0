"""Plans: caching, what-if, degenerate inputs, and constraints on random problems and machines."""

import dataclasses
import json
import sys
from functools import cache
from itertools import product

import numpy as np
import pytest
from commands import run_python
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from strategies import specs, unshrunk
from turns import examples, quick_each

import tilesolve
from tilesolve.constants import policy
from tilesolve.contractions.errors import (
    DtypeError,
    MachineError,
    PlanError,
    SizeError,
    SolverError,
    SpecError,
    TilesolveError,
    TilesolveWarning,
)
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite
from tilesolve.machine.costs import Costs
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.model.access import touched_bytes
from tilesolve.model.lines import lines_of, run_of, run_waste
from tilesolve.model.loop_tree import tree_of
from tilesolve.model.nest import Nest
from tilesolve.model.price import arithmetic, compute_price
from tilesolve.model.score import score_price, score_times
from tilesolve.model.traffic import count_traffic
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric import integers, select, strategy
from tilesolve.planning.geometric.integers import repair
from tilesolve.planning.geometric.relaxation import relax
from tilesolve.planning.geometric.tilings import nest_of, times_of
from tilesolve.planning.letter_boxes import box_letters
from tilesolve.planning.register_tile import choose_register_tile, fits_second_cache
from tilesolve.planning.solution import split_letters
from tilesolve.planning.solve import solve
from tilesolve.planning.waiting import store_seconds
from tilesolve.plans import cache as plan_cache
from tilesolve.plans import files as plan_files
from tilesolve.plans.plan import Plan, plan
from tilesolve.plans.report import least_volumes
from tilesolve.system import trust

SIZES = {"a": 24, "b": 16, "c": 16, "d": 24, "e": 16, "f": 16, "g": 24}


@pytest.fixture
def solved(monkeypatch):
    """Count the problems that are really solved."""
    problems = []
    real = plan_cache.pick_fastest_measured

    def counting(problem, *rest):
        problems.append(str(problem))
        return real(problem, *rest)

    monkeypatch.setattr(plan_cache, "pick_fastest_measured", counting)
    return problems


def test_the_front_door():
    """`tilesolve.plan` is the function, and takes sizes in all forms."""
    first = tilesolve.plan("ab-ac-cb", {"a": 64, "b": 64, "c": 64}, "i7-6700k")
    assert first == tilesolve.plan("ab-ac-cb", "a=64, b=64 c=64", "i7-6700k")
    assert first == tilesolve.plan("ab-ac-cb", 64, "i7-6700k")
    assert first == tilesolve.plan("ac,cb->ab", 64, Machine.load("i7-6700k"), dtype=np.float64)
    assert first == tilesolve.plan(Problem.of("ab-ac-cb", 64), machine="i7-6700k")


def test_plans_are_values():
    """A plan cannot be changed, hashes, and goes through JSON unchanged."""
    found = plan("abcdef-degb-gfac", SIZES, "e5-2680v4")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.threads = 2
    text = found.to_json()
    assert json.loads(text)["problem"]["spec"] == "abcdef-degb-gfac"
    again = Plan.from_json(text)
    assert again == found
    assert hash(again) == hash(found)


def test_a_renamed_problem_hits_the_cache(solved):
    """Other letters, or swapped operands, cost no second solution, in memory or on disk."""
    first = plan("abcdef-degb-gfac", SIZES, "e5-2680v4")
    names = dict(zip("abcdefg", "tuvwxyz", strict=True))
    sizes = {names[i]: n for i, n in SIZES.items()}
    second = plan("tuvwxy-wxzu-zytv", sizes, "e5-2680v4")
    plan_cache._memory.clear()
    third = plan("tuvwxy-zytv-wxzu", sizes, "e5-2680v4")
    assert len(solved) == 1
    assert first.seconds == second.seconds == third.seconds
    for found in (second, third):
        found.nest.check(found.problem)
        cost = compute_price(found.share, found.nest, found.machine, microkernel=found.microkernel)
        assert cost.seconds == pytest.approx(found.price.seconds)
        assert [level.volume for level in cost.levels] == pytest.approx(
            [level.volume for level in found.price.levels]
        )
    assert second.price.level("L1").volumes[1] == third.price.level("L1").volumes[2]


def test_other_questions_are_not_mixed_up(solved):
    """Sizes, dtype, machine, threads and accumulation each make another plan."""
    plan("ab-ac-cb", 64, "i7-6700k")
    plan("ab-ac-cb", 65, "i7-6700k")
    plan("ab-ac-cb", 64, "e5-2680v4")
    plan("ab-ac-cb", 64, "i7-6700k", dtype="float32")
    plan("ab-ac-cb", 64, "i7-6700k", threads=2)
    plan("ab-ac-cb", 64, "i7-6700k", accumulate=True)
    plan("ab-ac-bc", 64, "i7-6700k")
    assert len(solved) == 7


def test_caches_can_be_cleared_and_switched_off(solved, monkeypatch):
    """Cleared plans are solved again; switched off, nothing is kept."""
    plan("ab-ac-cb", 64, "i7-6700k")
    assert plan_cache.clear() == 1
    plan("ab-ac-cb", 64, "i7-6700k")
    assert len(solved) == 2
    plan_cache.clear()
    plan("ab-ac-cb", 64, "i7-6700k", cache=False)
    monkeypatch.setenv("TILESOLVE_CACHE", "off")
    plan("ab-ac-cb", 64, "i7-6700k")
    assert plan_cache.count_plans() == {"memory": 0, "disk": 0, "bytes": 0}


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 2}', '{"format": 99}', "\x00"])
def test_a_damaged_plan_file_is_reported_and_solved_again(solved, damage):
    """A file that is no plan is never trusted, and is mended."""
    first = plan("ab-ac-cb", 64, "i7-6700k")
    (path,) = plan_cache.plan_folder().glob("*.json")
    path.write_text(damage)
    plan_cache._memory.clear()
    with pytest.warns(TilesolveWarning, match="is ignored"):
        assert plan("ab-ac-cb", 64, "i7-6700k") == first
    plan_cache._memory.clear()
    assert plan("ab-ac-cb", 64, "i7-6700k") == first
    assert len(solved) == 2


def test_plans_of_one_machine_read_its_text_once(monkeypatch):
    """It is the longest part of a plan's file."""
    text = [plan("ik-ij-jk", size, "i7-6700k", cache=False).to_json() for size in (8, 9)]
    read = []
    usual = plan_files.Machine.from_toml
    monkeypatch.setattr(
        plan_files.Machine, "from_toml", lambda text: read.append(text) or usual(text)
    )
    plan_files.read_machine.cache_clear()
    assert [Plan.from_json(one).to_json() for one in text] == text
    assert len(read) == 1


def test_a_foreign_plan_file_is_not_used(solved):
    """A plan of another problem under this one's name is recognised."""
    first = plan("ab-ac-cb", 64, "i7-6700k")
    (path,) = plan_cache.plan_folder().glob("*.json")
    path.write_text(plan("ab-ac-cb", 32, "i7-6700k", cache=False).to_json())
    plan_cache._memory.clear()
    with pytest.warns(TilesolveWarning, match="another problem"):
        assert plan("ab-ac-cb", 64, "i7-6700k") == first


@pytest.mark.parametrize("file", ["__init__.py", "room/inner.py", "room/deeper/inmost.py"])
def test_plans_of_other_code_are_solved_again(solved, tmp_path, monkeypatch, file):
    """A plan on disk is used only by the code that solved it, whatever its version says."""
    package = tmp_path / "solver_of_a_test"
    source = package / file
    source.parent.mkdir(parents=True)
    (package / "__init__.py").touch()
    source.write_text("tie = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    monkeypatch.setattr(plan_cache, "PACKAGES", (package.name,))
    for expected in (1, 1, 2, 2):
        if expected > len(solved) > 0:
            source.write_text("tie = 10\n")
        plan_cache._memory.clear()
        plan_cache._code_state.cache_clear()
        plan("ab-ac-cb", 64, "i7-6700k")
        assert len(solved) == expected
    plan_cache._code_state.cache_clear()


def test_a_changed_machine_file_is_read_again(tmp_path):
    """A plan for a machine named by its path follows the file, also within one process."""
    path = tmp_path / "mine.toml"
    machine = Machine.load("i7-6700k")
    path.write_text(machine.to_toml())
    first = plan("ab-ac-cb", 64, str(path))
    path.write_text(machine.replace(frequency=1e9, name="slow").to_toml())
    assert first.machine.name == "i7-6700k"
    assert plan("ab-ac-cb", 64, str(path)).machine.name == "slow"


def test_more_capacity_is_never_worse_by_much():
    """Where the best choice rounds badly, a runner-up that rounds better is taken."""
    found = plan("abcdef-degb-gfac", SIZES, "i7-6700k")
    assert found.whatif(l3_capacity=2.0).seconds <= found.seconds * 1.05


def test_an_unwritable_cache_is_a_warning(tmp_path, monkeypatch):
    """Where nothing can be kept, plans are still made."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TILESOLVE_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(trust, "private_folder", lambda: trust.NOWHERE)
    with pytest.warns(TilesolveWarning, match="file cannot be written; and there is no") as caught:
        assert plan("ab-ac-cb", 64, "i7-6700k").seconds > 0
    assert len(caught) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "3", "[1]", "{}", "[" * 100_000),
        *('{"format": []}', '{"format": 2, "problem": 3}'),
    ],
)
def test_reading_what_is_no_plan_is_an_error(text):
    """`from_json` refuses what `to_json` did not write, however deep it goes."""
    with pytest.raises(PlanError):
        Plan.from_json(text)


def test_the_report_says_what_it_must():
    """The printed plan has tiles, levels, packing and the search; the repr is one line."""
    found = plan("abcd-aebf-dfce", 72, "e5-2680v4")
    text = str(found)
    for part in (
        "M = ab (5184)",
        "GFLOP/s",
        "of the roofline",
        "bound by",
        "register",
        "L3",
        "at least",
        "microkernel 8×6",
        "packed into L3",
        "216 permutations",
        "continuous optimum",
        "above what none go below",
        "runner-up",
    ):
        assert part in text
    assert "\n" not in repr(found)
    assert "abcd-aebf-dfce" in repr(found)


@pytest.mark.parametrize(
    ("name", "accumulate"), quick_each(product(list(suite("tccg"))[::5], (False, True)))
)
def test_no_volume_is_below_its_bound(name, accumulate):
    """What the model counts is never less than what any schedule must move."""
    found = plan(suite("tccg")[name], machine="e5-2680v4", accumulate=accumulate)
    for level, least in zip(found.price.levels, least_volumes(found.solution), strict=True):
        assert level.volume >= least * (1 - 1e-9)


def test_what_if_names_a_figure_and_solves_again():
    """More of what binds helps; figures that do not exist are named."""
    found = plan("abcd-aebf-dfce", 72, "e5-2680v4")
    faster = found.whatif(compute=2.0)
    assert faster.seconds < found.seconds
    assert found.whatif(l3_capacity=2.0).machine.level("L3").capacity == 2 * 36700160
    with pytest.raises(MachineError, match="l3_capacity"):
        found.whatif(l4_capacity=2.0)
    with pytest.raises(MachineError, match="memory_bandwidth"):
        found.whatif(memory_capacity=2.0)


def test_sensitivity_is_the_slope_of_what_if():
    """One percent more of the bottleneck saves the percents that the multipliers say."""
    machine = Machine.load("e5-2680v4")
    slow = machine.replace(
        levels=(*machine.caches, dataclasses.replace(machine.memory, bandwidth=2e9))
    )
    found = plan("abcdef-degb-gfac", SIZES, slow)
    assert found.price.bottleneck == "memory"
    assert found.sensitivity["memory_bandwidth"] == pytest.approx(1.0, abs=0.02)
    faster = found.whatif(memory_bandwidth=1.01)
    relaxed = [max(s for _, s in p.search.relaxed) for p in (found, faster)]
    saved = 100 * (1 - relaxed[1] / relaxed[0])
    assert saved == pytest.approx(found.sensitivity["memory_bandwidth"], abs=0.05)


@pytest.mark.parametrize("sums", [16, 64, 512])
def test_a_higher_peak_makes_calls_and_packing_no_faster(sums):
    """What one percent more of the peak saves is what what-if finds: the bare arithmetic's part."""
    found = plan("ij-ik-kj", {"i": 4000, "j": 4000, "k": sums}, "e5-2680v4", cache=False)
    faster = found.whatif(compute=1.001)
    relaxed = [max(s for _, s in one.search.relaxed) for one in (found, faster)]
    assert found.price.bottleneck == "compute"
    for before, after in (relaxed, (found.price.seconds, faster.price.seconds)):
        saved = 1000 * (1 - after / before)
        assert saved == pytest.approx(found.sensitivity["compute"], abs=0.01)


@pytest.mark.parametrize("machine", quick_each([["i7-6700k"], ["e5-2680v4"]]))
@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("ab-ac-cb", {"a": 0, "b": 5, "c": 5}),
        ("ab-ac-cb", {"a": 5, "b": 5, "c": 0}),
        ("ab-ac-cb", 1),
        ("ab-ac-cb", {"a": 3, "b": 2, "c": 1}),
        ("ab-ac-cb", {"a": 997, "b": 1009, "c": 991}),
        ("-a-a", 1000),
        ("ab-a-b", 300),
        ("a-ab", 64),
        ("ba-ab", 500),
        ("abc-abc-abc", 40),
        ("abcdef-abcghi-defghijkl-jkl", 2),
        ("abcdefg-abcdhijk-efghijk", 3),
        ("a->", 9),
        ("ii->i", 50),
    ],
)
def test_odd_problems_have_plans(spec, sizes, machine):
    """Extents 0 and 1, primes, one operand, many letters: each has a plan that checks."""
    found = Plan(solve(Problem.of(spec, sizes), Machine.load(machine), 1, Demand()))
    found.nest.check(found.share)
    assert (found.seconds > 0) == (found.problem.bytes[0] > 0)
    assert np.isfinite(found.seconds)
    assert str(found)
    assert Plan.from_json(found.to_json()) == found


WIDE = {"vector_bits": 512, "vector_registers": 32}


@pytest.mark.parametrize(
    ("spec", "sizes", "dtype"),
    [
        ("ajKb-bi-b[j+3K+3a]aK", {"a": 35, "j": 0, "K": 15, "b": 5, "i": 0}, "float32"),
        ("ajKb-bi-b[j+3K+3a]aK", {"a": 35, "j": 5, "K": 15, "b": 5, "i": 7}, "float32"),
        ("aKb-bi-b[3K+3a][a+5K]", {"a": 48, "K": 48, "b": 16, "i": 7}, "float32"),
        ("a[3b+a]b[2b]->b", {"b": 31, "a": 37}, "float32"),
        ("[3a]a[2b+j+K]i->jiKa", {"j": 137, "i": 70, "K": 13, "a": 75, "b": 0}, "complex64"),
        ("bea-[3b+a+2e][3b+2a+2e]ee-eb", {"b": 1, "e": 30, "a": 51}, "complex128"),
    ],
)
def test_a_wide_register_tile_leaves_room(spec, sizes, dtype):
    """Letters that stand in several subscripts, and whole lines, do not fill a cache twice."""
    machine = Machine.load("i7-6700k").replace(**WIDE)
    found = solve(Problem.of(spec, sizes, dtype), machine, 1, Demand())
    found.nest.check(found.share)


@pytest.mark.parametrize(("sharing", "threads"), quick_each(product((1, 2, 60), (1, 2)), of=2))
def test_tiles_fill_no_more_of_a_named_cache_than_cores_have(threads, sharing):
    """A virtual machine names the cache of a large CPU: a core's share of it holds the tiles."""
    named = Level("L3", 480 << 20, 5e10, ways=16, shared_by=sharing)
    shipped = Machine.load("i7-6700k")
    machine = shipped.replace(levels=(*shipped.levels[:2], named, shipped.memory), cores=sharing)
    found = plan("mn-mk-kn", 4000, machine, threads=threads, cache=False)
    held = sum(touched_bytes(found.share, dict(found.nest.bands[-2].box)))
    shares = sharing / min(threads, sharing)
    assert held <= min(480 << 20, shares * (8 << 20))


def test_a_narrower_register_tile_is_taken_where_the_best_one_has_no_room():
    """A letter that stands in three subscripts of an operand makes windows of six a cube."""
    problem = Problem.of("bk-[3b+i][3b+2i][3b+4i]-ki", "b=400 k=200 i=3")
    machine = Machine.load("i7-6700k")
    found = plan(problem, machine=machine, cache=False)
    usual = choose_register_tile(problem, machine)
    assert found.microkernel.rows * found.microkernel.columns < usual.rows * usual.columns
    found.nest.check(found.share)


def machine_of(*capacities, base="i7-6700k", **changes):
    """Return a shipped machine with other caches."""
    shipped = Machine.load(base)
    caches = [
        Level(f"L{at}", size, 80e9 / at, ways=8) for at, size in enumerate(capacities, start=1)
    ]
    return shipped.replace(levels=(*caches, Level("memory", None, 8e9)), **changes)


@pytest.mark.grid
@pytest.mark.parametrize("spec", ["ab-ac-cb", "kh-c[h+r]-kcr"])
@pytest.mark.parametrize(
    "capacities",
    [
        (),
        (32768,),
        (32768, 262144),
        pytest.param((32768, 262144, 2**22, 2**25), marks=pytest.mark.slow),
        (32768, 262144, 2**20, 2**23, 2**26),
        (65536, 32768, 2**23),
    ],
)
def test_any_number_of_levels(capacities, spec):
    """From no cache to five, and an L2 smaller than L1 (section 5.5)."""
    if len(capacities) == 5:  # of two classes: four have a thousand choices
        spec = "h-[h+r]-r" if "[" in spec else "ab-a-b"
    found = plan(spec, 60, machine_of(*capacities))
    assert len(found.price.levels) == len(capacities) + 1
    assert all(len(chain) == len(capacities) for _, chain in found.classes)
    assert str(found)


def test_infeasible_capacities_are_an_error():
    """A cache that cannot hold even the register tile's panels is named, not ignored."""
    with pytest.raises(SolverError, match=r"no tile fits the caches of .*: .* 64 bytes of L1$"):
        plan("ab-ac-cb", 64, machine_of(64))


EVEN = Costs(pack_cycles=2.5, late_line_cycles=0.01, level_overlap=0.48, call_run_cycles=1e-9)
"""Packing takes as long whatever runs it reads, so that what else waits for short runs decides."""


@pytest.mark.parametrize(
    ("machine", "case", "gain"),
    [
        ("i7-6700k", "abcde-efcad-bf", 0.1),
        ("i7-6700k", "abcde-efbad-cf", 0.1),
        ("e5-2680v4", "abcd-aedf-fbec", -policy.TIME_TOLERANCE),
        ("e5-2680v4", "abc-acd-db", -policy.TIME_TOLERANCE),
    ],
)
def test_of_tiles_that_are_as_fast_those_that_take_least_altogether_are(
    machine, case, gain, monkeypatch
):
    """The outermost tile is another than the best one by the longest time, where it pays."""
    monkeypatch.setattr(select, "_as_if_late", lambda *_: ([], 0))  # which finds some of these, too
    problem = suite("tccg")[case]
    found = tilesolve.plan(problem, machine=machine, cache=False)
    monkeypatch.setattr(select, "resize_outermost", lambda *_: [])
    monkeypatch.setattr(integers, "_find_least_score", lambda *args: args[-1])
    first = tilesolve.plan(problem, machine=machine, cache=False)

    assert found.solution.score <= (1 - gain) * first.solution.score


@pytest.mark.parametrize(
    ("case", "most"),
    [("abc-ad-bdc", 1), ("abc-adc-bd", 1), ("abcde-ecbfa-fd", 1), ("abcd-ec-abed", 0.5)],
)
def test_of_tiles_that_are_as_fast_those_with_long_runs_are_taken(case, most, monkeypatch):
    """The outermost tile is larger than the best one by the model where its runs are too short."""
    problem, machine = suite("tccg")[case], Machine.load("i7-6700k").replace(costs=EVEN)
    found = tilesolve.plan(problem, machine=machine, cache=False)
    monkeypatch.setattr(select, "resize_outermost", lambda *_: [])
    short = tilesolve.plan(problem, machine=machine, cache=False)

    plans = [made.solution for made in (found, short)]
    storing = min(store_seconds(p.share, p.nest, p.cost, p.machine) for p in plans)
    waits, before = (one.waiting - storing for one in plans)
    assert waits <= most * before
    assert found.solution.score <= (1 + policy.TIME_TOLERANCE) * short.solution.score


@pytest.mark.parametrize(
    ("case", "machine", "dtype"),
    quick_each(
        product(
            ("abcdef-efgc-gdab", "abcdef-efgb-gdac", "ab-cad-dcb"),
            ("i7-6700k", "e5-2680v4"),
            ("float32", "float64"),
        )
    ),
)
def test_tiles_that_take_little_room_cost_little(machine, case, dtype, monkeypatch):
    """No tiling that was looked at scores better than the plan by more than counts as alike."""
    seen, make = [], select._candidate
    monkeypatch.setattr(select, "_candidate", lambda *of: seen.append(make(*of)) or seen[-1])
    problem = dataclasses.replace(suite("tccg")[case], dtype=dtype)
    found = tilesolve.plan(problem, machine=machine, cache=False)
    best = next(one for one in seen if one.nest == found.nest)
    for one in seen:
        assert best.score <= (1 + policy.TIME_TOLERANCE) * one.score


def test_short_runs_in_pages_of_their_own_wait_for_each():
    """Each time until the next one may begin; long ones, or those of one page, do not."""
    machine = Machine.load("i7-6700k")
    problem = Problem.of("mn-mk-kn", {"m": 4096, "n": 64, "k": 4096})

    def waits(m, k):
        box = {"m": m, "n": 64, "k": k}
        bands = [("register", "nmk", {"m": 8, "n": 4, "k": k}), ("L3", "mnk", box)]
        nest = Nest.of(problem, [*bands, ("memory", "mkn", dict(problem.sizes))], ("L3", "L3"))
        price = compute_price(problem, nest, machine)
        late = sum(select.late_seconds(problem, nest, price, machine).values())
        runs = select.run_seconds(problem, nest, machine)
        return select.waiting_seconds(problem, nest, price, machine, box) - late - runs

    def ends(k):
        return problem.bytes[1] * run_waste(8 * k, 64, 8) / machine.memory.bandwidth

    for k in (8, 16, 32):
        runs = problem.bytes[1] / (8 * k)
        least = runs * (machine.costs.page_visit_seconds - 8 * k / machine.memory.bandwidth)
        more = ends(k) - ends(4096) + least  # what else waits is next to nothing beside
        assert waits(64, k) == pytest.approx(waits(64, 4096) + more, rel=1e-2)
    assert waits(64, 64) == pytest.approx(waits(64, 4096) + ends(64) - ends(4096), rel=2e-2)


@given(
    pitch=st.integers(1, 80).map(lambda lines: 8 * lines),
    rows=st.sampled_from([8, 24, 64]),
    sums=st.sampled_from([16, 24, 200, 400]),
)
@examples(5, 10)
@example(pitch=512, rows=8, sums=16)  # all of it stays in the second cache
@example(pitch=512, rows=24, sums=200)
def test_nothing_is_read_in_place_from_a_few_sets_of_the_nearest_cache(pitch, rows, sums):
    """Steps of a sum that are a multiple of a way apart push each other out.

    That is of no account where the second cache holds all tensors.
    """
    problem = Problem.of("mn-km-kn", {"m": rows, "n": pitch, "k": sums})
    found = plan(problem, machine="i7-6700k", cache=False)
    cell = dict(found.nest.bands[0].box)
    for number, copy in enumerate(found.nest.packed, start=1):
        if copy is None and not fits_second_cache(problem, found.machine):
            lines = lines_of(problem, number, cell, 64)
            used, most = np.unique(lines % 64, return_counts=True)
            assert most.max() <= 8 or len(used) >= min(64, len(lines)) / 2


@pytest.mark.parametrize(
    ("case", "machine", "lines"),
    [("abc-bda-dc", "e5-2680v4", 16), ("abcde-ecbfa-fd", "i7-6700k", 4)],
)
def test_of_loops_that_are_as_fast_those_with_long_runs_are_taken(case, machine, lines):
    """A tile that reads single lines far apart takes longer than its bytes: a runner-up wins."""
    problem = suite("tccg")[case]
    found = plan(problem, machine=Machine.load(machine).replace(costs=EVEN), cache=False)
    tiles = relax(found.setting).optima
    first, _ = repair(found.setting, tiles[0].choice, tiles[0].tiles)
    line = found.machine.memory.line
    nest = nest_of(found.setting, tiles[0].choice, dict(first.chains))
    short = box_letters(problem, found.setting.fused, nest, line)

    def shortest(nest):
        tile = dict(nest.bands[-2].box)
        return min(run_of(problem, tensor, tile) for tensor in problem.spec.tensors)

    assert shortest(short) < 2 * line
    assert shortest(found.nest) >= lines * line
    assert found.price.seconds <= 1.02 * first.seconds


@pytest.mark.parametrize(
    ("spec", "dtype"), [("ab-ac-cb", "float32"), ("abcd-aebf-dfce", "float64")]
)
def test_whole_lines_are_given_up_for_room(spec, dtype):
    """A last cache that cannot hold tiles of whole lines beside the register tile's panels."""
    machine = machine_of(32768, 262144, 8192, **WIDE)
    found = plan(Problem.of(spec, 72, dtype), machine=machine, cache=False)
    assert found.setting.lines == ()
    found.nest.check(found.share)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_threads_are_a_positive_integer(threads):
    """Anything else is refused."""
    with pytest.raises((MachineError, TypeError)):
        plan("ab-ac-cb", 64, "i7-6700k", threads=threads)


def test_threads_share_the_work_and_the_last_level():
    """Four threads divide a letter of the output and are faster, not more than four times."""
    one = plan("abcd-aebf-dfce", 24, "i7-6700k")
    four = plan("abcd-aebf-dfce", 24, "i7-6700k", threads=4)
    assert four.split in "abcd"
    assert one.seconds / 4.001 <= four.seconds < one.seconds


@cache
def product_plan(sums, threads, everyone):
    """Return a plan for a machine whose memory gives all cores so many times what it gives one."""
    machine = Machine.load("i7-6700k")
    memory = machine.memory
    both = everyone and everyone * memory.bandwidth
    levels = (*machine.caches[:2], dataclasses.replace(memory, bandwidth_all=both))
    machine = machine.replace(levels=levels)
    return plan("ij-ik-kj", f"i=2000 j=2000 k={sums}", machine, threads=threads, cache=False)


@pytest.mark.parametrize(
    ("sums", "everyone", "threads"),
    quick_each(product((8, 400), (None, 0.9, 2.5), (1, 2, 4, 64))),
)
def test_no_plan_is_faster_than_the_roofline(sums, threads, everyone):
    """However many threads, whatever was measured with all cores: both take the same figures."""
    found = product_plan(sums, threads, everyone)
    assert found.seconds >= found.roofline
    alone = product_plan(sums, 1, everyone)
    assert alone.roofline / 4 <= found.roofline <= alone.roofline / min(1, everyone or 1)


@pytest.mark.parametrize("size", [64, 400])
def test_threads_beyond_the_cores_take_turns(size):
    """Many threads of one core are no faster than one: each has its part of all that it does."""
    machine = Machine.load("i7-6700k").replace(cores=1)
    one, many = (plan("ij-ik-kj", size, machine, threads=n, cache=False) for n in (1, 8))
    assert many.seconds >= one.seconds
    assert many.roofline == one.roofline
    shared = compute_price(many.share, many.nest, machine, microkernel=many.microkernel)
    turns = compute_price(many.share, many.nest, machine, microkernel=many.microkernel, threads=8)
    assert turns.compute == pytest.approx(8 * shared.compute)
    assert turns.level("L1").seconds == pytest.approx(8 * shared.level("L1").seconds)


@pytest.mark.parametrize(("sharing", "output"), [(2, "stream"), (30, "store")])
def test_of_a_cache_that_others_share_out_of_sight_little_is_counted_on(sharing, output):
    """A virtual machine names all of a large cache, whatever it has of the cores."""
    machine = Machine.load("i7-6700k")
    huge = dataclasses.replace(machine.levels[2], capacity=480 << 20, ways=None, shared_by=sharing)
    levels = (*machine.levels[:2], huge, machine.levels[3])
    problem = Problem.of("mn-mk-kn", "m=4000 n=4000 k=16")
    assert plan(problem, machine=machine.replace(levels=levels), cache=False).output == output


@pytest.mark.parametrize(
    ("sizes", "output"),
    [
        ("m=2000 n=2000 k=64", "stream"),  # 32 MB, the last cache has 8
        ("m=900 n=900 k=900", "store"),  # all are 19 MB, but C is read again
        ("m=900 n=900 k=250", "stream"),  # 11 MB, and sums are in one piece
        ("m=900 n=900 k=300", "store"),  # as many, but the nearest cache has no room for the sums
        ("m=600 n=600 k=300", "store"),  # all fit
    ],
)
def test_what_the_last_cache_cannot_keep_is_written_past_it(sizes, output):
    """That is C alone, or beside the operands where it is not read again."""
    problem = Problem.of("mn-mk-kn", sizes)
    assert plan(problem, machine="i7-6700k", threads=1, cache=False).output == output
    added = plan(problem, machine="i7-6700k", threads=1, accumulate=True, cache=False)
    assert added.output == "accumulate"


@settings(deadline=None, max_examples=10)
@given(
    rows=st.integers(300, 3000),
    sums=st.integers(1, 600),
    machine=st.sampled_from(["i7-6700k", "e5-2680v4"]),
)
def test_what_goes_past_the_caches_is_written_once(rows, sums, machine):
    """A part of a sum that was written there would come back to be added to."""
    problem = Problem.of("mn-mk-kn", {"m": rows, "n": 1200, "k": sums})
    found = plan(problem, machine=machine, cache=False)
    assert found.setting.output == found.output
    assert found.output == "store" or found.nest.bands[0]["k"] == sums


def test_bad_questions_have_clear_errors():
    """Wrong specs, sizes, dtypes and machines are refused with their own kinds of error."""
    with pytest.raises(SpecError):
        plan("ab-ac-c[b", 8, "i7-6700k")
    with pytest.raises(SizeError, match="sizes are missing"):
        plan("ab-ac-cb")
    with pytest.raises(SizeError, match="already"):
        plan(Problem.of("ab-ac-cb", 8), 8)
    with pytest.raises(DtypeError):
        plan("ab-ac-cb", 8, "i7-6700k", dtype="int32")
    with pytest.raises(MachineError, match="no-such"):
        plan("ab-ac-cb", 8, "no-such")


def test_a_missing_solver_says_what_to_install():
    """Plans need cyipopt only where the interior point does not arrive: an error names it then."""
    code = (
        "import sys; sys.modules['cyipopt'] = None\n"
        "import tilesolve\n"
        "from tilesolve.contractions.errors import SolverError\n"
        "from tilesolve.solver import interior\n"
        "tilesolve.plan('ab-ac-cb', 640, 'i7-6700k', cache=False)\n"
        "tilesolve.plan('kh-c[h+r]-kcr', 640, 'i7-6700k', cache=False)\n"
        "interior.INTERIOR_STEPS = 1\n"
        "try: tilesolve.plan('kh-c[h+r]-kcr', 641, 'i7-6700k', cache=False)\n"
        "except SolverError as error: print(error)\n"
    )
    done = run_python("-c", code, check=True)
    assert "cyipopt-wheels" in done.stdout


def test_a_solver_that_fails_gives_an_error_with_its_status(monkeypatch):
    """No unchecked point becomes a plan: IPOPT stopped early is an error."""
    from tilesolve.solver import ipopt

    monkeypatch.setattr(strategy, "relax", relax)
    monkeypatch.setattr("tilesolve.solver.interior.INTERIOR_STEPS", 1)
    monkeypatch.setattr(ipopt, "OPTIONS", {**ipopt.OPTIONS, "max_iter": 1})
    with pytest.raises(SolverError, match="iterations"):
        plan("kh-c[h+r]-kcr", 640, "i7-6700k", cache=False)


def test_ipopt_decides_where_the_interior_point_does_not_arrive(monkeypatch):
    """Its plan is as good, and says how many programs it solved."""
    usual = plan("ab-ac-cb", 640, "i7-6700k", cache=False)
    monkeypatch.setattr(strategy, "relax", relax)
    monkeypatch.setattr("tilesolve.solver.interior.INTERIOR_STEPS", 1)
    other = plan("ab-ac-cb", 640, "i7-6700k", cache=False)
    assert other.solution.score == pytest.approx(usual.solution.score, rel=policy.TIME_TOLERANCE)
    assert usual.search.by_ipopt == 0
    assert other.search.by_ipopt > other.search.solved > 0  # of bounds, too
    assert f"did not arrive, for IPOPT: {other.search.by_ipopt}\n" in str(other)
    assert "IPOPT" not in str(usual)


def test_what_is_solved_again_as_if_lines_waited_is_counted(monkeypatch):
    """IPOPT is asked for more programs than without that."""
    problem, asked = suite("tccg")["abcde-ecbfa-fd"], []
    monkeypatch.setattr(strategy, "relax", relax)
    monkeypatch.setattr("tilesolve.solver.interior.INTERIOR_STEPS", 1)
    for share in (policy.LATE_SHARE, 1.0):  # which no lines take
        monkeypatch.setattr(select, "LATE_SHARE", share)
        asked.append(plan(problem, machine="i7-6700k", cache=False).search.by_ipopt)
    assert asked[0] > asked[1] > 0


@pytest.mark.grid
@pytest.mark.parametrize("level", ["L1", "L2"])
@pytest.mark.parametrize("spec", ["ab-ac-cb", "kh-c[h+r]-kcr"])
def test_tensors_share_ways_where_there_are_too_few(spec, level):
    """Where not each tensor can have a way of its own, only what they take together counts."""
    machine = Machine.load("i7-6700k")

    def planned(ways):
        levels = (
            dataclasses.replace(one, ways=ways if one.name == level else one.ways)
            for one in (*machine.caches[:2], machine.memory)
        )
        return plan(spec, 96, machine.replace(levels=tuple(levels)), cache=False)

    unknown = planned(None)
    for ways in (1, 2):
        few = planned(ways)
        assert (few.nest, few.seconds) == (unknown.nest, unknown.seconds)


@st.composite
def odd_machines(draw):
    """Draw machines of one to four caches of any growing or shrinking sizes."""
    sizes = draw(st.lists(st.integers(4096, 2**24), min_size=1, max_size=3))
    rates = sorted(draw(st.lists(st.floats(1e9, 1e11), min_size=4, max_size=4)), reverse=True)
    caches = [
        Level(
            f"L{at}",
            size,
            rates[at - 1],
            ways=draw(st.sampled_from([None, 1, 2, 4, 8, 16])),
            inclusive=at == 1 or draw(st.booleans()),
        )
        for at, size in enumerate(sizes, start=1)
    ]
    levels = (*caches, Level("memory", None, rates[-1]))
    return Machine.load("i7-6700k").replace(levels=levels)


def times_within(setting, nest):
    """Return all times of a nest over classes, in the part of each cache that tiles may take."""
    problem = setting.fused.problem
    found = count_traffic(tree_of(problem, nest), setting.places)
    kernel, rate, frequency = setting.microkernel, setting.rate, setting.frequency
    levels = [
        place.seconds(volumes) for place, volumes in zip(setting.places, found.volumes, strict=True)
    ]
    return np.array([*levels, arithmetic(problem, kernel, rate, frequency, found)])


def least_tiles(setting):
    """Return the smallest tile of each cache: of whole nearer ones, as long as lines and runs ask.

    Tiles that keep less than that may be cheaper by a price that knows no runs.
    """
    sizes, tiles = setting.fused.problem.sizes, []
    inner = {i: setting.smallest(i) for i in sizes}
    for level in range(1, setting.levels + 1):
        trips = {i: -(-setting.smallest(i, level) // inner[i]) for i in sizes}
        inner = {i: min(sizes[i], trips[i] * inner[i]) for i in sizes}
        tiles.append(inner)
    return tiles


def beats_the_obvious(found):
    """Assert that no trivial tiling is cheaper than a plan, on its machine.

    The plan is priced over classes, as trivial tilings are, or as it runs: what need not be packed
    is only found once tiles are integers.
    """

    def fits(held, place):
        if place.ways is None or place.ways < len(held):
            return sum(held) <= place.capacity
        return sum(np.ceil(size * place.ways / place.capacity) for size in held) <= place.ways

    setting = found.setting
    fused = setting.fused.problem
    own = score_times(times_of(setting, found.choice, [dict(found.classes)])[:, 0], setting.overlap)
    caches = setting.places[1:]
    _, repaired = repair(setting, found.choice, dict(found.search.tiles))
    waiting = found.solution.score - score_price(found.price, setting.overlap)
    call, whole = {i: setting.smallest(i) for i in fused.sizes}, dict(fused.sizes)
    for tiles in (least_tiles(setting), [whole] * setting.levels):
        nearest = tiles[0] if tiles else whole
        inner = {i: nearest[i] if i in setting.fused.reduced else call[i] for i in whole}
        bands = [("register", "", inner)]
        bands += [(place.name, "", tile) for place, tile in zip(caches, tiles, strict=True)]
        nest = Nest.of(fused, [*bands, ("memory", "", whole)], setting.packed, setting.output)
        held = [
            [np.prod([tile[i] for i in t.letters]) * fused.itemsize for t in fused.spec.tensors]
            for tile in tiles
        ]
        if all(fits(bytes_, place) for bytes_, place in zip(held, caches, strict=True)):
            trivial = score_times(times_within(setting, nest), setting.overlap)
            assert repaired.score <= trivial * (1 + policy.TIME_TOLERANCE)
            if not waiting:  # else runs may have decided, which classes have none of
                assert own <= trivial * (1 + policy.TIME_TOLERANCE)


def test_what_the_obvious_takes_is_told_by_the_room_that_tiles_have():
    """Half of the second cache, where a small tile's copies do not stay as they do in all of it."""
    levels = (
        Level("L1", 51148, 69958523633.9015, inclusive=True),
        Level("L2", 4096, 66517645518.79343, ways=4),
        Level("memory", None, 3e9),
    )
    machine = Machine.load("i7-6700k").replace(levels=levels)
    found = plan("c,adb->cbda", "c=44 b=14 d=16 a=26", machine, cache=False)
    assert found.setting.places[-1].capacity < found.machine.levels[1].capacity
    beats_the_obvious(found)


def test_the_obvious_has_the_lines_and_runs_that_tiles_need():
    """A first cache that is larger than all others, and a memory of half their speed."""
    levels = (
        Level("L1", 1931051, 23014692245.452705, ways=16),
        Level("L2", 40350, 21937289018.060696),
        Level("L3", 1279591, 3858732102.583713, ways=8, inclusive=False),
        Level("memory", None, 3e9),
    )
    machine = Machine.load("i7-6700k").replace(levels=levels)
    found = plan("adcb-cba-cd", "a=43 b=33 c=35 d=12", machine, cache=False)
    setting = found.setting
    assert any(setting.smallest(i, 3) > setting.smallest(i) for i in setting.fused.problem.sizes)
    beats_the_obvious(found)


@given(
    spec=specs(operands=2, letters="abcde", affine=False, diagonal=False, max_order=3),
    machine=odd_machines(),
    data=st.data(),
)
@examples(20, 40, unshrunk)
def test_plans_keep_their_constraints_and_beat_the_obvious(spec, machine, data):
    """Random problems on random machines: tiles fit, and no trivial tiling is cheaper.

    Trivial are the smallest tiles at every level, and one tile for the whole problem where
    that fits every level, each tensor in ways of its own if there are as many (Eq. 9).
    """
    sizes = {i: data.draw(st.integers(1, 60), label=i) for i in spec.letters}
    try:
        found = plan(spec, sizes, machine, cache=False)
    except SolverError as error:
        if "no tile fits" not in str(error):
            raise
        reject()  # Hypothesis fails where it has to draw too often
    beats_the_obvious(found)


@pytest.mark.parametrize("solvable", [True, False])
def test_a_choice_that_no_program_is_better_of_may_round_better(monkeypatch, solvable):
    """With a second cache smaller than the first one, C stays there beside what passes by.

    If the program of that choice cannot be solved, there still is the plan of another one.
    """
    levels = (
        Level("L1", 135310, 9.44e10, ways=16),
        Level("L2", 9638, 9.16e10),
        Level("memory", None, 1e9),
    )
    small = Machine.load("i7-6700k").replace(levels=levels)
    asked = []

    def unsolved(program, choice):
        asked.append(choice)
        raise SolverError("no optimum")

    if not solvable:
        monkeypatch.setattr(select, "optimum", unsolved)
    found = plan("dc-aed-cae", "d=26 c=8 a=53 e=46", small, cache=False)
    if solvable:
        beats_the_obvious(found)
    else:
        assert asked
        assert found.choice not in asked


def test_a_sum_of_a_matrix_is_no_slower_than_in_one_tile():
    """A matrix that is multiplied by a number and summed is read in place."""
    levels = (
        Level("L1", 59343, 1e11, ways=16),
        Level("L2", 80884, 8.367e10),
        Level("L3", 540299, 7.929e10, ways=8, inclusive=False),
        Level("memory", None, 6.258e10),
    )
    machine = Machine.load("i7-6700k").replace(levels=levels)
    beats_the_obvious(plan("ad,->", "a=58 d=54", machine, cache=False))


def test_threads_of_the_environment(monkeypatch):
    """Plans are for the threads that are named, then those of the environment, then one."""
    monkeypatch.delenv("TILESOLVE_NUM_THREADS", raising=False)
    assert plan("ik-ij-jk", 64, "i7-6700k").threads == 1
    monkeypatch.setenv("TILESOLVE_NUM_THREADS", "2")
    assert plan("ik-ij-jk", 64, "i7-6700k").threads == 2
    assert plan("ik-ij-jk", 64, "i7-6700k", threads=3).threads == 3


@cache
def divided_plan():
    """Return the text of a plan of two threads."""
    return plan("ij-ik-kj", 64, "i7-6700k", threads=2).to_json()


@pytest.mark.parametrize(
    "changes",
    [
        {"threads": 0},
        {"threads": 1.5},
        {"split": "z"},
        {"split": 3},
        {"split": "k"},
        {"nest": {"packed": ["L9", None]}},
        {"nest": {"bands": 0}},
    ],
)
def test_a_plan_whose_parts_do_not_fit_is_refused(changes):
    """Altered JSON is an error when it is read, not a wrong result when it runs."""
    data = json.loads(divided_plan())
    assert Plan.from_json(json.dumps(data)).threads == 2
    for name, value in changes.items():
        data[name] = {**data[name], **value} if isinstance(value, dict) else value
    with pytest.raises(PlanError):
        Plan.from_json(json.dumps(data))


def test_sizes_are_checked_whatever_was_planned_before():
    """Numbers that equal good sizes are no sizes, and what has no hash is none either."""
    plan("mn-mk-kn", 50, "i7-6700k")
    plan("mn-mk-kn", 1, "i7-6700k")
    for sizes in (50.0, True, [50], {"m": np.array([3]), "n": 3, "k": 3}, (1, 2)):
        with pytest.raises((SizeError, TypeError)) as caught:
            plan("mn-mk-kn", sizes, "i7-6700k")
        with pytest.raises(type(caught.value)):
            plan("mn-mk-kn", sizes, "i7-6700k", cache=False)
        assert isinstance(caught.value, TilesolveError), sizes


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_may_divide_what_cuts_no_lines(threads):
    """The longest letter of each class first; else only what is alike and no tensor's line."""
    for problem in suite("tccg").values():
        offered = split_letters(problem, threads)
        groups = [c.letters for c in problem.classes if 0 in c.tensors]
        for group in groups:
            first = next(i for i in offered if i in group)
            assert problem.sizes[first] == max(problem.sizes[i] for i in group)
            for letter in set(offered) & set(group) - {first}:
                steps = [problem.strides(t).get(letter) for t in range(3)]
                assert problem.itemsize not in steps
                assert problem.sizes[letter] % threads == 0
        sums = [i for i in offered if i not in problem.spec.output.letters]
        assert offered[len(offered) - len(sums) :] == sums
        size, *operands = problem.bytes
        assert not sums or 4 * (threads - 1) * size <= sum(operands)
    assert "b" in split_letters(suite("tccg")["abc-bda-dc"], 2)
