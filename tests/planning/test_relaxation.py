"""The search over choices: proven bounds, no better choice left out, levels in order (Eq. 6)."""

from functools import partial
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from posynomial_programs import make_setting
from running_cases import make_shallow_machine
from strategies import unshrunk
from turns import examples

from tilesolve.constants.policy import SOLVER_TOLERANCE, STARTS, TIME_TOLERANCE
from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.level_view import LevelView
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric import optima, strategy
from tilesolve.planning.geometric.bound import find_bound
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.optima import optimum
from tilesolve.planning.geometric.program import bounding, formulate
from tilesolve.planning.geometric.relaxation import refine, relax
from tilesolve.planning.setting import Setting
from tilesolve.planning.solve import solve
from tilesolve.solver import ipopt
from tilesolve.solver.interior import find_least

CASES = ["abcd-ea-ebcd", "abcdef-degb-gfac", "ab-acd-dbc"]


@pytest.mark.parametrize("rate", [None, 1e13])
@pytest.mark.parametrize("name", CASES)
def test_pruning_leaves_out_nothing_better(name, rate):
    """Solving all choices finds nothing faster than the pruned search, memory-bound or not."""
    setting = make_setting(suite("tccg")[name], Machine.load("e5-2680v4"), rate)
    found = relax(setting)
    everything = [optimum(formulate(setting, c), c).seconds for c in list_choices(setting)]
    assert found.considered == len(everything)
    assert found.solved + found.pruned == found.considered
    assert found.best.seconds <= min(everything) * (1 + 2 * SOLVER_TOLERANCE)
    assert find_bound(setting) <= min(everything) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("spec", "size", "machine"),
    [
        *(
            ("mn-mk-kn", 5, "i7-6700k"),
            ("mn-mk-kn", 16, "e5-2680v4"),
            ("abc-bda-dc", 5, "i7-6700k"),
        ),
        *(("mnb-bmk-knb", 7, "e5-2680v4"), ("h-[h+r]-r", 8, "i7-6700k")),
    ],
)
def test_where_nothing_moves_twice_one_choice_stands_for_all(spec, size, machine):
    """Solving all choices finds nothing faster than the only one that is solved."""
    setting = make_setting(Problem.of(spec, size), Machine.load(machine))
    found = relax(setting)
    assert found.solved == 1
    assert found.pruned == found.considered - 1
    everything = [optimum(formulate(setting, c), c) for c in list_choices(setting)]
    least = min(one.seconds for one in everything)
    assert found.best.seconds <= least * (1 + 1e-6)
    assert found.best.score <= min(one.score for one in everything) * (1 + 1e-3)
    assert find_bound(setting) <= found.best.seconds * (1 + 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_bound_is_below_every_choice_it_stands_for(name):
    """The small programs bound every full one with the same loops around that tile."""
    setting = make_setting(suite("tccg")[name], Machine.load("i7-6700k"))
    bounds = {}
    for choice in list_choices(setting)[::3]:
        full = optimum(formulate(setting, choice), choice).seconds
        for level, first in enumerate(choice, start=1):
            if first is not None:
                key = (level, first)
                if key not in bounds:
                    bounds[key] = optimum(bounding(setting, *key), (first,)).seconds
                assert bounds[key] <= full * (1 + 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_levels_are_refined_in_order_of_tightness(name):
    """Refining keeps the longest time and never lengthens the sorted list of times."""
    setting = make_setting(suite("tccg")[name], Machine.load("e5-2680v4"))
    choice = ("M", "N", "M")
    rough = optimum(formulate(setting, choice), choice)
    fine = refine(setting, rough)
    for a, b in zip(
        sorted(fine.times.values(), reverse=True),
        sorted(rough.times.values(), reverse=True),
        strict=True,
    ):
        if a > b * (1 + 1e-3):
            pytest.fail(f"refined to {fine.times} from {rough.times}")
        if a < b * (1 - 1e-3):
            break


def test_elasticities_predict_a_small_change():
    """One percent more bandwidth saves what the multipliers say."""
    machine = Machine.load("i7-6700k")
    problem = suite("tccg")["abcd-aebf-dfce"]
    found = relax(make_setting(problem, machine, 1e13)).best
    assert sum(found.elasticities.values()) > 0.5
    for name, gain in found.elasticities.items():
        level, _, figure = name.partition("_")
        if figure != "bandwidth":
            continue
        faster = machine.replace(
            levels=tuple(
                v.__class__(
                    v.name,
                    v.capacity,
                    v.bandwidth * (1.01 if v.name.lower() == level else 1.0),
                    ways=v.ways,
                )
                for v in machine.levels
            )
        )
        setting = make_setting(problem, faster, 1e13)
        changed = optimum(formulate(setting, found.choice), found.choice)
        saved = 100 * (1 - changed.seconds / found.seconds)
        assert saved == pytest.approx(gain, abs=0.1)


def test_no_room_for_the_register_tile_is_an_error():
    """A first cache that cannot hold the register tile's operands is reported as infeasible."""
    tiny = LevelView("L1", 64.0, 64, "memory", 1e9)
    register = LevelView("register", 512.0, 1, "L1", 2e9)
    problem = Problem.of("ab-ac-cb", 64)
    setting = Setting(
        fuse(problem), (register, tiny), Microkernel(8, 6), 1e9, 1e9, (None, None), "store"
    )
    with pytest.raises(SolverError):
        relax(setting)


@given(sizes=st.fixed_dictionaries({i: st.integers(1, 300) for i in "abc"}))
@examples(8, 20, unshrunk)
def test_optimum_keeps_every_limit(sizes):
    """Continuous tiles stay within capacities, ways, order and extents."""
    setting = make_setting(Problem.of("ab-ac-cb", sizes), Machine.load("i7-6700k"))
    found = relax(setting).best
    program = formulate(setting, found.choice)
    values = {name: found.tiles[name] for name in program.variables}
    assert all(limit.at(values) <= 1 + 1e-5 for limit in program.limits.values())
    assert all(values[a] <= values[b] * (1 + 1e-5) for a, b in program.nested)
    for name, (low, high) in program.variables.items():
        assert low * (1 - 1e-6) <= values[name] <= high * (1 + 1e-6)


@pytest.mark.parametrize(
    ("spec", "sizes", "dtype"),
    [
        ("kx-c[x+r]-kcr", "k=16 x=24 c=8 r=3", "float32"),
        ("nxgk-n[x+r]gc-grck", "n=2 x=9 g=2 k=8 r=2 c=4", "complex64"),
        ("kxy-c[x+r][2y+s]-kcrs", "k=16 x=10 y=9 c=8 r=3 s=2", "float64"),
    ],
)
def test_small_convolutions_are_solved_from_one_start(monkeypatch, spec, sizes, dtype):
    """Where the second cache holds all of it, plans are as fast as from three starts."""
    problem, machine = Problem.of(spec, sizes, dtype), make_shallow_machine(256, 16)
    starts = []

    def relax_from(count, setting, **given):
        starts.append(given["starts"])
        return relax(setting, **(given | {"starts": count or given["starts"]}))

    found = []
    for count in (0, STARTS):
        monkeypatch.setattr(strategy, "relax", partial(relax_from, count))
        found.append(solve(problem, machine, 1, Demand()).seconds)
    assert set(starts) == {1}
    assert found[0] == pytest.approx(found[1], rel=TIME_TOLERANCE)


@pytest.mark.grid
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("spec", ["ab-ac-cb", "abcd-ea-ebcd", "kh-c[h+r]-kcr"])
def test_each_failure_of_the_interior_point_is_counted(monkeypatch, spec, share):
    """IPOPT is asked for those programs, of choices, bounds and refinements, and for no others."""
    luck, asked, failed = Random(f"{spec} {share}"), [], []

    def find_or_fail(*given):
        found = None if luck.random() < share else find_least(*given)
        failed.append(found is None)
        return found

    def solve_and_count(*given, **how):
        asked.append(given)
        return ipopt.solve(*given, **how)

    setting, convex = make_setting(Problem.of(spec, 60), Machine.load("e5-2680v4")), "[" not in spec
    usual = relax(setting, convex=convex)
    monkeypatch.setattr(optima, "find_least", find_or_fail)
    monkeypatch.setattr(optima, "load_module", lambda _: SimpleNamespace(solve=solve_and_count))
    found = relax(setting, convex=convex)
    assert found.by_ipopt == len(asked) == sum(failed)
    assert found.by_ipopt >= (share == 1) * found.solved
    if convex:
        assert found.best.seconds == pytest.approx(usual.best.seconds, rel=1e-3)
