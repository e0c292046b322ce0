"""What a call of a nest does, for arrays that lie in some way: instructions for all statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.cover import fills_shape, whole_parts
from tilesolve.contractions.statements.operations import OPERATIONS, is_complex
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Apply, Number, Param, Read, Term
from tilesolve.kernels.programs.compiled_program import CompiledProgram, plan_program
from tilesolve.kernels.programs.layout import Layout
from tilesolve.nests.band_steps import BandStep
from tilesolve.nests.block_tasks import Place
from tilesolve.nests.calls import leaves_elements
from tilesolve.nests.loop_choice import choose_loops
from tilesolve.nests.merged_rows import merge_rows
from tilesolve.nests.solutions import (
    BandSolution,
    BlockSolution,
    ContractionSolution,
    FusedSolution,
    LoopSolution,
    MoveSolution,
    NestSolution,
)
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
from tilesolve.transposes.solution import choose_stores
from tilesolve.transposes.transpose import transpose
from tilesolve.transposes.walk_setup import walk_between

Codes = dict[tuple[int, bool, Layout], CompiledProgram]
"""Code of programs by their solution, whether rows are as it has them, and the arrays' layout."""


@dataclass(slots=True)
class StatementWriter:
    """Writes what computes statements.

    Parameters
    ----------
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
    parts
        Parts of products, by their plan and the strides.
    """

    params: Mapping[str, Operand]
    behind: int
    codes: Codes
    tasks: TaskWriter = field(default_factory=TaskWriter)
    factors: dict[Term, Operand] = field(default_factory=dict)
    parts: dict[tuple[object, ...], list[Task]] = field(default_factory=dict)

    def write(
        self,
        solutions: Sequence[NestSolution],
        arrays: Mapping[str, Located],
        outs: Mapping[str, Located],
    ) -> None:
        """Write statements; `outs` are the arrays that are given for what they compute.

        What is updated there is copied before, unless it lies there. No other array that is given
        changes: where a statement updates one, it updates a copy.
        """
        known, targets = dict(arrays), dict(outs)
        for at, one in enumerate(solutions):
            computation = one.computation
            for stage in computation.stages:
                info = computation.array(stage.name)
                if info.name not in computation.outputs:
                    continue
                own, given = known.get(info.name), info.name in targets
                if not given:
                    targets[info.name] = self.tasks.add_array(info.shape, info.dtype)
                target = known[info.name] = targets[info.name]
                if own is not None and own != target and all(info.shape):
                    self._copy(target, own, one.request.threads)
                elif own is None and not given and not _is_filled(solutions[at:], stage):
                    self.tasks.write_stage([partial(self.tasks.clear, target)])
            if all(computation.output.shape):
                self._write_statement(one, known)

    def _write_statement(self, solution: NestSolution, arrays: Mapping[str, Located]) -> None:
        """Write one statement."""
        match solution:
            case BandSolution():
                self._write_bands(solution, arrays)
            case BlockSolution():
                self._write_blocks(solution, arrays)
            case ContractionSolution():
                self._write_contraction(solution, arrays)
            case MoveSolution():
                self._write_move(solution, arrays)
            case LoopSolution() | FusedSolution():
                self._write_loops(solution, arrays)

    def _write_loops(
        self, solution: LoopSolution | FusedSolution, arrays: Mapping[str, Located]
    ) -> None:
        kept = solution.placed if isinstance(solution, FusedSolution) else {}
        given = {
            info.name: arrays.get(info.name) or self.tasks.add_array(info.shape, info.dtype)
            for info in solution.computation.arrays
            if info.name in arrays or info.name not in kept
        }
        runs, given = _merge_rows(solution, given)
        key = id(solution), runs is solution, Layout.of(given)
        if key not in self.codes:
            self.codes[key] = plan_program(runs.program, key[2])
        code = self.codes[key]
        told = replace(code, program=solution.program)  # as its users know it
        for phase, divided in enumerate(code.divided):
            parts = solution.request.threads if divided else 1
            self.tasks.write_stage(
                partial(
                    self.tasks.run_program, code, phase, (part, parts), given, self.params, told
                )
                for part in range(parts)
            )

    def _write_contraction(
        self, solution: ContractionSolution, arrays: Mapping[str, Located]
    ) -> None:
        contraction = solution.contraction
        target = arrays[solution.statement.name].first(_computed_shape(solution))
        beta: Term = Number(0) if contraction.beta is None else contraction.beta
        for product, plan in zip(contraction.products, solution.plans, strict=True):
            first, second = (
                _operand(arrays[read.array], read, plan.problem.shape(at))
                for at, read in enumerate(product.reads, 1)
            )
            alpha = Number(1) if product.alpha is None else product.alpha
            chain = plan.epilogue.shapes(plan.problem) if plan.epilogue else []
            operands = [
                _operand(arrays[read.array], read, shape)
                for read, shape in zip(contraction.operands, chain, strict=False)
            ]
            self._write_product(plan, (target, first, second), (alpha, beta), operands)
            beta = Number(1)

    def _write_product(
        self,
        plan: Plan,
        tensors: tuple[Located, Located, Located],
        factors: tuple[Term, Term],
        operands: Sequence[Located],
    ) -> None:
        solution = plan.executor.solution
        if solution.partial_outputs:
            self.tasks.write_job(partial(_call_plan, plan, tensors, factors, operands))
            return
        strides = tuple(one.strides for one in tensors)
        chain = solution.epilogue.operands if solution.epilogue else []
        others = [
            dict(zip(letters, one.strides, strict=True))
            for letters, one in zip(chain, operands, strict=True)
        ]
        key = id(plan), strides, tuple(one.strides for one in operands)
        if key not in self.parts:
            self.parts[key] = [
                Task.of(solution, *part, strides, operands=others) for part in solution.parts
            ]
        words = [word for one in factors for word in self._factor(one)]
        self.tasks.write_stage(
            partial(self.tasks.run_product, task, tensors, words, operands)
            for task in self.parts[key]
        )

    def _factor(self, term: Term) -> tuple[Operand, Operand]:
        """Return the parts of what multiplies a contraction, as words of doubles."""
        if not any(isinstance(one, Number) and is_complex(type(one.value)) for one in term.all):
            return self._word(term), constant_double(0.0)
        return self._word(Apply("real", (term,))), self._word(Apply("imag", (term,)))

    def _word(self, term: Term) -> Operand:
        """Return a real factor as the word of a double."""
        if not term.params:
            return constant_double(compute_factor(term, {}).real)
        return self.factors.setdefault(term, (self.behind + len(self.factors), 0))

    def _write_move(self, solution: MoveSolution, arrays: Mapping[str, Located]) -> None:
        source = arrays[solution.statement.reads[0].array].transpose(solution.axes)
        target = arrays[solution.statement.name].first(_computed_shape(solution))
        threads = solution.request.threads
        streamed, _ = choose_stores(target.nbytes, limits_in_force())
        if streamed:  # alignment decides how
            self.tasks.write_job(partial(_call_transpose, target, source, threads))
        else:
            self._copy(target, source, threads)

    def _copy(self, target: Located, source: Located, threads: int) -> None:
        """Write a copy of an array to another one."""
        limits = limits_in_force()
        streamed, held = choose_stores(target.nbytes, limits)
        walk = walk_between(
            target.shape,
            target.strides,
            source.strides,
            target.itemsize,
            threads,
            limits,
            streamed=streamed,
            held=held,
        )
        self.tasks.write_stage(
            partial(self.tasks.run_move, walk, part, target, source) for part in walk.parts
        )

    def _write_bands(self, solution: BandSolution, arrays: Mapping[str, Located]) -> None:
        """Write the strips of bands: each is a task, with buffers of its own."""

        def write_strip(steps: Sequence[BandStep]) -> None:
            known = dict(arrays)
            for buffer in solution.buffers:
                info = solution.computation.array(buffer.array)
                shape = list(info.shape)
                shape[buffer.axis] = buffer.rows
                known[info.name] = self.tasks.add_array(tuple(shape), info.dtype)
            kept = self.tasks.own_taken
            for step in steps:
                self.tasks.forget_arrays(kept)
                self._write_step(solution, step, known)

        self.tasks.write_stage(partial(write_strip, strip) for strip in solution.strips)

    def _write_step(
        self, solution: BandSolution, step: BandStep, arrays: Mapping[str, Located]
    ) -> None:
        kind = solution.kinds[step.kind]
        infos = {info.name: info for one in kind for info in one.computation.arrays}
        given, outs = dict[str, Located](), dict[str, Located]()
        made = {name for one in kind for name in one.computation.outputs}
        for own, name, axis, first in step.arrays:
            shape = infos[own].shape
            firsts = [first if at == axis else 0 for at, _ in enumerate(shape)]
            (outs if own in made else given)[own] = arrays[name].part(firsts, shape)
        self.write(kind, given, outs)

    def _write_blocks(self, solution: BlockSolution, arrays: Mapping[str, Located]) -> None:
        """Write the blocks of a region: as tasks, or one after another."""
        for place in solution.places[: solution.begun]:
            self._write_block(solution, place, arrays)

        def write_task(group: Sequence[Place]) -> None:
            for place in group:
                self.tasks.forget_arrays()
                self._write_block(solution, place, arrays)

        if solution.apart:
            self.tasks.write_stage(partial(write_task, group) for group in solution.tasks)
            return
        for place in (one for group in solution.tasks for one in group):
            self._write_block(solution, place, arrays)

    def _write_block(
        self, solution: BlockSolution, place: Place, arrays: Mapping[str, Located]
    ) -> None:
        kind, origin = place
        target, block = solution.statement.target, solution.kinds[kind]
        shapes = {info.name: info.shape for one in block for info in one.computation.arrays}
        parts = {
            name: _part(arrays[read.array], read, origin, shapes[name])
            for name, read in (*solution.arrays.items(), (target.array, target))
            if name in shapes
        }
        self.write(block, parts, {target.array: parts[target.array]})


