"""Targets: what NVIDIA's GPUs and SPIR-V do each in their own way, behind the same operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from llvmlite import ir

from tilesolve.kernels.gpu.forms import Arithmetic

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
GLOBAL, SHARED = ir.PointerType(addrspace=1), ir.PointerType(addrspace=3)

CHUNKS = {2: I16, 4: I32, 8: ir.VectorType(I32, 2), 16: ir.VectorType(I32, 4)}
"""What is copied at once, by its bytes."""

Values = list[ir.Value]


class Target(ABC):
    """What kernels are written for; one writes one module."""

    triple: str
    convention: str

    def __init__(self) -> None:
        self.module = ir.Module("product")
        self.module.triple = self.triple
        self.known: dict[str, ir.Function] = {}

    def function(self, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        """Return a declared function."""
        if name not in self.known:
            kind = ir.FunctionType(result, arguments)
            self.known[name] = ir.Function(self.module, kind, name)
        return self.known[name]

    def kernel(self, name: str, arguments: Sequence[ir.Type], threads: int) -> ir.Function:
        """Return a kernel that blocks of so many threads run."""
        found = ir.Function(self.module, ir.FunctionType(ir.VoidType(), arguments), name)
        found.calling_convention = self.convention
        self.limit(found, threads)
        return found

    def fused(self, b: ir.IRBuilder, one: ir.Value, other: ir.Value, more: ir.Value) -> ir.Value:
        """Return ``one * other + more``, rounded once."""
        name = f"llvm.fma.{'f64' if more.type == F64 else 'f32'}"
        return b.call(self.function(name, more.type, [more.type] * 3), [one, other, more])

    @abstractmethod
    def limit(self, kernel: ir.Function, threads: int) -> None:
        """Say how many threads a block of a kernel has."""

    @abstractmethod
    def pool(self, b: ir.IRBuilder, size: int) -> ir.Value:
        """Return the shared memory of a block."""

    @abstractmethod
    def thread(self, b: ir.IRBuilder) -> ir.Value:
        """Return the number of the thread in its block."""

    @abstractmethod
    def block(self, b: ir.IRBuilder, axis: int) -> ir.Value:
        """Return the number of the block along an axis of the grid."""

    @abstractmethod
    def barrier(self, b: ir.IRBuilder) -> None:
        """Wait for all threads of the block, and for what they wrote to shared memory."""

    @abstractmethod
    def copy(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, size: int, wanted: ir.Value
    ) -> None:
        """Copy so many bytes to shared memory, zeros unless they are wanted."""

    @abstractmethod
    def close_copies(self, b: ir.IRBuilder) -> None:
        """End a group of copies."""

    @abstractmethod
    def await_copies(self, b: ir.IRBuilder, left: int) -> None:
        """Wait until all groups of this thread's copies but so many have arrived."""

    @abstractmethod
    def load_halves(
        self, b: ir.IRBuilder, pool: ir.Value, offset: ir.Value, *, turned: bool
    ) -> Values:
        """Return four registers of 8×8 blocks of 16 bits, whose rows begin where lanes say.

        Lanes 0 to 7 say where the rows of the first block begin, and so on. Each lane gets two
        neighbours of a row of each block, see `ldmatrix` in the manual of PTX; of a turned block
        two neighbours of a column.
        """

    @abstractmethod
    def multiply(
        self, b: ir.IRBuilder, kind: Arithmetic, first: Values, second: Values, sums: Values
    ) -> Values:
        """Return sums with the product of two fragments added, as `mma` of PTX lays them out."""

    def copy_at_once(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, size: int, wanted: ir.Value
    ) -> None:
        """Copy through registers."""
        kind = CHUNKS[size]
        found = b.load(source, align=size, typ=kind)
        b.store(b.select(wanted, found, ir.Constant(kind, None)), to, align=size)


AVAILABLE: dict[str, int] = {
    "ldmatrix": 75,
    "float16": 75,
    "bfloat16": 80,
    "tf32": 80,
    "float64": 80,
    "copies": 80,
}
"""The compute capability from which on there is what: LLVM ends the process otherwise."""

PTX_VERSIONS = {72: 61, 75: 65, 80: 70, 86: 71, 89: 78, 90: 78}
"""The version of PTX that has all that a compute capability has here."""


