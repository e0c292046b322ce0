"""Asking ahead: which lines microkernels ask for before they are packed or multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm, prod

from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.model.pages import PAGE, crowds_of, pages_of

CROWDED = 2
"""How many times as many lines are too many at one place of pages: as stay, and as on average."""

CLOSE = 8
"""Lines in each page that a box touches from which on hardware helps to fetch them."""

NEARER = 2.5
"""Times the bandwidth of memory that a third cache has which counts as near."""

BESIDE = 0.6
"""Share of the second cache's bandwidth that it has then, too: 0.8 on a Zen 4, where memory reads
at 26 to 31 GB/s, as neighbours leave it, and the third cache at 90. Three times as fast as memory
was not enough to tell (`abcde-ecbfa-fd` takes 135 ms where that cache counts as near, else 165)."""

SELDOM = 0.05
"""Share of the time of arithmetic with a box below which the time in which memory reads the box is
of no account (measured on a Granite Rapids, without and with: a share of 0.10, `abc-acd-db`, 191
and 186 ms; of 0.01, `abcd-aebf-dfce`, 2583 and 2626 ms)."""

UNASKED = 10.0
"""Cycles that packing a line takes longer where it was not asked for before (measured on a Zen 4, 4
to 11 in five cases; `abcde-efcad-bf` by 24 and by 16 rows: 106 and 95 ms; `abcde-efbad-cf` in
complex128, in boxes of 48 and of 16 of `e`: 400 and 330 ms)."""

BOTH = 0.9
"""Share of the second cache that a copy and the lines of the next one may take together: the rest
is for what passes by (measured on a Zen 4, `abc-bda-dc` in float32: 21.6 ms with 0.99, 18.7 with
0.61; `abcde-ecbfa-fd` in float32 loses nothing with 0.84)."""

KEPT = 0.5
"""Share of the second cache in which a copy stays while much else passes by."""


def foreseen(strides: Mapping[str, int], box: Problem, machine: Machine) -> bool:
    """Return whether the lines of a box had better be asked for before it is packed.

    They must stay in the second cache, see `staying` (measured on a Zen 3, without and with what
    does not stay: `abcd-aebf-dfce` 6.57 and 7.07 s, `abcde-efbad-cf` 214 and 228 ms).

    That is enough where there is a third cache that is much faster than memory (measured on a Zen
    4, where it reads 3.5 times as fast: with runs of 512 bytes `abcde-efcad-bf` takes 98 ms instead
    of 111). Else they must lie close together: a line far from the others takes a buffer for as
    long as it is on its way, which the microkernel's own lines then wait for (measured on a Granite
    Rapids, without and with: `abcde-efcad-bf`, 241 bytes in each page, 111 and 143 ms;
    `abcd-deca-be`, 509, 84 and 98 ms; `abcd-ebad-ce`, 900, 32 and 28 ms). For the same reason a box
    that meets much of the other operand is not asked for.

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
    >>> [foreseen({"m": pitch, "k": 8}, box, machine) for pitch in (384, 6144)]
    [True, False]
    """
    if len(machine.caches) < 2:
        return True
    if not staying(strides, box, machine):
        return False
    memory, size = machine.memory, box.itemsize * prod(box.sizes[i] for i in strides)
    reading = size / (memory.read or memory.bandwidth)
    return near_third(machine) or bool(
        reading > SELDOM * box.flops / machine.peak(box.dtype)
        and size >= CLOSE * memory.line * pages_of(strides, box.sizes)
    )


def staying(strides: Mapping[str, int], box: Problem, machine: Machine) -> bool:
    """Return whether the lines of a box stay in the second cache, beside the copy in use.

    Where lines are in pages is known, where the pages are is not, so that of those at one place as
    many stay as the cache has pages.

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
    >>> machine = Machine.load("i7-6700k")
    >>> [staying({"m": 1 << 12, "k": 8}, Problem.of("mn-mk-kn", n), machine) for n in (48, 192)]
    [True, False]
    """
    room = machine.caches[1].capacity or 0
    crowds = crowds_of(strides, box.sizes, machine.memory.line)
    crowded = crowds.max() > CROWDED * max(room // PAGE, crowds.mean())
    return not crowded and 2 * box.itemsize * prod(box.sizes[i] for i in strides) <= BOTH * room


def unasked(problem: Problem, number: int, box: Mapping[str, int], machine: Machine) -> bool:
    """Return whether an operand is packed whose lines cannot be asked for before.

    Where memory is not much slower than the third cache, it depends on more than whether they stay.
    What fits the second cache is there anyway.

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
    >>> unasked(Problem.of("mn-mk-kn", 512), 1, {"m": 512, "k": 512}, Machine.load("i7-6700k"))
    False
    """
    if not near_third(machine) or problem.bytes[number] <= (machine.caches[1].capacity or 0):
        return False
    return not staying(problem.strides(number), _within(problem, box), machine)


def staying_side(
    problem: Problem,
    number: int,
    box: Mapping[str, int],
    cell: Mapping[str, int],
    machine: Machine,
) -> dict[str, int]:
    """Return a letter and the side of a smaller box, whose lines stay; nothing if there is none.

    Of all letters of the operand and the output the one is taken that leaves the largest box. Along
    that in which the operand is contiguous, a box longer than a line has whole lines.

    Parameters
    ----------
    problem
        What is computed.
    number
        1 or 2, of the operand.
    box
        Whose lines do not stay, see `unasked`.
    cell
        What the sides of the box are multiples of.
    machine
        Where.

    Examples
    --------
    >>> machine = Machine.load("i7-6700k")
    >>> problem = Problem.of("mn-mk-kn", {"m": 192, "n": 64, "k": 512})
    >>> staying_side(problem, 1, {"m": 192, "n": 64, "k": 8}, {"m": 16, "n": 8}, machine)
    {'m': 128}
    """
    strides, found, kept = problem.strides(number), dict[str, int](), 0.0
    line = machine.memory.line // problem.itemsize
    for letter, stride in strides.items():
        if letter in problem.spec.output.letters:
            lined = stride == problem.itemsize and box[letter] > line
            step = lcm(cell[letter], line) if lined else cell[letter]
            for side in reversed(range(step, box[letter], step)):
                if side / box[letter] <= kept:
                    break
                if staying(strides, _within(problem, {**box, letter: side}), machine):
                    found, kept = {letter: side}, side / box[letter]
    return found


def _within(problem: Problem, box: Mapping[str, int]) -> Problem:
    """Return a problem as large as a box."""
    return Problem.of(problem.spec, {**problem.sizes, **box}, problem.dtype)


def near_third(machine: Machine) -> bool:
    """Return whether a third cache is much faster than memory and almost as fast as the second.

    Examples
    --------
    >>> near_third(Machine.load("i7-6700k"))
    False
    """
    if len(machine.caches) < 3:
        return False
    second, third, memory = (
        level.read or level.bandwidth for level in (*machine.levels[1:3], machine.memory)
    )
    return third >= max(BESIDE * second, NEARER * memory)


def afar(copy: int, machine: Machine) -> bool:
    """Return whether a copy of so many bytes is too large for the second cache.

    Strips of one that is not are near when their turn comes.

    Examples
    --------
    >>> [afar(size, Machine.load("e5-2680v4")) for size in (100_000, 200_000)]
    [False, True]
    """
    near = machine.caches[:2]
    return bool(near) and copy > KEPT * (near[-1].usable or 0)
