"""Shares that later lines have of a first line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.constants.nests import LATER_LINE_SHARE
from tilesolve.machine.level import Level
from tilesolve.model.runs import later_share

LEVEL = Level("L2", 2**18, 6.4e10)


@given(st.floats(1e-12, 1e-6), st.floats(1e-12, 1e-6))
def test_a_share_is_that_of_a_line_in_a_first_one(start, line):
    """The first line takes start and line, each later one the share of it."""
    level = replace(LEVEL, start=start)
    share = later_share(level, line)
    assert 0 < share < 1
    assert share * (start + line) == pytest.approx(line)


def test_a_level_without_a_start_has_the_default_share():
    """Whatever its latency."""
    timed = replace(LEVEL, latency=1e-7)
    assert later_share(LEVEL, 1e-9) == later_share(timed, 1e-9) == LATER_LINE_SHARE
