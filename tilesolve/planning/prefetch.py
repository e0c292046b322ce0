"""Prefetching what is packed next: which lines are prefetched, and which caches hold them then."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import lcm, prod

from tilesolve.constants import policy
from tilesolve.contractions.problem import Problem
from tilesolve.kernels.microkernel_costs import default_tile
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.model.pages import lines_by_place, pages_of
from tilesolve.packing.sizes import PAGE_BYTES


def should_prefetch(strides: Mapping[str, int], box: Problem, machine: Machine) -> bool:
    """Return whether the lines of a box are prefetched before it is packed.

    They must stay in the second cache, see `stays_in_second_cache`. Where `third_cache_feeds`, that
    is enough. Elsewhere each line on its way takes a buffer that the microkernel's own lines then
    wait for. So the lines must lie close together, where hardware helps to fetch them, and reading
    the box must take a fair share of its arithmetic. See ``docs/decisions/022-prefetch.md``.

    Parameters
    ----------
    strides
        Of the operand, in bytes.
    box
        What is computed while its part of the operand is packed.
    machine
        Where.

    Examples
    --------
    >>> box, machine = Problem.of("mn-mk-kn", 48), Machine.load("e5-2680v4")
    >>> [should_prefetch({"m": pitch, "k": 8}, box, machine) for pitch in (384, 6144)]
    [True, False]
    """
    if machine.second_cache is None:
        return True
    if not stays_in_second_cache(strides, box, machine):
        return False
    memory, size = machine.memory, box.itemsize * prod(box.sizes[i] for i in strides)
    reading = size / (memory.read or memory.bandwidth)
    return third_cache_feeds(machine) or bool(
        reading > policy.PREFETCH_LEAST_SHARE * box.flops / machine.peak(box.dtype)
        and size >= policy.PREFETCH_LINES_PER_PAGE * memory.line * pages_of(strides, box.sizes)
    )


def stays_in_second_cache(strides: Mapping[str, int], box: Problem, machine: Machine) -> bool:
    """Return whether the lines of a box stay in the second cache, beside the copy in use.

    Where lines are within pages is known, where pages are is not: of lines at one place in their
    pages as many stay as the cache has pages.

    Parameters
    ----------
    strides
        Of the operand, in bytes.
    box
        Whose part of the operand is packed at once.
    machine
        With two caches at least.

    Examples
    --------
    >>> machine, strides = Machine.load("i7-6700k"), {"m": 1 << 12, "k": 8}
    >>> [stays_in_second_cache(strides, Problem.of("mn-mk-kn", n), machine) for n in (48, 192)]
    [True, False]
    """
    return _stays(strides, box.sizes, box.itemsize, machine)


def _stays(
    strides: Mapping[str, int], sides: Mapping[str, int], itemsize: int, machine: Machine
) -> bool:
    """Return what `stays_in_second_cache` does, given the sides of the box."""
    capacity = capacity_of(machine.second_cache)
    size = 2 * itemsize * prod(sides[i] for i in strides)
    if size > machine.costs.prefetch_share * capacity:
        return False
    steps, lengths = tuple(strides.items()), tuple(sides[i] for i in strides)
    most, mean = _lines_at_places(steps, lengths, machine.memory.line)
    return most <= policy.ALIASED_PAGES_RATIO * max(capacity // PAGE_BYTES, mean)


@lru_cache(maxsize=256)
def _lines_at_places(
    strides: tuple[tuple[str, int], ...], sides: tuple[int, ...], line: int
) -> tuple[float, float]:
    """Return how many lines of a box are at a place in their pages: most, and in the mean."""
    steps = dict(strides)
    counts = lines_by_place(steps, dict(zip(steps, sides, strict=True)), line)
    return float(counts.max()), float(counts.mean())


def is_packed_late(problem: Problem, number: int, box: Mapping[str, int], machine: Machine) -> bool:
    """Return whether packing an operand waits for its lines, which cannot be prefetched.

    What fits the second cache is there anyway. Unless `third_cache_feeds`, more decides than
    whether the lines stay there, and nothing is said.

    Parameters
    ----------
    problem
        What is computed.
    number
        1 or 2.
    box
        Sides of what is packed at once.
    machine
        Where.

    Examples
    --------
    >>> machine, box = Machine.load("i7-6700k"), {"m": 512, "k": 512}
    >>> is_packed_late(Problem.of("mn-mk-kn", 512), 1, box, machine)
    False
    """
    if not third_cache_feeds(machine) or problem.bytes[number] <= capacity_of(machine.second_cache):
        return False
    return not _stays(problem.strides(number), box, problem.itemsize, machine)


def cut_to_stay(
    problem: Problem,
    number: int,
    box: Mapping[str, int],
    register_box: Mapping[str, int],
    machine: Machine,
) -> dict[str, int]:
    """Return a letter and a smaller side of a box whose lines stay; nothing if there is none.

    Of all letters of the operand and the output the one is taken that leaves the largest box. Along
    that in which the operand is contiguous, a box longer than a line has whole lines.

    Parameters
    ----------
    problem
        What is computed.
    number
        1 or 2, of the operand.
    box
        Whose lines do not stay, see `stays_in_second_cache`.
    register_box
        What the sides of the box are multiples of.
    machine
        Where.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> problem = Problem.of("mn-mk-kn", {"m": 192, "n": 64, "k": 512})
    >>> cut_to_stay(problem, 1, {"m": 192, "n": 64, "k": 8}, {"m": 16, "n": 8}, machine)
    {'m': 128}
    """
    strides, found, kept = problem.strides(number), dict[str, int](), 0.0
    line = machine.memory.line // problem.itemsize
    for letter, stride in strides.items():
        if letter in problem.spec.output.letters:
            whole_lines = stride == problem.itemsize and box[letter] > line
            step = lcm(register_box[letter], line) if whole_lines else register_box[letter]
            for side in reversed(range(step, box[letter], step)):
                if side / box[letter] <= kept:
                    break
                if _stays(strides, {**box, letter: side}, problem.itemsize, machine):
                    found, kept = {letter: side}, side / box[letter]
    return found


def capacity_of(cache: Level | None) -> int:
    """Return the bytes of a cache; none if there is no cache, or its size is not known."""
    return (cache.capacity or 0) if cache else 0


def third_cache_feeds(machine: Machine) -> bool:
    """Return whether a third cache feeds the microkernel, which memory does not.

    What prefetched lines push out of the second cache comes from the third one again. A step whose
    rows come from there must take no longer than its FMAs.

    Examples
    --------
    >>> third_cache_feeds(Machine.load("i7-6700k"))
    False
    """
    third = machine.third_cache
    if third is None:
        return False
    _, columns = default_tile("float64", machine.vector_bits, machine.vector_registers)
    steps = machine.fma_rate * machine.frequency / columns  # of one vector of rows, in a second
    needed = policy.FEEDING_RATIO * steps * machine.vector_bits / 8
    near, far = (level.read or level.bandwidth for level in (third, machine.memory))
    return near >= needed > far
