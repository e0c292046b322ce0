"""The microkernel generator: LLVM IR of register tiles, for any dtype, width and shape.

A microkernel computes one register tile of C over a range of the summed index,

    C[r, c] = alpha * sum_k A[r, k] * B[c, k] + beta * C[r, c],

with all of the tile in registers. The contract, in the fields of a frame (`shape.FIELDS`):

* *Rows* run along the lanes of vectors, in up to `vectors` groups of ``lanes`` rows each; *columns*
  are broadcast.
* ``packed`` kernels read micro-panels: A has for each k one aligned vector a group (two for complex
  dtypes), group i starting ``a_step * i`` bytes after ``a``; B has for each k `group` elements, of
  which as many are read as there are columns, group i starting ``b_step * i`` bytes after ``b``.
  Padding lanes of A are read and must exist; columns beyond the kernel's are never read.
  Each step of k prefetches a line from ``next_a`` on, ``next_step`` bytes further with each k
  (narrow kernels: as far as a micro-panel of A goes), and, in the first ``fetches`` steps, lines
  whose addresses are in the table ``fetch``: as many a step as `unrolling.listed_lines` says; so
  many more entries of it stand for any later k. Unless
  ``prefetch_next`` is 0, the first lines of the micro-panels that begin ``b_move`` or ``a_move``
  bytes later are prefetched before whole vectors are stored non-temporally. Kernels that
  `unrolling.stores_lines` names copy a line in each of their first ``line_count`` steps, by a
  non-temporal store, so that it does not wait for others: ``lines`` is a table of pairs of
  addresses, a line's and the aligned one it is stored to. No tile may have fewer steps.
* ``halved`` kernels read micro-panels, too, but of the last group only the first half of each
  vector; that group has no more rows, and C is written by the part and scattered modes only.
* ``mixed`` kernels read A from micro-panels, as packed ones do, and B in place, as placed ones do.
* Other kernels, ``placed`` in their symbols, read operands in place: element (r, k) of A is at
  ``a + rows_a[r] + sums_a[k]`` and is loaded as an unaligned vector from the first row of each
  group, element (c, k) of B is at ``b + columns_b[c] + sums_b[k]``. Offsets are in bytes.
  Nothing else is read, but prefetches go ``a_ahead`` and ``b_ahead`` bytes beyond each access.
* ``lanewise`` kernels read operands in place, too, but multiply vectors by vectors: element
  (r, c, k) of B is at ``b + rows_b[r] + columns_b[c] + sums_b[k]``, and groups are contiguous in it
  as they are in A. The table ``rows_b`` is as many bytes behind ``rows_a`` as the field says. Of
  the last group no more than its rows is read, and nothing is prefetched but C.
* C is written in place: element (r, c) at ``c + rows_c[r] + columns_c[c]``. ``mode`` says how
  (`shape.Mode`); only the first ``rows`` rows are touched, and C is read only by the modes that add
  to it. The vector modes need all groups to be full and each to be contiguous in C; ``STREAM``
  also needs it aligned to the vector, ``STREAM_PIECES`` to 16 bytes. The part modes need the same
  of all groups but the last, whose rows need be contiguous only. The scattered modes need nothing.
  But for the two that stream, C is prefetched while sums are computed: of short ones by wide
  packed kernels only (`unrolling.prefetches_columns_of_c`), a column in each step, and what lies
  ``c_ahead`` bytes beyond it, to the second cache.
* ``alpha`` and ``beta`` are elements of the dtype in the frame; ``k`` may be 0.
* Kernels that `Shape.takes_epilogue` names begin the sums of row r with the number at ``starts``
  plus its offset, unless ``starts`` is 0: rows of a group are side by side there, the first one's
  offset stands ``starts_rows`` bytes behind that of C; of the last group no more is read than its
  rows, and all others are full. What is added to is read ``apart`` bytes
  behind C. With ``bounds`` 1 all that is written is at least ``least``, with 2 at most ``largest``,
  too; what is no number stays so.
* One call computes ``more`` further tiles of the same size: after each, the fields named in
  `advanced_fields` grow by their ``_move``. The frame itself is only read.

No other memory is touched. Nothing else is assumed of the alignment of arrays, not even that of
their elements; frames and tables are aligned to their words, micro-panels to their numbers.
"""

from __future__ import annotations

from llvmlite import ir

