"""The addresses that a real nest touches, fed to simulated caches as they arise.

A microkernel call covers the register band's box: for each step of its summed letters it reads
what the step needs of every operand, and at the end it updates the output's tile. The output
and unpacked operands lie in memory row by row. A packed operand is copied into its buffer, in
the order in which the calls will read it, whenever a loop outside the buffer's tile has moved to
another tile; the buffer has the same addresses each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from cache_simulator import EMPTY, CacheShape, access, caches, lean

from tilesolve.contractions.problem import Problem
from tilesolve.nest import Nest

PAGE = 4096
COMPUTE, SOURCE, BUFFER = range(3)
"""What an access is part of: a call, or the reading or the writing of packing."""


class Program(NamedTuple):
    """A nest as arrays; loops stand innermost first, those of a call before all others."""

    letter: np.ndarray  # loop -> letter
    step: np.ndarray
    parent: np.ndarray  # loop -> next outer loop over the same letter, or EMPTY
    inner: np.ndarray  # letter -> its innermost loop, or EMPTY
    extent: np.ndarray
    indexes: np.ndarray  # tensor, letter -> whether the letter is one of the tensor's
    stride: np.ndarray  # tensor, letter -> bytes
    base: np.ndarray  # tensor -> address
    buffer: np.ndarray  # tensor -> address of its packed copy
    inside: np.ndarray  # tensor -> loops inside its buffer's tile, or EMPTY if not packed
    copied: np.ndarray  # packed tensors, those with the largest tile first
    plane: int  # loops of a call over letters of the output
    call: int  # loops of a call
    itemsize: int


class Copies(NamedTuple):
    """The state of the packed copies."""

    slot: np.ndarray  # tensor, element -> place in the buffer
    stamp: np.ndarray  # tensor, element -> the filling that put it there
    tile: np.ndarray  # tensor, letter -> corner of the tile that the buffer holds
    fillings: np.ndarray
    elements: np.ndarray  # packed so far


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
    """

    lines: np.ndarray
    touches: np.ndarray
    packed: np.ndarray


def simulate(problem: Problem, nest: Nest, shapes: list[CacheShape]) -> Misses:
    """Run the nest's accesses through empty caches."""
    program, span = _program(problem, nest)
    tensors, letters = program.indexes.shape
    phases = COMPUTE, SOURCE, BUFFER
    state = caches(shapes, span, len(phases) * tensors)
    most = max(int(np.prod(shape)) for shape in problem.shapes)
    copies = Copies(
        np.zeros((tensors, most), np.int64),
        np.zeros((tensors, most), np.int64),
        np.full((tensors, letters), EMPTY, np.int64),
        np.zeros(tensors, np.int64),
        np.zeros(tensors, np.int64),
    )
    touches = np.zeros(tensors, np.int64)
    if 0 not in problem.sizes.values():
        now, end = np.zeros((2, program.letter.size), np.int64)
        _run(program, copies, state, touches, now, end)
    return Misses(state.misses.reshape(-1, len(phases), tensors), touches, copies.elements)


def _program(problem: Problem, nest: Nest) -> tuple[Program, int]:
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
    innermost, parents, first = dict.fromkeys(names, EMPTY), [EMPTY] * len(loops), {}
    for at, (letter, _) in reversed(list(enumerate(loops))):
        parents[at] = first.get(letter, EMPTY)
        first[letter] = innermost[letter] = at
    stride = np.zeros((len(spec.tensors), len(names)), np.int64)
    for t, (tensor, shape) in enumerate(zip(spec.tensors, problem.shapes, strict=True)):
        for axis, subscript in enumerate(tensor.subscripts):
            pitch = problem.itemsize * int(np.prod(shape[axis + 1 :]))
            for coefficient, letter in subscript.terms:
                stride[t, names.index(letter)] += coefficient * pitch
    places = [-(-size // PAGE) * PAGE for size in (*problem.bytes, *problem.bytes)]
    start = np.concatenate(([0], np.cumsum(places)))
    packed = (None, *(nest.packed or (None,) * len(spec.operands)))
    levels = [band.level for band in nest.bands]
    copied = [t for t, level in enumerate(packed) if level is not None]
    copied.sort(key=lambda t: -levels.index(packed[t]))
    program = Program(
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
    )
    return program, int(start[-1])


@lean
def _enter(program, now, end, loop):
    """Start a loop at the beginning of its range in the surrounding loops."""
    outer = program.parent[loop]
    if outer == EMPTY:
        now[loop], end[loop] = 0, program.extent[program.letter[loop]]
    else:
        now[loop] = now[outer]
        end[loop] = min(now[outer] + program.step[outer], end[outer])


@lean
def _offset(program, now, tensor):
    """Return where in a tensor the loops stand, in bytes."""
    offset = 0
    for letter in range(program.inner.size):
        if program.inner[letter] != EMPTY:
            offset += program.stride[tensor, letter] * now[program.inner[letter]]
    return offset


@lean
def _advance(program, now, end, tensor, first, last):
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


@lean
def _begin(program, now, end, tensor, first, last):
    for loop in range(last - 1, first - 1, -1):
        if tensor == EMPTY or program.indexes[tensor, program.letter[loop]]:
            _enter(program, now, end, loop)


@lean
def _touch(program, copies, state, touches, now, end, tensor):
    """Touch what one step of a call needs of a tensor, row by row along its innermost loop."""
    lane, pitch, length = 0, 0, 1
    while lane < program.plane and not program.indexes[tensor, program.letter[lane]]:
        lane += 1
    _begin(program, now, end, tensor, 0, program.plane)
    if lane < program.plane:
        pitch = program.stride[tensor, program.letter[lane]]
        length = end[lane] - now[lane]
    moving = True
    while moving:
        offset = _offset(program, now, tensor)
        for _ in range(length):
            if program.inside[tensor] == EMPTY:
                address = program.base[tensor] + offset
            else:
                slot = copies.slot[tensor, offset // program.itemsize]
                address = program.buffer[tensor] + slot * program.itemsize
            access(state, address, tensor)
            offset += pitch
        touches[tensor] += length
        moving = _advance(program, now, end, tensor, lane + 1, program.plane) != EMPTY


@lean
def _pack(program, copies, state, now, end, tensor):
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
    _begin(program, now, end, tensor, 0, inside)
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
        moving = _advance(program, now, end, tensor, 0, inside) != EMPTY
    copies.elements[tensor] += slot


@lean
def _run(program, copies, state, touches, now, end):
    """Run all calls, and packing where a loop outside a buffer's tile has moved."""
    depth = program.letter.size
    tensors = program.base.size
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
        _touch(program, copies, state, touches, now, end, 0)
        moved = _advance(program, now, end, EMPTY, program.call, depth)
