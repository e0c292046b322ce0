"""Integer tiles: limits kept, chains nested, and as good as brute force on small problems."""

from dataclasses import replace
from itertools import product
from math import gcd, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import unshrunk
from turns import examples, quick_each

from tilesolve.bench.cases import draw_problems
from tilesolve.constants import policy
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite
from tilesolve.kernels.runtime.compiled import address
from tilesolve.kernels.runtime.traffic_walk import count_tilings
from tilesolve.machine.costs import Costs
from tilesolve.machine.level import Level, Peak
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model import traffic
from tilesolve.model.access import touched_bytes
from tilesolve.model.fused import fuse
from tilesolve.model.level_view import LevelView
from tilesolve.model.lines import run_of
from tilesolve.model.nest import Nest
from tilesolve.model.pages import has_aliased_lines
from tilesolve.model.price import compute_price, list_levels
from tilesolve.model.score import score_price, score_times
from tilesolve.planning import least_tiles, letter_boxes
from tilesolve.planning.geometric import class_trees
from tilesolve.planning.geometric.integers import (
    _families,
    repair,
    resize_outermost,
    single_tile,
    trivial_tilings,
)
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.strategy import relax
from tilesolve.planning.geometric.tilings import Prices, Product, nest_of, times_of
from tilesolve.planning.letter_boxes import box_letters, shape_box
from tilesolve.planning.setting import Setting
from tilesolve.plans.plan import plan