class Nvptx(Target):
    """NVIDIA's GPUs of one compute capability, such as 80.

    Examples
    --------
    >>> Nvptx(72).has("float16"), Nvptx(75).has("float16"), Nvptx(75).has("copies")
    (False, True, False)
    """

    triple = "nvptx64-nvidia-cuda"
    convention = "ptx_kernel"

    def __init__(self, capability: int) -> None:
        super().__init__()
        self.capability = capability

    def has(self, what: str) -> bool:
        """Return whether there is an instruction for something."""
        return self.capability >= AVAILABLE.get(what, 0)

    def limit(self, kernel: ir.Function, threads: int) -> None:
        """Say how many threads a block of a kernel has."""
        self.module.add_named_metadata("nvvm.annotations", [kernel, "maxntidx", I32(threads)])

    def pool(self, b: ir.IRBuilder, size: int) -> ir.Value:
        """Return the shared memory of a block, whose size the launch says."""
        del size
        found = ir.GlobalVariable(self.module, ir.ArrayType(I8, 0), "pool", addrspace=3)
        found.linkage, found.align = "external", 16
        return ir.FormattedConstant(SHARED, found.get_reference())

    def _register(self, b: ir.IRBuilder, name: str) -> ir.Value:
        return b.call(self.function(f"llvm.nvvm.read.ptx.sreg.{name}", I32, []), [])

    def thread(self, b: ir.IRBuilder) -> ir.Value:
        """Return the number of the thread in its block."""
        return self._register(b, "tid.x")

    def block(self, b: ir.IRBuilder, axis: int) -> ir.Value:
        """Return the number of the block along an axis of the grid."""
        return self._register(b, f"ctaid.{'xyz'[axis]}")

    def barrier(self, b: ir.IRBuilder) -> None:
        """Wait for all threads of the block."""
        name = "llvm.nvvm.barrier.cta.sync.aligned.all"
        b.call(self.function(name, ir.VoidType(), [I32]), [I32(0)])

    def copy(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, size: int, wanted: ir.Value
    ) -> None:
        """Copy asynchronously where the device can; 2 bytes it cannot."""
        if size < 4 or not self.has("copies"):
            self.copy_at_once(b, to, source, size, wanted)
            return
        name = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}.s"
        read = b.select(wanted, I32(size), I32(0))
        b.call(self.function(name, ir.VoidType(), [SHARED, GLOBAL, I32]), [to, source, read])

    def close_copies(self, b: ir.IRBuilder) -> None:
        """End a group of copies."""
        if self.has("copies"):
            b.call(self.function("llvm.nvvm.cp.async.commit.group", ir.VoidType(), []), [])

    def await_copies(self, b: ir.IRBuilder, left: int) -> None:
        """Wait until all groups of copies but so many have arrived."""
        if self.has("copies"):
            name = "llvm.nvvm.cp.async.wait.group"
            b.call(self.function(name, ir.VoidType(), [I32]), [I32(left)])

    def load_halves(
        self, b: ir.IRBuilder, pool: ir.Value, offset: ir.Value, *, turned: bool
    ) -> Values:
        """Return four registers by `ldmatrix`."""
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.{'trans.' if turned else ''}b16.p3"
        loaded = self.function(name, ir.LiteralStructType([I32] * 4), [SHARED])
        found = b.call(loaded, [b.gep(pool, [offset], source_etype=I8)])
        return [b.extract_value(found, at) for at in range(4)]

    def multiply(
        self, b: ir.IRBuilder, kind: Arithmetic, first: Values, second: Values, sums: Values
    ) -> Values:
        """Return sums with a product added by `mma.sync`."""
        if kind == "float16" and not self.has("bfloat16"):  # two steps, each of half the depth
            for at in range(2):
                sums = self._mma(
                    b, "m16n8k8.row.col.f32.f32", first[2 * at : 2 * at + 2], second[at:][:1], sums
                )
            return sums
        name = {
            "float16": "m16n8k16.row.col.f32.f32",
            "bfloat16": "m16n8k16.row.col.bf16",
            "tf32": "m16n8k8.row.col.tf32",
            "float64": "m8n8k4.row.col.f64",
        }[kind]
        return self._mma(b, name, first, second, sums)

    def _mma(
        self, b: ir.IRBuilder, name: str, first: Values, second: Values, sums: Values
    ) -> Values:
        operands = [*first, *second]
        if "f32.f32" in name:
            operands = [b.bitcast(one, ir.VectorType(F16, 2)) for one in operands]
        given = [*operands, *sums]
        result = ir.LiteralStructType([one.type for one in sums])
        function = self.function(f"llvm.nvvm.mma.{name}", result, [one.type for one in given])
        found = b.call(function, given)
        return [b.extract_value(found, at) for at in range(len(sums))]
