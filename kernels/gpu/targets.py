"""Targets: what NVIDIA's GPUs do in their own way, which SPIR-V does in another (`spirv`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from llvmlite import ir

from tilesolve.kernels.gpu.forms import SWIZZLE_BYTES, Arithmetic, Fragment

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
GLOBAL, SHARED = ir.PointerType(addrspace=1), ir.PointerType(addrspace=3)
MAP = ir.ArrayType(I8, 128).as_pointer()
"""A tensor map among a kernel's parameters."""

CHUNKS = {1: I8, 2: I16, 4: I32, 8: ir.VectorType(I32, 2), 16: ir.VectorType(I32, 4)}
"""What is copied at once, by its bytes."""

Values = list[ir.Value]

AVAILABLE: dict[str, int] = {
    "ldmatrix": 75,
    "float16": 75,
    "bfloat16": 80,
    "int8": 80,
    "tf32": 80,
    "float64": 80,
    "copies": 80,
    "groups": 90,
}
"""The compute capability from which on there is what: LLVM ends the process otherwise."""

PTX_VERSIONS = {72: 61, 75: 65, 80: 70, 86: 71, 89: 78, 90: 80}
"""The version of PTX that has all that a compute capability has here."""

INSTRUCTIONS: dict[Arithmetic, str] = {
    "float16": "m16n8k16.row.col.f32.f32",
    "bfloat16": "m16n8k16.row.col.bf16",
    "int8": "m16n8k32.row.col.s8",
    "tf32": "m16n8k8.row.col.tf32",
    "float64": "m8n8k4.row.col.f64",
}
"""What LLVM calls instructions of tensor cores."""

GROUP_TYPES: dict[Arithmetic, str] = {
    "float16": "f32.f16.f16",
    "bfloat16": "f32.bf16.bf16",
    "int8": "s32.s8.s8",
    "tf32": "f32.tf32.tf32",
}
"""What PTX calls the numbers of `wgmma`: of sums, of A and of B."""


class Wgmma(NamedTuple):
    """A product of four warps: its number among a step's, and what it multiplies.

    `turned` says of A and B whether their lines lie along rows and columns, not along the sum.
    """

    number: int
    kind: Arithmetic
    fragment: Fragment
    turned: tuple[bool, bool]


class Copy(NamedTuple):
    """A bulk copy: where to in shared memory, an array and its tensor map, and the box's begin.

    The innermost coordinate is the first. An element has so many bytes.
    """

    to: ir.Value
    source: ir.Value
    table: ir.Value
    place: Values
    element: int


class Fetch(NamedTuple):
    """Bulk copies of a stage, by the thread and if there is a tile: `wanted`.

    They begin when the barrier `free` has passed the phase of a parity: so many warps do not read
    the stage any more. The barrier `full` is told how many bytes come.
    """

    wanted: ir.Value
    free: ir.Value
    parity: ir.Value
    warps: int
    full: ir.Value
    size: int
    copies: list[Copy]


