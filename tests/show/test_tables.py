"""Tables: which entries of a segment are transposed together, and which of its lines are known."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.packing import table_fields as fields
from tilesolve.packing.offset_tables import TransposedBlocks, offset_table
from tilesolve.packing.offsets import RoleTile, build_axis
from tilesolve.packing.sizes import ALIGNMENT_BYTES


def entries(found, number, bounds, field, size):
    """Return what the first segment has of a field of `Blocks`, so many entries at each bound."""
    first = fields.BLOCKS + fields.BLOCK_WORDS * number
    low, high = found[found[first + bounds] :][:2] * size
    return found[found[first + field] :][low:high]


@given(
    st.integers(1, 40),
    st.integers(1, 5),
    st.sampled_from([0, 4, 44]),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([2, 4, 8, 16]),
    st.booleans(),
)
def test_blocks_cover_runs(unit, others, gap, element, lanes, summed):
    """Each entry is in a block, but for those of runs shorter than few; all lines are listed."""
    pitch = unit * element + gap * element
    strides = [{}, {"x": element, "y": pitch}, {}]
    how = TransposedBlocks(
        level=1, lanes=lanes, element=element, whole_lines=pitch % ALIGNMENT_BYTES == 0
    )
    axis = build_axis([RoleTile("xy", (1, 1)), RoleTile("xy", (unit, others))], strides)
    groups = {} if summed else {"operand": 1, "group": 1, "element": element}
    found = offset_table(axis, transposed=(how, None), **groups)
    offsets = axis.offsets[1]
    blocks = entries(found, 0, fields.BLOCK_BOUNDS, fields.BLOCK_ENTRIES, lanes).reshape(-1, lanes)
    even = entries(found, 0, fields.EVEN_BOUNDS, fields.EVEN_ENTRIES, lanes).reshape(-1, lanes)
    assert not (summed and even.size)
    assert (np.diff(even, 2, axis=1) == 0).all()
    blocks = np.concatenate([blocks, even])
    few = entries(found, 0, fields.FEW_BOUNDS, fields.FEW_ENTRIES, how.few).reshape(-1, how.few)
    rest = entries(found, 0, fields.REST_BOUNDS, fields.REST_ENTRIES, 1)
    for those in (blocks, few):
        assert (np.diff(offsets[those], axis=1) == element).all()
    everything = np.concatenate([blocks.ravel(), few.ravel(), rest])
    assert set(everything.tolist()) == set(range(len(offsets)))
    assert len(np.unique(blocks)) == blocks.size
    assert not len(rest) or unit * (1 if gap else others) < how.few
    touched = {int(at) // ALIGNMENT_BYTES for at in offsets}
    lines = entries(found, 0, fields.LINE_BOUNDS, fields.LINE_OFFSETS, 1)
    assert {int(at) // ALIGNMENT_BYTES for at in lines} == touched


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 9), st.sampled_from([2, 4, 8]))
def test_even_blocks_are_those_whose_addresses_two_tell(unit, across, height, lanes):
    """Of a block all lanes, and all groups, are one distance apart exactly if it is called even."""
    strides = [{}, {"x": 8, "y": 1 << 12, "z": 3 << 20}, {}]
    how = TransposedBlocks(level=1, lanes=lanes, element=8, whole_lines=True)
    sizes = (across, height, unit)
    tiles = [RoleTile("yzx", (2, lanes, 1)), RoleTile("yzx", sizes)]
    axis = build_axis(tiles, strides, {"y": lanes})
    found = offset_table(axis, operand=1, group=lanes, element=8, transposed=(how, None))
    groups = found[found[fields.GROUPS] :][len(axis.bounds[0]) - 1]
    offsets = found[found[fields.LANES] :][: groups * lanes].reshape(groups, lanes)
    for even, bounds, field in (
        (False, fields.BLOCK_BOUNDS, fields.BLOCK_ENTRIES),
        (True, fields.EVEN_BOUNDS, fields.EVEN_ENTRIES),
    ):
        for block in entries(found, 0, bounds, field, lanes).reshape(-1, lanes):
            assert (np.diff(offsets[block], axis=0) == 8).all()
            uneven = np.diff(offsets[block[0]], 2).any() or np.diff(block, 2).any()
            assert uneven != even
