"""Pictures of pipelines: what they show of the stages, and files."""

import numpy as np
import pytest

import tilesolve
from tests.support.pipelines import blur, chain, harris, unsharp
from tilesolve.bench.pipelines import CASES
from tilesolve.contractions.errors import PictureError
from tilesolve.machine.model import Machine
from tilesolve.nests.request import NestRequest
from tilesolve.nests.solutions import FusedSolution
from tilesolve.pipelines.pictures import frame_groups
from tilesolve.pipelines.solve import solve_pipeline
from tilesolve.show.stage_graphs import SHELF, Box, Frame, draw_stages

MACHINE = Machine.load("i7-6700k")
MADE = {
    **{one.__name__: one(283, 411) for one in (blur, harris, unsharp)},
    "chain": chain(4, 283, 411),
    **{x: CASES[x].shrink(16).computation for x in ("unsharp", "shallow_water", "softmax")},
}


@pytest.mark.parametrize("name", MADE)
def test_frames_show_each_array_once(name):
    """With what it is computed from, the loops that it is within, and the rows that are kept."""
    whole = MADE[name]
    solved = solve_pipeline(NestRequest(whole, MACHINE, 2))
    given, *frames = frame_groups(solved)
    assert [box.name for box in given.boxes] == list(whole.inputs)
    boxes = {box.name: box for frame in frames for box in frame.boxes}
    assert sum(len(frame.boxes) for frame in frames) == len(boxes)
    assert boxes.keys() == {stage.name for stage in whole.stages}
    for stage in whole.stages:
        reads = {read.array for read in stage.reads} - {stage.name}
        assert reads <= set(boxes[stage.name].reads)
    kept = {x for one in solved.solutions for x in (y.name for y in one.computation.stages)}
    assert {x for x, box in boxes.items() if box.kept == "nowhere"} == boxes.keys() - kept
    for solution in solved.solutions:
        for one in solution.placed.values() if isinstance(solution, FusedSolution) else ():
            text = "\n".join(boxes[one.stage].lines)
            assert f"in {one.tiles[-1].name}" in text
            if one.kept is not None:
                assert " × ".join(map(str, one.room()[1])) in text
            assert (boxes[one.stage].kept == "ring") == (one.ring is not None)


def test_boxes_stand_below_those_that_they_read():
    """Also in a frame that is longer than a shelf."""
    boxes = [Box(f"b{at}", "ring", (), (f"b{at // 2}",)) for at in range(1, 20)]
    rows = Frame("", tuple(boxes)).rows()
    depth = {box.name: at for at, row in enumerate(rows) for box in row}
    assert all(depth[box.name] > depth.get(box.reads[0], -1) for box in boxes if box.name != "b1")
    assert sum(map(len, rows)) == len(boxes)


def test_a_plan_draws_itself(tmp_path):
    """One file, of the format that its name says; a plan of many frames, too."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "blur.svg"
    plan = tilesolve.pipeline(CASES["blur"].function, machine=MACHINE).plan(
        np.zeros((402, 1026), "float32")
    )
    plan.plot(path)
    assert path.read_text("utf-8").startswith("<?xml")
    frames = [Frame(f"frame {at}", (Box(f"b{at}", "array"),)) for at in range(2 * SHELF)]
    draw_stages("many", frames, tmp_path / "many.png")
    assert (tmp_path / "many.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(PictureError, match=r"\.png"):
        plan.plot(tmp_path / "blur.txt")
