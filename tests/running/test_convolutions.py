"""Convolutions: near the best integer tiles, equal to contractions where they are ones."""

from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest

from tilesolve.constants.policy import STARTS
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite
from tilesolve.machine.level import Level
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.access import touched_bytes
from tilesolve.model.loop_tree import tree_of_bands
from tilesolve.model.nest import Nest
from tilesolve.model.price import compute_price
from tilesolve.model.score import score_times
from tilesolve.model.traffic import count_traffic
from tilesolve.planning.geometric.integers import repair
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.relaxation import relax
from tilesolve.planning.geometric.tilings import list_bands
from tilesolve.plans.plan import plan

LAYERS = {**suite("resnet18"), **suite("yolo9000")}

CASES = [
    ("k=8 h=20 c=6 r=3", "kh-c[h+r]-kcr", (1500,)),
    ("k=16 h=40 c=8 r=5", "kh-c[h+r]-kcr", (2500,)),
    ("k=8 h=21 c=6 r=3", "kh-c[2h+r]-kcr", (1500,)),
    ("k=8 h=20 c=6 r=3", "kh-c[h+3r]-kcr", (1500,)),
    ("k=8 h=20 c=6 r=2", "kh-c[3h+r]-kcr", (1500,)),
    ("h=60 r=12", "h-[h+r]-r", (400,)),
    ("n=3 k=6 h=11 c=5 r=3", "nkh-nc[h+r]-kcr", (1200,)),
    ("k=6 c=4 h=8 w=8 r=3 s=3", "khw-c[h+r][w+s]-kcrs", (2000,)),
    ("k=6 c=4 h=7 w=9 r=3 s=3", "khw-c[2h+r][2w+s]-kcrs", (2000,)),
    ("k=8 c=6 h=7 w=7 r=1 s=1", "khw-c[2h+r][2w+s]-kcrs", (1000,)),
    ("k=4 h=12 c=3 r=3", "kh-c[h+r]-kcr", (400, 1000)),
    ("k=4 h=12 c=3 r=3", "kh-c[2h+r]-kcr", (400, 1000)),
    ("h=40 r=8", "h-[h+r]-r", (200, 400)),
]
"""Sizes, spec, and the bytes of each cache."""


def toy(*capacities):
    """Return a machine of small caches whose levels all matter."""
    caches = [
        Level(f"L{at}", size, 16e9 / at, line=8) for at, size in enumerate(capacities, start=1)
    ]
    return Machine.load("i7-6700k").replace(
        name="toy", levels=(*caches, Level("memory", None, 2e9, line=8))
    )


def chains(extent, smallest, choice):
    """Return all nested tiles of one index: each a multiple of the nearer one, or everything."""
    found = [()]
    for inherits in (False, *(first is None for first in choice[:-1])):
        found = [
            (*chain, size)
            for chain in found
            for inner in [chain[-1] if chain else smallest]
            for size in ([inner] if inherits else [*range(inner, extent, inner), extent])
        ]
    return np.array(sorted(set(found)), dtype=float)


def brute_force(setting):
    """Return the seconds of the fastest of all choices and nested tiles, and their number."""
    problem, best, count = setting.fused.problem, np.inf, 0
    for choice in list_choices(setting):
        # What goes past the caches is no part of a sum: that would come back to be added to.
        whole = setting.fused.reduced if setting.output == "stream" else ()
        options = [
            chains(n, n if i in whole else setting.smallest(i), choice)
            for i, n in problem.sizes.items()
        ]
        picks = np.indices([len(option) for option in options]).reshape(len(options), -1)
        columns = {
            i: option[pick].T for i, option, pick in zip(problem.sizes, options, picks, strict=True)
        }
        found = score_tilings(setting, choice, columns, picks.shape[1])
        best, count = min(best, found.min()), count + len(found)
    return best, count


