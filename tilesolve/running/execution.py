"""Running solutions: what is checked, which memory is used, and who computes which part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import prod
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilesolve.constants import policy
from tilesolve.constants.tuning import MAX_LAYOUT_BYTES
from tilesolve.contractions.arrays import read_array, view_output
from tilesolve.contractions.errors import DtypeError, PlanError, SizeError
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.contractions.problem import Problem
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.offsets import Integers
from tilesolve.packing.sizes import LINE_BYTES
from tilesolve.planning.solution import Solution
from tilesolve.running.addition import Addition
from tilesolve.running.array_bytes import sum_array_bytes
from tilesolve.running.prepared import Prepared
from tilesolve.running.repeat_call import Argument, RepeatCall
from tilesolve.running.task import Task, Visit
from tilesolve.system.checks import check_apart, check_dtype, check_output, check_writable
from tilesolve.system.result_buffers import new_result
from tilesolve.system.workers import run_together

_CALLS = count(1)


@dataclass(slots=True, eq=False)
class Layout:
    """What is done for arrays of given shapes, strides and dtypes, which have been checked.

    Parameters
    ----------
    shape, dtype
        Of the output.
    tasks
        What each thread does; nothing if the output is empty.
    addition
        How the parts of a sum that threads divide are added; None if each writes its part of C.
    recent
        How to tell such arrays again, once there were some.
    used
        The number of the last call that needed it, among all calls.
    nbytes
        Bytes of the tables.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    tasks: list[Task]
    addition: Addition | None = None
    recent: RepeatCall | None = None
    used: int = 0
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.nbytes = sum_array_bytes(self.tasks)

    @classmethod
    def of(
        cls,
        solution: Solution,
        first: Array,
        second: Array,
        out: Array | None,
        prepared: Sequence[Prepared] = (),
        operands: Sequence[Array] = (),
    ) -> Self:
        """Check what the arrays alone tell and work out the tasks."""
        problem = solution.problem
        _check_count(problem)
        problem.check_operands(first, second)
        text, shape, dtype = str(problem.spec), problem.shapes[0], array_dtype(problem.dtype)
        for name, array in zip(problem.spec.names[1:], (first, second), strict=True):
            check_dtype(array, f"operand {name} of {text!r}", dtype)
        if out is None:
            steps = np.empty(shape, dtype).strides
        else:
            letters = "".join(problem.spec.output.letters)
            check_output(out, f"out of {text!r}", shape, letters=letters, dtype=dtype)
            steps = out.strides
        strides = (steps, first.strides, second.strides)
        if not prod(shape):
            return cls(shape, dtype, [])
        ready = [one.operand for one in prepared]
        chain = solution.epilogue.operands if solution.epilogue else []
        others = [
            dict(zip(letters, array.strides, strict=True))
            for letters, array in zip(chain, operands, strict=True)
        ]
        addition, written = None, [strides] * len(solution.parts)
        place = 0 if out is None or solution.partial_outputs else out.ctypes.data % LINE_BYTES
        if solution.partial_outputs:
            like = steps if out is None else np.empty_like(out, subok=False).strides
            given = [array.strides for array in operands]
            addition = Addition.of(solution, steps, like, given)
            written[1:] = [(like, *strides[1:])] * solution.partial_outputs
            solution, others = replace(solution, epilogue=None), []
        tasks = [
            Task.of(solution, *part, of, ready, others, place)
            for part, of in zip(solution.parts, written, strict=True)
        ]
        for one in prepared:
            for task in tasks:
                one.use_in(task)
        return cls(shape, dtype, tasks, addition)

    def another(self, prepared: Sequence[Prepared]) -> Self:
        """Return the same for other prepared operands."""
        tasks = [task.another() for task in self.tasks]
        for one in prepared:
            for task in tasks:
                one.use_in(task)
        return replace(self, tasks=tasks, recent=None)

    def run_tasks(
        self,
        arrays: Sequence[Array],
        alpha: complex,
        beta: complex,
        places: Integers | None,
        *,
        long: bool,
    ) -> None:
        """Compute with several threads, given the addresses of the epilogue's operands."""
        out, *operands = arrays
        if self.addition is None:
            jobs = [partial(task.run, arrays, alpha, beta, places) for task in self.tasks]
            run_together(jobs, long=long)
            return
        parts = self.addition.allocate(out)
        first, *others = self.tasks
        jobs = [partial(first.run, arrays, alpha, beta)]
        for task, part in zip(others, parts, strict=True):
            jobs.append(partial(task.run, (part, *operands), alpha, 0.0))
        run_together(jobs, long=long)
        self.addition.add(out, parts, places)


