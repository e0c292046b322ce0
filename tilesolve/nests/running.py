"""Running nests: a call does what was written down for arrays that lie like its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.constants.policy import BRIEF_SECONDS, LONG_SECONDS
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.terms import Term
from tilesolve.kernels.programs.compiled_program import CompiledProgram
from tilesolve.kernels.runtime import task_fields as fields
from tilesolve.kernels.runtime.fast_call import describe_number
from tilesolve.kernels.runtime.task_list import run_all, run_stages, run_with_team
from tilesolve.nests.call_tasks import Codes, StatementWriter, compute_factor
from tilesolve.nests.calls import Array, Call, Out, Params, Signature
from tilesolve.nests.solved import SolvedNest
from tilesolve.nests.stage_team import Gate, StageTeam
from tilesolve.nests.task_writer import Located, TaskStage, TaskWriter
from tilesolve.packing.buffers import workspace
from tilesolve.packing.memory_overlap import address_range, same_elements
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import ALIGNMENT_BYTES, WORD_BYTES
from tilesolve.running.repeat_call import RepeatCall
from tilesolve.system.cancellation import CANCEL_ADDRESS, stop_address
from tilesolve.system.result_buffers import new_result
from tilesolve.system.workers import run_together

MOST_LAYOUTS = 8
"""Layouts of arrays whose tasks a nest keeps in memory."""


@dataclass(slots=True, eq=False)
class NestLayout:
    """What a call does with arrays that lie in some way.

    Parameters
    ----------
    stages
        One after another.
    words
        All instructions.
    begins, address
        The address of each task, and where the last one ends; and the address of these.
    tasks
        What they were written from.
    factors
        What calls compute from their parameters, behind these.
    team
        How threads run the stages; calls run with copies.
    recent
        How to tell such arrays again, once there were some; None where Python has to look.
    """

    stages: tuple[TaskStage, ...]
    words: Integers
    begins: Integers
    address: int
    tasks: TaskWriter
    factors: tuple[Term, ...]
    team: StageTeam
    recent: RepeatCall | None = None

    @classmethod
    def of(cls, tasks: TaskWriter, factors: Sequence[Term], *, merge: bool) -> NestLayout:
        """Return what was written, with stages as one where a single thread runs all tasks."""
        tasks.link()
        words = np.array(tasks.words, np.int64)
        begins = np.array([*tasks.begins, len(words)], np.int64)
        stages = tuple(tasks.stages)
        if merge and stages and all(one.job is None for one in stages):
            stages = (TaskStage(0, len(tasks.begins)),)
        where = words.ctypes.data + WORD_BYTES * begins
        team = StageTeam.of(stages, where.ctypes.data)
        return cls(stages, words, where, where.ctypes.data, tasks, tuple(factors), team)

    def list_runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last stage of those that need no Python; others by themselves."""
        first = 0
        for at, stage in enumerate(self.stages):
            if stage.job is not None:
                if first < at:
                    yield first, at
                yield at, at + 1
                first = at + 1
        if first < len(self.stages):
            yield first, len(self.stages)

    def program_at(self, address: int) -> CompiledProgram:
        """Return the program that an instruction runs."""
        return self.tasks.checked[(address - self.words.ctypes.data) // WORD_BYTES]


class NestRunner:
    """Runs the solutions of a computation, and keeps what strides of arrays decide.

    Parameters
    ----------
    solution
        How each statement is computed, and by whom.

    Attributes
    ----------
    signature
        What calls take.
    quick
        How to tell a call like a recent one where nothing else is to be done for it: of a single
        result, and without numbers that calls compute.
    """

    quick: RepeatCall | None

    def __init__(self, solution: SolvedNest) -> None:
        self.computation, self.threads = solution.request.computation, solution.threads
        self.solutions = solution.solutions
        self.signature = Signature.of(self.computation)
        self._seconds = solution.seconds
        self._long = self._seconds >= LONG_SECONDS
        self._codes: Codes = {}
        self._layouts: dict[tuple[object, ...], NestLayout] = {}
        self._makers = self.signature.output_makers()
        self.quick = None
        self._known: tuple[RepeatCall, ...] = ()
        self._factors: tuple[Term, ...] = ()
        self._helpers = 0

    def compute(
        self, arrays: Sequence[npt.ArrayLike], named: Mapping[str, Any], out: Out | None
    ) -> Out:
        """Compute a call, given what users give; see `NestPlan.__call__`."""
        if self._known:
            done = self.repeat(arrays, named, out)
            if done is not None:
                return done
        call = self.signature.read(arrays, named, out)
        self._run(call)
        if len(call.targets) > 1:
            return call.targets if out is None else call.outs
        return call.targets[0] if out is None else out

    def repeat(
        self, arrays: Sequence[object], named: Mapping[str, Any], out: Out | None
    ) -> Out | None:
        """Return what a call gives if it is like one before; None if Python has to look at it."""
        numbers: Sequence[object] = ()
        if named or self._factors:
            given = self.signature.line_up(arrays, named)
            if given is None:
                return None
            arrays, numbers = given
        if self._factors:
            params = self.signature.read_params(named)
            values = (compute_factor(one, params) for one in self._factors)
            numbers = [*params.values(), *values]
        outs: Any = tuple(new() for new in self._makers) if out is None else out
        if out is not None and len(self._makers) == 1:
            outs = (out,)
        elif not isinstance(outs, tuple | list):
            return None
        done = self._call_known(self._known, numbers, (*outs, *arrays))
        return outs[0] if done and len(outs) == 1 else tuple(outs) if done else None

    def _call_known(
        self, known: Sequence[RepeatCall], numbers: Sequence[object], arrays: Sequence[object]
    ) -> bool:
        """Return whether a call is like one of some before, which has computed it then."""
        gate, size = None, max((one.needs_bytes for one in known), default=0)
        memory = workspace(size) if size else None
        if self.threads > 1:
            gate = Gate(self._helpers, max((one.workspace_bytes for one in known), default=0))
            numbers = [*numbers, gate.address]
        given = (*numbers, memory and memory.bytes, *arrays)
        done = any(one.call(*given) is not None for one in known)
        if gate is not None and not done:
            gate.close()
        return done

    def load(
        self, arrays: Sequence[npt.ArrayLike], named: Mapping[str, Any], out: Out | None
    ) -> None:
        """Compile all that a call runs; arguments are those of `compute`."""
        self._find_layout(self.signature.read(arrays, named, out))

    def _find_layout(self, call: Call) -> NestLayout:
        """Return what is done for arrays like those of a call."""
        placed, shapes = _placed(self, call), [one.shape for one in call.outs]
        key = (placed, *shapes, *[one.strides for one in (*call.targets, *call.held.values())])
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= MOST_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[key] = self._lay_out(call, placed)
        return layout

    def _run(self, call: Call) -> None:
        """Compute a call whose arrays and parameters have been checked."""
        layout = self._find_layout(call)
        arrays = (*call.outs, *call.held.values())
        self._run_stages(layout, self._fill_slots(layout, arrays, call.params), call.params)
        if layout.recent is None and not self._long:
            layout.recent = self._remember(layout, arrays, len(call.outs))
            known = [one.recent for one in self._layouts.values()]
            self._known = tuple(one for one in known if one is not None)
            self._factors = layout.factors
            others = self.threads > 1 or layout.factors or len(call.outs) > 1
            if layout.recent and not others:
                self.quick = layout.recent

    def _lay_out(self, call: Call, placed: Sequence[str]) -> NestLayout:
        """Write down what is done for arrays like those of a call, some of which are results."""
        located = [
            Located(fields.GIVEN + at, 0, array.shape, array.strides, array.dtype)
            for at, array in enumerate((*call.targets, *call.held.values()))
        ]
        return self._lay_out_located(call, located, fields.GIVEN + len(located), placed)

    def _lay_out_located(
        self, call: Call, located: Sequence[Located], first: int, placed: Sequence[str]
    ) -> NestLayout:
        """Write down the same, given where all arrays lie and the first slot behind theirs."""
        names = [name for name, _ in self.computation.params]
        params = {name: (first + at, 0) for at, name in enumerate(names)}
        writer = StatementWriter(params, first + len(names), self._codes)
        self._write(writer, call, located, placed)
        return NestLayout.of(writer.tasks, tuple(writer.factors), merge=self.threads == 1)

    def _write(
        self, writer: StatementWriter, call: Call, located: Sequence[Located], placed: Sequence[str]
    ) -> None:
        """Write all statements, given where results and inputs lie."""
        count = len(call.targets)
        outs = dict(zip(self.computation.outputs, located[:count], strict=True))
        arrays = dict(zip(call.held, located[count:], strict=True))
        arrays |= {name: outs[name] for name in placed}
        writer.write(self.solutions, arrays, outs)

    def write_call(self, tasks: TaskWriter, arrays: Sequence[Array], out: Out) -> None:
        """Write down a call on arrays that stay where they are; it takes no numbers."""
        call = self.signature.read(arrays, {}, out)
        given = (*call.targets, *call.held.values())
        located = [Located.fixed(one) for one in given]
        tasks.kept.append(given)
        self._write(StatementWriter({}, 0, self._codes, tasks), call, located, _placed(self, call))

    def _remember(
        self, layout: NestLayout, arrays: Sequence[Array], outputs: int
    ) -> RepeatCall | None:
        """Return how to tell arrays like those of a call, if compiled code does all."""
        if any(one.job is not None for one in layout.stages):
            return None
        numbers = [describe_number(dtype) for _, dtype in self.computation.params]
        numbers += [describe_number("float64") for _ in layout.factors]
        tasks, sizes, team = layout.tasks, [0] * fields.TOLD_WORDS, layout.team
        sizes[fields.TASKS] = layout.address
        sizes[fields.TASK_COUNT] = len(layout.begins) - 1
        sizes[fields.STOP_ADDRESS] = CANCEL_ADDRESS
        shared = round_up(WORD_BYTES * (fields.GIVEN + len(arrays) + len(numbers)))
        count = team.count(self.threads)
        code, begun = run_all, team.describe(count)
        self._helpers = max(self._helpers, count - 1)
        if self.threads > 1:
            code, numbers = run_with_team, [*numbers, describe_number("int64")]
            sizes[fields.TEAM], sizes[fields.TEAM_BYTES] = begun.ctypes.data, shared
            sizes[fields.STAGES], sizes[fields.MARKS] = len(layout.stages), len(team.marks)
            shared += round_up(WORD_BYTES * (len(begun) + len(team.marks)))
        own = shared + round_up(tasks.shared_bytes)
        scratch = own + round_up(tasks.own_bytes)
        sizes[fields.SHARED_BYTES], sizes[fields.OWN_BYTES] = shared, own
        sizes[fields.SCRATCH_BYTES] = scratch
        sizes[fields.ARRAY_COUNT] = len(arrays)
        sizes[fields.NUMBER_COUNT] = len(numbers) - (self.threads > 1)
        told = np.array(sizes, np.int64)
        size = scratch + tasks.scratch_bytes
        kept = (layout.words, layout.begins, tasks.kept, tasks.checked, begun)
        given = told, arrays, numbers, size, kept, outputs
        names = [name for name, _ in self.computation.params]
        brief = self.threads == 1 and self._seconds < BRIEF_SECONDS
        return RepeatCall.of(code, *given, brief=brief, new=self._makers[0], names=names)

    def bind(self, arrays: Sequence[Array], out: Out) -> Callable[[], None]:
        """Return what computes a call again and again; see `NestPlan.bind`.

        All arrays are where they were, as seen from what results span: compiled code is given that.
        """
        call = self.signature.read(arrays, {}, out)
        ends = [address_range(one) for one in call.targets]
        low, high = min(begin for begin, _ in ends), max(end for _, end in ends)
        spanned = Located(fields.ZERO, low, (high - low,), (1,), np.dtype(np.uint8))
        span: Array = np.asarray(_Memory(low, spanned))
        located = [
            Located(fields.GIVEN, one.ctypes.data - low, one.shape, one.strides, one.dtype)
            for one in (*call.targets, *call.held.values())
        ]
        layout = self._lay_out_located(call, located, fields.GIVEN + 1, ())
        recent = None if self._long else self._remember(layout, [span], 1)

        def run() -> None:
            if recent is not None and self._call_known((recent,), (), (span,)):
                return
            self._run_stages(layout, self._fill_slots(layout, [span], call.params), call.params)

        return run

    def _fill_slots(
        self, layout: NestLayout, arrays: Sequence[Array], params: Params
    ) -> tuple[Integers, Array]:
        """Return where all lies that a call uses, and the memory that its threads share."""
        places = [array.ctypes.data for array in arrays]
        numbers = _number_words(self.computation, params, layout.factors)
        slots = np.array([*[0] * fields.GIVEN, *places, *numbers], np.int64)
        size = layout.tasks.shared_bytes
        shared: Array = new_result((size,), np.dtype(np.uint8)) if size else slots
        slots[fields.SHARED] = shared.ctypes.data
        return slots, shared

    def _run_stages(
        self, layout: NestLayout, filled: tuple[Integers, Array], params: Params
    ) -> None:
        """Run all tasks, by as many threads as there are, given what `_fill_slots` returns."""
        slots, _ = filled
        team = layout.team.copy()
        for first, last in layout.list_runs():
            job = layout.stages[first].job
            if job is not None:
                job(partial(view_located, slots), params)
                continue
            count = team.begin(first, last, self.threads)
            jobs = [
                partial(run_part, layout, team, (first, last), own, slots.copy())
                for own in range(count)
            ]
            run_together(jobs, long=self._long)


def run_part(
    layout: NestLayout, team: StageTeam, part: tuple[int, int], own: int, slots: Integers
) -> None:
    """Run stages, from one to the one before another, as the thread of a number.

    It has slots of its own.
    """
    tasks, (first, last) = layout.tasks, part
    scratch = round_up(tasks.own_bytes)
    memory = workspace(scratch + tasks.scratch_bytes)
    slots[fields.OWN], slots[fields.SCRATCH] = memory.address, memory.address + scratch
    slots[fields.STOP] = stop_address()
    failed = run_stages(
        team.table[first:].ctypes.data,
        last - first,
        *(own, team.words.ctypes.data, slots.ctypes.data),
    )
    if failed:
        number, position = slots[fields.FAILED : fields.FAILED + 2].tolist()
        raise layout.program_at(failed).find_error(number, position)


def _number_words(computation: Computation, params: Params, factors: Sequence[Term]) -> list[int]:
    """Return the words of all parameters, and of factors of contractions."""
    values = [np.array(params[name], dtype) for name, dtype in computation.params]
    values += [np.array(compute_factor(one, params)) for one in factors]
    words = (value.tobytes().ljust(WORD_BYTES, b"\0") for value in values)
    return [int.from_bytes(word, sys.byteorder, signed=True) for word in words]


def _placed(runner: NestRunner, call: Call) -> tuple[str, ...]:
    """Return the inputs that lie where results of the same name go."""
    return tuple(
        info.name
        for info, target in zip(runner.signature.outputs, call.targets, strict=True)
        if info.name in call.held and same_elements(call.held[info.name], target)
    )


def view_located(slots: Integers, place: Located) -> Array:
    """Return an array of a call, which lives as long as the call."""
    found: Array = np.asarray(_Memory(int(slots[place.slot]) + place.offset, place))
    return found


class _Memory:
    """Elements at an address, as NumPy takes them."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, place: Located) -> None:
        self.__array_interface__: Mapping[str, Any] = {
            "version": 3,
            "data": (address, False),
            "typestr": place.dtype.str,
            "shape": place.shape,
            "strides": place.strides,
        }


def round_up(size: int) -> int:
    """Return bytes up to the next place where memory of threads begins."""
    return size + -size % ALIGNMENT_BYTES
