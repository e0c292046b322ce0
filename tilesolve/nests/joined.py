"""Statements at the same points as one nest: each vector of all of them at once.

What several of them read or compute, the compiler does once, as no array overlaps another.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import ceil, prod
from operator import add

import numpy as np

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.kernels.programs.nodes import Kind
from tilesolve.machine.model import Machine
from tilesolve.model.loop_tree import Do, Loop, LoopTree, Work, nest_loops
from tilesolve.model.price import Price, list_levels, price_levels
from tilesolve.model.traffic import count_traffic
from tilesolve.nests.arithmetic import points_of_vector, step_seconds
from tilesolve.nests.group_trees import with_works
from tilesolve.nests.plan import NestPlan
from tilesolve.nests.price import evicts_itself
from tilesolve.nests.references import find_references
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import over
from tilesolve.nests.solutions import FusedSolution
from tilesolve.nests.solved import SolvedNest


def join_statements(
    computation: Computation, order: str, machine: Machine, threads: int
) -> NestPlan:
    """Return the plan of statements over the same letters that one nest computes.

    Its loops have these letters in order. Threads divide the first one, vectors lie along the last.

    Raises
    ------
    PlanError
        If letters differ, or a statement is a sum, or reads what another one gives.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> text = "p[y,x] = A[y,x] + A[y,x+1]" + chr(10) + "m[y,x] = A[y,x] - A[y,x+1]"
    >>> found = bind_stages(parse_stages(text), {"y": 4, "x": 8}, outputs=("p", "m"))
    >>> plus, minus = join_statements(found, "yx", Machine.load("i7-6700k"), 1)(np.eye(4, 9))
    >>> float(plus[1, 0]), float(minus[1, 0])
    (1.0, -1.0)
    """
    stages, made = computation.stages, {one.name for one in computation.stages}
    for one in stages:
        if sorted(one.output) != sorted(order) or one.reduction or one.update or one.where:
            raise PlanError(f"{one} is no statement over all of {','.join(order)} alone")
        if made.intersection(read.array for read in one.reads):
            raise PlanError(f"{one} reads what another statement gives")
    first, *between, last = tuple(order)
    kind: Kind = "threads" if threads > 1 else "serial"
    loops = [over(first, 1, kind), *map(over, between), over(last, 1, "vector")]
    request = NestRequest(computation, machine, threads)
    body = nest_loops(loops, tuple(map(Do, range(len(stages)))))
    tree = with_works(request, LoopTree((), body, "store", threads, aligned=False))
    why = f"{len(stages)} statements are computed at the same points"
    found = FusedSolution(request, why, _price(request, loops), tree)
    return NestPlan(SolvedNest(request, (found,)))


def _price(request: NestRequest, loops: list[Loop]) -> Price:
    """Return what all statements cost together: what several of them read comes once.

    A store counts as an operation.
    """
    computation, machine, threads = request.computation, request.machine, request.threads
    stages, sizes, first, last = computation.stages, computation.sizes, loops[0], loops[-1]
    extents = tuple((one.letter, sizes[one.letter]) for one in loops)
    element = np.dtype(computation.output.dtype).itemsize
    work = Work(find_references(computation, *stages), extents, element)
    tree = LoopTree((work,), nest_loops(loops, (Do(),)), "store", threads, aligned=False)
    places = list_levels(machine, threads)
    levels = price_levels(places, count_traffic(tree, places, evicts=evicts_itself(machine)), 1.0)
    lanes = points_of_vector(stages[0], computation.dtypes, machine)
    share = ceil(sizes[first.letter] / threads) / sizes[first.letter]
    rows = share * prod(sizes[one.letter] for one in loops[:-1])
    together = replace(stages[0], term=reduce(add, (one.term for one in stages)))
    step = step_seconds(together, computation.dtypes, machine, threads, last.letter)
    compute = rows * ceil(sizes[last.letter] / lanes) * step
    compute += rows * machine.costs.tile_cycles / machine.frequency
    return Price(levels, compute, rows, ())