def limits_hold(setting, choice, chains):
    """Return whether chains keep capacities and whole ways (Eq. 9), by the definition."""
    for level, place in enumerate(setting.places[1:]):
        tile = {i: chain[level] for i, chain in chains.items()}
        nearer = {i: chain[level - 1] for i, chain in chains.items()}
        if level > 0 and choice[level - 1] is None and tile == nearer:
            continue
        problem = setting.fused.problem
        held = touched_bytes(problem, tile)
        if sum(held) > place.capacity:
            return False
        if place.ways and sum(-(-h // (place.capacity / place.ways)) for h in held) > place.ways:
            return False
    return True


def nested(setting, chains):
    """Return whether every tile is a multiple of the nearer one, or the whole extent."""
    for index, chain in chains.items():
        extent, inner = setting.fused.problem.sizes[index], setting.smallest(index)
        for size in chain:
            if size > extent or (size != extent and size % inner):
                return False
            inner = size
    return True


@given(
    sizes=st.fixed_dictionaries({i: st.integers(1, 400) for i in "abcd"}),
    spec=st.sampled_from(["abc-adc-bd", "ab-acd-dbc", "abc-bda-dc", "ab-ac-bc"]),
    machine=st.sampled_from(["i7-6700k", "e5-2680v4"]),
)
@examples(8, 15, unshrunk)
def test_integer_tiles_keep_all_limits(sizes, spec, machine):
    """Primes, ones and extents under the register tile all give nested tiles that fit."""
    letters = Problem.of(spec, 2).sizes
    found = plan(spec, {i: sizes[i] for i in letters}, machine, cache=False)
    chains = dict(found.classes)
    assert nested(found.setting, chains)
    assert limits_hold(found.setting, found.choice, chains)


@pytest.mark.parametrize(
    ("spec", "size", "machine"),
    [
        *(("mn-mk-kn", 5, "i7-6700k"), ("mn-mk-kn", 16, "e5-2680v4"), ("mn-km-kn", 11, "i7-6700k")),
        *(("abc-bda-dc", 5, "e5-2680v4"), ("mnb-bmk-knb", 7, "i7-6700k")),
    ],
)
def test_where_nothing_moves_twice_no_tiling_takes_less(spec, size, machine):
    """No chains and no loops around them save any level time that one tile for all takes."""
    found = plan(spec, size, machine, cache=False)
    setting, extents = found.setting, found.setting.fused.problem.sizes
    one = single_tile(setting, found.choice)
    assert found.classes == one.chains
    sides = {i: {setting.smallest(i), 2 * setting.smallest(i), extents[i]} for i in extents}
    every = [
        dict(zip(extents, chains, strict=True))
        for chains in product(
            *(product([n for n in sides[i] if n <= extents[i]], repeat=3) for i in extents)
        )
    ]
    tilings = [chains for chains in every if nested(setting, chains)]
    assert len(tilings) > 1
    for choice in list_choices(setting):
        times = times_of(setting, choice, tilings)
        assert (times >= (1 - 1e-9) * np.array(one.times)[:, None]).all()


def test_one_tile_that_moves_something_twice_is_not_taken_at_sight():
    """It keeps all limits, but what it is packed from does not stay beside it: others may."""
    dear = Costs(pack_cycles=2.5, level_overlap=0.48)
    machine = Machine.load("i7-6700k").replace(costs=dear)
    found = plan("ab-cad-dcb", "a=12,b=11,c=11,d=11", machine, cache=False)
    one = trivial_tilings(found.setting)[1]
    times = times_of(found.setting, found.choice, [one, dict(found.classes)])
    assert np.isfinite(times).all()
    assert single_tile(found.setting, found.choice) is None
    assert (times[:, 1] < times[:, 0]).any()


@pytest.mark.parametrize(
    ("name", "machine"),
    quick_each(
        product(
            ("abc-bda-dc", "abcd-ea-ebcd", "abcd-deca-be", "abcde-efbad-cf", "ab-cad-dcb"),
            ("i7-6700k", "e5-2680v4"),
        )
    ),
)
def test_resized_tiles_keep_all_limits(name, machine):
    """They nest, fit, and differ from what they came from in one index, unless it is the best."""
    setting = plan(suite("tccg")[name], machine=machine, cache=False).setting
    sizes = set()
    for optimum in relax(setting).optima[:4]:
        _, found = repair(setting, optimum.choice, optimum.tiles)
        for other in resize_outermost(setting, optimum.choice, found):
            chains = dict(other.chains)
            assert limits_hold(setting, optimum.choice, chains)
            assert nested(setting, chains)
            [(old, new)] = [
                (old, chains[index]) for index, old in found.chains if chains[index] != old
            ]
            sizes.add(np.sign(new[-1] - old[-1]))
    assert sizes >= {-1, 1}


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        *(("abcd-aebf-dfce", "i7-6700k"), ("abc-acd-db", "e5-2680v4")),
        ("ab-acd-dbc", "i7-6700k"),
    ],
)
def test_the_tiling_of_least_score_keeps_all_limits(name, machine):
    """It scores no more than the one of least time, nor than one tile for all, where that fits."""
    setting = plan(suite("tccg")[name], machine=machine, cache=False).setting
    for optimum in relax(setting).optima[:3]:
        nearest, best = repair(setting, optimum.choice, optimum.tiles)
        trivial = times_of(setting, optimum.choice, trivial_tilings(setting))
        least = float(score_times(trivial, setting.overlap).min())
        assert best.score <= min(nearest.score, least)
        assert limits_hold(setting, optimum.choice, dict(best.chains))
        assert nested(setting, dict(best.chains))


@pytest.mark.parametrize("spec", ["--", "-a-a", "ab-ac-cb"])
def test_each_tiling_has_its_times(spec):
    """So many columns as tilings, even of a problem without any index."""
    found = plan(spec, 5, "i7-6700k", cache=False)
    chains = dict(found.classes)
    for count in (1, 2, 3):
        times = times_of(found.setting, found.choice, [chains] * count)
        assert times.shape[1] == count
        assert (times == times[:, :1]).all()
        assert times.max() == found.search.integral


