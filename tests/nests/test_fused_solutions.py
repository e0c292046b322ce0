"""Groups of stages as solutions of plans: run, kept, printed and priced like any other."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import examples

from tests.support.drawn_stages import draw_group, draw_stages, fill
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.evaluate import evaluate
from tilesolve.contractions.statements.parse import parse_stages
from tilesolve.machine.model import Machine
from tilesolve.model.chain import Chain
from tilesolve.model.score import score_price
from tilesolve.nests.files import HOLDS, NEST_FORMAT
from tilesolve.nests.group_price import price_group, without_arrays
from tilesolve.nests.group_trees import Grouping, Level
from tilesolve.nests.plan import NestPlan
from tilesolve.nests.request import NestRequest
from tilesolve.nests.shapes import over
from tilesolve.nests.solutions import FusedSolution
from tilesolve.nests.solved import SolvedNest
from tilesolve.plans.files import seal

MACHINE = Machine.load("i7-6700k")
BLUR = "bx[y,x] = I[y,x] + I[y,x+1] + I[y,x+2]\nby[u,v] = bx[u,v] + bx[u+1,v] + bx[u+2,v]"


def fuse(computation, grouping, threads=1, *, streamed=False):
    """A plan of all stages as one group."""
    request = NestRequest(computation, MACHINE, threads)
    found = FusedSolution.of(request, grouping, "asked for", streamed=streamed)
    return NestPlan(SolvedNest(request, (found,)))


def blur(rows=1, threads=1, height=200, width=1024, **kinds):
    """A blur whose first stage slides, in strips of half the height."""
    sizes = {"y": height + 2, "x": width, "u": height, "v": width}
    computation = bind_stages(parse_stages(BLUR), sizes, "float32")
    shared = (over("u", -(-height // 2), "threads" if threads > 1 else "serial"), over("u", rows))
    return fuse(computation, Grouping(shared, {"bx": Level(2, 1)}, rows), threads, **kinds)


@examples(3, 10)
@given(st.data())
def test_plans_of_drawn_groups_compute_read_back_and_print(data):
    """Arrays in any order of memory, again and again, by one or two threads."""
    threads = data.draw(st.integers(1, 2))
    computation = bind_stages(*data.draw(draw_stages(most=3, largest=20)))
    plan = fuse(computation, data.draw(draw_group(computation, threads)), threads)
    assert NestPlan.from_json(plan.to_json()) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    given_arrays = [np.asfortranarray(one) for one in fill(computation, 3).values()]
    wanted = evaluate(computation, dict(zip(plan.inputs, given_arrays, strict=True)))
    for number in range(3):
        arrays = given_arrays if number == 0 else [np.ascontiguousarray(x) for x in given_arrays]
        out = np.full(computation.output.shape, 55, computation.output.dtype)
        assert plan(*arrays, out=out) is out
        assert np.array_equal(out, wanted.astype(out.dtype))
    text = str(plan)
    assert all(stage.name in text for stage in computation.stages)
    assert 0 < plan.seconds < 1


def test_the_report_says_where_stages_are_computed_and_kept():
    """Loops, rings, bytes, and the share that is computed again."""
    text = str(blur(rows=2, threads=2))
    assert "by of 2 stages: fused, by a nest: asked for" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "loops u_100 u_2, threads over u, vectors along v" in lines
    assert "stage computed in kept in positions bytes again" in lines
    assert "bx u_2 u_100 ring of 4 x 1024 16.4 kB 1.0%" in lines
    assert "by u_2 - - - 0.0%" in lines


def test_rings_move_less_than_arrays_and_cost_less():
    """Of images larger than caches: what lies between stages goes to memory unless it is kept."""
    slides = blur(height=4000, width=4000).solutions[0]
    apart = fuse(slides.computation, Grouping((), {})).solutions[0]
    memory = [one.cost.levels[-1].volume for one in (slides, apart)]
    image = 4000 * 4000 * 4
    assert 2 * image < memory[0] < 3.3 * image
    assert memory[1] > memory[0] + 1.9 * image
    assert slides.seconds < apart.seconds


def test_tiles_that_overlap_are_charged_for_what_they_compute_again():
    """The smaller the tile, the more arithmetic; a ring has less than any of them."""
    computation = blur(height=1024, width=1024).computation
    found = []
    for tile in (8, 32, 128):
        shared = (over("u", tile), over("v", 256))
        found.append(fuse(computation, Grouping(shared, {"bx": Level(1, 1)})).solutions[0])
    computes = [one.cost.compute for one in found]
    assert computes == sorted(computes, reverse=True)
    again = [one.placed["bx"].points() / (1026 * 1024) for one in found]
    assert again == pytest.approx([128 * 10 / 1026, 32 * 34 / 1026, 8 * 130 / 1026])


def test_two_threads_have_half_of_the_arithmetic():
    """Strips are shared; three of them leave one thread two."""
    one, two = blur(threads=1), blur(threads=2)
    computes = [x.solutions[0].cost.compute for x in (one, two)]
    assert computes[1] == pytest.approx(computes[0] / 2, rel=1e-3)
    grouping = Grouping((over("u", 70, "threads"), over("u", 1)), {"bx": Level(2, 1)})
    three = fuse(one.computation, grouping, 2).solutions[0].cost.compute
    assert three == pytest.approx(computes[0] * 2 / 3, rel=0.05)


def test_damaged_groups_are_refused():
    """Nodes that are none, and loops that leave out a stage."""
    plan = blur()
    for old, new in (
        ('"do": 0', '"do": 1'),
        ('"ring"', '"pond"'),
        ('"loop": ["u", 1,', '"loop": ["u", 0,'),
        ('"buffer": ["bx"', '"buffer": ["by"'),
    ):
        text = plan.to_json()
        assert old in text
        with pytest.raises(PlanError):
            NestPlan.from_json(_resealed(text.replace(old, new, 1)))


def _resealed(text):
    """The text with a checksum of its own."""
    data = json.loads(text)
    rest = {x: one for x, one in data.items() if x not in ("format", "holds", "checksum")}
    return seal(HOLDS, NEST_FORMAT, rest)


def test_a_root_may_go_past_the_caches():
    """Values are the same."""
    plan = blur(streamed=True)
    image = fill(plan.computation)["I"]
    assert np.array_equal(plan(image), blur()(image))
    assert plan.solutions[0].non_temporal == {"by"}
    assert replace(plan.solutions[0], why="other") != plan.solutions[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_what_goes_past_the_caches_goes_at_its_own_rate(threads):
    """That of non-temporal stores, which threads share as they do the others."""
    found = blur(streamed=True, threads=threads).solutions[0]
    *near, memory = MACHINE.levels
    levels = (replace(memory, stream=memory.bandwidth / share) for share in (1, 2))
    fast, slow = (
        price_group(
            replace(found.request, machine=MACHINE.replace(levels=(*near, one))), found.loops
        )
        for one in levels
    )
    assert slow.levels == fast.levels
    more = slow.past_caches - fast.past_caches
    assert more == pytest.approx(found.computation.output.bytes / memory.bandwidth, rel=0.05)


def test_loads_of_coarser_grids_are_those_of_their_points():
    """A stage with a quarter of the root's points loads a quarter of what one for each would."""
    coarse = "half[h,w] = I[h,w] + 1\no[u,v] = half[u//2,v//2] * 2"
    fine = "full[h,w] = I[h,w] + 1\no[u,v] = full[u,v] * 2"
    found = []
    for text, extent in ((coarse, 512), (fine, 1024)):
        sizes = {"h": extent, "w": extent, "u": 1024, "v": 1024}
        computation = bind_stages(parse_stages(text), sizes, "float32")
        name = computation.stages[0].name
        grouping = Grouping((over("u", 64), over("u", 2)), {name: Level(2, 1)})
        solution = fuse(computation, grouping).solutions[0]
        level = solution.cost.levels[0]
        names = [one.array for one in Chain(without_arrays(solution.loops)).accesses]
        found.append(level.moved[names.index("I")])
    assert found[0] == pytest.approx(found[1] / 4, rel=0.1)