class Executor:
    """Runs a solution, and keeps what shapes, strides and dtypes of arrays decide.

    That is worked out when they come for the first time; a call with the same ones again only
    looks at where the arrays are. Arrays like those of the last call are known to `recent`.

    Parameters
    ----------
    solution
        What is run.

    Attributes
    ----------
    long
        Whether a call takes so long that the main thread has to hear interrupts meanwhile.
    shapes
        Of the epilogue's operands.
    """

    __slots__ = ("layouts", "long", "recent", "shapes", "solution")

    def __init__(self, solution: Solution) -> None:
        self.solution = solution
        self.long = solution.seconds >= policy.LONG_SECONDS
        self.layouts: dict[tuple[Any, ...], Layout] = {}
        self.recent: RepeatCall | None = None
        epilogue = solution.epilogue
        self.shapes = epilogue.shapes(solution.problem) if epilogue else []

    def run(
        self,
        first: npt.ArrayLike | Prepared,
        second: npt.ArrayLike | Prepared,
        out: Array | None,
        alpha: complex,
        beta: complex,
        operands: Sequence[npt.ArrayLike] = (),
    ) -> Array:
        """Compute ``alpha * contraction + beta * out``; see `Plan.__call__`."""
        problem = self.solution.problem
        if out is not None and not isinstance(out, np.ndarray):
            given = view_output(out, _name_of_output(problem))
            self.run(first, second, given, alpha, beta, operands)
            return out
        prepared: tuple[Prepared, ...] = ()
        if type(first) is not np.ndarray or type(second) is not np.ndarray:
            prepared = self._find_prepared(first, second)
            first, second = (
                one.array if isinstance(one, Prepared) else one for one in (first, second)
            )
            if type(first) is not np.ndarray or type(second) is not np.ndarray:
                first, second = _as_operands(problem, first, second)
        if type(alpha) is not float:
            alpha = read_factor(problem, "alpha", alpha)
        if type(beta) is not float:
            beta = read_factor(problem, "beta", beta)
        others = self._check_operands(operands)
        layout = self._layout(first, second, out, prepared, others)
        if out is None:
            if beta:
                raise PlanError(f"beta is {beta}: there is no out to multiply by it")
            out = new_result(layout.shape, layout.dtype)
        elif np.may_share_memory(out, first) or np.may_share_memory(out, second):
            names = (f"operand {name}" for name in problem.spec.names[1:])
            given = dict(zip(names, (first, second), strict=True))
            check_apart(out, _name_of_output(problem), given)
        places = None
        if others:
            if any(np.may_share_memory(out, array) for array in others):
                check_apart(out, _name_of_output(problem), self._named(others))
            places = np.array([array.ctypes.data for array in others], np.int64)
        tasks, arrays = layout.tasks, (out, first, second)
        if len(tasks) > 1 or (tasks and self.long):
            layout.run_tasks(arrays, alpha, beta, places, long=self.long)
        elif tasks:
            tasks[0].run(arrays, alpha, beta, places)
            if not (prepared or others or tasks[0].schedule.block):
                if layout.recent is None:
                    told = Argument(out, out), (Argument(first, first), Argument(second, second))
                    layout.recent = RepeatCall.of_contraction(tasks[0], *told)
                self.recent = layout.recent
        return out

    def recall(
        self,
        out: Argument,
        first: Argument,
        second: Prepared,
        others: Sequence[Argument],
    ) -> RepeatCall | None:
        """Return what computes at once for calls like one that has run; None if nothing can."""
        layout = self._layout(
            first.view, second.array, out.view, (second,), tuple(one.view for one in others)
        )
        if len(layout.tasks) != 1 or layout.tasks[0].schedule.block or self.long:
            return None  # sums of halves lie in no array; compiled code hears no interrupts
        return RepeatCall.of_contraction(
            layout.tasks[0], out, (first, Argument(second.array)), others, kept=(second,)
        )

    def list_tasks(
        self, out: Array, first: Array, second: Prepared, others: Sequence[Array]
    ) -> list[Task] | None:
        """Return what threads do in a call; None if that is not all, or sums lie elsewhere."""
        layout = self._layout(first, second.like, out, (second,), tuple(others))
        if layout.addition is not None or any(one.schedule.block for one in layout.tasks):
            return None
        return layout.tasks

    def prepare(self, operand: str, array: npt.ArrayLike) -> Prepared:
        """Return an operand with the micro-panels that calls with arrays in C order read."""
        found, problem = self.hold(operand, array), self.solution.problem
        dtype = array_dtype(problem.dtype)
        given = [np.empty(shape, dtype) for shape in problem.shapes[1:]]
        given[found.operand] = found.array
        others = tuple(np.empty(shape, dtype) for shape in self.shapes)
        self._layout(given[0], given[1], None, (found,), others)
        return found

    def hold(self, operand: str, array: npt.ArrayLike) -> Prepared:
        """Return an operand that is packed for the first call that takes it."""
        _check_count(self.solution.problem)
        return Prepared.of(self.solution, operand, array)

    def _find_prepared(self, *operands: npt.ArrayLike | Prepared) -> tuple[Prepared, ...]:
        """Return those of the operands that were prepared, after a look whether it was for here."""
        found = tuple(one for one in operands if isinstance(one, Prepared))
        for one in found:
            if one is not operands[one.operand]:
                names = self.solution.problem.spec.names[1:]
                own, name = names[one.operand], names[1 - one.operand]
                raise PlanError(f"operand {own} was prepared, and is given as operand {name}")
            if one.solution is not self.solution and one.solution != self.solution:
                name = self.solution.problem.spec.names[1 + one.operand]
                raise PlanError(f"operand {name} was prepared for another plan: {one!r}")
        return found

    def _check_operands(self, operands: Sequence[npt.ArrayLike]) -> tuple[Array, ...]:
        """Return the epilogue's operands as arrays, if they are what it takes."""
        epilogue, problem, shapes = self.solution.epilogue, self.solution.problem, self.shapes
        if not hasattr(operands, "__len__") or getattr(operands, "shape", None) == ():
            raise SizeError(
                f"operands of {str(problem.spec)!r} is a sequence of arrays, not {operands!r:.80}"
            )
        if len(operands) != len(shapes):
            raise SizeError(
                f"epilogue {str(epilogue or '')!r} of {str(problem.spec)!r} takes {len(shapes)} "
                f"operands, got {len(operands)}"
            )
        arrays = tuple(
            read_array(one, f"operand {at} of epilogue {str(epilogue)!r}")
            for at, one in enumerate(operands)
        )
        if not arrays:
            return ()
        dtype = array_dtype(problem.dtype)
        if all(
            array.shape == shape and array.dtype == dtype
            for array, shape in zip(arrays, shapes, strict=True)
        ):
            return arrays
        for (name, array), shape in zip(self._named(arrays).items(), shapes, strict=True):
            if array.shape != shape:
                raise SizeError(f"{name} must have shape {shape}, got {array.shape}")
            check_dtype(array, name, dtype)
        return arrays

    def _named(self, operands: Sequence[Array]) -> dict[str, Array]:
        """Return the epilogue's operands with what messages call them."""
        steps = self.solution.epilogue.operations if self.solution.epilogue else ()
        names = (str(step) for step in steps if step.takes_operand)
        return {
            f"operand {number} ({name!r}) of the epilogue": array
            for number, (name, array) in enumerate(zip(names, operands, strict=True))
        }

    def _layout(
        self,
        first: Array,
        second: Array,
        out: Array | None,
        prepared: tuple[Prepared, ...],
        others: tuple[Array, ...] = (),
    ) -> Layout:
        """Return what is done for arrays like these."""
        like: tuple[Any, ...]
        like = (first.shape, first.strides, first.dtype, second.shape, second.strides, second.dtype)
        like += tuple(array.strides for array in others)
        if out is not None:
            if not out.flags.writeable:
                check_writable(out, _name_of_output(self.solution.problem))
            like += (out.shape, out.strides, out.dtype)
            if self.solution.output == "stream":
                like += (out.ctypes.data % LINE_BYTES,)
        store, key = prepared[0].layouts if prepared else self.layouts, (like, prepared[1:])
        layout = store.get(key)
        if layout is None:
            numbers = tuple(one.operand for one in prepared)
            pattern = self.layouts.get((like, numbers)) if prepared else None
            if pattern is not None:  # of other weights: all but these is the same
                layout = pattern.another(prepared)
            else:
                given = self.solution, first, second, out
                layout = Layout.of(*given, prepared=prepared, operands=others)
                self._keep(self.layouts, (like, numbers), layout)
            if prepared:
                self._keep(store, key, layout)
        layout.used = next(_CALLS)
        return layout

    @staticmethod
    def _keep(store: dict[tuple[Any, ...], Layout], key: tuple[Any, ...], layout: Layout) -> None:
        """Remember a layout; forget those not used for longest where the others are too large."""
        others = sorted(store.copy().items(), key=lambda pair: pair[1].used)
        kept = sum(other.nbytes for _, other in others)
        for old, other in others:
            if kept <= MAX_LAYOUT_BYTES:
                break
            store.pop(old, None)  # another thread may have forgotten it
            kept -= other.nbytes
        store[key] = layout


