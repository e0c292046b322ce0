"""What a call of a nest does, for arrays that lie in some way: instructions for all statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.operations import OPERATIONS
from tilesolve.contractions.statements.terms import Apply, Number, Param, Read, Term
from tilesolve.kernels.programs.compiled_program import CompiledProgram, compile_program
from tilesolve.kernels.programs.layout import Layout
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine
from tilesolve.nests.block_tasks import Place, order_tasks
from tilesolve.nests.calls import leaves_elements
from tilesolve.nests.choices import Blocks, NestChoice
from tilesolve.nests.predicted import predict_seconds
from tilesolve.nests.product_plans import plan_products
from tilesolve.nests.task_writer import (
    Located,
    Operand,
    TaskWriter,
    View,
    constant_double,
)
from tilesolve.plans.plan import Plan
from tilesolve.running.task import Task
from tilesolve.transposes.limits import limits_in_force
from tilesolve.transposes.transpose import transpose
from tilesolve.transposes.walk_setup import walk_between

Codes = dict[tuple[int, Layout], CompiledProgram]
"""Code of programs by their choice and the layout of their arrays."""


@dataclass(slots=True)
class StatementWriter:
    """Writes what computes statements.

    Parameters
    ----------
    machine, threads
        Whose threads share the work.
    params
        The word of each parameter.
    behind
        The slot behind all that a call is given; `factors` follow from it on.
    codes
        What is compiled already.
    tasks
        Where it writes.
    factors
        Products of numbers and parameters whose value a call needs, too.
    plans
        Of the products of contractions that are known, by their choice.
    parts
        Parts of these products, by their plan and the strides.
    """

    machine: Machine
    threads: int
    params: Mapping[str, Operand]
    behind: int
    codes: Codes
    tasks: TaskWriter = field(default_factory=TaskWriter)
    factors: dict[Term, Operand] = field(default_factory=dict)
    plans: dict[int, tuple[Plan, ...]] = field(default_factory=dict)
    parts: dict[tuple[object, ...], list[Task]] = field(default_factory=dict)

    def write(
        self, choices: Sequence[NestChoice], arrays: Mapping[str, Located], out: Located
    ) -> None:
        """Write statements; the last one computes an array that is given.

        What it updates is copied there before, unless it lies there. No other array that is given
        changes: where a statement updates one, it updates a copy.
        """
        known = dict(arrays)
        for at, choice in enumerate(choices):
            info, last = choice.computation.output, at == len(choices) - 1
            own = known.get(info.name)
            target = out if last else self.tasks.add_array(info.shape, info.dtype)
            known[info.name] = target
            if not all(info.shape):
                continue
            if own is not None and own != target:
                self._copy(target, own)
            elif own is None and not last and leaves_elements(choice.computation):
                self.tasks.write_stage([partial(self.tasks.clear, target)])
            self._write_choice(choice, known)

    def _write_choice(self, choice: NestChoice, arrays: Mapping[str, Located]) -> None:
        """Write one statement."""
        if choice.blocks is not None:
            self._write_blocks(choice, choice.blocks, arrays)
        elif choice.route == "contraction":
            self._write_contraction(choice, arrays)
        elif choice.route == "transpose":
            self._write_transpose(choice, arrays)
        else:
            self._write_loops(choice, arrays)

    def _write_loops(self, choice: NestChoice, arrays: Mapping[str, Located]) -> None:
        given = {info.name: arrays[info.name] for info in choice.computation.arrays}
        key = id(choice), Layout.of(given)
        if key not in self.codes:
            assert choice.program is not None
            self.codes[key] = compile_program(choice.program, key[1])
        code = self.codes[key]
        for entry, divided in code.phases:
            parts = self.threads if divided else 1
            self.tasks.write_stage(
                partial(self.tasks.run_program, code, entry, (part, parts), given, self.params)
                for part in range(parts)
            )

    def _write_contraction(self, choice: NestChoice, arrays: Mapping[str, Located]) -> None:
        contraction = choice.contraction
        assert contraction is not None
        target = arrays[choice.statement.name].first(_computed_shape(choice))
        beta: Term = Number(0) if contraction.beta is None else contraction.beta
        if id(choice) not in self.plans:
            self.plans[id(choice)] = plan_products(choice, self.machine, self.threads)
        for product, plan in zip(contraction.products, self.plans[id(choice)], strict=True):
            first, second = (
                arrays[operand].first(plan.problem.shape(at))
                for at, operand in enumerate(product.operands, 1)
            )
            alpha = Number(1) if product.alpha is None else product.alpha
            self._write_product(plan, (target, first, second), alpha, beta)
            beta = Number(1)

    def _write_product(
        self, plan: Plan, tensors: tuple[Located, Located, Located], alpha: Term, beta: Term
    ) -> None:
        solution = plan.executor.solution
        if solution.partial_outputs:
            self.tasks.write_job(partial(_call_plan, plan, tensors, alpha, beta))
            return
        strides = tuple(one.strides for one in tensors)
        key = id(plan), strides
        if key not in self.parts:
            self.parts[key] = [Task.of(solution, *part, strides) for part in solution.parts]
        factors = self._factor(alpha), self._factor(beta)
        self.tasks.write_stage(
            partial(self.tasks.run_product, task, tensors, *factors) for task in self.parts[key]
        )

    def _factor(self, term: Term) -> Operand:
        """Return what multiplies a contraction as the word of a double."""
        if not term.params:
            return constant_double(compute_factor(term, {}))
        return self.factors.setdefault(term, (self.behind + len(self.factors), 0))

    def _write_transpose(self, choice: NestChoice, arrays: Mapping[str, Located]) -> None:
        source = arrays[choice.statement.reads[0].array].transpose(choice.axes)
        target = arrays[choice.statement.name].first(_computed_shape(choice))
        if 2 * target.nbytes > limits_in_force().last_cache_bytes:  # alignment decides how
            self.tasks.write_job(partial(_call_transpose, target, source, self.threads))
        else:
            self._copy(target, source)

    def _copy(self, target: Located, source: Located) -> None:
        """Write a copy of an array to another one."""
        limits, both = limits_in_force(), 2 * target.nbytes
        walk = walk_between(
            target.shape,
            target.strides,
            source.strides,
            target.itemsize,
            self.threads,
            limits,
            streamed=both > limits.last_cache_bytes,
            held=both <= limits.near_bytes,
        )
        self.tasks.write_stage(
            partial(self.tasks.run_move, walk, part, target, source) for part in walk.parts
        )

    def _write_blocks(
        self, choice: NestChoice, blocks: Blocks, arrays: Mapping[str, Located]
    ) -> None:
        """Write the blocks of a region: as tasks, or one after another."""
        output = choice.statement.output
        alone = self
        if blocks.apart and self.threads > 1:
            alone = _of_one_thread(self)
        for place in blocks.places[: blocks.begun]:
            self._write_block(choice, blocks, place, arrays)
        loads = [
            sum(predict_seconds(one, alone.machine, alone.threads) for one in kind)
            for kind in blocks.kinds
        ]
        tasks = [group for _, group in order_tasks(blocks, output, loads)]
        if not blocks.apart:
            for place in (one for group in tasks for one in group):
                self._write_block(choice, blocks, place, arrays)
            return

        def write_task(group: Sequence[Place]) -> None:
            for place in group:
                self.tasks.forget_arrays()
                alone._write_block(choice, blocks, place, arrays)

        self.tasks.write_stage(partial(write_task, group) for group in tasks)

    def _write_block(
        self, choice: NestChoice, blocks: Blocks, place: Place, arrays: Mapping[str, Located]
    ) -> None:
        kind, origin = place
        target = choice.statement.target
        shapes = {
            info.name: info.shape for one in blocks.kinds[kind] for info in one.computation.arrays
        }
        parts = {
            name: _part(arrays[read.array], read, origin, shapes[name])
            for name, read in (*blocks.arrays, (target.array, target))
            if name in shapes
        }
        self.write(blocks.kinds[kind], parts, parts[target.array])


def _of_one_thread(writer: StatementWriter) -> StatementWriter:
    """Return what writes for one of several busy threads, to the same tasks."""
    return StatementWriter(
        divide_machine(writer.machine, writer.threads),
        1,
        writer.params,
        writer.behind,
        writer.codes,
        writer.tasks,
        writer.factors,
    )


def _computed_shape(choice: NestChoice) -> tuple[int, ...]:
    """Return the shape of what a statement computes of its array, from the first element on."""
    sizes = choice.computation.sizes
    return tuple(sizes[letter] for letter in choice.statement.output)


def _part(array: Located, read: Read, origin: Mapping[str, int], shape: Sequence[int]) -> Located:
    """Return the part of an array that a block has, given the element and its first letters."""
    firsts = [one.at(origin) for one in read.subscripts if isinstance(one, Affine)]
    return array.part(firsts, shape)


def compute_factor(term: Term, params: Mapping[str, float]) -> float:
    """Return the value of a product of numbers and parameters.

    Examples
    --------
    >>> compute_factor(2 * Param("a"), {"a": 1.5})
    3.0
    """
    match term:
        case Number(value=value):
            return float(value)
        case Param(name=name):
            return float(params[name])
        case Apply(name=name, arguments=arguments):
            given = (compute_factor(one, params) for one in arguments)
            return float(OPERATIONS[name].function(*given))
    raise PlanError(f"{term} is no factor of numbers and parameters")


def _call_plan(
    plan: Plan,
    tensors: tuple[Located, Located, Located],
    alpha: Term,
    beta: Term,
    view: View,
    params: Mapping[str, float],
) -> None:
    """Run a plan whose threads divide the sum, and add up what they found."""
    out, first, second = map(view, tensors)
    scale, kept = (compute_factor(one, params) for one in (alpha, beta))
    plan(first, second, out, alpha=scale, beta=kept)


def _call_transpose(
    target: Located, source: Located, threads: int, view: View, _: Mapping[str, float]
) -> None:
    """Copy a large array: how depends on where it begins."""
    transpose(view(source), range(len(source.shape)), view(target), threads=threads)
