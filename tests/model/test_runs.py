"""Shares that later lines and strided runs have of a first line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.constants.policy import LATER_LINE_SHARE
from tilesolve.machine.level import Level
from tilesolve.model.runs import later_share, start_seconds

LEVEL = Level("L2", 2**18, 6.4e10)


@given(st.floats(1e-12, 1e-6), st.floats(1e-12, 1e-6))
def test_start_and_share_say_the_same(start, line):
    """The first line takes start and line, each later one the share of it."""
    level = replace(LEVEL, start=start)
    share = later_share(level, line)
    assert 0 < share < 1
    assert start_seconds(level, line) == pytest.approx(start, rel=1e-6, abs=1e-9 * line)
    assert share * (start + line) == pytest.approx(line)


def test_a_level_without_a_start_has_the_default_share():
    """Whatever its latency."""
    timed = replace(LEVEL, latency=1e-7)
    assert later_share(LEVEL, 1e-9) == later_share(timed, 1e-9) == LATER_LINE_SHARE
    assert start_seconds(LEVEL, 1e-9) == pytest.approx(3e-9)


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=7), st.floats(0.5, 5000.0))
def test_strides_take_their_share_of_a_first_line(shares, stride):
    """Between those of neighbouring strides, never less than a line by itself."""
    level = replace(LEVEL, start=3e-9, strided=tuple((2**n, x) for n, x in enumerate(shares)))
    found = start_seconds(level, 1e-9, stride) + 1e-9
    assert max(1e-9, 4e-9 * min(shares)) <= found * (1 + 1e-9)
    assert found <= max(1e-9, 4e-9 * max(shares)) * (1 + 1e-9)
    for at, share in level.strided:
        assert start_seconds(level, 1e-9, at) == pytest.approx(max(4e-9 * share - 1e-9, 0))