def score_tilings(setting, choice, columns, width):
    """Return the exact score of many tilings; infinity for one that does not fit."""
    problem, one = setting.fused.problem, np.ones(width)
    tiles = [{i: column[at] for i, column in columns.items()} for at in range(setting.levels)]
    call = {
        i: tiles[0][i] if i in setting.fused.reduced else one * setting.smallest(i)
        for i in problem.sizes
    }
    boxes = (call, *tiles, {i: one * n for i, n in problem.sizes.items()})
    tree = tree_of_bands(
        problem, list_bands(setting, choice), boxes, setting.packed, setting.output, setting.kinds
    )
    found = count_traffic(tree, setting.places)
    kernel = setting.microkernel
    cycles = found.calls * kernel.call_cycles + found.relaid * kernel.window_cycles
    cycles += (sum(found.packed) - found.relaid) * kernel.pack_cycles
    taken = [problem.flops / setting.rate + cycles / setting.frequency]
    pairs = zip(setting.places, found.volumes, strict=True)
    taken += [sum(volumes) / place.bandwidth for place, volumes in pairs]
    scores = score_times([np.broadcast_to(one, width) for one in taken], setting.overlap)
    for level, (tile, place) in enumerate(zip(tiles, setting.places[1:], strict=True), start=1):
        held = sum(one.touched(tile, 1) for one in setting.accesses_at(level))
        scores = np.where(held <= place.capacity, scores, np.inf)
    return scores


@pytest.mark.parametrize(("sizes", "spec", "capacities"), CASES)
def test_small_convolutions_are_within_two_percent_of_brute_force(
    sizes, spec, capacities, monkeypatch
):
    """What the solver and its repair find is as fast as the best of all integer tiles.

    They need not write long runs of C here, which the price knows nothing of.
    """
    module = "tilesolve.planning.geometric.make_setting"
    monkeypatch.setattr(f"{module}.TRANSPOSED_RUN_BYTES", ())
    small = Microkernel(rows=2, columns=2, call_cycles=2.0)
    target = "tilesolve.planning.geometric.strategy.choose_register_tile"
    monkeypatch.setattr(target, lambda *_, **__: small)
    found = plan(Problem.of(spec, sizes), machine=toy(*capacities), cache=False)
    best, _ = brute_force(found.setting)
    optima = relax(found.setting, starts=STARTS, convex=False).optima
    own = min(repair(found.setting, one.choice, one.tiles)[1].score for one in optima)
    assert best <= own * (1 + 1e-9)
    assert own <= best * 1.02
    if found.output == "stream":  # the same through the caches takes no less
        assert best <= brute_force(replace(found.setting, output="store", runs=()))[0] * 1.02


@pytest.mark.parametrize(
    ("convolution", "contraction"),
    [
        ("khw-c[h+r][w+s]-kcrs", "khw-chw-kcrs"),  # r and s of extent 1: no padding, no overlap
        ("khw-c[2h+r][2w+s]-kcrs", "khw-chw-kcrs"),
        ("khw-c[h+3r][w+2s]-kcrs", "khw-chw-kcrs"),
        ("nkh-nc[3h+r]-kcr", "nkh-nch-kcr"),
    ],
)
def test_windows_of_one_place_are_a_contraction(convolution, contraction):
    """Where r and s have the extent 1, elements move as in the plain contraction."""
    spread = {"n": 3, "k": 8, "c": 6, "h": 10, "w": 12, "r": 1, "s": 1}
    same_price(convolution, contraction, spread)


@pytest.mark.parametrize(
    ("convolution", "contraction"),
    [
        ("kh-c[3h+r]-kcr", "kh-chr-kcr"),
        ("khw-c[2h+r][2w+s]-kcrs", "khw-chrws-kcrs"),
        ("kh-c[h+12r]-kcr", "kh-chr-kcr"),
    ],
)
def test_windows_that_do_not_overlap_are_a_contraction(convolution, contraction):
    """With a stride, or a dilation, that no window crosses, nothing is shared between them."""
    same_price(convolution, contraction, {"k": 8, "c": 6, "h": 12, "w": 12, "r": 2, "s": 2})


