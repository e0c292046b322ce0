"""What boxes touch: the short way for axes of one letter is the general one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.model.access import Access, Axis

EXTENTS = st.sampled_from([1, 3, 8, 16, 40])


@given(st.data())
def test_rows_are_counted_as_any_other_boxes(data):
    """In elements and lines, for numbers and arrays, with corners known or not."""
    letters = data.draw(st.permutations("abcd"))[: data.draw(st.integers(0, 4))]
    shape = tuple(data.draw(EXTENTS) for _ in letters)
    access = Access(
        "A", tuple(Axis(((1, x),)) for x in letters), shape, data.draw(st.sampled_from([2, 8, 16]))
    )
    assert access.plain
    many = data.draw(st.booleans())

    def draw(values):
        found = st.lists(values, min_size=5, max_size=5).map(np.array) if many else values
        return data.draw(found)

    box = {x: draw(st.integers(1, extent)) for x, extent in zip(letters, shape, strict=True)}
    corners = {x: draw(st.sampled_from([0, 1, 2, 4])) for x in letters}
    for line in (1, 8, 64):
        for grid in (None, corners):
            short = access.touched(box, line, grid)
            object.__setattr__(access, "plain", False)
            general = access.touched(box, line, grid)
            object.__setattr__(access, "plain", True)
            assert short == pytest.approx(general, rel=1e-12)


@pytest.mark.parametrize("element", [1, 4, 8])
@pytest.mark.parametrize(("channels", "read"), [(4, 3), (3, 2), (4, 1), (3, 3)])
def test_pixels_touch_each_line_once_whichever_channels_are_read(element, channels, read):
    """Channels that are left out are no gaps between lines."""
    line, part = 64, 40
    axes = Axis(((1, "y"),)), Axis(((1, "x"),)), Axis((), read - 1)
    image = Access("I", axes, (5, 83, channels), element)
    places = np.arange(part)[:, None] * channels + np.arange(read)
    lines = np.unique(places * element // line).size
    touched = image.touched({"y": 1, "x": part}, line)
    assert lines * line - 2 * line <= touched <= lines * line + line
