"""Machines, operands and bounds for tests that run plans."""

from dataclasses import replace
from math import prod

import numpy as np

from tilesolve import Machine, Plan, reference
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.running.execution import trace_calls

WIDTHS = ((128, 16), (256, 16), (512, 32))
"""Bits of vectors, and how many registers a CPU with no wider ones has."""

MANY_REGISTERS = (256, 32)
"""What a CPU of 512 bits has where it is told to use shorter vectors."""


def make_machine(bits=256, registers=16, name="i7-6700k"):
    """Return a shipped machine with other vectors."""
    found = Machine.load(name)
    return replace(found, vector_bits=bits, vector_registers=registers)


def make_shallow_machine(bits, registers):
    """Return a machine of two caches, the second of 256 KiB: its plans are found much faster.

    Problems that fit the second, as nearly all small ones do, have no loop outside its tile.
    """
    found = make_machine(bits, registers)
    return replace(found, levels=(*found.levels[:2], found.levels[-1]))


def write_shallow_machine(folder):
    """Write such a machine to a file, for commands; return its path."""
    path = folder / "shallow.toml"
    path.write_text(make_shallow_machine(256, 16).to_toml())
    return path


def varied(found, **changes):
    """Return a plan of a plan's solution with other fields."""
    return Plan(replace(found.solution, **changes))


def draw_operands(problem, seed=0):
    """Return random operands; the numbers of a large one come again after some thousands."""
    generator = np.random.default_rng(seed)
    arrays = []
    for shape in problem.shapes[1:]:
        drawn = min(prod(shape), 65_537), 2 if problem.dtype.startswith("complex") else 1
        values = generator.standard_normal(drawn)
        values = values.view(complex) if drawn[1] == 2 else values
        arrays.append(np.resize(values.astype(problem.dtype), shape))
    return arrays


def poisoned(problem):
    """Return an output of no numbers."""
    return np.full(problem.shape(0), np.nan, array_dtype(problem.dtype))


LAYOUTS = ("plain", "fortran", "reversed", "spread", "unaligned")


def relaid(array, how):
    """Return an equal array whose elements lie otherwise; what lies between them is no number."""
    if how == "plain" or not array.ndim:
        return array
    if how == "fortran":
        return np.asfortranarray(array)
    if how == "reversed":
        turned = (slice(None, None, -1),) * array.ndim
        return array[turned].copy()[turned]
    if how == "spread":
        room = np.full([2 * n for n in array.shape], np.nan, array.dtype)
        found = room[(slice(None, None, 2),) * array.ndim]
    else:
        raw = np.zeros(array.nbytes + 1, np.uint8)
        found = np.ndarray(array.shape, array.dtype, raw.data, 1)
    found[...] = array
    return found


def lay_out(shape, dtype, order, gap, backwards=False):
    """Return an array of poison whose axes lie in an order, the last ones side by side.

    Before it the whole of the memory around it.
    """
    sides = [shape[axis] for axis in order]
    whole = np.full([*sides[:-1], sides[-1] + gap], np.nan, dtype)
    out = whole[..., : sides[-1]].transpose(np.argsort(order))
    return whole, out[(slice(None, None, -1),) * out.ndim] if backwards else out


def count_products(problem):
    """Return how many products one element of the output adds up."""
    inside = set(problem.spec.output.letters)
    return int(np.prod([n for letter, n in problem.sizes.items() if letter not in inside]))


def check_result(problem, found, expected, operands, scale=1.0):
    """Hold a result to the reference, with a bound that grows with the sum's length."""
    largest = np.prod([np.abs(array).max(initial=0.0) for array in operands])
    bound = 4 * (count_products(problem) + 4) * np.finfo(problem.dtype).eps * (largest + 1) * scale
    assert np.all(np.abs(found - expected) <= bound), np.abs(found - expected).max()


def check_run(found, operands=None, out=None):
    """Run a plan, on drawn operands into an output of no numbers unless given, and check `out`.

    Returns the arrays of the run.
    """
    problem = found.problem
    operands = draw_operands(problem) if operands is None else operands
    out = poisoned(problem) if out is None else out
    assert found(*operands, out) is out
    arrays = [getattr(one, "array", one) for one in operands]  # of those that were prepared
    check_result(problem, out, reference(problem, *arrays), arrays)
    return [*operands, out]


def trace_once(found):
    """Return what each call of a plan covers; each iteration is in one of them."""
    problem = found.problem
    seen = np.zeros([*problem.sizes.values()], int)
    calls = [covered for covered, _ in trace_calls(found.solution)]
    for covered in calls:
        seen[np.ix_(*(covered[i] for i in problem.sizes))] += 1
    assert np.all(seen == 1)
    return calls
