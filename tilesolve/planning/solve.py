"""Solving for a plan: the letter that threads divide, the register tile, and the best tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.spec import Spec
from tilesolve.kernels.dtypes import lanes
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.nest import Output
from tilesolve.model.price import stores
from tilesolve.planning.geometric.make_setting import make_setting, satisfiable
from tilesolve.planning.geometric.relaxation import Relaxation, relax
from tilesolve.planning.geometric.select import best_candidate
from tilesolve.planning.policy import (
    MOST_CALL_PRODUCTS,
    STARTS,
)
from tilesolve.planning.register_tile import register_tile
from tilesolve.planning.setting import Setting

if TYPE_CHECKING:
    from tilesolve.plans.plan import Plan


def solve(problem: Problem, machine: Machine, threads: int, overwrite: bool) -> Plan:
    """Return the best plan, without any cache: of all letters that threads may divide.

    Examples
    --------
    >>> problem = Problem.of("ik-ij-jk", {"i": 2000, "j": 40, "k": 40})
    >>> solve(problem, Machine.load("i7-6700k"), threads=2, overwrite=True).split
    'i'
    """
    places = stores(machine, threads)
    output: Output = "accumulate"
    if overwrite:
        kept = min(places[-1].capacity, machine.last_cache_bytes)
        output = "stream" if _passes_by(problem, kept) else "store"
    plans = [
        _solve(problem, machine, threads, split, output) for split in _splits(problem, threads)
    ]
    # Sums in one piece leave little room where a cache is small: parts of them may be faster.
    tight = [
        one
        for one in plans
        if one.output == "stream" and (not satisfiable(one.setting) or _overlapping(one))
    ]
    plans += [_solve(problem, machine, threads, one.split, "store") for one in tight]
    return min(plans, key=lambda found: found.seconds)


def _overlapping(found: Plan) -> bool:
    """Return whether a convolution's tiles overlap so that elements are copied more than once."""
    copied = zip(found.price.packed, found.share.bytes[1:], strict=True)
    return not _convex(found.share.spec) and any(
        count * found.share.itemsize > size for count, size in copied
    )


def _passes_by(problem: Problem, kept: float) -> bool:
    """Return whether the output had better go past the last cache, of which so many bytes count.

    That is where the cache cannot keep it beside the operands, and sums are so short that each
    element can be written once: what is added to again is read again.
    """
    summed = set(problem.sizes) - set(problem.spec.output.letters)
    once = prod(problem.sizes[letter] for letter in summed) <= MOST_CALL_PRODUCTS
    return once and sum(problem.bytes) > kept


def _splits(problem: Problem, threads: int) -> list[str | None]:
    """Return the letters that threads may divide: the longest of each class of the output.

    And of each class the longest of those whose parts are alike and cut no tensor's lines: what is
    read in place had better not begin amid one (measured on a Zen 4: two threads take 33.7 ms for
    `abc-bda-dc` with halves of `a`, 14.6 with halves of `b`, one 27.8).
    """
    if threads == 1:
        return [None]
    sizes = problem.sizes
    tensors = range(len(problem.spec.tensors))
    lined = {
        i for t in tensors for i, step in problem.strides(t).items() if step == problem.itemsize
    }
    found: dict[str, None] = {}
    for group in (c.letters for c in problem.classes if 0 in c.tensors):
        whole = [i for i in group if i not in lined and sizes[i] % threads == 0]
        found |= {
            max(letters, key=sizes.__getitem__): None for letters in (group, whole) if letters
        }
    return [i for i in found if sizes[i] > 1] or [None]


def share_of(problem: Problem, split: str | None, threads: int) -> Problem:
    """Return the part of a problem that one of several threads computes.

    Examples
    --------
    >>> share_of(Problem.of("ik-ij-jk", 10), "i", 3).sizes["i"]
    4
    """
    if split is None:
        return problem
    sizes = dict(problem.sizes)
    sizes[split] = -(-sizes[split] // threads)
    return Problem.of(problem.spec, sizes, problem.dtype)


def _solve(
    problem: Problem,
    machine: Machine,
    threads: int,
    split: str | None,
    output: Output,
) -> Plan:
    from tilesolve.plans.plan import Plan, Search

    share = share_of(problem, split, threads)
    setting, relaxed = _relaxed(share, machine, threads, output)
    found = best_candidate(setting, relaxed, share, machine, threads)
    best, integral = found.optimum, found.integral
    runner_up = next((other for other in relaxed.optima if other.choice != best.choice), None)
    return Plan(
        problem,
        machine,
        threads,
        split,
        setting.output,
        setting.microkernel,
        best.choice,
        integral.chains,
        found.nest,
        found.price,
        Search(
            relaxed.considered,
            relaxed.pruned,
            relaxed.solved,
            relaxed.permutations,
            tuple(best.times.items()),
            tuple(best.tiles.items()),
            tuple(best.elasticities.items()),
            best.spread,
            integral.seconds,
            integral.priced,
            (runner_up.choice, runner_up.seconds) if runner_up else None,
        ),
    )


def _relaxed(
    share: Problem, machine: Machine, threads: int, output: Output
) -> tuple[Setting, Relaxation]:
    """Return what to solve for, and its continuous optima.

    A letter of several subscripts may have no room for the best register tile: then a narrower one
    is taken that has, if need be a part of a vector, as an operand's span grows with every
    subscript. Boxes of letters are whole vectors even so, see `unfuse`. Where no such letter is to
    blame, a cache without room for a vector is an error.
    """
    convex = _convex(share.spec)
    starts = 1 if convex else STARTS
    group = lanes(share.dtype, machine.vector_bits)
    microkernel = register_tile(share, machine, non_temporal=output == "stream")
    setting = make_setting(share, machine, threads, output, microkernel)
    if setting.output != output:  # no room for sums in one piece
        return _relaxed(share, machine, threads, setting.output)
    try:
        return setting, relax(setting, starts=starts)
    except SolverError:
        if output == "stream":  # the smallest tiles have room, but no choice of loops
            return _relaxed(share, machine, threads, "store")
        for narrower in _narrower(microkernel, group, least=group if convex else 1):
            smaller = make_setting(share, machine, threads, output, narrower)
            if satisfiable(smaller):
                return smaller, relax(smaller, starts=starts)
        if satisfiable(setting):
            raise
        rooms = [f"{place.capacity:g} bytes of {place.name}" for place in setting.places[1:]]
        raise SolverError(
            f"no tile fits the caches of machine {machine.name!r}: tiles may take at most "
            + ", ".join(rooms)
        ) from None


def _narrower(microkernel: Microkernel, group: int, least: int) -> Iterator[Microkernel]:
    """Yield register tiles of fewer vectors, of fewer columns, then of `least` or more rows."""
    rows, columns = microkernel.rows, microkernel.columns
    while rows > group:
        rows = max(group, rows // 2 // group * group)
        yield replace(microkernel, rows=rows)
    while columns > 1:
        columns //= 2
        yield replace(microkernel, rows=rows, columns=columns)
    while rows > least:
        rows = max(least, rows // 2)
        yield replace(microkernel, rows=rows, columns=columns)


def _convex(spec: Spec) -> bool:
    return all(len(s.terms) == 1 for tensor in spec.tensors for s in tensor.subscripts)