def same_price(convolution, contraction, extents):
    """Compare the prices of a few nests of both, in caches whose lines are one element."""
    machine = toy(600, 3000)
    spec = Problem.of(convolution, 2).spec
    problem = Problem.of(spec, {i: extents[i] for i in spec.letters})
    plain = Problem.of(contraction, {i: extents[i] for i in Problem.of(contraction, 2).sizes})
    for order, (near, far) in product(["crskhw", "khwcrs", "hkwrcs", "rhswkc"], [(2, 4), (1, 6)]):
        costs = []
        for one in (problem, plain):
            letters = "".join(i for i in order if i in one.sizes)
            letters += "".join(i for i in one.sizes if i not in letters)
            bands = [("register", letters, {i: 2 if i in "kh" else 1 for i in one.sizes})]
            bands += [("L1", letters, 2 * near), ("L2", letters, 2 * far)]
            bands.append(("memory", letters, dict(one.sizes)))
            costs.append(compute_price(one, Nest.of(one, bands), machine))
        found, expected = costs
        assert found.calls == expected.calls
        assert found.compute == pytest.approx(expected.compute)
        for mine, theirs in zip(found.levels, expected.levels, strict=True):
            assert mine.volumes == pytest.approx(theirs.volumes)


def test_overlapping_windows_move_less_than_separate_ones():
    """Windows of three places share less with every step of the stride, from three on nothing."""
    moved = []
    for stride in (1, 2, 3, 4):
        problem = Problem.of(f"kh-c[{stride}h+r]-kcr", "k=12 h=48 c=8 r=3")
        tile = {"k": 2, "h": 6, "c": 8, "r": 3}
        bands = [("register", "rck", tile | {"h": 1}), ("L1", "hrck", tile)]
        nest = Nest.of(problem, [*bands, ("memory", "hkcr", dict(problem.sizes))])
        moved.append(compute_price(problem, nest, toy(2000)).level("memory").moved[1])
    assert moved[0] < moved[1] < moved[2] == moved[3]


def test_a_window_of_one_place_costs_what_the_matrix_product_does():
    """The plan of a 1×1 convolution at stride 1 is about as fast as that of its product."""
    sizes = {"k": 64, "c": 48, "h": 14, "w": 14}
    machine = Machine.load("e5-2680v4")
    product = plan("khw-chw-kc", sizes, machine, cache=False)
    convolution = plan("khw-c[h+r][w+s]-kcrs", sizes | {"r": 1, "s": 1}, machine, cache=False)
    assert convolution.seconds <= product.seconds * 1.25


def within_limits(found):
    """Hold a plan's class tiles to the capacities and whole ways of every cache (Eqs 5, 9)."""
    setting, chains = found.setting, dict(found.classes)
    problem = setting.fused.problem
    for at, place in enumerate(setting.places[1:]):
        if at and found.choice[at - 1] is None:
            continue
        tile = {i: chain[at] for i, chain in chains.items()}
        held = touched_bytes(problem, tile)
        assert sum(held) <= place.capacity
        if place.ways:
            way = place.capacity / place.ways
            assert sum(ceil(size / way) for size in held) <= place.ways


def layer(name, machine):
    """Plan a layer and hold it to all limits."""
    found = plan(LAYERS[name], machine=machine, cache=False)
    within_limits(found)
    found.nest.check(found.problem)
    assert found.seconds >= found.problem.flops / found.machine.peak(found.problem.dtype)
    assert found.search.spread <= 0.05  # three starts nearly agree


@pytest.mark.parametrize("name", ["ResNet18-3", "ResNet18-9"])
def test_plans_of_layers_keep_all_limits(name):
    """Layers have plans that fit every cache."""
    layer(name, "i7-6700k")


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["i7-6700k", "e5-2680v4"])
@pytest.mark.parametrize("name", LAYERS)
def test_plans_of_all_layers_keep_all_limits(name, machine):
    """Every layer of Yolo9000 and ResNet-18 on both machines of the paper."""
    layer(name, machine)
