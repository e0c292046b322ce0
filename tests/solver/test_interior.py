"""The interior point: IPOPT's optimum, its multipliers, and no answer where there is none."""

from dataclasses import replace
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from posynomial_programs import programs, tccg_setting
from turns import examples

from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.suites import suite
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.program import formulate
from tilesolve.plans.plan import plan
from tilesolve.solver.duality import find_dual_bound
from tilesolve.solver.interior import find_least
from tilesolve.solver.ipopt import solve
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial

LOOSE = 1e-5
"""Relative difference of two optima."""


def point_of(program, sizes):
    """Return a size for each variable; those that nothing needs are at their least."""
    return {x: sizes.get(x, low) for x, (low, _) in program.variables.items()}


def cost(program, point, held=()):
    """Return what is minimised, in the program's unit."""
    times = [t.at(point) / program.unit for name, t in program.times.items() if name not in held]
    if program.weight is None:
        return sum(times)
    return max(times) + program.weight * sum(times) / len(times)


def check_feasible(program, point):
    """Hold a point to all bounds."""
    assert all(one.at(point) <= 1 + LOOSE for one in program.limits.values())
    assert all(point[a] <= point[b] * (1 + LOOSE) for a, b in program.nested)
    assert all(low <= point[x] <= high for x, (low, high) in program.variables.items())


def check_like_ipopt(program, held=None, start=None):
    """Compare with IPOPT's point: as good, and allowed."""
    found, arrays = find_least(program, held, start), program.arrays(held)
    near = {f"tile[{x}]": log(size) for x, size in (start or {}).items()}
    other = solve(arrays, [{x: at for x, at in near.items() if x in arrays.variables}])
    theirs = {x: exp(other.values.get(f"tile[{x}]", log(low))) for x, (low, _) in bounds(program)}
    assert found is not None
    ours = point_of(program, found.sizes)
    check_feasible(program, ours)
    for name, seconds in (held or {}).items():
        assert program.times[name].at(ours) <= seconds * (1 + LOOSE)
    least = cost(program, theirs, held or ())
    assert cost(program, ours, held or ()) <= least + LOOSE * (abs(least) + 1)
    return found


def bounds(program):
    """Return the names and bounds of variables."""
    return program.variables.items()


@given(programs(), st.data())
@examples(50, 150)
def test_it_arrives_where_ipopt_does(program, data):
    """Of drawn programs it finds points as good, or none; what no sizes keep it never finds."""
    names = sorted(program.times)
    held = {}
    if program.weight is not None and len(names) > 1 and data.draw(st.booleans()):
        at_least = {x: low for x, (low, _) in bounds(program)}
        held = {names[0]: program.times[names[0]].at(at_least) * 1.5}
    try:
        solve(program.arrays(held))
    except SolverError:  # most have no sizes that keep their limits
        if (found := find_least(program, held)) is not None:
            check_feasible(program, point_of(program, found.sizes))
        return
    if find_least(program, held) is not None:  # else IPOPT is asked
        check_like_ipopt(program, held)


@pytest.mark.parametrize("name", list(suite("tccg"))[::7])
def test_programs_of_contractions_are_all_solved(name):
    """In few steps; a second more for the longest ones costs a second."""
    setting = tccg_setting(name)
    for choice in list_choices(setting)[::7]:
        program = formulate(setting, choice)
        found = check_like_ipopt(program)
        longest = [m for name, m in found.multipliers.items() if name.startswith("longest")]
        assert sum(longest) == pytest.approx(-1.0, abs=1e-5)
        assert max(found.multipliers.values()) <= 0
        assert found.steps < 40


def test_the_optimum_is_proved():
    """Weak duality says of its point and multipliers that no sizes are better."""
    setting = tccg_setting("abcd-aebf-dfce")
    program = formulate(setting, ("M", "N", "M"))
    for server, time in program.times.items():
        small = replace(program, times={server: time}, weight=None)
        found = find_least(small)
        if found is None:  # a time that depends on no size
            assert not time.symbols
            continue
        point = point_of(small, found.sizes)
        bound = find_dual_bound(small, point, found.multipliers)
        assert bound == pytest.approx(time.at(point), rel=LOOSE)


@pytest.mark.parametrize("saved", [0.5, Signomial.symbol("x") * Signomial.symbol("x") * 0.01])
@pytest.mark.parametrize("weight", [0.01, None])
def test_sums_of_times_that_save_some_of_a_size_have_no_answer(weight, saved):
    """They are for IPOPT; a constant that is saved is not, nor what a longest time saves."""
    x = Signomial.symbol("x")
    times = {"cost": 8 / x + x - saved, "other": x}
    program = Posynomials(variables={"x": (1.0, 9.0)}, times=times, weight=weight)
    assert (find_least(program) is None) == (weight is None and isinstance(saved, Signomial))


@pytest.mark.parametrize(
    "text",
    [
        "khw-c[h+r][w+s]-kcrs k=64 h=56 w=56 c=64 r=3 s=3",
        "khw-c[2h+r][2w+s]-kcrs k=128 h=28 w=28 c=64 r=3 s=3",
        "kh-c[h+4r]-kcr k=40 h=300 c=20 r=7",
    ],
)
def test_programs_of_convolutions_end_where_ipopt_does(text):
    """They are not convex: from each start it arrives, at a point as good as IPOPT's from there."""
    spec, sizes = text.split(maxsplit=1)
    setting = plan(spec, sizes, "i7-6700k", cache=False).setting
    for choice in list_choices(setting)[::31]:
        program = formulate(setting, choice)
        assert any(c < 0 for one in program.limits.values() for _, c in one.terms)
        for share in (0.05, 0.3, 0.7):
            start = {x: low * (high / low) ** share for x, (low, high) in bounds(program)}
            check_like_ipopt(program, start=start)
