"""Shares of the fastest variant's speed: who is picked by some rounds is judged by others."""

import numpy as np
import pytest

import tilesolve
from tilesolve.ranking.standings import Standings
from tilesolve.ranking.variants import GRID, SOLVER, Variant

PLAN = tilesolve.plan("ik-ij-jk", 8, "i7-6700k")


def standings(rounds):
    """Variants that took so long in each round, in the order of their scores."""
    variants = tuple(Variant(GRID if at else SOLVER, PLAN) for at in range(len(rounds)))
    scores = (("mine", tuple(map(float, range(len(rounds))))),)
    return Standings("mine", variants, scores, tuple(map(tuple, rounds.tolist())))


def test_a_lucky_median_is_no_faster_plan():
    """Of equally fast plans the mean share is 1, where the least median has each far below."""
    draw = np.random.default_rng(3)
    noisy = [standings(one) for one in np.exp(0.05 * draw.standard_normal((200, 30, 6)))]
    shares = [1 / (1 + one.excess) for one in noisy]
    few = [1 / (1 + one.regret(5)) for one in noisy]
    lucky = [1 / (1 + one.excess_over_least) for one in noisy]
    assert np.mean(shares) == pytest.approx(1.0, abs=0.01)
    assert np.mean(few) == pytest.approx(1.0, abs=0.01)
    assert np.mean(lucky) < 0.97


@pytest.mark.parametrize("fast", [0, 7])
def test_a_faster_plan_is_found_in_noise(fast):
    """By its true time: the solver's plan, number 0, has all of its speed if it is the one."""
    draw = np.random.default_rng(4)
    true = np.ones(30)
    true[fast] = 0.8
    noisy = true[:, None] * np.exp(0.02 * draw.standard_normal((200, 30, 6)))
    shares = [1 / (1 + standings(one).excess) for one in noisy]
    assert np.mean(shares) == pytest.approx(0.8 if fast else 1.0, abs=0.005)
    least = 0.8 if fast > 4 else 1.0
    few = [1 / (1 + standings(one).regret(5)) for one in noisy]
    assert np.mean(few) == pytest.approx(least, abs=0.01)
