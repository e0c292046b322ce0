"""What is done to C once it is summed: epilogues, and partial outputs that are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilesolve.constants.policy import EPILOGUE_OPERATIONS
from tilesolve.contractions.epilogue import Epilogue, Operation
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.roles import shared_lane
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.price import Price, list_levels


def with_epilogue(
    cost: Price,
    problem: Problem,
    epilogue: Epilogue | None,
    machine: Machine,
    threads: int = 1,
    *,
    in_passes: bool = False,
) -> Price:
    """Return a price with what an epilogue takes: its operands are read once by every level.

    First steps take nothing where microkernels do them, unless all are passes over C. Rounding to
    halves is a step of its own, and smooth functions are many operations.

    Examples
    --------
    >>> from tilesolve.model.nest import Nest
    >>> from tilesolve.model.price import compute_price
    >>> problem, machine = Problem.of("mn-mk-kn", 64), Machine.load("i7-6700k")
    >>> nest = Nest.of(problem, [("register", "kmn", 8), ("memory", "kmn", 64)])
    >>> cost = compute_price(problem, nest, machine)
    >>> chains = map(Epilogue.parse, ("+n relu", "+n silu"))
    >>> relu, silu = (with_epilogue(cost, problem, one, machine).compute for one in chains)
    >>> cost.compute == relu < silu
    True
    """
    rounds = is_half(problem.dtype)
    if epilogue is None and not rounds:
        return cost
    shapes = epilogue.shapes(problem) if epilogue else ()
    read = sum(prod(shape) for shape in shapes) * problem.itemsize
    levels = []
    for level, place in zip(cost.levels, list_levels(machine, threads), strict=True):
        seconds = level.seconds + read / (place.read or place.bandwidth)
        levels.append(replace(level, seconds=seconds))
    chain, size = (epilogue.operations if epilogue else ()), prod(problem.shape(0))
    done = 0 if in_passes else count_kernel_steps(problem, chain)
    steps = (rounds + len(chain) - done) * size * machine.costs.epilogue_cycles
    cycles = machine.frequency * machine.busy_cores(threads) / threads
    known = EPILOGUE_OPERATIONS["float64" if problem.dtype == "float64" else "float32"]
    smooth = sum(known.get(one.name, 0) for one in chain) * size * threads
    seconds = steps / cycles + smooth / machine.peak(problem.dtype, threads)
    return replace(cost, levels=tuple(levels), compute=cost.compute + seconds)


def with_passes(
    cost: Price,
    problem: Problem,
    epilogue: Epilogue | None,
    machine: Machine,
    threads: int = 1,
    partials: int = 0,
) -> Price:
    """Return a price with what is done to C in the end: partial outputs are added, by one thread.

    Parameters
    ----------
    cost, problem
        The price of a thread's share, and the share.
    epilogue
        Done by each thread to its part of C, or by the one that adds.
    machine, threads
        Who computes.
    partials
        Arrays beside C for what threads find that divide a sum; 0 for none.
    """
    if not partials:
        return with_epilogue(cost, problem, epilogue, machine, threads)
    added = with_addition(cost, problem, machine, partials)
    return with_epilogue(added, problem, epilogue, machine, in_passes=True)


def count_kernel_steps(problem: Problem, chain: Sequence[Operation]) -> int:
    """Return how many first operations of an epilogue microkernels do, for operands in C order.

    They are a sum with a number for each row, one with an array like C, and bounds.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 64)
    >>> chains = "+n +mn relu gelu", "+m relu", "relu relu", "*n"
    >>> [count_kernel_steps(problem, Epilogue.parse(one).operations) for one in chains]
    [3, 0, 1, 0]
    """
    plain = not (problem.dtype.startswith("complex") or is_half(problem.dtype))
    if not plain or problem.pairing or shared_lane(problem):
        return 0
    fused = fuse(problem)
    columns = fused.letters(fused.columns) if fused.columns else ()
    output = [x for x in problem.spec.output.letters if problem.sizes[x] > 1]
    turned = bool(output) and output[-1] in columns
    begins, adds, done = False, turned, 0
    for one in chain:
        along = [x for x in one.letters if problem.sizes[x] > 1]
        if one.name == "+" and not begins and along and not set(along) & set(columns):
            begins = True
        elif one.name == "+" and not adds and sorted(along) == sorted(output):
            adds = True
        else:
            return done + bool(one.bounds)
        done += 1
    return done


def with_addition(cost: Price, problem: Problem, machine: Machine, partials: int) -> Price:
    """Return a price with what one thread takes to add partial outputs to C.

    It reads each and C, and writes C, through all levels up to a shared one that holds them: each
    was written by another core.

    Examples
    --------
    >>> from tilesolve.model.nest import Nest
    >>> from tilesolve.model.price import compute_price
    >>> problem, machine = Problem.of("mn-mk-kn", 64), Machine.load("i7-6700k")
    >>> nest = Nest.of(problem, [("register", "kmn", 8), ("memory", "kmn", 64)])
    >>> cost = compute_price(problem, nest, machine)
    >>> added = with_addition(cost, problem, machine, 1)
    >>> [more.volume - one.volume for more, one in zip(added.levels, cost.levels, strict=True)]
    [98304.0, 98304.0, 98304.0, 0.0]
    """
    size, levels = problem.bytes[0], []
    shared = {level.name for level in machine.levels if level.shared_by > partials}
    for level, place in zip(cost.levels, list_levels(machine), strict=True):
        kept = place.name in shared and (1 + partials) * size <= place.capacity
        read, both = (0, 0) if kept else (partials * size, 2 * size)
        levels.append(
            replace(
                level,
                moved=(level.moved[0] + read + both // 2, *level.moved[1:]),
                volumes=(level.volumes[0] + read + both, *level.volumes[1:]),
                seconds=level.seconds + float(place.seconds((both, read))),
            )
        )
    cycles = partials * prod(problem.shape(0)) * machine.costs.epilogue_cycles
    return replace(cost, levels=tuple(levels), compute=cost.compute + cycles / machine.frequency)
