"""Who computes: for each peer a function that prepares a problem.

Such a maker is given the problem, the machine, the number of threads, the operands and an array
for the output. It returns a function without arguments that computes the contraction and
returns the result: the given output where the peer can write to one. Work that is done once per
problem (plans, compilation, copies into an array type of the peer's own) belongs into the maker.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import numpy as np

from tilesolve.bench.case import Array
from tilesolve.bench.run.made import Made, Run
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.packing.sizes import ALIGNMENT_BYTES


def write_einsum(problem: Problem) -> str:
    """Return a problem as einsum writes it.

    Raises
    ------
    SpecError
        If a subscript is affine, which no einsum takes.

    Examples
    --------
    >>> write_einsum(Problem.of("ik-ij-jk", 2))
    'ij,jk->ik'
    """
    spec = problem.spec
    if not all(subscript.plain for tensor in spec.tensors for subscript in tensor.subscripts):
        raise SpecError(f"einsum takes no affine subscripts, as {str(spec)!r} has")
    output, *operands = (
        "".join(subscript.letters[0] for subscript in tensor.subscripts) for tensor in spec.tensors
    )
    return ",".join(operands) + "->" + output


def tilesolve(
    problem: Problem, machine: Machine, threads: int, operands: Sequence[Array], out: Array
) -> Made:
    """Make ready a plan, solved anew for where the output begins."""
    from tilesolve.plans.plan import plan
    from tilesolve.running.execution import Layout

    aligned = out.ctypes.data % ALIGNMENT_BYTES == 0
    found = plan(problem, machine=machine, threads=threads, aligned_output=aligned, cache=False)
    first, second = operands

    def load() -> None:
        Layout.of(found.solution, first, second, out)

    return Made(lambda: found(first, second, out), load=load)


def numpy(problem: Problem, _: Machine, __: int, operands: Sequence[Array], out: Array) -> Run:
    """Make ready numpy's einsum, which may transpose and call its BLAS."""
    text = write_einsum(problem)
    return lambda: np.einsum(text, *operands, out=out, optimize=True)


def opt_einsum(problem: Problem, _: Machine, __: int, operands: Sequence[Array], out: Array) -> Run:
    """Make ready an expression of opt_einsum, which calls numpy."""
    module = importlib.import_module("opt_einsum")
    contract = module.contract_expression(write_einsum(problem), *problem.shapes[1:])
    return lambda: contract(*operands, out=out)


def tblis(problem: Problem, _: Machine, __: int, operands: Sequence[Array], out: Array) -> Run:
    """Make ready TBLIS, which contracts without transposing."""
    contract = importlib.import_module("pytblis").contract
    text = write_einsum(problem)
    return lambda: contract(text, *operands, out=out)


def torch(problem: Problem, _: Machine, threads: int, operands: Sequence[Array], __: Array) -> Run:
    """Make ready torch's einsum over its own tensors; it cannot write to a given output."""
    module = importlib.import_module("torch")
    module.set_num_threads(threads)
    tensors = [module.from_numpy(operand) for operand in operands]
    text = write_einsum(problem)
    return lambda: module.einsum(text, *tensors)


def jax(problem: Problem, _: Machine, __: int, operands: Sequence[Array], ___: Array) -> Run:
    """Make ready jax's einsum, compiled for the shapes; it cannot write to a given output."""
    module = importlib.import_module("jax")
    module.config.update("jax_enable_x64", True)
    text = write_einsum(problem)
    arrays = [module.numpy.asarray(operand) for operand in operands]
    compiled = module.jit(lambda *given: module.numpy.einsum(text, *given)).lower(*arrays).compile()
    return lambda: compiled(*arrays).block_until_ready()