def test_long_sums_are_shortened_where_copies_stay_nearer(monkeypatch):
    """A small result of long sums: copies of all of a call's would go to the last cache and back.

    On a machine whose second cache feeds register tiles, as most of those with wide vectors do.
    """
    caches = (
        Level("L1", 49152, 400e9, ways=12),
        Level("L2", 2**21, 160e9, ways=16),
        Level("L3", 2**26, 27e9, ways=16, shared_by=2),
    )
    machine = Machine.load("e5-2680v4").replace(
        levels=(*caches, Level("memory", None, 16e9)),
        peaks=(Peak("float64", 512, 120e9),),
        vector_bits=512,
        vector_registers=32,
    )
    problem = Problem.of("mn-mk-kn", "m=312,n=312,k=50000")
    monkeypatch.setattr("tilesolve.planning.geometric.select.ROUNDED_OPTIMA", 1)
    found = plan(problem, machine=machine, cache=False)
    monkeypatch.setattr("tilesolve.planning.geometric.integers._shorter_chains", lambda *_: [])
    longer = plan(problem, machine=machine, cache=False)
    assert dict(found.classes)["K"][0] < dict(longer.classes)["K"][0] / 2
    assert found.solution.score < longer.solution.score


@pytest.mark.parametrize("name", ["abcd-dbea-ec", "abcde-ecbfa-fd"])
def test_no_resized_tile_that_pays_is_left_out(name):
    """Each tile that is not returned has a larger one in its family that costs no more."""
    setting = plan(suite("tccg")[name], machine="e5-2680v4", cache=False).setting
    optimum = relax(setting).best
    _, found = repair(setting, optimum.choice, optimum.tiles)
    returned = [
        other.chains for other in (found, *resize_outermost(setting, optimum.choice, found))
    ]
    for index, chain in found.chains:
        for family in _families(setting, index, chain):
            tilings = [dict(found.chains) | {index: other} for other in family]
            costs = score_times(times_of(setting, optimum.choice, tilings), setting.overlap)
            for at, (tiling, cost) in enumerate(zip(tilings, costs, strict=True)):
                if np.isfinite(cost) and tuple(tiling.items()) not in returned:
                    assert min(costs[:at]) <= cost * (1 + 1e-3)


@pytest.mark.parametrize(
    ("name", "reads"),
    [("abcde-efbad-cf", True), ("abcd-ea-ebcd", False), ("abcd-aebf-dfce", False)],
)
def test_smaller_tiles_that_take_as_long_are_returned_where_reading_does(name, reads):
    """Beside all that take less than any larger one: each at most half as large as another one."""
    setting = plan(suite("tccg")[name], machine="e5-2680v4", cache=False).setting
    optimum = relax(setting).best
    _, found = repair(setting, optimum.choice, optimum.tiles)
    returned = {other.chains for other in resize_outermost(setting, optimum.choice, found)}
    usual, alike = set(), set()
    for index, chain in found.chains:
        for family in _families(setting, index, chain):
            tilings = [dict(found.chains) | {index: other} for other in family]
            costs = score_times(times_of(setting, optimum.choice, tilings), setting.overlap)
            least = np.inf
            for at, (tiling, cost) in enumerate(zip(tilings, costs, strict=True)):
                key = tuple(tiling.items())
                if cost < least * (1 - policy.ROUND_GAIN):
                    least = cost
                    usual.add(key)
                elif key in returned and cost <= least * (1 + policy.SOLVER_TOLERANCE):
                    larger = [other for other in family[:at] if other[-1] >= 2 * family[at][-1]]
                    assert larger
                    alike.add(key)
    assert returned >= usual - {found.chains}
    assert returned <= usual | alike
    assert bool(returned - usual) == reads


def brute_force(setting):
    """Return the best score over all choices and all nested tiles of a small problem."""
    sizes = setting.fused.problem.sizes
    best = np.inf
    for choice in list_choices(setting):
        per_index = []
        for index, extent in sizes.items():
            unit = setting.smallest(index)
            chains = [()]
            for level in range(setting.levels):
                inherits = level > 0 and choice[level - 1] is None
                chains = [
                    (*c, size)
                    for c in chains
                    for inner in [c[-1] if c else unit]
                    for size in ([inner] if inherits else [*range(inner, extent, inner), extent])
                    if inner <= size
                ]
            per_index.append(list(dict.fromkeys(chains)))
        for combination in product(*per_index):
            chains = dict(zip(sizes, combination, strict=True))
            if limits_hold(setting, choice, chains):
                best = min(best, score_of(setting, choice, chains))
    return best


