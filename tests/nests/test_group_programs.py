"""Programs of groups: rings that slide, tiles that overlap, and stages of their own, alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.drawn_stages import draw_group, draw_stages, fill
from tilesolve.contractions.errors import SpecError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.kernels.programs import compiled_program
from tilesolve.kernels.programs.compiled_program import compile_program
from tilesolve.kernels.programs.interpreter import interpret
from tilesolve.machine.model import Machine
from tilesolve.nests.group_trees import Grouping, Level, group_tree
from tilesolve.nests.groups import Group, holds_rings
from tilesolve.nests.programs import write_program
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import over

MACHINE = Machine.load("i7-6700k")


def placed(computation, tree):
    """Where each stage of the tree's group is, by its number."""
    groups = [Group.of(computation, node) for node in tree.body if holds_rings(node)]
    return {at: one for group in groups for at, one in group.placed.items()}


def drawn(data, threads=1, **kinds):
    """A computation, its group, and the program of that."""
    computation = bind_stages(*data.draw(draw_stages(**kinds)))
    grouping = data.draw(draw_group(computation, threads))
    request = NestRequest(computation, MACHINE, threads)
    tree = group_tree(request, grouping)
    return computation, tree, write_program(computation, tree)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_groups_compute_what_stages_do_and_as_often_as_regions_say(data):
    """Interpreted: no element is read before it is there, and none is computed needlessly."""
    computation, tree, program = drawn(data, largest=9, most=4)
    arrays = fill(computation)
    found = interpret(program, arrays)
    assert np.array_equal(found.output, evaluate(computation, arrays).astype(found.output.dtype))
    for at, one in placed(computation, tree).items():
        stage = computation.stages[at]
        sums = [computation.sizes[x] for x in stage.summed if stage.reduction is not None]
        assert found.computes[at] == one.points() * int(np.prod(sums, dtype=int))
