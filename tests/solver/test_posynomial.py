"""Programs of posynomials: the arrays that are solved are those of the Pyomo model."""

import numpy as np
import pytest
from commands import run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from posynomial_programs import coefficients, programs, tccg_setting
from pyomo_models import extract
from turns import examples

from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.suites import suite
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.program import formulate
from tilesolve.solver.ipopt import solve
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial


def check_same(program, held=None):
    """Hold the arrays to what is read from the model: names, bounds and all entries."""
    try:
        expected = extract(program.model(held))
    except SolverError as error:  # a limit that no sizes keep
        with pytest.raises(SolverError, match=str(error).split(":")[0].split("'")[0]):
            program.arrays(held)
        return
    found = program.arrays(held)
    assert found.variables == expected.variables
    assert found.constraints == expected.constraints
    assert found.sense == expected.sense
    for name in (
        *("lower", "upper", "start", "constraint_lower", "constraint_upper"),
        *("coefficients", "exponents", "offsets", "linear", "constants"),
    ):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, rtol=1e-14, err_msg=name)


@examples(25, 60)
@given(programs(), st.data())
def test_arrays_are_those_of_the_model(program, data):
    """Also where some times are held instead of being minimised."""
    names = data.draw(st.lists(st.sampled_from(list(program.times)), unique=True))
    held = {name: data.draw(coefficients) for name in names}
    if len(held) == len(program.times):
        for write in (program.arrays, program.model):
            with pytest.raises(SolverError, match="nothing is left to minimise"):
                write(held)
        return
    check_same(program, held)


@pytest.mark.parametrize("name", list(suite("tccg"))[::12])
def test_programs_of_contractions_are_those_of_their_models(name):
    """For every choice of innermost loops."""
    setting = tccg_setting(name)
    for choice in list_choices(setting)[::5]:
        check_same(formulate(setting, choice))


def test_a_constant_that_overflows_is_said():
    x = Signomial.symbol("x")
    program = Posynomials(variables={"x": (1.0, 2.0)}, times={"t": x * 1e300}, unit=1e-300)
    with pytest.raises(SolverError, match="a constant overflows: inf"):
        program.arrays()


@given(st.floats(0.1, 10), st.floats(0.1, 10))
@settings(max_examples=30)
def test_the_longest_time_is_the_least(one, other):
    """Two times that run against each other meet, a sum of them has its own optimum."""
    x = Signomial.symbol("x")
    times = {"up": x * one, "down": Signomial.constant(other) / x}
    sides = {"x": (1e-3, 1e3)}
    best = np.sqrt(other / one)
    for weight in (0.0, None):
        found = solve(Posynomials(variables=sides, times=times, weight=weight).arrays())
        assert np.exp(found.values["tile[x]"]) == pytest.approx(best, rel=1e-3)
    assert found.objective == pytest.approx(2 * np.sqrt(one * other), rel=1e-6)


def test_planning_needs_no_pyomo():
    """It takes a third of a second to import; who asks for the model waits for it."""
    code = (
        "import sys; from tilesolve import nest, plan; "
        "plan('ab-ac-cb', 100, 'i7-6700k', cache=False); "
        "plan('hwk-[h+r][w+s]c-rsck', 6, 'i7-6700k', cache=False); "
        "nest('C[i,j] += A[i,k] * B[k,j]', 64, mode='thesis'); "
        "print([name for name in sys.modules if name.startswith('pyomo')])"
    )
    ran = run_python("-c", code, check=True)
    assert ran.stdout.strip() == "[]"
