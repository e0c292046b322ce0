"""Programs of posynomials, drawn and of contractions."""

from hypothesis import strategies as st

from tilesolve.contractions.suites import suite
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.price import list_levels
from tilesolve.planning.setting import Setting
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


def tccg_setting(name):
    """Return what the programs of a contraction of TCCG are written for."""
    kernel, places = Microkernel(rows=4, columns=2), list_levels(Machine.load("e5-2680v4"))
    return Setting(fuse(suite("tccg")[name]), places, kernel, 1e9, 1e9, ("L3", "L2"), "store")


def make_setting(problem, machine, rate=None):
    """Return the setting that plans use, at another arithmetic rate if one is given."""
    places = list_levels(machine)
    kernel = Microkernel(8, 6)
    copies = (places[-1].name,) * len(problem.spec.operands)
    peak = rate or machine.peak(problem.dtype)
    return Setting(fuse(problem), places, kernel, peak, machine.frequency, copies, "store")
