"""Vectors along a letter that all tensors end with: equal to the reference in any layout."""

from __future__ import annotations

import numpy as np
import pytest
from guessed_tiles import guess_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_cases import check_result, draw_operands, make_shallow_machine
from turns import examples

from tilesolve.contractions.padding import Padding
from tilesolve.contractions.problem import DTYPES, Problem
from tilesolve.contractions.reference import reference
from tilesolve.contractions.roles import shared_lane
from tilesolve.machine.model import Machine
from tilesolve.planning.vector_letter import choose_vector_letter
from tilesolve.plans.plan import plan

SPECS = ("mnb-mkb-nkb", "ib-ib-b", "b-b-b", "ijb-ijb-jb", "gmb-gmkb-gkb", "ijb-ib-jb", "ib-ijb-ijb")
MACHINES = {bits: make_shallow_machine(bits, 32 if bits == 512 else 16) for bits in (128, 256, 512)}


def draw_layout(data, array):
    """Return an equal array of another layout."""
    order = data.draw(st.permutations(range(array.ndim)))
    found = np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    steps = [data.draw(st.sampled_from((1, 1, -1, 2))) for _ in range(array.ndim)]
    spread = np.full([n * abs(step) for n, step in zip(array.shape, steps, strict=True)], np.nan)
    view = spread.astype(array.dtype)[tuple(slice(None, None, step) for step in steps)]
    view[...] = found
    return view if data.draw(st.booleans()) else found


@examples(10, 60, settings(suppress_health_check=list(HealthCheck)))
@given(data=st.data())
def test_products_of_batches_in_any_layout(data):
    spec = data.draw(st.sampled_from(SPECS))
    dtype, bits = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(sorted(MACHINES)))
    lanes = st.sampled_from((0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40, 100))
    sizes = {i: data.draw(lanes if i == "b" else st.integers(1, 6), i) for i in set(spec) - {"-"}}
    problem = Problem.of(spec, sizes, dtype)
    threads = data.draw(st.sampled_from((1, 2)))
    tiles = data.draw(st.integers(0, 999), "tiles")
    found = guess_plan(problem, tiles, machine=MACHINES[bits], threads=threads)
    operands = draw_operands(problem)
    out = np.full(problem.shape(0), np.nan, dtype)
    out = draw_layout(data, out)
    given_ = [draw_layout(data, one) for one in operands]
    expected = reference(problem, *operands)
    found(*given_, out=out)
    check_result(problem, out, expected, operands)
    found(*given_, out=out, alpha=2, beta=-1)
    check_result(problem, out, expected, operands)


@examples(6, 25, settings(suppress_health_check=list(HealthCheck)))
@given(data=st.data())
def test_depthwise_layers(data):
    """Any window, step, dilation and zeros; weights prepared or not."""
    sizes = {i: data.draw(st.integers(1, 9), i) for i in "hw"}
    sizes |= {i: data.draw(st.integers(1, 4), i) for i in "rs"}
    sizes["c"] = data.draw(st.sampled_from((1, 7, 16, 33, 64)), "c")
    step, gap = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    ends = [
        (data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1)))
        for n in (sizes["r"], sizes["s"])
    ]
    first = data.draw(st.booleans(), "channels first")
    spec = f"hwc-[{step}h+{gap}r][{step}w+{gap}s]c-rsc"
    if first:
        spec = f"chw-c[{step}h+{gap}r][{step}w+{gap}s]-crs"
    padding = [Padding(1, axis + first, *pair) for axis, pair in enumerate(ends)]
    reaches = [step * (sizes[a] - 1) + gap * (sizes[b] - 1) + 1 for a, b in ("hr", "ws")]
    if any(sum(pair) >= reach for pair, reach in zip(ends, reaches, strict=True)):
        return
    problem = Problem.of(spec, sizes, "float32", padding)
    bits = data.draw(st.sampled_from(sorted(MACHINES)))
    found = plan(problem, machine=MACHINES[bits], cache=False)
    operands = draw_operands(problem)
    image, weights = draw_layout(data, operands[0]), draw_layout(data, operands[1])
    ready = found.prepare(weights) if data.draw(st.booleans()) else weights
    out = draw_layout(data, np.full(problem.shape(0), np.nan, "float32"))
    found(image, ready, out=out)
    check_result(problem, out, reference(problem, *operands), operands)


def test_the_shared_letter_has_the_vectors_where_that_takes_least():
    """Long sums of few batches are packed instead; where nothing else is free, it always has."""
    machine = Machine.load("e5-2680v4")
    layer = Problem.of("hwc-[h+r][w+s]c-rsc", "h=56 w=56 c=144 r=3 s=3", "float32")
    assert choose_vector_letter(layer, machine) is None
    few = Problem.of("mnb-mkb-nkb", "m=300 n=300 k=300 b=2")
    assert choose_vector_letter(few, machine) in ("m", "n")
    assert choose_vector_letter(Problem.of("b-b-b", 3), machine) is None
    turned = Problem.of("chw-c[h+r][w+s]-crs", "h=56 w=56 c=144 r=3 s=3", "float32")
    assert choose_vector_letter(turned, machine) == "c"
    assert shared_lane(plan(layer, machine=machine, cache=False).share) == "c"


@pytest.mark.parametrize("threads", [1, 2])
def test_plans_say_what_vectors_multiply(threads):
    found = plan(
        "hwc-[h+r][w+s]c-rsc", "h=9 w=9 c=40 r=3 s=3", "i7-6700k", threads=threads, cache=False
    )
    assert "along c vectors multiply vectors" in str(found)
