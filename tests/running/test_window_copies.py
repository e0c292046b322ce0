"""Window copies and prepared operands: equal to the reference, whatever the strides and zeros."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_cases import (
    check_result,
    check_run,
    draw_operands,
    make_machine,
    make_shallow_machine,
    poisoned,
    varied,
)
from turns import examples

from tilesolve.contractions.errors import DtypeError, PlanError, SizeError
from tilesolve.contractions.padding import Padding
from tilesolve.contractions.problem import DTYPES, Problem
from tilesolve.contractions.reference import reference
from tilesolve.kernels.runtime.copy_windows import copy_windows
from tilesolve.packing.windows import WindowCopy
from tilesolve.plans.plan import plan

pytestmark = pytest.mark.usefixtures("any_tiles")

SLOW = examples(6, 15, settings(suppress_health_check=list(HealthCheck)))
WIDTHS = {128: 16, 256: 16, 512: 32}
LAYOUTS = {
    "NHWC": ("nhwk-n[{h}][{w}]c-kcrs", (1, 2)),
    "NCHW": ("nkhw-nc[{h}][{w}]-kcrs", (2, 3)),
    "CHWN": ("khwn-c[{h}][{w}]n-kcrs", (1, 2)),
}
SMALL = {"n": 2, "k": 20, "h": 9, "w": 7, "c": 5, "r": 3, "s": 2}


def layer(layout, sizes, dtype="float32", step=(1, 1), dilation=(1, 1), zeros=((1, 1), (1, 0))):
    """Return a convolution with padding."""
    text, axes = LAYOUTS[layout]
    terms = [
        f"{a}{letter}+{d}{tap}"
        for a, d, letter, tap in zip(step, dilation, "hw", "rs", strict=True)
    ]
    spec = text.format(h=terms[0], w=terms[1])
    padding = [Padding(1, axis, *ends) for axis, ends in zip(axes, zeros, strict=True)]
    return Problem.of(spec, sizes, dtype, padding, constant=(2,))


def cut(found, **sides):
    """Return a plan whose copies hold boxes with smaller sides, so that there are many."""
    nest = found.nest
    bands = [
        replace(band, box=tuple((i, min(side, sides.get(i, side))) for i, side in band.box))
        for band in nest.bands[:-1]
    ]
    return varied(found, nest=replace(nest, bands=(*bands, nest.bands[-1])))


@SLOW
@given(data=st.data())
def test_boxes_are_copied_with_their_zeros(data):
    """Each box of the copy is that of the padded array, at the offsets that its strides say."""
    counted = st.integers(1, 6)
    sizes = {letter: data.draw(counted, letter) for letter in "hrcw"}
    a, d = data.draw(st.integers(1, 3), "step"), data.draw(st.integers(1, 3), "dilation")
    ends = data.draw(st.tuples(*[st.integers(0, 3)] * 4), "zeros")
    order = data.draw(st.permutations(range(3)), "order")
    reach = a * (sizes["h"] - 1) + d * (sizes["r"] - 1) + 1
    padding = [Padding(1, 0, *ends[:2]), Padding(1, 2, *ends[2:])]
    if ends[0] + ends[1] > reach or ends[2] + ends[3] > sizes["w"]:
        return
    problem = Problem.of(f"hw-[{a}h+{d}r]cw-rc", sizes, "float32", padding)
    array = np.arange(1, 1 + np.prod(problem.shape(1)), dtype="float32")
    shape = [problem.shape(1)[axis] for axis in order]
    array = array.reshape(shape).transpose(np.argsort(order))
    whole = np.pad(array, [(ends[0], ends[1]), (0, 0), (ends[2], ends[3])])
    box = {
        letter: data.draw(st.integers(1, size), f"side {letter}") for letter, size in sizes.items()
    }
    tensor = problem.spec.operands[0]
    copy = WindowCopy.of(tensor, array.shape, problem.padding, array.strides, box, 4)
    begins = {i: data.draw(st.integers(0, sizes[i] - box[i]), f"begin {i}") for i in box}
    back = data.draw(st.sets(st.sampled_from("hrcw")), "backwards")
    record = copy.records(
        {i: np.array([begin]) for i, begin in begins.items()},
        {i: np.array([side]) for i, side in box.items()},
        back,
    )
    memory = np.full(copy.size_bytes // 4 + 32, np.nan, "float32")
    copy_windows(0, array.ctypes.data, memory.ctypes.data, record.ctypes.data)
    assert np.isnan(memory[-(128 - 64) // 4 :]).all()
    strides = {i: -step if i in back else step for i, step in copy.strides.items()}
    for h, r, c, w in np.ndindex(*(box[i] for i in "hrcw")):
        at = int(record[0, 1]) + sum(
            strides[i] * index for i, index in zip("hrcw", (h, r, c, w), strict=True)
        )
        real = {
            i: begins[i] + (box[i] - 1 - index if i in back else index)
            for i, index in zip("hrcw", (h, r, c, w), strict=True)
        }
        assert memory[at // 4] == whole[a * real["h"] + d * real["r"], real["c"], real["w"]]


@pytest.mark.parametrize(
    ("layout", "dtype", "bits"),
    [
        *(("NHWC", dtype, bits) for dtype in DTYPES for bits in WIDTHS),
        ("NCHW", "float32", 512),
        ("CHWN", "float64", 256),
    ],
)
def test_layers_of_every_width(layout, dtype, bits):
    problem = layer(layout, SMALL, dtype)
    machine = make_shallow_machine(bits, WIDTHS[bits])
    found = plan(problem, machine=machine, cache=False)
    image, weights = draw_operands(problem)
    check_run(found, (image, found.prepare(weights)))


@SLOW
@given(data=st.data())
def test_any_layer_in_many_boxes(data):
    """Steps, dilations, zeros, cuts of all letters, layouts, factors and threads."""
    layout = data.draw(st.sampled_from(sorted(LAYOUTS)))
    sizes = {letter: data.draw(st.integers(1, 9), letter) for letter in "nkhwcrs"}
    step = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 3)), "step")
    dilation = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2)), "dilation")
    reach = [
        a * (sizes[i] - 1) + d * (sizes[t] - 1) + 1
        for a, d, i, t in zip(step, dilation, "hw", "rs", strict=True)
    ]
    zeros = tuple(
        (data.draw(st.integers(0, n // 2)), data.draw(st.integers(0, n - n // 2))) for n in reach
    )
    problem = layer(layout, sizes, "float32", step, dilation, zeros)
    threads = data.draw(st.integers(1, 2), "threads")
    found = plan(problem, machine=make_shallow_machine(256, 16), threads=threads, cache=False)
    sides = {letter: data.draw(st.integers(1, 9), f"side {letter}") for letter in "nhwcrs"}
    found = cut(found, **sides)
    operands = draw_operands(problem, data.draw(st.integers(0, 9)))
    image, weights = operands
    if data.draw(st.booleans(), "backwards"):
        image = image[:, ::-1, ::-1]
        operands = [image, weights]
    expected = reference(problem, *operands)
    given_weights = found.prepare(weights) if data.draw(st.booleans(), "prepared") else weights
    out = poisoned(problem)
    found(image, given_weights, out=out)
    check_result(problem, out, expected, operands)
    found(image, given_weights, out=out, alpha=0.5, beta=2.0)
    check_result(problem, out, 2.5 * expected, operands, 3.0)


def test_an_operand_is_packed_once():
    problem = layer("NHWC", SMALL)
    found = plan(problem, machine=make_machine(256, 16), cache=False)
    image, weights = draw_operands(problem)
    expected = reference(problem, image, weights)
    ready = found.prepare(weights)
    size = ready.nbytes
    assert size >= weights.nbytes
    weights[:] = np.nan
    for _ in range(2):
        check_result(problem, found(image, ready), expected, (image, ready.array))
    again = pickle.loads(pickle.dumps(ready))
    other = pickle.loads(pickle.dumps(found))
    check_result(problem, other(image, again), expected, (image, ready.array))
    assert ready.nbytes == size


def test_threads_share_what_was_prepared():
    problem = layer("NHWC", {**SMALL, "h": 8})
    found = plan(problem, machine=make_machine(256, 16), threads=2, cache=False)
    one = plan(problem, machine=make_machine(256, 16), cache=False)
    _, weights = draw_operands(problem)
    if found.split == "h":
        assert found.prepare(weights).nbytes == one.prepare(weights).nbytes


def test_constant_rows_and_both():
    problem = Problem.of("ik-ij-jk", "i=37 j=70 k=41", "float64", constant=(1, 2))
    found = plan(problem, machine=make_machine(256, 16), cache=False)
    first, second = draw_operands(problem)
    ready = found.prepare(first, "A"), found.prepare(second, "B")
    for a in (first, ready[0]):
        for b in (second, ready[1]):
            check_run(found, (a, b))
    check_run(found, ready, poisoned(Problem.of("ki-ij-jk", problem.sizes)).T)


def test_wrong_ones_are_told_apart():
    found = plan("ik-ij-jk", 8, make_machine(256, 16), cache=False)
    other = plan("ik-ij-jk", 9, make_machine(256, 16), cache=False)
    ready = found.prepare(np.zeros((8, 8)))
    with pytest.raises(PlanError, match="operand B was prepared, and is given as operand A"):
        found(ready, np.zeros((8, 8)))
    with pytest.raises(PlanError, match="prepared for another plan"):
        other(np.zeros((9, 9)), ready)
    with pytest.raises(PlanError, match="no operand 'C'"):
        found.prepare(np.zeros((8, 8)), "C")
    with pytest.raises(SizeError, match="has extent 7"):
        found.prepare(np.zeros((8, 7)))
    with pytest.raises(DtypeError, match="float32"):
        found.prepare(np.zeros((8, 8), "float32"))


def test_threads_that_divide_a_batch_have_prepared_copies_of_their_own():
    problem = Problem.of("cx-cx-c", "c=4 x=1", "float32", constant=(2,))
    found = plan(problem, machine=make_shallow_machine(256, 16), threads=2, cache=False)
    first, second = draw_operands(problem)
    check_run(found, (first, found.prepare(second)))
