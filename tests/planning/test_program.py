"""The nonlinear program: equal to the price where tiles fill levels, and its choices suffice."""

import io
import random
from dataclasses import replace
from itertools import permutations, product
from math import exp, log, prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from turns import examples

from tilesolve.constants.policy import SOLVER_TOLERANCE
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.access import accesses_of, touched_bytes
from tilesolve.model.formulas import name_tile
from tilesolve.model.fused import Fused, fuse
from tilesolve.model.level_view import LevelView
from tilesolve.model.loop_tree import copies_of, tree_of_bands
from tilesolve.model.nest import Nest
from tilesolve.model.price import compute_price, list_levels
from tilesolve.model.traffic import count_traffic
from tilesolve.planning.geometric import program
from tilesolve.planning.geometric.class_trees import list_bands, list_boxes, price_boxes
from tilesolve.planning.geometric.loop_choices import innermost_classes, list_choices
from tilesolve.planning.geometric.optima import optimum
from tilesolve.planning.geometric.program import formulate
from tilesolve.planning.geometric.relaxation import relax
from tilesolve.planning.setting import Setting

KERNEL = Microkernel(rows=4, columns=2)

SPECS = ("ab-ac-cb", "abc-adc-bd", "xab-xac-xbc", "ab-ac-bc", "ab-a-cb", "ab-c[a+d]-bcd")


def make_setting(problem, places, packed=None, output="accumulate", kernel=KERNEL):
    """Return a setting whose rate and frequency make seconds easy to tell apart."""
    fused = fuse(problem)
    copies = packed or (None,) * len(problem.spec.operands)
    return Setting(fused, tuple(places), kernel, 1e9, 1e9, copies, output)


@given(st.data())
@examples(40, 100)
def test_program_is_the_price_where_tiles_fill_their_levels(data):
    """With every loop running and levels that hold just their tiles, times agree exactly.

    Of a convolution those of the registers and of the arithmetic do: caches with room for more than
    a tile keep part of what overlaps.
    """
    spec = data.draw(st.sampled_from(SPECS))
    levels = data.draw(st.integers(1, 3))
    times = st.integers(7, 9)
    fused = fuse(Problem.of(spec, 2))
    unit = dict.fromkeys(fused.problem.sizes, 1) | {fused.rows: 4, fused.columns: 2}
    tiles, sizes = [], dict(unit)
    for _ in range(levels):
        sizes = {i: size * data.draw(times) for i, size in sizes.items()}
        tiles.append(dict(sizes))
    whole = {i: size * data.draw(times) for i, size in sizes.items()}
    extents = {
        letter: whole[i] if at == 0 else 1
        for i, letters in fused.groups
        for at, letter in enumerate(letters)
    }
    problem = Problem.of(spec, extents)
    fused = fuse(problem)
    boxes = [unit, *tiles]
    pace = data.draw(st.sampled_from([None, 0.5, 2.0]))
    places = [
        LevelView(
            "register" if at == 0 else f"L{at}",
            # Room for what the next loop brings, slices and sources, but for no larger tile.
            (3 if at else 1) * held(fused.problem, box),
            1,
            f"L{at + 1}",
            1e9 / (at + 1),
            read=pace and pace * 1e9 / (at + 1),
        )
        for at, box in enumerate(boxes)
    ]
    packed = data.draw(st.sampled_from([(None, None), (f"L{levels}",) * 2, ("L1", None)]))
    output = data.draw(st.sampled_from(["accumulate", "store", "stream"]))
    setting = make_setting(problem, places, packed, output)
    choice = tuple(
        data.draw(st.sampled_from(innermost_classes(setting.fused))) for _ in range(levels)
    )
    if (
        "[" not in spec
    ):  # nor for what a tile's innermost loop goes over: it would stay for the next
        for box, outer, kind, place in zip(
            tiles, [*tiles[1:], whole], choice, places[1:], strict=True
        ):
            sides = box | {kind: outer[kind]}
            touched = sum(prod(sides[i] for i in one.letters) for one in fused.problem.spec.tensors)
            assume(touched * fused.problem.itemsize > place.capacity)
    program = formulate(setting, choice)
    values = {
        name_tile(at, i, levels): float(t) for at, b in enumerate(boxes) for i, t in b.items()
    }
    found = {name: amount.at(values) for name, amount in program.times.items()}

    call = {i: tiles[0][i] if i in fused.reduced else unit[i] for i in unit}
    boxes = (call, *tiles, whole)
    tree = tree_of_bands(fused.problem, list_bands(setting, choice), boxes, packed, output)
    exact = count_traffic(tree, places)
    told = 1 if "[" in spec else len(places)
    for place, volumes in zip(places[:told], exact.volumes[:told], strict=True):
        loads = place.bandwidth * min(1.0, pace or 1.0)
        seconds = volumes[0] / place.bandwidth + sum(volumes[1:]) / loads
        assert found[place.server] == pytest.approx(seconds)
    cycles = exact.calls * KERNEL.call_cycles + sum(exact.packed) * KERNEL.pack_cycles
    assert found["compute"] == pytest.approx((problem.flops + cycles) / 1e9)
    assert all(limit.at(values) <= 1 for limit in program.limits.values())


