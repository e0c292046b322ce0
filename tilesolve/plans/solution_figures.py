"""What a plan tells of its solution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesolve.contractions.argument_kinds import check_factor
from tilesolve.contractions.epilogue import Epilogue
from tilesolve.contractions.errors import MachineError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.microkernel import Microkernel
from tilesolve.model.nest import Nest, Output
from tilesolve.model.price import Price
from tilesolve.planning.geometric.strategy import setting_for
from tilesolve.planning.setting import Choice
from tilesolve.planning.solution import Chains, Search, Solution
from tilesolve.plans.base import ExecutorT, MachinePlan

if TYPE_CHECKING:
    from tilesolve.model.working_sets import Reuse


class SolutionFigures(MachinePlan[Solution, ExecutorT]):
    """The parts of a solution, and what follows from them."""

    __slots__ = ()

    @property
    def problem(self) -> Problem:
        """What is computed."""
        return self._solution.problem

    @property
    def split(self) -> str | None:
        """The letter whose range the threads divide; None for one thread."""
        return self._solution.split

    @property
    def output(self) -> Output:
        """How C is written."""
        return self._solution.output

    @property
    def epilogue(self) -> Epilogue | None:
        """What is done to each element of C in the end."""
        return self._solution.epilogue

    @property
    def microkernel(self) -> Microkernel:
        """The register tile and its costs."""
        return self._solution.microkernel

    @property
    def choice(self) -> Choice:
        """For each cache the classes of the loops around its tile, innermost first."""
        return self._solution.choice

    @property
    def classes(self) -> Chains:
        """For each class its tile sizes, nearest cache first."""
        return self._solution.classes

    @property
    def nest(self) -> Nest:
        """Loops and boxes over letters, of one thread's share."""
        return self._solution.nest

    @property
    def price(self) -> Price:
        """What the nest costs, level by level."""
        return self._solution.cost

    @property
    def search(self) -> Search:
        """How the geometric program found the tiles.

        Raises
        ------
        PlanError
            If another strategy found them, or a scheme was given.
        """
        return self._solution.search

    @property
    def strategy(self) -> str:
        """The strategy that found them; ``"scheme"`` where one was given."""
        return self._solution.strategy

    @property
    def share(self) -> Problem:
        """The part of the problem that one thread computes."""
        return self._solution.share

    @property
    def packing_share(self) -> float:
        """The share of the predicted time that packing has: of the slowest level's, or compute's.

        Examples
        --------
        >>> from tilesolve.plans.plan import plan
        >>> 0 < plan("ik-ij-jk", 512, "i7-6700k", cache=False).packing_share < 0.1
        True
        """
        return self._solution.packing_share

    @property
    def flops(self) -> float:
        """Predicted flop/s of all threads together."""
        return self._solution.flops

    @property
    def roofline(self) -> float:
        """Seconds that no implementation beats: arithmetic at peak, each tensor moved once."""
        return self._solution.roofline

    def roofline_at(self, peak: float) -> float:
        """Return the roofline where all threads together reach another peak, in flop/s.

        Examples
        --------
        >>> from tilesolve.plans.plan import plan
        >>> found = plan("ik-ij-jk", 512, "i7-6700k", cache=False)
        >>> found.roofline_at(found.machine.peak("float64") / 2) == 2 * found.roofline
        True
        """
        check_factor(peak, "peak", MachineError)
        return self._solution.roofline_at(peak)

    @property
    def reuses(self) -> tuple[Reuse, ...]:
        """What loops use again, how far apart, and the level that holds it, innermost loop first.

        Of several threads those of one, and what they share. Bytes are of elements.

        Raises
        ------
        ModelError
            If windows share elements and islpy is missing (extra ``polyhedral``).
        PlanError
            If windows share elements of register tiles of chosen sizes.

        Examples
        --------
        >>> from tilesolve.plans.plan import plan
        >>> found = plan("ik-ij-jk", 512, "i7-6700k", cache=False).reuses
        >>> sorted({again.level for again in found})
        ['L1', 'L2', 'L3']
        """
        from tilesolve.planning.reuses import reuses_of

        return reuses_of(self._solution)

    @property
    def gap(self) -> float:
        """By how much of their time, at most, other tiles would be faster: the excess over `bound`.

        The integer tiles over classes count, before they become boxes.
        """
        return self.search.integral / self.bound - 1

    @property
    def bound(self) -> float:
        """Seconds that no loops and no tiles take less than, for the plan's copies and output.

        Examples
        --------
        >>> from tilesolve.plans.plan import plan
        >>> found = plan("abcd-aebf-dfce", 72, "e5-2680v4", cache=False)
        >>> found.bound <= found.search.integral, round(found.gap, 1)
        (True, 0.0)
        """
        from tilesolve.planning.geometric.bound import find_bound

        return find_bound(setting_for(self._solution))

    @property
    def sensitivity(self) -> dict[str, float]:
        """By how many percent the slowest level's time falls per percent more of each resource.

        From the multipliers of the continuous optimum: names are those of `whatif`.

        Examples
        --------
        >>> from tilesolve.plans.plan import plan
        >>> found = plan("abcd-aebf-dfce", 72, "e5-2680v4", cache=False)
        >>> max(found.sensitivity, key=found.sensitivity.get)
        'compute'
        """
        return dict(self.search.elasticities)
