"""Where arrays of a network lie in its arena."""

from hypothesis import given
from hypothesis import strategies as st

from tilesolve.networks.places import Block, Blocks
from tilesolve.packing.sizes import ALIGNMENT_BYTES

lives = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)
drawn = st.lists(
    st.builds(lambda size, life: Block(size, *life), st.integers(1, 2000), lives), min_size=1
)


@given(drawn, st.booleans())
def test_arrays_that_are_needed_at_once_lie_apart(blocks, is_divided):
    """Each begins with a line, and ends within the arena."""
    begins, size = Blocks(blocks, is_divided).arrange()
    spans = [(at, at + one.size) for at, one in zip(begins, blocks, strict=True)]
    assert max(high for _, high in spans) == size
    for number, (one, (low, high)) in enumerate(zip(blocks, spans, strict=True)):
        assert low % ALIGNMENT_BYTES == 0
        for other, (begin, end) in zip(blocks[:number], spans[:number], strict=True):
            at_once = one.first <= other.last and other.first <= one.last
            assert not at_once or high <= begin or end <= low


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=9))
def test_threads_part_arrays_of_the_same_memory_at_the_same_place(sizes):
    """Arrays one after another have one middle, up to a line, and take no more memory."""
    blocks = [Block(size, at, at) for at, size in enumerate(sizes)]
    begins, size = Blocks(blocks, is_divided=True).arrange()
    assert size <= max(sizes) + ALIGNMENT_BYTES
    middles = [at + size / 2 for at, size in zip(begins, sizes, strict=True)]
    assert max(middles) - min(middles) <= ALIGNMENT_BYTES