def score_of(setting, choice, chains):
    """Return what tilings are compared by, from the public price of the nest."""
    machine = MACHINE.replace(
        levels=tuple(
            level.__class__(
                level.name,
                level.capacity,
                level.bandwidth,
                line=level.line,
                ways=level.ways,
            )
            for level in MACHINE.levels
        )
    )
    cost = compute_price(
        setting.fused.problem,
        nest_of(setting, choice, chains),
        machine,
        microkernel=setting.microkernel,
    )
    return score_price(cost, setting.overlap)


def small_machine(*capacities):
    """Return the paper's Skylake with other caches, fully associative, fast at arithmetic."""
    base = Machine.load("i7-6700k")
    level = base.level("L1").__class__
    caches = [
        level(f"L{at}", size, 40e9 / at, line=8) for at, size in enumerate(capacities, start=1)
    ]
    return base.replace(levels=(*caches, level("memory", None, 5e9, line=8)))


MACHINE = small_machine(1500)


@pytest.mark.parametrize(("spec", "size"), [("ab-ac-cb", 20), ("ab-ac-cb", 23), ("abc-ac-cb", 12)])
def test_one_level_tiles_are_within_two_percent_of_brute_force(spec, size, monkeypatch):
    """The solver and its repair find what trying all integer tiles and choices finds."""
    against_brute_force(Problem.of(spec, size), small_machine(1500), monkeypatch)


def test_two_level_tiles_are_within_two_percent_of_brute_force(monkeypatch):
    """The same with two caches."""
    against_brute_force(Problem.of("ab-ac-cb", 8), small_machine(250, 700), monkeypatch)


def against_brute_force(problem, machine, monkeypatch):
    """Compare the repaired optimum with the best of everything."""
    monkeypatch.setattr(f"{__name__}.MACHINE", machine)
    kernel = Microkernel(4, 2, call_cycles=2.0)
    copies = (None,) * len(problem.spec.operands)
    setting = Setting(
        fuse(problem),
        list_levels(machine),
        kernel,
        machine.peak("float64"),
        machine.frequency,
        copies,
        "accumulate",
    )
    found = relax(setting)
    tried = [repair(setting, o.choice, o.tiles)[1].score for o in found.optima[:3]]
    assert min(tried) <= brute_force(setting) * 1.02


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("first", "machine"), [*enumerate(["i7-6700k", "e5-2680v4", None])])
def test_rounding_costs_little_over_tccg(first, machine, step):
    """The median gap to the relaxation is at most 10 % on each machine."""
    problems = [*suite("tccg").values()][first % step :: step]
    gaps = sorted(plan(p, machine=machine, cache=False).gap for p in problems)
    assert gaps[len(gaps) // 2] <= 0.10
    assert gaps[-1] <= 0.30


def test_tiles_that_cannot_fit_are_refused():
    """Caches too small for the register tile's panels give an error that names them."""
    from tilesolve.contractions.errors import SolverError

    problem = Problem.of("ab-ac-cb", 64)
    places = (
        LevelView("register", 512.0, 1, "L1", 2e9),
        LevelView("L1", 150.0, 64, "memory", 1e9, 2),
    )
    setting = Setting(fuse(problem), places, Microkernel(4, 4), 1e9, 1e9, (None, None), "store")
    tiles = {"T1_M": 4.0, "T1_N": 4.0, "T1_K": 1.0}
    with pytest.raises(SolverError, match="L1 holds 150"):
        repair(setting, ("M",), tiles)


@given(
    extents=st.lists(st.integers(1, 90), min_size=1, max_size=3),
    target=st.integers(1, 5000),
    inner=st.integers(1, 9),
    weight=st.sampled_from([0.25, 1.0]),
    most=st.sampled_from([policy.BOXES_AT_ONCE, 40]),
)
@settings(max_examples=150)
def test_boxes_nest_and_stay_within_the_tile(extents, target, inner, weight, most):
    """A box has sides that are multiples of the inner ones or whole, and no larger than asked."""
    letters = "abc"[: len(extents)]
    sizes = dict(zip(letters, extents, strict=True))
    problem = Problem.of(f"{letters}x-{letters}k-kx", sizes | {"x": 3, "k": 3})
    small = {i: min(n, inner if i == letters[-1] else 1) for i, n in sizes.items()}
    volume = int(np.prod(list(small.values())))
    tensors, size = problem.spec.tensors, max(target, volume)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letter_boxes, "BOXES_AT_ONCE", most)
        found = shape_box(problem, letters, small, size, 64, tensors, weight)
    assert np.prod(list(found.values())) <= max(target, volume)
    for i, side in found.items():
        assert small[i] <= side <= sizes[i]
        assert len(letters) == 1 or side == sizes[i] or side % small[i] == 0


