"""`pipeline`: a NumPy function, or statements one after another, as what plans and computes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.errors import PlanError, SizeError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.stage import Stage
from tilesolve.machine.detect import default_threads
from tilesolve.machine.device import Device, find_device
from tilesolve.machine.model import Machine
from tilesolve.model.starts import Start
from tilesolve.nests.arguments import NestDtype, Region, Statement
from tilesolve.nests.calls import Array
from tilesolve.nests.plan import keep_plan
from tilesolve.nests.request import NestMode, NestRequest
from tilesolve.nests.task_writer import TaskWriter
from tilesolve.pipelines.plan import PipelinePlan
from tilesolve.pipelines.repeats import Repeat, repeat_recent
from tilesolve.pipelines.stages import leave_borders, make_computation
from tilesolve.pipelines.statements import read_statements
from tilesolve.pipelines.tracing import Trace, describe, map_arrays, trace_function
from tilesolve.system.checks import check_threads
from tilesolve.system.loading import load_module

Planner = Callable[[Computation], PipelinePlan]
"""Returns the plan of stages."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """What computes all results.

    Parameters
    ----------
    plan
        Of all that differ.
    trace
        Its results: those that are the same have one name.
    begins
        By result, the arrays whose elements they have before, where these are not computed.
    """

    plan: PipelinePlan
    trace: Trace
    begins: Mapping[str, str]

    def run(self, arrays: Mapping[str, Array], targets: Sequence[Array | None]) -> list[Any]:
        """Return the results, given all arrays by name; some go to arrays that are given."""
        outs: dict[str, Array] = {}
        names, results = self.trace.computed, self.trace.results
        for result, target in zip(results, targets, strict=True):
            if target is not None:
                outs.setdefault(result.name, target if target.ndim else target.reshape(1))
        if outs:
            for one in (*results, *self.trace.checked):
                outs.setdefault(one.name, np.empty(one.shape or (1,), one.dtype))
        wanted: Any = tuple(outs[name] for name in names) if outs else None
        if len(names) == 1 and wanted:
            (wanted,) = wanted
        found: Any = self.plan(*(arrays[name] for name in self.plan.inputs), out=wanted)
        made = dict(zip(names, found if len(names) > 1 else (found,), strict=True))
        return [made[x.name][0] if x.is_number else made[x.name] for x in results]


@dataclass(slots=True, eq=False)
class _Traced:
    """What a function does for arguments like some, and its plans, for one step or for many.

    `names` are those of the arguments, where all of them are arrays by position.
    """

    trace: Trace
    planner: Planner
    plans: dict[bool, _Planned] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def planned(self, *, step: bool = False) -> _Planned:
        """Return what computes the results; in steps, arrays have what they begin with."""
        if step not in self.plans:
            trace, names = self.trace, self.trace.computed
            computation, begins = make_computation(trace.graph, names), dict[str, str]()
            outputs = dict(zip(computation.outputs, names, strict=True))
            if step:
                computation, begins = leave_borders(computation)
            begins = {outputs[name]: base for name, base in begins.items()}
            self.plans[step] = _Planned(self.planner(computation), trace, begins)
        return self.plans[step]


class PipelineFunction:
    """A NumPy function that is planned for the shapes and dtypes of its arguments.

    Parameters
    ----------
    function
        The user's own, which stays as it is.
    planner
        Plans what it does.

    Examples
    --------
    >>> @pipeline
    ... def blur(image):
    ...     rows = image[:, :-2] + image[:, 1:-1] + image[:, 2:]
    ...     return rows[:-2] + rows[1:-1] + rows[2:]
    >>> image = np.ones((6, 8), "float32")
    >>> blur(image).shape
    (4, 6)
    >>> print(blur.plan(image).computation.stages[1])
    blur[y2,x2] = rows[y2,x2] + rows[y2+1,x2] + rows[y2+2,x2]
    """

    def __init__(self, function: Callable[..., Any], planner: Planner) -> None:
        update_wrapper(self, function)
        self.function, self._planner = function, planner
        self._signature = inspect.signature(function)
        self._known: dict[Hashable, _Traced] = {}
        self._repeat: Repeat | None = None

    def __reduce__(self) -> str | tuple[type[PipelineFunction], tuple[Callable[..., Any], Planner]]:
        """Return what copies and pickles have: they plan again where they are read."""
        name = getattr(self.function, "__qualname__", "")
        if getattr(sys.modules.get(getattr(self.function, "__module__", "")), name, None) is self:
            return name  # where the function was decorated
        return type(self), (self.function, self._planner)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Compute what the function does.

        Parameters
        ----------
        *given, **named
            As the function takes them. Arrays of NumPy's are computed with; all else is constant.
        out
            Where the result goes, an array or one for each; new arrays if None.
        steps
            How many times the function runs, each time on what it returned before in the place of
            its first arrays. The rest of the arguments stays.

        Raises
        ------
        TraceError
            If the function does what pipelines do not have; the message names the line.
        SizeError, DtypeError, PlanError
            As plans of nests do.
        """
        if self._repeat is not None and (not named or [*named] == ["out"]):
            done = self._repeat(given, named.get("out"))
            if done is not None:
                return done
        own = self._signature.parameters
        out = None if "out" in own else named.pop("out", None)
        steps = None if "steps" in own else named.pop("steps", None)
        found, arrays = self._trace(given, named)
        targets = _targets(found.trace, out)
        if steps is not None:
            made = _run_steps(found, arrays, steps)
        else:
            planned = found.planned()
            made = planned.run(arrays, targets)
            if "out" not in own:
                self._repeat = repeat_recent(found.trace, planned.plan, found.names)
        return _pack(found.trace, arrays, made, targets)

    def plan(self, *given: Any, **named: Any) -> Any:
        """Return the plan for arguments like some.

        A plan takes the arrays that it reads in the order of its `inputs`; those of the function's
        own are among them.

        Parameters
        ----------
        *given, **named
            As a call has them.
        machine
            A GPU, a `Device` or its name: then it is a `DevicePlan`.
        fusion, mode
            How stages run together there, and ``"thesis"`` to decide by the costs of its chapter 6;
            see `pipeline`.
        """
        own = self._signature.parameters
        known = [x for x in ("machine", "fusion", "mode") if x in named and x not in own]
        asked = {x: named.pop(x) for x in known}
        found, _ = self._trace(given, named)
        if not asked:
            return found.planned().plan
        computation = make_computation(found.trace.graph, found.trace.computed)
        words = asked.get("machine"), asked.get("fusion"), asked.get("mode", "default")
        plan = _plan_on_device(computation, *words)
        if plan is None:
            raise PlanError("plan takes a GPU as its machine; pipeline takes any other one")
        return plan

    def bind(self, *given: Array, out: Array | tuple[Array, ...]) -> Callable[[], None] | None:
        """Return what computes the function of some arrays again and again, to the same places.

        It takes a tenth of the time that a call takes before it computes. None where results are
        numbers, arguments, or the same one twice.

        Examples
        --------
        >>> x, y = np.ones(3), np.zeros(3)
        >>> run = pipeline(lambda x: x + 1).bind(x, out=y)
        >>> x[1] = 5
        >>> run()
        >>> y.tolist()
        [2.0, 6.0, 2.0]
        """
        found, arrays = self._trace(given, {})
        targets = _targets(found.trace, out)
        planned = found.planned()
        names = {one.name for one in found.trace.results if one.shape and one.argument is None}
        if len(names) < len(found.trace.results) or found.trace.checked:
            return None
        outs = tuple(one for one in targets if one is not None)
        held = [arrays[name] for name in planned.plan.inputs]
        return planned.plan.bind(*held, out=outs if len(outs) > 1 else outs[0])

    def write_call(self, tasks: TaskWriter, given: Sequence[Array], outs: Sequence[Array]) -> bool:
        """Write down a call on arrays that stay where they are; return whether that can be done.

        It cannot where results are copied after the plan has run, or the plan takes numbers.
        """
        found, arrays = self._trace(given, {})
        planned = found.planned()
        names = [one.name for one in found.trace.results]
        alone = len(set(names)) == len(names) == len(outs)
        if not alone or any(one.argument or not one.shape for one in found.trace.results):
            return False
        if planned.plan.params or found.trace.checked:
            return False
        inputs = [arrays[name] for name in planned.plan.inputs]
        target = outs[0] if len(outs) == 1 else tuple(outs)
        planned.plan.executor.write_call(tasks, inputs, target)
        return True

    def _trace(
        self, given: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[_Traced, dict[str, Array]]:
        """Return what is known of arguments like some, and all arrays by name."""
        key = describe(tuple(given)), describe(named)
        found = self._known.get(key)
        if found is None:
            bound = self._bind(given, named)
            found = _Traced(trace_function(self.function, bound), self._planner)
            alone = not named and all(isinstance(one, np.ndarray) for one in given)
            if alone and all(isinstance(bound.arguments[x], np.ndarray) for x in bound.arguments):
                found.names = tuple(bound.arguments)  # calls like this are told from it quickly
            self._known[key] = found
        arrays = dict(found.trace.graph.constants)
        if found.names:
            arrays.update(zip(found.names, given, strict=True))
        else:
            map_arrays("", self._bind(given, named).arguments, arrays.__setitem__)
        return found, {x: one if one.ndim else one.reshape(1) for x, one in arrays.items()}

    def _bind(self, given: Sequence[Any], named: Mapping[str, Any]) -> inspect.BoundArguments:
        bound = self._signature.bind(*given, **named)
        bound.apply_defaults()
        return bound

    def __repr__(self) -> str:
        return f"<pipeline {getattr(self.function, '__name__', self.function)}>"


def _targets(trace: Trace, out: Any) -> list[Array | None]:
    """Return where each result goes, as far as a call says it."""
    count = len(trace.results)
    if out is None:
        return [None] * count
    given = list(out) if isinstance(out, tuple | list) else [out]
    if len(given) != (1 if trace.returned is None else trace.returned):
        raise SizeError(f"out has {len(given)} arrays, not one for each that is returned")
    for one, result in zip(given, trace.results, strict=False):
        check_kind(one, np.ndarray, "out", "an array", PlanError)
        if result.argument is not None:
            raise PlanError(f"the function returns its argument {result.argument}, not out")
        if one.shape != result.shape:
            raise SizeError(f"out has shape {one.shape}, the result has {result.shape}")
    return given + [None] * (count - len(given))


def _run_steps(found: _Traced, arrays: Mapping[str, Array], steps: int) -> list[Array]:
    """Run a function many times, each time on what it computed before."""
    planned = found.planned(step=True)
    check_kind(steps, int, "steps", "a number", SizeError)
    if steps < 0:
        raise SizeError(f"a function runs steps=0 times or more, not {steps}")
    grids = _grids(found.trace, arrays)
    now = {grid: arrays[grid].copy() for grid in grids}
    later = {grid: np.empty_like(array) for grid, array in now.items()}
    for step in range(steps):
        held = {**arrays, **now}
        for grid, result in zip(grids, found.trace.results, strict=True):
            # What is not written is as it was in the first steps.
            base = planned.begins.get(result.name)
            if base is not None and (step < 2 or base != grid):
                later[grid][...] = held[base]
        made = planned.run(held, [later[grid] for grid in grids])
        for grid, array in zip(grids, made, strict=True):
            if array is not later[grid]:
                later[grid][...] = array
        now, later = later, now
    return [now[grid] for grid in grids]


def _grids(trace: Trace, arrays: Mapping[str, Array]) -> list[str]:
    """Return the argument that each result is in the next step."""
    taken = {one.argument for one in trace.results} | trace.graph.constants.keys()
    free, found = iter(name for name in arrays if name not in taken), []
    for result in trace.results:
        grid = result.argument or next(free, "")
        like = (arrays[grid].shape, arrays[grid].dtype) if grid else None
        if like != (result.shape, np.dtype(result.dtype)):
            raise SizeError(
                f"a step returns arrays like those that it takes first, not {result.dtype} of "
                f"shape {result.shape}" + (f" for {grid}" if grid else "")
            )
        found.append(grid)
    return found


def _pack(
    trace: Trace, arrays: Mapping[str, Array], made: Sequence[Any], targets: Sequence[Array | None]
) -> Any:
    """Return results as the function does, where they belong."""
    found = []
    for result, value, target in zip(trace.results, made, targets, strict=True):
        where = target if result.argument is None else arrays[result.argument]
        if where is not None and where is not value:
            where[...] = value
            value = where
        found.append(value if np.shape(value) == result.shape else value.reshape(result.shape))
    if trace.returned is None:
        return found[0]
    return trace.collect(found[: trace.returned]) if trace.returned else None


def _plan_on_device(
    computation: Computation, machine: object, fusion: object, mode: object, *, cache: bool = True
) -> Any:
    """Return the plan for a GPU; None where the machine is none."""
    device = find_device(machine)
    if device is not None:
        plans = load_module("tilesolve.pipelines.device_plan")
        return plans.plan_stages(computation, device, fusion or "nested", mode, cache=cache)
    if fusion is not None:
        raise PlanError("fusion is of GPUs, such as machine='h100'")
    return None


def _plan_on_cores(
    computation: Computation,
    *,
    machine: Machine | Device | str | None,
    threads: int,
    mode: NestMode,
    start: Start,
    cache: bool,
) -> PipelinePlan:
    assert not isinstance(machine, Device)  # a GPU is no machine of plans for CPUs
    request = NestRequest(computation, Machine.load(machine), threads, mode, start=start)
    return keep_plan(PipelinePlan, request, cache=cache)


def pipeline(
    what: Callable[..., Any] | Statement | None = None,
    /,
    *,
    dtype: NestDtype | None = None,
    where: Region = (),
    machine: Machine | Device | str | None = None,
    threads: int | None = None,
    mode: NestMode = "default",
    start: Start = "warm",
    cache: bool = True,
    fusion: str | None = None,
    **sizes: Any,
) -> Any:
    """Plan a NumPy function, or statements one after another.

    Parameters
    ----------
    what
        A function of arrays, which then is planned for the shapes and dtypes of each call; it may
        be given by decoration. Or text of statements as `nest` has it, a `Stage`, or several.
    dtype, where
        Of statements, as `nest` has them.
    machine
        A `Machine`, a name or a path; see `Machine.load`. Of statements a `Device` or its name,
        too; a function is planned for these by `PipelineFunction.plan`.
    threads
        Cores that share the work; if None, ``TILESOLVE_NUM_THREADS``, or one where it is not set.
    mode, start
        As `nest` has them.
    cache
        Whether plans kept in memory and on disk may be used and added to.
    fusion
        On a GPU, how stages run together: ``"none"``, ``"groups"`` or ``"nested"``, which it is if
        None.
    **sizes
        Of statements, by name: shapes of arrays, or arrays; extents of the last one's letters.

    Returns
    -------
    PipelineFunction, PipelinePlan or DevicePlan
        What plans a function when it is called; the plan of statements, for a CPU or a GPU.

    Raises
    ------
    SpecError, SizeError, DtypeError, PlanError
        As `nest` does.

    Examples
    --------
    >>> text = "rows[y,x] = A[y,x] + A[y,x+1]; out[y,x] = rows[y,x] * rows[y+1,x]"
    >>> pipeline(text, A=(5, 5))(np.ones((5, 5))).shape
    (4, 4)
    """
    count = default_threads() if threads is None else check_threads(threads)
    planner = partial(
        _plan_on_cores, machine=machine, threads=count, mode=mode, start=start, cache=cache
    )
    if isinstance(what, str | Stage | Sequence):
        computation = read_statements(what, sizes, dtype, where)
        found = _plan_on_device(computation, machine, fusion, mode, cache=cache)
        return found or planner(computation)
    if fusion is not None or find_device(machine) is not None:
        raise PlanError("a function is planned for a GPU by its own plan(..., machine=, fusion=)")
    if what is not None and not callable(what):
        raise PlanError(f"a pipeline is a function, text or stages, not {what!r:.60}")
    if sizes or dtype is not None or where != ():
        raise PlanError("sizes, dtype and where are of statements; a function has them from calls")
    if what is None:
        return partial(PipelineFunction, planner=planner)
    return PipelineFunction(what, planner)
