"""What a warp does: fragments from shared memory to registers, products, and where sums lie."""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels.gpu.forms import Form
from tilesolve.kernels.gpu.targets import I8, I32, Target, Values
from tilesolve.kernels.gpu.writing import TYPES


class Warp:
    """Writes the work of a warp on tiles in shared memory."""

    def __init__(
        self, target: Target, b: ir.IRBuilder, form: Form, tid: ir.Value, pool: ir.Value
    ) -> None:
        self.target, self.b, self.form, self.pool = target, b, form, pool
        self.zero = ir.Constant(TYPES[form.fragment.dtypes[1]], None)
        lanes = form.fragment.lanes
        self.lane = b.and_(tid, I32(lanes - 1))
        warp = b.lshr(tid, I32(lanes.bit_length() - 1))
        count = form.warps[0]
        place = b.urem(warp, I32(count)), b.udiv(warp, I32(count))
        tile = form.warp_tile
        self.begin = b.mul(place[0], I32(tile[0])), b.mul(place[1], I32(tile[1]))
        """Row and column of the block's tile at which the warp's begins."""
        self.bases = [self._base(at) for at in range(2)]

    def _base(self, at: int) -> ir.Value:
        """Return the bytes from a stage's begin to where this lane reads of an operand."""
        b, form = self.b, self.form
        along_sum = form.operands[at].along_sum
        free, depth = self._reach(at, along_sum=along_sum)
        free = b.add(free, self.begin[at])
        line, along = (free, depth) if along_sum else (depth, free)
        size = form.fragment.element
        place = b.add(b.mul(line, I32(form.pitch(at))), b.mul(along, I32(size)))
        return b.add(place, I32(at * form.tile_bytes(0)))

    def _reach(self, at: int, *, along_sum: bool) -> tuple[ir.Value, ir.Value]:
        """Return the row or column of a fragment, and the step of its sum, that this lane reads."""
        b, lane, element = self.b, self.lane, self.form.fragment.element
        if element <= 2:
            # A row of one of four blocks of 8×16 bytes, as `Target.load_halves` takes them.
            row = b.and_(lane, I32(7))
            first = b.and_(lane, I32(8))
            second = b.lshr(b.and_(lane, I32(16)), I32(element - 1))
            if along_sum:
                return b.add(row, first), second
            if element == 2:
                return first, b.add(row, second)
            # Two neighbours of four: a lane gets all four out of two blocks.
            pair = b.add(b.shl(b.and_(lane, I32(6)), I32(1)), b.lshr(first, I32(2)))
            return I32(0), b.add(b.add(second, pair), b.and_(lane, I32(1)))
        if self.form.fragment.depth == 1:
            if at:
                return b.and_(lane, I32(7)), I32(0)
            return b.shl(b.lshr(lane, I32(3)), I32(2)), I32(0)
        return b.lshr(lane, I32(2)), b.and_(lane, I32(3))

    def multiply(self, stage: ir.Value, sums: Values) -> Values:
        """Return sums with the products of a stage's tiles added."""
        form, sides = self.form, self.form.side
        bases = [self.b.add(stage, one) for one in self.bases]
        for step in range(0, form.depth, form.fragment.depth):
            first, second = (
                [self._load(at, bases[at], number, step) for number in range(sides[at])]
                for at in range(2)
            )
            for row, one in enumerate(first):
                for column, other in enumerate(second):
                    at = (row * sides[1] + column) * form.fragment.sums
                    own = self._product(one, other, sums[at : at + form.fragment.sums])
                    sums[at : at + form.fragment.sums] = own
        return sums

    def _load(self, at: int, base: ir.Value, number: int, step: int) -> Values:
        """Return the registers of one fragment of an operand."""
        form, fragment = self.form, self.form.fragment
        side = (fragment.rows, fragment.columns)[at]
        if fragment.element <= 2:
            turned = not form.operands[at].along_sum
            place = self.b.add(base, I32(self._distance(at, number * side, step)))
            found = self.target.load_halves(self.b, self.pool, place, turned=turned)
            return self._sort_bytes(found) if self._is_sorted(at) else found
        if fragment.depth == 1:
            places = [(number * side + more, step) for more in range(1 if at else 4)]
        else:
            places = [
                (number * side + more, step + further)
                for further in range(0, fragment.depth, 4)
                for more in range(0, side, 8)
            ]
        return [self._number(base, self._distance(at, *place)) for place in places]

    def _is_sorted(self, at: int) -> bool:
        """Return whether bytes lie along rows or columns: neighbours are 8 apart in fragments."""
        return self.form.fragment.element == 1 and not self.form.operands[at].along_sum

    def _sort_bytes(self, found: Values) -> Values:
        """Return bytes of neighbours, which alternate, one after the other."""
        b, four = self.b, ir.VectorType(I8, 4)
        vectors = [b.bitcast(one, four) for one in found]
        order = ir.VectorType(I32, 4)
        return [
            b.bitcast(b.shuffle_vector(*vectors[at : at + 2], ir.Constant(order, picked)), I32)
            for at in (0, 2)
            for picked in ([0, 2, 4, 6], [1, 3, 5, 7])
        ]

    def _distance(self, at: int, free: int, depth: int) -> int:
        """Return the bytes between elements of an operand's tile."""
        form = self.form
        line, along = (free, depth) if form.operands[at].along_sum else (depth, free)
        return line * form.pitch(at) + along * form.fragment.element

    def _number(self, base: ir.Value, distance: int) -> ir.Value:
        """Load one number; for TF32 round it to the nearest."""
        b = self.b
        place = b.gep(self.pool, [b.add(base, I32(distance))], source_etype=I8)
        tf32 = self.form.arithmetic == "tf32"
        kind = I32 if tf32 else self.zero.type
        found = b.load(place, align=self.form.fragment.element, typ=kind)
        return b.and_(b.add(found, I32(0x1000)), I32(0xFFFFE000)) if tf32 else found

    def _product(self, one: Values, other: Values, sums: Values) -> Values:
        """Return sums with the product of two fragments added."""
        fragment, kind = self.form.fragment, self.form.arithmetic
        if fragment.depth == 1:
            return [
                self.target.fused(self.b, left, other[0], more)
                for left, more in zip(one, sums, strict=True)
            ]
        if fragment.element > 2:
            return self.target.multiply(self.b, kind, one, other, sums)
        found: Values = []
        for at in range(2):  # eight columns each
            own = sums[4 * at : 4 * at + 4]
            found += self.target.multiply(self.b, kind, one, other[at::2], own)
        return found

    def _row(self) -> ir.Value:
        """Return the first row of a fragment that this lane has sums of."""
        return self.b.lshr(self.lane, I32(2))

    def finish(self, sums: Values) -> Values:
        """Return sums once all products have been added."""
        return sums

    def places(self) -> list[tuple[ir.Value, ir.Value]]:
        """Return row and column in the block's tile of each of this lane's sums.

        Two that follow each other are side by side in a row, but for those of FMAs.
        """
        b, form, fragment = self.b, self.form, self.form.fragment
        if fragment.depth == 1:
            row, column = b.shl(b.lshr(self.lane, I32(3)), I32(2)), b.and_(self.lane, I32(7))
            own = [(more, 0) for more in range(4)]
        else:
            far, wide = (1 + self._is_sorted(at) for at in range(2))
            row = b.mul(self._row(), I32(far))
            column = b.mul(b.and_(self.lane, I32(3)), I32(2 * wide))
            apart = [1 if one == 2 else 8 for one in (far, wide)]
            own = [
                (down * apart[0], across * apart[1] + beside * wide)
                for across in range(fragment.columns // 8)
                for down in range(min(2, fragment.rows // 8))
                for beside in range(2)
            ]
        rows = {
            (i, down): b.add(b.add(row, self.begin[0]), I32(i * fragment.rows + down))
            for i in range(form.side[0])
            for down in sorted({down for down, _ in own})
        }
        columns = {
            (j, across): b.add(b.add(column, self.begin[1]), I32(j * fragment.columns + across))
            for j in range(form.side[1])
            for across in sorted({across for _, across in own})
        }
        return [
            (rows[i, down], columns[j, across])
            for i in range(form.side[0])
            for j in range(form.side[1])
            for down, across in own
        ]
