"""Machine code of the kernels: from LLVM IR to object files.

The code depends on the CPU, the dtype, the vector width and the columns of a group, never on a
plan. Object files are kept: loading one takes milliseconds, making one takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from tilesolve.constants.tuning import MAX_TILE_COLUMNS
from tilesolve.contractions.errors import MachineError
from tilesolve.contractions.half_precision import is_half, summed_dtype
from tilesolve.kernels import dtypes
from tilesolve.kernels.codegen import pack
from tilesolve.kernels.codegen.pack import MicroPanel
from tilesolve.kernels.codegen.shape import Shape
from tilesolve.kernels.dtypes import halves
from tilesolve.kernels.garbage import pause_collection


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels that read the same micro-panels, and so can be mixed in one run.

    Parameters
    ----------
    dtype
        Of all tensors, or what halves are summed in.
    bits
        Vector width: 128, 256 or 512.
    registers
        Vector registers that the tiles may take.
    group
        Columns that lie together in a micro-panel.
    halved
        Whether there are kernels whose last vectors are half as wide.
    mixed, lanewise
        Whether it is the family of mixed, or of lanewise, kernels, which complements all others.
    source
        The dtype of the operands, where these are halves; else empty. Only lanewise kernels read
        halves in place.
    pairing
        What kernels do with a row's and a column's element, as `Pairing` is written; empty where
        they add up their products.
    only
        Vectors and columns of the only tiles wanted; empty for all.

    Examples
    --------
    >>> family = Family.of("float64", 512, 32)
    >>> family.group, len(family.tiles), family.max_columns(3)
    (8, 53, 9)
    """

    dtype: str
    bits: int
    registers: int
    group: int
    halved: bool = False
    mixed: bool = False
    lanewise: bool = False
    source: str = ""
    pairing: str = ""
    only: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls, dtype: str, bits: int, registers: int, *, halved: bool = True, pairing: str = ""
    ) -> Family:
        """Return the family for a machine's vectors.

        Kernels with halved vectors are made where they save time, unless they are not wanted.

        Raises
        ------
        MachineError
            If kernels are not made for that width, or no tile fits so few registers.
        """
        if bits not in (128, 256, 512):
            raise MachineError(f"vectors of {bits} bits: kernels are made for 128, 256 and 512")
        group, halved = dtypes.panel_columns(dtype, registers), halved and halves(dtype, bits)
        source = dtype if is_half(dtype) else ""
        found = cls(
            summed_dtype(dtype),
            bits,
            min(registers, 32),
            group,
            halved,
            source=source,
            pairing=pairing,
        )
        if not found.tiles:
            raise MachineError(f"{registers} vector registers hold no register tile of {dtype}")
        return found

    @property
    def lanes(self) -> int:
        """Rows of one group of rows."""
        return dtypes.lanes(self.dtype, self.bits)

    def max_columns(self, groups: int) -> int:
        """Return the columns of the widest tile with so many groups of rows."""
        return min(MAX_TILE_COLUMNS, dtypes.max_columns(self.dtype, self.registers, groups))

    @property
    def tiles(self) -> tuple[tuple[int, int], ...]:
        """Groups of rows and columns of every tile that fits the registers, or is wanted."""
        return self.only or dtypes.register_tiles(self.dtype, self.registers)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All microkernels."""
        kinds = [(True, False), (False, False), (True, True)]
        common = partial(Shape, self.dtype, self.bits, group=self.group, pairing=self.pairing)
        if self.mixed:
            return tuple(
                common(*sides, packed=True, mixed=True, halved=halved)
                for halved in ((False, True) if self.halved else (False,))
                for sides in self.tiles
            )
        if self.lanewise:
            return tuple(
                common(*sides, packed=False, lanewise=True, source=self.source)
                for sides in self.tiles
            )
        return tuple(
            common(*sides, packed=packed, halved=halved)
            for packed, halved in kinds
            if (self.halved or not halved) and (packed or not self.source)
            for sides in self.tiles
        )

    def part(self, *, packed: bool) -> tuple[Shape, ...]:
        """Return the microkernels that read copies alone, or those that read operands in place.

        A run needs those of one part, and compiling them takes half as long as all.

        Examples
        --------
        >>> family = Family.of("float64", 512, 32, halved=False)
        >>> [len(family.part(packed=packed)) for packed in (True, False)]
        [53, 53]
        """
        return tuple(shape for shape in self.shapes if shape.packed == packed)

    @property
    def micro_panels(self) -> tuple[MicroPanel, MicroPanel]:
        """Micro-panels of packed rows and of packed columns."""
        return (
            MicroPanel(self.dtype, self.lanes, self.source),
            MicroPanel(self.dtype, self.group, self.source),
        )


@dataclass(frozen=True, slots=True)
class TargetCpu:
    """A CPU that code is made for.

    Parameters
    ----------
    triple
        LLVM's name of the architecture and the system.
    name
        LLVM's name of the CPU.
    features
        Features that its name does not imply.
    bits
        Width of its widest vectors; a kernel no wider is kept in the written order.

    Examples
    --------
    >>> TargetCpu.named("haswell", 256)
    TargetCpu(triple='x86_64-unknown-linux-gnu', name='haswell', features='', bits=256)
    """

    triple: str
    name: str
    features: str
    bits: int

    @classmethod
    @cache
    def here(cls) -> TargetCpu:
        """Return the CPU that this runs on."""
        found = llvm.get_host_cpu_features()
        bits = 512 if found.get("avx512f") else 256 if found.get("avx") else 128
        features = ",".join(filter(None, (found.flatten(), _full_width_feature(bits))))
        return cls(llvm.get_default_triple(), llvm.get_host_cpu_name(), features, bits)

    @classmethod
    def named(cls, name: str, bits: int) -> TargetCpu:
        """Return an x86 CPU by its name; code for it need not run here."""
        return cls("x86_64-unknown-linux-gnu", name, _full_width_feature(bits), bits)


def _full_width_feature(bits: int) -> str:
    """Return the feature that keeps LLVM from splitting 512-bit vectors to save clock speed."""
    return "-prefer-256-bit" if bits == 512 else ""


def build(
    family: Family, shapes: Sequence[Shape] | None = None, cpu: TargetCpu | None = None
) -> bytes:
    """Return the object file of a family's kernels.

    Parameters
    ----------
    family
        Whose microkernels and packing kernels.
    shapes
        The only microkernels wanted.
    cpu
        What they are made for: the CPU that this runs on, unless given.

    Examples
    --------
    >>> family = Family("float64", 128, 4, 4)
    >>> len(build(family)) > len(build(family, family.shapes[:1])) > 1000
    True
    """
    parsed, machine = parse_family(family, shapes, cpu)
    code: bytes = machine.emit_object(parsed)
    return code


def parse_family(
    family: Family, shapes: Sequence[Shape] | None, cpu: TargetCpu | None
) -> tuple[Any, Any]:
    """Return a family's module, and the machine for which it is made, as `build` takes them."""
    from tilesolve.kernels.codegen import microkernel  # what runs made kernels needs none of it

    cpu = cpu or TargetCpu.here()
    module = ir.Module(name="tilesolve")
    module.triple = target(cpu).triple
    with pause_collection():
        for panel in dict.fromkeys(family.micro_panels):
            pack.emit_packers(module, panel)
        for wanted in family.shapes if shapes is None else shapes:
            microkernel.emit_microkernel(module, wanted, cpu.bits)
    return _parse(module, cpu)