def _merge_rows(
    solution: LoopSolution | FusedSolution, arrays: dict[str, Located]
) -> tuple[LoopSolution | FusedSolution, dict[str, Located]]:
    """Return the same with one row in place of several, where these lie one behind another."""
    request = solution.request
    if isinstance(solution, FusedSolution) or request.mode != "default":
        return solution, arrays
    merged = merge_rows(solution.computation, request.lanes)
    rows = None if merged is None else merged.lay(arrays)
    if merged is None or rows is None:
        return solution, arrays
    return choose_loops(replace(request, computation=merged.computation)), rows


def _is_filled(solutions: Sequence[NestSolution], stage: Stage) -> bool:
    """Return whether a stage of the first one, and those behind that add parts, fill its array."""
    computation = solutions[0].computation
    if not leaves_elements(computation, stage):
        return True
    parts, info = [], computation.array(stage.name)
    for one in solutions:
        stages = one.computation.stages
        others = (
            x.name != info.name or info.name in (read.array for read in x.reads) for x in stages
        )
        if any(others):
            break
        parts += whole_parts(stages, one.computation.sizes)
    return fills_shape(parts, info.shape)


def _computed_shape(solution: NestSolution) -> tuple[int, ...]:
    """Return the shape of what a statement computes of its array, from the first element on."""
    sizes = solution.computation.sizes
    return tuple(sizes[letter] for letter in solution.statement.output)


