"""Which lines generated code asks for ahead: those that are new, wherever arrays begin."""

import ctypes

import numpy as np
import pytest
from llvmlite import binding as llvm
from llvmlite import ir
from machine_code import WIDTHS

from tilesolve.constants.tuning import PACK_PREFETCH_STEPS
from tilesolve.kernels.codegen import object_code
from tilesolve.kernels.codegen.loaded_code import LoadedCode
from tilesolve.kernels.codegen.microkernel import emit_microkernel
from tilesolve.kernels.codegen.pack import FIELDS as PACK_FIELDS
from tilesolve.kernels.codegen.pack import MicroPanel, emit_packers
from tilesolve.kernels.codegen.shape import FIELDS, Mode, Shape
from tilesolve.kernels.ir import vectors
from tilesolve.kernels.ir.vectors import INT64
from tilesolve.packing.buffers import allocate
from tilesolve.packing.sizes import LINE_BYTES

ELEMENT = 8
OFFSETS = range(0, LINE_BYTES, ELEMENT)
PITCH = 5 * LINE_BYTES + 4096
STEPS = 24
MOST = 1 << 16


class Recorded:
    """Code whose prefetches are written down."""

    def __init__(self, monkeypatch, emit):
        self.log = np.zeros(MOST, np.int64)
        monkeypatch.setattr(vectors, "prefetch", self._record)
        module = ir.Module()
        machine = object_code.target(object_code.TargetCpu.here())
        module.triple = machine.triple
        emit(module)
        parsed = llvm.parse_assembly(str(module))
        self.code = LoadedCode(machine.emit_object(parsed))

    def _record(self, builder, where, **_):
        begin = INT64(self.log.ctypes.data)
        first = vectors.to_pointer(builder, begin)
        count = builder.add(builder.load(first, typ=INT64), INT64(1))
        builder.store(count, first)
        entry = builder.add(begin, builder.mul(count, INT64(8)))
        builder.store(builder.ptrtoint(where, INT64), vectors.to_pointer(builder, entry))

    def lines(self, name, fields, values):
        """Call a kernel; return the lines that it asked for."""
        self.log[0] = 0
        frame = np.array([values.get(field, 0) for field in fields], np.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.code.address(name))(frame.ctypes.data)
        return set((self.log[1 : 1 + self.log[0]] // LINE_BYTES).tolist())


def lines_of(*addresses):
    """Return the lines of elements at sums of such offsets."""
    places = np.zeros(1, np.int64)
    for one in addresses:
        places = np.add.outer(places, one).ravel()
    return set((places // LINE_BYTES).tolist())


@pytest.mark.grid
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("vectors_of_rows", [1, 2, 3])
def test_new_lines_of_the_next_tile_are_asked_for_in_place(monkeypatch, bits, vectors_of_rows):
    """Rows and columns that go on side by side: all lines that the next tile adds to this one's."""
    shape = Shape("float64", bits, vectors_of_rows, 6, 4 if bits < 512 else 8, packed=False)
    kernel = Recorded(monkeypatch, lambda module: emit_microkernel(module, shape, bits))
    memory, out = allocate(4 * STEPS * PITCH), np.zeros(shape.rows * shape.columns)
    sums = np.arange(STEPS) * PITCH
    rows, columns = (np.arange(n) * ELEMENT for n in (shape.rows, shape.columns))
    rows_c = np.arange(shape.rows) * ELEMENT
    columns_c = np.arange(shape.columns) * ELEMENT * shape.rows
    tables = {"rows_a": rows, "columns_b": columns, "sums_a": sums, "sums_b": sums}
    tables |= {"rows_c": rows_c, "columns_c": columns_c}
    for offset in OFFSETS:
        a = memory.ctypes.data + offset
        b = a + 2 * STEPS * PITCH
        beyond = {"a_ahead": shape.rows * ELEMENT, "b_ahead": shape.columns * ELEMENT}
        fields = {"a": a, "b": b, "k": STEPS, "c": out.ctypes.data, "rows": shape.rows, **beyond}
        fields |= {name: table.ctypes.data for name, table in tables.items()}
        fields |= {"mode": int(Mode.STORE)}
        asked = kernel.lines(shape.name, FIELDS, fields)
        for base, ahead, indices in ((a, "a_ahead", rows), (b, "b_ahead", columns)):
            known = lines_of([base], indices, sums)
            assert lines_of([base + beyond[ahead]], indices, sums) - known <= asked, offset


@pytest.mark.parametrize("bits", WIDTHS)
def test_lines_along_k_are_asked_for_in_turns(monkeypatch, bits):
    """Where k goes along columns in place, each lacks one of its lines at most: a part of one."""
    shape = Shape("float64", bits, 2, 6, 8, packed=False)
    kernel = Recorded(monkeypatch, lambda module: emit_microkernel(module, shape, bits))
    memory, out = allocate(4 * STEPS * PITCH), np.zeros(shape.rows * shape.columns)
    tables = {
        "rows_a": np.arange(shape.rows) * ELEMENT,
        "columns_b": np.arange(shape.columns) * PITCH,
        "sums_a": np.arange(STEPS) * PITCH,
        "sums_b": np.arange(STEPS) * ELEMENT,
        "rows_c": np.arange(shape.rows) * ELEMENT,
        "columns_c": np.arange(shape.columns) * ELEMENT * shape.rows,
    }
    for offset in OFFSETS:
        a = memory.ctypes.data
        b, ahead = a + 2 * STEPS * PITCH + offset, shape.columns * PITCH
        fields = {"a": a, "b": b, "k": STEPS, "c": out.ctypes.data, "rows": shape.rows}
        fields |= {name: table.ctypes.data for name, table in tables.items()}
        asked = kernel.lines(shape.name, FIELDS, fields | {"b_ahead": ahead})
        for column in tables["columns_b"]:
            wanted = lines_of([b + ahead + column], tables["sums_b"])
            assert len(wanted - asked) <= (offset > 0), offset


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("kind", [{}, {"halved": True}, {"mixed": True}])
def test_short_sums_ask_for_lines_of_c(monkeypatch, kind, steps):
    """The lines that vectors of C end in, and later ones, of a column in each step; none if C
    leaves otherwise.
    """
    shape = Shape("float64", 512, 3, 8, 8, packed=True, **kind)
    kernel = Recorded(monkeypatch, lambda module: emit_microkernel(module, shape, 512))
    panels, out = allocate(8 * STEPS * PITCH), allocate(2 * shape.columns * PITCH)
    ahead = shape.columns * PITCH
    rows_c, columns_c = np.arange(shape.rows) * ELEMENT, np.arange(shape.columns) * PITCH
    zeros, a = np.zeros(max(steps, shape.columns) + 1, np.int64), panels.ctypes.data
    fetch = np.full(1, a)
    tables = {"rows_c": rows_c, "columns_c": columns_c, "fetch": fetch}
    tables |= {"columns_b": zeros, "sums_b": zeros}
    ends = (np.arange(shape.vectors) + 1) * shape.lanes * ELEMENT - ELEMENT
    for offset in OFFSETS:
        c = out.ctypes.data + offset
        fields = {"a": a, "b": a, "k": steps, "c": c, "rows": shape.rows - shape.lanes // 2}
        fields |= {"c_ahead": ahead}
        fields |= {name: table.ctypes.data for name, table in tables.items()}
        for mode in (Mode.PART, Mode.SCATTER, Mode.STREAM_PIECES):
            if mode is Mode.STREAM_PIECES and (shape.halved or offset % 16):
                continue
            asked = kernel.lines(shape.name, FIELDS, fields | {"mode": int(mode)})
            for at, column in enumerate(columns_c):
                lines = lines_of([c + column, c + column + ahead], ends)
                wanted = at < steps and mode is not Mode.STREAM_PIECES
                assert lines & asked == (lines if wanted else set())


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_packing_asks_for_the_lines_that_runs_add(monkeypatch, lanes):
    """All lines of later steps, but the one that a run begins amid."""
    panel = MicroPanel("float64", lanes)
    packers = Recorded(monkeypatch, lambda module: emit_packers(module, panel))
    memory, target = allocate(4 * STEPS * PITCH), allocate(STEPS * STEPS * lanes * ELEMENT)
    groups, blocks = 6, STEPS // lanes
    far, near = np.arange(STEPS) * PITCH, np.arange(STEPS) * ELEMENT
    for offset in OFFSETS:
        base = memory.ctypes.data + offset
        common = {"source": base, "target": target.ctypes.data, "panel": STEPS * lanes * ELEMENT}

        def asked(kind, common=common, **fields):
            given = {
                name: value.ctypes.data if isinstance(value, np.ndarray) else value
                for name, value in fields.items()
            }
            return packers.lines(panel.name(kind), PACK_FIELDS, common | given)

        starts, run = np.arange(groups) * lanes * ELEMENT, np.arange(groups * lanes) * ELEMENT
        found = asked("copy", rows=starts, sums=far, groups=groups, count=STEPS)
        later = far[PACK_PREFETCH_STEPS:]
        assert lines_of([base], run, later) - lines_of([base], later) <= found

        rows, steps = np.arange(lanes) * PITCH, np.arange(STEPS)
        found = asked("turn_sums", rows=rows, later=rows, sums=near, steps=steps, count=blocks)
        begun = lines_of([base], rows, near[: PACK_PREFETCH_STEPS * lanes])
        assert lines_of([base], rows, near) - begun <= found

        lane = np.arange(lanes) * STEPS * PITCH // 8
        rows = np.tile(lane, lanes) + np.repeat(np.arange(lanes) * ELEMENT, lanes)
        steps = np.arange(lanes)
        few = far[:3]
        found = asked("turn_rows", rows=rows, sums=few, steps=steps, count=3, groups=1)
        later = few[1:]
        block = np.arange(lanes) * ELEMENT
        assert lines_of([base], lane, block, later) - lines_of([base], lane, later) <= found
