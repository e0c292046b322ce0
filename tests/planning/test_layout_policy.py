"""What runs for given strides: planning decides it, running obeys, the report says it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tilesolve import Machine, Problem, plan
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.roles import COLUMNS, ROWS
from tilesolve.planning import solve as solving
from tilesolve.planning.demand import Demand
from tilesolve.planning.layout_policy import policy_of
from tilesolve.planning.solve import solve
from tilesolve.running.execution import Layout

MACHINE = Machine.load("i7-6700k")


def contiguous(problem):
    return [problem.strides(tensor) for tensor in range(3)]


@pytest.mark.parametrize("spec", ["mn-mk-kn", "nm-mk-kn", "abcd-aebf-dfce", "abc-bda-dc"])
@pytest.mark.parametrize("threads", [1, 2])
def test_running_obeys_the_policy(spec, threads):
    """A task's schedule and state are those that the policy names."""
    problem = Problem.of(spec, 24)
    solution = solve(problem, MACHINE, threads, Demand())
    arrays = [np.zeros(shape) for shape in problem.shapes]
    layout = Layout.of(solution, *arrays[1:], arrays[0])
    assert len(layout.tasks) == len(solution.parts) == threads
    for task, (part, _) in zip(layout.tasks, solution.parts, strict=True):
        policy = policy_of(solution, part, contiguous(problem))
        assert task.schedule.packed == policy.packed
        assert task.schedule.nest == policy.nest == solution.nest
        assert task.schedule.policy.prefetched == policy.prefetched
        assert task.schedule.policy.strides == policy.strides


def test_rows_without_whole_vectors_are_packed_and_the_report_says_so():
    """The solution reads A in place; its rows are not side by side."""
    problem = Problem.of("mn-nk-km", {"m": 64, "n": 64, "k": 64})
    found = plan(problem, machine=MACHINE, cache=False)
    nest = replace(found.nest, packed=(None, found.nest.bands[1].level))
    solution = replace(found.solution, nest=nest)
    policy = policy_of(solution, problem, contiguous(problem))
    assert policy.rows_operand == 0
    assert policy.packed[ROWS] == 1
    assert policy.packed[COLUMNS] > 0
    said = str(type(found)(solution))
    assert f"A (nk) is packed into {policy.nest.bands[1].level}: it has no whole vectors" in said
    assert "is read in place" not in said


def test_backwards_arrays_are_walked_from_their_ends():
    """Then they are as contiguous as others."""
    problem = Problem.of("mn-mk-kn", 16)
    solution = solve(problem, MACHINE, 1, Demand())
    forwards = contiguous(problem)
    backwards = [{i: -step for i, step in of.items()} for of in forwards]
    policies = [policy_of(solution, problem, strides) for strides in (forwards, backwards)]
    assert policies[0].last == {}
    assert policies[1].last == {"n": 15, "k": 15}
    assert policies[0].packed == policies[1].packed


def test_large_copies_are_not_near():
    """Half of the second cache is what a copy may take, where there is one."""
    problem = Problem.of("mn-mk-kn", 16)
    for machine in (MACHINE, MACHINE.replace(levels=MACHINE.levels[-1:])):
        solution = replace(solve(problem, MACHINE, 1, Demand()), machine=machine)
        policy = policy_of(solution, problem, contiguous(problem))
        near = machine.second_cache
        wanted = machine.costs.kept_share * near.usable if near else float("inf")
        assert policy.near_copy_bytes == wanted


def test_the_fastest_solution_of_a_strategy_is_taken(monkeypatch):
    """Of equally fast ones the first; of the strategy that is asked for."""
    problem = Problem.of("mn-mk-kn", 64)
    usual = solve(problem, MACHINE, 1, Demand())
    slower = replace(usual, cost=replace(usual.cost, compute=2 * usual.cost.seconds))
    faster_cost = replace(
        usual.cost,
        compute=usual.cost.seconds / 2,
        levels=tuple(replace(level, seconds=0.0) for level in usual.cost.levels),
    )
    faster = replace(usual, cost=faster_cost)

    class Fixed:
        def __init__(self, *found):
            self.found = found

        def solutions(self, *_, **__):
            return self.found

    other = replace(usual, threads=2)
    for found, best in (
        ((usual, slower), usual),
        ((slower, usual, faster), faster),
        ((usual, other), usual),
        ((other, usual), other),
    ):
        strategies = {"solver": partial(Fixed, *found), "other": partial(Fixed, other)}
        monkeypatch.setattr(solving, "STRATEGIES", strategies)
        assert solve(problem, MACHINE, 1, Demand(strategy="other")) is other
        assert solve(problem, MACHINE, 1, Demand()) is best


def test_a_strategy_that_is_unknown_is_refused():
    """The message lists those that there are."""
    with pytest.raises(
        PlanError, match="no strategy 'fastest'; there are solver, composition, slicing"
    ):
        solve(Problem.of("mn-mk-kn", 64), MACHINE, 1, Demand(strategy="fastest"))
