"""Task lists of calls, while they are written: what each instruction does, and on which arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Self

import numpy as np

from tilesolve.constants.nests import NEST_HELPED_PROGRAMS
from tilesolve.constants.policy import HELPERS
from tilesolve.kernels.programs.compiled_program import CompiledProgram
from tilesolve.kernels.programs.phases import BUFFERS, FAILURE, STOP
from tilesolve.kernels.runtime import macrokernel, transpose_walk
from tilesolve.kernels.runtime import task_fields as fields
from tilesolve.kernels.runtime.compiled import address
from tilesolve.packing.memory_overlap import Array
from tilesolve.packing.sizes import ALIGNMENT_BYTES, PAGE_BYTES, WORD_BYTES
from tilesolve.running.task import Task
from tilesolve.system.helpers import helped
from tilesolve.transposes.walk_setup import Walk

Operand = tuple[int, int]
"""A slot, and what is added to what it has."""


def constant(value: int) -> Operand:
    """Return an operand that is a number."""
    return fields.ZERO, value


def constant_double(value: float) -> Operand:
    """Return an operand that is the word of a double.

    Examples
    --------
    >>> hex(constant_double(1.0)[1])
    '0x3ff0000000000000'
    """
    return constant(int(np.array(value, np.float64).view(np.int64)))


@dataclass(frozen=True, slots=True)
class Located:
    """Where an array of a call lies, as far as that is known before.

    Parameters
    ----------
    slot, offset
        Its first element: so many bytes behind the address in a slot.
    shape, strides
        As of an array.
    dtype
        Of its elements.

    Examples
    --------
    >>> whole = Located(fields.GIVEN, 0, (4, 4), (32, 8), np.dtype("float64"))
    >>> part = whole.part((1, 2), (3, 2))
    >>> part.offset, part.shape
    (48, (3, 2))
    """

    slot: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def rows(cls, place: Operand, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Self:
        """Return an array in C order."""
        strides = tuple(dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return cls(*place, shape, strides, dtype)

    @classmethod
    def fixed(cls, array: Array) -> Self:
        """Return an array that stays where it is."""
        return cls(fields.ZERO, array.ctypes.data, array.shape, array.strides, array.dtype)

    @property
    def place(self) -> Operand:
        """The operand that is its address."""
        return self.slot, self.offset

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.itemsize * prod(self.shape)

    def part(self, origin: Sequence[int], shape: Sequence[int]) -> Self:
        """Return a part of it, given its first element and its shape."""
        offset = sum(at * step for at, step in zip(origin, self.strides, strict=True))
        return type(self)(self.slot, self.offset + offset, tuple(shape), self.strides, self.dtype)

    def first(self, shape: Sequence[int]) -> Self:
        """Return its first elements."""
        return self.part((0,) * len(shape), shape)

    def transpose(self, axes: Sequence[int]) -> Self:
        """Return it with its axes in another order."""
        shape, strides = (tuple(one[axis] for axis in axes) for one in (self.shape, self.strides))
        return type(self)(self.slot, self.offset, shape, strides, self.dtype)


View = Callable[[Located], Array]
"""Returns an array of a call."""

Job = Callable[[View, Mapping[str, float]], None]
"""What Python does amid a call, given its arrays and parameters."""


@dataclass(frozen=True, slots=True)
class TaskStage:
    """What a call does at once: it begins when all before has ended.

    Parameters
    ----------
    first, last
        The tasks that threads share: the first one, and the one behind the last.
    job
        What Python does instead.
    """

    first: int
    last: int
    job: Job | None = None


@dataclass(slots=True)
class TaskWriter:
    """Writes instructions, task by task.

    Parameters
    ----------
    begins
        The word where each task begins.
    words
        Of all instructions.
    stages
        Of the call.
    checked
        The program that an instruction runs, by its first word.
    links
        The word that says where code is, and of which part of which program; see `link`.
    kept
        What instructions have addresses of.
    frames
        Images with zeros around them, by what they are: works that follow each other share them.
    shared_bytes, own_bytes, scratch_bytes
        Of memory behind the slots of these names.
    own_taken
        Of its own memory, what the task that is written has taken so far.
    alone
        Whether stages that follow are one task each: so small that no thread should come for less.
    """

    begins: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    stages: list[TaskStage] = field(default_factory=list)
    checked: dict[int, CompiledProgram] = field(default_factory=dict)
    links: list[tuple[int, CompiledProgram, int]] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)
    frames: dict[Hashable, Array] = field(default_factory=dict)
    shared_bytes: int = 0
    own_bytes: int = 0
    scratch_bytes: int = 0
    alone: bool = False
    _inside: bool = field(default=False, init=False)
    own_taken: int = field(default=0, init=False)

    def write_stage(self, tasks: Iterable[Callable[[], None]]) -> None:
        """Write a stage of tasks, each by a function; within a task they are a part of it."""
        if self._inside:
            for write in tasks:
                write()
            return
        first, self._inside = len(self.begins), True
        for write in tasks:
            if not self.alone or len(self.begins) == first:
                self.begins.append(len(self.words))
                self.own_taken = 0
            write()
        self._inside = False
        if len(self.begins) > first:
            self.stages.append(TaskStage(first, len(self.begins)))

    def write_job(self, job: Job) -> None:
        """Write a stage that Python runs."""
        self.stages.append(TaskStage(len(self.begins), len(self.begins), job))

    def add_array(self, shape: tuple[int, ...], dtype: str) -> Located:
        """Return a new array in C order: of all threads, or within a task of its own."""
        kind = np.dtype(dtype)
        size = prod(shape) * kind.itemsize
        size += -size % ALIGNMENT_BYTES
        if self._inside:
            place, self.own_taken = (fields.OWN, self.own_taken), self.own_taken + size
            self.own_bytes = max(self.own_bytes, self.own_taken)
        else:
            place, self.shared_bytes = (fields.SHARED, self.shared_bytes), self.shared_bytes + size
        return Located.rows(place, shape, kind)

    def forget_arrays(self, kept_bytes: int = 0) -> None:
        """Have the arrays that follow in a task lie where those before them did, but for some."""
        self.own_taken = kept_bytes

    def run_program(
        self,
        code: CompiledProgram,
        phase: int,
        part: tuple[int, int],
        arrays: Mapping[str, Located],
        params: Mapping[str, Operand],
        known: CompiledProgram,
    ) -> None:
        """Write a part of a program.

        Parameters
        ----------
        code, phase
            The program, and the number of one of its parts between barriers.
        part
            The number of the part, and of how many.
        arrays, params
            By name.
        known
            What says which position is outside, if one is.
        """
        self.checked[len(self.words)] = known
        words, places = code.lay_out_words(arrays)
        buffers = WORD_BYTES * len(words)
        buffers += -buffers % ALIGNMENT_BYTES
        self._need_scratch(buffers + code.arena_bytes)
        patches = [
            (STOP, fields.STOP, 0),
            (FAILURE, fields.FAILURE, 0),
            (BUFFERS, fields.SCRATCH, buffers),
            *((places[info.name], *arrays[info.name].place) for info in code.arrays),
            *((places[name], *params[name]) for name, _ in code.program.computation.params),
        ]
        told = [len(patches), len(words), *(one for patch in patches for one in patch), *words]
        self.links.append((len(self.words) + fields.OPERANDS + 1, code, phase))
        self._write(fields.PROGRAM, map(constant, (0, *part)), told)

    def link(self) -> None:
        """Write where the code of programs is; what is not made yet, free cores make, too."""
        waiting = {
            code.code.path: code.code.load for _, code, _ in self.links if not code.code.is_made
        }
        if len(waiting) >= NEST_HELPED_PROGRAMS:
            jobs = list(waiting.values())
            with helped(jobs, HELPERS):
                for load in jobs:
                    load()
        for at, code, phase in self.links:
            self.words[at] = code.address(phase)
        self.links.clear()

    def run_product(
        self,
        task: Task,
        tensors: Sequence[Located],
        factors: Sequence[Operand],
        operands: Sequence[Located] = (),
    ) -> None:
        """Write a part of a contraction: on the output and both operands, by alpha and beta.

        Each factor is two numbers, its real and its imaginary part. `operands` are the epilogue's.
        """
        self.kept.append(task)
        self._need_scratch(task.workspace_bytes)
        told = (constant(address(macrokernel.run)), constant(task.words.ctypes.data))
        places = (one.place for one in tensors)
        after = constant(len(operands)), *(one.place for one in operands)
        self._write(fields.PRODUCT, (*told, *places, (fields.SCRATCH, 0), *factors, *after))

    def write_product(
        self,
        parts: Sequence[Task],
        tensors: Sequence[Array],
        operands: Sequence[Array],
        beta: float,
    ) -> None:
        """Write the parts of a contraction of arrays that stay where they are, as a stage."""
        self.kept.append((tensors, operands))
        placed, others = ([Located.fixed(one) for one in given] for given in (tensors, operands))
        factors = [constant_double(one) for one in (1.0, 0.0, beta, 0.0)]
        self.write_stage(partial(self.run_product, part, placed, factors, others) for part in parts)

    def run_move(self, walk: Walk, part: tuple[int, int], target: Located, source: Located) -> None:
        """Write a part of a copy in another order."""
        self.kept.append(walk)
        self._need_scratch(walk.workspace_bytes + PAGE_BYTES)
        told = (constant(address(transpose_walk.run)), constant(walk.address))
        places = target.place, source.place, (fields.SCRATCH, 0)
        self._write(fields.MOVE, (*told, *places, *map(constant, part)))

    def clear(self, array: Located) -> None:
        """Write zeros to a new array: up to the end of a word, which is its own, too."""
        count = -(-array.nbytes // WORD_BYTES)
        self._write(fields.CLEAR, (constant(0), array.place, constant(count)))

    def _write(self, kind: int, operands: Iterable[Operand], told: Sequence[int] = ()) -> None:
        given = [one for operand in operands for one in operand]
        self.words += [kind, fields.OPERANDS + len(given) + len(told), *given, *told]

    def _need_scratch(self, size: int) -> None:
        self.scratch_bytes = max(self.scratch_bytes, size)