@given(
    lines=st.lists(st.integers(1, 50), min_size=2, max_size=2),
    target=st.integers(8, 5000),
    inner=st.sampled_from([1, 2, 8]),
    even=st.sampled_from([4, 8]),
)
@settings(max_examples=150)
def test_boxes_begin_on_lines_where_they_can(lines, target, inner, even):
    """Along the last axes of both operands, which are whole lines or halves, no box but a small one
    ends in one: packing would read its neighbours from two lines a vector.
    """
    sizes = {"a": even * lines[0], "b": even * lines[1]}
    problem = Problem.of("xy-xab-yba", sizes | {"x": 3, "y": 3})
    small = {"a": 1, "b": inner}
    found = shape_box(problem, "ab", small, target, 64, problem.spec.tensors)
    for i, side in found.items():
        whole = gcd(sizes[i], 8)
        assert side < whole or side == sizes[i] or side % whole == 0


def test_boxes_end_with_half_a_line_at_worst_where_extents_do():
    """312 numbers of 4 bytes are 19 lines and a half: 29 would part all vectors after them."""
    sizes = {"a": 312, "b": 312, "c": 24, "d": 312}
    problem = Problem.of("abc-bda-dc", sizes, "float32")
    small, known = {"a": 1, "b": 8}, {"c": 24, "d": 312}
    found = shape_box(problem, "ab", small, 256, 64, problem.spec.tensors, known=known)
    assert found == {"a": 32, "b": 8}


@pytest.mark.parametrize("order", ["as they stand", "shuffled"])
def test_boxes_of_very_many_letters(order):
    """Of thirty letters a box holds those of whole lines of both tensors, and fills the tile."""
    letters = "abcdefghijklmnopqrstuvwxyzABCD"
    other = letters if order == "as they stand" else letters[::-1]
    problem = Problem.of(f"YZ-Y{letters}-Z{other}", dict.fromkeys(letters, 2) | {"Y": 1, "Z": 1})
    ones = dict.fromkeys(letters, 1)
    found = shape_box(problem, letters, ones, 1 << 14, 64, problem.spec.tensors)
    assert np.prod(list(found.values())) == 1 << 14
    assert {found[i] for tensor in (letters, other) for i in tensor[-3:]} == {2}


@given(
    sides=st.lists(st.sampled_from([40, 48, 56, 72, 96, 120]), min_size=6, max_size=6),
    operands=st.sampled_from(["aebf-dfce", "aefb-fdce", "eafb-fdec", "aedf-bfce"]),
)
@examples(4, 8, unshrunk)
def test_sums_over_several_letters_are_cut_evenly_where_that_costs_little(sides, operands):
    """The tiling is the one without that wish, or one of even parts that is nearly as fast."""
    problem = Problem.of(f"abcd-{operands}", dict(zip("abcdef", sides, strict=True)))
    setting = plan(problem, machine="e5-2680v4", cache=False).setting
    best = relax(setting).best
    found, _ = repair(setting, best.choice, best.tiles)
    plain, _ = repair(replace(setting, even=()), best.choice, best.tiles)
    (index,) = setting.fused.reduced
    even = dict(setting.even)[index]
    assert even[-1] == setting.fused.problem.sizes[index]
    assert found.chains == plain.chains or dict(found.chains)[index][0] in even
    assert found.seconds <= (1 + policy.RAGGED_CONCESSION) * (1 + policy.TIE_WEIGHT) * plain.seconds
    assert nested(setting, dict(found.chains))
    assert limits_hold(setting, best.choice, dict(found.chains))


