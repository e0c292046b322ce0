"""Tables: which entries of a segment are transposed together, and which of its lines are known."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.packing.axes import Tile, lay
from tilesolve.packing.buffers import ALIGNMENT
from tilesolve.packing.tables import Blocks, Field, Turned, table


def entries(found, number, bounds, field, size):
    """Return what the first segment has of a field of `Blocks`, so many entries at each bound."""
    first = Field.BLOCKS + Blocks.SIZE * number
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
    how = Turned(level=1, lanes=lanes, element=element, lined=pitch % ALIGNMENT == 0)
    axis = lay([Tile("xy", (1, 1)), Tile("xy", (unit, others))], strides)
    groups = {} if summed else {"operand": 1, "group": 1, "element": element}
    found = table(axis, turned=(how, None), **groups)
    offsets = axis.offsets[1]
    blocks = entries(found, 0, Blocks.BOUNDS, Blocks.ENTRIES, lanes).reshape(-1, lanes)
    few = entries(found, 0, Blocks.FEW_BOUNDS, Blocks.FEW, how.few).reshape(-1, how.few)
    rest = entries(found, 0, Blocks.REST_BOUNDS, Blocks.REST, 1)
    for those in (blocks, few):
        assert (np.diff(offsets[those], axis=1) == element).all()
    everything = np.concatenate([blocks.ravel(), few.ravel(), rest])
    assert set(everything.tolist()) == set(range(len(offsets)))
    assert len(np.unique(blocks)) == blocks.size
    assert not len(rest) or unit * (1 if gap else others) < how.few
    touched = {int(at) // ALIGNMENT for at in offsets}
    lines = entries(found, 0, Blocks.LINE_BOUNDS, Blocks.LINES, 1)
    assert {int(at) // ALIGNMENT for at in lines} == touched
