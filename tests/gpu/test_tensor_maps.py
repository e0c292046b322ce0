"""Tensor maps: boxes of operands hold what tiles of products do."""

import random
from itertools import product as combinations

import numpy as np
import pytest
from gpu_cases import SPECS, draw_group_tiling

from tilesolve.contractions.device_problem import DeviceProblem
from tilesolve.gpu import tensor_maps
from tilesolve.gpu.launches import list_launches
from tilesolve.gpu.product import Product
from tilesolve.gpu.strategy import make_tiling, solve_for_device
from tilesolve.gpu.tensor_maps import find_box
from tilesolve.gpu.tilings import estimate_registers, score_tilings
from tilesolve.machine.device import Device


def split(index, extents):
    """The values of letters at an index, the innermost first."""
    found = []
    for extent in reversed(extents):
        found.append(index % extent)
        index //= extent
    return [*found, index]


def read_box(own, begin):
    """Places of a box's elements from the tensor's begin, -1 outside, the innermost last."""
    place, inside = np.zeros((1,) * len(own.box), np.int64), True
    for axis, (first, side) in enumerate(zip(begin, own.box, strict=True)):
        sides = [-1 if at == len(own.box) - 1 - axis else 1 for at in range(len(own.box))]
        along = (first + np.arange(side)).reshape(sides)
        place = place + along * (own.strides[axis] // own.element)
        inside = inside & (along < own.extents[axis])
    return np.where(inside, place, -1)


@pytest.mark.parametrize("spec", [*SPECS, "cabd-caeb-cde"])
def test_boxes_hold_what_tiles_do(spec):
    """Each box has the elements that places of rows, columns, sums and batches say, in order."""
    rng, boxed = random.Random(spec), 0
    letters = sorted(set(spec) - {"-"})
    for _ in range(40):
        sizes = {x: rng.choice([1, 2, 3, 8, 16, 24, 40, 64, 128, 136]) for x in letters}
        if np.prod(list(sizes.values())) > 2e6:
            continue
        found = Product.of(DeviceProblem.of(spec, sizes, "float16"))
        form = draw_group_tiling(rng, found, "float16", parts=1).form
        for at, name in enumerate(("first", "second")):
            if (made := find_box(found, form, at)) is None:
                assert form.operands[at].box is None
                continue
            box, own = made
            assert form.operands[at].box == box
            boxed += 1
            check_boxes(found, form, at, name, own)
    assert boxed or "iabj" in spec


def check_boxes(found, form, at, name, own):
    along_sum, box = form.operands[at].along_sum, form.operands[at].box
    free, summed = (found.places[f"{name}_{side}"] for side in ("free", "sum"))
    batches = found.batch_places[at::3]
    side, wide = (form.rows, form.columns)[at], own.box[0]
    pieces = [0] if along_sum else range(0, side, wide)
    lines = side if along_sum else form.depth
    for batch, row, step in combinations(
        {0, len(batches) - 1},
        {0, (len(free) - 1) // side * side},
        {0, (len(summed) - 1) // form.depth * form.depth},
    ):
        for piece in pieces:
            sides = [split(step, box.sums), split(row + piece, box.free)]
            sides = sides if along_sum else sides[::-1]
            last = [] if box.batches is None else split(batch, box.batches)
            place = read_box(own, [*sides[0], *sides[1], *last]).reshape(lines, wide)
            rows = np.arange(row + piece, row + piece + (side if along_sum else wide))
            steps = np.arange(step, step + form.depth)
            near = np.where(rows < len(free), free[np.minimum(rows, len(free) - 1)], -1)
            far = np.where(steps < len(summed), summed[np.minimum(steps, len(summed) - 1)], -1)
            wanted = np.where(
                (near[:, None] >= 0) & (far >= 0), near[:, None] + far + batches[batch], -1
            )
            assert np.array_equal(place, wanted if along_sum else wanted.T)


@pytest.mark.parametrize(
    ("spec", "sizes", "boxed"),
    [
        ("ij-ik-kj", {"i": 99, "j": 96, "k": 96}, (0, 1)),
        ("ij-ik-kj", {"i": 99, "j": 96, "k": 97}, (1,)),  # rows of A are 194 bytes apart
        ("ij-ik-kj", {"i": 99, "j": 97, "k": 97}, ()),
        ("ij-kil-klj", {"i": 64, "j": 64, "k": 8, "l": 64}, (0, 1)),
        ("ij-kil-klj", {"i": 64, "j": 64, "k": 8, "l": 48}, (1,)),  # 64 steps are no box of A
    ],
)
def test_letters_make_boxes_or_not(spec, sizes, boxed):
    found = Product.of(DeviceProblem.of(spec, sizes, "float16"))
    tiling = make_tiling(found, "float16", (64, 64, 64), (1, 1), 3, grouped=True)
    assert tiling.form.boxed == boxed
    launches = list_launches(found, tiling)
    assert [name for name, _ in launches.maps] == [("first_map", "second_map")[x] for x in boxed]


def test_boxes_take_no_registers_and_few_instructions(monkeypatch):
    """Chunks of two bytes are what limits a product of odd sides; boxes leave that to others."""
    monkeypatch.setattr("tilesolve.gpu.strategy.assemble", lambda *_: None)
    device = Device.load("h100")
    even, odd = (
        Product.of(DeviceProblem.of("ij-ik-jk", {"i": 4096, "j": 4096, "k": k}, "float16"))
        for k in (4096, 4095)
    )
    fetched, copied = (
        make_tiling(one, "float16", (64, 64, 32), (1, 1), 4, grouped=True) for one in (even, odd)
    )
    assert estimate_registers(fetched.form) < estimate_registers(copied.form)
    scores = [float(score_tilings(even, device, [one])[0]) for one in (fetched, copied)]
    assert scores[0] < scores[1]
    found = solve_for_device(even, device)
    assert found.form.boxed == (0, 1)
    assert found.form.ahead == found.form.stages - 2


def test_rows_that_are_too_far_apart_are_no_boxes(monkeypatch):
    """A dimension's stride is a multiple of 16 bytes, and less than the most that maps hold."""
    found = Product.of(DeviceProblem.of("ij-ik-kj", "i=128 j=128 k=520", "float16"))
    form = make_tiling(found, "float16", (64, 64, 64), (1, 1), 3, grouped=True).form
    assert all(find_box(found, form, at) for at in range(2))
    monkeypatch.setattr(tensor_maps, "MOST_STRIDE", 1040)
    assert [find_box(found, form, at) is None for at in range(2)] == [True, False]
