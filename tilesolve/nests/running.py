"""Running a nest: each statement is computed by what was chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesolve.constants.policy import LONG_SECONDS
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import OPERATIONS
from tilesolve.contractions.statements.terms import Apply, Number, Param, Read, Term
from tilesolve.kernels.programs.compiled_program import CompiledProgram, compile_program
from tilesolve.kernels.programs.layout import Layout
from tilesolve.machine.model import Machine
from tilesolve.nests.calls import Array, Held, Params, first_elements, leaves_elements
from tilesolve.nests.choices import Blocks, NestChoice
from tilesolve.nests.planning import plan_nest
from tilesolve.nests.product_plans import plan_products
from tilesolve.packing.memory_overlap import same_elements
from tilesolve.system.result_buffers import new_result
from tilesolve.transposes.transpose import transpose

MOST_LAYOUTS = 8
"""Layouts of arrays whose code a step keeps in memory."""


@dataclass(frozen=True, slots=True)
class Step:
    """What computes one statement.

    Parameters
    ----------
    choice
        How.
    seconds
        Predicted.
    run
        Computes it into the array of its name, among arrays by name.
    """

    choice: NestChoice
    seconds: float
    run: Callable[[Held, Params], None]


def make_step(choice: NestChoice, machine: Machine, threads: int) -> Step:
    """Return what computes a statement by a choice."""
    if choice.blocks is not None:
        return _blocks_step(choice, choice.blocks, machine, threads)
    if choice.route == "contraction":
        return _contraction_step(choice, machine, threads)
    cost = choice.cost
    if choice.route == "transpose":
        source, axes = choice.statement.reads[0].array, choice.axes
        name, sizes = choice.statement.name, choice.computation.sizes
        computed = tuple(sizes[letter] for letter in choice.statement.output)

        def move(held: Held, params: Params) -> None:
            transpose(held[source], axes, first_elements(held[name], computed), threads=threads)

        if cost is None:  # what loops would take that move as much
            cost = plan_nest(choice.computation, machine, threads, route="nest")[0].cost
        return Step(choice, cost.seconds if cost else 0.0, move)
    assert choice.program is not None
    assert cost is not None
    return Step(choice, cost.seconds, _Loops(choice, threads, cost.seconds >= LONG_SECONDS).run)


class _Loops:
    """Generated loops, compiled for each layout of arrays that comes."""

    def __init__(self, choice: NestChoice, threads: int, long: bool) -> None:
        self.choice, self.threads, self.long = choice, threads, long
        self.names = tuple(one.name for one in choice.computation.arrays)
        self.compiled: dict[tuple[tuple[int, ...], ...], CompiledProgram] = {}

    def run(self, held: Held, params: Params) -> None:
        """Compute the statement."""
        program = self.choice.program
        assert program is not None
        arrays = {name: held[name] for name in self.names}
        strides = tuple([array.strides for array in arrays.values()])
        code = self.compiled.get(strides)
        if code is None:
            if len(self.compiled) >= MOST_LAYOUTS:
                self.compiled.clear()
            layout = Layout.of(arrays)
            alike = (one for one in self.compiled.values() if one.layout == layout)
            code = next(alike, None) or compile_program(program, layout)
            self.compiled[strides] = code
        code.run_checked(arrays, params, threads=self.threads, long=self.long)


def _contraction_step(choice: NestChoice, machine: Machine, threads: int) -> Step:
    contraction = choice.contraction
    assert contraction is not None
    plans = plan_products(choice, machine, threads)
    name, sizes = choice.statement.name, choice.computation.sizes
    computed = tuple(sizes[letter] for letter in choice.statement.output)

    def multiply(held: Held, params: Params) -> None:
        target = first_elements(held[name], computed)
        beta = 0.0 if contraction.beta is None else _factor(contraction.beta, params)
        for product, made in zip(contraction.products, plans, strict=True):
            first, second = (
                first_elements(held[operand], made.problem.shape(at))
                for at, operand in enumerate(product.operands, 1)
            )
            alpha = 1.0 if product.alpha is None else _factor(product.alpha, params)
            made(first, second, target, alpha=alpha, beta=beta)
            beta = 1.0

    return Step(choice, sum(one.seconds for one in plans), multiply)


def _blocks_step(choice: NestChoice, blocks: Blocks, machine: Machine, threads: int) -> Step:
    kinds = [tuple(make_step(one, machine, threads) for one in kind) for kind in blocks.kinds]
    shapes = [
        {info.name: info.shape for one in kind for info in one.computation.arrays}
        for kind in blocks.kinds
    ]
    target = choice.statement.target

    def run(held: Held, params: Params) -> None:
        for kind, origin in blocks.places:
            parts = {
                name: _part(held[read.array], read, origin, shapes[kind][name])
                for name, read in (*blocks.arrays, (target.array, target))
                if name in shapes[kind]
            }
            run_steps(kinds[kind], parts, parts[target.array], params)

    seconds = [sum(step.seconds for step in kind) for kind in kinds]
    return Step(choice, sum(seconds[kind] for kind, _ in blocks.places), run)


def _part(array: Array, read: Read, origin: Mapping[str, int], shape: Sequence[int]) -> Array:
    """Return the part of an array that a block has, given the element and its first letters."""
    firsts = (one.at(origin) for one in read.subscripts if isinstance(one, Affine))
    return array[tuple(slice(at, at + n) for at, n in zip(firsts, shape, strict=True))]


def _factor(term: Term, params: Params) -> float:
    """Return the value of a product of numbers and parameters."""
    match term:
        case Number(value=value):
            return float(value)
        case Param(name=name):
            return float(params[name])
        case Apply(name=name, arguments=arguments):
            return float(OPERATIONS[name].function(*(_factor(one, params) for one in arguments)))
    raise PlanError(f"{term} is no factor of numbers and parameters")


def run_steps(steps: Sequence[Step], held: Held, out: Array, params: Params) -> None:
    """Compute all statements; the last one writes to an array that is given.

    An array that it updates is copied there first.
    """
    for at, step in enumerate(steps):
        info = step.choice.computation.output
        if at == len(steps) - 1:
            own = held.get(info.name)
            if own is not None and not same_elements(out, own):
                out[...] = own
            held[info.name] = out
        elif info.name in held:
            held[info.name] = held[info.name].copy()  # an input is updated, which stays as it is
        else:
            held[info.name] = new_result(info.shape, np.dtype(info.dtype))
            if leaves_elements(step.choice.computation):
                held[info.name][...] = 0
        if all(info.shape):
            step.run(held, params)