@pytest.mark.parametrize("extents", [(10**9, 10**9), (2**20, 1), (720720,) * 5])
def test_even_sizes_of_long_letters_are_few(extents):
    """However long the letters are, as many are listed as tiles may be; each cuts all evenly."""
    letters = "cdefg"[: len(extents)]
    sizes = {"a": 3, "b": 3, **dict(zip(letters, extents, strict=True))}
    problem = Problem.of(f"ab-a{letters}-{letters}b", sizes)
    found = least_tiles.even_sizes(problem, letters, 64)
    assert 1 < len(found) <= policy.EVEN_ITERATIONS
    assert all(prod(extents) % size == 0 for size in found)


def test_boxes_of_sums_are_even_in_all_contractions_of_six_letters():
    """Fifteen calls of 16x32 at most, where nine of 24x24 do, would each go over C."""
    for problem in suite("tccg").values():
        if len(problem.sizes) == 6 and len(problem.spec.output.letters) == 4:
            cell = dict(plan(problem, machine="e5-2680v4", cache=False).nest.bands[0].box)
            assert (problem.sizes["e"] % cell["e"], problem.sizes["f"] % cell["f"]) == (0, 0)


def test_boxes_cover_lines_of_every_tensor():
    """Where classes hold two unit-stride letters, a box covers a line along both."""
    found = plan("abcde-ecbfa-fd", "a=48 b=32 c=32 d=24 e=48 f=48", "e5-2680v4", cache=False)
    outermost = found.nest.bands[-2]
    assert outermost["a"] >= 8
    assert outermost["e"] >= 8


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("mn-mk-kn", "m=120 n=90 k=300"),
        ("kh-c[2h+r]-kcr", "k=40 h=30 c=20 r=3"),
        ("khw-c[2h+r][2w+s]-kcrs", "k=64 h=28 w=14 c=32 r=3 s=3"),
    ],
)
def test_tilings_take_the_same_time_together_as_alone(spec, sizes, monkeypatch):
    """Loops that run in others of the tilings priced at once change nothing in one.

    Nor does it matter whether compiled code counts what moves, or Python.
    """
    made = plan(Problem.of(spec, sizes), machine="i7-6700k", cache=False)
    setting, choice = made.setting, made.choice
    rng = np.random.default_rng(5)

    def chain(index):
        extent, size = setting.fused.problem.sizes[index], setting.smallest(index)
        found = []
        for _ in range(setting.levels):
            size = min(extent, size * int(rng.integers(1, 4)))
            found.append(size)
        return tuple(found)

    tilings = [{index: chain(index) for index, _ in made.classes} for _ in range(60)]
    together = times_of(setting, choice, tilings)
    alone = np.concatenate([times_of(setting, choice, [one]) for one in tilings], axis=1)
    assert np.isfinite(alone).any()
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    options = tuple(
        (i, tuple({one[i] for one in tilings[:at]}))
        for i, at in zip(tilings[0], (7, 5, 3, 2, 2, 1), strict=False)
    )
    combined = Product(options)
    each = [combined.tiling(number) for number in range(len(combined))]
    assert sorted(map(str, each)) == sorted(
        str(dict(zip(tilings[0], chains, strict=True)))
        for chains in product(*dict(options).values())
    )
    assert address(count_tilings) > 0  # the code is there
    listed = times_of(setting, choice, each)
    np.testing.assert_allclose(times_of(setting, choice, combined), listed, rtol=1e-12)
    prices, overlap = Prices(setting, choice), setting.overlap
    scores = score_times(listed, overlap)
    for limit in (*np.quantile(scores[np.isfinite(scores)], (0, 0.1, 0.6)), np.inf):
        for most in (limit, limit / 2, 2 * limit):
            best = prices.least(combined, overlap, most)
            assert best.score > most or best.score == scores.min() <= most
            if best.score < np.inf:
                assert best.tiling == each[int(np.argmin(scores))]
                assert (best.times == listed[:, np.argmin(scores)]).all()
    monkeypatch.setattr(class_trees, "is_counting", lambda: False)
    monkeypatch.setattr(traffic, "count_compiled", lambda *_: None)
    assert (times_of(setting, choice, combined) == listed).all()


