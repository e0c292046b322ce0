"""Bounds by weak duality: below all that is feasible, whatever point and multipliers they have."""

from dataclasses import replace
from math import exp, log

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from posynomial_programs import SYMBOLS, programs

from tilesolve.contractions.errors import SolverError
from tilesolve.solver.duality import find_dual_bound
from tilesolve.solver.ipopt import solve
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial

sizes = st.floats(1.0, 50.0)
points = st.fixed_dictionaries(dict.fromkeys(SYMBOLS, sizes))


@st.composite
def sums_of_times(draw):
    """Draw a program whose times are added up, with a constant taken off or not."""
    program = replace(draw(programs()), weight=None)
    name, time = draw(st.sampled_from(sorted(program.times.items())))
    saved = draw(st.sampled_from([0.0, 0.5]))
    return replace(program, times={**program.times, name: time - saved})


def is_feasible(program, point):
    inside = all(low <= point[x] <= high for x, (low, high) in program.variables.items())
    return (
        inside
        and all(one.at(point) <= 1 for one in program.limits.values())
        and all(point[a] <= point[b] for a, b in program.nested)
    )


@given(sums_of_times(), points, st.lists(points, min_size=20, max_size=20), st.data())
def test_no_feasible_point_is_below(program, at, others, data):
    """Any point and any multipliers give a bound on all points that keep the limits."""
    names = [f"limit[{name}]" for name in program.limits]
    names += [f"nested[{a},{b}]" for a, b in program.nested]
    multipliers = {name: -data.draw(st.floats(0, 1e4)) for name in names}
    bound = find_dual_bound(program, at, multipliers)
    for point in (dict.fromkeys(SYMBOLS, 1.0), *others):
        if is_feasible(program, point):
            assert bound <= cost(program, point) + 1e-9 * abs(cost(program, point) + 1)


@given(sums_of_times())
def test_it_is_tight_at_the_optimum(program):
    """IPOPT's point and multipliers give about its optimum."""
    try:
        found = solve(program.arrays())
    except SolverError:
        assume(False)  # no sizes keep its limits
    lows = {x: low for x, (low, _) in program.variables.items()}
    point = {x: exp(found.values.get(f"tile[{x}]", log(low))) for x, low in lows.items()}
    least = cost(program, point)
    bound = find_dual_bound(program, point, found.multipliers)
    assert least - 1e-3 * (abs(least) + 1) <= bound <= least + 1e-6 * (abs(least) + 1)


def cost(program, point):
    """Return the sum of times."""
    return sum(one.at(point) for one in program.times.values())


def test_negative_coefficients_are_refused():
    """A difference of powers is no posynomial."""
    x = Signomial.symbol("x")
    program = Posynomials(variables={"x": (1.0, 9.0)}, times={"cost": 8 / x - x * 0.1}, weight=None)
    with pytest.raises(SolverError, match="negative coefficient"):
        find_dual_bound(program, {"x": 2.0}, {})