from tilesolve.kernels.codegen.accumulate import LoopSplit, accumulate
from tilesolve.kernels.codegen.load_operands import lanewise_loader, step_loader
from tilesolve.kernels.codegen.shape import Shape
from tilesolve.kernels.codegen.store_output import (
    interleaved_steps,
    last_masks,
    needs_scaling,
    steps_kept_back,
    write_interleaved,
    write_tile,
)
from tilesolve.kernels.codegen.tile_emitter import TileEmitter
from tilesolve.kernels.codegen.unrolling import is_unrolled, stores_lines
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.vectors import INT64


def advanced_fields(shape: Shape) -> tuple[str, ...]:
    """Return the fields that differ from one tile of a call to the next.

    Examples
    --------
    >>> advanced_fields(Shape("float32", 256, 2, 6, 6, packed=False))
    ('a', 'b', 'rows_a', 'columns_b', 'rows_c', 'columns_c')
    """
    lines = ("lines",) if stores_lines(shape) else ()
    if shape.mixed:
        return ("a", "b", "next_a", "columns_b", "rows_c", "columns_c", "fetch", *lines)
    if shape.packed:
        return ("a", "b", "next_a", "rows_c", "columns_c", "fetch", *lines)
    return ("a", "b", "rows_a", "columns_b", "rows_c", "columns_c")


def emit_microkernel(module: ir.Module, shape: Shape, native: int) -> ir.Function:
    """Add a microkernel to a module.

    Parameters
    ----------
    module
        Receives the function ``void shape.name(int64 frame)``.
    shape
        Which one.
    native
        Bits of the CPU's widest vector; a kernel no wider is kept in the written order.

    Examples
    --------
    >>> module = ir.Module()
    >>> emit_microkernel(module, Shape("float32", 256, 2, 6, 6, packed=True), native=256).name
    'packed_float32_256_2x6_6'
    """
    signature = ir.FunctionType(ir.VoidType(), (INT64,))
    function = ir.Function(module, signature, shape.name)
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block())
    frame = TileEmitter(builder, shape, function.args[0], native)
    scaling = needs_scaling(frame)
    last = steps_kept_back(frame, scaling) if interleaved_steps(shape) else INT64(0)
    first = builder.sub(frame.field("k"), last)
    split = LoopSplit.of(frame, first) if is_unrolled(shape) else None
    names = advanced_fields(shape)

    def compute(_: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        tile = frame.with_fields(dict(zip(names, values, strict=True)))
        if shape.lanewise:
            write_tile(tile, _lanewise_sums(tile, first), scaling)
            return _advanced_values(tile)
        load = step_loader(tile)
        sums = accumulate(tile, load, first, split)
        if not interleaved_steps(shape):
            write_tile(tile, sums, scaling)
        else:
            kept_back = builder.icmp_signed(">", last, INT64(0))
            with builder.if_else(kept_back, likely=True) as (then, otherwise):
                with then:
                    write_interleaved(tile, load, first, sums)
                with otherwise:
                    write_tile(tile, sums, scaling)
        return _advanced_values(tile)

    tiles = builder.add(frame.field("more"), INT64(1))
    vectors.emit_loop(builder, tiles, [frame.field(name) for name in names], compute)
    builder.ret_void()
    return function


def _lanewise_sums(tile: TileEmitter, count: ir.Value) -> list[ir.Value]:
    """Emit the sums of a lanewise kernel: of whole groups, or with a mask for the last one."""
    builder = tile.builder
    found, ends = [], []
    whole = builder.icmp_signed(">=", tile.field("rows"), INT64(tile.shape.rows))
    loaders = lanewise_loader(tile, ()), lanewise_loader(tile, last_masks(tile))
    with builder.if_else(whole, likely=True) as branches:
        for branch, load in zip(branches, loaders, strict=True):
            with branch:
                found.append(accumulate(tile, load, count, None))
                ends.append(builder.block)
    chosen = []
    for values in zip(*found, strict=True):
        phi = builder.phi(tile.kind)
        for value, end in zip(values, ends, strict=True):
            phi.add_incoming(value, end)
        chosen.append(phi)
    return chosen


def _advanced_values(tile: TileEmitter) -> list[ir.Value]:
    """Return the values that `advanced_fields` have for the next tile of a call."""
    names = advanced_fields(tile.shape)
    return [tile.builder.add(tile.field(name), tile.field(f"{name}_move")) for name in names]