def test_boxes_know_the_letters_that_tiles_cover():
    """Rows of the second operand lie side by side where the summed letters behind are whole."""
    problem = Problem.of("dbca-afe-dfcbe", "d=28 b=17 c=26 a=11 f=212 e=10")
    fused = fuse(problem)
    tiles = [
        ("L1", "N", {"M": 11, "N": 8, "K": 2120}),
        ("memory", "N", dict(fused.problem.sizes)),
    ]
    nest = box_letters(problem, fused, Nest.of(fused.problem, tiles), 64)
    assert run_of(problem, problem.spec.operands[1], dict(nest.bands[0].box)) >= 4 * 64


@pytest.mark.parametrize("name", draw_problems(8, 31))
def test_register_tiles_have_whole_blocks_of_what_is_packed(name):
    """Along what an operand is contiguous in one iteration or a vector: in between each element is
    packed alone. Where C's vectors fill micro-panels each has one iteration of all else.
    """
    problem = draw_problems(8, 31)[name]
    fused = fuse(problem)
    small = {"M": 24, "N": 8, "K": 64}
    tiles = [
        ("register", "N", small),
        ("L2", "N", {index: 4 * size for index, size in small.items()}),
        ("memory", "N", dict(fused.problem.sizes)),
    ]
    nest = box_letters(problem, fused, Nest.of(fused.problem, tiles, packed=("L2", "L2")), 64, 8)
    for operand in problem.spec.operands:
        unit = operand.letters[-1]
        index = next(one for one, letters in fused.groups if unit in letters)
        if index in fused.reduced or unit == problem.lane:
            continue
        side, lane = nest.bands[0][unit], problem.lane
        filled = lane in fused.letters(index) and problem.sizes[lane] >= 8
        assert side == 1 or side >= 8 or filled or fused.problem.sizes[index] <= small[index], unit


def test_unfused_nests_cover_the_problem():
    """Class tiles become boxes band by band, in the classes' loop order."""
    problem = Problem.of("abcd-aebf-dfce", 72)
    fused = fuse(problem)
    tiles = [("L1", "K", {"M": 144, "N": 8, "K": 256}), ("memory", "M", 5184)]
    nest = box_letters(problem, fused, Nest.of(fused.problem, tiles), 64)
    nest.check(problem)
    assert "".join(nest.bands[1].order) in {"badcfe", "bafedc"} or nest.bands[1].order[:2] in {
        ("a", "b"),
        ("b", "a"),
    }
    assert np.prod([nest.bands[0][i] for i in "ab"]) == 144


@pytest.mark.parametrize(
    ("case", "letters", "known", "expected"),
    [
        # A[b, d, a]: groups of four of `a` are vectors, and four runs of C are far apart in pages.
        ("abc-bda-dc", "ab", {"c": 12}, {"a": 4, "b": 1}),
        # A[d, e, g, a]: the same, but four of `a` in C are at one place in pages.
        ("abcdef-dega-gfbc", "ade", {"f": 8}, {"a": 1, "d": 1, "e": 4}),
    ],
)
def test_between_equal_boxes_packing_copies_unless_lines_of_c_meet(case, letters, known, expected):
    problem = suite("tccg")[case]
    inner = dict.fromkeys(letters, 1)
    found = shape_box(problem, letters, inner, 4, 64, [problem.spec.output], known=known)
    assert found == expected
    along = {**known, "a": 4}
    strides = {i: step for i, step in problem.strides(0).items() if i in along}
    assert has_aliased_lines(strides, along, 64) == (expected["a"] == 1)
