"""What variants are told apart by: times of the model, and sizes of working sets."""

from __future__ import annotations

from math import log

from tilesolve.model.price import packing_seconds, stores
from tilesolve.model.set_costs import fill_levels
from tilesolve.planning.reuses import reuses_of
from tilesolve.plans.plan import Plan


def name_times(plan: Plan) -> tuple[str, ...]:
    """Return what the numbers of `list_times` are of.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> name_times(plan("ik-ij-jk", 64, "i7-6700k", cache=False))
    ('L1', 'L2', 'L3', 'memory', 'compute', 'packing', 'price')
    """
    return (*(level.level for level in plan.price.levels), "compute", "packing", "price")


def list_times(plan: Plan) -> tuple[float, ...]:
    """Return the logarithms of a plan's times: of levels, of arithmetic, of packing, of all.

    Packing counts as the ratio of compute to compute without it, as there may be none. Of a
    problem without iterations, where nothing takes time, all are 0.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> len(list_times(plan("ik-ij-jk", 64, "i7-6700k", cache=False)))
    7
    """
    found = plan.solution
    packing = packing_seconds(
        found.cost,
        found.nest,
        found.machine,
        found.microkernel,
        found.problem.dtype,
        found.threads,
    )
    arithmetic = found.cost.compute - packing
    if arithmetic <= 0:
        return (0.0,) * len(name_times(plan))
    levels = (log(level.seconds) for level in found.cost.levels)
    return (*levels, log(arithmetic), log(found.cost.compute / arithmetic), log(found.score))


def list_sets(plan: Plan) -> tuple[float, ...]:
    """Return the bytes of working sets that each cache is to hold, and of those of memory.

    Raises
    ------
    ModelError
        If windows share elements and islpy is missing.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> len(list_sets(plan("ik-ij-jk", 64, "i7-6700k", cache=False)))
    4
    """
    sets = [(one.least, one.most) for one in reuses_of(plan.solution)]
    places = stores(plan.machine, plan.threads)
    filled, beyond = fill_levels(sets, [place.capacity for place in places[1:]])
    return (*map(float, filled), float(beyond))
