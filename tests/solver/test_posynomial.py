"""Programs of posynomials: the arrays that are solved are those of the Pyomo model."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.suites import suite
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.price import stores
from tilesolve.planning.geometric.loop_choices import choices
from tilesolve.planning.geometric.program import formulate
from tilesolve.planning.setting import Setting
from tilesolve.solver.from_pyomo import extract
from tilesolve.solver.ipopt import solve
from tilesolve.solver.posynomial import Posynomials
from tilesolve.solver.signomials import Signomial

SYMBOLS = "xyz"

coefficients = st.floats(0.01, 100)
powers = st.lists(st.tuples(st.sampled_from(SYMBOLS), st.integers(-2, 2)), max_size=3)


@st.composite
def posynomials(draw):
    """Draw a sum of monomials, a constant among them or not."""
    found = Signomial.constant(draw(st.sampled_from([0.0, 1.5])))
    for _ in range(draw(st.integers(1, 3))):
        term = Signomial.constant(draw(coefficients))
        for symbol, power in draw(powers):
            for _ in range(abs(power)):
                one = Signomial.symbol(symbol)
                term = term * one if power > 0 else term / one
        found = found + term
    return found


@st.composite
def programs(draw):
    times = draw(st.lists(posynomials(), min_size=1, max_size=3))
    limits = [one for one in draw(st.lists(posynomials(), max_size=2)) if one.symbols]
    return Posynomials(
        variables={symbol: (1.0, draw(st.floats(1.5, 50))) for symbol in SYMBOLS},
        times={f"t{at}": one for at, one in enumerate(times)},
        limits={f"l{at}": one for at, one in enumerate(limits)},
        nested=draw(st.sampled_from([(), (("x", "y"),), (("x", "y"), ("y", "z"))])),
        unit=draw(st.sampled_from([1.0, 1e-3])),
        weight=draw(st.sampled_from([None, 0.0, 0.01])),
    )


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


@settings(max_examples=60)
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
    machine = Machine.load("e5-2680v4")
    fused = fuse(suite("tccg")[name])
    kernel = Microkernel(rows=4, columns=2)
    setting = Setting(fused, stores(machine), kernel, 1e9, 1e9, ("L3", "L2"), "store")
    for choice in choices(setting)[::5]:
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
        "nest('C[i,j] += A[i,k] * B[k,j]', 64, cache=False); "
        "print([name for name in sys.modules if name.startswith('pyomo')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ran.stdout.strip() == "[]"
