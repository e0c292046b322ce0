"""What four warps do together: products of tiles that `wgmma` reads from shared memory.

Tiles lie there as the manual of PTX says of swizzled matrices: chunks of 16 bytes of a line change
places by the number of the line, so that eight lines meet in different banks.
"""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels.gpu.forms import Form
from tilesolve.kernels.gpu.targets import I32, I64, Values, Wgmma
from tilesolve.kernels.gpu.warps import Warp

MODES = {128: 1, 64: 2, 32: 3}
"""What descriptors call swizzles of lines of so many bytes."""


def place_in_tile(
    b: ir.IRBuilder, form: Form, at: int, line: ir.Value, along: ir.Value
) -> ir.Value:
    """Return the bytes from a tile's begin to an element of a line, where both are numbers."""
    size, pitch = form.fragment.element, form.pitch(at)
    along = b.mul(along, I32(size))
    piece = b.mul(b.udiv(along, I32(pitch)), I32(form.depth * pitch))
    linear = b.add(b.add(piece, b.mul(line, I32(pitch))), b.urem(along, I32(pitch)))
    turned = b.and_(b.lshr(linear, I32(7)), I32(pitch // 16 - 1))
    return b.xor(linear, b.shl(turned, I32(4)))


class Group(Warp):
    """Writes the work of a group on tiles in shared memory."""

    def _base(self, at: int) -> ir.Value:
        """Return a descriptor of where the group's part of an operand's tile begins."""
        b, form = self.b, self.form
        pitch, along_sum = form.pitch(at), form.operands[at].along_sum
        leading, apart = (16 if along_sum else form.depth * pitch), 8 * pitch
        fixed = leading >> 4 << 16 | apart >> 4 << 32 | MODES[pitch] << 62
        begin = b.mul(self.begin[at], I32(form.depth * form.fragment.element))
        begin = b.add(begin, self.target.address(b, self.pool))
        begin = b.add(begin, I32(at * form.tile_bytes(0)))
        return b.or_(b.zext(b.lshr(begin, I32(4)), I64), I64(fixed))

    def multiply(self, stage: ir.Value, sums: Values) -> Values:
        """Return sums to which the products of a stage's tiles are going to be added."""
        b, form, target = self.b, self.form, self.target
        fragment, count = form.fragment, form.fragment.sums
        turned = not form.first.along_sum, not form.second.along_sum
        further = b.zext(b.lshr(stage, I32(4)), I64)
        bases = [b.add(one, further) for one in self.bases]
        target.open_groups(b)
        for step in range(form.depth // fragment.depth):
            strides = [
                step * (fragment.depth * form.pitch(at) if turned[at] else 32) for at in range(2)
            ]
            second = b.add(bases[1], I64(strides[1] >> 4))
            for row in range(form.side[0]):
                down = row * fragment.rows * form.depth * fragment.element
                first = b.add(bases[0], I64((strides[0] + down) >> 4))
                own = Wgmma(row, form.arithmetic, fragment, turned)
                place = slice(row * count, row * count + count)
                sums[place] = target.multiply_groups(b, own, first, second, sums[place])
        target.close_groups(b)
        return target.await_groups(b, 1, sums)

    def finish(self, sums: Values) -> Values:
        """Return sums once all products have been added."""
        return self.target.await_groups(self.b, 0, sums)

    def _row(self) -> ir.Value:
        """Return the first row of a fragment that this lane has sums of: a warp has sixteen."""
        b = self.b
        quarter = b.shl(b.lshr(self.lane, I32(5)), I32(4))
        return b.add(quarter, b.lshr(b.and_(self.lane, I32(31)), I32(2)))