def trace_calls(solution: Solution) -> list[Visit]:
    """Run a solution on zeros and return what each microkernel call really covered.

    Returns
    -------
    list
        For each call the indices of every letter that it covered, and its row of the trace; see
        `kernels.state.TRACE`.
    """
    out, first, second = (
        np.zeros(shape, array_dtype(solution.problem.dtype)) for shape in solution.problem.shapes
    )
    tasks = Layout.of(solution, first, second, out).tasks
    return [call for task in tasks for call in task.trace((out, first, second))]


# Checks


def _as_operands(
    problem: Problem, first: npt.ArrayLike, second: npt.ArrayLike
) -> tuple[Array, Array]:
    _check_count(problem)
    given = problem.check_operands(first, second)
    return given[0], given[1]


def _check_count(problem: Problem) -> None:
    if len(problem.spec.operands) != 2:
        raise PlanError(
            f"{str(problem.spec)!r} has {len(problem.spec.operands)} operands; plans of two can "
            "be run"
        )


def _name_of_output(problem: Problem) -> str:
    return f"out of {str(problem.spec)!r}"


def read_factor(problem: Problem, name: str, factor: complex) -> complex:
    """Return a factor as a float, or as a complex number where the problem is complex.

    Examples
    --------
    >>> read_factor(Problem.of("ij-ik-kj", 4), "alpha", 2)
    2.0
    """
    if isinstance(factor, Real):
        try:
            return float(factor)
        except OverflowError:
            raise DtypeError(f"{name} is a number beyond all floats") from None
    number = read_array(factor, name)
    if number.ndim or number.dtype.kind not in "buifc":
        raise DtypeError(f"{name} must be a number, got {factor!r}")
    if number.dtype.kind != "c":
        return float(number)
    if number.imag != 0 and not problem.dtype.startswith("complex"):
        raise DtypeError(f"{name} is {factor}, the plan's dtype is {problem.dtype}")
    return complex(number)