class Nvptx:
    """NVIDIA's GPUs of one compute capability, such as 80; one writes one module.

    Examples
    --------
    >>> Nvptx(72).has("float16"), Nvptx(75).has("float16"), Nvptx(75).has("copies")
    (False, True, False)
    """

    triple = "nvptx64-nvidia-cuda"
    convention = "ptx_kernel"

    def __init__(self, capability: int = max(PTX_VERSIONS)) -> None:
        self.capability = capability
        self.module = ir.Module("product")
        self.module.triple = self.triple
        self.known: dict[str, ir.Function] = {}

    def has(self, what: str) -> bool:
        """Return whether there is an instruction for something; `wgmma` has no later device."""
        if what == "groups":
            return self.capability == AVAILABLE[what]
        return self.capability >= AVAILABLE.get(what, 0)

    def function(self, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        """Return a declared function."""
        if name not in self.known:
            kind = ir.FunctionType(result, arguments)
            self.known[name] = ir.Function(self.module, kind, name)
        return self.known[name]

    def _call(
        self,
        b: ir.IRBuilder,
        name: str,
        arguments: Sequence[ir.Value] = (),
        result: ir.Type = ir.VoidType(),  # noqa: B008 - a value
    ) -> ir.Value:
        """Call one of LLVM's functions for these GPUs."""
        kinds = [one.type for one in arguments]
        return b.call(self.function(f"llvm.nvvm.{name}", result, kinds), arguments)

    def kernel(self, name: str, arguments: Sequence[ir.Type], threads: int) -> ir.Function:
        """Return a kernel that blocks of so many threads run."""
        found = ir.Function(self.module, ir.FunctionType(ir.VoidType(), arguments), name)
        found.calling_convention = self.convention
        self.limit(found, threads)
        return found

    def fused(self, b: ir.IRBuilder, one: ir.Value, other: ir.Value, more: ir.Value) -> ir.Value:
        """Return ``one * other + more``, rounded once."""
        if more.type == I32:
            return b.add(b.mul(one, other), more)
        name = f"llvm.fma.{'f64' if more.type == F64 else 'f32'}"
        return b.call(self.function(name, more.type, [more.type] * 3), [one, other, more])

    def limit(self, kernel: ir.Function, threads: int) -> None:
        """Say how many threads a block of a kernel has."""
        self.module.add_named_metadata("nvvm.annotations", [kernel, "maxntidx", I32(threads)])

    def pool(self, b: ir.IRBuilder, size: int) -> ir.Value:
        """Return the shared memory of a block, whose size the launch says."""
        del size
        found = ir.GlobalVariable(self.module, ir.ArrayType(I8, 0), "pool", addrspace=3)
        found.linkage, found.align = "external", SWIZZLE_BYTES
        return ir.FormattedConstant(SHARED, found.get_reference())

    def thread(self, b: ir.IRBuilder) -> ir.Value:
        """Return the number of the thread in its block."""
        return self._call(b, "read.ptx.sreg.tid.x", (), I32)

    def block(self, b: ir.IRBuilder, axis: int) -> ir.Value:
        """Return the number of the block along an axis of the grid."""
        return self._call(b, f"read.ptx.sreg.ctaid.{'xyz'[axis]}", (), I32)

    def barrier(self, b: ir.IRBuilder) -> None:
        """Wait for all threads of the block, and for what they wrote to shared memory."""
        self._call(b, "barrier.cta.sync.aligned.all", [I32(0)])

    def copy(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, size: int, wanted: ir.Value
    ) -> None:
        """Copy so many bytes to shared memory, zeros unless they are wanted.

        It is asynchronous where the device can; 1 and 2 bytes it cannot.
        """
        if size < 4 or not self.has("copies"):
            kind = CHUNKS[size]
            found = b.load(source, align=size, typ=kind)
            b.store(b.select(wanted, found, ir.Constant(kind, None)), to, align=size)
            return
        name = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}.s"
        self._call(b, name, [to, source, b.select(wanted, I32(size), I32(0))])

    def close_copies(self, b: ir.IRBuilder) -> None:
        """End a group of copies."""
        if self.has("copies"):
            self._call(b, "cp.async.commit.group")

    def await_copies(self, b: ir.IRBuilder, left: int) -> None:
        """Wait until all groups of this thread's copies but so many have arrived."""
        if self.has("copies"):
            self._call(b, "cp.async.wait.group", [I32(left)])

    def load_halves(
        self, b: ir.IRBuilder, pool: ir.Value, offset: ir.Value, *, turned: bool
    ) -> Values:
        """Return four registers of 8×8 blocks of 16 bits, whose rows begin where lanes say.

        Lanes 0 to 7 say where the rows of the first block begin, and so on. Each lane gets two
        neighbours of a row of each block, see `ldmatrix` in the manual of PTX; of a turned block
        two neighbours of a column.
        """
        name = f"ldmatrix.sync.aligned.m8n8.x4.{'trans.' if turned else ''}b16.p3"
        place = b.gep(pool, [offset], source_etype=I8)
        found = self._call(b, name, [place], ir.LiteralStructType([I32] * 4))
        return [b.extract_value(found, at) for at in range(4)]

    def multiply(
        self, b: ir.IRBuilder, kind: Arithmetic, first: Values, second: Values, sums: Values
    ) -> Values:
        """Return sums with the product of two fragments added, as `mma` of PTX lays them out."""
        name = INSTRUCTIONS[kind]
        if kind == "float16" and self.capability < 80:  # two steps, each of half the depth
            name = name.replace("k16", "k8")
            for at in range(2):
                sums = self._mma(b, name, first[2 * at : 2 * at + 2], second[at:][:1], sums)
            return sums
        return self._mma(b, name, first, second, sums)

    def _mma(
        self, b: ir.IRBuilder, name: str, first: Values, second: Values, sums: Values
    ) -> Values:
        operands = [*first, *second]
        if "f32.f32" in name:
            operands = [b.bitcast(one, ir.VectorType(F16, 2)) for one in operands]
        result = ir.LiteralStructType([one.type for one in sums])
        found = self._call(b, f"mma.{name}", [*operands, *sums], result)
        return [b.extract_value(found, at) for at in range(len(sums))]

    def address(self, b: ir.IRBuilder, pool: ir.Value) -> ir.Value:
        """Return where shared memory begins, as a number."""
        return b.ptrtoint(pool, I32)

    def _write(self, b: ir.IRBuilder, text: str) -> None:
        """Write one instruction of PTX, which nothing that touches memory passes."""
        kind = ir.FunctionType(ir.VoidType(), [])
        b.asm(kind, f"{text};", "~{memory}", (), side_effect=True)

    def show_copies(self, b: ir.IRBuilder) -> None:
        """Let `wgmma` see what this thread copied."""
        self._write(b, "fence.proxy.async.shared::cta")

    map_kind: ir.Type = MAP

    def mark_maps(self, kernel: ir.Function, numbers: Sequence[int]) -> None:
        """Say which parameters are tensor maps, which stay where they are for all blocks."""
        for at in numbers:
            kernel.args[at].add_attribute("byval")
            kernel.args[at].attributes.align = 128
        known = self.module.add_metadata([I32(at + 1) for at in numbers])
        self.module.add_named_metadata("nvvm.annotations", [kernel, "grid_constant", known])

    def _assemble(self, b: ir.IRBuilder, text: str, *given: ir.Value) -> None:
        """Write instructions of PTX that take 32-bit numbers or addresses."""
        letters = ["r" if one.type == I32 else "l" for one in given]
        kind = ir.FunctionType(ir.VoidType(), [one.type for one in given])
        b.asm(kind, text, ",".join([*letters, "~{memory}"]), given, side_effect=True)

    def open_barriers(
        self, b: ir.IRBuilder, first: ir.Value, barriers: Mapping[ir.Value, int]
    ) -> None:
        """Set barriers, each of so many arrivals, by the first thread; all others see them so."""
        inits = [
            f"@p mbarrier.init.shared::cta.b64 [${at}], {count};"
            for at, count in enumerate(barriers.values(), 1)
        ]
        fences = "fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta; }"
        lines = ["{ .reg .pred p;", "setp.ne.u32 p, $0, 0;", *inits, *fences]
        self._assemble(b, "\n".join(lines), first, *barriers)
        self.barrier(b)

    def fetch(self, b: ir.IRBuilder, one: Fetch) -> None:
        """Begin bulk copies of a stage, once it is free."""
        values = [one.wanted, one.free, one.parity, one.full, I32(one.size)]
        lines = [
            "{ .reg .pred p, q;",
            "setp.eq.u32 p, $0, 0;",
            "@p bra DONE;",
            "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 q, [$1], $2;",
            "@!q bra AGAIN;",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$3], $4;",
        ]
        for copy in one.copies:
            at = len(values)
            values += [copy.to, copy.table, *copy.place]
            begin = ", ".join(f"${at + 2 + axis}" for axis in range(len(copy.place)))
            lines.append(
                f"cp.async.bulk.tensor.{len(copy.place)}d.shared::cluster.global.tile"
                f".mbarrier::complete_tx::bytes [${at}], [${at + 1}, {{{begin}}}], [$3];"
            )
        self._assemble(b, "\n".join([*lines, "DONE: }"]), *values)

    def await_fetch(
        self, b: ir.IRBuilder, full: ir.Value, parity: ir.Value, stage: ir.Value
    ) -> None:
        """Wait until a stage's bulk copies have arrived: a barrier passed the phase of a parity."""
        del stage
        lines = (
            "{ .reg .pred q;",
            "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 q, [$0], $1;",
            "@!q bra AGAIN; }",
        )
        self._assemble(b, "\n".join(lines), full, parity)

    def release(self, b: ir.IRBuilder, wanted: ir.Value, free: ir.Value) -> None:
        """Arrive at a barrier, by the lanes that are wanted: a stage is not read any more."""
        lines = (
            "{ .reg .pred p;",
            "setp.ne.u32 p, $0, 0;",
            "@p mbarrier.arrive.shared::cta.b64 _, [$1]; }",
        )
        self._assemble(b, "\n".join(lines), wanted, free)

    def open_groups(self, b: ir.IRBuilder) -> None:
        """Begin products of groups, whose sums have been set."""
        self._write(b, "wgmma.fence.sync.aligned")

    def multiply_groups(
        self, b: ir.IRBuilder, own: Wgmma, first: ir.Value, second: ir.Value, sums: Values
    ) -> Values:
        """Return sums to which a product is going to be added, of tiles that descriptors say."""
        fragment, count = own.fragment, len(sums)
        held = ", ".join(f"${at}" for at in range(count))
        scales = {"int8": "", "tf32": ", 1, 1"}.get(
            own.kind, f", 1, 1, {own.turned[0]:d}, {own.turned[1]:d}"
        )
        shape = f"m64n{fragment.columns}k{fragment.depth}.{GROUP_TYPES[own.kind]}"
        operands = f"{{{held}}}, ${count}, ${count + 1}, 1{scales}"
        text = f"wgmma.mma_async.sync.aligned.{shape} {operands};"
        return self._tie(b, text, [first, second], sums)

    def close_groups(self, b: ir.IRBuilder) -> None:
        """End a step's products."""
        self._write(b, "wgmma.commit_group.sync.aligned")

    def await_groups(self, b: ir.IRBuilder, left: int, sums: Values) -> Values:
        """Return sums once all steps' products but so many are done."""
        return self._tie(b, f"wgmma.wait_group.sync.aligned {left};", [], sums)

    def _tie(self, b: ir.IRBuilder, text: str, given: Values, sums: Values) -> Values:
        """Write an instruction that changes registers, and return them."""
        letter = "r" if sums[0].type == I32 else "f"
        kinds = [one.type for one in sums]
        outputs = [f"={letter}"] * len(sums)
        ties = ["l"] * len(given) + [str(at) for at in range(len(sums))]
        kind = ir.FunctionType(ir.LiteralStructType(kinds), [*(one.type for one in given), *kinds])
        ends = ",".join([*outputs, *ties, "~{memory}"])
        found = b.asm(kind, text, ends, [*given, *sums], side_effect=True)
        return [b.extract_value(found, at) for at in range(len(sums))]


Target = Nvptx
"""What kernels are written for."""
