"""Choices that are ruled out: proved without a solver, and right by another one."""

from dataclasses import replace

import pytest
from posynomial_programs import make_setting

from tilesolve import plan
from tilesolve.bench.cases import find_cases
from tilesolve.constants.policy import ROUNDED_OPTIMA, SOLVER_TOLERANCE
from tilesolve.contractions.errors import SolverError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import suite
from tilesolve.machine.model import Machine
from tilesolve.planning.geometric import optima
from tilesolve.planning.geometric.loop_choices import list_choices
from tilesolve.planning.geometric.program import formulate
from tilesolve.planning.geometric.proofs import check_ruled_out, list_proved
from tilesolve.planning.geometric.relaxation import relax
from tilesolve.plans.plan import Plan

DRAWN = "random:40:58058"


def check_like_all_by_ipopt(monkeypatch, problem, machine):
    """Hold bounds, and the best of the choices that are solved, to IPOPT's optima of all."""
    setting = plan(problem, machine=machine, cache=False).setting
    found = relax(setting)
    proved = list_proved(setting, found.ruled_out)
    assert len(proved) == len(dict(proved)) == found.pruned
    assert not {one.choice for one in found.optima}.intersection(dict(proved))
    monkeypatch.setattr(optima, "find_least", lambda *_: None)
    all_by_ipopt = {c: optima.optimum(formulate(setting, c), c) for c in list_choices(setting)}
    monkeypatch.undo()
    assert all(one.by_ipopt for one in all_by_ipopt.values())
    if single := [one for one in found.ruled_out if one.level is None]:
        assert len(single) == len(found.ruled_out) == 1
    else:
        for choice, seconds in proved:
            assert seconds <= all_by_ipopt[choice].seconds * (1 + 1e-6)
            assert seconds >= found.best.seconds * (1 - 2 * SOLVER_TOLERANCE)
    least = min(one.seconds for one in all_by_ipopt.values())
    assert found.best.seconds <= least * (1 + 2 * SOLVER_TOLERANCE)


@pytest.mark.parametrize("name", list(suite("tccg"))[3::9])
def test_bounds_and_the_best_choice_agree_with_ipopt(monkeypatch, name):
    """Of contractions that are known."""
    check_like_all_by_ipopt(monkeypatch, suite("tccg")[name], "i7-6700k")


@pytest.mark.parametrize("name", list(find_cases(DRAWN))[::13])
def test_they_agree_for_drawn_contractions(monkeypatch, name):
    """And of those that nobody looked at."""
    check_like_all_by_ipopt(monkeypatch, find_cases(DRAWN)[name], "e5-2680v4")


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["i7-6700k", "e5-2680v4"])
@pytest.mark.parametrize("cases", ["tccg", DRAWN])
def test_they_agree_for_all(monkeypatch, cases, machine):
    """Of all of them."""
    for problem in find_cases(cases).values():
        check_like_all_by_ipopt(monkeypatch, problem, machine)


@pytest.mark.parametrize("rate", [2e10, 1e11, 1e13])
@pytest.mark.parametrize("name", ["abcd-ea-ebcd", "abcdef-degb-gfac", "ab-acd-dbc", "abc-bda-dc"])
def test_choices_that_are_stopped_change_nothing(name, rate):
    """The optima that may be made integer are the same ones, and those of others are bounded."""
    setting = make_setting(suite("tccg")[name], Machine.load("e5-2680v4"), rate)
    usual, all_of_them = relax(setting), relax(setting, thorough=True)
    solved = {one.choice: one for one in all_of_them.optima}
    first, others = (
        [replace(one, bound=0.0) for one in found.optima[:ROUNDED_OPTIMA]]
        for found in (usual, all_of_them)
    )
    assert first == others
    stopped = [one for one in usual.ruled_out if one.level == 0]
    assert usual.solved + len(stopped) == all_of_them.solved
    for one in stopped:
        assert usual.best.seconds <= one.seconds
        assert check_ruled_out(setting, one) <= solved[one.loops].seconds * (1 + 1e-9)


def test_some_choices_are_stopped():
    """Where many are solved, some programs show before their end that they are not needed."""
    setting = make_setting(suite("tccg")["abcd-ea-ebcd"], Machine.load("e5-2680v4"), 1e13)
    assert any(one.level == 0 for one in relax(setting).ruled_out)


@pytest.mark.parametrize("spec", ["abcd-dbea-ec", "pqrs-tr-qtps", "xyz-zwxv-ywv"])
def test_proofs_hold_in_other_letters_and_as_json(spec):
    """A plan of other letters has the proofs of its canonical problem, and so has its JSON."""
    problem = Problem.of(spec, 60)
    found = plan(problem, machine="e5-2680v4", cache=False)
    assert found.search.pruned
    again = Plan.from_json(found.to_json())
    assert len(list_proved(again.setting, again.search.ruled_out)) == found.search.pruned


def test_what_is_not_proved_is_an_error():
    """A bound that is higher than its multipliers show is refused."""
    found = plan("ab-ac-cb", 900, "e5-2680v4", cache=False)
    one = found.search.ruled_out[0]
    assert check_ruled_out(found.setting, one) >= one.seconds * (1 - 1e-6)
    for wrong in (
        replace(one, seconds=one.seconds * 1.01),
        replace(one, multipliers=one.multipliers[:1]),
    ):
        with pytest.raises(SolverError, match="are not ruled out"):
            check_ruled_out(found.setting, wrong)


def test_reports_show_what_is_ruled_out():
    """Each group of choices with its bound; the solver's word where programs are not convex."""
    found = plan("ab-ac-cb", 900, "e5-2680v4", cache=False)
    said = [line for line in str(found).splitlines() if "at least" in line and line[0] == " "]
    assert sum(int(line.split()[0]) for line in said if "tile" in line) == found.search.pruned
    assert "as the solver says" not in str(found)
    layer = plan("kh-c[h+r]-kcr", "k=64 h=900 c=64 r=3", "e5-2680v4", cache=False)
    assert layer.search.pruned
    assert str(layer).count("as the solver says") == len(layer.search.ruled_out)
    assert not list_proved(layer.setting, layer.search.ruled_out)
