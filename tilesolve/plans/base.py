"""What plans have in common, whatever they plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from tilesolve.machine.model import Machine
from tilesolve.machine.what_if import scale_figures
from tilesolve.system.html_report import write_html_report

if TYPE_CHECKING:
    from tilesolve.packing.offsets import Integers
    from tilesolve.running.repeat_call import RepeatCall


class Solved(Protocol):
    """What a plan holds: a frozen value that says how something is run."""

    @property
    def seconds(self) -> float:
        """The predicted time."""
        ...


class MachineSolved(Solved, Protocol):
    """The same for a CPU."""

    @property
    def machine(self) -> Machine:
        """Where."""
        ...

    @property
    def threads(self) -> int:
        """Cores that share the work."""
        ...


SolvedT = TypeVar("SolvedT", bound=Solved)
MachineSolvedT = TypeVar("MachineSolvedT", bound=MachineSolved)
ExecutorT = TypeVar("ExecutorT")


_quick_kinds: set[type] = set()
"""The kinds of plans whose calls compiled code takes first."""


class BasePlan(ABC, Generic[SolvedT, ExecutorT]):
    """A solution that can be called.

    Plans of equal solutions are equal; copies and pickles have the solution only, not what was
    worked out for arrays.
    """

    __slots__ = ("_executor", "_quick", "_solution")

    _solution: SolvedT
    _executor: ExecutorT | None
    _quick: tuple[Integers, RepeatCall] | None
    """What compiled code compares a call with, and what that needs; see `_repeat_quickly`."""

    def __init__(self, solution: SolvedT) -> None:
        self.__setstate__(solution)

    @abstractmethod
    def _make_executor(self) -> ExecutorT:
        """Return what runs the solution."""

    @abstractmethod
    def _rescale(self, factors: Mapping[str, float]) -> SolvedT:
        """Return the solution of what this one solves where figures are multiplied."""

    @abstractmethod
    def to_json(self) -> str:
        """Return the plan as JSON; `from_json` reads it back to an equal value."""

    @property
    def executor(self) -> ExecutorT:
        """What runs the solution, and keeps what it worked out for layouts of arrays."""
        found = self._executor
        if found is None:
            found = self._make_executor()
            object.__setattr__(self, "_executor", found)
        return found

    def _repeat_quickly(self, recent: RepeatCall | None) -> None:
        """Have compiled code take calls like a recent one from now on; None for no such call."""
        if recent is None or recent.needs_bytes:
            object.__setattr__(self, "_quick", None)
        elif self._quick is None or self._quick[1] is not recent:
            object.__setattr__(self, "_quick", (recent.words, recent))
            kind = type(self)
            if kind not in _quick_kinds:
                from tilesolve.kernels.runtime.plan_call import take_calls

                _quick_kinds.add(kind)
                take_calls(kind, self, self._quick)

    @property
    def solution(self) -> SolvedT:
        """What the plan holds: how all is run, what that costs, and how it was found."""
        return self._solution

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return self._solution.seconds

    def whatif(self, **factors: float) -> Self:
        """Return the plan for a machine with some figures multiplied.

        Parameters
        ----------
        **factors
            ``<level>_bandwidth``, ``<level>_capacity`` in lower case, or ``compute``: what each
            is multiplied by.

        Examples
        --------
        >>> from tilesolve.plans.plan import plan
        >>> found = plan("abcdef-degb-gfac", "a=24 b=16 c=16 d=24 e=16 f=16 g=24", "e5-2680v4",
        ...              cache=False)
        >>> found.whatif(compute=0.5).price.bottleneck
        'compute'
        """
        return type(self)(self._rescale(factors))

    def __eq__(self, other: object) -> bool:
        return self._solution == other._solution if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._solution)

    def __getstate__(self) -> SolvedT:
        """Return what copies and pickles have: what was worked out for arrays has addresses."""
        return self._solution

    def __setstate__(self, solution: SolvedT) -> None:
        object.__setattr__(self, "_solution", solution)
        object.__setattr__(self, "_executor", None)
        object.__setattr__(self, "_quick", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to {name!r} of a plan")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r} of a plan")

    def _repr_html_(self) -> str:
        return write_html_report(str(self))


class MachinePlan(BasePlan[MachineSolvedT, ExecutorT]):
    """A plan for a CPU."""

    __slots__ = ()

    @abstractmethod
    def _solve_again(self, machine: Machine) -> MachineSolvedT:
        """Return the solution of what this one solves on another machine."""

    def _rescale(self, factors: Mapping[str, float]) -> MachineSolvedT:
        return self._solve_again(scale_figures(self.machine, factors))

    @property
    def machine(self) -> Machine:
        """Where."""
        return self._solution.machine

    @property
    def threads(self) -> int:
        """Cores that share the work."""
        return self._solution.threads
