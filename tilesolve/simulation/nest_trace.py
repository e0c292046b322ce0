"""The addresses that a real nest touches, fed to simulated caches as they arise.

A microkernel call covers the register band's box: for each step of its summed letters it reads
what the step needs of every operand, and at the end it updates the output's tile. The output
and unpacked operands lie in memory row by row. A packed operand is copied into its buffer, in
the order in which the calls will read it, whenever a loop outside the buffer's tile has moved to
another tile; the buffer has the same addresses each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.model.nest import Nest
from tilesolve.packing.sizes import PAGE_BYTES
from tilesolve.simulation.cache_simulator import (
    EMPTY,
    Caches,
    CacheShape,
    access,
    caches,
    lean,
    lean_part,
)

Now = NDArray[np.int64]
LEAST_STEPS = 3
"""Steps that a sample has at least: one to begin with, and others that go on."""

COMPUTE, SOURCE, BUFFER = range(3)
"""What an access is part of: a call, or the reading or the writing of packing."""

OUTPUT = INNERMOST = cast(int, np.int64(0))
"""The tensor that is written, and the nearest loop: in the type of all tensors and loops."""


class _Program(NamedTuple):
    """A nest as arrays; loops stand innermost first, those of a call before all others."""

    letter: NDArray[np.int64]  # loop -> letter
    step: NDArray[np.int64]
    parent: NDArray[np.int64]  # loop -> next outer loop over the same letter, or EMPTY
    inner: NDArray[np.int64]  # letter -> its innermost loop, or EMPTY
    extent: NDArray[np.int64]
    indexes: NDArray[np.bool_]  # tensor, letter -> whether the letter is one of the tensor's
    stride: NDArray[np.int64]  # tensor, letter -> bytes
    base: NDArray[np.int64]  # tensor -> address
    buffer: NDArray[np.int64]  # tensor -> address of its packed copy
    inside: NDArray[np.int64]  # tensor -> loops inside its buffer's tile, or EMPTY if not packed
    copied: NDArray[np.int64]  # packed tensors, those with the largest tile first
    plane: int  # loops of a call over letters of the output
    call: int  # loops of a call
    itemsize: int
    fine: int  # bits of the address within the shortest line


class _Copies(NamedTuple):
    """The state of the packed copies."""

    slot: NDArray[np.int32]  # tensor, element -> place in the buffer
    stamp: NDArray[np.int32]  # tensor, element -> the filling that put it there
    tile: NDArray[np.int64]  # tensor, letter -> corner of the tile that the buffer holds
    fillings: NDArray[np.int64]
    elements: NDArray[np.int64]  # packed so far


@dataclass(frozen=True, slots=True)
class Misses:
    """Lines that the simulated levels missed.

    Parameters
    ----------
    lines
        Misses by level, phase and tensor.
    touches
        Elements that calls touched, by tensor: what the registers take in.
    packed
        Elements that were packed, by tensor.
    share
        The part of the iterations that were run; the other figures are extrapolated from it.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", 16)
    >>> nest = Nest.of(problem, [("register", "nmk", 8), ("memory", "kmn", 16)])
    >>> simulate(problem, nest, [CacheShape(32768, 64)]).lines[0, COMPUTE].tolist()
    [32, 32, 32]
    """

    lines: NDArray[np.int64]
    touches: NDArray[np.int64]
    packed: NDArray[np.int64]
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class _Sample:
    """Which steps of which loop are run: all steps within it, from its beginning."""

    loop: int
    steps: int
    iterations: int  # of one step
    passes: float  # how often the loop is begun in the whole nest
    all_steps: float  # of all passes


def simulate(
    problem: Problem, nest: Nest, shapes: Sequence[CacheShape], budget: float | None = None
) -> Misses:
    """Run the nest's accesses through empty caches.

    Parameters
    ----------
    problem, nest
        What is run.
    shapes
        The caches, nearest first.
    budget
        Elements to touch, about. Where the nest has more, the first steps of one of its loops
        are run; the first step counts once for each time that the loop begins, the mean of the
        others for all others. None for all.

    Raises
    ------
    PlanError
        If register tiles have chosen sizes.

    Examples
    --------
    >>> problem = Problem.of("mn-mk-kn", "m=512 n=16 k=16")
    >>> nest = Nest.of(problem, [("register", "nmk", 8), ("memory", "nkm", 512)])
    >>> part = simulate(problem, nest, [CacheShape(32768, 64)], budget=10_000)
    >>> part.share < 0.5, part.lines[0, COMPUTE].tolist()
    (True, [1024, 1024, 32])
    """
    if nest.cells:
        raise PlanError("nests with register tiles of chosen sizes are not simulated")
    program, span = _program(problem, nest, shapes)
    tensors, letters = program.indexes.shape
    phases = COMPUTE, SOURCE, BUFFER
    state = caches(shapes, span, len(phases) * tensors)
    most = max(prod(shape) for shape in problem.shapes)
    copies = _Copies(
        np.zeros((tensors, most), np.int32),
        np.zeros((tensors, most), np.int32),
        np.full((tensors, letters), EMPTY, np.int64),
        np.zeros(tensors, np.int64),
        np.zeros(tensors, np.int64),
    )
    touches = np.zeros(tensors, np.int64)
    if 0 in problem.sizes.values():
        return Misses(state.misses.reshape(-1, len(phases), tensors), touches, copies.elements)
    sample = None if budget is None else _sample(problem, nest, program, budget)
    now, end = np.zeros((2, program.letter.size), np.int64)
    steps, loop = (1, program.letter.size) if sample is None else (sample.steps, sample.loop)
    counted = state.misses.size + 2 * tensors
    record = np.zeros((steps, counted), np.int64)
    _run(program, copies, state, touches, now, end, loop, record)
    counts = record[0] if sample is None else _extrapolated(record, sample)
    misses = counts[: state.misses.size].reshape(-1, len(phases), tensors)
    touched, packed = counts[state.misses.size :].reshape(2, tensors)
    run = 1.0 if sample is None else sample.steps / sample.all_steps
    return Misses(misses, touched, packed, run)


def _sample(problem: Problem, nest: Nest, program: _Program, budget: float) -> _Sample | None:
    """Return the outermost loop of which three steps, or all, keep the budget; None for all."""
    whole = prod(problem.sizes.values())
    box, spec = dict(nest.bands[0].box), problem.spec
    summed = prod(box[i] for i in box if i not in spec.output.letters)
    kept = [
        prod(box[i] for i in tensor.letters if i in spec.output.letters) for tensor in spec.operands
    ]
    touched = sum(kept) * summed / prod(box.values())  # elements per iteration
    if whole * touched <= budget:
        return None
    names = list(problem.sizes)
    done = dict.fromkeys(problem.sizes, 1)
    found = None
    for loop in range(program.letter.size):
        letter = names[program.letter[loop]]
        inside = prod(done.values())
        outer = program.parent[loop]
        full = problem.sizes[letter] if outer == EMPTY else int(program.step[outer])
        trips = full / done[letter]
        done[letter] = full
        affordable = int(budget / (inside * touched))
        if (
            loop >= program.call
            and trips >= LEAST_STEPS
            and (affordable >= LEAST_STEPS or found is None)
        ):
            steps = max(LEAST_STEPS, min(affordable, int(trips)))
            all_steps = whole / inside
            found = _Sample(loop, steps, inside, all_steps / trips, all_steps)
    return found


def _extrapolated(record: NDArray[np.int64], sample: _Sample) -> NDArray[np.int64]:
    """Return the counts of the whole nest from those after each step of a sample."""
    first = record[0]
    usual: NDArray[np.float64] = (record[-1] - first) / (len(record) - 1)
    later = sample.all_steps - sample.passes
    found: NDArray[np.int64] = np.rint(sample.passes * first + later * usual).astype(np.int64)
    return found


def _program(problem: Problem, nest: Nest, shapes: Sequence[CacheShape]) -> tuple[_Program, int]:
    """Return the nest as arrays, and the number of bytes that it addresses."""
    spec, sizes = problem.spec, problem.sizes
    output = spec.output.letters
    names = list(sizes)
    call = nest.bands[0]
    order = [i for i in call.order if i in output] + [i for i in call.order if i not in output]
    loops = [(i, 1) for i in order if call[i] > 1]
    plane = sum(i in output for i, _ in loops)
    inside = {call.level: len(loops)}
    for near, band in pairwise(nest.bands):
        loops += [(i, near[i]) for i in band.order if band[i] > near[i]]
        inside[band.level] = len(loops)
    innermost, parents = dict.fromkeys(names, EMPTY), [EMPTY] * len(loops)
    first: dict[str, int] = {}
    for at, (letter, _) in reversed(list(enumerate(loops))):
        parents[at] = first.get(letter, EMPTY)
        first[letter] = innermost[letter] = at
    stride = np.zeros((len(spec.tensors), len(names)), np.int64)
    for t in range(len(spec.tensors)):
        for letter, step in problem.strides(t).items():
            stride[t, names.index(letter)] = step
    places = [-(-size // PAGE_BYTES) * PAGE_BYTES for size in (*problem.bytes, *problem.bytes)]
    start = np.concatenate(([0], np.cumsum(places)))
    packed = (None, *(nest.packed or (None,) * len(spec.operands)))
    levels = [band.level for band in nest.bands]
    copied = [t for t, level in enumerate(packed) if level is not None]
    copied.sort(key=lambda t: -levels.index(str(packed[t])))
    program = _Program(
        np.array([names.index(letter) for letter, _ in loops], np.int64),
        np.array([step for _, step in loops], np.int64),
        np.array(parents, np.int64),
        np.array([innermost[letter] for letter in names], np.int64),
        np.array([sizes[letter] for letter in names], np.int64),
        np.array([[letter in tensor.letters for letter in names] for tensor in spec.tensors]),
        stride,
        start[: len(spec.tensors)],
        start[len(spec.tensors) : -1],
        np.array([EMPTY if level is None else inside[level] for level in packed], np.int64),
        np.array(copied, np.int64),
        plane,
        inside[call.level],
        problem.itemsize,
        min(shape.line for shape in shapes).bit_length() - 1,
    )
    return program, int(start[-1])


@lean_part
def _enter(program: _Program, now: Now, end: Now, loop: int) -> None:
    """Start a loop at the beginning of its range in the surrounding loops."""
    outer = program.parent[loop]
    if outer == EMPTY:
        now[loop], end[loop] = 0, program.extent[program.letter[loop]]
    else:
        now[loop] = now[outer]
        end[loop] = min(now[outer] + program.step[outer], end[outer])


@lean_part
def _offset(program: _Program, now: Now, tensor: int) -> int:
    """Return where in a tensor the loops stand, in bytes."""
    offset = 0
    for letter in range(program.inner.size):
        if program.inner[letter] != EMPTY:
            offset += program.stride[tensor, letter] * now[program.inner[letter]]
    return offset


@lean_part
def _advance(program: _Program, now: Now, end: Now, tensor: int, first: int, last: int) -> int:
    """Go to the next point of the loops that index a tensor (or all, if EMPTY).

    Return the loop that moved on, or EMPTY after the last point.
    """
    for loop in range(first, last):
        if tensor == EMPTY or program.indexes[tensor, program.letter[loop]]:
            now[loop] += program.step[loop]
            if now[loop] < end[loop]:
                for inner in range(loop - 1, first - 1, -1):
                    if tensor == EMPTY or program.indexes[tensor, program.letter[inner]]:
                        _enter(program, now, end, inner)
                return loop
    return EMPTY


@lean_part
def _begin(program: _Program, now: Now, end: Now, tensor: int, first: int, last: int) -> None:
    for loop in range(last - 1, first - 1, -1):
        if tensor == EMPTY or program.indexes[tensor, program.letter[loop]]:
            _enter(program, now, end, loop)


@lean_part
def _touch(
    program: _Program,
    copies: _Copies,
    state: Caches,
    touches: Now,
    now: Now,
    end: Now,
    tensor: int,
) -> None:
    """Touch what one step of a call needs of a tensor, row by row along its innermost loop."""
    lane, pitch, length = 0, 0, 1
    while lane < program.plane and not program.indexes[tensor, program.letter[lane]]:
        lane += 1
    _begin(program, now, end, tensor, INNERMOST, program.plane)
    if lane < program.plane:
        pitch = program.stride[tensor, program.letter[lane]]
        length = end[lane] - now[lane]
    moving = True
    while moving:
        offset = _offset(program, now, tensor)
        latest = EMPTY
        for _ in range(length):
            if program.inside[tensor] == EMPTY:
                address = program.base[tensor] + offset
            else:
                slot = copies.slot[tensor, offset // program.itemsize]
                address = program.buffer[tensor] + slot * program.itemsize
            if address >> program.fine != latest:  # else it is the newest line anyway
                access(state, address, tensor)
                latest = address >> program.fine
            offset += pitch
        touches[tensor] += length
        moving = _advance(program, now, end, tensor, lane + 1, program.plane) != EMPTY


@lean_part
def _pack(
    program: _Program, copies: _Copies, state: Caches, now: Now, end: Now, tensor: int
) -> None:
    """Copy a tile into its buffer, unless the buffer holds it, in the order of later reading."""
    tensors = program.base.size
    inside = program.inside[tensor]
    same = True
    for letter in range(program.inner.size):
        corner = 0
        for loop in range(program.letter.size - 1, inside - 1, -1):
            if program.letter[loop] == letter and program.indexes[tensor, letter]:
                corner = now[loop]
        if copies.tile[tensor, letter] != corner:
            copies.tile[tensor, letter] = corner
            same = False
    if same:
        return
    copies.fillings[tensor] += 1
    slot = 0
    _begin(program, now, end, tensor, INNERMOST, inside)
    moving = True
    while moving:
        offset = _offset(program, now, tensor)
        element = offset // program.itemsize
        if copies.stamp[tensor, element] != copies.fillings[tensor]:
            copies.stamp[tensor, element] = copies.fillings[tensor]
            copies.slot[tensor, element] = slot
            access(state, program.base[tensor] + offset, SOURCE * tensors + tensor)
            address = program.buffer[tensor] + slot * program.itemsize
            access(state, address, BUFFER * tensors + tensor)
            slot += 1
        moving = _advance(program, now, end, tensor, INNERMOST, inside) != EMPTY
    copies.elements[tensor] += slot


@lean
def _run(
    program: _Program,
    copies: _Copies,
    state: Caches,
    touches: Now,
    now: Now,
    end: Now,
    sampled: int,
    record: NDArray[np.int64],
) -> None:
    """Run calls, and packing where a loop outside a buffer's tile has moved.

    Misses, touches and packed elements so far are recorded after each step of the sampled loop,
    until the record is full, and at the end.
    """
    depth = program.letter.size
    tensors = program.base.size
    step = 0
    _begin(program, now, end, EMPTY, program.call, depth)
    moved = depth
    while moved != EMPTY:
        for tensor in program.copied:
            if moved >= program.inside[tensor]:
                _pack(program, copies, state, now, end, tensor)
                _begin(program, now, end, EMPTY, program.call, program.inside[tensor])
        _begin(program, now, end, EMPTY, program.plane, program.call)
        stepped = depth
        while stepped != EMPTY:
            for tensor in range(1, tensors):
                _touch(program, copies, state, touches, now, end, tensor)
            stepped = _advance(program, now, end, EMPTY, program.plane, program.call)
        _touch(program, copies, state, touches, now, end, OUTPUT)
        moved = _advance(program, now, end, EMPTY, program.call, depth)
        if moved == EMPTY or moved >= sampled:
            levels, owners = state.misses.shape
            for level in range(levels):
                for owner in range(owners):
                    record[step, level * owners + owner] = state.misses[level, owner]
            for tensor in range(tensors):
                record[step, levels * owners + tensor] = touches[tensor]
                record[step, levels * owners + tensors + tensor] = copies.elements[tensor]
            step += 1
            if step == len(record):
                return
