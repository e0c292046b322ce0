"""What a transpose costs: the price of the tree of its walk, and what registers do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import gcd, log2

from tilesolve.constants.nests import NEST_WALK_CALLS
from tilesolve.machine.model import Machine
from tilesolve.model.access import Access, Axis, Mode
from tilesolve.model.loop_tree import Buffer, Call, Do, Loop, LoopTree, Node, Work
from tilesolve.model.nest import Output
from tilesolve.model.price import Price, list_levels, price_levels, send_past_caches
from tilesolve.model.runs import charge_runs
from tilesolve.model.traffic import count_traffic
from tilesolve.packing.sizes import WORD_BYTES
from tilesolve.transposes.solution import TransposeSolution

Step = tuple[int, int]
"""The axis of a loop, and its step."""


def price_transpose(solution: TransposeSolution, machine: Machine) -> Price:
    """Return what a transpose costs each of its threads.

    Each vector goes through registers, and twice where tiles are staged; in a block it is put
    together from its halves, quarters and so on. Each step of the walk that is done at once begins
    like a walk to the next tile, and the walk like a few calls of statements.
    """
    threads = solution.threads
    places = list_levels(machine, threads)
    tree = tree_of_transpose(solution)
    found = count_traffic(tree, places)
    levels, past_caches = price_levels(places, found), 0.0
    if solution.streamed:
        levels, past_caches = send_past_caches(levels, places)
    else:
        levels = charge_runs(levels, tree, places, machine)
    steps = (2 if solution.staging.nbytes else 1) + log2(max(solution.sides[0], 1))
    rate = machine.peak("float64", threads) / threads / 2 * WORD_BYTES  # bytes of shuffles
    compute = steps * float(found.moved[0][0]) / rate
    least = min(solution.axes[at].extent for at in (solution.columns, solution.rows))
    if next(side for side in (*solution.sides, 0) if side <= least) <= 1:
        moved = float(found.moved[0][0]) / solution.element  # by themselves
        compute = max(compute, moved * machine.costs.gather_cycles / machine.frequency)
    compute += float(found.calls) * machine.costs.tile_cycles / machine.frequency
    compute += NEST_WALK_CALLS * machine.costs.statement_seconds
    return Price(levels, compute, float(found.calls), (), past_caches)


def tree_of_transpose(solution: TransposeSolution) -> LoopTree:
    """Return the walk of a transpose as a tree: loops over tiles, and what each tile does.

    What is staged is one call, or else a block that is transposed in registers.

    Examples
    --------
    >>> from tilesolve.transposes.limits import Limits
    >>> from tilesolve.transposes.solution import solve_transpose
    >>> limits = Limits(512, False, 0, 0, 65536, 4)
    >>> print(tree_of_transpose(solve_transpose((40, 50), (400, 8), (8, 320), 8, 1, limits)))
    for x1 step 8
      for x0 step 8
        call:
          target~[x0,x1] = registers of target:
            for x0 step 1
              for x1 step 1
                target[x0,x1] <- source[x1,x0]
    """
    named = {f"x{at}": axis for at, axis in enumerate(solution.axes)}
    names, extents = list(named), {name: axis.extent for name, axis in named.items()}
    target = [(axis.target_step, name) for name, axis in named.items()]
    source = [(abs(axis.source_step), name) for name, axis in named.items()]
    word = gcd(solution.element, WORD_BYTES)
    body: tuple[Node, ...] = (Do(),)
    if solution.element > word:
        extents["run"] = solution.element // word
        target.append((word, "run"))
        source.append((word, "run"))
        body = (Loop("run", 1, body),)
    written = _access("target", target, extents, word, "write")
    read = _access("source", source, extents, word, "read")
    outside, inside = _list_steps(solution)
    for at, step in reversed(inside):
        body = (Loop(names[at], step, body),)
    body = (Call((Buffer(0, written, "registers", "register", body),)),)
    for number, (at, step) in reversed([*enumerate(outside)]):
        shared = solution.threads > 1 and not number
        body = (Loop(names[at], step, body, "threads" if shared else "serial"),)
    work = Work((written, read), tuple(extents.items()), word)
    output: Output = "stream" if solution.streamed else "store"
    return LoopTree((work,), body, output, solution.threads, aligned=False)


def _list_steps(solution: TransposeSolution) -> tuple[list[Step], list[Step]]:
    """Return the loops outside of what is done at once, and those within it.

    Rows that runs cover leave their buffer in the target's order. A loop of one trip is left out.
    """
    axes, staging = solution.axes, solution.staging
    outside = [(at, axes[at].tile) for at in solution.loops]
    outside += [(at, 1) for at in staging.outer]
    outside += [(at, staging.group if at == solution.rows else 1) for at in staging.inner]
    blocks = [(at, max(solution.sides[0], 1)) for at in (solution.columns, solution.rows)]
    if solution.whole or not solution.sides[0]:  # along rows of the target
        blocks.reverse()
    if staging.nbytes and solution.rows not in staging.inner:
        blocks = []
        inside = [(at, 1) for at in sorted((*solution.fills, solution.rows, solution.columns))]
    else:
        blocks = [*((at, 1) for at in solution.fills), *blocks]
        inside = [(solution.rows, 1), (solution.columns, 1)]
    if staging.nbytes:
        inside = [*blocks, *inside]
    else:
        outside += blocks
    left = {at: axis.extent for at, axis in enumerate(axes)}

    def needed(steps: Sequence[Step]) -> Iterator[Step]:
        for at, step in steps:
            if step < left[at]:
                left[at] = step
                yield at, step

    return list(needed(outside)), list(needed(inside))


def _access(
    array: str, steps: Sequence[tuple[int, str]], extents: Mapping[str, int], word: int, mode: Mode
) -> Access:
    """Return the access to an array, given the bytes between neighbours along each letter."""
    moving = sorted((one for one in steps if one[0]), reverse=True)
    axes = [Axis(((1, letter),)) for _, letter in moving]
    bounds = [step for step, _ in moving]
    if not bounds or bounds[-1] > word:
        axes.append(Axis(()))
        bounds.append(word)
    first = extents[moving[0][1]] if moving else 1
    shape = [first, *(max(outer // inner, 1) for outer, inner in pairwise(bounds))]
    return Access(array, tuple(axes), tuple(shape), word, mode)
