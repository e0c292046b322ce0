"""Bounds by weak duality: below all that is feasible, whatever point and multipliers they have."""

from dataclasses import replace
from fractions import Fraction
from math import exp, inf, isnan, log, prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from posynomial_programs import SYMBOLS, programs
from turns import examples

from tilesolve.contractions.errors import SolverError
from tilesolve.solver.duality import find_dual_bound
from tilesolve.solver.interior import find_least
from tilesolve.solver.ipopt import solve
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial

sizes = st.floats(1.0, 50.0)
points = st.fixed_dictionaries(dict.fromkeys(SYMBOLS, sizes))


@st.composite
def proved_programs(draw):
    """Draw a program, with a constant taken off one of its times or not."""
    program = draw(programs())
    name, time = draw(st.sampled_from(sorted(program.times.items())))
    saved = draw(st.sampled_from([0.0, 0.5]))
    if not any(coefficient > 0 for _, coefficient in (time - saved).terms):
        return program
    return replace(program, times={**program.times, name: time - saved})


def exactly(amount, point):
    """Return a signomial at a point, without rounding."""
    parts = (
        prod((Fraction(point[x]) ** power for x, power in powers), start=Fraction(coefficient))
        for powers, coefficient in amount.terms
    )
    return sum(parts, start=Fraction(0))


def is_feasible(program, point):
    inside = all(low <= point[x] <= high for x, (low, high) in program.variables.items())
    return (
        inside
        and all(exactly(one, point) <= 1 for one in program.limits.values())
        and all(point[a] <= point[b] for a, b in program.nested)
    )


def cost(program, point):
    """Return what is minimised, without rounding."""
    times = [exactly(one, point) for one in program.times.values()]
    if program.weight is None:
        return sum(times)
    return max(times) + Fraction(program.weight) * sum(times) / len(times)


def check_below(program, bound, points):
    """No feasible one of some points costs less than a bound, not by one rounding error."""
    assert not isnan(bound)
    for point in points:
        if is_feasible(program, point):
            assert bound < inf
            assert bound == -inf or Fraction(bound) <= cost(program, point)


@given(proved_programs(), points, st.lists(points, min_size=20, max_size=20), st.data())
def test_no_feasible_point_is_below(program, at, others, data):
    """Any point and any multipliers give a bound on all points that keep the limits."""
    names = [f"limit[{name}]" for name in program.limits]
    names += [f"longest[{name}]" for name in program.times]
    names += [f"nested[{a},{b}]" for a, b in program.nested]
    multipliers = {name: -data.draw(st.floats(0, 1e4)) for name in names}
    bound = find_dual_bound(program, at, multipliers)
    check_below(program, bound, [dict.fromkeys(SYMBOLS, 1.0), *others])


@pytest.mark.parametrize("least", [5e-324, 2e-309, 1e-300])
def test_multipliers_far_apart_give_a_bound(least):
    """One that is not a normal number beside one that is large."""
    x, y = Signomial.symbol("x"), Signomial.symbol("y")
    program = Posynomials(
        variables={"x": (1.0, 9.0), "y": (1.0, 9.0)},
        times={"t": 8 / x + 8 / y},
        limits={"room": x * y * 0.25},
        weight=0.01,
    )
    multipliers = {"longest[t]": -least, "limit[room]": -1e4}
    bound = find_dual_bound(program, {"x": 2.0, "y": 2.0}, multipliers)
    check_below(program, bound, [{"x": 2.0, "y": 2.0}])


@given(proved_programs(), st.lists(points, min_size=5, max_size=5), st.floats(0, 1.5))
@examples(30, 150)
def test_iterates_prove_their_bounds(program, others, share):
    """Wherever the interior point stops, its bound holds, even for its own optimum."""
    optimum = find_least(program)
    if optimum is None:
        return
    lows = {x: low for x, (low, _) in program.variables.items()}
    best = {**lows, **optimum.sizes}
    near = {x: low + (best[x] - low) * (1 - 1e-9) for x, low in lows.items()}
    limit = share * float(cost(program, best))
    found = find_least(program, limit=limit)
    assert found.steps < optimum.steps or found.sizes == optimum.sizes
    assert found.steps == optimum.steps or found.bound > limit
    check_below(program, found.bound, [dict.fromkeys(SYMBOLS, 1.0), best, near, *others])
    again = find_dual_bound(program, {**lows, **found.sizes}, found.multipliers)
    assert again >= found.bound - 1e-9 * (abs(found.bound) + 1)


@examples(20, 100)
@given(proved_programs())
def test_it_is_tight_at_the_optimum(program):
    """IPOPT's point and multipliers give about its optimum."""
    try:
        found = solve(program.arrays())
    except SolverError:
        assume(False)  # no sizes keep its limits
    lows = {x: low for x, (low, _) in program.variables.items()}
    point = {x: exp(found.values.get(f"tile[{x}]", log(low))) for x, low in lows.items()}
    least = cost(program, point)
    assume(least > 0)  # as times are: IPOPT's variable for the slowest is a logarithm
    bound = find_dual_bound(program, point, found.multipliers)
    assert least - Fraction(1e-3) * (abs(least) + 1) <= bound
    assert bound <= least + Fraction(1e-6) * (abs(least) + 1)


def test_negative_coefficients_are_refused():
    """A difference of powers is no posynomial."""
    x = Signomial.symbol("x")
    program = Posynomials(variables={"x": (1.0, 9.0)}, times={"cost": 8 / x - x * 0.1}, weight=None)
    with pytest.raises(SolverError, match="negative coefficient"):
        find_dual_bound(program, {"x": 2.0}, {})