@given(st.data())
@examples(25, 60)
def test_symbols_are_the_numbers_of_the_same_rule(data):
    """Where the least tile of some indices is all of them, their loops run in neither."""
    spec = data.draw(st.sampled_from(SPECS))
    levels = data.draw(st.integers(1, 3))
    fused = fuse(Problem.of(spec, 2))
    whole = data.draw(st.sets(st.sampled_from(fused.problem.spec.letters)))
    sizes = dict.fromkeys(fused.problem.sizes, 1) | {fused.rows: 4, fused.columns: 2}
    tiles = []
    for _ in range(levels):
        steps = {i: data.draw(st.integers(2, 5)) for i in sizes}
        sizes = {i: size * steps[i] for i, size in sizes.items()}
        tiles.append(dict(sizes))
    extents = {i: size * 2 for i, size in sizes.items()}
    groups = [(extents[i], letters) for i, letters in fused.groups]
    problem = Problem.of(spec, {i: n if i == g[0] else 1 for n, g in groups for i in g})
    tiles = [box | {i: extents[i] for i in whole} for box in tiles]
    places = [
        LevelView("register" if at == 0 else f"L{at}", 1e9, 1, f"L{at + 1}", 1e9 / (at + 1))
        for at in range(levels + 1)
    ]
    packed = data.draw(st.sampled_from([(None, None), (f"L{levels}",) * 2, ("L1", None)]))
    output = data.draw(st.sampled_from(["accumulate", "store", "stream"]))
    setting = make_setting(problem, places, packed, output)
    setting = replace(setting, runs=tuple((i, extents[i]) for i in whole))
    choice = data.draw(st.sampled_from(list_choices(setting)))
    for at, first in enumerate(choice[:-1], start=1):
        tiles[at] = tiles[at - 1] if first is None else tiles[at]
    program = formulate(setting, choice)
    values = {
        name_tile(at, i, levels): float(t)
        for at, box in enumerate(tiles, start=1)
        for i, t in box.items()
    }
    numbers = price_boxes(setting, choice, list_boxes(setting, tiles), "tiles")
    assert {name: amount.at(values) for name, amount in program.times.items()} == pytest.approx(
        numbers
    )


def held(problem, box):
    """Return the bytes of all tensors that a box touches; of operands as micro-panels hold them."""
    panels = [holds for _, holds, _, _ in copies_of(problem, ("L1", "L1"), ())]
    return sum(one.touched(box, 1) for one in (accesses_of(problem)[0], *panels))


def test_limits_are_capacity_and_ways():
    """A tile within the relaxed Eq. 9 keeps the sum of whole ways within one way a tensor."""
    machine = Machine.load("e5-2680v4")
    setting = make_setting(Problem.of("ab-ac-cb", 512), list_levels(machine))
    limits = formulate(setting, ("K", "M", "N")).limits
    tiles = {"T1_M": 4.0, "T1_N": 2.0, "T1_K": 256.0}
    sizes = {"A": 8 * 4 * 256, "B": 8 * 2 * 256, "C": 8 * 4 * 2}
    assert limits["capacity_L1"].at(tiles) == pytest.approx(sum(sizes.values()) / 32768)
    for one in sizes:
        others = sum(size for name, size in sizes.items() if name != one) / 4096
        assert limits[f"ways_L1_{one}"].at(tiles) == pytest.approx(others / 7)


