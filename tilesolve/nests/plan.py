"""Plans of nests: what users hold of the choices for a computation, and `nest`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy.typing as npt

from tilesolve.contractions.argument_kinds import check_kind, read_flag
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.machine.detect import default_threads
from tilesolve.machine.model import Machine
from tilesolve.model.starts import Start
from tilesolve.nests.arguments import (
    NestDtype,
    NestSizes,
    Region,
    Statement,
    read_computation,
)
from tilesolve.nests.calls import Out
from tilesolve.nests.files import NEST_FORMAT, VALUES, dump_nest, load_nest
from tilesolve.nests.planning import solve_nest
from tilesolve.nests.report import write_nest_report
from tilesolve.nests.request import NestMode, NestRequest, Route
from tilesolve.nests.solutions import NestSolution
from tilesolve.nests.solved import SolvedNest
from tilesolve.plans import cache as plan_cache
from tilesolve.plans.base import MachinePlan
from tilesolve.system.checks import check_threads

if TYPE_CHECKING:
    from tilesolve.nests.running import NestRunner


class StatementsPlan(ABC):
    """What plans of statements take and return, for CPUs and for GPUs."""

    __slots__ = ()

    @property
    @abstractmethod
    def computation(self) -> Computation:
        """What is computed."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arrays that a call takes, in the order in which the text reads them."""
        return self.computation.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The arrays that a call returns."""
        return self.computation.outputs

    @property
    def params(self) -> tuple[str, ...]:
        """The numbers that a call takes by name."""
        return tuple(name for name, _ in self.computation.params)


class NestPlan(StatementsPlan, MachinePlan[SolvedNest, "NestRunner"]):
    """How to run a computation on a machine, and what that is predicted to cost.

    Parameters
    ----------
    solution
        What is computed, where, and how each statement is; `nest` makes one.

    Examples
    --------
    >>> import numpy as np
    >>> found = nest("out[x] = A[x] + A[x+1]", 3, machine="i7-6700k")
    >>> found(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [3.0, 5.0, 7.0]
    """

    __slots__ = ()
    _solve = staticmethod(solve_nest)

    def __init__(self, solution: SolvedNest) -> None:
        check_kind(solution, SolvedNest, "solution", "a SolvedNest; nest makes one", PlanError)
        super().__init__(solution)

    def _make_executor(self) -> NestRunner:
        from tilesolve.nests.running import NestRunner  # planning alone needs no compiler

        return NestRunner(self._solution)

    def _solve_again(self, machine: Machine) -> SolvedNest:
        return self._solve(replace(self.request, machine=machine))

    @property
    def request(self) -> NestRequest:
        """What was asked for."""
        return self._solution.request

    @property
    def solutions(self) -> tuple[NestSolution, ...]:
        """How each statement is run, in order."""
        return self._solution.solutions

    @property
    def computation(self) -> Computation:
        """What is computed."""
        return self.request.computation

    @property
    def mode(self) -> NestMode:
        """How tiles are found."""
        return self.request.mode

    @property
    def how(self) -> str:
        """The class and the route of each statement, in a line."""
        found = (f"{one.kind.value}, {one.route}" for one in self.solutions)
        return "; ".join(dict.fromkeys(found))

    def predict(self, start: Start) -> float:
        """Return the predicted seconds of a call for arrays that lie elsewhere when it begins.

        Parameters
        ----------
        start
            ``"warm"`` for the nearest cache that holds all of them, ``"cold"`` for memory.

        Examples
        --------
        >>> found = nest("o[i] = A[i] + 1", 1000, machine="i7-6700k")
        >>> found.predict("warm") == found.seconds < found.predict("cold")
        True
        """
        return self._solution.starting(start).seconds

    def __call__(
        self, /, *arrays: npt.ArrayLike, out: Out | None = None, **named: npt.ArrayLike
    ) -> Any:  # noqa: ANN401 - an array, or a tuple of them
        """Compute the nest.

        Parameters
        ----------
        arrays
            The inputs in the order of `inputs`, of the plan's shapes and dtypes; any strides. They
            are not modified, unless `out` is one that the nest reads in place.
        out
            Where the result goes; a new array if None. It may be larger than the result. Outside
            the nest's region it stays as it is; a new array has zeros there. It shares elements
            with no input but, as a whole, with the one of its own name. Of several results it is a
            tuple with an array for each.
        **named
            The value of each parameter, and inputs that are given by name.

        Returns
        -------
        numpy.ndarray
            `out`, or the new array; a tuple of these where the nest has several `outputs`.

        Raises
        ------
        SizeError
            If a shape is not the plan's, an array or a parameter is missing, given twice or
            unknown, or a computed subscript lies outside of its array. The last one is found while
            the nest runs; all else before anything is written.
        DtypeError
            If a dtype is not the plan's, or a parameter is no number that its dtype holds.
        PlanError
            If `out` is read-only, or overlaps itself or an input.

        Examples
        --------
        >>> import numpy as np
        >>> counts = nest("h[v[i]] += w[i]", {"i": 3, "h": (4,)}, {"v": "int64", "w": "float64"})
        >>> counts.inputs
        ('v', 'w')
        >>> counts(np.array([1, 3, 1]), w=np.array([0.5, 1.0, 2.0])).tolist()
        [0.0, 2.5, 0.0, 1.0]
        """
        executor = self.executor
        found = executor.compute(arrays, named, out)
        self._repeat_quickly(executor.quick)
        return found

    def bind(self, *arrays: npt.NDArray[Any], out: Out) -> Callable[[], None]:
        """Return what computes the nest for arrays that stay where they are: they are checked now.

        Inputs are in the order of `inputs`, none of them is an output, and there are no parameters.
        What is returned runs in one thread at a time.

        Examples
        --------
        >>> import numpy as np
        >>> row, sums = np.array([1.0, 2.0, 3.0]), np.empty(2)
        >>> again = nest("o[x] = A[x] + A[x+1]", 2, machine="i7-6700k").bind(row, out=sums)
        >>> row[0] = 5
        >>> again()
        >>> sums.tolist()
        [7.0, 5.0]
        """
        return self.executor.bind(arrays, out)

    def __repr__(self) -> str:
        return f"<NestPlan {self.computation} on {self.machine.name}: {self.how}>"

    def __str__(self) -> str:
        return write_nest_report(self._solution)

    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value."""
        return dump_nest(self._solution)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a plan from JSON.

        Examples
        --------
        >>> found = nest("out[y,x] = A[x,y] & B[y,x]", 64, "int32", machine="i7-6700k")
        >>> NestPlan.from_json(found.to_json()) == found
        True
        """
        return cls(load_nest(text))


_P = TypeVar("_P", bound=NestPlan)


def nest(
    statement: Statement,
    sizes: NestSizes = None,
    dtype: NestDtype | None = None,
    *,
    where: Region = (),
    machine: Machine | str | None = None,
    threads: int | None = None,
    mode: NestMode = "default",
    route: Route | None = None,
    outputs: Sequence[str] = (),
    start: Start = "warm",
    cache: bool = True,
) -> NestPlan:
    """Plan statements such as a transpose with a mask, a triangular product or a stencil.

    Parameters
    ----------
    statement
        Python assignments, one a line: ``"out[y,x] = A[x,y] & B[y,x]"``,
        ``"C[i,j] += A[i,k] * A[j,k]"``; see `parse_stages`. Or a `Stage`, or several.
    sizes
        The extent of each letter: a mapping, text such as ``"i=72 j=72"``, or one integer for all.
        A mapping may have arrays or their shapes by name instead.
    dtype
        Of all inputs and parameters, or of each array by its name; if None, that of arrays that
        are given as `sizes`, else float64.
    where
        The region in which the last statement computes: ``"j <= i"``, ``"0 <= i - j < 3"``.
    machine
        A `Machine`, a name or a path; see `Machine.load`.
    threads
        Cores that share the work; if None, ``TILESOLVE_NUM_THREADS``, or one where it is not set.
    mode
        ``"default"``; ``"thesis"`` decides by the printed formulas; ``"untiled"`` takes
        no tiles; ``"plain"`` has threads outside, vectors inside, and nothing else.
    route
        ``"nest"`` generates loops even where a plan, or a transpose, computes the statement;
        ``"contraction"`` and ``"transpose"`` ask for these. If None, the fastest.
    outputs
        The arrays that a call returns; if none are named, those that no later statement reads.
    start
        Where arrays lie when a call begins: ``"warm"`` in the nearest cache that holds all of them,
        as for who repeats calls; ``"cold"`` in memory.
    cache
        Whether plans kept in memory and on disk may be used and added to.

    Raises
    ------
    SpecError
        If a statement cannot be read, or its iterations depend on one another.
    SizeError
        If a letter has no extent, or an element lies outside of its array.
    DtypeError
        If an operation is not made for the dtypes.
    PlanError
        If a statement cannot take the route.

    Examples
    --------
    >>> found = nest("C[i,j] += A[i,k] * A[j,k]", 48, where="j <= i", machine="i7-6700k")
    >>> found.how
    'temporal, nest'
    """
    count = default_threads() if threads is None else check_threads(threads)
    computation = read_computation(statement, sizes, dtype, where, outputs)
    request = NestRequest(computation, Machine.load(machine), count, mode, route, start=start)
    return keep_plan(NestPlan, request, cache=cache)


def keep_plan(kind: type[_P], request: NestRequest, *, cache: bool) -> _P:
    """Return the plan of a request, from memory or from disk unless these are not asked.

    Examples
    --------
    >>> found = nest("out[x] = A[x] + A[x+1]", 3, machine="i7-6700k")
    >>> keep_plan(NestPlan, found.request, cache=True) is found
    True
    """
    if read_flag(cache, "cache", PlanError) and plan_cache.is_enabled():
        key = kind.__name__, request
        return plan_cache.remember(key, lambda: kind(_from_disk(request, kind._solve)))
    return kind(kind._solve(request))


def _from_disk(request: NestRequest, solve: Callable[[NestRequest], SolvedNest]) -> SolvedNest:
    """Return how a computation is run, as this code found before, or finds now."""

    def read(text: str) -> SolvedNest:
        found = load_nest(text)
        if found.request != request:
            raise PlanError("it is of another computation or machine")
        return found

    key = NEST_FORMAT, solve.__name__, VALUES.write(request)
    return plan_cache.recall(key, read, lambda: solve(request), dump_nest)
