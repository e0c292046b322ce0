"""Shares that later lines have of a first line."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesolve.constants.nests import FAR_LEVELS, LATER_LINE_SHARE
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.level import Level
from tilesolve.machine.model import Machine
from tilesolve.model.runs import later_share
from tilesolve.nests.price import price_nest
from tilesolve.nests.request import NestRequest
from tilesolve.nests.windows import choose_block, windows_tree

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


@pytest.mark.grid
@pytest.mark.parametrize("taps", [3, 5, 7])
@pytest.mark.parametrize("channels", [32, 144, 480])
def test_windows_do_not_begin_runs(taps, channels):
    """The points of a row read the same pixels, so that hardware follows rows of an image."""
    window = product(range(taps), repeat=2)
    term = " + ".join(f"A[y+{i},x+{j},c] * w[{i},{j},c]" for i, j in window)
    computation = bind_stages(
        parse_stages(f"o[y,x,c] = {term}"), {"y": 28, "x": 28, "c": channels}, "float32"
    )
    request = NestRequest(computation, Machine.load("e5-2680v4"))
    tree, places = windows_tree(request, choose_block(request)), request.places
    levels = price_nest(computation, tree, request.machine).levels
    for level, place in zip(levels[-FAR_LEVELS:], places[-FAR_LEVELS:], strict=True):
        assert level.seconds <= 1.1 * place.seconds(level.volumes)
