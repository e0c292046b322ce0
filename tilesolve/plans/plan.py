"""Plans: a problem's tiles on a machine, priced and explained.

`plan` is the library's front door. It solves the continuous program over all choices of
innermost loops, repairs the optimum to integers, turns class tiles into boxes of letters, and
decides what is worth packing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tilesolve.contractions.errors import SizeError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.machine.detect import default_threads
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import scale_figures
from tilesolve.model.footprints import touched_bytes
from tilesolve.model.nest import Nest, Output
from tilesolve.model.price import Price
from tilesolve.planning.geometric.make_setting import make_setting
from tilesolve.planning.geometric.program import formulate, pyomo_model
from tilesolve.planning.setting import Choice, Setting
from tilesolve.planning.solve import share_of, solve
from tilesolve.system.checks import check_threads

if TYPE_CHECKING:
    from tilesolve.plans.certificate import Certificate
    from tilesolve.running.execution import Layout, Recent

Sizes = Mapping[str, int] | str | int
"""Extents as `Problem.of` takes them."""


@dataclass(frozen=True, slots=True)
class Search:
    """How the tiles were found.

    Parameters
    ----------
    considered, pruned, solved
        Choices of innermost loops: all, ruled out by a bound, solved by IPOPT.
    permutations
        Loop permutations that the choices stand for, in the paper's count.
    relaxed
        Seconds of each server and of the arithmetic at the continuous optimum, as pairs.
    tiles
        The continuous tile sizes, by symbol, as pairs.
    elasticities
        By how many percent the time falls when a bandwidth, a capacity or the arithmetic
        grows by one percent, as pairs.
    spread
        Relative difference between the starts of IPOPT; 0 where one is enough.
    integral
        Seconds of the integer class tiles, before they became boxes.
    priced
        Integer tilings that were compared.
    runner_up
        The second best choice and its seconds; None if there is just one.

    Examples
    --------
    >>> search = plan("ik-ij-jk", 512, "i7-6700k", cache=False).search
    >>> search.permutations, search.considered == search.pruned + search.solved
    (27, True)
    """

    considered: int
    pruned: int
    solved: int
    permutations: int
    relaxed: tuple[tuple[str, float], ...]
    tiles: tuple[tuple[str, float], ...]
    elasticities: tuple[tuple[str, float], ...]
    spread: float
    integral: float
    priced: int
    runner_up: tuple[Choice, float] | None

    @property
    def gap(self) -> float:
        """What rounding to integers costs: relative excess over the continuous optimum."""
        longest = max((seconds for _, seconds in self.relaxed), default=0.0)
        return self.integral / longest - 1 if longest else 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run a problem on a machine, and what that is predicted to cost.

    Parameters
    ----------
    problem
        What is computed.
    machine
        Where.
    threads
        Cores that share the work.
    split
        The letter whose range the threads divide; None for one thread.
    output
        How C is written.
    microkernel
        The register tile and its costs.
    choice
        For each cache the classes of the loops around its tile, innermost first.
    classes
        For each class its tile sizes, nearest cache first.
    nest
        Loops and boxes over letters, of one thread's share.
    price
        What the nest costs, line by line of memory.
    search
        How it was found.

    Examples
    --------
    >>> found = plan("abcd-aebf-dfce", 72, "e5-2680v4", cache=False)
    >>> found.price.bottleneck
    'compute'
    """

    problem: Problem
    machine: Machine
    threads: int
    split: str | None
    output: Output
    microkernel: Microkernel
    choice: Choice
    classes: tuple[tuple[str, tuple[int, ...]], ...]
    nest: Nest
    price: Price
    search: Search
    layouts: dict[tuple[Any, ...], Layout] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What has been worked out for layouts of arrays that the plan was called with."""
    recent: list[Recent] = field(default_factory=list, init=False, repr=False, compare=False)
    """What the last call's arrays were like, if calls with such ones can be short."""

    @property
    def share(self) -> Problem:
        """The part of the problem that one thread computes."""
        return share_of(self.problem, self.split, self.threads)

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return self.price.seconds

    @property
    def flops(self) -> float:
        """Predicted flop/s of all threads together."""
        return self.problem.flops / self.seconds if self.seconds else 0.0

    @property
    def roofline(self) -> float:
        """Seconds that no implementation beats: arithmetic at peak, each tensor moved once."""
        return self.roofline_at(self.machine.peak(self.problem.dtype, self.threads))

    def roofline_at(self, peak: float) -> float:
        """Return the roofline where all threads together reach another peak, in flop/s.

        Examples
        --------
        >>> found = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
        >>> found.roofline_at(found.machine.peak("float64") / 2) == 2 * found.roofline
        True
        """
        bandwidth = self.machine.bandwidth(self.machine.memory, self.threads)
        return max(self.problem.flops / peak, sum(touched_bytes(self.problem)) / bandwidth)

    @property
    def gap(self) -> float:
        """Relative excess of the integer tiles' time over the continuous optimum."""
        return self.search.gap

    @property
    def sensitivity(self) -> dict[str, float]:
        """By how many percent the time falls per percent more of each resource.

        From the multipliers of the continuous optimum: names are those of `whatif`.

        Examples
        --------
        >>> found = plan("abcd-aebf-dfce", 72, "e5-2680v4", cache=False)
        >>> max(found.sensitivity, key=found.sensitivity.get)
        'compute'
        """
        return dict(self.search.elasticities)

    @property
    def setting(self) -> Setting:
        """What the nonlinear program was written for."""
        return make_setting(self.share, self.machine, self.threads, self.output, self.microkernel)

    @property
    def program(self) -> Any:  # noqa: ANN401 - Pyomo has no types
        """The Pyomo model of the chosen innermost loops, to print or to write to a file.

        Examples
        --------
        >>> found = plan("ik-ij-jk", 512, "e5-2680v4", cache=False)
        >>> sorted(found.program.seconds)
        ['L1', 'L2', 'L3', 'compute', 'memory']
        """
        return pyomo_model(formulate(self.setting, self.choice))

    def whatif(self, **factors: float) -> Plan:
        """Return the plan for a machine with some figures multiplied.

        Parameters
        ----------
        **factors
            ``<level>_bandwidth``, ``<level>_capacity`` in lower case, or ``compute``: what each
            is multiplied by.

        Examples
        --------
        >>> found = plan("abcdef-degb-gfac", "a=24 b=16 c=16 d=24 e=16 f=16 g=24", "e5-2680v4",
        ...              cache=False)
        >>> found.whatif(compute=0.5).price.bottleneck
        'compute'
        """
        return solve(
            self.problem,
            scale_figures(self.machine, factors),
            self.threads,
            self.output != "accumulate",
        )

    def certify(self, *, limit: float = 300.0) -> Certificate:
        """Prove with SCIP how far the integer tiles are from the best ones.

        Needs the extra ``certify``, and few enough nested tiles. SCIP has `limit` seconds, in a
        process of its own; where it proves nothing, or fails, that is a `SolverError`. See
        `certificate.certify`.
        """
        from tilesolve.plans.certificate import certify

        return certify(self, limit=limit)

    def __call__(
        self,
        first: npt.ArrayLike,
        second: npt.ArrayLike,
        out: npt.NDArray[Any] | None = None,
        *,
        alpha: complex = 1.0,
        beta: complex = 0.0,
    ) -> npt.NDArray[Any]:
        """Compute the contraction of two arrays: ``alpha * contraction + beta * out``.

        Parameters
        ----------
        first, second
            The operands, of the plan's shapes and dtype; any strides, never modified.
        out
            Where the result goes; a new array if None. It may not share memory with an operand.
        alpha, beta
            Factors of the contraction and of what `out` holds; with ``beta=0`` it is not read.

        Returns
        -------
        numpy.ndarray
            `out`, or the new array.

        Raises
        ------
        SizeError
            If a shape is not the plan's.
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
        if self.recent:
            done = self.recent[0].again(first, second, out, alpha, beta)
            if done is not None:
                return done
        return _executor(self)(self, first, second, out, alpha=alpha, beta=beta)

    def __reduce__(self) -> tuple[Callable[[str], Plan], tuple[str]]:
        """Return how to make an equal plan: what was worked out for arrays has addresses in it."""
        return Plan.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return (
            f"<Plan {self.problem.spec} {self.problem.dtype}: {self.flops / 1e9:.1f} GFLOP/s "
            f"predicted on {self.machine.name}, bound by {self.price.bottleneck}>"
        )

    def __str__(self) -> str:
        from tilesolve.plans.report import report

        return report(self)

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value."""
        from tilesolve.plans.files import dump

        return dump(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON.

        Examples
        --------
        >>> found = plan("ik-ij-jk", 64, "i7-6700k", cache=False)
        >>> Plan.from_json(found.to_json()) == found
        True
        """
        from tilesolve.plans.files import load

        return load(text)

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

        return run_batch(self, firsts, seconds, outs, threads=threads, alpha=alpha, beta=beta)


def plan(
    spec: Spec | str | Problem,
    sizes: Sizes | None = None,
    machine: Machine | str | None = None,
    *,
    dtype: npt.DTypeLike = "float64",
    threads: int | None = None,
    accumulate: bool = False,
    cache: bool = True,
) -> Plan:
    """Solve for the tiles of a contraction or convolution on a machine.

    Parameters
    ----------
    spec
        Such as ``"abcd-aebf-dfce"`` or ``"aebf,dfce->abcd"``, or a whole `Problem`.
    sizes
        Extents: a mapping, text such as ``"a=72,b=72"``, or an int for all letters.
    machine
        A `Machine`, a name or a path; see `Machine.load`.
    dtype
        Of all tensors.
    threads
        Cores that share the work; if None, ``TILESOLVE_NUM_THREADS``, or one where it is not set.
    accumulate
        Whether the result is added to what the output holds.
    cache
        Whether plans kept in memory and on disk may be used and added to.

    Examples
    --------
    >>> plan("ik-ij-jk", 64, "i7-6700k", cache=False).problem.flops
    524288
    """
    from tilesolve.plans import cache as plan_cache

    threads = default_threads() if threads is None else check_threads(threads)
    if not cache or not plan_cache.enabled():
        problem = problem_of(spec, sizes, dtype)
        return solve(problem, Machine.load(machine), threads, not accumulate)
    return plan_cache.cached(spec, sizes, machine, dtype, threads, accumulate)


_executors: list[Callable[..., npt.NDArray[Any]]] = []
"""What runs plans, once a plan has run."""


def _executor(plan: Plan) -> Callable[..., npt.NDArray[Any]]:
    """Return what runs plans: code that planning alone does not load, looked up once.

    It may have to be compiled, and so may the plan's kernels: both at once where cores are free.
    """
    if not _executors:
        from tilesolve.machine.kernel_cache import family_of, start_compiling

        start_compiling(family_of(plan.problem.dtype, plan.machine))
        from tilesolve.running.execution import execute

        _executors.append(execute)
    return _executors[0]


def problem_of(
    spec: Spec | str | Problem, sizes: Sizes | None, dtype: npt.DTypeLike = "float64"
) -> Problem:
    """Return the problem that the arguments of `plan` name.

    Examples
    --------
    >>> str(problem_of("ik-ij-jk", 8))
    'ik-ij-jk i=8 k=8 j=8 float64'
    """
    if isinstance(spec, Problem):
        if sizes is not None:
            raise SizeError("a Problem has its sizes already; do not give any beside it")
        return spec
    if sizes is None:
        raise SizeError(f"sizes are missing: give an extent for each letter of {str(spec)!r}")
    return Problem.of(spec, sizes, dtype)
