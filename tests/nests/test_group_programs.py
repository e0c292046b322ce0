"""Programs of groups: rings that slide, tiles that overlap, and stages of their own, alike."""

import time
from dataclasses import replace

import numpy as np
import pytest
from compile_programs import compile_program
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from interpreter import interpret
from turns import examples

from tests.support.drawn_stages import draw_group, draw_stages, fill
from tilesolve.contractions.errors import PlanError, SpecError
from tilesolve.contractions.statements.affine import Affine
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read, apply
from tilesolve.kernels.programs import compiled_program
from tilesolve.kernels.programs.printer import print_program
from tilesolve.machine.model import Machine
from tilesolve.nests.group_trees import Grouping, Level, group_tree
from tilesolve.nests.groups import Group, holds_rings
from tilesolve.nests.programs import write_program
from tilesolve.nests.regions import find_regions
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import over
from tilesolve.system.cancellation import deadline

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


@examples(40, 300)
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


@examples(12, 60)
@given(st.data())
def test_within_a_strip_nothing_is_computed_twice(data):
    """Stencils and grids of half and twice as many rows: each element that is needed, once."""
    computation = bind_stages(*data.draw(draw_stages(largest=12)))
    regions = find_regions(computation)
    row = computation.stages[-1].output_letters()[0]
    assume(all(regions.letter_of(name, row) for name in regions.stages))
    rows = data.draw(st.integers(1, 4))
    shared = (over(row, computation.sizes[row]), over(row, rows))
    assume(rows < computation.sizes[row])
    levels = {stage.name: Level(2, 1) for stage in computation.stages[:-1]}
    request = NestRequest(computation, MACHINE)
    program = write_program(computation, group_tree(request, Grouping(shared, levels, rows)))
    found = interpret(program, fill(computation))
    for stage, computes in zip(computation.stages, found.computes, strict=True):
        sums = [computation.sizes[x] for x in stage.summed if stage.reduction is not None]
        assert computes == regions.points(stage.name, {}) * int(np.prod(sums, dtype=int))


@pytest.fixture
def guarded(monkeypatch):
    """Arenas amid bytes that nothing writes: a function that says whether all are as they were."""
    guards = []

    def allocate(size):
        whole = np.full(size + 2 * GUARD, 0x5A, np.uint8)
        begin = -whole.ctypes.data % 64
        arena = whole[begin + GUARD - 64 : begin + GUARD - 64 + size]
        guards.append((whole, begin + GUARD - 64, size))
        return arena

    monkeypatch.setattr(compiled_program.buffers, "allocate", allocate)

    def intact():
        return all(
            (whole[:begin] == 0x5A).all() and (whole[begin + size :] == 0x5A).all()
            for whole, begin, size in guards
        )

    return intact


GUARD = 1024


@examples(5, 25, settings(suppress_health_check=list(HealthCheck)))
@given(st.data())
def test_groups_give_the_bits_of_stages_one_by_one(guarded, data):
    """Compiled, by any vectors and threads: what is kept where changes no bit."""
    threads = data.draw(st.integers(1, 2))
    computation, _, program = drawn(data, threads, largest=40)
    arrays = fill(computation)
    request = NestRequest(computation, MACHINE, threads)
    apart = write_program(computation, group_tree(request, Grouping((), {})))
    bits = data.draw(st.sampled_from([128, 256, 512]))
    found = []
    for one in (program, apart):
        out = np.full(computation.output.shape, 113, computation.output.dtype)
        compile_program(one, bits=bits).run(
            {**arrays, computation.output.name: out}, threads=threads
        )
        found.append(out)
    assert found[0].tobytes() == found[1].tobytes()
    assert guarded()


def test_blur_slides_in_three_rows():
    """The example of the design: two rows at a time need one row more."""
    text = "bx[y,x] = I[y,x] + I[y,x+1] + I[y,x+2]\nby[u,v] = bx[u,v] + bx[u+1,v] + bx[u+2,v]"
    computation = bind_stages(parse_stages(text), {"y": 102, "x": 64, "u": 100, "v": 64}, "float32")
    request = NestRequest(computation, MACHINE, 2)
    for rows, kept in ((1, 3), (2, 4)):
        shared = (over("u", 30, "threads"), over("u", rows))
        tree = group_tree(request, Grouping(shared, {"bx": Level(2, 1)}, rows))
        (one,) = [one for one in placed(computation, tree).values() if one.stage == "bx"]
        assert one.room()[1] == (kept, 64)
        assert one.points() == (100 + 2 * 4) * 64
        text = print_program(write_program(computation, tree))
        assert f"buffer bx[ring of {kept}, 0 + 64]" in text
        assert f"for u_{rows} in u_30-2 .. min(u_30+30, 100)" in text


def test_what_is_not_kept_around_its_readers_is_refused():
    """A ring along two loops, and one whose reader stands outside of it."""
    computation = bind_stages(parse_stages("b[y,x] = I[y,x]\no[u,v] = b[u,v] + b[u,v]"), 9)
    request = NestRequest(computation, MACHINE)
    shared = (over("u", 4), over("v", 4), over("u", 1))
    with pytest.raises(SpecError, match="along v_4 and u_1"):
        group_tree(request, Grouping(shared, {"b": Level(3, 1)}))
    with pytest.raises(PlanError, match="within the loops that it is kept in"):
        Level(1, 2)


