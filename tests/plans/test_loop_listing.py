"""What is priced is what runs, and what the report lists."""

import re
from itertools import product

import numpy as np
import pytest
from guessed_tiles import guessed_tiles
from hypothesis import given
from hypothesis import strategies as st
from turns import examples, quick_each

from tilesolve import Problem, plan
from tilesolve.bench.cases import find_cases
from tilesolve.contractions.suites import suite
from tilesolve.model.passes import with_passes
from tilesolve.model.price import compute_price
from tilesolve.planning.layout_policy import policy_of
from tilesolve.plans.loop_listing import list_loops
from tilesolve.running.execution import trace_calls

LOOP = re.compile(r"(\w) by (\d+)")


def policy(solution):
    """How the first thread's part runs for contiguous arrays."""
    part, _ = solution.parts[0]
    return policy_of(solution, part, [solution.problem.strides(t) for t in range(3)])


def check(found):
    """The nest of a solution is what was priced, and what runs and is listed, for all threads."""
    solution = found.solution
    share, machine, threads = solution.share, solution.machine, solution.threads
    cost = compute_price(
        share, solution.nest, machine, microkernel=solution.microkernel, threads=threads
    )
    passes = solution.epilogue, machine, threads, solution.partial_outputs
    assert with_passes(cost, share, *passes) == solution.cost
    strides = [solution.problem.strides(tensor) for tensor in range(3)]
    for part, _ in solution.parts:
        assert policy_of(solution, part, strides).nest == solution.nest


@pytest.mark.parametrize(
    ("name", "machine"), quick_each(product(suite("tccg"), ("i7-6700k", "e5-2680v4")), of=7)
)
def test_contractions_run_as_they_are_priced(name, machine):
    check(plan(suite("tccg")[name], machine=machine))


@pytest.mark.parametrize(
    ("name", "threads"), quick_each(product(find_cases("random:12:31"), (1, 2)), of=5)
)
def test_drawn_contractions_run_as_they_are_priced(name, threads):
    check(plan(find_cases("random:12:31")[name], machine="i7-6700k", threads=threads))


def boxes(lines, sizes):
    """Interpret the loops of a report; return the ranges of each call in order."""
    loops = [(i, int(step)) for line in lines for i, step in LOOP.findall(line)]
    found = [{i: (0, n) for i, n in sizes.items()}]
    for letter, step in loops:
        found = [
            {**box, letter: (low, min(low + step, high))}
            for box in found
            for begin, high in [box[letter]]
            for low in range(begin, high, step)
        ]
    return found


@examples(10, 25)
@given(
    spec=st.sampled_from(["ij-ik-kj", "abcd-aebf-dfce", "xab-xac-xbc", "hk-[h+r]c-rck"]),
    side=st.integers(3, 9),
    machine=st.sampled_from(["i7-6700k", "e5-2680v4"]),
)
@guessed_tiles(0)
def test_listed_loops_cover_each_iteration_once(spec, side, machine):
    """And calls come in the order of the tiles; in the nearest one they are of equal parts."""
    solution = plan(Problem.of(spec, side), machine=machine).solution
    sizes = solution.problem.sizes
    *outer, calls = list_loops(solution, policy(solution))
    assert calls.endswith((": calls", "one call"))
    seen, where = np.zeros([*sizes.values()], int), {}
    for box in boxes([*outer, calls], sizes):
        seen[tuple(slice(*box[i]) for i in sizes)] += 1
    assert np.all(seen == 1)
    for number, box in enumerate(boxes(outer, sizes)):
        where |= dict.fromkeys(product(*(range(*box[i]) for i in sizes)), number)
    order = [
        where[tuple(int(covered[i][0]) for i in sizes)] for covered, _ in trace_calls(solution)
    ]
    assert order == sorted(order)


def test_the_report_lists_loops_and_copies():
    """Each copy stands where it is made."""
    found = plan("mn-mk-kn", 3000, machine="i7-6700k")
    lines = str(found).splitlines()
    at = lines.index("loops as they run, outermost first:")
    listing = lines[at + 1 : lines.index("", at)]
    assert listing[-1].endswith(": calls")
    for copy in (line for line in lines if " is packed into " in line):
        name = copy.split()[0]
        assert any(
            line.strip().startswith(f"{name} (") and "packed into" in line for line in listing
        )
