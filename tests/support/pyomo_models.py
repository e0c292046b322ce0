"""Programs of Pyomo models alone, without their variables."""

from tilesolve.solver.from_pyomo import read


def extract(model):
    """Return a model's program."""
    return read(model)[0]
