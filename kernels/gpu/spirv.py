"""SPIR-V for OpenCL: what NVIDIA's tensor cores do, done by shuffles in groups of 32 lanes.

The layouts of fragments are those of the manual of PTX, so that what is right here is right there.
Copies are done at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from llvmlite import ir

from tilesolve.kernels.gpu.forms import DIMENSIONS, Arithmetic
from tilesolve.kernels.gpu.targets import (
    CHUNKS,
    F16,
    F32,
    F64,
    GLOBAL,
    I1,
    I8,
    I16,
    I32,
    I64,
    SHARED,
    Fetch,
    Nvptx,
    Values,
    Wgmma,
)

SPOILED = 0x7F7F7F7F
"""What stands in for tiles that never come: no number, or large ones."""


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

    def address(self, b: ir.IRBuilder, pool: ir.Value) -> ir.Value:
        """Return where shared memory begins: descriptors count from there."""
        del b
        self.memory = pool
        return I32(0)

    def show_copies(self, b: ir.IRBuilder) -> None:
        """Do nothing: copies have been done."""

    map_kind: ir.Type = GLOBAL

    def mark_maps(self, kernel: ir.Function, numbers: Sequence[int]) -> None:
        """Do nothing: tensor maps are arrays of 64-bit numbers here, see `TensorMap.table`."""

    def _word(self, b: ir.IRBuilder, barrier: ir.Value, number: int) -> ir.Value:
        """Return where a barrier counts: arrivals so far, or bytes that are still to come."""
        return b.gep(self.memory, [b.add(barrier, I32(4 * number))], source_etype=I8)

    def _has_passed(
        self, b: ir.IRBuilder, barrier: ir.Value, parity: ir.Value, count: int
    ) -> ir.Value:
        """Wait for all threads; return whether a barrier of so many arrivals lets one pass."""
        self.barrier(b)
        arrived, missing = (
            b.load(self._word(b, barrier, number), align=4, typ=I32) for number in range(2)
        )
        phase = b.and_(b.udiv(arrived, I32(count)), I32(1))
        complete = b.icmp_unsigned("==", missing, I32(0))
        return b.and_(complete, b.icmp_unsigned("!=", phase, parity))

    def open_barriers(
        self, b: ir.IRBuilder, first: ir.Value, barriers: Mapping[ir.Value, int]
    ) -> None:
        """Set barriers, by the first thread."""
        with b.if_then(b.icmp_unsigned("!=", first, I32(0))):
            for one in barriers:
                for number in range(2):
                    b.store(I32(0), self._word(b, one, number), align=4)
        self.barrier(b)

    def fetch(self, b: ir.IRBuilder, one: Fetch) -> None:
        """Copy boxes at once; never where the GPU would wait for ever."""
        passed = self._has_passed(b, one.free, one.parity, one.warps)
        with b.if_then(b.and_(passed, b.icmp_unsigned("!=", one.wanted, I32(0)))):
            arrivals, missing = (self._word(b, one.full, number) for number in range(2))
            b.store(b.add(b.load(arrivals, align=4, typ=I32), I32(1)), arrivals, align=4)
            b.store(I32(one.size), missing, align=4)
            for copy in one.copies:
                name = f"copy_box{copy.element}"
                begin = [*copy.place, *[I32(0)] * (DIMENSIONS - len(copy.place))]
                given = [self.memory, copy.to, copy.source, copy.table, missing, *begin]
                kinds = [value.type for value in given]
                if (own := self._own(name, kinds, ir.VoidType())) is not None:
                    self._write_copy(own, copy.element)
                b.call(self.known[name], given, cconv="spir_func")

    def _write_copy(self, own: ir.Function, element: int) -> None:
        """Write the body of a copy: element by element, zeros outside, chunks exchanged."""
        own.attributes.add("noinline")  # or the CPU's compiler takes minutes
        b, size = ir.IRBuilder(own.append_basic_block()), I64(element)
        pool, to, source, table, missing, *begin = own.args
        words = [
            b.load(b.gep(table, [I32(at)], source_etype=I64), align=8, typ=I64)
            for at in range(2 + 3 * DIMENSIONS)
        ]
        swizzle, number = b.trunc(words[0], I32), I32(0)
        with ExitStack() as loops:
            place, inside = I64(0), I1(1)
            for at in reversed(range(DIMENSIONS)):
                extent, stride, box = words[2 + at :: DIMENSIONS]
                side = b.trunc(box, I32)
                own_number = loops.enter_context(_counting(b, side))
                number = b.add(b.mul(number, side), own_number)
                along = b.sext(b.add(begin[at], own_number), I64)
                inside = b.and_(inside, b.icmp_unsigned("<", along, extent))
                place = b.add(place, b.mul(along, stride))
            kind = CHUNKS[element]
            place = b.gep(source, [b.select(inside, place, I64(0))], source_etype=I8)
            found = b.load(place, align=element, typ=kind)
            found = b.select(inside, found, ir.Constant(kind, None))
            linear = b.add(to, b.mul(number, I32(element)))
            chunks = b.sub(b.udiv(swizzle, I32(16)), I32(1))
            turned = b.shl(b.and_(b.lshr(linear, I32(7)), chunks), I32(4))
            b.store(found, b.gep(pool, [b.xor(linear, turned)], source_etype=I8), align=element)
        left = b.load(missing, align=4, typ=I32)
        b.store(b.sub(left, b.trunc(b.mul(words[1], size), I32)), missing, align=4)
        b.ret_void()

    def await_fetch(
        self, b: ir.IRBuilder, full: ir.Value, parity: ir.Value, stage: ir.Value
    ) -> None:
        """Wait for a stage's copies; spoil it where the GPU would wait for ever."""
        with b.if_then(b.not_(self._has_passed(b, full, parity, 1))):
            b.store(I32(SPOILED), b.gep(self.memory, [stage], source_etype=I8), align=4)

    def release(self, b: ir.IRBuilder, wanted: ir.Value, free: ir.Value) -> None:
        """Arrive at a barrier."""
        with b.if_then(b.icmp_unsigned("!=", wanted, I32(0))):
            place = self._word(b, free, 0)
            typed = b.bitcast(place, ir.PointerType(I32, 3))
            b.atomic_rmw("add", typed, I32(1), "monotonic")

    def open_groups(self, b: ir.IRBuilder) -> None:
        """Begin a step's products."""
        self.issued: list[tuple[Wgmma, ir.Value, ir.Value]] = []

    def multiply_groups(
        self, b: ir.IRBuilder, own: Wgmma, first: ir.Value, second: ir.Value, sums: Values
    ) -> Values:
        """Return sums as they are: the product is done as late as `await_groups` lets it be."""
        self.issued.append((own, first, second))
        return sums

    def close_groups(self, b: ir.IRBuilder) -> None:
        """End a step's products."""

    def await_groups(self, b: ir.IRBuilder, left: int, sums: Values) -> Values:
        """Do the products of the step before, if any, and keep descriptors of those of this one.

        Real sums, and these descriptors, are in memory of each thread; behind the last step sums
        are loaded.
        """
        count = 2 * len(self.issued)
        if left:
            with b.goto_entry_block():
                self.kept = self._zeros(b, I64, count)
                self.sums = self._zeros(b, sums[0].type, len(sums))
        places = [b.gep(self.kept, [I32(0), I32(at)]) for at in range(count)]
        for at, (own, *_) in enumerate(self.issued):
            given = [b.load(place) for place in places[2 * at : 2 * at + 2]]
            self._multiply_group(b, own, given)
        if left:
            given = [one for _, *pair in self.issued for one in pair]
            for place, one in zip(places, given, strict=True):
                b.store(one, place)
            return sums
        return [b.load(b.gep(self.sums, [I32(0), I32(at)])) for at in range(len(sums))]

    def _zeros(self, b: ir.IRBuilder, kind: ir.Type, count: int) -> ir.Value:
        """Return memory of a thread."""
        found = b.alloca(ir.ArrayType(kind, count))
        for at in range(count):
            b.store(ir.Constant(kind, None), b.gep(found, [I32(0), I32(at)]))
        return found

    def _multiply_group(self, b: ir.IRBuilder, own: Wgmma, given: Values) -> None:
        """Add a product to this thread's sums, unless descriptors are of none."""
        name = f"multiply_group_{own.kind}"
        begin = b.gep(self.sums, [I32(0), I32(own.number * own.fragment.sums)])
        arguments = [self.memory, begin, *given]
        if (
            function := self._own(name, [one.type for one in arguments], ir.VoidType())
        ) is not None:
            self._write_group(function, own)
        with b.if_then(b.icmp_unsigned("!=", given[0], I64(0))):
            b.call(self.known[name], arguments, cconv="spir_func")

    def _write_group(self, function: ir.Function, own: Wgmma) -> None:
        """Write the body: a thread has two sums of each of two rows in every eight columns."""
        b = ir.IRBuilder(function.append_basic_block())
        pool, sums, *descriptors = function.args
        thread = self.thread(b)
        quarter = b.and_(b.lshr(thread, I32(5)), I32(3))
        line = b.add(b.shl(quarter, I32(4)), b.and_(b.lshr(thread, I32(2)), I32(7)))
        beside = b.shl(b.and_(thread, I32(3)), I32(1))
        with _counting(b, own.fragment.sums) as number:
            down = b.shl(b.and_(b.lshr(number, I32(1)), I32(1)), I32(3))
            across = b.add(b.shl(b.lshr(number, I32(2)), I32(3)), b.and_(number, I32(1)))
            row, column = b.add(line, down), b.add(beside, across)
            place = b.gep(sums, [number])
            with _counting(b, own.fragment.depth) as step:
                one, other = (
                    self._element(b, own, pool, descriptor, free, step, turned=turned)
                    for descriptor, free, turned in zip(
                        descriptors, (row, column), own.turned, strict=True
                    )
                )
                b.store(self.fused(b, one, other, b.load(place)), place)
        b.ret_void()

    def _element(
        self,
        b: ir.IRBuilder,
        own: Wgmma,
        pool: ir.Value,
        descriptor: ir.Value,
        free: ir.Value,
        step: ir.Value,
        *,
        turned: bool,
    ) -> ir.Value:
        """Return an element of an operand, which a descriptor says where to find.

        Lines have as many chunks of 16 bytes as the swizzle exchanges; eight of them are a block.
        """
        begin, leading, apart = (
            b.shl(b.and_(b.trunc(b.lshr(descriptor, I64(at)), I32), I32(0x3FFF)), I32(4))
            for at in (0, 16, 32)
        )
        chunks = b.lshr(I32(16), b.trunc(b.lshr(descriptor, I64(62)), I32))
        length, size = b.shl(chunks, I32(4)), I32(own.fragment.element)
        line, along = (step, free) if turned else (free, step)
        along = b.mul(along, size)
        place = b.add(begin, b.mul(b.lshr(line, I32(3)), apart))
        place = b.add(place, b.mul(b.and_(line, I32(7)), length))
        if turned:
            place = b.add(place, b.mul(b.udiv(along, length), leading))
            along = b.urem(along, length)
        place = b.add(place, along)
        exchanged = b.and_(b.lshr(place, I32(7)), b.sub(chunks, I32(1)))
        place = b.xor(place, b.shl(exchanged, I32(4)))
        kind = ir.IntType(8 * own.fragment.element)
        found = b.load(b.gep(pool, [place], source_etype=I8), align=own.fragment.element, typ=kind)
        found = b.zext(found, I32) if own.fragment.element < 4 else found
        if own.kind == "tf32":  # tensor cores leave out what TF32 has no bits for
            found = b.and_(found, I32(0xFFFFE000))
        return self._number(b, found, own.kind, 0)


@contextmanager
def _counting(b: ir.IRBuilder, count: int | ir.Value) -> Iterator[ir.Value]:
    """Write a loop over numbers from 0 on."""
    before, loop = b.block, b.append_basic_block("loop")
    b.branch(loop)
    b.position_at_end(loop)
    number = b.phi(I32)
    yield number
    following = b.add(number, I32(1))
    number.add_incoming(I32(0), before)
    number.add_incoming(following, b.block)
    done = b.append_basic_block("done")
    most = I32(count) if isinstance(count, int) else count
    b.cbranch(b.icmp_unsigned("<", following, most), loop, done)
    b.position_at_end(done)
