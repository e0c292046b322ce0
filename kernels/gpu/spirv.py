"""SPIR-V for OpenCL: what NVIDIA's tensor cores do, done by shuffles in groups of 32 lanes.

The layouts of fragments are those of the manual of PTX, so that what is right here is right there.
Copies are done at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tilesolve.kernels.gpu.forms import Arithmetic
from tilesolve.kernels.gpu.targets import F16, F32, F64, I8, I16, I32, I64, SHARED, Nvptx, Values


class Spirv(Nvptx):
    """SPIR-V for OpenCL devices with groups of 32 lanes."""

    triple = "spirv64v1.4-unknown-unknown"
    convention = "spir_kernel"

    def has(self, what: str) -> bool:
        """Return whether there is something: all but copies that are asynchronous."""
        return what != "copies"

    def function(self, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        """Return a declared function; those of OpenCL have its calling convention."""
        found = super().function(name, result, arguments)
        if name.startswith("_Z"):
            found.calling_convention = "spir_func"
        return found

    def limit(self, kernel: ir.Function, threads: int) -> None:
        """Say that groups have 32 lanes; what enqueues a kernel says how many threads it has."""
        del threads
        lanes = self.module.add_metadata([I32(32)])
        kernel.set_metadata("intel_reqd_sub_group_size", lanes)

    def pool(self, b: ir.IRBuilder, size: int) -> ir.Value:
        """Return the shared memory of a block."""
        kind = ir.ArrayType(ir.VectorType(I32, 4), -(-size // 16))
        found = ir.GlobalVariable(self.module, kind, "pool", addrspace=3)
        found.linkage, found.align = "internal", 16
        found.initializer = ir.Constant(kind, ir.Undefined)
        return ir.FormattedConstant(SHARED, found.get_reference())

    def _built_in(self, b: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
        kinds = [one.type for one in arguments]
        return b.call(self.function(name, I64, kinds), list(arguments), cconv="spir_func")

    def thread(self, b: ir.IRBuilder) -> ir.Value:
        """Return the number of the thread in its block."""
        return b.trunc(self._built_in(b, "_Z12get_local_idj", I32(0)), I32)

    def block(self, b: ir.IRBuilder, axis: int) -> ir.Value:
        """Return the number of the block along an axis of the grid."""
        return b.trunc(self._built_in(b, "_Z12get_group_idj", I32(axis)), I32)

    def barrier(self, b: ir.IRBuilder) -> None:
        """Wait for all threads of the block."""
        function = self.function("_Z7barrierj", ir.VoidType(), [I32])
        function.attributes.add("convergent")
        b.call(function, [I32(1)], cconv="spir_func")

    def _shuffle(self, b: ir.IRBuilder, value: ir.Value, lane: ir.Value) -> ir.Value:
        """Return another lane's value."""
        letter = {I32: "i", F32: "f", F64: "d"}[value.type]
        name = f"_Z17sub_group_shuffle{letter}j"
        function = self.function(name, value.type, [value.type, I32])
        return b.call(function, [value, lane], cconv="spir_func")

    def _lane(self, b: ir.IRBuilder) -> ir.Value:
        return b.and_(self.thread(b), I32(31))

    def _own(self, name: str, kinds: list[ir.Type], result: ir.Type) -> ir.Function | None:
        """Return a function of this module that has no body yet; None if it has one."""
        if name in self.known:
            return None
        found = self.function(name, result, kinds)
        found.linkage, found.calling_convention = "internal", "spir_func"
        return found

    def load_halves(
        self, b: ir.IRBuilder, pool: ir.Value, offset: ir.Value, *, turned: bool
    ) -> Values:
        """Return four registers, loaded from where lanes say that rows begin."""
        name = f"load_{'turned' if turned else 'halves'}"
        four = ir.VectorType(I32, 4)
        if (own := self._own(name, [SHARED, I32], four)) is not None:
            self._write_load(own, turned=turned)
        found = b.call(self.known[name], [pool, offset], cconv="spir_func")
        return [b.extract_element(found, I32(at)) for at in range(4)]

    def _write_load(self, own: ir.Function, *, turned: bool) -> None:
        b = ir.IRBuilder(own.append_basic_block())
        pool, offset = own.args
        lane = self._lane(b)
        row, pair = b.lshr(lane, I32(2)), b.and_(lane, I32(3))
        found = ir.Constant(own.function_type.return_type, ir.Undefined)
        for at in range(4):
            if not turned:
                begin = self._shuffle(b, offset, b.add(row, I32(8 * at)))
                place = b.add(begin, b.shl(pair, I32(2)))
                loaded = b.load(b.gep(pool, [place], source_etype=I8), align=4, typ=I32)
            else:
                loaded = I32(0)
                for half in range(2):
                    source = b.add(b.shl(pair, I32(1)), I32(8 * at + half))
                    place = b.add(self._shuffle(b, offset, source), b.shl(row, I32(1)))
                    one = b.load(b.gep(pool, [place], source_etype=I8), align=2, typ=I16)
                    loaded = b.or_(loaded, b.shl(b.zext(one, I32), I32(16 * half)))
            found = b.insert_element(found, loaded, I32(at))
        b.ret(found)

    def multiply(
        self, b: ir.IRBuilder, kind: Arithmetic, first: Values, second: Values, sums: Values
    ) -> Values:
        """Return sums with a product added, in the layouts of `mma` of PTX."""
        name, given = f"multiply_{kind}", [*first, *second, *sums]
        result = ir.VectorType(sums[0].type, len(sums))
        if (own := self._own(name, [one.type for one in given], result)) is not None:
            count = len(first), len(first) + len(second)
            parts = own.args[: count[0]], own.args[count[0] : count[1]], own.args[count[1] :]
            self._write_multiply(own, kind, *map(list, parts))
        found = b.call(self.known[name], given, cconv="spir_func")
        return [b.extract_element(found, I32(at)) for at in range(len(sums))]

    def _write_multiply(
        self, own: ir.Function, kind: Arithmetic, first: Values, second: Values, sums: Values
    ) -> None:
        """Write the body of a product: of each step of the sum, two rows by two columns.

        A lane has sums of rows ``lane / 4`` and 8 further, of columns ``2 * (lane % 4)`` and the
        next. Registers of A hold these rows at ``lane % 4``, in pairs of halves; those of B hold
        column ``lane / 4``.
        """
        b = ir.IRBuilder(own.append_basic_block())
        lane = self._lane(b)
        line, column = b.and_(lane, I32(28)), b.shl(b.and_(lane, I32(3)), I32(3))
        rows = len(sums) // 2
        for step, register in enumerate(second):
            for at in range(4):
                left = [
                    self._shuffle(b, one, b.add(line, I32(at)))
                    for one in first[rows * step : rows * step + rows]
                ]
                right = [
                    self._shuffle(b, register, b.add(column, I32(4 * beside + at)))
                    for beside in range(2)
                ]
                for part in range({"float16": 2, "bfloat16": 2, "int8": 4}.get(kind, 1)):
                    ones = [self._number(b, one, kind, part) for one in left]
                    others = [self._number(b, one, kind, part) for one in right]
                    sums = [
                        self.fused(b, ones[place // 2], others[place % 2], one)
                        for place, one in enumerate(sums)
                    ]
        found = ir.Constant(own.function_type.return_type, ir.Undefined)
        for place, one in enumerate(sums):
            found = b.insert_element(found, one, I32(place))
        b.ret(found)

    def _number(self, b: ir.IRBuilder, value: ir.Value, kind: Arithmetic, part: int) -> ir.Value:
        """Return what a register holds as a number; of halves one of two, of bytes one of four."""
        if kind == "float64":
            return value
        if kind == "tf32":
            return b.bitcast(value, F32)
        if kind == "int8":
            return b.sext(b.trunc(b.lshr(value, I32(8 * part)), I8), I32)
        bits = b.lshr(value, I32(16 * part))
        if kind == "bfloat16":
            return b.bitcast(b.shl(bits, I32(16)), F32)
        return b.fpext(b.bitcast(b.trunc(bits, I16), F16), F32)
