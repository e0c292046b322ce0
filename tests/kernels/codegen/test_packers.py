"""Packing kernels called one by one: which elements they pack, and that they touch nothing else."""

import numpy as np
import pytest
from machine_code import NOWHERE, WIDTHS, GuardedMemory, call, load_kernels

from tilesolve.contractions.problem import DTYPES
from tilesolve.kernels.codegen.pack import FIELDS
from tilesolve.packing.offset_tables import few_entries

TRIALS = 20

panels = pytest.mark.parametrize(
    ("dtype", "bits", "side"),
    [(dtype, bits, side) for dtype in DTYPES for bits in WIDTHS for side in (0, 1)],
)


class Source:
    """An operand in guarded memory: random bits where elements may be read, poison elsewhere.

    Parameters
    ----------
    rows, sums
        Offsets of rows and of steps of k, in elements.
    """

    def __init__(self, memory, generator, dtype, rows, sums):
        size = np.dtype(dtype).itemsize
        self.rows, self.sums = rows * size, sums * size
        low, high = self.rows.min() + self.sums.min(), self.rows.max() + self.sums.max()
        shift = int(generator.choice((0, 1, size)))
        edge = generator.choice([None, "first", "last"])
        self.base = memory.take(int(high - low) + size, shift, edge) - low
        places = self.base + self.rows[:, None] + self.sums
        # Any bits at all: elements are moved as they are.
        raw = generator.integers(0, 256, (*places.shape, size), np.uint8)
        memory.scatter(places, raw.view(dtype)[..., 0])
        self.values = memory.gather(places, dtype)


class Target:
    """Micro-panels in guarded memory: the places of lanes of groups at steps of k."""

    def __init__(self, memory, generator, panel, groups, steps):
        self.size = np.dtype(panel.dtype).itemsize
        self.step = panel.lanes * self.size
        self.pitch = (steps + int(generator.integers(0, 3))) * self.step
        align = min(64, self.step)
        self.begin = memory.take(groups * self.pitch, align * int(generator.integers(0, 3)))

    def places(self, groups, lanes, sums):
        """Return addresses, by group, lane and step."""
        group, lane, step = np.ix_(groups, lanes, sums)
        return self.begin + group * self.pitch + lane * self.size + step * self.step


def sums_of(generator, steps, rows):
    """Offsets of steps of k, beside rows: in any order, forwards, backwards, or all the same."""
    pace = int(np.ptp(rows)) + 1
    return {
        "any": generator.permutation(steps) * pace,
        "forwards": np.arange(steps) * pace,
        "backwards": -np.arange(steps) * pace,
        "same": np.zeros(steps, int),
    }[generator.choice(["any", "forwards", "backwards", "same"])]


def check_packing(memory, kernels, name, fields, places, values):
    """Call a kernel, and compare every byte of the memory with what was to change."""
    frame = memory.frame(FIELDS, fields)
    expected = memory.bytes.copy()
    offsets = memory.offsets(places, values.itemsize)
    expected[offsets] = np.ascontiguousarray(values)[..., None].view(np.uint8)
    call(kernels, name, frame)
    assert np.array_equal(memory.bytes, expected)


@panels
def test_copy(dtype, bits, side):
    """Groups that are contiguous arrive as they are, from anywhere, one from the same place too."""
    family, _, kernels = load_kernels(dtype, bits)
    panel = family.micro_panels[side]
    generator = np.random.default_rng(bits)
    for _ in range(TRIALS):
        memory = GuardedMemory()
        groups = int(generator.integers(0, 8))
        starts = generator.permutation(7) * (panel.lanes + int(generator.integers(0, 3)))
        starts *= int(generator.choice((-1, 0, 1)))
        rows = (starts[:, None] + np.arange(panel.lanes)).ravel()
        source = Source(memory, generator, dtype, rows, sums_of(generator, 11, rows))
        target = Target(memory, generator, panel, 7, 11)
        first, last = sorted(generator.integers(0, 12, 2))
        fields = {
            "source": source.base,
            "target": target.begin,
            "panel": target.pitch,
            "rows": memory.table(source.rows[:: panel.lanes]),
            "sums": memory.table(source.sums),
            "groups": groups,
            "first": first,
            "count": last - first,
        }
        values = source.values.reshape(7, panel.lanes, 11)[:groups, :, first:last]
        places = target.places(np.arange(groups), np.arange(panel.lanes), np.arange(first, last))
        check_packing(memory, kernels, panel.name("copy"), fields, places, values)


def length_of(kind, panel):
    """Return how many entries a kernel's blocks have."""
    few_of_them = few_entries(panel.lanes, np.dtype(panel.dtype).itemsize)
    return few_of_them if kind.startswith("few") else panel.lanes


