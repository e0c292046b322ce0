"""Running a nest: arrays are checked, and each statement is computed by what was chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.operations import OPERATIONS
from tilesolve.contractions.statements.terms import Apply, Number, Param, Read, Term
from tilesolve.kernels.programs.compiled_program import CompiledProgram, compile_program
from tilesolve.kernels.programs.layout import Layout
from tilesolve.machine.model import Machine
from tilesolve.nests.choices import Blocks, NestChoice
from tilesolve.nests.planning import plan_nest
from tilesolve.nests.product_plans import plan_products
from tilesolve.packing.memory_overlap import same_elements
from tilesolve.planning.policy import LONG_SECONDS
from tilesolve.system.checks import check_apart, check_dtype, check_output
from tilesolve.system.result_buffers import new_result
from tilesolve.transposes.transpose import transpose

Array = npt.NDArray[Any]
Held = dict[str, Array]
Params = Mapping[str, float]

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
        name = choice.statement.name

        def move(held: Held, params: Params) -> None:
            transpose(held[source], axes, held[name], threads=threads)

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
        self.compiled: dict[Layout, CompiledProgram] = {}

    def run(self, held: Held, params: Params) -> None:
        """Compute the statement."""
        program = self.choice.program
        assert program is not None
        arrays = {one.name: held[one.name] for one in program.computation.arrays}
        layout = Layout.of(arrays)
        code = self.compiled.get(layout)
        if code is None:
            if len(self.compiled) >= MOST_LAYOUTS:
                self.compiled.clear()
            code = self.compiled[layout] = compile_program(program, layout)
        own = {name: params[name] for name, _ in program.computation.params}
        code.run(arrays, own, threads=self.threads, long=self.long)


def _contraction_step(choice: NestChoice, machine: Machine, threads: int) -> Step:
    contraction = choice.contraction
    assert contraction is not None
    plans = plan_products(choice, machine, threads)
    name = choice.statement.name

    def multiply(held: Held, params: Params) -> None:
        beta = 0.0 if contraction.beta is None else _factor(contraction.beta, params)
        for product, made in zip(contraction.products, plans, strict=True):
            first, second = (
                held[operand][tuple(slice(0, extent) for extent in made.problem.shape(at))]
                for at, operand in enumerate(product.operands, 1)
            )
            alpha = 1.0 if product.alpha is None else _factor(product.alpha, params)
            made(first, second, held[name], alpha=alpha, beta=beta)
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
    """Compute all statements; the last one writes to an array that is given."""
    for at, step in enumerate(steps):
        info = step.choice.computation.output
        if at == len(steps) - 1:
            held[info.name] = out
        elif info.name in held:
            held[info.name] = held[info.name].copy()  # an input is updated, which stays as it is
        else:
            held[info.name] = new_result(info.shape, np.dtype(info.dtype))
            if leaves_elements(step.choice.computation):
                held[info.name][...] = 0
        if all(info.shape):
            step.run(held, params)


def leaves_elements(computation: Computation) -> bool:
    """Return whether the last stage leaves elements of its array as they are."""
    stage, sizes = computation.stages[-1], computation.sizes
    computed = tuple(sizes[letter] for letter in stage.output)
    smaller = stage.update is None and computed != computation.output.shape
    return smaller or bool(stage.bounds)


def check_arrays(
    computation: Computation, arrays: Sequence[npt.ArrayLike], out: object
) -> tuple[Held, Array]:
    """Return inputs by name, and the array for the result; raise an error if one does not fit.

    An input that the last statement updates in place is copied to the result first.
    """
    names, text = computation.inputs, "; ".join(map(str, computation.stages))
    if len(arrays) != len(names):
        raise SizeError(
            f"{text!r} takes {len(names)} arrays, {', '.join(names) or 'none'}; got {len(arrays)}"
        )
    held: Held = {}
    for name, value in zip(names, arrays, strict=True):
        info, what = computation.array(name), f"array {name} of {text!r}"
        array = read_array(value, what)
        if array.shape != info.shape:
            raise SizeError(f"{what} has shape {array.shape}, the plan has {info.shape}")
        check_dtype(array, what, np.dtype(info.dtype))
        held[name] = array
    info = computation.output
    own = held.get(info.name)
    dtype = np.dtype(info.dtype)
    if out is None:
        target = new_result(info.shape, dtype)
        if own is None and leaves_elements(computation):
            target[...] = 0
    else:
        target = check_output(out, f"out of {text!r}", info.shape, dtype=dtype)
        for name, array in held.items():
            if name != info.name and np.may_share_memory(target, array):
                check_apart(target, f"out of {text!r}", {name: array})
        if own is not None and not same_elements(target, own):
            check_apart(target, f"out of {text!r}", {info.name: own})
    if own is not None and not same_elements(target, own):
        target[...] = own
    return held, target


def check_params(computation: Computation, params: Mapping[str, object]) -> Params:
    """Return the value of each parameter; raise an error unless all are there and no others."""
    wanted = [name for name, _ in computation.params]
    for name in params:
        if name not in wanted:
            raise SizeError(
                f"{computation} has no parameter {name!r}; it has {', '.join(wanted) or 'none'}"
            )
    found: dict[str, float] = {}
    for name, dtype in computation.params:
        if name not in params:
            raise SizeError(f"no value is given for the parameter {name!r} of {computation}")
        value = np.asarray(params[name])
        if value.shape or not np.can_cast(value.dtype, dtype, "same_kind"):
            raise SizeError(
                f"the parameter {name!r} is a number of {dtype}, not {params[name]!r:.60}"
            )
        found[name] = value.astype(dtype).item()
    return found
