"""The interior method: its points are minima, its bounds hold, and what it cannot do it leaves."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from posynomial_programs import programs, tccg_setting

from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.suites import suite
from tilesolve.planning.geometric.loop_choices import choices
from tilesolve.planning.geometric.program import formulate
from tilesolve.solver.interior import is_convex, minimise
from tilesolve.solver.ipopt import solve
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial

NEAR = 1e-5
"""Relative difference of two minima that are the same."""


def arrays(program):
    """Return the arrays of a program; programs that no sizes keep are passed over."""
    try:
        return program.arrays()
    except SolverError:
        assume(False)


def check_point(program, found, draw):
    """A point keeps all limits, its bound is its objective's, and no other point is below."""
    x = np.array([found.values[name] for name in program.variables])
    assert program.violations(x).max(initial=0.0) < 1e-5
    assert program.values(x)[0] == pytest.approx(found.objective, rel=1e-9)
    assert found.bound <= found.objective * (1 + 1e-9)
    assert found.bound == pytest.approx(found.objective, rel=1e-6)
    low = np.where(np.isfinite(program.lower), program.lower, x - 3)
    high = np.where(np.isfinite(program.upper), program.upper, x + 3)
    for _ in range(50):
        other = draw.uniform(low, high)
        if program.violations(other).max(initial=0.0) <= 0:
            assert program.values(other)[0] >= found.bound * (1 - 1e-9)


@settings(max_examples=60)
@given(programs(), st.integers(0, 2**32 - 1))
def test_points_are_minima(program, seed):
    """Where there is one, IPOPT finds no better one, and its multipliers are the same."""
    program = arrays(program)
    assume(is_convex(program))
    (found,) = minimise([program])
    assume(found is not None)
    check_point(program, found, np.random.default_rng(seed))
    with suppress(SolverError):  # there are programs that IPOPT does not solve
        expected = solve(program)
        assert found.objective == pytest.approx(expected.objective, rel=NEAR)


@settings(max_examples=20)
@given(st.lists(programs(), min_size=2, max_size=5))
def test_programs_do_not_disturb_one_another(drawn):
    """Together each has the minimum that it has alone, whatever sizes the others have."""
    drawn = [one for one in map(arrays, drawn) if is_convex(one)]
    for one, found in zip(drawn, minimise(drawn), strict=True):
        (alone,) = minimise([one])
        assert (found is None) == (alone is None)
        if found is not None:
            assert found.objective == pytest.approx(alone.objective, rel=NEAR)


@pytest.mark.parametrize("name", list(suite("tccg"))[::8])
def test_programs_of_contractions_are_solved(name):
    """All but a few of all choices of loops; to IPOPT's optimum, with its multipliers' signs."""
    setting = tccg_setting(name)
    written = [formulate(setting, choice).arrays() for choice in choices(setting)]
    assert all(map(is_convex, written))
    found = minimise(written)
    assert sum(one is None for one in found) <= len(found) / 20
    for program, one in list(zip(written, found, strict=True))[::7]:
        expected = solve(program)
        if one is not None:
            check_point(program, one, np.random.default_rng(1))
            assert one.objective == pytest.approx(expected.objective, rel=NEAR)
            assert set(one.multipliers) == set(expected.multipliers)
            assert all(rate <= 1e-9 for rate in one.multipliers.values())


def test_multipliers_are_rates():
    """More room by a little shortens the longest time as the multiplier says."""
    x, y = Signomial.symbol("x"), Signomial.symbol("y")
    times = {"down": Signomial.constant(9) / x + Signomial.constant(4) / y}
    sides = {"x": (0.1, 90.0), "y": (0.1, 90.0)}

    def at(room):
        limits = {"room": (x + y) * (1 / room)}
        program = Posynomials(variables=sides, times=times, limits=limits).arrays()
        return minimise([program])[0]

    here, more = at(8.0), at(8.0 * 1.001)
    rate = here.multipliers["limit[room]"] * 0.001
    assert more.objective - here.objective == pytest.approx(rate, rel=1e-2)


def test_what_is_not_convex_is_told():
    """A term that is subtracted, a lower bound on a sum, an objective that is maximised."""
    x = Signomial.symbol("x")
    times = {"t": x * x - x}
    assert not is_convex(Posynomials(variables={"x": (1.0, 9.0)}, times=times).arrays())


def test_nothing_is_said_of_limits_that_cannot_be_kept():
    x = Signomial.symbol("x")
    program = Posynomials(variables={"x": (2.0, 9.0)}, times={"t": x}, limits={"room": x})
    assert minimise([program.arrays()]) == [None]
    assert minimise([]) == []
