"""Plans: what users hold of a solution, and `plan`, the library's front door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tilesolve.contractions.argument_kinds import check_kind, read_flag
from tilesolve.contractions.epilogue import EpilogueArgument
from tilesolve.contractions.errors import PlanError, ThreadsWarning
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.machine.cluster import Cluster
from tilesolve.machine.detect import default_threads
from tilesolve.machine.device import find_kind
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import divide_machine
from tilesolve.planning.composition.scheme import Scheme
from tilesolve.planning.demand import Demand
from tilesolve.planning.geometric.program import formulate
from tilesolve.planning.geometric.strategy import setting_for
from tilesolve.planning.setting import Setting
from tilesolve.planning.solution import Composed, Solution
from tilesolve.planning.solve import solve
from tilesolve.plans import cache as plan_cache
from tilesolve.plans.arguments import Sizes, Tensors, problem_of, read_demand, read_sizes
from tilesolve.plans.executors import make_executor
from tilesolve.plans.files import dump, load
from tilesolve.plans.solution_figures import SolutionFigures
from tilesolve.plans.tries import pick_fastest_measured
from tilesolve.running.epilogue_code import check_epilogue
from tilesolve.system.checks import check_threads
from tilesolve.system.files import warn_once
from tilesolve.system.loading import load_module

if TYPE_CHECKING:
    from tilesolve.plans.certificate import Certificate
    from tilesolve.running.execution import Executor
    from tilesolve.running.prepared import Prepared


class Plan(SolutionFigures["Executor"]):
    """How to run a problem on a machine, and what that is predicted to cost.

    Parameters
    ----------
    solution
        The loops and tiles, their cost, and how they were found.

    Examples
    --------
    >>> found = plan("abcd-aebf-dfce", 72, "e5-2680v4", cache=False)
    >>> found.price.bottleneck
    'compute'
    """

    __slots__ = ()

    def __init__(self, solution: Solution) -> None:
        check_kind(solution, Solution, "solution", "a Solution; plan makes one", PlanError)
        super().__init__(solution)

    def _make_executor(self) -> Executor:
        return make_executor(self._solution)

    def _solve_again(self, machine: Machine) -> Solution:
        return solve(self.problem, machine, self.threads, self.demand)

    @property
    def setting(self) -> Setting:
        """What the nonlinear program was written for.

        Raises
        ------
        PlanError
            If another strategy found the tiles, or a scheme was given.
        """
        return setting_for(self._solution)

    @property
    def scheme(self) -> Scheme:
        """The loops in the notation of TTile, outermost first; see `scheme_of`.

        Examples
        --------
        >>> print(plan("ij-ik-kj", "i=11 j=32 k=64", "i7-6700k", cache=False).scheme)
        [λi α.[(1,6),(1,5)],Rj,T64,k,Uα,i,U2,j,Vj]
        """
        from tilesolve.planning.composition.describe import scheme_of

        return scheme_of(self._solution)

    @property
    def program(self) -> Any:  # noqa: ANN401 - Pyomo has no types
        """The Pyomo model of the chosen innermost loops, to print or to write to a file.

        Examples
        --------
        >>> found = plan("ik-ij-jk", 512, "e5-2680v4", cache=False)
        >>> sorted(found.program.seconds)
        ['L1', 'L2', 'L3', 'compute', 'memory']
        """
        return formulate(self.setting, self.choice).model()

    @property
    def demand(self) -> Demand:
        """What the plan was asked for beside its problem."""
        origin, overwrite = self._solution.origin, self.output != "accumulate"
        if isinstance(origin, Composed) and origin.strategy == "scheme":
            return Demand(overwrite, self.epilogue, scheme=origin.scheme)
        return Demand(overwrite, self.epilogue, origin.strategy)

    def certify(self, *, limit: float = 300.0) -> Certificate:
        """Prove with SCIP how far the integer tiles are from the best ones.

        Needs the extra ``certify``, and few enough nested tiles. SCIP has `limit` seconds, in a
        process of its own; where it proves nothing, or fails, that is a `SolverError`. See
        `certificate.certify`.
        """
        from tilesolve.plans.certificate import certify

        return certify(self._solution, limit=limit)

    def __call__(
        self,
        first: npt.ArrayLike | Prepared,
        second: npt.ArrayLike | Prepared,
        out: npt.NDArray[Any] | None = None,
        *,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        operands: Sequence[npt.ArrayLike] = (),
    ) -> npt.NDArray[Any]:
        """Compute the contraction of two arrays: ``alpha * contraction + beta * out``.

        The plan's epilogue is applied to that.

        Parameters
        ----------
        first, second
            The operands, of the plan's shapes and dtype; any strides, never modified. Either may be
            one that `prepare` made.
        out
            Where the result goes; a new array if None. It may not share memory with an operand.
        alpha, beta
            Factors of the contraction and of what `out` holds; with ``beta=0`` it is not read.
        operands
            Of the epilogue, in its order, with axes in the order of the letters that it names.

        Returns
        -------
        numpy.ndarray
            `out`, or the new array.

        Raises
        ------
        SizeError
            If a shape is not the plan's, or there are not as many operands as it takes.
        DtypeError
            If a dtype is not the plan's.
        PlanError
            If `out` is read-only, overlaps itself or an operand, or the spec has not two operands.

        Examples
        --------
        >>> import numpy as np
        >>> matmul = plan("ik-ij-jk", 4, "i7-6700k", cache=False)
        >>> matmul(np.eye(4), 2 * np.eye(4), alpha=0.5).tolist() == np.eye(4).tolist()
        True
        """
        executor = self._executor or self.executor
        recent = executor.recent
        if recent and (done := recent.run(out, alpha, beta, first, second)) is not None:
            return done
        found = executor.run(first, second, out, alpha, beta, operands)
        self._repeat_quickly(executor.recent)
        return found

    def prepare(self, array: npt.ArrayLike, operand: str = "B") -> Prepared:
        """Return an operand that is packed now, once, for calls that take it in the array's place.

        Parameters
        ----------
        array
            The operand, of the plan's shape and dtype. A copy of it is kept.
        operand
            Its name in the spec.

        Raises
        ------
        SizeError, DtypeError
            If a shape or a dtype is not the plan's.
        PlanError
            If there is no such operand.

        Examples
        --------
        >>> import numpy as np
        >>> matmul = plan("ik-ij-jk", 4, "i7-6700k", cache=False)
        >>> weights = matmul.prepare(2 * np.eye(4))
        >>> matmul(np.eye(4), weights).tolist() == (2 * np.eye(4)).tolist()
        True
        """
        return self.executor.prepare(operand, array)

    def hold(self, array: npt.ArrayLike, operand: str = "B") -> Prepared:
        """Return an operand that is packed as soon as a call needs it, else as `prepare` does."""
        return self.executor.hold(operand, array)

    def __repr__(self) -> str:
        return (
            f"<Plan {self.problem.spec} {self.problem.dtype}: {self.flops / 1e9:.1f} GFLOP/s "
            f"predicted on {self.machine.name}, bound by {self.price.bottleneck}>"
        )

    def __str__(self) -> str:
        from tilesolve.plans.report import write_report

        return write_report(self._solution)

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value."""
        return dump(self._solution)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON.

        Examples
        --------
        >>> found = plan("ik-ij-jk", 64, "i7-6700k", cache=False)
        >>> Plan.from_json(found.to_json()) == found
        True
        """
        return cls(load(text))

    def batch(
        self,
        firsts: Sequence[npt.ArrayLike] | npt.NDArray[Any],
        seconds: Sequence[npt.ArrayLike] | npt.NDArray[Any],
        outs: Sequence[npt.NDArray[Any]] | npt.NDArray[Any] | None = None,
        *,
        threads: int | None = None,
        alpha: complex = 1.0,
        beta: complex = 0.0,
    ) -> Sequence[npt.NDArray[Any]] | npt.NDArray[Any]:
        """Compute the contraction for many operands, each on one core with its part of the caches.

        Parameters
        ----------
        firsts, seconds
            The operands of each contraction: lists of arrays, or arrays with an axis for them in
            front.
        outs
            Where the results go; one new array with a first axis for them if None. They may share
            no memory with each other or with any operand.
        threads
            Cores that share the contractions; the plan's if None.
        alpha, beta
            As in a call of the plan.

        Returns
        -------
        sequence of numpy.ndarray
            `outs`, or the new array.

        Raises
        ------
        SizeError, DtypeError, PlanError
            If anything is not as the plan wants it; nothing has been written then.

        Examples
        --------
        >>> import numpy as np
        >>> matmul = plan("ik-ij-jk", 4, "i7-6700k", cache=False)
        >>> results = matmul.batch([np.eye(4)] * 3, [np.ones((4, 4))] * 3)
        >>> results.shape, float(results.sum())
        ((3, 4, 4), 48.0)
        """
        from tilesolve.plans.batch import run_batch

        if self.epilogue is not None and self.epilogue.operands:
            raise PlanError(f"a batch has no operands for the epilogue {str(self.epilogue)!r}")
        cores = self.threads if threads is None else check_threads(threads)
        runner = partial(core_plan, self)
        return run_batch(
            self.problem, runner, firsts, seconds, outs, cores, self.seconds, alpha, beta
        )


def plan(
    spec: Spec | str | Problem,
    sizes: Sizes | Tensors | None = None,
    machine: Machine | str | None = None,
    *,
    dtype: npt.DTypeLike | None = None,
    threads: int | None = None,
    accumulate: bool = False,
    epilogue: EpilogueArgument = None,
    constant: str = "",
    strategy: str = "solver",
    scheme: Scheme | str | None = None,
    tries: int = 1,
    aligned_output: bool = False,
    workers: int | Cluster | None = None,
    cache: bool = True,
    schedule: str = "solved",
    tf32: bool = False,
) -> Plan:
    """Solve for the tiles of a contraction or convolution on a machine.

    Parameters
    ----------
    spec
        Such as ``"abcd-aebf-dfce"`` or ``"aebf,dfce->abcd"``, or a whole `Problem`.
    sizes
        Extents: a mapping, text such as ``"a=72,b=72"``, or an int for all letters. Or a list or
        tuple with a shape or an array for both operands, or for all tensors as the spec writes
        them.
    machine
        A `Machine`, a name or a path, see `Machine.load`; or ``"h100"`` and others for a `GpuPlan`.
    dtype
        Of all tensors; if None, that of arrays that are given as `sizes`, else float64. Sums of
        ``"float16"`` and ``"bfloat16"`` are float32, and rounded once.
    threads
        Cores that share the work; if None, ``TILESOLVE_NUM_THREADS``, or one where it is not set.
        More than the machine has cores are a `ThreadsWarning`, once.
    accumulate
        Whether the result is added to what the output holds.
    epilogue
        What is done to each element in the end, such as ``"+n relu"``, see `Epilogue.parse`, a
        function by `elementwise`, or a tuple of these; a call takes its operands as ``operands``.
    constant
        Names of operands that stay the same from call to call, such as ``"B"``: calls take what
        `Plan.prepare` makes of them, so that packing them costs nothing.
    strategy
        What finds the loops and tiles: ``"solver"``, the geometric program; ``"composition"``,
        which composes fast microkernels to cover all extents without partial tiles; or
        ``"slicing"``, SConv's closed formulas for convolutions and products.
    scheme
        The loops themselves, such as ``"[Rj,λi α.[(12,6),(8,7)],T64,k,Uα,i,U2,j,Vj]"``, see
        `Scheme.of`; it covers all extents.
    tries
        How many candidates are run on synthetic data, to keep the fastest: the plan that one try
        gives, and those that are predicted to take least. That plan is kept with others, so that
        only the first call of a process or of many takes the time.
    aligned_output
        Whether the output of calls begins with a line of the caches, as a large new one does, and
        what `empty` returns. Otherwise it is taken to begin amid one, as numpy's large arrays do,
        where the ends of its runs cost more. Any output may be given even so. Where the output goes
        through the caches that makes no difference.
    workers
        Such machines that share a contraction over a network: a number, or a `Cluster`. The plan is
        that of a task's chunk then, and its report begins with the network.
    cache
        Whether plans kept in memory and on disk may be used and added to.
    schedule, tf32
        Of a GPU: ``"solved"`` or ``"thesis"``, and whether float32 is rounded to TF32.

    Raises
    ------
    SpecError, SizeError, DtypeError
        If spec, sizes and dtype do not fit.
    PlanError
        If the spec has not two operands, or an option makes no sense.
    MachineError
        If there is no such machine, or `threads` is no positive integer.

    Examples
    --------
    >>> plan("ik-ij-jk", 64, "i7-6700k", cache=False).problem.flops
    524288
    >>> print(plan("ij,jk->ik", [(2, 3), (3, 4)], "i7-6700k", cache=False).problem)
    ij,jk->ik i=2 k=4 j=3 float64
    """
    cores = default_threads() if threads is None else check_threads(threads)
    demand = read_demand(accumulate, epilogue, strategy, scheme, tries)
    kind = find_kind(machine, schedule, tf32)
    extents, name = read_sizes(spec, sizes, dtype, kind)
    check_kind(constant, str, "constant", "names of operands", PlanError)
    aligned = read_flag(aligned_output, "aligned_output", PlanError)
    if kind is not Problem:
        gpu = load_module("tilesolve.plans.gpu_plan")
        given = problem_of(spec, extents, name, constant, kind=kind), machine, demand, workers
        return gpu.plan_on_device(*given, schedule=schedule, tf32=tf32)  # type: ignore[no-any-return]
    if workers is not None:
        if demand != Demand() or constant or aligned or threads is not None:
            told = "workers compute a contraction alone: no epilogue, strategy or constant; a "
            raise PlanError(f"{told}Cluster says how many threads each has")
        of_workers: Plan = load_module("tilesolve.plans.cluster_plan").plan_for_workers(
            problem_of(spec, extents, name), Machine.load(machine), workers, cache=cache
        )
        return of_workers
    if read_flag(cache, "cache", PlanError) and plan_cache.is_enabled():
        posed = spec, extents, machine, name, cores, demand, constant
        found = plan_cache.cached(*posed, Plan, aligned_output=aligned)
    else:
        problem = problem_of(spec, extents, name, constant, aligned_output=aligned)
        check_epilogue(demand.epilogue, problem)
        found = Plan(pick_fastest_measured(problem, Machine.load(machine), cores, demand))
    if cores > found.machine.cores:
        told = f"{cores} threads take turns on the {found.machine.cores} cores of the machine"
        warn_once(f"{told} {found.machine.name!r}", ThreadsWarning)
    return found


def core_plan(found: Plan, cores: int) -> Plan:
    """Return the plan that one of several busy cores runs by itself.

    Examples
    --------
    >>> whole = plan("ik-ij-jk", 512, "i7-6700k", threads=4)
    >>> own = core_plan(whole, 4)
    >>> own.threads, own.problem == whole.problem, own.machine.level("L3").capacity
    (1, True, 2097152)
    """
    if cores == 1 and found.threads == 1:
        return found
    return _plan_again(found, found.problem, divide_machine(found.machine, cores), 1)


def plan_amid_lines(found: Plan) -> Plan:
    """Return the plan of the same for an output that begins amid a line.

    Examples
    --------
    >>> matmul = plan("ik-ij-jk", 64, "i7-6700k")
    >>> plan_amid_lines(matmul) == matmul
    True
    """
    problem = replace(found.problem, aligned_output=False)
    return _plan_again(found, problem, found.machine, found.threads)


def _plan_again(found: Plan, problem: Problem, machine: Machine, threads: int) -> Plan:
    """Return the plan for which as much is asked as for another one."""
    demand = found.demand
    return plan(
        problem,
        machine=machine,
        threads=threads,
        accumulate=not demand.overwrite,
        epilogue=demand.epilogue,
        strategy=demand.strategy,
        scheme=demand.scheme,
    )