def test_a_level_without_tile_passes_everything_on():
    """With no loops around a tile the next level's tile, and what it takes in, are the same."""
    setting = make_setting(Problem.of("ab-ac-cb", 512), list_levels(Machine.load("e5-2680v4")))
    program = formulate(setting, ("M", None, "N"))
    assert program.aliases["T3_M"] == program.aliases["T2_M"] == "T2_M"
    assert "capacity_L3" not in program.limits
    bandwidths = {place.server: place.bandwidth for place in setting.places}
    tiles = {name: (low * high) ** 0.5 for name, (low, high) in program.variables.items()}
    l3, memory = (program.times[name].at(tiles) * bandwidths[name] for name in ("L3", "memory"))
    assert l3 == pytest.approx(memory)


def test_a_contraction_has_one_optimum_from_any_start():
    """The program in logarithms is convex: all starts arrive at the same time."""
    problem = Problem.of("abcd-aebf-dfce", 72)
    setting = make_setting(problem, list_levels(Machine.load("i7-6700k")), ("L3", "L3"))
    for choice in [("M", "N", "M"), ("K", "K", "K"), ("N", None, "K")]:
        found = optimum(formulate(setting, choice), choice, starts=5)
        assert found.spread < 1e-5


def test_the_model_can_be_written_for_another_solver(tmp_path):
    """The Pyomo model is printable and goes to a file."""
    setting = make_setting(Problem.of("ab-ac-cb", 512), list_levels(Machine.load("i7-6700k")))
    model = formulate(setting, ("M", "N", "M")).model()
    path = tmp_path / "tiling.nl"
    model.write(str(path))
    assert path.stat().st_size > 1000
    text = io.StringIO()
    model.pprint(ostream=text)
    assert "capacity_L1" in text.getvalue()


def loose(problem):
    """Return a problem whose every letter is a class of its own, as the paper has it."""
    fused = fuse(problem)
    home = {letter: index for index, letters in fused.groups for letter in letters}
    first = {index: letters[0] for index, letters in fused.groups}
    reduced = tuple(i for i in problem.spec.letters if home[i] in fused.reduced)
    groups = tuple((i, (i,)) for i in problem.spec.letters)
    return Fused(problem, groups, first[fused.rows], first[fused.columns], reduced), home


def innermost_alone(problem, fused_names, letter):
    """Return an order in which only the first loop leaves a tensor in place, as the paper counts.

    The next loop is one of another class, which moves what the first one kept.
    """
    others = [i for i in problem.spec.letters if fused_names[i] != fused_names[letter]]
    same = [i for i in problem.spec.letters if fused_names[i] == fused_names[letter]]
    return letter + "".join(others) + "".join(i for i in same if i != letter)


@pytest.mark.parametrize("name", suite("tccg"))
def test_classes_are_never_worse_than_single_loops(name):
    """For any tiles the best class choice moves no more, at every level, than any single loop.

    Checked on all permutations of the paper's count, at random tiles, for all of TCCG: so the
    optimum over classes is at most that over the permutations.
    """
    problem = suite("tccg")[name]
    machine = Machine.load("e5-2680v4")
    singles, home = loose(problem)
    kernel = Microkernel(rows=1, columns=1)
    per_letter = Setting(
        singles, list_levels(machine), kernel, 1e9, 1e9, (None, None), "accumulate"
    )
    per_class = make_setting(problem, list_levels(machine), kernel=kernel)
    random.seed(name)
    letters = [i for i in problem.spec.letters if problem.sizes[i] > 1]
    programs = {i: formulate(per_letter, (innermost_alone(problem, home, i),) * 3) for i in letters}
    classes = {c: formulate(per_class, (c,) * 3) for c in innermost_classes(per_class.fused)}
    for _ in range(3):
        values, boxes = {}, {}
        for i, extent in problem.sizes.items():
            logs = sorted(random.uniform(0, log(extent)) for _ in range(3))
            for level, size in enumerate(logs, start=1):
                values[f"T{level}_{i}"] = exp(size)
        for index, group in per_class.fused.groups:
            for level in (1, 2, 3):
                boxes[f"T{level}_{index}"] = prod(values[f"T{level}_{i}"] for i in group)
        for server in ("L2", "L3", "memory"):
            best = min(classes[c].times[server].at(boxes) for c in classes)
            for i in letters:
                alone = programs[i].times[server].at(values)
                assert classes[home[i]].times[server].at(boxes) <= alone * (1 + 1e-9)
                assert best <= alone * (1 + 1e-9)