def _part(array: Located, read: Read, origin: Mapping[str, int], shape: Sequence[int]) -> Located:
    """Return the part of an array that a block has, given the element and its first letters."""
    firsts = [one.at(origin) for one in read.subscripts if isinstance(one, Affine)]
    return array.part(firsts, shape)


def _operand(array: Located, read: Read, shape: Sequence[int]) -> Located:
    """Return what a contraction reads of an array: from the first element on, as far as needed."""
    places = [one for one in read.subscripts if isinstance(one, Affine)]
    moved = [axis for axis, one in enumerate(places) if one.terms]
    sides = dict(zip(moved, shape, strict=True))
    whole = [sides.get(axis, 1) for axis, _ in enumerate(places)]
    return array.part([one.offset for one in places], whole).transpose(moved)


def compute_factor(term: Term, params: Mapping[str, float]) -> complex:
    """Return the value of a product of numbers and parameters.

    Examples
    --------
    >>> compute_factor(2 * Param("a"), {"a": 1.5})
    3.0
    """
    match term:
        case Number(value=value):
            return value if isinstance(value, complex) else float(value)
        case Param(name=name):
            return float(params[name])
        case Apply(name=name, arguments=arguments):
            given = (compute_factor(one, params) for one in arguments)
            found: complex = np.asarray(OPERATIONS[name].function(*given)).item()
            return found
    raise PlanError(f"{term} is no factor of numbers and parameters")


def _call_plan(
    plan: Plan,
    tensors: tuple[Located, Located, Located],
    factors: tuple[Term, Term],
    operands: Sequence[Located],
    view: View,
    params: Mapping[str, float],
) -> None:
    """Run a plan whose threads divide the sum, and add up what they found."""
    out, first, second = map(view, tensors)
    alpha, beta = (compute_factor(one, params) for one in factors)
    plan(first, second, out, alpha=alpha, beta=beta, operands=list(map(view, operands)))


def _call_transpose(
    target: Located, source: Located, threads: int, view: View, _: Mapping[str, float]
) -> None:
    """Copy a large array: how depends on where it begins."""
    transpose(view(source), range(len(source.shape)), view(target), threads=threads)