@pytest.mark.grid
@panels
@pytest.mark.parametrize("kind", ["turn_sums", "few_sums"])
def test_turn_sums(dtype, bits, side, kind):
    """Blocks of steps that are contiguous, in any order, are transposed; rows lie anywhere."""
    family, _, kernels = load_kernels(dtype, bits)
    panel = family.micro_panels[side]
    lanes, length = panel.lanes, length_of(kind, panel)
    generator = np.random.default_rng(bits)
    for _ in range(TRIALS):
        memory = GuardedMemory()
        blocks = int(generator.integers(1, 7))
        steps = blocks * length + 3
        order = generator.permutation(steps)[: blocks * length].reshape(blocks, length)
        sums = np.zeros(steps, int)
        begin = generator.permutation(blocks) * (length + int(generator.integers(0, 3)))
        sums[order] = begin[:, None] + np.arange(length)
        wide = int(sums.max()) + 1
        rows = generator.permutation(lanes) * wide * int(generator.choice((-1, 0, 1)))
        source = Source(memory, generator, dtype, rows, sums)
        target = Target(memory, generator, panel, 1, steps)
        first, last = sorted(generator.integers(0, blocks + 1, 2))
        heads = source.sums.copy()
        heads[np.setdiff1d(np.arange(steps), order[:, 0])] = NOWHERE
        fields = {
            "source": source.base,
            "target": target.begin,
            "rows": memory.table(source.rows),
            "later": memory.table(generator.integers(-(1 << 60), 1 << 60, lanes)),
            "sums": memory.table(heads),
            "steps": memory.table(order.ravel()),
            "first": first,
            "count": last - first,
        }
        wanted = order[first:last].ravel()
        places = target.places(np.zeros(1, int), np.arange(lanes), wanted)
        values = source.values[None][..., wanted]
        check_packing(memory, kernels, panel.name(kind), fields, places, values)


@pytest.mark.grid
@panels
@pytest.mark.parametrize("kind", ["turn_rows", "few_rows", "even_rows"])
def test_turn_rows(dtype, bits, side, kind):
    """Blocks of groups whose lanes are contiguous are transposed; lanes and steps lie anywhere.

    Even ones have lanes and groups one distance apart, which may be negative or nothing at all.
    """
    family, _, kernels = load_kernels(dtype, bits)
    panel = family.micro_panels[side]
    lanes, length = panel.lanes, length_of(kind, panel)
    generator = np.random.default_rng(bits)
    for _ in range(TRIALS):
        memory = GuardedMemory()
        blocks = int(generator.integers(1, 3))
        groups = blocks * length
        order = generator.permutation(groups).reshape(blocks, length)
        lane = generator.permutation(lanes) * groups * int(generator.choice((-1, 1)))
        if kind == "even_rows":
            interleaved = np.arange(groups).reshape(length, blocks).T
            order = interleaved[:, :: int(generator.choice((-1, 1)))]
            lane = np.arange(lanes) * groups * int(generator.choice((-1, 0, 1)))
        starts = np.arange(groups) * lanes
        begin = np.zeros(groups, int)
        begin[order] = (generator.permutation(blocks) * length)[:, None] + np.arange(length)
        rows = np.zeros(groups * lanes, int)
        rows[starts[:, None] + np.arange(lanes)] = begin[:, None] + lane
        source = Source(memory, generator, dtype, rows, sums_of(generator, 6, rows))
        target = Target(memory, generator, panel, groups, 6)
        first, last = sorted(generator.integers(0, 7, 2))
        low, high = sorted(generator.integers(0, blocks + 1, 2))
        fields = {
            "source": source.base,
            "target": target.begin,
            "panel": target.pitch,
            "rows": memory.table(source.rows),
            "sums": memory.table(source.sums),
            "steps": memory.table(order.ravel()),
            "first": first,
            "count": last - first,
            "lanes": low,
            "groups": high - low,
        }
        wanted = order[low:high].ravel()
        values = source.values[starts[wanted][:, None] + np.arange(lanes), first:last]
        places = target.places(wanted, np.arange(lanes), np.arange(first, last))
        check_packing(memory, kernels, panel.name(kind), fields, places, values)


@panels
def test_gather(dtype, bits, side):
    """Any rows at any steps are packed; the lanes that a group lacks become zeros."""
    family, _, kernels = load_kernels(dtype, bits)
    panel = family.micro_panels[side]
    lanes = panel.lanes
    generator = np.random.default_rng(bits)
    for found in range(lanes + 1):
        memory = GuardedMemory()
        there = max(found, 1)
        rows = generator.permutation(there) * int(generator.choice((-2, 0, 3)))
        source = Source(memory, generator, dtype, rows, sums_of(generator, 23, rows))
        target = Target(memory, generator, panel, 1, 23)
        steps = generator.permutation(23)[: int(generator.integers(1, 24))]
        first, last = sorted(generator.integers(0, len(steps) + 1, 2))
        fields = {
            "source": source.base,
            "target": target.begin,
            "rows": memory.table(source.rows[:found]),
            "sums": memory.table(source.sums),
            "steps": memory.table(steps),
            "first": first,
            "count": last - first,
            "lanes": found,
        }
        wanted = steps[first:last]
        values = np.zeros((1, lanes, len(wanted)), dtype)
        values[0, :found] = source.values[:found, wanted]
        places = target.places(np.zeros(1, int), np.arange(lanes), wanted)
        check_packing(memory, kernels, panel.name("gather"), fields, places, values)