def test_rows_that_share_lines_cost_more_past_the_caches():
    """As of single statements: each row begins amid a line that others write, too."""
    for width, dearer in ((1024, False), (1021, True)):
        through, past = (blur(width=width, streamed=one).solutions[0].cost for one in (False, True))
        assert (past.compute > through.compute) == dearer


def test_rings_move_what_is_written_once_and_read_by_rows_together():
    """Of a ring that the first cache does not hold: all lines in and out, and halos of rows."""
    solution = blur(rows=4, height=2000, width=4096).solutions[0]
    level = solution.cost.level("L2")
    names = [one.array for one in Chain(without_arrays(solution.loops)).accesses]
    once = 4 * 2002 * 4096
    at = names.index("bx")
    assert level.moved[at] == pytest.approx(once * (1 + 6 / 4), rel=0.02)
    assert level.volumes[at] == pytest.approx(once * (2 + 6 / 4), rel=0.02)


def test_long_terms_are_not_written_out_for_several_rows():
    """Their code would be long, and no faster."""
    taps = " + ".join(f"bx[u,v+{k}]" for k in range(140))
    text = f"bx[y,x] = I[y,x] + I[y,x+1]\nby[u,v] = {taps}"
    sizes = {"y": 80, "x": 400, "u": 80, "v": 261}
    computation = bind_stages(parse_stages(text), sizes, "float32")
    shared = (over("u", 40), over("u", 4))
    plan = fuse(computation, Grouping(shared, {"bx": Level(2, 1)}, 4))
    loops = [one for one in plan.solutions[0].loops.loops if one.kind == "unrolled"]
    assert len(loops) == 1
    images = fill(computation, 3)
    wanted = evaluate(computation, images)
    np.testing.assert_allclose(plan(*images.values()), wanted, rtol=1e-5)


@pytest.mark.parametrize("streamed", [False, True])
def test_stages_of_a_group_take_turns(streamed):
    """Each has its part of all times, and what one computes hides nothing of another one's."""
    plan = blur(height=2000, width=2048, streamed=streamed)
    cost = plan.solutions[0].cost
    turns = cost.take_turns()
    assert len(turns) == len(plan.computation.stages)
    assert sum(one.compute for one in turns) == pytest.approx(cost.compute)
    for at, level in enumerate(cost.levels):
        assert sum(one.levels[at].seconds for one in turns) == pytest.approx(level.seconds)
    assert [one.past_caches for one in turns] == [0.0, cost.past_caches]
    overlap = MACHINE.costs.level_overlap
    alone = sum(score_price(one, overlap) for one in turns)
    assert score_price(cost, overlap) <= alone <= score_price(cost, 1.0) * (1 + 1e-9)


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_calls_by_several_threads_have_their_cost(start):
    """Later ones begin late, where their cores slept most."""
    costs = MACHINE.costs
    for threads in (1, 2):
        found = blur(threads=threads).solution.starting(start)
        called = found.seconds - found.computing_seconds
        if threads == 1:
            assert found.seconds == found.work_seconds
        else:
            late = costs.threads_seconds if start == "warm" else costs.cold_threads_seconds
            assert called == pytest.approx(late)
