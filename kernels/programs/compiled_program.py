"""Programs as machine code: compiled for arrays of a layout, kept on disk, and run on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from tilesolve.contractions.errors import DtypeError, SizeError, SpecError
from tilesolve.contractions.statements.computation import ArrayInfo
from tilesolve.contractions.statements.terms import Term
from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.object_code import TargetCpu, compile_module
from tilesolve.kernels.ir.picked_bytes import FEATURE
from tilesolve.kernels.objects import load_object, object_path
from tilesolve.kernels.programs.layout import Layout, Strided
from tilesolve.kernels.programs.phases import (
    BUFFERS,
    FAILURE,
    FIRST_ARRAY,
    STOP,
    arena_bytes,
    has_threads,
    split_phases,
)
from tilesolve.kernels.programs.program import Buffer, Program
from tilesolve.kernels.programs.range_checks import RangeCheck, range_checks
from tilesolve.kernels.programs.skeleton import Skeleton, find_skeleton
from tilesolve.packing import buffers
from tilesolve.packing.memory_overlap import overlap
from tilesolve.system.cancellation import stop_address
from tilesolve.system.workers import run_together

Array = npt.NDArray[Any]
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def plan_program(
    program: Program, layout: Layout | None = None, bits: int | None = None
) -> CompiledProgram:
    """Return a program as machine code for this CPU, which is made, or read, when it is needed.

    Parameters
    ----------
    program
        What to compile.
    layout
        Of its arrays: in C order unless given.
    bits
        Width of vectors; the CPU's widest unless given.
    """
    cpu = TargetCpu.here()
    layout = Layout.rows(program.computation) if layout is None else layout
    bits = cpu.bits if bits is None else bits
    skeleton, sizes = find_skeleton(program)
    path = object_path("code", "program", skeleton, layout, bits, np.__version__)

    def build() -> bytes:
        return compile_module(lower_program(skeleton, layout, bits, cpu), cpu, unroll=False)

    return CompiledProgram(program, skeleton, sizes, layout, bits, ProgramCode(path, build))


def lower_program(skeleton: Skeleton, layout: Layout, bits: int, cpu: TargetCpu) -> ir.Module:
    """Return a program in LLVM IR for a CPU."""
    from tilesolve.kernels.programs.module import lower  # most processes have code on disk

    return lower(skeleton, layout, bits, picks_bytes=FEATURE in cpu.features.split(",")).module


@dataclass(slots=True, eq=False)
class ProgramCode:
    """Code of a program: in memory, on disk, or made when it is needed.

    Parameters
    ----------
    path
        Where it is kept.
    build
        Makes it.
    """

    path: Path
    build: Callable[[], bytes]
    _loaded: dict[Path, LoadedCode] = field(default_factory=dict, init=False)

    @property
    def is_made(self) -> bool:
        """Whether nobody has to make it."""
        return bool(self._loaded) or self.path.exists()

    def load(self) -> LoadedCode:
        """Return it in memory: the same to all threads, as they keep addresses of it."""
        if not self._loaded:
            self._loaded.setdefault(self.path, load_object(self.path, self.build))
        return self._loaded[self.path]


@dataclass(frozen=True)
class CompiledProgram:
    """A program as machine code.

    Parameters
    ----------
    program
        What runs.
    skeleton, sizes
        What was compiled, and the sizes that it is given.
    layout
        The arrays' layout.
    bits
        Width of vectors.
    code
        The code, which may not be made yet.
    """

    program: Program
    skeleton: Skeleton
    sizes: tuple[int, ...]
    layout: Layout
    bits: int
    code: ProgramCode

    def run(
        self,
        arrays: Mapping[str, Array],
        params: Mapping[str, float] | None = None,
        *,
        threads: int = 1,
        parts: int | None = None,
    ) -> None:
        """Run the program on arrays.

        Parameters
        ----------
        arrays
            By name: those that are read, and those that are written. Arrays between stages that
            are kept in no room may be left out.
        params
            The value of each parameter.
        threads
            How many run at once.
        parts
            How many parts loops of threads are cut into, which threads take one after another;
            as many as there are threads unless given.

        Raises
        ------
        SizeError
            If an array is not as the program has it, or a computed subscript lies outside.
        DtypeError
            If an array is of another dtype.
        SpecError
            If an array that is written overlaps another one, or cannot be written.
        """
        given = self._complete(arrays)
        self._check(given)
        words = self._words(given, params or {})
        parts = threads if parts is None else parts
        teams = [_Member(self, words if number == 0 else words.copy()) for number in range(threads)]
        for phase, divided in enumerate(self.divided):
            count_parts = parts if divided else 1
            numbers, code = count(), _CALL(self.address(phase))
            jobs = [partial(one.run, code, numbers, count_parts) for one in teams[:count_parts]]
            run_together(jobs)
            for member in teams:
                member.check()

    @cached_property
    def arrays(self) -> tuple[ArrayInfo, ...]:
        """The arrays that the code is given, in the order of its words."""
        kept = {node.name for node in self.program.nodes if isinstance(node, Buffer)}
        return tuple(one for one in self.program.computation.arrays if one.name not in kept)

    @cached_property
    def divided(self) -> tuple[bool, ...]:
        """Whether threads divide it, for each part between barriers."""
        return tuple(map(has_threads, split_phases(self.skeleton.body)))

    def address(self, phase: int) -> int:
        """Return where the code of a part between barriers is."""
        return self.code.load().address(f"phase{phase}")

    @cached_property
    def arena_bytes(self) -> int:
        """Bytes of a thread's buffers."""
        return max(1, arena_bytes(self.skeleton))

    def lay_out_words(self, arrays: Mapping[str, Strided]) -> tuple[list[int], dict[str, int]]:
        """Return the words of a call, with strides alone, and where each address is missing.

        Parameters
        ----------
        arrays
            By name.

        Returns
        -------
        tuple
            The words, and for each array and each parameter the number of its word.
        """
        words, places = [0] * FIRST_ARRAY, {}
        for info in self.arrays:
            places[info.name] = len(words)
            words += [0, *arrays[info.name].strides]
        for name, _ in self.program.computation.params:
            places[name] = len(words)
            words.append(0)
        return words + list(self.sizes), places

    def find_error(self, number: int, position: int) -> SizeError | DtypeError:
        """Return what a check says that failed, given its number and the integer that it found."""
        computation = self.program.computation
        if number < 0:
            stage = computation.stages[-1 - number]
            return DtypeError(f"{stage}: an integer has no power of {position}; write float64(…)")
        check: RangeCheck = range_checks(computation.stages)[number - 1]
        extent = computation.array(check.read.array).shape[check.axis]
        subscript = check.read.subscripts[check.axis]
        if isinstance(subscript, Term) and subscript.kind(computation.dtypes) == "uint64":
            position %= 2**64  # code has it as a signed number
        return SizeError(
            f"{computation.stages[check.stage]}: {check.read} is at position {position} of axis "
            f"{check.axis} of {check.read.array}, which has {extent}"
        )

    def _complete(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return all arrays in memory, with new ones for what stages hand to others."""
        computation, found = self.program.computation, {}
        outer = (*computation.inputs, computation.output.name)
        for info in self.arrays:
            if info.name in arrays:
                found[info.name] = arrays[info.name]
            elif info.name in outer:
                raise SizeError(f"no array is given for {info.name} of {computation}")
            else:
                found[info.name] = buffers.empty(info.shape, np.dtype(info.dtype))
        return found

    def _check(self, arrays: Mapping[str, Array]) -> None:
        written = {stage.name for stage in self.program.computation.stages}
        for info in self.arrays:
            _check_array(info, arrays[info.name], self.layout)
            if info.name in written and not arrays[info.name].flags.writeable:
                raise SpecError(f"{info.name} cannot be written")
        for name in written & set(arrays):
            for other, array in arrays.items():
                if other != name and overlap(arrays[name], array):
                    raise SpecError(f"{name}, which is written, overlaps {other} in memory")

    def _words(
        self, arrays: Mapping[str, Array], params: Mapping[str, float]
    ) -> npt.NDArray[np.int64]:
        """Return the words of a call, those of a thread's own still 0."""
        found, places = self.lay_out_words(arrays)
        words = np.array(found, np.int64)
        for info in self.arrays:
            words[places[info.name]] = arrays[info.name].ctypes.data
        for name, dtype in self.program.computation.params:
            if name not in params:
                raise SizeError(f"no value is given for the parameter {name}")
            words[places[name] :].view(dtype)[0] = params[name]
        return words


class _Member:
    """A thread's part in a run: its words, its buffers, and what goes wrong in it."""

    def __init__(self, compiled: CompiledProgram, words: npt.NDArray[np.int64]) -> None:
        self._compiled, self._words = compiled, words
        self._failure = np.zeros(2, np.int64)
        self._arena = buffers.allocate(compiled.arena_bytes)
        words[FAILURE] = self._failure.ctypes.data
        words[BUFFERS] = self._arena.ctypes.data

    def run(self, function: Any, numbers: Any, parts: int) -> None:
        """Run parts until none is left."""
        self._words[STOP] = stop_address()
        while (part := next(numbers)) < parts:
            function(part, parts, self._words.ctypes.data)

    def check(self) -> None:
        """Raise `SizeError` if a computed subscript was outside of its array."""
        number, position = self._failure.tolist()
        if number:
            raise self._compiled.find_error(number, position)


def _check_array(info: ArrayInfo, array: Array, layout: Layout) -> None:
    """Raise an error unless an array is as code has it."""
    if array.shape != info.shape:
        raise SizeError(f"{info.name} has shape {array.shape}, not {info.shape}")
    if array.dtype.name != info.dtype or not array.dtype.isnative:
        raise DtypeError(f"{info.name} is {array.dtype}, not {info.dtype}")
    for axis, step in layout.steps(info.name).items():
        wanted = step * array.itemsize
        if array.shape[axis] > 1 and array.strides[axis] != wanted:
            raise SizeError(
                f"neighbours along axis {axis} of {info.name} are {array.strides[axis]} bytes "
                f"apart, not {wanted}"
            )
