"""What runs pack is what the price says: counted while small layers of all suites run."""

from dataclasses import replace

import pytest
from guessed_tiles import guessed_tiles
from packing_counts import count_packed
from running_cases import check_result, draw_operands, make_machine

import tilesolve
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.layer_suites import layer_suite, list_layer_suites
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.reference import reference
from tilesolve.contractions.suites import list_suites, suite
from tilesolve.planning.layout_policy import policy_of


def tiny_machine(*capacities):
    """A machine with caches so small that small problems have all loops."""
    found = make_machine(256, 16)
    caches = [
        replace(level, capacity=size) for level, size in zip(found.levels, capacities, strict=False)
    ]
    return replace(found, name="tiny", levels=(*caches, found.levels[-1]))


def small_layers(name, layout):
    """The layers of a suite that are still different once they are small."""
    found = {}
    for one in layer_suite(name):
        layer = one.convolution
        groups = 6 if layer.groups > 1 else 1
        channels = 6 if groups > 1 else min(layer.channels, 13)
        filters = 6 if groups > 1 else min(layer.filters, 20)
        size = tuple(min(pixels, 15) for pixels in layer.size)
        shape = (1, *size, channels) if layout == "NHWC" else (1, channels, *size)
        small = Convolution.of(
            shape,
            (filters, channels // groups, *layer.window),
            stride=layer.stride,
            padding=layer.padding,
            groups=groups,
            layout=layout,
        )
        found[small] = None
    return list(found)


def hold_price(found):
    """Run a plan, and compare what it packs with its price."""
    problem, solution = found.problem, found.solution
    operands = draw_operands(problem)
    micro_panels, windows, out = count_packed(solution, operands)
    check_result(problem, out, reference(problem, *operands), operands)
    given = [problem.strides(tensor) for tensor in range(3)]
    policy = policy_of(solution, problem.with_vector(solution.vector), given)
    for at, priced in enumerate(found.price.packed):
        kind, level = found.nest.kind(at), policy.packed[at ^ policy.rows_operand]
        counted = windows[at] if kind == "windows" else micro_panels[at]
        if kind == "in place" and level:
            # Rows that are no whole vectors: the report says so, see `policy_of`.
            assert priced == 0
        else:
            assert counted == pytest.approx(priced), (problem, at, kind)


@pytest.mark.grid
@pytest.mark.parametrize("name", list_layer_suites())
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_sliced_layers(name, layout):
    """Strips in both schedules, of weights that stay and that do not."""
    machine = tiny_machine(4096, 16384, 65536)
    for layer in small_layers(name, layout):
        for problem in (layer.flat_problem, replace(layer.flat_problem, constant=())):
            hold_price(tilesolve.plan(problem, machine=machine, strategy="slicing", cache=False))


@pytest.mark.parametrize("name", list_suites())
def test_sliced_problems(name):
    """Problems of all suites, with extents of a few."""
    machine = tiny_machine(1024, 4096, 16384)
    for case in suite(name).values():
        few = {letter: min(extent, 3 + at) for at, (letter, extent) in enumerate(case.extents)}
        problem = Problem.of(case.spec, few, case.dtype)
        hold_price(tilesolve.plan(problem, machine=machine, strategy="slicing", cache=False))


SOLVED = [
    (3, 9, 12, 3, 2, 1, "NHWC"),
    (5, 7, 12, 3, 1, 1, "NCHW"),
    (5, 9, 12, 1, 2, 0, "NHWC"),
    (13, 14, 20, 1, 1, 0, "NHWC"),
]
"""Channels, pixels of a side, filters, taps of a side, stride, padding, layout."""


@pytest.mark.parametrize("layer", SOLVED)
@pytest.mark.parametrize("constant", [True, False])
@guessed_tiles(0)
def test_solved_layers(layer, constant):
    """Window copies and micro-panels of plans with any loops and tiles."""
    channels, pixels, filters, taps, stride, padding, layout = layer
    shape = (1, pixels, pixels, channels) if layout == "NHWC" else (1, channels, pixels, pixels)
    found = Convolution.of(
        shape, (filters, channels, taps, taps), stride=stride, padding=padding, layout=layout
    )
    problem = found.flat_problem if constant else replace(found.flat_problem, constant=())
    hold_price(tilesolve.plan(problem, machine=tiny_machine(2048, 8192), cache=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", list_layer_suites())
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_all_solved_layers(name, layout):
    """The same for the layers of all suites."""
    for layer in small_layers(name, layout):
        for problem in (layer.flat_problem, replace(layer.flat_problem, constant=())):
            hold_price(
                tilesolve.plan(problem, machine=tiny_machine(4096, 16384, 65536), cache=False)
            )