def _parse(module: ir.Module, cpu: TargetCpu) -> tuple[Any, Any]:
    """Return a module as LLVM has it, and the machine that code for it is made with."""
    machine = target(cpu)
    module.triple = machine.triple
    with pause_collection():
        text = str(module)
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    return parsed, machine


def optimise(module: ir.Module, cpu: TargetCpu, *, unroll: bool) -> tuple[Any, Any]:
    """Return a module as LLVM optimises it, and the machine that code for it is made with.

    Loops become no vectors: what is to be one is written so.

    Parameters
    ----------
    module
        What to optimise.
    cpu
        What code is made for.
    unroll
        Whether LLVM unrolls loops as it likes.

    Examples
    --------
    >>> parsed, machine = optimise(ir.Module(name="empty"), TargetCpu.here(), unroll=False)
    >>> len(machine.emit_object(parsed)) > 0
    True
    """
    parsed, machine = _parse(module, cpu)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    if not unroll:
        options.loop_interleaving = options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    return parsed, machine


def compile_module(module: ir.Module, cpu: TargetCpu, *, unroll: bool) -> bytes:
    """Return the object file of a module as `optimise` makes it."""
    parsed, machine = optimise(module, cpu, unroll=unroll)
    code: bytes = machine.emit_object(parsed)
    return code


@cache
def target(cpu: TargetCpu) -> Any:
    """Return what makes code for a CPU.

    Raises
    ------
    MachineError
        If LLVM was built without the CPU's architecture.
    """
    # Every architecture that LLVM was built with: registering one costs nothing.
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(cpu.triple)
    except RuntimeError as error:
        raise MachineError(f"no code can be made for {cpu.name}: {error}") from error
    return target.create_target_machine(
        cpu=cpu.name,
        features=cpu.features,
        opt=2,
        reloc="pic",
        codemodel="default",
        jit=True,
    )