QUICK = ("abcd-ea-ebcd", "abc-bda-dc", "ab-acd-dbc")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in suite("tccg")]
)
def test_the_optimum_over_classes_is_that_of_all_permutations(name):
    """Solving every permutation of the paper's count finds nothing better than the classes."""
    problem = suite("tccg")[name]
    machine = Machine.load("e5-2680v4")
    singles, home = loose(problem)
    kernel = Microkernel(rows=1, columns=1)
    letters = [i for i in problem.spec.letters if problem.sizes[i] > 1]
    per_letter = Setting(
        singles, list_levels(machine), kernel, 1e12, 1e9, (None, None), "accumulate"
    )
    per_class = Setting(fuse(problem), *per_letter_rest(per_letter))
    best = min(
        optimum(formulate(per_letter, choice), choice).seconds
        for choice in (
            tuple(innermost_alone(problem, home, i) for i in around)
            for around in product(letters, repeat=3)
        )
    )
    assert relax(per_class).best.seconds <= best * (1 + SOLVER_TOLERANCE)


def per_letter_rest(setting):
    """Return a setting's fields after the first."""
    return (
        setting.places,
        setting.microkernel,
        setting.rate,
        setting.frequency,
        setting.packed,
        setting.output,
    )


@pytest.mark.parametrize("spec", ["ab-ac-cb", "abc-ad-dbc", "ab-acd-dbc"])
def test_class_orders_are_as_good_as_all_permutations_by_exact_price(spec):
    """Over all loop orders and tiles of small problems the exact price has no better order."""
    problem = Problem.of(spec, 4)
    fused = fuse(problem)
    machine = Machine.load("i7-6700k").replace(
        levels=tuple(
            level.__class__(level.name, size, level.bandwidth, line=8)
            for level, size in zip(
                (Machine.load("i7-6700k").level(n) for n in ("L1", "memory")),
                (400, None),
                strict=True,
            )
        )
    )
    letters = problem.spec.letters
    home = {letter: index for index, group in fused.groups for letter in group}
    by_class = [
        "".join(i for index in order for i in letters if home[i] == index)
        for order in permutations(dict(fused.groups))
    ]
    best = {"all": np.inf, "classes": np.inf}
    for sizes in product([1, 2, 4], repeat=len(letters)):
        box = dict(zip(letters, sizes, strict=True))
        held = sum(touched_bytes(problem, box))
        if held > 400:
            continue
        for kind, around in (("all", map("".join, permutations(letters))), ("classes", by_class)):
            for order in around:
                nest = Nest.of(
                    problem, [("register", "", 1), ("L1", "", box), ("memory", order, 4)]
                )
                moved = compute_price(problem, nest, machine).level("memory").volume
                best[kind] = min(best[kind], moved)
    assert best["classes"] == best["all"]


def test_every_choice_is_listed_once():
    """27 class choices, and those where a level has no tile of its own."""
    setting = make_setting(Problem.of("ab-ac-cb", 512), list_levels(Machine.load("i7-6700k")))
    found = list_choices(setting)
    assert len(set(found)) == len(found) == 48
    assert sum(None not in choice for choice in found) == 27


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("packed", [(None, "L3"), ("L3", "L2"), ("L1", "L3"), (None, None)])
def test_choices_share_no_time_that_differs(spec, packed):
    """Wherever copies are made, and whichever levels have no tile of their own."""
    problem, machine = Problem.of(spec, 90), Machine.load("i7-6700k")
    copies = packed[: len(problem.spec.operands)]
    setting = make_setting(problem, list_levels(machine), copies)
    choices = list_choices(setting)[::2]
    together = [formulate(setting, choice) for choice in choices]
    for choice, found in zip(choices, together, strict=True):
        formulate.cache_clear()
        program._known_times.cache_clear()
        alone = formulate(setting, choice)
        assert found.times == alone.times
        assert found.limits == alone.limits