def test_a_ring_ends_when_it_is_to():
    """An interrupt does not wait for the end of a strip, within however many loops it slides."""
    text = "b[y,x] = I[y,x]\no[u,v] = b[u,v] + sum(K[k] * b[u+1,v], k)"
    sizes = {"y": 10**5 + 1, "x": 16, "u": 10**5, "v": 16, "k": 10**5}
    computation = bind_stages(parse_stages(text), sizes, "float32")
    shared = (over("u", 10**5), over("v", 16), over("u", 1))
    tree = group_tree(NestRequest(computation, MACHINE), Grouping(shared, {"b": Level(3, 2)}))
    compiled = compile_program(write_program(computation, tree))
    given = {**fill(computation), "o": np.zeros((10**5, 16), "float32")}
    began = time.process_time()  # on a busy computer, anything may take ten seconds
    with deadline(0.1) as is_over:
        compiled.run(given)
    assert is_over()
    assert time.process_time() - began < 10


def _cut(position, extent):
    """A position at the end of an axis where it lies beyond it."""
    return apply("minimum", apply("maximum", position, 0), extent - 1)


@pytest.mark.grid
@pytest.mark.parametrize("level", [Level(3, 2), Level(2, 2), Level(1, 1), Level(3, 3)])
@pytest.mark.parametrize("rows", [1, 2])
def test_edges_are_continued_amid_a_group(level, rows):
    """A stage that pads another one by its ends, and one that reads it across the pad."""
    a, b, c, d, y, x = map(Affine.letter, "abcdyx")
    stages = (
        Stage("g", (a, b), Read("I", (a, b)) * 2),
        Stage("p", (c, d), Read("g", (_cut(c - 2, 20), _cut(d - 2, 24))) + 1),
        Stage("o", (y, x), Read("p", (y, x)) + Read("p", (y + 4, x + 4))),
    )
    sizes = {"a": 20, "b": 24, "c": 24, "d": 28, "y": 20, "x": 24}
    shapes = {"g": (20, 24), "I": (20, 24), "p": (24, 28)}
    computation = bind_stages(stages, sizes, "float32", shapes)
    shared = (over("y", 7), over("x", 10), over("y", rows))
    grouping = Grouping(shared, {"g": level, "p": level}, rows)
    program = write_program(computation, group_tree(NestRequest(computation, MACHINE), grouping))
    arrays = fill(computation)
    wanted = evaluate(computation, arrays)
    assert np.array_equal(interpret(program, arrays).output, wanted)
    out = np.zeros((20, 24), "float32")
    compile_program(program).run({**arrays, "o": out})
    assert np.array_equal(out, wanted)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("name", ["a", "b"])
def test_rings_have_no_row_too_many(name, rows):
    """With one row less, something is read that is no longer there."""
    text = "a[y,x] = I[y,x] - I[y+1,x]\nb[u,v] = a[u,v] + a[u+3,v]\no[s,t] = b[s,t] * b[s+1,t]"
    sizes = {"y": 34, "x": 5, "u": 31, "v": 5, "s": 30, "t": 5}
    computation = bind_stages(parse_stages(text), sizes, "int32")
    grouping = Grouping((over("s", 15), over("s", rows)), {x: Level(2, 1) for x in "ab"}, rows)
    tree = group_tree(NestRequest(computation, MACHINE), grouping)
    program = write_program(computation, tree)
    arrays = fill(computation)
    interpret(program, arrays)
    with pytest.raises(SpecError, match="before it is written"):
        interpret(replace(program, body=tuple(_shrink(one, name) for one in program.body)), arrays)


def _shrink(node, name):
    """A node whose ring of an array has a row less."""
    if not hasattr(node, "body"):
        return node
    body = tuple(_shrink(one, name) for one in node.body)
    if getattr(node, "name", "") == name and hasattr(node, "ring"):
        return replace(node, body=body, shape=(node.shape[0] - 1, *node.shape[1:]))
    return replace(node, body=body)


@pytest.mark.parametrize("rows", [1, 2])
def test_channels_are_written_out_within_each_vector(rows):
    """What does not depend on the channel is kept for all of them."""
    text = "g[y,x] = I[0,y,x] + 2*I[1,y,x] + I[2,y,x]\no[c,u,v] = (g[u,v] - g[u+2,v+1]) * I[c,u,v]"
    sizes = {"y": 23, "x": 30, "c": 3, "u": 21, "v": 29}
    computation = bind_stages(parse_stages(text), sizes, "int32")
    grouping = Grouping((over("u", 8), over("u", rows)), {"g": Level(2, 1)}, rows)
    tree = group_tree(NestRequest(computation, MACHINE), grouping)
    program = write_program(computation, tree)
    assert "unrolled c in 0 .. 3" in print_program(program)
    arrays, out = fill(computation), np.zeros((3, 21, 29), "int32")
    compile_program(program).run({**arrays, "o": out})
    assert np.array_equal(out, evaluate(computation, arrays))
    assert interpret(program, arrays).computes == (23 * 30 + 2 * 2 * 30, 3 * 21 * 29)


def test_axes_that_are_needed_as_a_whole_count_once():
    """Channels that all points of the root read: their elements are as many as are computed."""
    text = "a[c,y,x] = I[c,y,x] * 2\no[u,v] = a[0,u,v] + a[1,u+1,v] + a[2,u+2,v]"
    sizes = {"c": 3, "y": 22, "x": 30, "u": 20, "v": 30}
    computation = bind_stages(parse_stages(text), sizes, "int32")
    grouping = Grouping((over("u", 8), over("u", 2)), {"a": Level(2, 1)}, 2)
    tree = group_tree(NestRequest(computation, MACHINE), grouping)
    found = interpret(write_program(computation, tree), fill(computation))
    assert found.computes == tuple(one.points() for one in placed(computation, tree).values())
